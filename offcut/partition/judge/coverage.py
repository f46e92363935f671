"""What stands around a tile, which extents it has, and how a microkernel runs each statement of it.

Extents of a tile and of its sums: whether a microkernel has a tile for each of their combinations.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import inf
from typing import TypeAlias

from offcut.core import index as ix
from offcut.core.conditions import conjuncts
from offcut.core.expr import Binary, Const, Expr, Var
from offcut.core.intervals import interval_op
from offcut.core.layout import Layout
from offcut.core.memo import memo
from offcut.core.program import (
    MAX_SIZE,
    Alloc,
    Buffer,
    Cover,
    For,
    If,
    Kind,
    Let,
    Program,
    Stmt,
    Store,
    Tile,
)
from offcut.core.traversal import Path
from offcut.core.traversal import walk_with_parents as paths
from offcut.describe.microkernel import Microkernel
from offcut.partition.judge.match import Match, Question, Refusal
from offcut.polyhedral import maximum, try_isl

MAIN = "main memory"


@dataclass(frozen=True, slots=True)
class Covered:
    """A statement of a tile that the microkernel computes.

    store    where it writes
    match    which axis is which, and what it reads
    loops    those of its reduction, outermost first
    turns    loops around these that it runs as well
    around   loops around those, in each iteration of which it is issued
    start    "fresh": it starts from the neutral element itself; "reset": its reset does; "adds": it adds
             to what is there; "": it reduces nothing
    rank     how many preferred ways to lay it there are
    """

    store: Store
    match: Match
    loops: tuple[For, ...] = ()
    turns: tuple[For, ...] = ()
    around: tuple[For, ...] = ()
    start: str = ""
    rank: int = 0

    @property
    def loop(self) -> For:
        """Return the innermost loop of its sum."""
        return self.loops[-1]


Parts: TypeAlias = tuple[Covered | Stmt | None, ...]
"""What becomes of each statement of a tile: the microkernel's; itself; None: nothing, it is the start of
the sum that follows, which is the microkernel's own."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """How a microkernel runs a tile.

    cover  the same in words: what is kept on the tile, and printed
    parts  by statement of the tile
    """

    cover: Cover
    parts: Parts

    @property
    def instances(self) -> tuple[Covered, ...]:
        """What the microkernel computes."""
        return tuple(part for part in self.parts if isinstance(part, Covered))


@dataclass(frozen=True)
class Surroundings:
    """What stands around a tile.

    path      the statements around it, outermost first
    range_of  the least and the greatest value of an index expression there
    is_held   whether each instance holds its own element of a buffer, which has no address
    open      whether memories and layouts that the text does not state are not decided yet
    """

    path: tuple[Stmt, ...]
    range_of: Callable[[Expr], tuple[float, float]]
    is_held: Callable[[Buffer], bool] = lambda buffer: buffer.kind is Kind.PRIVATE
    open: bool = False

    @classmethod
    def of(cls, tile: Tile, program: Program) -> Surroundings:
        """Return those of a tile of a program, as its text shows them."""
        path = next((way for one, way in paths(program) if one is tile), ())
        return cls.in_path(path, program)

    @classmethod
    def in_path(cls, path: Path, program: Program, open: bool = False) -> Surroundings:
        """Return those of a tile inside these statements, each with which of its blocks it is in."""
        ranges: dict[str, tuple[float, float]] = {s.name: (s.min, s.last) for s in program.sizes}
        loops: list[tuple[str, Expr, Expr]] = []
        conditions: list[Expr] = []
        for stmt, block in path:
            match stmt:
                case For(name, lo, hi):
                    ranges[name] = interval(lo, ranges)[0], interval(hi, ranges)[1] - 1
                    loops.append((name, lo, hi))
                case Let(name, lo, hi):
                    ranges[name] = lo, hi - 1
                    loops.append((name, ix.const(lo), ix.const(hi)))
                case If(condition):
                    conditions += conjuncts(condition, block == 0)
                case _:
                    pass

        def range_of(expr: Expr) -> tuple[float, float]:
            low, high = interval(expr, ranges)
            if low == high or not conditions:
                return low, high
            ends = (ix.sub(0, expr), -low), (expr, high)
            least, most = (_most(one, program, loops, conditions, end) for one, end in ends)
            return -least, most

        return cls(tuple(stmt for stmt, _ in path), range_of, open=open)

    def memory_of(self, buffer: Buffer) -> str | None:
        """Return the memory that holds a buffer there; None if that is not decided."""
        for stmt in reversed(self.path):
            if isinstance(stmt, Alloc) and stmt.buffer == buffer.name and stmt.memory is not None:
                return stmt.memory
        return buffer.scope or (None if self.open else MAIN)

    def layout_of(self, buffer: Buffer) -> Layout | None:
        """Return the layout of a buffer there; None where none is stated."""
        for stmt in reversed(self.path):
            if isinstance(stmt, Alloc) and stmt.buffer == buffer.name and stmt.layout is not None:
                return stmt.layout
        return buffer.layout


def interval(expr: Expr, ranges: Mapping[str, tuple[float, float]]) -> tuple[float, float]:
    """Return the least and the greatest value of an index expression, of variables in these ranges."""
    match expr:
        case Const(value):
            return int(value), int(value)
        case Var(name):
            return ranges.get(name, (-inf, inf))
        case Binary(op, a, b) if op in ("+", "-", "*", "//", "%", "min", "max"):
            return interval_op(op, interval(a, ranges), interval(b, ranges))
        case _:
            return -inf, inf


def _most(
    expr: Expr,
    program: Program,
    loops: Sequence[tuple[str, Expr, Expr]],
    conditions: Sequence[Expr],
    bound: float,
) -> float:
    """Return the greatest value of an index expression in loops, where conditions hold; `bound`, which is no less, where isl has none."""
    question = partial(maximum, expr, program.sizes, program.assumptions, loops, conditions)
    value = try_isl(question, None)
    return bound if value is None else min(value, bound)


_MAX_HEIGHTS = 1 << 12  # combinations of extents of the axes but the last that are looked at


def extents_refusal(
    match: Match,
    heights: Mapping[str, tuple[float, float]],
    extents: Mapping[str, Expr],
    masked: Collection[str],
    issued: Collection[str],
) -> Refusal | None:
    """Return why there is no tile for some of these extents; None where there is one for each.

    heights  the least and the greatest extent, by iterator; of those that are not there, any
    extents  the extent, by iterator
    masked   iterators of axes along which instances may be off
    issued   axes along which it is issued several times
    """
    kernel = match.microkernel
    ends: list[tuple[float, float] | None] = []
    for name, iterator in match.axes:
        low, high = (1, 1) if iterator is None else heights.get(iterator, (0, inf))
        if name in kernel.axes:
            ends.append(None if name in kernel.repeats or name in issued else (low, high))
        if iterator is None:
            continue
        if iterator in masked and name not in kernel.predicates:
            because = (
                f"some of {iterator} may be off, and {kernel.name} has no predicate along {name}"
            )
            return Refusal(Question.EXTENTS, because)
        if name not in kernel.predicates and name not in issued:
            because = _no_extent(kernel, name, iterator, (max(low, 0), high), extents[iterator])
            if because:
                return Refusal(Question.EXTENTS, because)
    refusal = _no_tile(kernel, tuple(ends))
    if refusal is None:
        return None
    position, because, witness = refusal
    along = dict(match.axes)[kernel.axes[position]] if position is not None else ""
    return Refusal(Question.EXTENTS, because.format(along), witness.format(along))


def _no_extent(
    kernel: Microkernel, name: str, iterator: str, ends: tuple[float, float], extent: Expr
) -> str:
    """Why an axis of a microkernel cannot be as long as the extent of an iterator; "" where it can."""
    allowed, (low, high) = kernel.extents_of(name), ends
    divisor = int(low) if low == high else ix.known_divisor(extent)
    text = str(int(low)) if low == high else f"from {int(low)} to {high}"
    if name in kernel.repeats:
        step = allowed.only or allowed.multiple_of
        return (
            "" if divisor % step == 0 else f"{iterator} is {text} long, and no multiple of {step}"
        )
    most = inf if allowed.most == MAX_SIZE else allowed.most
    if allowed.least <= low and high <= most and divisor % allowed.multiple_of == 0:
        return ""
    return f"{iterator} is {text} long, and {kernel.name} takes {allowed}"


@memo(1 << 8)
def _no_tile(
    kernel: Microkernel, ends: tuple[tuple[float, float] | None, ...]
) -> tuple[int | None, str, str] | None:
    """Why there is no tile for some combination of extents: (axis, reason, witness), {} for its iterator.

    ends  the least and the greatest extent along each axis of the result; None: it is issued along it
    """
    ranges: list[range] = []
    positions = [position for position, end in enumerate(ends) if end is not None]
    columns = kernel.columns if kernel.columns in kernel.predicates else ""
    for position in positions:
        low, high = ends[position] or (1, 1)
        most = max([tile.extents[position] for tile in kernel.tiles])
        if high > most:
            count = f"up to {int(high)}" if high < inf else "any number of"
            because = f"{count} instances along {{}} are more than its {most}"
            return position, because, f"{{}} = {most + 1}" if low < high < inf else ""
        # what holds the most columns holds fewer
        first = max(int(high if kernel.axes[position] == columns else low), 1)
        ranges.append(range(first, max(int(high), first) + 1))
    for number, extents in enumerate(product(*ranges)):
        tiles = list(kernel.tiles)
        for position, extent in zip(positions, extents, strict=True):
            exact = [tile for tile in tiles if tile.extents[position] == extent]
            larger = [tile for tile in tiles if tile.extents[position] > extent]
            tiles = exact + larger if kernel.axes[position] == columns else exact
            if not exact and kernel.axes[position] in kernel.predicates:
                tiles = larger
        if not tiles or number > _MAX_HEIGHTS:
            return None, f"it has no tile of {'×'.join(map(str, extents))}", ""
    return None
