"""What a schedule says of the loops that a target bound: their names in place of lines for all loops, and the splits that made them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from offcut.backends.cpu.machine.isa import Host
from offcut.core.program import THREAD, UNROLL, For, Tile
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
