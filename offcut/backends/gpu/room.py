"""Checks that a block has room for its windows, and threads for its units, for all sizes."""

from __future__ import annotations

from dataclasses import dataclass

from offcut.backends.executor.launch_statements import launch_statements
from offcut.backends.gpu.registers import GROUP_THREADS
from offcut.backends.gpu.units import SHARED
from offcut.core.accesses import last_stored
from offcut.core.program import COUNTED_UNITS, Alloc, Program, Stmt, Tile, walk
from offcut.core.text.printer import format_head
from offcut.errors import PartitionError
from offcut.polyhedral.window_room import agent_count, window_rooms

THREADS = {"warp": 32, "warpgroup": GROUP_THREADS, "load": 32}
"""Threads of each unit that has threads of its own; beside warpgroups, what loads is one of them."""
MOST_THREADS = 1024
"""Threads of a block, at most."""


@dataclass(frozen=True, slots=True)
class Block:
    """What a block of a launch takes at most.

    largest  the largest window in shared memory; None: there is none
    bytes    of shared memory
    threads  None if nothing bounds them
    """

    largest: Alloc | None
    bytes: int
    threads: int | None


def block_of(program: Program, launch: Stmt) -> Block:
    """Return what a block of a launch takes, at the sizes of a program where it is most.

    Raises PartitionError with a window whose extents nothing bounds.
    """
    rooms = window_rooms(program, launch, SHARED, COUNTED_UNITS)
    for room in rooms:
        if room.bytes is None:
            raise PartitionError(
                "compile",
                f"cannot place the windows of {program.name}",
                at=format_head(room.alloc),
                because="no upper bound of its extents is known",
                help=("extents of sizes and loops, which have ranges",),
            )
    largest = max(rooms, key=lambda room: room.bytes or 0).alloc if rooms else None
    loads = any(isinstance(stmt, Tile) and stmt.unit == "load" for stmt in walk((launch,)))
    counts = {unit: agent_count(program, launch, unit) for unit in THREADS}
    counts["load"] = max(counts["load"] or 0, int(loads))
    known = {unit: count for unit, count in counts.items() if count is not None}
    threads = sum(count * THREADS[unit] for unit, count in known.items())
    if known.get("warpgroup"):
        threads = -(-threads // GROUP_THREADS) * GROUP_THREADS
    total = sum(room.bytes or 0 for room in rooms)
    return Block(largest, total, threads if len(known) == len(counts) else None)


def check_room(program: Program, bytes: int) -> None:
    """Check that each launch takes at most `bytes` of shared memory, and `MOST_THREADS` threads, in a block.

    Raises PartitionError with the largest window, or the launch, of the first that takes more.
    """
    for launch in launch_statements(program):
        block = block_of(program, launch.stmt)
        if block.bytes > bytes:
            assert block.largest is not None
            raise PartitionError(
                "compile",
                f"cannot place the windows of {program.name}",
                at=format_head(block.largest),
                because=f"a block has {bytes} bytes of shared memory, and its windows take {block.bytes}",
                help=("fewer in turn: a smaller depth", "smaller tiles"),
            )
        if block.threads is None or block.threads > MOST_THREADS:
            takes = "any number" if block.threads is None else block.threads
            refused = PartitionError(
                "compile",
                f"cannot launch {program.name}",
                at=format_head(launch.stmt),
                because=f"a block has {MOST_THREADS} threads at most, and its warps and load units take {takes}",
                help=("tiles of fewer warps", "a loop over blocks around"),
            )
            refused.stage = last_stored(launch.stmt)
            raise refused
