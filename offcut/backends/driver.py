"""The driver: `oc.compile`, `oc.partition` and `oc.prove_equal`, from what is asked to what is compiled, cut or proved.

`oc.partition`: what is asked of it, described and cut.

Find the schedule that tuning recorded for a kernel of which the user decided nothing.

`oc.compile`: what is asked of it, described, and how it is to be compiled.

`oc.prove_equal`: compare two loop programs at every size.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

from offcut import debug
from offcut.backends.arguments import check_price, check_program, checked_copies
from offcut.backends.compile_request import CompileRequest, check_reassociate, request_of
from offcut.backends.decide import attempt, proved_plan, with_whole_covers
from offcut.backends.options import Options, TargetPlan
from offcut.backends.passes import Pass
from offcut.backends.target import Target
from offcut.backends.verify import record_choice_proof, unproved_choice_notes
from offcut.core.analysis import analysis
from offcut.core.memo import forget
from offcut.core.program import Program, Store, digest_of
from offcut.core.records_path import default_file
from offcut.core.text.parser import read_back
from offcut.costmodel import tile_price
from offcut.describe.computation import Computation, computation, source
from offcut.describe.external import unverified_notes
from offcut.describe.request import inputs_of, outputs_of
from offcut.errors import OffcutError, PartitionError, trim_traceback
from offcut.partition import (
    Partition,
    StrategyLike,
    Tiles,
    Users,
    check_layouts,
    check_marks,
    check_windows,
    checked_request,
    cuts_of,
    drop_refused_covers,
    pieces_of_tiles,
    tiles_alike,
    uncovered_notes,
    users_of,
)
from offcut.polyhedral import PASS, check_promises, request_budget
from offcut.proof import Certificate, Theorem, check_equal, check_throughout
from offcut.schedule import (
    LESS_TO_COMPARE,
    Schedule,
    cut,
    cut_program,
    schedule_of,
    with_user_costs,
)
from offcut.search import Records
from offcut.search.trials import VerdictLookup, recorded_verdict, shipped_verdict

# What a user says of records: a file; False: none; None: the default file, and behind it what is shipped.
RecordsArg: TypeAlias = str | os.PathLike[str] | Records | bool | None


@dataclass(frozen=True, slots=True)
class TunedSchedule:
    """The result of looking a kernel up in records.

    schedule  None: the target's policy decides
    notes     for its plan: which records, what they say, and why one was left aside
    source    what the schedule is from
    """

    schedule: Schedule | None = None
    notes: tuple[str, ...] = ()
    source: str = ""


def find_tuned_schedule(
    request: CompileRequest, options: Options, target: Target, records: RecordsArg
) -> TunedSchedule:
    """The schedule that the first records which know the program settled on; the user's come before what is
    shipped.

    Nothing that is wrong with records is an error here: it is said in the notes.
    """
    notes: tuple[str, ...] = ()
    for lookup in _lookups(request, options, target, records):
        if lookup.because:
            debug.note(1, f"records: {lookup.because}", logger="tune")
            notes = (*notes, f"records: {lookup.because}")
        if lookup.verdict is None:
            continue
        note = f"{lookup.source}: {lookup.verdict}"
        if not lookup.verdict.changes:
            return TunedSchedule(None, (*notes, note))
        try:
            schedule = Schedule.parse(lookup.verdict.schedule)
            return TunedSchedule(schedule, (*notes, note), lookup.source)
        except OffcutError as error:
            notes = (*notes, record_ignored_note(lookup.source, error))
    return TunedSchedule(None, notes)


def record_ignored_note(source: str, error: Exception) -> str:
    """Return, and log, the note of a plan whose tuned schedule cannot be used."""
    reason = str(error).splitlines()[0]
    if isinstance(error, OffcutError):
        reason = f"{error.refused}, because {error.because}"
    note = f"{source}: the tuned schedule is left aside: {reason}"
    debug.note(1, note, logger="tune")
    return note


def _lookups(
    request: CompileRequest, options: Options, target: Target, records: RecordsArg
) -> Iterator[VerdictLookup]:
    if records is False:
        return
    try:
        file = _file(records)
        exists = file is not None and file.exists()
    except (OSError, RuntimeError) as error:  # no rights to the folder, no home
        yield VerdictLookup(because=f"they cannot be used: {error}")
        file, exists = None, False
    digest = digest_of(request.text)
    if file is not None and exists:
        yield recorded_verdict(file, digest, target.record_key(options))
    elif records is not None and file is not None:
        yield VerdictLookup(because=f"there is no file {file}")
    if records is None and file is not None:
        yield shipped_verdict(digest, target.machine_kind(options))


def _file(records: RecordsArg) -> Path | None:
    if isinstance(records, Records):
        return records.path
    if isinstance(records, str | os.PathLike):
        return Path(records).expanduser()
    return default_file()


@dataclass(frozen=True)
class Alternative:
    """One way to compile a request.

    notes   what its plan says first
    source  the records that it is from, which may be left aside; "" for what the user asked
    """

    options: Options
    notes: tuple[str, ...]
    source: str = ""


@dataclass
class Compilation:
    """What `oc.compile` is asked, and what its passes have given.

    price    a cost model of the user's
    records  None, False, a file: where nothing is decided
    decided  the first argument that leaves nothing for records to decide; "" for none
    """

    output: Any
    inputs: Any
    constants: Mapping[str, Any] | None
    target: Target
    asked: Options
    price: Any
    records: RecordsArg
    decided: str
    notes: tuple[str, ...] = ()
    request: CompileRequest = field(init=False)
    options: tuple[Alternative, ...] = field(init=False)

    def describe(self) -> CompileRequest:
        """Return the program, its constants bound, checked."""
        request, notes = request_of(
            self.target, self.output, self.inputs, self.constants, self.asked, "compile"
        )
        self.notes = (*notes, *unproved_choice_notes(request.program, "compile"))
        return request


def alternatives(job: Compilation) -> tuple[Alternative, ...]:
    """Return how a request is to be compiled, in order of preference: as records settled it before the target's own policy."""
    options, request = job.asked, job.request
    if job.price is not None:
        check_price(job.price, options.schedule)
        planned = proved_plan(job.target, request, replace(options, keep_pruned=True))
        if planned.schedule is not None and planned.applied is not None:
            loops, sizes = planned.applied.partition.loops, dict(request.users.sizes)
            options = replace(
                options, schedule=with_user_costs(planned.schedule, loops, job.price, sizes)
            )
    if job.decided:
        return (Alternative(options, job.notes),)
    tuned_schedule = find_tuned_schedule(request, options, job.target, job.records)
    own = Alternative(options, (*job.notes, *tuned_schedule.notes))
    if tuned_schedule.schedule is None:
        return (own,)
    from_records = Alternative(
        replace(options, schedule=tuned_schedule.schedule), own.notes, tuned_schedule.source
    )
    return (from_records, replace(own, notes=own.notes[:-1]))


DESCRIBE: Pass[Any, Any] = Pass(
    "describe",
    ("output", "inputs", "constants"),
    "request",
    "accesses stay inside, sizes keep their promises, arrays fit, at every size",
    lambda job: job.describe(),
    lambda request: request.program,
)
CHOOSE: Pass[Compilation, tuple[Alternative, ...]] = Pass(
    "choose",
    ("request",),
    "options",
    "none: the user, records or the policy decide, and what they decide is proved below",
    alternatives,
)


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


@trim_traceback
def prove_equal(source: Program, emitted: Program, reassociate: bool = False) -> Certificate:
    """Return the proof that one loop program computes what another one does, at every allowed size.

    source       what must be computed, in plain loops
    emitted      the same sizes and buffers, in whatever order and pieces
    reassociate  whether the terms of a sum may be added in another order

    Raises PartitionError, with the smallest witness, where they differ or the proof does not reach.
    """
    for program in (source, emitted):
        check_program(program, "prove_equal")
        read_back(program, "prove_equal")
    with request_budget("prove_equal", f"cannot compare with {source.name}"):
        check_promises(source, "prove_equal", {})
    check_reassociate(reassociate, "prove_equal")
    forget()
    check_throughout(emitted)
    marks = check_marks(emitted, {}, reassociate)
    try:
        theorems = check_equal(source, emitted, reassociate=reassociate)
    except PartitionError as error:
        adds = any(s.reduce == "sum" for s in analysis(source).of(Store))
        if _are_equal(emitted, source, reassociate):
            help = (*error.help, "prove_equal(emitted, source) is proved: plain loops come first")
        elif adds and not reassociate and _are_equal(source, emitted, reassociate=True):
            help = (*error.help, "reassociate=True: the terms of a sum in any order")
        else:
            raise
        raise PartitionError(
            error.op, error.refused, at=error.at, because=error.because, help=help
        ) from None
    for program in (source, emitted):  # of equal texts, no access was looked at
        check_windows(program, "prove_equal")
    return Certificate((*theorems, *marks))


def _are_equal(source: Program, emitted: Program, reassociate: bool) -> bool:
    """Return whether programs are proved equal in little work."""
    try:
        check_equal(source, emitted, reassociate=reassociate, most=PASS)
    except PartitionError:
        return False
    return True
