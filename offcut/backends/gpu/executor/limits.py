"""The limits of a block, and a check of what a launch asks of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from offcut.backends.gpu.executor.faults import fault
from offcut.backends.gpu.registers import GROUP_THREADS, register_faults
from offcut.backends.gpu.units import SHARED
from offcut.core.program import COUNTED_UNITS, Program, Size, Stmt, Tile, walk
from offcut.core.text.printer import format_head
from offcut.polyhedral.window_room import agent_count, window_rooms

THREADS = {"warp": 32, "warpgroup": GROUP_THREADS, "load": 32}
"""Threads of each unit that has threads of its own; beside warpgroups, what loads is one of them."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a block: bytes of shared memory, threads, and registers of 32 bits."""

    shared_bytes: int = 232_448
    threads: int = 1024
    registers: int = 65_536


def check_limits(
    program: Program, launch: Sequence[Stmt], sizes: Mapping[str, int], limits: Limits
) -> None:
    """Check that each block of a launch has room for its windows, and threads for its units, at given sizes.

    Raises ExecutionFault if one has not.
    """
    here = replace(
        program, sizes=tuple(Size(s.name, sizes[s.name], sizes[s.name]) for s in program.sizes)
    )
    rooms = [room for stmt in launch for room in window_rooms(here, stmt, SHARED, COUNTED_UNITS)]
    total = sum(room.bytes or 0 for room in rooms)
    if total > limits.shared_bytes:
        because = (
            f"its windows take {total} bytes of shared memory, and there are {limits.shared_bytes}"
        )
        window = max(rooms, key=lambda room: room.bytes or 0).alloc
        help = f"a depth below {window.depth}" if window.depth > 1 else "smaller tiles"
        raise fault(program.name, "room", at=format_head(window), because=because, help=(help,))
    for sums, because in register_faults(program, limits.registers):
        raise fault(program.name, "limits", at=format_head(sums), because=because)
    loads = any(isinstance(stmt, Tile) and stmt.unit == "load" for stmt in walk(tuple(launch)))
    counts = {
        unit: max(agent_count(here, stmt, unit) or 0 for stmt in launch) for unit in COUNTED_UNITS
    }
    count = sum(number * THREADS[unit] for unit, number in (*counts.items(), ("load", int(loads))))
    if counts.get("warpgroup"):
        count = -(-count // GROUP_THREADS) * GROUP_THREADS
    if count > limits.threads:
        because = f"it has {count} threads, and a block {limits.threads} at most"
        raise fault(program.name, "limits", at=format_head(launch[0]), because=because)
