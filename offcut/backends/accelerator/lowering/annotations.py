"""Reads and writes the words of a program about the machine: memories of windows, units and microkernels of tiles.

::

    alloc Y1[…]                     alloc Y1[…] in accumulators inplace S
      tile r in …, j in …    ->       tile r in …, j in …  @by(compute) @async @cover(alu_min)
        Y1[r, j] = …                    Y1[r, j] = …

Words that are there are checked, the others are added as the program runs. They change no value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from offcut.backends.accelerator.lowering.instruction_selection import Operation
from offcut.backends.accelerator.lowering.issue_tree import tile_of
from offcut.backends.accelerator.lowering.nest import LoweredLeaf, LoweredNest
from offcut.core.program import Alloc, Program, Stmt, Tile, walk
from offcut.core.text.printer import format_head, format_stmt
from offcut.core.traversal import map_blocks
from offcut.errors import TargetError


def with_memories(program: Program) -> Program:
    """Return the program with the memory of each window as that of its buffer.

    Raises TargetError if windows of a buffer lie in several memories.
    """
    memories = {buffer.name: buffer.scope for buffer in program.buffers}
    for stmt in walk(program.body):
        if not isinstance(stmt, Alloc) or stmt.memory is None:
            continue
        known = memories[stmt.buffer]
        if known not in (None, stmt.memory):
            raise TargetError(
                "compile",
                f"cannot keep {stmt.buffer} in {stmt.memory}",
                at=format_head(stmt),
                because=f"it lies in {known} elsewhere",
                help=(f"alloc {stmt.buffer}[…] in {known}", "another buffer"),
            )
        memories[stmt.buffer] = stmt.memory
    buffers = tuple(replace(b, scope=memories[b.name]) for b in program.buffers)
    return program if buffers == program.buffers else replace(program, buffers=buffers)


def annotate(program: Program, nests: Iterable[LoweredNest]) -> Program:
    """Return the program with the memories, units and microkernels that its nests were lowered to.

    Raises TargetError for a tile that names another unit, another microkernel, or other axes and operands than what runs it.
    Declared instructions were compared with their tiles when these were covered.
    """
    tiles: dict[Stmt, Tile] = {}
    bases: dict[Alloc, set[str | None]] = {}
    for nest in nests:
        for alloc, base in _bases(nest):
            bases.setdefault(alloc, set()).add(base)
        for work in nest.work:
            tile = work.leaf.tile
            if tile is not None:
                unit, cover = work.unit.value, work.does.cover
                if tile.unit not in (None, unit):
                    raise TargetError(
                        "compile",
                        f"cannot run a tile by {tile.unit}",
                        at=format_stmt(work.leaf.store),
                        because=f"{unit} of {nest.spec.name} runs it",
                        help=(f"@by({unit})",),
                    )
                tiles[tile] = replace(tile, unit=unit, asynchronous=True, cover=cover)
    scopes = {buffer.name: buffer.scope for buffer in program.buffers}

    def base_of(alloc: Alloc) -> str | None:
        """Return the buffer that a window lies over; equal windows, as in two options, all lie over it or none says so."""
        candidates = bases.get(alloc, set())
        return next(iter(candidates)) if len(candidates) == 1 else None

    def block(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        changed = tuple(map(statement, body))
        return body if changed == body else changed

    def statement(stmt: Stmt) -> Stmt:
        new = map_blocks(stmt, block)
        match stmt, new:
            case Tile() as tile, Tile() if tile in tiles and tile_of(stmt) is stmt:
                return replace(tiles[tile], body=new.body)
            case Alloc() as alloc, Alloc():
                memory = alloc.memory or scopes[alloc.buffer]
                return replace(new, memory=memory, inplace=base_of(alloc) or alloc.inplace)
            case _:
                return new

    return replace(program, body=block(program.body))


def _bases(nest: LoweredNest) -> Iterator[tuple[Alloc, str | None]]:
    """Yield the windows of a nest, each with the buffer that it lies over; None for one that lies over no other."""
    windows: dict[int, tuple[Alloc, str | None]] = {}
    for work in nest.work:
        for window in work.leaf.windows.values():
            windows.setdefault(window.number, (window.alloc, None))
        base = _base_in_place(work)
        if base is not None:
            window = work.leaf.windows[work.leaf.store.buffer]
            windows[window.number] = window.alloc, base
    yield from windows.values()


def _base_in_place(work: LoweredLeaf) -> str | None:
    """Return the operand over whose window the result of an operation lies; None if it has a place of its own."""
    if not isinstance(work.does, Operation) or work.does.recipe.base is None:
        return None
    base, result = work.does.recipe.base.buffer, work.leaf.store.buffer
    over = base != result and work.places[base] == work.places[result]
    return base if over else None
