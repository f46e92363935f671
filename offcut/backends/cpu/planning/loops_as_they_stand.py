"""A schedule without nests and a program in, the program with its loops cut as the schedule says.

A refusal names the line of the cut that it is about.
"""

from __future__ import annotations

from offcut.backends.cpu.machine.isa import Host
from offcut.backends.cpu.microkernels.available import families
from offcut.core.program import Program
from offcut.costmodel import tile_price
from offcut.errors import PartitionError
from offcut.partition import LoopCut, Users, checked_tiles, cut_program
from offcut.polyhedral import request_budget
from offcut.schedule import Convert, Copy, Cut, Lay, Schedule, Scratch, Separate, Turn, at_line


def check_loops(schedule: Schedule) -> None:
    """Refuse what only nests can take, in a schedule of loops as they stand."""
    for step in schedule.steps:
        if isinstance(step, Scratch | Copy | Turn | Convert | Lay):
            with at_line(schedule, step):
                raise PartitionError(
                    "schedule",
                    "cannot apply this to loops as they stand",
                    because="it is of a nest, and the schedule has none",
                    help=("a nest, with the ways to run it",),
                )


def cut_loops(
    program: Program, users: Users, host: Host, schedule: Schedule
) -> tuple[Program, tuple[str, ...]]:
    """A program with its loops cut as they stand, where a schedule says so, and what became of which loop."""
    cuts = {step.axis: step for step in schedule.steps if isinstance(step, Cut)}
    if not cuts:
        return program, ()
    kernels = [family.microkernel for family in families(host)]
    price = tile_price(kernels[0], host.machine)
    copies = next((step.copies for step in schedule.steps if isinstance(step, Separate)), 1)
    wanted: dict[str, LoopCut] = {}
    for axis, step in cuts.items():
        with at_line(schedule, step):
            wanted[axis] = LoopCut(checked_tiles(axis, step.tiles), step.strategy)
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
