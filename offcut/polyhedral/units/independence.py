"""Which loops of a program several units may share: those that carry no dependence.

Footprints show it in most cases, otherwise sets of dependences do (`carried_by`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from offcut.core.accesses import (
    accessed_arrays,
    read_arrays,
    statement_arrays,
    stored_arrays,
    windowed_arrays,
)
from offcut.core.analysis import analysis
from offcut.core.program import Alloc, Choose, For, Kind, Let, Program, Stmt, Store, Tile, blocks
from offcut.core.program import walk as statements
from offcut.polyhedral.dependences import Dependence, carried_by
from offcut.polyhedral.isl_budget import try_isl
from offcut.polyhedral.units.footprints import Access, Conflicts

MOST_STORES = 16  # in a nest of which isl is asked, in pairs, whether units may share it

Path = tuple[int, ...]


class Independence:
    """Which loops of a program carry no dependence.

    open   why that was not found out
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.tiled = tile_buffers(program)
        self.conflicts = Conflicts(program, self.tiled | analysis(program).status_buffers)
        self.footprints = self.conflicts.footprints
        self.carried: dict[int, dict[Path, list[Dependence]] | None] = {}
        self.open: dict[str, None] = {}

    def of(self, loop: For, path: Path) -> bool:
        """Return whether iterations of `loop` touch nothing that another one writes, whatever it is marked."""
        open_arrays = self.conflicting_buffers(loop)
        return not open_arrays or self.by_sets(open_arrays, path)

    def conflicting_buffers(self, loop: For) -> set[str]:
        """Return the buffers of which footprints do not show that an iteration of `loop` touches nothing that another one writes."""
        shared = {name for name in stored_arrays(loop.body) if not self.keeps(name, loop)}
        shared -= analysis(self.program).status_buffers
        by_buffer: dict[str, set[Access]] = {name: set() for name in shared}
        for access in self.footprints.of(loop.body, loop.iter) if shared else ():
            if access.buffer in shared:
                by_buffer[access.buffer].add(access)
        return {
            name
            for name, accesses in by_buffer.items()
            if not self.footprints.moves_on(tuple(accesses), loop.iter)
        }

    def inside(self, stmt: Let | Alloc) -> None:
        """Inside a bounded value its range is known."""
        if isinstance(stmt, Let) and stmt.lo >= 0:
            self.footprints.least[stmt.name] = stmt.lo

    def by_sets(self, buffers: set[str], path: Path) -> bool:
        """Return whether the loop at `path` carries no dependence of these buffers, as isl finds them."""
        position = path[0]
        if position not in self.carried:
            alone = replace(self.program, body=(self.program.body[position],))
            inside = list(statements(alone.body))
            stores = sum(isinstance(stmt, Store) for stmt in inside)
            cut = any(isinstance(stmt, Tile) and stmt.microkernel is not None for stmt in inside)
            if stores > MOST_STORES:
                self.open[f"{stores} statements are too many to compare in pairs"] = None
            elif cut:
                self.open["tiles of microkernels are not compared in pairs"] = None
            else:
                self.carried[position] = try_isl(lambda: carried_by(alone), None)
                if self.carried[position] is None:
                    self.open["comparing statements in pairs takes isl too long"] = None
            self.carried.setdefault(position, None)
        carried = self.carried[position]
        if carried is None:
            return False
        return not any(one.buffer in buffers for one in carried.get((0, *path[1:]), ()))

    def keeps(self, name: str, loop: For) -> bool:
        """Return whether each iteration of `loop` has what it writes of a buffer for itself."""
        buffer = self.program.buffer(name)
        if name in self.tiled:
            return True
        if any(isinstance(stmt, Alloc) and stmt.buffer == name for stmt in statements(loop.body)):
            return name in windowed_arrays(self.program.body)
        scalar = buffer.kind is Kind.PRIVATE and not buffer.shape
        return scalar and is_written_before_read(name, loop.body)


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
