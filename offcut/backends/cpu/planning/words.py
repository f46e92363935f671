"""Words of a text about the machine, as a processor reads them: what it has not is refused, what it does not use is said.

@thread @lane @unroll              run so
@warp, @bind(blockIdx.x), …        one iteration after the other, and a line of the plan says so
@bind(other), @by(load)            refused: no machine's word, or a unit of a machine of queues or a GPU
alloc L[…] in L1                   a line: a cache holds what the hardware puts there
alloc L[…] in shared               refused
@scope(acc), depth, inplace, async, multicast    a line of the plan
"""

from __future__ import annotations

import re

from offcut.core.analysis import analysis
from offcut.core.program import (
    LANE,
    STATUS,
    THREAD,
    UNITS,
    UNROLL,
    Alloc,
    For,
    Program,
    Tile,
)
from offcut.core.text.printer import format_head
from offcut.costmodel import Machine
from offcut.describe.microkernel import CORE
from offcut.errors import TargetError

_LOOPS = (THREAD, LANE, UNROLL)
_ELSEWHERE = r"(block|thread)Idx\.[xyz]|vthread(\.[xyz])?"
"""Units that schedules bind loops to for a GPU, beside `UNITS`."""
_SERIAL = "one iteration after the other"


def check_machine_words(program: Program, machine: Machine, op: str) -> tuple[str, ...]:
    """Return a line for each word about memories and units that a processor does not use.

    Raises TargetError, in the name of `op`, for a memory or a unit that it does not have.
    """
    words = analysis(program)
    notes = [
        f"{buffer.name} lies in main memory: {machine.name} has no memory {buffer.scope}"
        for buffer in program.buffers
        if buffer.scope not in (None, STATUS, *_memories(machine))
    ]
    for loop in words.of(For):
        if loop.unit is not None and loop.unit not in _LOOPS:
            notes.append(_loop(loop, loop.unit, machine, op))
    for tile in words.of(Tile):
        notes += _tile(tile, machine, op)
    for alloc in words.of(Alloc):
        notes += _alloc(alloc, machine, op)
    return tuple(dict.fromkeys(notes))


def _memories(machine: Machine) -> tuple[str, ...]:
    return *(level.name for level in machine.memory), machine.dram.name


def _loop(loop: For, unit: str, machine: Machine, op: str) -> str:
    if unit not in UNITS and not re.fullmatch(_ELSEWHERE, unit):
        raise TargetError(
            op,
            f"cannot run loop {loop.iter} on {unit}",
            at=format_head(loop),
            because=f"{machine.name} has no unit {unit}, and schedules know none",
            help=(*(f"@{one}" for one in _LOOPS), f"without it, {_SERIAL}"),
        )
    return f"loop {loop.iter} runs {_SERIAL}: {machine.name} has no {unit}"


def _tile(tile: Tile, machine: Machine, op: str) -> list[str]:
    head = f"tile {', '.join(axis.iter for axis in tile.axes)}"
    if tile.unit not in (None, CORE, THREAD):
        raise TargetError(
            op,
            f"cannot run a tile by {tile.unit}",
            at=format_head(tile),
            because=f"{machine.name} has no unit {tile.unit}",
            help=(f"without @by({tile.unit}), by the thread that comes to it",),
        )
    notes = []
    if tile.asynchronous:
        notes.append(f"{head} is not asynchronous: it has ended when the next statement begins")
    if tile.multicast is not None:
        notes.append(f"{head} copies for each {tile.multicast}: {machine.name} has no multicast")
    return notes


def _alloc(alloc: Alloc, machine: Machine, op: str) -> list[str]:
    memories = _memories(machine)
    notes = []
    if alloc.memory is not None and alloc.memory not in memories:
        raise TargetError(
            op,
            f"cannot keep {alloc.buffer} in {alloc.memory}",
            at=format_head(alloc),
            because=f"{machine.name} has no memory {alloc.memory}",
            help=(f"without in {alloc.memory}, in main memory", f"in {', '.join(memories)}"),
        )
    if alloc.memory is not None and alloc.memory != machine.dram.name:
        notes.append(
            f"{alloc.buffer} lies in main memory: {alloc.memory} is a cache, which fills itself"
        )
    if alloc.depth > 1:
        because = "a thread uses one after the other"
        notes.append(f"{alloc.buffer} has one window, not {alloc.depth}: {because}")
    if alloc.inplace is not None:
        notes.append(f"{alloc.buffer} has a place of its own, not that of {alloc.inplace}")
    return notes
