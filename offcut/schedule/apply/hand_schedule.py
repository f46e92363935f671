"""A schedule by hand: what a user holds. Each primitive writes a decision, which is applied."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from offcut.core.dtypes import numpy_dtype
from offcut.core.integers import whole
from offcut.core.interpret import interpreter
from offcut.core.layout import Layout
from offcut.core.plain_loops import strip_synchronization
from offcut.core.program import Kind, Program
from offcut.core.text.parser import read_back
from offcut.describe.microkernel import Microkernel
from offcut.describe.request import inputs_of, outputs_of
from offcut.describe.tensor import Tensor
from offcut.errors import DescribeError, PartitionError, trim_traceback, trim_tracebacks
from offcut.partition import EmittedTile, Users, tiles_alike
from offcut.partition.cutting import PiecesCost
from offcut.proof import UNDECIDED, Certificate
from offcut.schedule.apply.apply_decision import apply_decision
from offcut.schedule.apply.axes import find_stage, stage_names
from offcut.schedule.apply.emit import lower, lower_with_tiles
from offcut.schedule.apply.hand_proof import HandProof
from offcut.schedule.apply.hand_stage import Stage
from offcut.schedule.apply.reading import nests_of_program, nests_of_tensors, with_axis_labels
from offcut.schedule.apply.staged_form import Nests
from offcut.schedule.decisions import (
    ANY,
    At,
    Bind,
    Choose,
    Cover,
    Primitive,
    Schedule,
    Split,
    Staging,
)
from offcut.schedule.diagnostics import with_source_line


@trim_traceback
def create_schedule(
    output: Tensor | Sequence[Tensor] | Program, inputs: Sequence[Tensor] | None = None
) -> HandSchedule:
    """Return a schedule of `output`: each stage a nest of its own, no loop changed.

    output  tensors, or a loop program, whose nests are known by the buffers that they write
    inputs  placeholders in call order; by default in the order in which they are read

    Raises DescribeError or PartitionError for what is not described, or cut already.
    """
    if isinstance(output, Program):
        program = strip_synchronization(
            read_back(output, "create_schedule")
        )  # loops that move get their own
        return HandSchedule(nests_of_program(program))
    outputs = outputs_of(output, "create_schedule")
    return HandSchedule(nests_of_tensors(outputs, inputs_of(inputs, outputs, "create_schedule")))


def _is_of_target(step: Primitive) -> bool:
    """Return whether a decision is one that a target alone applies: of all loops, of whole stages, of tiles by other tiles."""
    match step:
        case Split(stage) | Bind(stage) | Cover(stage) if stage == ANY:
            return True
        case Staging(_, _, name):
            return name == ANY
        case _:
            return False


def replay(
    program: Program,
    schedule: Schedule,
    microkernels: Sequence[Microkernel] = (),
    reassociate: bool = True,
    of_target: Sequence[Microkernel] = (),
    tile_cost: PiecesCost = tiles_alike,
    users: Users | None = None,
) -> tuple[tuple[Primitive, ...], Program]:
    """Return the primitives that `schedule` begins with, and what they make of `program`, proved.

    microkernels  that `tensorize` may name, beside declared instructions
    of_target     that `cover` may name, whose tiles the target judges
    reassociate   whether the terms of a sum may be added in another order
    tile_cost     predicted seconds of runs of tiles, by which a call chooses among the strategies of a split
    users         what the user calls the axes of the program, where it was described as tensors

    Raises PartitionError, with the line, for one that is not legal, or that stands behind what a
    target decides.
    """
    first = tuple(step for step in schedule.steps if isinstance(step, Primitive))
    for option in (one for step in first if isinstance(step, Choose) for one in step.options):
        if option.cost is None:
            with with_source_line(schedule, option):
                raise PartitionError(
                    "choose",
                    f"cannot compare the option {option.label}",
                    because="a call takes the cheapest, and it says no cost",
                    help=(f"option {option.label} costs 1e-09*float64(n)",),
                )
    for step, expected in zip(first, schedule.steps, strict=False):
        if step is not expected:
            with with_source_line(schedule, step):
                raise PartitionError(
                    "schedule",
                    "cannot apply a primitive here",
                    because="what a target decides stands before it, about loops that are made first",
                    help=("primitives by hand come first",),
                )
    start = create_schedule(program)._nests
    if users is not None:
        start = with_axis_labels(start, users)
    by_hand = HandSchedule(start)
    by_hand.with_microkernels(of_target, tile_cost).apply(
        Schedule(schedule.name, first), microkernels
    )
    try:
        return first, by_hand.lower(reassociate)
    except PartitionError as refused:
        whole = refused
    if whole.refused == UNDECIDED and whole.decision is not None:
        assert isinstance(whole.decision, Primitive)
        with with_source_line(schedule, whole.decision):
            raise whole
    _raise_by_line(by_hand, schedule, reassociate)
    raise whole


def _raise_by_line(by_hand: HandSchedule, schedule: Schedule, reassociate: bool) -> None:
    """Raise, by its line, what is refused of the decisions up to one, where nothing is of those before it; return if nothing is refused.

    It is sought among them by halves.
    """
    accepted, refused = 0, len(by_hand._steps)
    while refused - accepted > 1:
        middle = (accepted + refused) // 2
        try:
            by_hand.after(middle).lower(reassociate)
        except PartitionError:
            refused = middle
        else:
            accepted = middle
    with with_source_line(schedule, by_hand._steps[refused - 1]):
        by_hand.after(refused).lower(reassociate)


@trim_tracebacks
class HandSchedule:
    """Primitives and the nests that they make; ``schedule[C]`` is the stage that writes ``C``."""

    def __init__(self, nests: Nests) -> None:
        self._first, self._nests, self._steps = nests, nests, tuple[Primitive, ...]()
        self._lowered: tuple[Nests, bool, Program, Certificate] | None = None

    def __repr__(self) -> str:
        names = ", ".join(nest.name for nest in self._nests.nests)
        return f"<schedule by hand of {names}>"

    def __getitem__(self, key: Tensor | str | Stage) -> Stage:
        """Return the stage of a tensor, of the buffer of that name, or of a primitive's result.

        Raises PartitionError where there is none.
        """
        if isinstance(key, Stage):
            return Stage(self, key.nest_name, key.buffer)
        stage = find_stage(self._nests, self._buffer(key))
        return Stage(self, stage.name, stage.buffer)

    def _buffer(self, key: Tensor | str) -> str:
        name = key.name if isinstance(key, Tensor) else str(key)
        return dict(self._nests.labels).get(name, name)

    @property
    def _undecided(self) -> Nests:
        """Return the nests before any decision, with the instructions that decisions may name."""
        now = self._nests
        return replace(
            self._first,
            intrinsics=now.intrinsics,
            microkernels=now.microkernels,
            tile_cost=now.tile_cost,
        )

    @property
    def stages(self) -> tuple[str, ...]:
        """Return the names of the stages, in the order in which they were described."""
        return stage_names(self._nests)

    @property
    def schedule(self) -> Schedule:
        """Return the primitives, in the order of their calls; ``oc.compile(…, schedule=…)`` does them again."""
        return Schedule(self._nests.name, self._steps)

    def apply(self, schedule: Schedule, microkernels: Sequence[Microkernel] = ()) -> HandSchedule:
        """This, after the primitives of `schedule`; of neighbouring lines that say where stages are computed, those of readers first.

        microkernels  that `tensorize` may name, beside declared instructions

        Raises PartitionError, with the line, for one that is not legal, or is for a target to apply; DescribeError for what is no
        schedule.
        """
        if not isinstance(schedule, Schedule):
            raise DescribeError(
                "apply",
                f"cannot apply {schedule!r}",
                because="it is not a schedule",
                help=("offcut.Schedule.parse(text)",),
            )
        before = self._nests, self._steps
        self._nests = replace(self._nests, intrinsics=(*self._nests.intrinsics, *microkernels))
        try:
            for are_places, steps in groupby(schedule.steps, lambda one: isinstance(one, At)):
                if are_places:
                    self._place(schedule, [one for one in steps if isinstance(one, At)])
                    continue
                for step in steps:
                    with with_source_line(schedule, step):
                        if not isinstance(step, Primitive) or _is_of_target(step):
                            raise PartitionError(
                                "schedule",
                                "cannot apply by hand what a target decides",
                                because="primitives by hand alone are for nests of plain loops",
                                help=("oc.compile(…, schedule=…)",),
                            )
                        self._do(step)
        except PartitionError:
            self._nests, self._steps = before
            raise
        return self

    def _place(self, schedule: Schedule, steps: list[At]) -> None:
        """Apply decisions where stages are computed: each as soon as it is legal, since its readers have to be in the loop before.

        Raises PartitionError, with the line, for the first of those that are not.
        """
        while steps:
            refused: PartitionError | None = None
            for number, step in enumerate(steps):
                try:
                    with with_source_line(schedule, step):
                        self._do(step)
                except PartitionError as error:
                    refused = refused or error
                else:
                    del steps[number]
                    break
            else:
                assert refused is not None
                raise refused

    def after(self, count: int) -> HandSchedule:
        """Return a schedule of its own, of the first `count` decisions of this one: 0 is the source, whose loops nothing changed.

        Raises DescribeError where there are not so many.
        """
        number = whole(count)
        if number is None or not 0 <= number <= len(self._steps):
            raise DescribeError(
                "after",
                f"cannot take the first {count!r} decisions",
                because=f"the schedule has {len(self._steps)}",
                help=(f"a number from 0 to {len(self._steps)}",),
            )
        result = HandSchedule(self._undecided)
        for step in self._steps[:number]:
            result._do(step)
        return result

    def with_microkernels(
        self, kernels: Sequence[Microkernel], tile_cost: PiecesCost = tiles_alike
    ) -> HandSchedule:
        """Return this schedule, whose covers may name `kernels`, those of a target, which judges their tiles.

        tile_cost  predicted seconds of runs of tiles, by which a call chooses among the strategies of a split
        """
        self._nests = replace(self._nests, microkernels=tuple(kernels), tile_cost=tile_cost)
        return self

    def _do(self, step: Primitive) -> None:
        """Apply a primitive, and note it."""
        self._nests, self._steps = apply_decision(self._nests, step), (*self._steps, step)

    def cache_read(
        self,
        tensor: Tensor | str | Stage,
        scope: str | None,
        readers: Sequence[Tensor | str | Stage],
        layout: Layout | None = None,
    ) -> Stage:
        """Return a copy of `tensor` in the memory `scope`, which the stages `readers` read instead.

        scope   None: main memory
        layout  in which its elements lie there; None: row by row, or as what runs the readers says

        Raises PartitionError where a reader does not read it, or it is written between them.
        """
        buffer = tensor.buffer if isinstance(tensor, Stage) else self._buffer(tensor)
        stages = tuple(self[reader]._target().stage for reader in readers)
        name = self._nests.names().fresh(f"{buffer}L")
        self._do(Staging("read", buffer, name, stages, (), scope, layout))
        return self[name]

    def cache_write(
        self, tensor: Tensor | str | Stage, scope: str | None, layout: Layout | None = None
    ) -> Stage:
        """Return the stage that computes `tensor` in the memory `scope`, in `layout`; `tensor` is copied out of it.

        Raises PartitionError where it is updated in place, or its loops are scheduled already.
        """
        target = self[tensor]._target()
        name = self._nests.names().fresh(f"{target.buffer}L")
        self._do(Staging("write", target.stage, name, memory=scope, layout=layout))
        return self[name]

    @property
    def source(self) -> Program:
        """Return the program that is scheduled: every stage in its own loops, as the stages are now."""
        return self._nests.source

    @property
    def loops(self) -> Program:
        """Return the loop program as the decisions make it; `lower` returns the same, proved."""
        return lower(self._nests)

    def lower(self, reassociate: bool = True) -> Program:
        """Return the loop program, proved to compute what `source` does, for all sizes.

        reassociate  whether the terms of a sum may be added in another order

        Raises PartitionError, with the smallest witness, where an order or a result would change.
        """
        return self._proved(reassociate)[2]

    def prove(self, reassociate: bool = True) -> Certificate:
        """What is proved of the lowered program.

        Raises PartitionError, with the smallest witness, where a theorem fails.
        """
        return self._proved(reassociate)[3]

    def _proved(self, reassociate: bool) -> tuple[Nests, bool, Program, Certificate]:
        result = self._lowered
        if result is None or result[0] is not self._nests or result[1] != reassociate:
            program, certificate = self._decisions.proved(reassociate)
            result = self._lowered = self._nests, reassociate, program, certificate
        return result

    @property
    def _decisions(self) -> HandProof:
        return HandProof(self._undecided, self._steps, self._nests)

    @property
    def emitted(self) -> Program:
        """Return the loop program; nothing is proved."""
        return lower_with_tiles(self._nests)[0]

    def forms(
        self, small: bool = True, always: Collection[str] = ()
    ) -> tuple[tuple[Program, ...], tuple[EmittedTile, ...]]:
        """Return the programs from one without staged arrays to the whole, each of one more, and the tiles of the whole in the
        order of its text; nothing is proved.

        Each computes what the one before does, which is a small question. The first is without windows, where it has any.

        small   whether there is a program for each staged array; else the first one and the whole alone
        always  staged arrays that are in all of them
        """
        return self._decisions.forms(small, always)

    def run(self, inputs: Mapping[str, Any], **sizes: int) -> Any:
        """Return the result of the reference interpreter on numpy arrays, by the users' names.

        Raises CallError where an input or a size does not fit.
        """
        program = self.lower()
        buffers, names = dict(self._nests.labels), dict(self._nests.size_names)
        arrays = {buffers.get(name, name): value for name, value in inputs.items()}
        for first in self._first.buffers:  # constants that are converted when they are bound
            if first.kind is Kind.CONSTANT and first.name in arrays:
                dtype = program.buffer(first.name).dtype
                if dtype != first.dtype:
                    arrays[first.name] = arrays[first.name].astype(numpy_dtype(dtype))
        results = interpreter.run(
            program,
            arrays,
            {names.get(name, name): value for name, value in sizes.items()},
        )
        outputs = [b.name for b in program.buffers if b.kind in (Kind.OUTPUT, Kind.INOUT)]
        return results[outputs[0]] if len(outputs) == 1 else tuple(results[o] for o in outputs)

    def __str__(self) -> str:
        return str(self.lower())
