"""Values of a function at some sizes -> a formula at all of them: affine from some size on, with a period.

Units that wait for one another are a recurrence of sums and maxima, and those become periodic: from some tile on, so many
more tiles take so many more cycles, whatever came before. Over one size n, of period p::

    cycles(n) = g(n - p*q) + rate*q        q = max((n - first) // p, 0)

where g, below ``first + p``, is affine between a few sizes, its **knots**, and ``rate`` is what a period adds. Over several sizes each
value of g at a knot, and each rate, is such a formula in the others. A period is a multiple of what loops and words divide a size by; which
multiple, and from where on, is read off values, along each size while the others are small.

That there is a period is a theorem for sums and maxima alone. A bus that serves who asks first is neither, and what is so
of small sizes need not be of others. So the formula is held against sizes that are drawn from all that it covers: where it
is off, it is made anew with knots there (`PiecewiseAxis.finer`), as long as that helps; and then against others, drawn later. It
says how far it was off at most.

Source: F. Baccelli, G. Cohen, G. J. Olsder, J.-P. Quadrat, *Synchronization and Linearity*, Wiley 1992, section 3.7.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from math import lcm, prod

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
        formula = pieces[-1][1] if pieces else values[0]
        for right, line in reversed(pieces[:-1]):
            formula = Select(Compare("<=", here, ix.const(right)), line, formula)
        if not self.period:
            return formula
        rate = _minus(at[self.first + self.period], at[self.first])
        return Binary("+", formula, _times(rate, real(self.turns)))

    def interpolate(self, at: int, value: Callable[[int], float]) -> float:
        """Return what the formula says of a size: of the values at knots, only those are asked for that it takes."""
        periods = self.periods(at)
        here = at - periods * self.period
        right = min(max(bisect_left(self.knots, here), 1), len(self.knots) - 1)
        if right == 0:
            return value(self.knots[0])
        low, high = self.knots[right - 1], self.knots[right]
        total = value(high)
        if here != high:
            share = (here - low) / (high - low)
            total = (1.0 - share) * value(low) + share * total
        if periods:
            total += periods * (value(self.first + self.period) - value(self.first))
        return total

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
        sizes = [self.knots[0], *(one for one in middles if one not in self.knots)]
        if self.period:
            third = self.period // 3 // unit * unit
            far = (last + 2 * self.period + third, last + third, last + 4 * self.period - unit)
            sizes = [*far, *sizes]
        return [one for one in sizes if one <= self.size.max] or [last]


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


Point = tuple[int, ...]
Values = Callable[..., float]

TOLERANCE = 0.02
"""Of the value: a formula that is off by more is made anew."""
MAX_ROUNDS = 12
"""Times that it is made anew."""
MAX_FAILING = 4
"""Of the sizes where it is off most, those that must be nearer for it."""
MAX_STRETCH = 2
"""Times as far as at first that knots may lie."""
BASES = (2, 3, 5, 7, 11, 13)
"""Of the digits that sizes are drawn by."""


def interpolate(
    axes: Sequence[PiecewiseAxis], at: Values, point: Point, before: Point = ()
) -> float:
    """Return what a formula says of a point, of the values at its knots that it takes there."""
    if not axes:
        return at(*before)
    (axis, *others), (here, *rest) = axes, point
    return axis.interpolate(
        here, lambda knot: interpolate(others, at, tuple(rest), (*before, knot))
    )


def relative_error(axes: Sequence[PiecewiseAxis], at: Values, point: Point) -> float:
    """Return by which part of the value a formula is off at a point."""
    value = at(*point)
    return abs(interpolate(axes, at, point) - value) / max(value, 1.0)


def draw_points(axes: Sequence[PiecewiseAxis], turns: Iterable[int]) -> Iterator[Point]:
    """Yield points spread over all that is looked at of the sizes, more of them where sizes are small: of each size the same
    parts of its logarithm, by the digits of a turn in another base (Halton).
    """
    for turn in turns:
        yield tuple(
            min(max(round(low * (axis.reach / low) ** part / unit) * unit, low), axis.reach)
            for number, axis in enumerate(axes)
            for low, unit in [(axis.knots[0], axis.size.multiple_of)]
            for part in [_mirrored_digits(turn + 1, BASES[number % len(BASES)])]
        )


def refine(
    axes: Sequence[PiecewiseAxis], at: Values, points: Iterable[Point], most: int
) -> list[PiecewiseAxis]:
    """Return the sizes with more knots, up to `most` points of them, as long as a formula is off and less so for them: at each time those
    that are the most use for each point that they add.
    """
    axes, points = list(axes), sorted(set(points))
    furthest = [MAX_STRETCH * axis.knots[-1] for axis in axes]
    for _ in range(MAX_ROUNDS):
        by_far = {point: relative_error(axes, at, point) for point in points}
        failing = sorted(points, key=lambda point: -by_far[point])[:MAX_FAILING]
        failing = [point for point in failing if by_far[point] > TOLERANCE]
        before = sum(by_far[point] - TOLERANCE for point in failing)
        best, finest = 0.0, None
        for finer in (one for point in failing for one in _finer(axes, point)):
            added = _points(finer) - _points(axes)
            if _points(finer) > most or any(
                axis.knots[-1] > far for axis, far in zip(finer, furthest, strict=True)
            ):
                continue
            excess = sum(
                max(relative_error(finer, at, point) - TOLERANCE, 0.0) for point in failing
            )
            if (before - excess) / added > best:
                best, finest = (before - excess) / added, finer
        if finest is None:
            break
        axes = finest
    return axes


def _finer(axes: Sequence[PiecewiseAxis], point: Point) -> Iterator[list[PiecewiseAxis]]:
    """With more knots along one of the sizes, or at a point along all of them."""
    each = [[*axis.finer(here)] for axis, here in zip(axes, point, strict=True)]
    for number, finer in enumerate(each):
        for one in finer:
            yield [*axes[:number], one, *axes[number + 1 :]]
    knots = [axis.at(here) for axis, here in zip(axes, point, strict=True)]
    if sum(one != axis for one, axis in zip(knots, axes, strict=True)) > 1:
        yield knots


def _points(axes: Sequence[PiecewiseAxis]) -> int:
    return prod(len(axis.knots) for axis in axes)


def _mirrored_digits(number: int, base: int) -> float:
    """The digits of a number behind the point, in reverse."""
    fraction, place = 0.0, 1.0
    while number:
        place /= base
        fraction += number % base * place
        number //= base
    return fraction


Cycles = Callable[[Mapping[str, int]], float]

NEAR = 0.01
"""Of a period's cycles: periods that differ by less are alike. Of the cycles at a size: so far a line between knots may be off."""
MAX_STEPS = 4
"""Steps to where periods begin, and in a period, that are tried."""
MAX_ENDS = 64
"""Ends of tiles that are looked at along a size."""
MAX_POINTS = 1000
"""Points of knots, over several sizes together; where there are more, lines may be off by more."""
MAX_REFINED_POINTS = 2000
"""The same of a formula that is made anew."""
HELD_OUT_POINTS = 16
"""By size that it is over: points that are drawn at a time."""
DRAWS = 3
"""Times that they are drawn to make a formula anew, before those that say how far it is off."""
FAR_POINTS = 10
"""Others, some of them periods on."""


@dataclass(frozen=True, slots=True)
class PeriodicFit:
    """A formula, and by which part of the value it was off at most, at sizes that it was not made of."""

    formula: Expr
    within: float


def fit_periodic(
    cycles: Cycles, sizes: Sequence[Size], divisors: Mapping[str, Sequence[int]]
) -> PeriodicFit:
    """Return the formula of cycles.

    sizes     that it is over
    divisors  what loops and words divide each size by
    """
    known: dict[tuple[int, ...], float] = {}
    names = [size.name for size in sizes]

    def at(*point: int) -> float:
        if point not in known:
            known[point] = cycles(dict(zip(names, point, strict=True)))
        return known[point]

    steps = [lcm(size.multiple_of, *divisors[size.name]) for size in sizes]
    lows = [size.at_or_above(1) for size in sizes]
    more = [
        min(low + 2 * step, size.last) for low, step, size in zip(lows, steps, sizes, strict=True)
    ]

    def probe_along(axis: int) -> _Probe:
        others = {(*one[:axis], *one[axis + 1 :]) for one in (tuple(lows), tuple(more))}
        return lambda x: tuple(at(*one[:axis], x, *one[axis:]) for one in sorted(others))

    probes = [
        _probe_axis(probe_along(axis), size, steps[axis], divisors[size.name])
        for axis, size in enumerate(sizes)
    ]
    near, axes = NEAR, [one.along(NEAR) for one in probes]
    while prod(len(one.knots) for one in axes) > MAX_POINTS and near < 1.0:
        near *= 1.25
        axes = [one.along(near) for one in probes]
    points, count = {*_far(axes)}, HELD_OUT_POINTS * len(sizes)
    for turn in range(DRAWS):
        points |= {*draw_points(axes, range(count * turn, count * (turn + 1)))}
        axes = refine(axes, at, points, MAX_REFINED_POINTS)
    points |= {*_far(axes), *draw_points(axes, range(count * DRAWS, count * (DRAWS + 1)))}
    return PeriodicFit(
        _formula(axes, at, ()), max(relative_error(axes, at, point) for point in points)
    )


def _far(axes: Sequence[PiecewiseAxis]) -> Iterator[tuple[int, ...]]:
    """Some points beside knots, and some periods on."""
    held_out = [one.held_out_sizes() for one in axes]
    for turn in range(FAR_POINTS):
        yield tuple(one[turn * (axis + 1) % len(one)] for axis, one in enumerate(held_out))


def _formula(
    axes: Sequence[PiecewiseAxis], at: Callable[..., float], point: tuple[int, ...]
) -> Expr:
    if not axes:
        return real(at(*point))
    first, *others = axes
    return first.formula([_formula(others, at, (*point, knot)) for knot in first.knots])


_Probe = Callable[[int], tuple[float, ...]]
"""Cycles along a size, the others at a few of theirs."""


@dataclass(frozen=True, slots=True)
class _AxisProbe:
    """One size: the points at which cycles were looked at, up to where periods begin to repeat."""

    seen: _Probe
    size: Size
    first: int
    period: int
    points: Sequence[int]

    def along(self, near: float) -> PiecewiseAxis:
        """With as few of the points for knots as lines between them are near the others."""
        ends = {self.first, self.first + self.period}
        knots, at = [self.points[0]], 0
        while at + 1 < len(self.points):
            to = at + 1
            while to + 1 < len(self.points) and self.points[to] not in ends:
                inside = self.points[at + 1 : to + 1]
                a, b = self.points[at], self.points[to + 1]
                if not all(_on_line(self.seen, a, one, b, near) for one in inside):
                    break
                to += 1
            knots.append(self.points[to])
            at = to
        return PiecewiseAxis(self.size, self.first, self.period, tuple(knots))


def _probe_axis(probe: _Probe, size: Size, step: int, divisors: Sequence[int]) -> _AxisProbe:
    unit, low, most = size.multiple_of, size.at_or_above(1), size.last
    first, period = _period(probe, low, most, step, unit)
    last = first + period if period else most
    ends = {low, last, first}
    for divisor in sorted(divisors, reverse=True):
        whole = range(-(-low // divisor) * divisor, last, divisor)
        jumps = {one // unit * unit + more for one in whole for more in (0, unit)}
        if len(ends | jumps) > MAX_ENDS:
            break
        ends |= jumps
    within = sorted(one for one in ends if low <= one <= last)
    return _AxisProbe(probe, size, first, period, _bisect(probe, within, unit))


def _period(measure: _Probe, low: int, most: int, step: int, unit: int) -> tuple[int, int]:
    """Where periods begin, and how long they are: the first that are alike. Where none are, those that are most alike, but 0
    where all sizes are hardly more than are looked at for periods.
    """
    periods: list[tuple[float, int, int]] = []
    pairs = product(range(MAX_STEPS), range(1, MAX_STEPS + 1))
    probes = sorted({0, unit, step // 2 // unit * unit, step - unit})
    for start, steps in sorted(pairs, key=lambda one: (one[0] + 2 * one[1], one)):
        first, period = low + start * step, steps * step
        if first + 3 * period > most:
            continue
        off = max(_unlike(measure, first, period, probe) for probe in probes)
        if off <= NEAR:
            return first, period
        periods.append((off, first, period))
    if most - low <= MAX_STEPS**2 * step:
        return low, 0
    _, first, period = min(periods)
    return first, period


def _unlike(measure: _Probe, first: int, period: int, probe: int) -> float:
    """By which part of it a period, at a probe, differs from the next and from the first one."""
    rows = [measure(first + probe + turn * period) for turn in range(3)]
    base = [measure(first + turn * period) for turn in range(2)]
    off = 0.0
    for a, b, c, x, y in zip(*rows, *base, strict=True):
        whole = max(abs(y - x), 1.0)
        off = max(off, abs((b - a) - (y - x)) / whole, abs((c - b) - (y - x)) / whole)
    return off


def _bisect(measure: _Probe, ends: Sequence[int], unit: int) -> list[int]:
    """`ends`, and between them as many sizes as lines need to be near."""
    knots = [ends[0]]

    def between(a: int, b: int) -> None:
        middle = (a + b) // 2 // unit * unit
        if not a < middle < b:
            return
        near = _on_line(measure, a, middle, b, NEAR)
        if not near:
            between(a, middle)
        knots.append(middle)
        if not near:
            between(middle, b)

    for a, b in pairwise(ends):
        between(a, b)
        knots.append(b)
    return knots


def _on_line(measure: _Probe, a: int, middle: int, b: int, near: float) -> bool:
    share = (middle - a) / (b - a)
    return all(
        abs(left + share * (right - left) - value) <= near * abs(value)
        for left, value, right in zip(measure(a), measure(middle), measure(b), strict=True)
    )
