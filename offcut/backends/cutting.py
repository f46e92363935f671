"""`oc.partition`: what is asked of it, described and cut."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any

from offcut.backends.arguments import checked_copies
from offcut.backends.decide import attempt, with_whole_covers
from offcut.backends.options import Options, TargetPlan
from offcut.backends.passes import Pass
from offcut.backends.target import Target
from offcut.backends.verify import record_choice_proof
from offcut.core.memo import forget
from offcut.core.program import Program
from offcut.core.text.round_trip import read_back
from offcut.costmodel import tile_price
from offcut.describe.computation import Computation, computation
from offcut.describe.external import unverified_notes
from offcut.describe.request import inputs_of, outputs_of
from offcut.describe.source import source
from offcut.errors import PartitionError
from offcut.partition import (
    Partition,
    StrategyLike,
    Tiles,
    Users,
    check_layouts,
    check_windows,
    checked_request,
    cuts_of,
    drop_refused_covers,
    pieces_of_tiles,
    tiles_alike,
    uncovered_notes,
    users_of,
)
from offcut.polyhedral import request_budget
from offcut.proof import Certificate, Theorem, check_equal
from offcut.schedule import LESS_TO_COMPARE, cut, cut_program, schedule_of

SIMPLER = ("fewer axes in tile=", "one tile by axis", 'tail="cut"')
"""What helps where a cut takes more than bounded work."""


@dataclass(frozen=True)
class Description:
    """What is to be cut.

    described  as whole arrays, where it was not written as a program
    notes      words of its text that are not used
    """

    program: Program
    described: Computation | None = None
    notes: tuple[str, ...] = ()

    @property
    def users(self) -> Users:
        """Return what the user calls what is in it."""
        return Users.of(self.program) if self.described is None else users_of(self.described)


@dataclass
class Cutting:
    """What `oc.partition` is asked, and what its passes have given."""

    output: Any
    inputs: Any
    tiles: Mapping[str, Tiles]
    tail: Mapping[str, StrategyLike] | StrategyLike
    copies: int | None
    target: Target
    options: Options
    request: Description = field(init=False)
    partition: Partition = field(init=False)

    def describe(self) -> Description:
        """Return what is to be cut, checked."""
        if not isinstance(self.output, Program):
            outputs = outputs_of(self.output, "partition")
            described = computation(outputs, inputs_of(self.inputs, outputs, "partition"))
            return Description(source(described), described)
        text = read_back(self.output, "partition")
        program = self.target.without_synchronization(text, "partition")
        notes = self.target.check_text(program, self.options, "partition")
        check_layouts(program, "partition")
        check_windows(program, "partition")
        return Description(program, None, notes)


def partition_of(job: Cutting) -> Partition:
    """Return the pieces of a cut, proved: of the plan of a target that plans its cuts, else of the loops as they are cut here."""
    request, program, target = job.request, job.request.program, job.target
    most = checked_copies(job.copies, program, target.machine)
    forget()
    described = request.described
    cuts = (
        checked_request(job.tiles, job.tail)
        if described is None
        else cuts_of(described, job.tiles, job.tail)
    )
    requested = checked_request(job.tiles, job.tail)
    plan = target.cut(program, request.users, requested, job.options)
    if plan is not None:
        _check_planned_cut(target, job.copies)
        if not target.judges:
            plan = with_whole_covers(target, plan, job.options)
        return _of_plan(program, request.users, plan)
    partition, most = _within_copies(job, cuts, most)
    lent = job.options.microkernels
    uncovered = uncovered_notes(partition.loops, lent)
    partition = drop_refused_covers(partition, target.rejected_covers(partition.loops, job.options))
    record_choice_proof(partition.loops)
    covers = {piece.microkernel for piece in partition.pieces if piece.microkernel is not None}
    return replace(
        partition,
        notes=(*request.notes, *partition.notes, *uncovered, *unverified_notes(lent, covers)),
        schedule=schedule_of(program.name, cuts, most),
        measure=lambda cut: target.code_bytes(cut.loops),
    )


def _check_planned_cut(target: Target, copies: int | None) -> None:
    """Refuse a number of copies for a cut that its target plans: conditions stay where they are there."""
    if copies is not None:
        raise PartitionError(
            "partition",
            f"cannot take copies={copies} on {target.name}",
            because=f"{target.name} plans its cuts with windows, and leaves conditions where they are",
            help=("without copies=",),
        )


def _within_copies(job: Cutting, cuts: Any, most: int) -> tuple[Partition, int]:
    """Return the cut, its conditions separated for so many copies of a statement; for one, where the user did not say how
    many, and the proof does not see through more.

    Raises PartitionError where a cut is not legal, or not proved.
    """
    separate = attempt(partial(_cut_program, job, cuts, most))
    if isinstance(separate, Partition):
        return separate, most
    if job.copies is not None or most == 1 or LESS_TO_COMPARE not in separate.help:
        raise separate
    whole = attempt(partial(_cut_program, job, cuts, 1))
    if not isinstance(whole, Partition):
        raise separate
    note = "conditions stay where they are: the proof does not see through loops without them"
    return replace(whole, notes=(*whole.notes, note)), 1


def _cut_program(job: Cutting, cuts: Any, copies: int) -> Partition:
    """Return the cut, its conditions separated for so many copies of a statement.

    Raises PartitionError where it is not legal, or not proved.
    """
    own = job.target.microkernels(job.options)
    elsewhere = (kernel for kernel in job.options.microkernels if kernel.unit != "core")
    price = tile_price(own[0], job.target.machine) if own else tiles_alike
    kernels = [*elsewhere, *sorted(own, key=lambda kernel: kernel.cycles)]
    program, described = job.request.program, job.request.described
    with request_budget("partition", f"cannot cut {program.name} so", help=SIMPLER):
        if described is None:
            return cut_program(program, cuts, kernels, price, copies=copies)
        return cut(described, job.tiles, job.tail, kernels, price, copies)


def _of_plan(program: Program, users: Users, planned: TargetPlan) -> Partition:
    """Return the pieces of a plan, proved step by step; terms of sums may be added in any order, as `compile` has it."""
    theorems: dict[Theorem, None] = {}
    with request_budget("partition", f"cannot cut {program.name} so", help=SIMPLER):
        check_windows(planned.program, "partition")
    for before, after in pairwise((program, *planned.through, planned.program)):
        proved_here = check_equal(before, after, reassociate=True, users=users.of_sizes)
        theorems |= dict.fromkeys(proved_here)
    record_choice_proof(planned.program)
    return Partition(
        program,
        pieces_of_tiles(program, planned.program, planned.tiles, users),
        planned.program,
        Certificate(tuple(theorems)),
        users,
        planned.notes,
        steps=planned.through,
        reassociate=True,
        schedule=planned.schedule,
    )


CUT: Pass[Cutting, Partition] = Pass(
    "cut",
    ("request", "options"),
    "partition",
    "tiles cover each axis once (their strategy), and source = loops (by axis, else by instances)",
    partition_of,
    lambda partition: partition.loops,
)
