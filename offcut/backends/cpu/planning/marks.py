"""Marks of a schedule -> the loops that they say: rows in lanes, loops as vectors, loops that threads share."""

from __future__ import annotations

from dataclasses import replace

from offcut import debug
from offcut.backends.cpu.machine.isa import Host
from offcut.backends.cpu.planning.claims import foreign_in
from offcut.backends.cpu.planning.planned import Planned
from offcut.backends.cpu.planning.row_reductions import marked
from offcut.backends.cpu.planning.vectorize import vectorized
from offcut.backends.cpu.threads.parallel import Parallel, mark_parallel_loops, single_threaded
from offcut.backends.proving import check_step
from offcut.core.program import Program
from offcut.errors import PartitionError
from offcut.proof import concatenate_loops, strip_annotations
from offcut.schedule import Mark, Schedule, at_line


def run_by_marks(
    program: Program, schedule: Schedule, host: Host, reassociate: bool
) -> tuple[Parallel, tuple[str, ...], tuple[Program, ...]]:
    """`program` with its loops marked as `schedule` says, what became of them, and the program
    before its loops were divided among threads, where they were.
    """
    notes: tuple[str, ...] = ()
    divided: tuple[Program, ...] = ()
    threaded = False
    for step in schedule.steps:
        before = program
        match step:
            case Mark("products"):
                continue
            case Mark("rows"):
                program = marked(program, reassociate)
            case Mark("lanes"):
                with debug.timed("lanes"):
                    beside = Mark("products") in schedule.steps
                    made = vectorized(program, host.isa, beside)
                program, notes = made.program, (*notes, *made.notes)
            case Mark("threads"):
                threaded, program = True, shared(program, host).program
                if strip_annotations(program) != strip_annotations(before) and concatenate_loops(
                    program
                ) == concatenate_loops(before):
                    divided = (before,)
            case Mark(unit):
                with at_line(schedule, step):
                    raise PartitionError(
                        "schedule",
                        f"cannot run loops by {unit}",
                        because="the target has no such unit",
                        help=("products, rows, lanes, threads",),
                    )
            case _:
                continue
        debug.passed(step.unit, program, before)
    untold = "its schedule has no mark threads"
    return shared(program, host) if threaded else single_threaded(program, untold), notes, divided


def threads_marked(schedule: Schedule, host: Host) -> Schedule:
    """`schedule` with loops shared by threads, where a call may use several."""
    threads = (Mark("threads"),) if host.threads > 1 else ()
    return replace(schedule, steps=(*schedule.steps, *threads))


def shared(program: Program, host: Host) -> Parallel:
    """`program` with the loops marked that threads share, where a call may use several.

    A program that calls external functions runs on the caller's thread: they may need Python's lock.
    """
    if host.threads == 1 or foreign_in(program, host):
        return single_threaded(program)
    with debug.timed("threads"):
        return mark_parallel_loops(program, host.machine.threads.chunk, host.threads)


def with_threads(planned: Planned, host: Host) -> Planned:
    """A plan for one thread, its loops shared where that is proved."""
    made = shared(planned.program, host)
    try:
        check_step(planned.program, made.program, reassociate=False)
    except PartitionError as refused:
        why = f"{refused.refused}: {refused.because}"
        return replace(planned, shares=replace(planned.shares, open=(why,)))
    return replace(
        planned,
        program=made.program,
        schedule=threads_marked(planned.schedule, host),
        shares=made,
        through=(*planned.through, planned.program),
    )
