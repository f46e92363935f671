"""Bounds of expressions over sizes that know what a floor leaves: ``2*((h + 1)//2) - h`` is 0 or 1.

An expression is a sum of sizes with fractions before them, and the least and the greatest value of what is left. ``a // k`` is ``a/k`` less
a part of ``0, 1/k, …, (k - 1)/k``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor

from offcut.core.expr import Binary, Const, Expr, Var


@dataclass(frozen=True)
class FloorForm:
    """``sum of factor * size + rest``, with ``low <= rest <= high``."""

    factors: Mapping[str, Fraction]
    low: Fraction
    high: Fraction

    def plus(self, other: FloorForm, sign: int) -> FloorForm:
        """The sum, or the difference."""
        names = {*self.factors, *other.factors}
        zero = Fraction(0)
        terms = {
            name: self.factors.get(name, zero) + sign * other.factors.get(name, zero)
            for name in names
        }
        ends = sorted((sign * other.low, sign * other.high))
        return FloorForm(terms, self.low + ends[0], self.high + ends[1])

    def times(self, factor: Fraction) -> FloorForm:
        """The product with a number."""
        ends = sorted((self.low * factor, self.high * factor))
        return FloorForm({name: own * factor for name, own in self.factors.items()}, *ends)


def to_floor_form(expr: Expr) -> FloorForm | None:
    """An expression as a spread; None where it is no sum of floors."""
    match expr:
        case Const(value, _):
            return FloorForm({}, Fraction(int(value)), Fraction(int(value)))
        case Var(name):
            return FloorForm({name: Fraction(1)}, Fraction(0), Fraction(0))
        case Binary("+" | "-" as op, a, b):
            one, other = to_floor_form(a), to_floor_form(b)
            if one is None or other is None:
                return None
            return one.plus(other, 1 if op == "+" else -1)
        case Binary("*", Const(value, _), a) | Binary("*", a, Const(value, _)):
            inner = to_floor_form(a)
            return None if inner is None else inner.times(Fraction(int(value)))
        case Binary("//", a, Const(value, _)) if value > 0:
            inner = to_floor_form(a)
            if inner is None:
                return None
            by = Fraction(1, int(value))
            scaled = inner.times(by)
            return FloorForm(scaled.factors, scaled.low - 1 + by, scaled.high)
        case _:
            return None


def of_floors(expr: Expr, sizes: Mapping[str, tuple[int, int]]) -> tuple[int, int] | None:
    """The least and the greatest value that is seen; None where the expression is no sum of floors.

    sizes  the least and the greatest value of each
    """
    form = to_floor_form(expr)
    if form is None:
        return None
    low, high = form.low, form.high
    for name, factor in form.factors.items():
        ends = sorted((factor * sizes[name][0], factor * sizes[name][1]))
        low, high = low + ends[0], high + ends[1]
    return ceil(low), floor(high)
