"""Refines a formula over sizes: it is held against values at sizes that it was not made of, and made anew where it is off."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import prod

from offcut.costmodel.periodic.piecewise import PiecewiseAxis

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
            for part in [_mirrored(turn + 1, BASES[number % len(BASES)])]
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
        best, found = 0.0, None
        for finer in (one for point in failing for one in _finer(axes, point)):
            added = _points(finer) - _points(axes)
            if _points(finer) > most or any(
                axis.knots[-1] > far for axis, far in zip(finer, furthest, strict=True)
            ):
                continue
            left = sum(max(relative_error(finer, at, point) - TOLERANCE, 0.0) for point in failing)
            if (before - left) / added > best:
                best, found = (before - left) / added, finer
        if found is None:
            break
        axes = found
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


def _mirrored(number: int, base: int) -> float:
    """The digits of a number behind the point, in reverse."""
    found, place = 0.0, 1.0
    while number:
        place /= base
        found += number % base * place
        number //= base
    return found
