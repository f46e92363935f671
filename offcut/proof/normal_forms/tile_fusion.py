"""A program -> the same with tiles of one shape, that run one after the other, as one tile.

    tile x in a +: t                                  tile x in a +: t
      Y[x] = 0.0                                        Y[x] = 0.0
    for s in 0:3                                        for s in 0:3
      tile x in a +: t where x >= 1 - s        ->         if x >= 1 - s
        Y[x] += A[x, s] * B[s]                              Y[x] += A[x, s] * B[s]

Theorem: an element that they write is accessed at one index only, in which each axis of the tiles stands by
itself. So no two instances share one: each runs its statements in the order that it did, and those of others
before or after make no difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from offcut.core import index as ix
from offcut.core.accesses import indices, stored_arrays
from offcut.core.expr import Var, variables
from offcut.core.program import For, Form, If, Program, Stmt, Tile
from offcut.core.traversal import map_blocks


def fuse_tiles(program: Program) -> Program:
    """`program` with such tiles as one."""
    return replace(program, body=_fused(program.body))


def _fused(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    statements: list[Stmt] = []
    for stmt in body:
        stmt = map_blocks(stmt, _fused)
        last = statements[-1] if statements else None
        joined = _joined(last, stmt) if isinstance(last, Tile) else None
        if joined is None:
            statements.append(stmt)
        else:
            statements[-1] = joined
    return tuple(statements)


def _joined(first: Tile, then: Stmt) -> Tile | None:
    """Two statements as one tile; None where they are none."""
    loops: list[For] = []
    while isinstance(then, For) and len(then.body) == 1:
        loops.append(then)
        then = then.body[0]
    if not isinstance(then, Tile) or then.axes != first.axes or first.where is not None:
        return None
    if {first.form, then.form} != {Form.FULL} or _is_bound_anew(then, loops):
        return None
    more: tuple[Stmt, ...] = then.body
    if then.where is not None:
        more = (If(then.where, more),)
    for loop in reversed(loops):
        more = (replace(loop, body=more),)
    body = (*first.body, *more)
    return replace(then, where=None, body=body) if _is_apart(then, body) else None


def _is_bound_anew(tile: Tile, loops: Sequence[For]) -> bool:
    """Whether an axis of the tile has the name of another coordinate that the loops around it name, or they one of its."""
    axes = {axis.iter for axis in tile.axes}
    named = set[str]().union(*(variables(end) for loop in loops for end in (loop.lo, loop.hi)))
    around = set[str]().union(
        *(variables(axis.start) | variables(axis.extent) for axis in tile.axes)
    )
    mine = {loop.iter for loop in loops}
    return bool(axes & (named | mine) or around & mine)


def _is_apart(tile: Tile, body: tuple[Stmt, ...]) -> bool:
    """Whether what an instance writes is no other's."""
    for name in stored_arrays(body):
        points = {tuple(map(ix.simplify, point)) for point in indices(body, name)}
        if len(points) != 1 or not {Var(axis.iter) for axis in tile.axes} <= set(*points):
            return False
    return True
