"""Strips that lie edge to edge along an axis, for every extent at once, by algebra.

A quotient ``q = a // c`` and its rest r make of ``a`` the sum ``c*q + r``, so that a ladder's tiles,

    0 … 96*q    96*q … 96*q + 64*q'    96*q + 64*q' … e        with  e = 96*q + 64*q' + r'

end where the next begin by an identity of polynomials, and none ends before it begins: no coefficient
of its length is negative, once a rest that is taken off is written as what it lacks of c - 1. What isl would decide over three nested divisions is read off.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from offcut.core import index as ix
from offcut.core.expr import Binary, Compare, Const, Expr, Var, rewrite, variables
from offcut.core.polynomial import Polynomial, constant, polynomial, variable
from offcut.core.program import Size
from offcut.polyhedral import INDEX_LIMIT
from offcut.proof.by_axis.strips import Strip, X


def are_contiguous(
    extent: Expr, strips: Sequence[Strip], quotients: Quotients, sizes: Sequence[Size]
) -> bool:
    """Whether the strips are ``0 <= x < extent``, in ascending order, each coordinate in one of them.

    quotients  whose names `extent` and `strips` are in
    sizes      that these are over

    False: it is not known so.
    """
    sums = _Sums(quotients, sizes)
    end = constant(0)
    for strip in strips:
        if strip.loops or strip.values or strip.repeats:
            return False
        next_end = sums.end_from(end, strip)
        if next_end is None:
            return False
        end = next_end
    return end == sums.of(extent)


class _Sums:
    """Expressions as polynomials without the sizes that quotients and rests make up."""

    def __init__(self, quotients: Quotients, sizes: Sequence[Size]) -> None:
        self.least = {size.name: size.min for size in (*sizes, *quotients.sizes)}
        self.most: dict[str, int] = {}
        self.parts: dict[str, Polynomial] = {}
        for (a, divisor), (q, r) in quotients.known.items():
            self.most[r.name] = divisor - 1
            if isinstance(a, Var):
                value = constant(divisor) * variable(q.name) + variable(r.name)
                self.parts.setdefault(a.name, value)

    def of(self, expr: Expr) -> Polynomial | None:
        """An expression over what is left of the sizes; None where it is no sum of products."""
        sum_ = polynomial(expr)
        while sum_ is not None and any(n in self.parts for names, _ in sum_.terms for n in names):
            sum_ = sum_.at(self.parts)
        return sum_

    def end_from(self, start: Polynomial, strip: Strip) -> Polynomial | None:
        """The end of a strip that is exactly what lies from `start` to there; None: it is not known to be that."""
        ends, conditions = [self.of(strip.upper)], list[Compare]()
        for condition in strip.holds:
            match condition:
                case Compare("<", a, b) if a == X:
                    ends.append(self.of(b))
                case Compare():
                    conditions.append(condition)
                case _:
                    return None
        known = [end for end in ends if end is not None]
        if self.of(strip.lower) != start or len(known) < len(ends):
            return None
        for end in known:
            length = end - start
            least = all(self.is_never_negative(other - end) for other in known)
            if least and self.is_never_negative(length):
                return end if all(self.holds(one, length) for one in conditions) else None
        return None

    def holds(self, condition: Compare, length: Polynomial) -> bool:
        """Whether a condition is true wherever `length` is at least 1."""
        a, b = self.of(condition.a), self.of(condition.b)
        if a is None or b is None:
            return False
        one = constant(1)
        match condition.op:
            case "<":
                return self.is_never_negative(b - a - length)
            case "<=":
                return self.is_never_negative(b - a - length + one)
            case ">":
                return self.is_never_negative(a - b - length)
            case ">=":
                return self.is_never_negative(a - b - length + one)
            case _:
                return False

    def is_never_negative(self, value: Polynomial) -> bool:
        """Whether a value is at least 0 at all sizes, as its coefficients show: a rest r that is taken off is written ``c - 1 - r'``."""
        down: Mapping[str, Polynomial] = {
            names[0]: constant(self.most[names[0]]) - variable(names[0])
            for names, factor in value.terms
            if factor < 0 and len(names) == 1 and names[0] in self.most
        }
        least = {**self.least, **dict.fromkeys(down, 0)}
        known = value.at(down).least(least)
        return known is not None and known >= 0


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

    def without_divisions(self, expr: Expr) -> Expr:
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
