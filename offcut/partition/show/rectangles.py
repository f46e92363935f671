"""Areas of the plane of integer points: strips ``(top, bottom, left, right)``, half open."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

Interval = tuple[int, int]
Strip = tuple[int, int, int, int]
Area = tuple[Strip, ...]
Line = tuple[tuple[int, int], tuple[int, int]]


def joined(intervals: Iterable[Interval]) -> list[Interval]:
    """The union, as disjoint intervals that do not touch, in ascending order."""
    found: list[Interval] = []
    for lo, hi in sorted(intervals):
        if found and lo <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], hi))
        elif lo < hi:
            found.append((lo, hi))
    return found


def strips_of(strips: Iterable[Strip]) -> Area:
    """The union, as disjoint strips, each as high as it can be."""
    return minus(strips, ())


def minus(strips: Iterable[Strip], holes: Iterable[Strip]) -> Area:
    """The points of `strips` that are in no hole, as disjoint strips."""
    rows: list[tuple[int, int, list[Interval]]] = []
    for top, bottom, (kept, cut) in _bands(strips, holes):
        intervals = [part for one in kept for part in _without(one, cut)]
        if rows and rows[-1][1] == top and rows[-1][2] == intervals:
            rows[-1] = (rows[-1][0], bottom, intervals)
        elif intervals:
            rows.append((top, bottom, intervals))
    return tuple((top, bottom, *one) for top, bottom, intervals in rows for one in intervals)


def points(area: Iterable[Strip]) -> int:
    """How many points disjoint strips have."""
    return sum((bottom - top) * (right - left) for top, bottom, left, right in area)


def outline(area: Sequence[Strip]) -> list[Line]:
    """The lines around an area, as ((x, y), (x, y)); its strips are disjoint."""
    found: list[Line] = []
    above: list[Interval] = []
    last = 0
    for top, bottom, (here,) in _bands(area):
        if top != last:
            found += [((a, last), (b, last)) for a, b in above]
            above = []
        edges = [part for one in here for part in _without(one, above)]
        edges += [part for one in above for part in _without(one, here)]
        found += [((a, top), (b, top)) for a, b in edges]
        found += [((x, top), (x, bottom)) for one in here for x in one]
        above, last = here, bottom
    return found + [((a, last), (b, last)) for a, b in above]


def _without(interval: Interval, holes: Sequence[Interval]) -> Iterator[Interval]:
    """The parts of an interval outside disjoint, ascending holes."""
    lo, hi = interval
    for start, end in holes:
        if end <= lo or start >= hi:
            continue
        if lo < start:
            yield lo, start
        lo = end
    if lo < hi:
        yield lo, hi


def _bands(*areas: Iterable[Strip]) -> Iterator[tuple[int, int, list[list[Interval]]]]:
    """Rows between which no area changes, from the top down, and the intervals of each area."""
    rows: list[dict[Interval, list[Interval]]] = []
    for area in areas:
        rows.append({})
        for top, bottom, left, right in area:
            if top < bottom and left < right:
                rows[-1].setdefault((top, bottom), []).append((left, right))
    waiting = sorted(
        (
            (height, place, joined(parts))
            for place, one in enumerate(rows)
            for height, parts in one.items()
        ),
        key=lambda item: item[0],
        reverse=True,
    )
    edges = sorted({edge for one in rows for height in one for edge in height})
    active: list[tuple[int, int, list[Interval]]] = []
    for top, bottom in pairwise(edges):
        active = [one for one in active if one[0] > top]
        while waiting and waiting[-1][0][0] == top:
            (_, end), place, parts = waiting.pop()
            active.append((end, place, parts))
        if active:
            yield (
                top,
                bottom,
                [
                    joined(part for _, at, parts in active if at == place for part in parts)
                    for place in range(len(rows))
                ],
            )
