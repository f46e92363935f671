"""A staged program without its windows, its innermost loops as tiles, and tiles over the same elements joined: a small step on
the way from its source. Which elements are computed is then asked along each axis by itself.

::

    alloc S[16*t +: 16]                        tile i in 16*t +: 16
      for i in 16*t:16*t + 16                    S[i] = 0
        S[i] = 0                         ->      C[i] = f(S[i])
      tile i in 16*t +: 16
        C[i] = f(S[i])
"""

from __future__ import annotations

from dataclasses import replace

from offcut.core import index as ix
from offcut.core.expr import Expr, Load, Var, loads, substitute, variables
from offcut.core.program import Alloc, For, If, Program, Stmt, Store, Tile, TileAxis, walk
from offcut.core.traversal import (
    all_bound_names,
    expressions,
    free_names,
    map_blocks,
    substitute_coordinates,
)
from offcut.proof import count_from_elements, stored_offset


def join_tiles(program: Program) -> Program:
    """Return `program` without windows and covers, in which tiles that touch each other's elements point by point are one.

    Loops become tiles where there are no others: beside tiles that an instruction runs they stay as they are.
    """
    loops = not any(isinstance(stmt, Tile) for stmt in walk(program.body))
    body = count_from_elements(program).body if loops else program.body
    return replace(program, body=_block(body, loops))


def _block(body: tuple[Stmt, ...], loops: bool) -> tuple[Stmt, ...]:
    block: list[Stmt] = []
    for stmt in _remove_windows(body):
        tile = _to_tile(stmt) if loops or isinstance(stmt, Tile) else None
        if tile is None:
            block.append(map_blocks(stmt, lambda inner: _block(inner, loops)))
            continue
        both = _join(block[-1], tile) if block and isinstance(block[-1], Tile) else None
        if both is None:
            block.append(tile)
        else:
            block[-1] = both
    return tuple(block)


def _remove_windows(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    return tuple(
        inner
        for stmt in body
        for inner in (_remove_windows(stmt.body) if isinstance(stmt, Alloc) else (stmt,))
    )


def _to_tile(stmt: Stmt) -> Tile | None:
    """Return a tile without its cover; of loops directly inside of each other along axes of all that is stored there, the tile
    of their elements; None for any other statement.
    """
    if isinstance(stmt, Tile):
        return replace(stmt, cover=None)
    axes: list[TileAxis] = []
    while isinstance(stmt, For) and _is_along(stmt, axes):
        axes.append(TileAxis(stmt.iter, stmt.lo, ix.sub(stmt.hi, stmt.lo)))
        if len(stmt.body) > 1:
            return Tile(tuple(axes), stmt.body)
        stmt = stmt.body[0]
    return Tile(tuple(axes), (stmt,)) if axes else None


def _is_along(loop: For, around: list[TileAxis]) -> bool:
    """Return whether a loop runs along an axis of all that is stored inside, as far at every value of the loops of `around`."""
    plain = all(isinstance(stmt, Store | For | If) for stmt in walk(loop.body))
    ends = variables(loop.lo) | variables(loop.hi)
    return plain and stored_offset(loop) == ix.const(0) and not ends & {a.iter for a in around}


def _join(first: Tile, second: Tile) -> Tile | None:
    """Return two tiles over the same elements as one, where each instance needs of the other tile itself alone; else None."""
    names = {a.iter: Var(b.iter) for a, b in zip(second.axes, first.axes, strict=False)}
    own = {axis.iter for axis in first.axes} - names.keys()
    if len(second.axes) != len(first.axes):
        return None
    if own & (all_bound_names(second.body) | free_names(second.body)):
        return None
    where = None if second.where is None else substitute(second.where, names)
    axes = tuple(replace(one, iter=names[one.iter].name) for one in second.axes)
    if (first.axes, first.where) != (axes, where):
        return None
    body = (*first.body, *substitute_coordinates(second.body, names))
    stores = [stmt for stmt in walk(body) if isinstance(stmt, Store)]
    points: dict[str, tuple[Expr, ...]] = {}
    for store in stores:
        if points.setdefault(store.buffer, store.index) != store.index:
            return None
    reads = [load for stmt in walk(body) for expr in expressions(stmt) for load, _ in loads(expr)]
    alone = all(
        isinstance(load, Load) and points.get(load.buffer, load.index) == load.index
        for load in reads
    )
    return replace(first, body=body) if alone else None
