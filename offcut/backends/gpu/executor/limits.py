"""The limits of a block, and a check of what a launch asks of them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from offcut.backends.gpu.executor.faults import fault
from offcut.backends.gpu.executor.steps import Agent, Streams, UnitPath, block_of
from offcut.backends.gpu.units import SHARED
from offcut.core.dtypes import ITEM_BYTES
from offcut.core.program import Alloc, Program

THREADS = {"warp": 32, "warpgroup": 128, "load": 32}
"""Threads of each unit that has threads of its own."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a block: bytes of shared memory, and threads."""

    shared_bytes: int = 232_448
    threads: int = 1024


def check_limits(program: Program, streams: Streams, limits: Limits) -> None:
    """Check that each block has room for its windows, and threads for its units.

    Raises ExecutionFault for a block that has not.
    """
    rooms: dict[UnitPath, int] = defaultdict(int)
    threads: dict[UnitPath, dict[Agent, int]] = defaultdict(dict)
    largest: dict[UnitPath, tuple[int, Alloc]] = {}
    for (_, path), (alloc, elements) in streams.rooms.items():
        buffer = program.buffer(alloc.buffer)
        if alloc.inplace is None and (alloc.memory or buffer.scope) == SHARED:
            window_bytes = elements * ITEM_BYTES[buffer.dtype] * alloc.depth
            block = block_of(path)
            rooms[block] += window_bytes
            if block not in largest or window_bytes > largest[block][0]:
                largest[block] = window_bytes, alloc
    for agent in streams.agents:
        if agent.unit in THREADS:
            threads[block_of(agent.path)][agent] = THREADS[agent.unit]
    for path, count in rooms.items():
        if count > limits.shared_bytes:
            because = f"its windows take {count} bytes of shared memory, and there are {limits.shared_bytes}"
            _, window = largest[path]
            help = f"a depth below {window.depth}" if window.depth > 1 else "smaller tiles"
            at = str(Agent("block", path))
            raise fault(program.name, "room", at=at, because=because, help=(help,))
    for path, by_agent in threads.items():
        count = sum(by_agent.values())
        if count > limits.threads:
            because = f"it has {count} threads, and a block {limits.threads} at most"
            at = str(Agent("block", path))
            raise fault(program.name, "limits", at=at, because=because)
