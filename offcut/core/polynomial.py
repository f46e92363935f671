"""Polynomials over sizes: enough algebra to see that tiles of equal height lie edge to edge."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from offcut.core import index as ix
from offcut.core.expr import Binary, Const, Expr, Var
from offcut.core.memo import memo


@dataclass(frozen=True, slots=True)
class Polynomial:
    """A sum of coefficients times products of names; equal where the sums are, term by term.

    terms   (names, sorted, one for each factor) and the coefficient, which is not 0
    """

    terms: frozenset[tuple[tuple[str, ...], int]]

    def __add__(self, other: Polynomial) -> Polynomial:
        return self._plus(other, 1)

    def __sub__(self, other: Polynomial) -> Polynomial:
        return self._plus(other, -1)

    def _plus(self, other: Polynomial, sign: int) -> Polynomial:
        if not other.terms:
            return self
        total = dict(self.terms)
        for names, factor in other.terms:
            total[names] = total.get(names, 0) + sign * factor
        return _polynomial(total)

    def __mul__(self, other: Polynomial) -> Polynomial:
        if not self.terms or not other.terms:
            return _ZERO
        total: dict[tuple[str, ...], int] = {}
        for names, factor in self.terms:
            for more, by in other.terms:
                key = tuple(sorted((*names, *more)))
                total[key] = total.get(key, 0) + factor * by
        return _polynomial(total)

    def at(self, values: Mapping[str, Polynomial]) -> Polynomial:
        """With names replaced."""
        total = constant(0)
        for names, factor in self.terms:
            product = constant(factor)
            for name in names:
                product = product * values.get(name, variable(name))
            total = total + product
        return total

    def split(self, name: str) -> tuple[Polynomial, Polynomial] | None:
        """(a, b) with ``self == a + b * name``; None where `name` has a higher power."""
        if not any(name in names for names, _ in self.terms):
            return self, _ZERO
        without: dict[tuple[str, ...], int] = {}
        with_it: dict[tuple[str, ...], int] = {}
        for names, factor in self.terms:
            if names.count(name) > 1:
                return None
            if name in names:
                with_it[tuple(other for other in names if other != name)] = factor
            else:
                without[names] = factor
        return _polynomial(without), _polynomial(with_it)

    def least(self, bounds: Mapping[str, int]) -> int | None:
        """Return a lower bound where every name is at least its bound, none of which is negative.

        None where there is a negative term, or a name without a bound.
        """
        total = 0
        for names, factor in self.terms:
            if names and (factor < 0 or any(bounds.get(name, -1) < 0 for name in names)):
                return None
            product = factor
            for name in names:
                product *= bounds[name]
            total += product
        return total

    def expr(self) -> Expr:
        """Return the same as an index expression."""
        parts: list[Expr] = []
        for names, factor in sorted(self.terms):
            product: Expr = ix.const(factor)
            for name in names:
                product = ix.mul(product, Var(name))
            parts.append(product)
        return ix.add(*parts)


def _polynomial(terms: Mapping[tuple[str, ...], int]) -> Polynomial:
    return Polynomial(frozenset((names, factor) for names, factor in terms.items() if factor))


_ZERO = _polynomial({})


@memo(1024)
def constant(value: int) -> Polynomial:
    """Return a number."""
    return _polynomial({(): value})


@memo(1024)
def variable(name: str) -> Polynomial:
    """Return a name."""
    return _polynomial({(name,): 1})


def polynomial(
    expr: Expr, part: Callable[[Expr], Polynomial | None] = lambda _: None
) -> Polynomial | None:
    """Return an index expression of sums and products; None for any other.

    part  what anything else in it is
    """
    match expr:
        case Const(value, _):
            return constant(int(value))
        case Var(name):
            return variable(name)
        case Binary("+" | "-" | "*" as op, a, b):
            x, y = polynomial(a, part), polynomial(b, part)
            if x is None or y is None:
                return None
            return x + y if op == "+" else x - y if op == "-" else x * y
        case _:
            return part(expr)
