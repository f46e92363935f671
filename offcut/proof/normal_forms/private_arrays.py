"""A program whose private arrays are one array for all instances, as they are in its source.

Each instance of a tile has a private array to itself. Where it stores the one element that it names before it reads it, and no other
instance names that element, it makes no difference whether other instances see it::

    private S: float32[n]                          local S: float32[n]
    tile i in 0 +: n                     ->        tile i in 0 +: n
      S[i] = …                                       S[i] = …
      Y[i] = S[i]                                    Y[i] = S[i]
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from offcut.core.accesses import accessed_arrays, element_accesses
from offcut.core.analysis import analysis
from offcut.core.expr import Expr, Var
from offcut.core.program import Buffer, Kind, Program, Stmt, Store, Tile, blocks, walk


def share_private_arrays(program: Program, source: Program) -> Program:
    """Return `program` with its private arrays shared that are so in `source`, where each instance stores an element before it reads it."""
    local = {buffer.name for buffer in source.buffers if buffer.kind is Kind.LOCAL}
    buffers = tuple(
        replace(buffer, kind=Kind.LOCAL)
        if buffer.kind is Kind.PRIVATE
        and buffer.name in local
        and _is_stored_first(program, buffer)
        else buffer
        for buffer in program.buffers
    )
    return program if buffers == program.buffers else replace(program, buffers=buffers)


def _is_stored_first(program: Program, buffer: Buffer) -> bool:
    """Return whether each instance that touches an array stores the element that it alone names, and then touches no other."""
    if buffer.name not in accessed_arrays(program.body) or buffer.name in analysis(program).windows:
        return False
    return all(
        tile is not None and _stores_first(tile, buffer.name)
        for tile in _tiles(program.body, buffer.name)
    )


def _tiles(body: tuple[Stmt, ...], name: str) -> Iterator[Tile | None]:
    """Yield the tiles that touch an array; None for a statement outside of tiles that does."""
    for stmt in body:
        if isinstance(stmt, Tile):
            if name in accessed_arrays((stmt,)):
                yield stmt
            continue
        if any(array == name for array, _ in element_accesses(stmt)):
            yield None
        for block in blocks(stmt):
            yield from _tiles(block, name)


def _stores_first(tile: Tile, name: str) -> bool:
    """Return whether an instance of a tile first stores the one element of an array that it touches, which no other instance touches."""
    first = next(stmt for stmt in tile.body if name in accessed_arrays((stmt,)))
    if not isinstance(first, Store) or first.buffer != name or first.reduce is not None:
        return False
    if any(isinstance(stmt, Tile) for stmt in walk(tile.body)):
        return False
    accesses = [one for stmt in walk((tile,)) for one in element_accesses(stmt) if one[0] == name]
    named: set[Expr] = {Var(axis.iter) for axis in tile.axes}
    reads_itself = [array for array, _ in element_accesses(first)].count(name) > 1
    return (
        len({index for _, index in accesses}) == 1 and named <= {*first.index} and not reads_itself
    )
