"""The tiles that run at given sizes, as shapes in the plane of two axes.

What encloses a tile is a list of steps: loops, bound values, tests. Steps that share a name belong
together, others do not: where no step joins the two axes, the tiles are those of one axis times
those of the other, and none of the products is walked. Else (a triangle) each tile is walked, and
has its own outline.

Areas are lists of strips, ``(top, bottom, left, right)``, half open like every range.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from offcut.core.expr import Expr, variables
from offcut.core.interpret.values import evaluate
from offcut.partition.pieces import Piece
from offcut.partition.show.rectangles import Area, Interval, joined, strips_of
from offcut.partition.show.steps import Loop, Step, Test, Value, needs, padded, steps_of
from offcut.partition.strategies.placing import ITER

TOGETHER = 20_000  # tiles of a product, beyond which neighbours are given as one
_MOST = 200_000  # rows and tiles that are walked


class TooMany(Exception):
    """More tiles than can be walked."""


@dataclass(frozen=True, slots=True)
class TileShape:
    """A tile: the rectangle of its lanes, and the part of it where its instances are wanted.

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
    kept: bool = True,
) -> list[TileShape]:
    """The tiles of `piece` that run, in the plane of one or two of its axes.

    plane  names of axes in the program, down and across, or across alone: then all is one row
    sizes  by their names in the program
    at     the iteration that is drawn of loops that move the tiles and are no axis of the plane, as
           `first` finds them; by default the first one in which a tile runs
    kept   whether the shapes are of the instances that are wanted; else of all that run, those among them that a padded
           tile does not keep

    Raises TooMany where they are no product, and more than 200,000.
    """
    every = steps_of(piece, plane)
    ways = every if kept else [padded(steps) for steps in every]
    return [tile for way in ways for tile in _Walk(way, plane, sizes, at or {}).found()]


def first(piece: Piece, plane: Sequence[str], sizes: Mapping[str, int]) -> dict[str, int]:
    """The first iteration with a tile of every loop that moves tiles and is no axis of the plane."""
    found: dict[str, int] = {}
    for steps in steps_of(piece, plane):
        for name, value in _Walk(steps, plane, sizes, {}).first().items():
            found[name] = min(value, found.get(name, value))
    return found


@dataclass(frozen=True, slots=True)
class _Span:
    """A tile along one axis, and where on it instances are wanted."""

    lo: int
    hi: int
    wanted: tuple[Interval, ...]
    boxed: bool
    count: int = 1
    outer: Interval | None = None
    merged: tuple[int, ...] = ()

    @property
    def extents(self) -> tuple[int, ...]:
        """Of the tiles that it stands for."""
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
        self.steps = [self.fixed(step, steps) for step in steps]
        self.steps_left = _MOST

    def fixed(self, step: Step, steps: Sequence[Step]) -> Step:
        """A lane that other loops and values depend on is a loop: each iteration a tile."""
        if not isinstance(step, Loop) or not step.lane or step.name not in self.plane:
            return step
        others = [s for s in steps if not isinstance(s, Test) and s.name not in self.plane]
        moved = any(step.name in needs(other) for other in others)
        return replace(step, lane=False) if moved else step

    def at(self, expr: Expr, env: Mapping[str, int]) -> int:
        """The value of `expr`, computed once for equal values of the names in it."""
        if id(expr) not in self.known:
            names = tuple(name for name in sorted(variables(expr)) if name not in self.sizes)
            self.known[id(expr)] = (expr, names, {})
        _, names, values = self.known[id(expr)]
        key = tuple(env[name] for name in names)
        if key not in values:
            here = dict(zip(names, key, strict=True))
            values[key] = int(evaluate(expr, {**self.sizes, **here}))
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
        """Whether something has an instance inside of `steps`."""
        if not steps:
            return True
        step, rest = steps[0], steps[1:]
        match step:
            case Test():
                return self.holds(step, env) and self.runs(rest, env)
            case Value(name, value):
                return self.runs(rest, {**env, name: self.at(value, env)})
            case Loop(name, lo, hi):
                for here in range(self.at(lo, env), self.at(hi, env)):
                    self.count()
                    if self.runs(rest, {**env, name: here}):
                        return True
                return False

    def found(self) -> list[TileShape]:
        drawn = self.drawn()
        if not drawn:
            return []
        if len(self.plane) == 2 and drawn[0] is drawn[1]:
            return list(dict.fromkeys(self.irregular(drawn[0])))
        across = self.spans(drawn[-1], self.plane[-1])
        down = [_Span(0, 1, ((0, 1),), True)]
        if len(self.plane) == 2:
            down = self.spans(drawn[0], self.plane[0])
        if len(down) * len(across) > TOGETHER:
            down, across = _neighbours(down), _neighbours(across)
        return [
            TileShape(
                (y.lo, y.hi, x.lo, x.hi),
                tuple((*rows, *columns) for rows in y.wanted for columns in x.wanted),
                y.boxed or x.boxed,
                (y.extents, x.extents),
                y.count * x.count,
                (y.outer, x.outer),
            )
            for y in down
            for x in across
        ]

    def first(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for group in self.drawn():
            env = next(self.walk(group), {})
            found |= {name: env[name] for name in env if name in self.hidden(group)}
        return found

    def drawn(self) -> list[list[Step]]:
        """The steps of each axis of the plane; none where others let nothing run."""
        groups = self.groups()
        drawn = [next(g for g in groups if _binds(g, name)) for name in self.plane]
        alone = [g for g in groups if not any(g is one for one in drawn)]
        return drawn if all(next(self.walk(g), None) is not None for g in alone) else []

    def hidden(self, steps: Sequence[Step]) -> set[str]:
        """The loops over coordinates, or tiles, of axes that are not drawn."""
        loops = [s.name for s in steps if isinstance(s, Loop)]
        axis = {name: name.removeprefix(ITER.name).partition("_tile")[0] for name in loops}
        return {name for name in loops if axis[name] not in self.plane}

    def groups(self) -> list[list[Step]]:
        """The steps by what they depend on: no name is in two groups."""
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
        """What the names outside the lanes are, for every tile; once for loops that are not drawn."""
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
            raise TooMany

    def lane(self, steps: Sequence[Step], name: str, env: _Env) -> tuple[int, int, bool]:
        """The range of an axis in a tile, and whether lanes of it are switched off."""
        loop = next(s for s in steps if isinstance(s, Loop) and s.name == name)
        if not loop.lane:
            return env[name], env[name] + 1, loop.boxed
        return self.at(loop.lo, env), self.at(loop.hi, env), loop.boxed

    def wanted(
        self, tests: Sequence[Test], name: str, lo: int, hi: int, env: _Env
    ) -> tuple[Interval, ...]:
        """Where in ``lo:hi`` the tests hold."""
        if not tests:
            return ((lo, hi),) if lo < hi else ()
        here = ((x, x + 1) for x in range(lo, hi) if self.all_hold(tests, {**env, name: x}))
        return tuple(joined(here))

    def all_hold(self, tests: Iterable[Test], env: _Env) -> bool:
        return all(self.holds(test, env) for test in tests)

    def spans(self, steps: Sequence[Step], name: str) -> list[_Span]:
        tests = [s for s in steps if isinstance(s, Test) and name in s.needs]
        counters = [s.name for s in steps if isinstance(s, Loop) and not s.lane]
        counters = [one for one in counters if one not in {name, *self.hidden(steps)}]
        found: dict[_Span, int | None] = {}
        for env in self.walk(steps):
            lo, hi, boxed = self.lane(steps, name, env)
            wanted = self.wanted(tests, name, lo, hi, env)
            if wanted:
                outer = env[counters[0]] if len(counters) > 1 else None
                found[_Span(lo, hi, wanted, boxed)] = outer
        return _in_outer_tiles(found)

    def irregular(self, steps: Sequence[Step]) -> Iterator[TileShape]:
        """Tiles whose rows differ."""
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
            for first, last in self.wanted(mine, outer, lo, hi, env):
                for row in (first,) if alike else range(first, last):
                    self.count()
                    here = {**env, outer: row}
                    start, end, off = self.lane(steps, inner, here)
                    boxed = boxed or off
                    left, right = min(left, start), max(right, end)
                    bottom = last if alike else row + 1
                    spans = self.wanted(theirs, inner, start, end, here)
                    rows += [(row, bottom, *span) for span in spans]
            if not rows:
                continue
            box = (lo, hi, int(left), int(right))
            if not boxed:
                box = _around(rows)
            if outer != self.plane[0]:
                rows = [(x0, x1, y0, y1) for y0, y1, x0, x1 in rows]
                box = (*box[2:], *box[:2])
            extents = (box[1] - box[0],), (box[3] - box[2],)
            yield TileShape(box, strips_of(rows), boxed, extents)


def _binds(steps: Iterable[Step], *names: str) -> bool:
    return any(isinstance(s, Loop | Value) and s.name in names for s in steps)


def _around(rows: Sequence[tuple[int, int, int, int]]) -> tuple[int, int, int, int]:
    tops, bottoms, lefts, rights = zip(*rows, strict=True)
    return min(tops), max(bottoms), min(lefts), max(rights)


def _in_outer_tiles(spans: Mapping[_Span, int | None]) -> list[_Span]:
    """Each span with the range of those that have its number, where it has one."""
    ranges: dict[int, Interval] = {}
    for span, outer in spans.items():
        if outer is not None:
            lo, hi = ranges.get(outer, (span.lo, span.hi))
            ranges[outer] = min(lo, span.lo), max(hi, span.hi)
    return [
        span if outer is None else replace(span, outer=ranges[outer])
        for span, outer in spans.items()
    ]


def _neighbours(spans: Sequence[_Span]) -> list[_Span]:
    """Tiles that follow one another as one."""
    found: list[_Span] = []
    for span in sorted(spans, key=lambda one: one.lo):
        last = found[-1] if found else None
        if last is not None and last.hi == span.lo:
            wanted = tuple(joined((*last.wanted, *span.wanted)))
            extents = tuple({*last.extents, *span.extents})
            boxed = span.boxed or last.boxed
            span = _Span(last.lo, span.hi, wanted, boxed, last.count + 1, None, extents)
            found.pop()
        found.append(span)
    return found
