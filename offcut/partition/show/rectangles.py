"""Represent areas of integer points as strips ``(top, bottom, left, right)``, half open."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

Interval = tuple[int, int]
Strip = tuple[int, int, int, int]
Area = tuple[Strip, ...]
Line = tuple[tuple[int, int], tuple[int, int]]


def merge_intervals(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the union, as disjoint intervals that do not touch, in ascending order."""
    merged: list[Interval] = []
    for lo, hi in sorted(intervals):
        if merged and lo <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], hi))
        elif lo < hi:
            merged.append((lo, hi))
    return merged


def strips_of(strips: Iterable[Strip]) -> Area:
    """Return the union, as disjoint strips, each as high as possible."""
    return minus(strips, ())


def minus(strips: Iterable[Strip], holes: Iterable[Strip]) -> Area:
    """Return the points of `strips` that are in no hole, as disjoint strips."""
    rows: list[tuple[int, int, list[Interval]]] = []
    for top, bottom, (remaining, cut) in _bands(strips, holes):
        intervals = [part for one in remaining for part in _without(one, cut)]
        if rows and rows[-1][1] == top and rows[-1][2] == intervals:
            rows[-1] = (rows[-1][0], bottom, intervals)
        elif intervals:
            rows.append((top, bottom, intervals))
    return tuple((top, bottom, *one) for top, bottom, intervals in rows for one in intervals)


def points(area: Iterable[Strip]) -> int:
    """Return the number of points of disjoint strips."""
    return sum((bottom - top) * (right - left) for top, bottom, left, right in area)


def outline(area: Sequence[Strip]) -> list[Line]:
    """Return the lines around an area, as ((x, y), (x, y)); its strips are disjoint."""
    lines: list[Line] = []
    above: list[Interval] = []
    last = 0
    for top, bottom, (intervals,) in _bands(area):
        if top != last:
            lines += [((a, last), (b, last)) for a, b in above]
            above = []
        edges = [part for one in intervals for part in _without(one, above)]
        edges += [part for one in above for part in _without(one, intervals)]
        lines += [((a, top), (b, top)) for a, b in edges]
        lines += [((x, top), (x, bottom)) for one in intervals for x in one]
        above, last = intervals, bottom
    return lines + [((a, last), (b, last)) for a, b in above]


def _without(interval: Interval, holes: Sequence[Interval]) -> Iterator[Interval]:
    """Yield the parts of an interval outside disjoint, ascending holes."""
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
    """Yield bands of rows in which no area changes, from the top down, with the intervals of each area."""
    rows: list[dict[Interval, list[Interval]]] = []
    for area in areas:
        rows.append({})
        for top, bottom, left, right in area:
            if top < bottom and left < right:
                rows[-1].setdefault((top, bottom), []).append((left, right))
    waiting = sorted(
        (
            (height, place, merge_intervals(parts))
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
                    merge_intervals(
                        part for _, at, parts in active if at == place for part in parts
                    )
                    for place in range(len(rows))
                ],
            )
