"""One size of a formula: affine between a few sizes, its knots, and periodic from some of them on.

Over a size n, of period p, ``cycles(n) = g(n - p*q) + rate*q`` with ``q = max((n - first) // p, 0)``; g, up to
``first + p``, goes through its values at the knots in straight lines, and ``rate`` is what a period adds.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from offcut.core import index as ix
from offcut.core.expr import Binary, Compare, Const, Expr, Select, Var, real
from offcut.core.program import Size


@dataclass(frozen=True, slots=True)
class PiecewiseAxis:
    """One size.

    first   where periods begin; period: how long they are, 0 where it has none
    knots   in order, the lowest size and ``first + period`` among them, or the highest size
    """

    size: Size
    first: int
    period: int
    knots: tuple[int, ...]

    def periods(self, at: int) -> int:
        """Return how many periods are gone at a size."""
        return max((at - self.first) // self.period, 0) if self.period else 0

    @property
    def turns(self) -> Expr:
        """Return how many periods are gone, over the size."""
        periods = ix.floordiv(ix.sub(Var(self.size.name), self.first), self.period)
        return ix.maximum(periods, 0)

    def formula(self, values: Sequence[Expr]) -> Expr:
        """Return the formula through values at the knots."""
        here: Expr = Var(self.size.name)
        at = dict(zip(self.knots, values, strict=True))
        if self.period:
            here = ix.sub(here, ix.mul(self.period, self.turns))
        pieces = [
            (right, _line(left, at[left], right, at[right], here))
            for left, right in pairwise(self.knots)
        ]
        made = pieces[-1][1] if pieces else values[0]
        for right, line in reversed(pieces[:-1]):
            made = Select(Compare("<=", here, ix.const(right)), line, made)
        if not self.period:
            return made
        rate = _minus(at[self.first + self.period], at[self.first])
        return Binary("+", made, _times(rate, real(self.turns)))

    def interpolate(self, at: int, value: Callable[[int], float]) -> float:
        """Return what the formula says of a size: of the values at knots, only those are asked for that it takes."""
        periods = self.periods(at)
        here = at - periods * self.period
        right = min(max(bisect_left(self.knots, here), 1), len(self.knots) - 1)
        if right == 0:
            return value(self.knots[0])
        low, high = self.knots[right - 1], self.knots[right]
        found = value(high)
        if here != high:
            share = (here - low) / (high - low)
            found = (1.0 - share) * value(low) + share * found
        if periods:
            found += periods * (value(self.first + self.period) - value(self.first))
        return found

    def at(self, at: int) -> PiecewiseAxis:
        """The same with a knot where a size is in its period."""
        here = at - self.periods(at) * self.period
        if here in self.knots or not self.knots[0] < here < self.knots[-1]:
            return self
        return replace(self, knots=tuple(sorted({*self.knots, here})))

    def finer(self, at: int) -> Iterator[PiecewiseAxis]:
        """The same with more knots, so that a size may be nearer: one where it is in its period; those of another
        period, before periods begin or in each of them.
        """
        known = self.at(at)
        if known != self:
            yield known
        if not self.period or self.first + 2 * self.period > self.size.max:
            return
        more = (knot + self.period for knot in self.knots if knot > self.first)
        knots = (*self.knots, *more)
        yield replace(self, first=self.first + self.period, knots=knots)
        yield replace(self, period=2 * self.period, knots=knots)

    @property
    def reach(self) -> int:
        """As far as it is looked at: some periods on."""
        return min(self.knots[-1] + 2 * self.period, self.size.max)

    def held_out_sizes(self) -> list[int]:
        """Sizes beside the knots, and some periods on."""
        unit, last = self.size.multiple_of, self.knots[-1]
        middles = [(a + b) // 2 // unit * unit for a, b in pairwise(self.knots)]
        found = [self.knots[0], *(one for one in middles if one not in self.knots)]
        if self.period:
            third = self.period // 3 // unit * unit
            far = (last + 2 * self.period + third, last + third, last + 4 * self.period - unit)
            found = [*far, *found]
        return [one for one in found if one <= self.size.max] or [last]


def _line(left: int, low: Expr, right: int, high: Expr, here: Expr) -> Expr:
    """Through two knots."""
    if low == high:
        return low
    slope = _times(_minus(high, low), real(1.0 / (right - left)))
    return Binary("+", low, _times(slope, real(ix.sub(here, left))))


def _minus(a: Expr, b: Expr) -> Expr:
    if isinstance(a, Const) and isinstance(b, Const):
        return real(float(a.value) - float(b.value))
    return Binary("-", a, b)


def _times(a: Expr, b: Expr) -> Expr:
    if isinstance(a, Const) and isinstance(b, Const):
        return real(float(a.value) * float(b.value))
    return Binary("*", a, b)
