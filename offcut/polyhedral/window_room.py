"""The bytes that windows in a memory take at most, over all sizes: from literals in their extents, else as isl finds them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from math import prod

from offcut.core import index as ix
from offcut.core.dtypes import ITEM_BYTES
from offcut.core.expr import Expr, Logic
from offcut.core.program import Alloc, Choose, For, If, Let, Program, Stmt, Tile
from offcut.polyhedral.index_maximum import maximum
from offcut.polyhedral.isl_budget import try_isl

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
        shape = known if layout is None else layout.padded(known)
        return prod(shape) * ITEM_BYTES[buffer.dtype] * alloc.depth * copies

    def largest(self, extent: Expr, loops: Loops, conditions: tuple[Expr, ...]) -> int | None:
        """Return an upper bound of an extent, at least 0; None if there is none that is known."""
        bound = ix.literal_bound(extent)
        if bound is None:
            facts = self.program.sizes, self.program.assumptions, loops, conditions
            bound = try_isl(lambda: maximum(extent, *facts), None)
        return None if bound is None else max(bound, 0)


__all__ = ["WindowRoom", "window_rooms"]
