"""Find the buffers that are private to an iteration or a tile: written before they are read."""

from __future__ import annotations

from collections.abc import Sequence

from offcut.core.accesses import accessed_arrays, read_arrays, statement_arrays
from offcut.core.program import Alloc, Choose, Kind, Program, Stmt, Store, Tile, blocks


def tile_buffers(program: Program) -> frozenset[str]:
    """Return the private buffers that only tiles access: each tile has a copy."""
    outside = set[str]()

    def look(body: Sequence[Stmt]) -> None:
        for stmt in body:
            if not isinstance(stmt, Tile):
                outside.update(statement_arrays(stmt))
                for block in blocks(stmt):
                    look(block)

    look(program.body)
    private = {b.name for b in program.buffers if b.kind is Kind.PRIVATE}
    return frozenset(private - outside)


def begins_with_store(buffer: str, body: Sequence[Stmt]) -> bool:
    """Return whether the first access of a buffer is a direct statement of `body` that overwrites it."""
    for stmt in body:
        if isinstance(stmt, Store) and stmt.buffer == buffer and stmt.reduce is None:
            return buffer not in read_arrays((stmt.value,))
        if buffer in accessed_arrays((stmt,)):
            return False
    return False


def is_written_before_read(name: str, body: Sequence[Stmt]) -> bool:
    """Return whether all accesses of a scalar are in blocks that write it first."""
    if begins_with_store(name, body):
        return True
    for stmt in body:
        if name not in accessed_arrays((stmt,)):
            continue
        if name in statement_arrays(stmt) or isinstance(stmt, Tile | Choose | Alloc):
            return False
        inside = (block for block in blocks(stmt) if name in accessed_arrays(block))
        if not all(is_written_before_read(name, block) for block in inside):
            return False
    return True
