"""The bytes that windows in a memory take at most, and the agents that loops are bound to, over all sizes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import prod

from offcut.core import index as ix
from offcut.core.conditions import conjuncts
from offcut.core.dtypes import ITEM_BYTES
from offcut.core.expr import Expr
from offcut.core.program import Alloc, For, If, Let, Program, Stmt
from offcut.core.traversal import Path, walk_with_parents
from offcut.polyhedral.index_maximum import upper_bound


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
    rooms: list[WindowRoom] = []
    for alloc, path in walk_with_parents((stmt,)):
        if not isinstance(alloc, Alloc) or alloc.inplace is not None:
            continue
        buffer = program.buffer(alloc.buffer)
        if memory != (alloc.memory or buffer.scope):
            continue
        copies = [
            _largest(ix.sub(loop.hi, loop.lo), program, path[:depth])
            for depth, (loop, _) in enumerate(path)
            if isinstance(loop, For) and loop.unit in units
        ]
        extents = [_largest(extent, program, path) for _, extent in alloc.axes]
        factors = [one for one in (*copies, *extents) if one is not None]
        if len(factors) < len(copies) + len(extents):
            rooms.append(WindowRoom(alloc, None))
            continue
        layout, shape = alloc.layout or buffer.layout, factors[len(copies) :]
        shape = shape if layout is None else [*layout.padded_extents(shape)]
        whole = prod(factors[: len(copies)]) * alloc.depth * prod(shape)
        rooms.append(WindowRoom(alloc, whole * ITEM_BYTES[buffer.dtype]))
    return tuple(rooms)


def agent_count(program: Program, stmt: Stmt, unit: str) -> int | None:
    """Return the number of agents of a unit that loops inside of a statement need, at the sizes where it is largest; 0 if no loop
    is bound to the unit, None if nothing bounds it.

    Agents are numbered from 0 on: a loop ``2:4`` needs four. Those of nested loops are pairs of numbers.
    """
    most = 0
    for loop, path in walk_with_parents((stmt,)):
        if not isinstance(loop, For) or loop.unit != unit:
            continue
        count = 1
        for depth, (around, _) in enumerate((*path, (loop, 0))):
            if isinstance(around, For) and around.unit == unit:
                end = _largest(around.hi, program, path[:depth])
                if end is None:
                    return None
                count *= end
        most = max(most, count)
    return most


def _largest(extent: Expr, program: Program, path: Path) -> int | None:
    """Return an upper bound of an extent inside of `path`, at least 0; None if there is none that is known."""
    loops: list[tuple[str, Expr, Expr]] = []
    conditions: list[Expr] = []
    for stmt, number in path:
        match stmt:
            case For(name, lo, hi):
                loops.append((name, lo, hi))
            case Let(name, low, high):
                loops.append((name, ix.const(low), ix.const(high)))
            case If(condition):
                conditions += conjuncts(condition, number == 0)
    bound = upper_bound(extent, program, tuple(loops), tuple(conditions))
    return None if bound is None else max(bound, 0)
