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
from offcut.core.plain_loops import strip_annotations
from offcut.core.program import Program
from offcut.errors import PartitionError
from offcut.proof import concatenate_loops
from offcut.schedule import (
    ANY,
    ANY_LANES,
    ANY_PRODUCTS,
    ANY_THREADS,
    ANY_TREE,
    Bind,
    Schedule,
    at_line,
)


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
        if not isinstance(step, Bind) or step.stage != ANY:
            continue
        before = program
        if step == ANY_TREE:
            program, name = marked(program, reassociate), "rows"
        elif step == ANY_LANES:
            with debug.timed("lanes"):
                made = vectorized(program, host.isa, ANY_PRODUCTS in schedule.steps)
            program, notes, name = made.program, (*notes, *made.notes), "lanes"
        elif step == ANY_THREADS:
            threaded, program, name = True, shared(program, host).program, "threads"
            if strip_annotations(program) != strip_annotations(before) and concatenate_loops(
                program
            ) == concatenate_loops(before):
                divided = (before,)
        else:
            with at_line(schedule, step):
                raise PartitionError(
                    "schedule",
                    f"cannot bind loops to {step.unit}",
                    because="the target has no such unit",
                    help=("bind * lane tree", "bind * lane", "bind * thread"),
                )
        debug.passed(name, program, before)
    untold = "its schedule binds no loop to thread"
    return shared(program, host) if threaded else single_threaded(program, untold), notes, divided


def threads_marked(schedule: Schedule, host: Host) -> Schedule:
    """`schedule` with loops shared by threads, where a call may use several."""
    threads = (ANY_THREADS,) if host.threads > 1 else ()
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
