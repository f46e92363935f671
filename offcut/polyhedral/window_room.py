"""The bytes that windows in a memory take at most, and the agents that loops are bound to, over all sizes."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import cycle
from math import prod

from offcut.core import index as ix
from offcut.core.dtypes import ITEM_BYTES
from offcut.core.expr import Expr, Logic
from offcut.core.program import Alloc, Choose, For, If, Let, Program, Stmt, Tile, blocks
from offcut.polyhedral.index_maximum import upper_bound

Loops = tuple[tuple[str, Expr, Expr], ...]


@dataclass(frozen=True, slots=True)
class WindowRoom:
    """The room of a window.

    bytes  of all its slots and copies, at the sizes where it is largest; None if nothing bounds its extents
    """

    alloc: Alloc
    bytes: int | None


def window_rooms(
    program: Program, stmt: Stmt, memory: str, units: Collection[str] = ()
) -> tuple[WindowRoom, ...]:
    """Return the room of each window in `memory` inside of a statement, in the order of the text.

    units  whose agents have a copy each of a window inside of their loops

    A window in place of another one takes no room of its own.
    """
    return tuple(_Rooms(program, memory, units).of((stmt,), (), (), 1))


def agent_count(program: Program, stmt: Stmt, unit: str) -> int | None:
    """Return the number of agents of a unit that loops inside of a statement need, at the sizes where it is largest; 0 if no loop
    is bound to the unit, None if nothing bounds it.

    Agents are numbered from 0 on: a loop ``2:4`` needs four. Those of nested loops are pairs of numbers.
    """
    return _agents(program, (stmt,), unit, (), ())


def _agents(
    program: Program,
    body: tuple[Stmt, ...],
    unit: str,
    loops: Loops,
    conditions: tuple[Expr, ...],
) -> int | None:
    most = 0
    for stmt in body:
        inner, around, where = loops, None, [conditions]
        match stmt:
            case For(name, lo, hi, unit=own):
                inner = (*loops, (name, lo, hi))
                around = upper_bound(hi, program, loops, conditions) if own == unit else None
                if own == unit and around is None:
                    return None
            case Let(name, low, high):
                inner = (*loops, (name, ix.const(low), ix.const(high)))
            case If(condition):
                where = [(*conditions, condition), (*conditions, Logic("not", (condition,)))]
        for block, here in zip(blocks(stmt), cycle(where), strict=False):
            count = _agents(program, block, unit, inner, here)
            if count is None:
                return None
            most = max(most, count if around is None else max(around, 0) * max(count, 1))
    return most


@dataclass(frozen=True)
class _Rooms:
    program: Program
    memory: str
    units: Collection[str]

    def of(
        self, body: tuple[Stmt, ...], loops: Loops, conditions: tuple[Expr, ...], copies: int | None
    ) -> Iterator[WindowRoom]:
        """Yield the rooms of windows in statements.

        loops, conditions  around them, outermost first
        copies             of each window; None if nothing bounds their number
        """
        for stmt in body:
            match stmt:
                case Alloc(buffer, inplace=inplace, memory=memory, body=inner):
                    if inplace is None and self.memory == (
                        memory or self.program.buffer(buffer).scope
                    ):
                        yield WindowRoom(stmt, self.bytes(stmt, loops, conditions, copies))
                    yield from self.of(inner, loops, conditions, copies)
                case For(name, lo, hi, inner, unit=unit):
                    inner_copies = copies
                    if unit in self.units:
                        trips = self.largest(ix.sub(hi, lo), loops, conditions)
                        inner_copies = None if copies is None or trips is None else copies * trips
                    yield from self.of(inner, (*loops, (name, lo, hi)), conditions, inner_copies)
                case Let(name, low, high, _, inner):
                    bounded = name, ix.const(low), ix.const(high)
                    yield from self.of(inner, (*loops, bounded), conditions, copies)
                case If(condition, then, other):
                    yield from self.of(then, loops, (*conditions, condition), copies)
                    negated = Logic("not", (condition,))
                    yield from self.of(other, loops, (*conditions, negated), copies)
                case Choose(options):
                    for option in options:
                        yield from self.of(option.body, loops, conditions, copies)
                case Tile(body=inner):
                    yield from self.of(inner, loops, conditions, copies)
                case _:
                    pass

    def bytes(
        self, alloc: Alloc, loops: Loops, conditions: tuple[Expr, ...], copies: int | None
    ) -> int | None:
        """Return the bytes of all slots and copies of a window; None if nothing bounds them."""
        extents = [self.largest(extent, loops, conditions) for _, extent in alloc.axes]
        known = [extent for extent in extents if extent is not None]
        if copies is None or len(known) < len(extents):
            return None
        buffer = self.program.buffer(alloc.buffer)
        layout = alloc.layout or buffer.layout
        shape = known if layout is None else layout.padded_extents(known)
        return prod(shape) * ITEM_BYTES[buffer.dtype] * alloc.depth * copies

    def largest(self, extent: Expr, loops: Loops, conditions: tuple[Expr, ...]) -> int | None:
        """Return an upper bound of an extent, at least 0; None if there is none that is known."""
        bound = upper_bound(extent, self.program, loops, conditions)
        return None if bound is None else max(bound, 0)
