"""From a tensor expression to a kernel: the passes, in order. Read this file first.

describe    core        tensors, symbolic sizes            `compute`, `placeholder`, `dim`
represent   core        a loop program, unique names       `computation`, `source`, `parse`
bind        core        constants, and the sizes they fix  `bind_constants`
cut         backends    microkernels and strategies        `plan`
prove       partition   isl, for all sizes                 `prove`, `check_equal`
lower       backends    loops to LLVM IR                   `lowered`
build       backends    object code, cached                `build`
run         kernel      any size, no Python per shape      `Kernel`
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from offcut.backends import registry
from offcut.backends.checked_results import check_result, check_type
from offcut.backends.cpu import target as cpu
from offcut.backends.decide import proved_plan, request_of
from offcut.backends.interpret import target as interpret
from offcut.backends.proving import keep_options, told_options
from offcut.backends.registry import targets
from offcut.backends.requested import Request, check_reassociate
from offcut.backends.target import Options, Planned, Strategies, Target
from offcut.backends.tuned import Asked, left_aside, tuned
from offcut.core.analysis import analysis
from offcut.core.integers import whole
from offcut.core.memo import forget
from offcut.core.program import Program, Store
from offcut.core.text.printer import shown
from offcut.core.text.read_back import read_back
from offcut.costmodel import Device, copies_worth, load, shipped, tile_price
from offcut.describe.computation import computation
from offcut.describe.external import unverified_notes
from offcut.describe.microkernel import Microkernel
from offcut.describe.request import inputs_of, outputs_of
from offcut.describe.source import source
from offcut.describe.tensor import Tensor
from offcut.errors import (
    DescribeError,
    InternalError,
    OffcutError,
    PartitionError,
    TargetError,
    trim_traceback,
)
from offcut.kernel import Kernel, kernel_of
from offcut.partition import (
    LESS_TO_COMPARE,
    Partition,
    Strategy,
    StrategyLike,
    Tiles,
    Users,
    check_layouts,
    check_marks,
    check_windows,
    checked_request,
    cut,
    cut_program,
    cuts_of,
    drop_refused_covers,
    pieces_of_tiles,
    strategy_named,
    tiles_alike,
    uncovered_notes,
    users_of,
)
from offcut.polyhedral import PASS, check_promises, request_budget
from offcut.proof import Certificate, Theorem, check_equal, check_throughout
from offcut.schedule import (
    OwnPrice,
    Schedule,
    at_line,
    decisions,
    find_intrinsic,
    hand_steps,
    priced,
    schedule_of,
)
from offcut.search import Records


def _of_queues(name: str) -> registry.Factory:
    """Return the factory of an accelerator; its back end, a fifth of all that is imported here, is imported where one is asked for."""

    def made(machine: Device | None) -> Target:
        from offcut.backends.accelerator.target import target

        return target(name)(machine)

    return made


registry.register("cpu", cpu.target)
registry.register("interpret", interpret.target)
for _name in ("vta", "vta-osdi18", "gemmini", "accelerator"):
    registry.register(_name, _of_queues(_name))

_SIMPLER = ("fewer axes in tile=", "one tile by axis", 'tail="cut"')


@trim_traceback
def partition(
    output: Tensor | Sequence[Tensor] | Program,
    tile: Mapping[str, Tiles] | None = None,
    tail: Mapping[str, StrategyLike] | StrategyLike = "cut",
    target: str | Target = "cpu",
    inputs: Sequence[Tensor] | None = None,
    copies: int | None = None,
    microkernels: Sequence[Microkernel] = (),
) -> Partition:
    """Return `output` with its conditions separated and the axes named in `tile` cut, and proved.

    output  a tensor, several, or a loop program (`parse`, `recurrence`)
    tile    the largest tile by axis, in iterations, or one for each level of tiles, outermost
            first; ``C.j`` where several tensors have a ``j``; no other axis is cut
    tail    a strategy by axis, or one for all: guard, exact, cut, mask, pad, shift, ladder,
            balance, even, residue, version, mix, or one of your own (`strategy`); with heights,
            ``("ladder", (4, 2, 1))``
    target  whose microkernels may cover the pieces: a name, or what `offcut.target` gives
    copies  stores of the result per store of `output`, at most: what conditions may cost in code;
            None: as many as the cost model finds worth it (`copies_worth`), or 1, where the proof does not see through more
    microkernels  external ones that may cover pieces too, where they are the cheaper; and such as
            another unit runs, a warp for one: what these cover first is noted, and runs otherwise

    Raises PartitionError, with the smallest witness, for a cut that is not legal or not proved.
    """
    chosen = _chosen(target, "partition")
    asked = chosen.options("partition", microkernels=microkernels, threads=1)
    options = check_result(chosen, "options", asked)
    own = chosen.microkernels(options)
    elsewhere = (kernel for kernel in options.microkernels if kernel.unit != "core")
    tiles = {} if tile is None else tile
    price = tile_price(own[0], chosen.machine) if own else tiles_alike
    kernels = [*elsewhere, *sorted(own, key=lambda kernel: kernel.cycles)]
    described, said = None, tuple[str, ...]()
    if isinstance(output, Program):
        program = chosen.unsynchronized(read_back(output, "partition"), "partition")
        said = chosen.check_text(program, options, "partition")
        check_layouts(program, "partition")
        check_windows(program, "partition")
    else:
        outputs = outputs_of(output, "partition")
        described = computation(outputs, inputs_of(inputs, outputs, "partition"))
        program = source(described)
    most = _copies(copies, program, chosen.machine)

    def cut_with(most: int) -> Partition:
        with request_budget("partition", f"cannot cut {program.name} so", help=_SIMPLER):
            if described is None:
                return cut_program(program, wanted, kernels, price, copies=most)
            return cut(described, tiles, tail, kernels, price, most)

    forget()
    wanted = checked_request(tiles, tail) if described is None else cuts_of(described, tiles, tail)
    users = Users.of(program) if described is None else users_of(described)
    planned = chosen.cut(program, users, checked_request(tiles, tail), options)
    if planned is not None:
        return _of_plan(program, users, planned)
    try:
        made = cut_with(most)
    except PartitionError as refused:
        if copies is not None or LESS_TO_COMPARE not in refused.help:
            raise
        try:
            made, most = cut_with(1), 1
        except PartitionError:
            raise refused from None
        note = "conditions stay where they are: the proof does not see through loops without them"
        made = replace(made, notes=(*made.notes, note))
    uncovered = uncovered_notes(made.loops, options.microkernels)
    made = drop_refused_covers(made, chosen.refused(made.loops, options))
    keep_options(made.loops)
    covers = {piece.microkernel for piece in made.pieces if piece.microkernel is not None}
    return replace(
        made,
        notes=(*said, *made.notes, *uncovered, *unverified_notes(options.microkernels, covers)),
        schedule=schedule_of(program.name, wanted, most),
        measure=lambda cut: chosen.code_bytes(cut.loops),
    )


def _of_plan(program: Program, users: Users, planned: Planned) -> Partition:
    """Return the pieces of a plan, proved step by step; terms of sums may be added in any order, as `compile` has it."""
    theorems: dict[Theorem, None] = {}
    with request_budget("partition", f"cannot cut {program.name} so", help=_SIMPLER):
        check_windows(planned.program, "partition")
    for before, after in pairwise((program, *planned.through, planned.program)):
        with request_budget("partition", f"cannot cut {program.name} so", help=_SIMPLER):
            found = check_equal(before, after, reassociate=True, users=users.of_sizes)
            theorems |= dict.fromkeys(found)
    keep_options(planned.program)
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


@trim_traceback
def prove_equal(source: Program, emitted: Program, reassociate: bool = False) -> Certificate:
    """Return the proof that one loop program computes what another one does, at every allowed size.

    source       what must be computed, in plain loops
    emitted      the same sizes and buffers, in whatever order and pieces
    reassociate  whether the terms of a sum may be added in another order

    Raises PartitionError, with the smallest witness, where they differ or the proof does not reach.
    """
    for program in (source, emitted):
        if not isinstance(program, Program):
            raise DescribeError(
                "prove_equal",
                f"cannot compare {shown(program)}",
                because="it is no loop program",
                help=("parse(text)", "partition(…).loops"),
            )
        read_back(program, "prove_equal")
    with request_budget("prove_equal", f"cannot compare with {source.name}"):
        check_promises(source, "prove_equal", {})
    check_reassociate(reassociate, "prove_equal")
    forget()
    check_throughout(emitted)
    marks = check_marks(emitted, {}, reassociate)
    try:
        theorems = check_equal(source, emitted, reassociate=reassociate)
    except PartitionError as refused:
        adds = any(s.reduce == "sum" for s in analysis(source).of(Store))
        if _are_equal(emitted, source, reassociate):
            help = (*refused.help, "prove_equal(emitted, source) is proved: plain loops come first")
        elif adds and not reassociate and _are_equal(source, emitted, reassociate=True):
            help = (*refused.help, "reassociate=True: the terms of a sum in any order")
        else:
            raise
        raise PartitionError(
            refused.op, refused.refused, at=refused.at, because=refused.because, help=help
        ) from None
    for program in (source, emitted):  # of equal texts, no access was looked at
        check_windows(program, "prove_equal")
    return Certificate((*theorems, *marks))


def _are_equal(source: Program, emitted: Program, reassociate: bool) -> bool:
    """Return whether it is told in little work that programs are equal."""
    try:
        check_equal(source, emitted, reassociate=reassociate, most=PASS)
    except PartitionError:
        return False
    return True


def _copies(asked: int | None, program: Program, machine: Device) -> int:
    if asked is None:
        stores = len(analysis(program).of(Store))
        return copies_worth(machine, stores)
    count = whole(asked)
    if count is None or count < 1:
        raise PartitionError(
            "partition",
            f"cannot make {asked!r} copies",
            because="copies is an int, at least 1: what one statement may become",
            help=("copies=1 leaves every condition where it is",),
        )
    return count


@trim_traceback
def compile(
    output: Tensor | Sequence[Tensor] | Program,
    inputs: Sequence[Tensor] | None = None,
    constants: Mapping[str, Any] | None = None,
    target: str | Target = "cpu",
    strategy: StrategyLike | Mapping[str, StrategyLike] = "auto",
    threads: int | None = None,
    reassociate: bool = True,
    microkernels: Sequence[Microkernel] = (),
    schedule: Schedule | None = None,
    price: OwnPrice | None = None,
    records: Asked = None,
) -> Kernel:
    """Return a kernel that computes `output`, or runs a loop program, at every allowed size.

    A program's inputs are those that it declares, what it updates among them: a call takes such an
    array, leaves it as it is, and gives back a new one; where ``out=`` is the array itself, it is
    updated in place.

    inputs       placeholders in call order; by default operands of an operator in its own order, others as they are read
    constants    arrays by placeholder name: copied and packed now, not passed at the call
    strategy     ``"auto"``: the cheapest by predicted cost, at each call; one strategy for the rows;
                 or a strategy by axis; of a program that is a computation as well
    threads      that a call may use, at most: it takes fewer where these are faster; None: what
                 the environment variable ``OFFCUT_THREADS`` says, else 1; a kernel that calls an
                 external function runs on its caller's thread alone
    reassociate  whether a sum of floats may use a fixed rule of its own, which depends on its extent
                 alone: on the CPU, lanes along rows of memory; False: sums run in ascending order
    microkernels  external ones that compete with the target's own, of `external_microkernel`; where
                 one is taken, a call runs on one thread, since its function may need Python's lock
    schedule     what is decided already (`Kernel.schedule`, `Schedule.parse`): the same loops, and
                 the same bits, on the same machine; None: the target's policy decides
    price        a cost model of one's own: a function of the loops of a way to run a nest, a `Program`,
                 that gives the seconds of a call, a number or an expression over the sizes. A call
                 takes the cheapest of the ways that there are; None: the target's model
    records      where strategy, schedule, microkernels and price say nothing, the schedule that `tune` found the best
                 for this program here is taken: from this file; None: from the default file, else from what is
                 shipped; False: the policy decides. `plan` says what decided

    Raises DescribeError, PartitionError or TargetError for what cannot be described, cut, or run.
    """
    decided = _decided(strategy, microkernels, schedule, price)
    _check_records(records, decided)
    check_reassociate(reassociate, "compile")
    chosen = _chosen(target, "compile")
    asked = chosen.options(
        "compile",
        _checked_strategy(strategy),
        reassociate,
        microkernels,
        threads,
        _checked_schedule(schedule, strategy, (*chosen.microkernels(), *microkernels)),
    )
    options = check_result(chosen, "options", asked)
    request, said = request_of(chosen, output, inputs, constants, options, "compile")
    notes = (*said, *told_options(request.program, "compile"))
    if price is not None:
        options = replace(options, schedule=_priced(price, request, options, chosen))
    if decided:
        return kernel_of(request, options, chosen, notes)
    return _tuned(request, options, chosen, records, notes)


def _decided(
    strategy: object, microkernels: Sequence[Microkernel], schedule: object, price: object
) -> str:
    """Return the first argument that leaves nothing for records to decide; "" where none does."""
    given = {
        "strategy": strategy != "auto",
        "microkernels": bool(microkernels),
        "schedule": schedule is not None,
        "price": price is not None,
    }
    return next((name for name, there in given.items() if there), "")


def _check_records(records: object, decided: str) -> None:
    if records is None or records is False:
        return
    if not isinstance(records, str | os.PathLike | Records):
        raise DescribeError(
            "compile",
            f"cannot take records={records!r}",
            because="records are a file",
            help=('records="tuned.sqlite"', "records=False looks nothing up"),
        )
    if decided:
        raise DescribeError(
            "compile",
            f"cannot take records= beside {decided}=",
            because="records give a schedule, and it would say otherwise",
            help=("one of the two",),
        )


def _tuned(
    request: Request, options: Options, target: Target, records: Asked, notes: tuple[str, ...]
) -> Kernel:
    """Return the kernel of the schedule that records hold for it; of the policy where there is none, or it is refused.

    notes  what its plan says first
    """
    found = tuned(request, options, target, records)
    notes = (*notes, *found.notes)
    if found.schedule is None:
        return kernel_of(request, options, target, notes)
    try:
        schedule = _checked_schedule(found.schedule, "auto", target.microkernels())
        return kernel_of(request, replace(options, schedule=schedule), target, notes)
    except (OffcutError, InternalError) as refused:
        notes = (*notes[:-1], left_aside(found.source, refused))
        return kernel_of(request, options, target, notes)


def _priced(price: object, request: Request, options: Options, target: Target) -> Schedule | None:
    """Return the schedule of the target's policy, its ways priced by a function of the user's; None where the
    program runs in one way.
    """
    if not callable(price) or options.schedule is not None:
        because = "a schedule says what its ways cost" if callable(price) else "it is no function"
        raise DescribeError(
            "compile",
            f"cannot take price={price!r}",
            because=because,
            help=("lambda loops: 2e-9 * n",),
        )
    planned = proved_plan(target, request, replace(options, every=True))
    if planned.schedule is None or planned.applied is None:
        return None
    loops, sizes = planned.applied.partition.loops, dict(request.users.sizes)
    return priced(planned.schedule, loops, price, sizes)


def _checked_strategy(strategy: object) -> Strategies:
    """What a user wrote, as strategies."""
    if strategy == "auto":
        return "auto"
    if isinstance(strategy, str | tuple | Strategy):
        return strategy_named(strategy, at="every axis of rows", op="compile", others=("auto",))
    if not isinstance(strategy, Mapping):
        raise PartitionError(
            "compile",
            f"cannot take strategy={strategy!r}",
            because="a strategy is a name, or names by axis",
            help=('strategy="auto"', 'strategy={"i": "ladder", "j": "mask"}'),
        )
    left = next((axis for axis, choice in strategy.items() if choice == "auto"), None)
    if left is not None:
        raise PartitionError(
            "compile",
            "cannot take strategy='auto'",
            at=f"axis {left}",
            because="an axis that is not named is the target's to decide on: auto says that of all",
            help=(f"leave {left} out", 'strategy="auto"'),
        )
    return tuple(
        (str(axis), strategy_named(choice, at=f"axis {axis}", op="compile"))
        for axis, choice in strategy.items()
    )


def _checked_schedule(
    schedule: object, strategy: object, microkernels: Sequence[Microkernel]
) -> Schedule | None:
    """Return a schedule, where one is given and no strategy beside it; its instructions are known."""
    if schedule is None:
        return None
    if not isinstance(schedule, Schedule):
        raise DescribeError(
            "compile",
            f"cannot take schedule={shown(schedule)}",
            because=f"it is of type {type(schedule).__name__}, and no schedule",
            help=(
                *(('strategy="ladder" names a strategy',) if isinstance(schedule, str) else ()),
                "kernel.schedule",
                "s.schedule, of a schedule by hand",
                "oc.Schedule.parse(text)",
            ),
        )
    if strategy != "auto":
        raise DescribeError(
            "compile",
            f"cannot take strategy={strategy!r} beside schedule=",
            because="a schedule says every strategy",
            help=("one of the two",),
        )
    for step in hand_steps(schedule):
        if isinstance(step, decisions.Cover):
            with at_line(schedule, step):
                find_intrinsic(step.microkernel, microkernels, f"axis {step.stage}.{step.axis}")
    return schedule


@trim_traceback
def target(name: str, machine: str | os.PathLike[str] | Device | None = None) -> Target:
    """Return a target, for the machine that it finds or for another.

    machine  the name of a description that is shipped, the path of a TOML file, or a `Device`; what
             is planned for it is not run here where this machine lacks its features

    Raises TargetError for a name that is none, or a description that cannot be read.
    """
    described = load(machine) if isinstance(machine, str | os.PathLike) else machine
    if described is not None and not isinstance(described, Device):
        raise TargetError(
            "target",
            f"cannot plan for machine={machine!r}",
            because="a machine is the name of a description, the path of one, or a Device",
            help=(", ".join(shipped()),),
        )
    return registry.named(name, described, "target")


def _chosen(asked: object, op: str) -> Target:
    """Return the target that an argument ``target=`` says."""
    if not isinstance(asked, Target):
        return registry.named(asked, None, op)
    check_type(asked, "name", asked.name, str, "a text")
    check_type(asked, "machine", asked.machine, Device, "the description of a machine")
    return asked


__all__ = ["Kernel", "compile", "partition", "prove_equal", "target", "targets"]
