"""Expressions of sizes in; the same without divisions by literals, over further sizes, out."""

from __future__ import annotations

from collections.abc import Iterable

from offcut.core import index as ix
from offcut.core.expr import Binary, Const, Expr, Var, rewrite, variables
from offcut.core.program import Size
from offcut.polyhedral import INDEX_LIMIT

LEAST = -INDEX_LIMIT  # of a size that may be negative


class Quotients:
    """Names for ``a // c`` and ``a % c``: sizes q and r with ``a == c*q + r`` and ``0 <= r < c``.

    Only where `a` is made of `sizes`.
    """

    def __init__(self, sizes: Iterable[Size]) -> None:
        self.known: dict[tuple[Expr, int], tuple[Var, Var]] = {}
        self.facts: list[Expr] = []
        self.sizes: list[Size] = []
        self.least = {size.name: size.min for size in sizes}

    def named(self, expr: Expr) -> Expr:
        """`expr` without divisions of sizes by literals."""
        return ix.fold_indices(rewrite(expr, self._quotient))

    def _quotient(self, node: Expr) -> Expr | None:
        match node:
            case Binary("//" | "%" as op, a, Const(value, _)) if value > 0:
                if not variables(a) <= set(self.least):
                    return None
                pair = self._pair(ix.simplify(a), int(value))
                return pair[0] if op == "//" else pair[1]
            case _:
                return None

    def _pair(self, a: Expr, divisor: int) -> tuple[Var, Var]:
        if (a, divisor) not in self.known:
            number = len(self.known)
            q, r = Var(f"q{number}"), Var(f"r{number}")
            self.known[a, divisor] = q, r
            form = ix.to_linear(a)
            positive = form.const >= 0 and all(
                factor > 0 and isinstance(atom, Var) and self.least[atom.name] >= 0
                for atom, factor in form.terms
            )
            least = 0 if positive else LEAST
            self.sizes += [Size(q.name, least), Size(r.name, 0, divisor - 1)]
            self.least |= {q.name: least, r.name: 0}
            self.facts.append(ix.compare("==", a, ix.add(ix.mul(divisor, q), r)))
        return self.known[a, divisor]
