"""A schedule without nests and a program in, the program with its loops cut as the schedule says.

A refusal names the line of the cut that it is about.
"""

from __future__ import annotations

from offcut.backends.cpu.machine.isa import Host
from offcut.backends.cpu.microkernels.available import families
from offcut.core.program import Program
from offcut.costmodel import tile_price
from offcut.errors import PartitionError
from offcut.partition import LADDER, LoopCut, Strategy, Users, checked_tiles, cut_program
from offcut.polyhedral import request_budget
from offcut.schedule import (
    ANY,
    Bind,
    Primitive,
    Schedule,
    Separate,
    Split,
    at_line,
    loop_cuts,
    split_names,
    stages_in,
)


def check_loops(schedule: Schedule) -> None:
    """Refuse decisions behind those of a target, that are none about loops whose conditions have left them."""
    cuts = set(map(id, loop_cuts(schedule).values()))
    for step in schedule.steps:
        if id(step) in cuts or not isinstance(step, Primitive) or ANY in stages_in(step):
            continue
        if isinstance(step, Bind) and step.unit is not None:
            continue
        with at_line(schedule, step):
            raise PartitionError(
                "schedule",
                "cannot apply a decision here",
                because="what a target decides stands before it, about loops that are made first",
                help=("decisions by hand come first", "split C.i cut 8, behind separate"),
            )


def cut_loops(
    program: Program, users: Users, host: Host, schedule: Schedule
) -> tuple[Program, tuple[str, ...]]:
    """A program with its loops cut as they stand, where a schedule says so, and what became of which loop."""
    cuts = loop_cuts(schedule)
    if not cuts:
        return program, ()
    kernels = [family.microkernel for family in families(host)]
    price = tile_price(kernels[0], host.machine)
    copies = next((step.copies for step in schedule.steps if isinstance(step, Separate)), 1)
    wanted: dict[str, LoopCut] = {}
    for axis, step in cuts.items():
        with at_line(schedule, step):
            sizes = tuple(level.tile for level in step.levels)
            wanted[axis] = LoopCut(checked_tiles(axis, sizes), _strategy(step))
    by_cycles = sorted(kernels, key=lambda kernel: kernel.cycles)
    try:
        with request_budget("compile", f"cannot cut {program.name} so"):
            made = cut_program(program, wanted, by_cycles, price, users, copies)
    except PartitionError as refused:
        said = refused.at.replace(",", " ").split()
        named = (one for one in cuts if one in said or one.rpartition(".")[2] in said)
        axis = next(named, next(iter(cuts)))
        with at_line(schedule, cuts[axis]):
            raise refused
    return made.loops, made.notes


def _strategy(step: Split) -> Strategy:
    """Return how the last tile of a loop runs; refused where a schedule says of its tiles what only a nest's may be.

    Raises PartitionError.
    """
    *outer, last = step.levels
    plain = all(one.heights is None and one.by is None and one.room is None for one in step.levels)
    if not plain or last.tail is None or any(one.tail not in (None, LADDER) for one in outer):
        raise PartitionError(
            "schedule",
            f"cannot split {step.axis} so",
            because="tiles of a loop as it stands have one size a level, and the last level says what its tail does",
            help=(
                f"split {step.axis} ladder 64 then balance 8 as {' '.join(split_names(step.axis, 2))}",
            ),
        )
    return last.tail
