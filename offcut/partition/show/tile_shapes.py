"""Compute the tiles that run at given sizes, as shapes in the plane of two axes: strips of integer points.

What encloses a tile is a list of steps: loops, bound values, tests. Steps that share a name belong
together, others do not: where no step joins the two axes, the tiles are those of one axis times
those of the other, and none of the products is walked. Else (a triangle) each tile is walked, and
has its own outline.

Areas are lists of strips, ``(top, bottom, left, right)``, half open like every range.

Represent areas of integer points as strips ``(top, bottom, left, right)``, half open.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from offcut.core.expr import Expr, variables
from offcut.core.interpret.values import evaluate
from offcut.partition.pieces import Piece
from offcut.partition.show.enclosing_steps import (
    Loop,
    Step,
    Test,
    Value,
    needs,
    steps_of,
    without_padding_tests,
)
from offcut.partition.strategies.segment_placement import ITER

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


TOGETHER = 20_000  # tiles of a product, beyond which neighbours are given as one
_MAX_TILES = 200_000  # rows and tiles that are walked


class TooManyTiles(Exception):
    """Raised if there are too many tiles to enumerate."""


@dataclass(frozen=True, slots=True)
class TileShape:
    """A tile: the rectangle of its lanes, and the part of it that is in the domain.

    lanes  whether what is in `box` and not in `shape` are lanes of it, or is no part of it
    extents  of the tiles it stands for, down and across
    count  how many those are
    outer  the larger tile that it is a part of, down and across; None where there is none
    """

    box: tuple[int, int, int, int]
    shape: Area
    lanes: bool
    extents: tuple[tuple[int, ...], tuple[int, ...]]
    count: int = 1
    outer: tuple[Interval | None, Interval | None] = (None, None)


_Env = dict[str, int]


def tiles(
    piece: Piece,
    plane: Sequence[str],
    sizes: Mapping[str, int],
    at: Mapping[str, int] | None = None,
    wanted_only: bool = True,
) -> list[TileShape]:
    """Return the tiles of `piece` that run, in the plane of one or two of its axes.

    plane  names of axes in the program, down and across, or across alone: then all is one row
    sizes  by their names in the program
    at     the iteration that is drawn of loops that move the tiles and are no axis of the plane, as
           `first` finds them; by default the first one in which a tile runs
    wanted_only   whether the shapes are of the instances that are wanted; else of all that run, those among them that a padded
           tile does not keep

    Raises TooMany where they are no product, and more than 200,000.
    """
    every = steps_of(piece, plane)
    ways = every if wanted_only else [without_padding_tests(steps) for steps in every]
    return [tile for way in ways for tile in _Walk(way, plane, sizes, at or {}).tile_shapes()]


def first(piece: Piece, plane: Sequence[str], sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the first iteration that has a tile, of every loop that moves tiles and is no axis of the plane."""
    values: dict[str, int] = {}
    for steps in steps_of(piece, plane):
        for name, value in _Walk(steps, plane, sizes, {}).first().items():
            values[name] = min(value, values.get(name, value))
    return values


@dataclass(frozen=True, slots=True)
class _Span:
    """A tile along one axis, and its coordinates in the domain."""

    lo: int
    hi: int
    active: tuple[Interval, ...]
    boxed: bool
    count: int = 1
    outer: Interval | None = None
    merged: tuple[int, ...] = ()

    @property
    def extents(self) -> tuple[int, ...]:
        """Return the extents of the tiles that the span stands for."""
        return self.merged or (self.hi - self.lo,)


class _Walk:
    def __init__(
        self,
        steps: Sequence[Step],
        plane: Sequence[str],
        sizes: Mapping[str, int],
        slices: Mapping[str, int],
    ) -> None:
        self.sizes, self.plane, self.slices = sizes, plane, slices
        self.known: dict[int, tuple[Expr, tuple[str, ...], dict[tuple[int, ...], int]]] = {}
        self.steps = [self.as_loop(step, steps) for step in steps]
        self.steps_left = _MAX_TILES

    def as_loop(self, step: Step, steps: Sequence[Step]) -> Step:
        """Return a lane as a loop if other loops and values depend on it: each iteration is a tile then."""
        if not isinstance(step, Loop) or not step.lane or step.name not in self.plane:
            return step
        others = [s for s in steps if not isinstance(s, Test) and s.name not in self.plane]
        is_needed = any(step.name in needs(other) for other in others)
        return replace(step, lane=False) if is_needed else step

    def at(self, expr: Expr, env: Mapping[str, int]) -> int:
        """Return the value of `expr`, computed once for equal values of its names."""
        if id(expr) not in self.known:
            names = tuple(name for name in sorted(variables(expr)) if name not in self.sizes)
            self.known[id(expr)] = (expr, names, {})
        _, names, values = self.known[id(expr)]
        key = tuple(env[name] for name in names)
        if key not in values:
            bindings = dict(zip(names, key, strict=True))
            values[key] = int(evaluate(expr, {**self.sizes, **bindings}))
        return values[key]

    def holds(self, test: Test, env: Mapping[str, int]) -> bool:
        if test.condition is not None:
            return bool(self.at(test.condition, env))
        if test.ways:
            return any(self.runs(way, dict(env)) for way in test.ways)
        values = {**self.sizes, **env}
        costs = [float(evaluate(cost, values)) for cost in test.costs]
        costs = [math.inf if math.isnan(cost) else cost for cost in costs]
        return costs.index(min(costs)) == test.chosen

    def runs(self, steps: Sequence[Step], env: _Env) -> bool:
        """Return whether there is an instance inside of `steps`."""
        if not steps:
            return True
        step, inner_steps = steps[0], steps[1:]
        match step:
            case Test():
                return self.holds(step, env) and self.runs(inner_steps, env)
            case Value(name, value):
                return self.runs(inner_steps, {**env, name: self.at(value, env)})
            case Loop(name, lo, hi):
                for iteration in range(self.at(lo, env), self.at(hi, env)):
                    self.count()
                    if self.runs(inner_steps, {**env, name: iteration}):
                        return True
                return False

    def tile_shapes(self) -> list[TileShape]:
        axis_steps = self.plane_steps()
        if not axis_steps:
            return []
        if len(self.plane) == 2 and axis_steps[0] is axis_steps[1]:
            return list(dict.fromkeys(self.irregular(axis_steps[0])))
        across = self.spans(axis_steps[-1], self.plane[-1])
        down = [_Span(0, 1, ((0, 1),), True)]
        if len(self.plane) == 2:
            down = self.spans(axis_steps[0], self.plane[0])
        if len(down) * len(across) > TOGETHER:
            down, across = _merge_neighbours(down), _merge_neighbours(across)
        return [
            TileShape(
                (y.lo, y.hi, x.lo, x.hi),
                tuple((*rows, *columns) for rows in y.active for columns in x.active),
                y.boxed or x.boxed,
                (y.extents, x.extents),
                y.count * x.count,
                (y.outer, x.outer),
            )
            for y in down
            for x in across
        ]

    def first(self) -> dict[str, int]:
        values: dict[str, int] = {}
        for group in self.plane_steps():
            env = next(self.walk(group), {})
            values |= {name: env[name] for name in env if name in self.hidden(group)}
        return values

    def plane_steps(self) -> list[list[Step]]:
        """Return the steps of each axis of the plane; none if other steps let nothing run."""
        groups = self.groups()
        axis_steps = [next(g for g in groups if _binds(g, name)) for name in self.plane]
        alone = [g for g in groups if not any(g is one for one in axis_steps)]
        return axis_steps if all(next(self.walk(g), None) is not None for g in alone) else []

    def hidden(self, steps: Sequence[Step]) -> set[str]:
        """Return the loops over coordinates, or tiles, of axes that are not drawn."""
        loops = [s.name for s in steps if isinstance(s, Loop)]
        axis = {name: name.removeprefix(ITER.name).partition("_tile")[0] for name in loops}
        return {name for name in loops if axis[name] not in self.plane}

    def groups(self) -> list[list[Step]]:
        """Return the steps in groups that share no name."""
        groups: list[tuple[set[str], list[Step]]] = []
        for step in self.steps:
            names = {name for name in needs(step) if name not in self.sizes}
            if not isinstance(step, Test):
                names.add(step.name)
            joint = [group for group in groups if group[0] & names]
            merged = (names.union(*(g[0] for g in joint)), [s for g in joint for s in g[1]])
            merged[1].append(step)
            groups = [g for g in groups if not any(g is one for one in joint)] + [merged]
        order = {id(step): place for place, step in enumerate(self.steps)}
        return [sorted(steps, key=lambda step: order[id(step)]) for _, steps in groups]

    def walk(self, steps: Sequence[Step]) -> Iterator[_Env]:
        """Yield the values of the names outside the lanes, for every tile; once for loops that are not drawn."""
        lanes = {s.name for s in steps if isinstance(s, Loop) and s.lane and s.name in self.plane}
        outer = [s for s in steps if not needs(s) & lanes and not _binds([s], *lanes)]
        hidden = self.hidden(outer)
        slices = {name: value for name, value in self.slices.items() if name in hidden}

        def visit(place: int, env: _Env) -> Iterator[_Env]:
            if place == len(outer):
                for name in hidden:
                    slices.setdefault(name, env[name])
                yield dict(env)
                return
            match outer[place]:
                case Test() as test:
                    if self.holds(test, env):
                        yield from visit(place + 1, env)
                case Value(name, value):
                    env[name] = self.at(value, env)
                    yield from visit(place + 1, env)
                case Loop(name, lo, hi):
                    for here in range(self.at(lo, env), self.at(hi, env)):
                        if slices.get(name, here) == here:
                            env[name] = here
                            self.count()
                            yield from visit(place + 1, env)

        return visit(0, {})

    def count(self) -> None:
        self.steps_left -= 1
        if self.steps_left < 0:
            raise TooManyTiles

    def lane(self, steps: Sequence[Step], name: str, env: _Env) -> tuple[int, int, bool]:
        """Return the range of an axis in a tile, and whether some of its lanes are switched off."""
        loop = next(s for s in steps if isinstance(s, Loop) and s.name == name)
        if not loop.lane:
            return env[name], env[name] + 1, loop.boxed
        return self.at(loop.lo, env), self.at(loop.hi, env), loop.boxed

    def active_intervals(
        self, tests: Sequence[Test], name: str, lo: int, hi: int, env: _Env
    ) -> tuple[Interval, ...]:
        """Return the intervals of ``lo:hi`` where the tests hold."""
        if not tests:
            return ((lo, hi),) if lo < hi else ()
        active = ((x, x + 1) for x in range(lo, hi) if self.all_hold(tests, {**env, name: x}))
        return tuple(merge_intervals(active))

    def all_hold(self, tests: Iterable[Test], env: _Env) -> bool:
        return all(self.holds(test, env) for test in tests)

    def spans(self, steps: Sequence[Step], name: str) -> list[_Span]:
        tests = [s for s in steps if isinstance(s, Test) and name in s.needs]
        counters = [s.name for s in steps if isinstance(s, Loop) and not s.lane]
        counters = [one for one in counters if one not in {name, *self.hidden(steps)}]
        counts: dict[_Span, int | None] = {}
        for env in self.walk(steps):
            lo, hi, boxed = self.lane(steps, name, env)
            active = self.active_intervals(tests, name, lo, hi, env)
            if active:
                outer = env[counters[0]] if len(counters) > 1 else None
                counts[_Span(lo, hi, active, boxed)] = outer
        return _in_outer_tiles(counts)

    def irregular(self, steps: Sequence[Step]) -> Iterator[TileShape]:
        """Yield tiles whose rows differ."""
        order = {s.name: place for place, s in enumerate(steps) if isinstance(s, Loop)}
        outer, inner = sorted(self.plane, key=lambda name: order[name])
        loop = next(s for s in steps if isinstance(s, Loop) and s.name == inner)
        tests = [s for s in steps if isinstance(s, Test)]
        mine = [test for test in tests if outer in test.needs and inner not in test.needs]
        theirs = [test for test in tests if inner in test.needs]
        alike = not any(outer in names for names in (needs(loop), *(t.needs for t in theirs)))
        for env in self.walk(steps):
            lo, hi, boxed = self.lane(steps, outer, env)
            rows: list[tuple[int, int, int, int]] = []
            left, right = math.inf, -math.inf
            for first, last in self.active_intervals(mine, outer, lo, hi, env):
                for row in (first,) if alike else range(first, last):
                    self.count()
                    inner_env = {**env, outer: row}
                    start, end, has_inactive = self.lane(steps, inner, inner_env)
                    boxed = boxed or has_inactive
                    left, right = min(left, start), max(right, end)
                    bottom = last if alike else row + 1
                    spans = self.active_intervals(theirs, inner, start, end, inner_env)
                    rows += [(row, bottom, *span) for span in spans]
            if not rows:
                continue
            box = (lo, hi, int(left), int(right))
            if not boxed:
                box = _bounding_box(rows)
            if outer != self.plane[0]:
                rows = [(x0, x1, y0, y1) for y0, y1, x0, x1 in rows]
                box = (*box[2:], *box[:2])
            extents = (box[1] - box[0],), (box[3] - box[2],)
            yield TileShape(box, strips_of(rows), boxed, extents)


def _binds(steps: Iterable[Step], *names: str) -> bool:
    return any(isinstance(s, Loop | Value) and s.name in names for s in steps)


def _bounding_box(rows: Sequence[tuple[int, int, int, int]]) -> tuple[int, int, int, int]:
    tops, bottoms, lefts, rights = zip(*rows, strict=True)
    return min(tops), max(bottoms), min(lefts), max(rights)


def _in_outer_tiles(spans: Mapping[_Span, int | None]) -> list[_Span]:
    """Return each span with the range of the outer tile that contains it."""
    ranges: dict[int, Interval] = {}
    for span, outer in spans.items():
        if outer is not None:
            lo, hi = ranges.get(outer, (span.lo, span.hi))
            ranges[outer] = min(lo, span.lo), max(hi, span.hi)
    return [
        span if outer is None else replace(span, outer=ranges[outer])
        for span, outer in spans.items()
    ]


def _merge_neighbours(spans: Sequence[_Span]) -> list[_Span]:
    """Merge tiles that follow one another."""
    merged: list[_Span] = []
    for span in sorted(spans, key=lambda one: one.lo):
        last = merged[-1] if merged else None
        if last is not None and last.hi == span.lo:
            active = tuple(merge_intervals((*last.active, *span.active)))
            extents = tuple({*last.extents, *span.extents})
            boxed = span.boxed or last.boxed
            span = _Span(last.lo, span.hi, active, boxed, last.count + 1, None, extents)
            merged.pop()
        merged.append(span)
    return merged
