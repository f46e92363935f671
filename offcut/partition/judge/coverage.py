"""What stands around a tile, and how a microkernel runs each statement of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from typing import TypeAlias

from offcut.core.expr import Binary, Const, Expr, Var
from offcut.core.intervals import combined
from offcut.core.layout import Layout
from offcut.core.program import (
    Alloc,
    Buffer,
    Cover,
    For,
    Kind,
    Let,
    Program,
    Stmt,
    Store,
    Tile,
)
from offcut.core.traversal import walk_with_parents as paths
from offcut.partition.judge.match import Match

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
    def covered(self) -> tuple[Covered, ...]:
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
        return cls.in_path(tuple(stmt for stmt, _ in path), program)

    @classmethod
    def in_path(cls, outer: tuple[Stmt, ...], program: Program, open: bool = False) -> Surroundings:
        """Return those of a tile inside these statements."""
        ranges: dict[str, tuple[float, float]] = {s.name: (s.min, s.last) for s in program.sizes}
        for stmt in outer:
            match stmt:
                case For(name, lo, hi):
                    ranges[name] = interval(lo, ranges)[0], interval(hi, ranges)[1] - 1
                case Let(name, lo, hi):
                    ranges[name] = lo, hi - 1
                case _:
                    pass
        return cls(outer, lambda expr: interval(expr, ranges), open=open)

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
            return combined(op, interval(a, ranges), interval(b, ranges))
        case _:
            return -inf, inf
