"""Words of a schedule about the machine: those that a processor lacks are refused; loops that the target bound get their names.

Words of a text about the machine, as a processor reads them: what it has not is refused, what it does not use is said.

@thread @lane @unroll              run so
@warp, @bind(blockIdx.x), …        one iteration after the other, and a line of the plan says so
@bind(other), @by(load)            refused: no machine's word, or a unit of a machine of queues or a GPU
alloc L[…] in L1                   a line: a cache holds what the hardware puts there
alloc L[…] in shared               refused
@scope(acc), depth, inplace, async, multicast    a line of the plan

What a schedule says of the loops that a target bound: their names in place of lines for all loops, and the splits that made them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from offcut.backends.cpu.machine.isa import Host
from offcut.core.analysis import analysis
from offcut.core.program import LANE, STATUS, THREAD, UNITS, UNROLL, Alloc, For, Program, Tile
from offcut.core.text.printer import format_head
from offcut.costmodel import Machine
from offcut.describe.microkernel import CORE
from offcut.errors import TargetError
from offcut.schedule import (
    ANY,
    ANY_THREADS,
    Bind,
    Binds,
    Schedule,
    Separate,
    Split,
    Step,
    each_decision,
    hand_steps,
)

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


def with_leading_separate(schedule: Schedule) -> Schedule:
    """Return `schedule` with a leading `Separate` if its decisions would otherwise be read as primitives by hand."""
    steps = schedule.steps
    return replace(schedule, steps=(Separate(1), *steps)) if hand_steps(schedule) else schedule


def with_thread_binds(schedule: Schedule, host: Host) -> Schedule:
    """Return `schedule` with a line that binds loops to threads, if a call may use several."""
    threads = (ANY_THREADS,) if host.threads > 1 else ()
    return replace(schedule, steps=(*schedule.steps, *threads))


def with_loop_names(schedule: Schedule, binds: Binds, loops: Sequence[For | Tile]) -> Schedule:
    """Return `schedule` with a line for each of `loops` in place of the line for all loops."""
    if not any(line.stage == ANY for line in binds.lines):
        return schedule
    (line_of_all,) = (line for line in binds.lines if line.stage == ANY)
    lines: dict[Bind, None] = {}
    for loop in loops:
        if not (isinstance(loop, For) and loop.unit == line_of_all.unit):
            lines |= dict.fromkeys(binds.lines_of(loop))
    new_lines = tuple(line for line in lines if line not in schedule.steps)
    at = schedule.steps.index(line_of_all)
    return replace(schedule, steps=(*schedule.steps[:at], *new_lines, *schedule.steps[at + 1 :]))


def with_unit_splits(
    schedule: Schedule, chunks: Sequence[Split], unrolled: Sequence[Split]
) -> Schedule:
    """Return `schedule` with these splits before its binds, which then name the loops that the splits make.

    chunks    of which threads share the outer loops
    unrolled  of which the inner loops are unrolled
    """
    new_splits = [split for split in (*chunks, *unrolled) if split not in schedule.steps]
    if not new_splits:
        return schedule
    made_by_splits = {
        (step.stage, name)
        for step in each_decision(schedule.steps)
        if isinstance(step, Split)
        for name in step.names
    }
    by_axis = {(s.stage, s.axis): s for s in new_splits if (s.stage, s.axis) not in made_by_splits}

    def rename(step: Step) -> Step:
        split = by_axis.get((step.stage, step.axis)) if isinstance(step, Bind) else None
        if split is None or not isinstance(step, Bind):
            return step
        is_chunk = step.unit == THREAD and split in chunks
        return replace(step, axis=split.names[0 if is_chunk else -1])

    places = (place for place, step in enumerate(schedule.steps) if isinstance(step, Bind))
    at = next(places, len(schedule.steps))
    new_binds = (Bind(s.stage, s.names[-1], UNROLL) for s in new_splits if s in unrolled)
    steps = (*schedule.steps[:at], *new_splits, *map(rename, schedule.steps[at:]), *new_binds)
    return replace(schedule, steps=steps)


def without_unrolled_splits(schedule: Schedule) -> Schedule:
    """Return `schedule` without the splits whose inner loops are unrolled; other binds name the loops that were split."""
    binds = Binds.of(schedule, UNROLL)
    splits = (binds.split_of(line) for line in binds.lines)
    by_inner = {(s.stage, s.names[-1]): s.axis for s in splits if s is not None}
    steps = list[Step]()
    for step in schedule.steps:
        if isinstance(step, Split) and (step.stage, step.names[-1]) in by_inner:
            continue
        if isinstance(step, Bind) and (step.stage, step.axis) in by_inner:
            if step.unit == UNROLL:
                continue
            step = replace(step, axis=by_inner[step.stage, step.axis])
        steps.append(step)
    return replace(schedule, steps=tuple(steps))
