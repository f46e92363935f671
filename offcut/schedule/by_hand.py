"""A schedule by hand: what a user holds, and its stages. Each primitive is a line that calls its own file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from offcut.core import interpreter
from offcut.core.program import Execution, Kind, Program
from offcut.core.request import inputs_of, outputs_of
from offcut.core.tensor import Tensor
from offcut.errors import PartitionError
from offcut.partition import Certificate, StrategyLike
from offcut.polyhedral import bounded
from offcut.schedule import graph, loops, place, tensorize
from offcut.schedule.axes import Axis, Target
from offcut.schedule.lower import lower
from offcut.schedule.nests import Nests
from offcut.schedule.prove import prove
from offcut.schedule.read import nests_of_program, nests_of_tensors


def create_schedule(
    output: Tensor | Sequence[Tensor] | Program, inputs: Sequence[Tensor] | None = None
) -> HandSchedule:
    """A schedule of `output`: each stage a nest of its own, no loop changed.

    output  tensors, or a loop program, whose nests are known by the buffers that they write
    inputs  placeholders in call order; by default in the order in which they are read

    Raises DescribeError or PartitionError for what is not described, or cut already.
    """
    if isinstance(output, Program):
        return HandSchedule(nests_of_program(output))
    outputs = outputs_of(output, "create_schedule")
    return HandSchedule(nests_of_tensors(outputs, inputs_of(inputs, outputs, "create_schedule")))


class HandSchedule:
    """Nests of loops and what was done to them; ``schedule[C]`` is the stage that writes ``C``."""

    def __init__(self, nests: Nests) -> None:
        self._nests = nests
        self._lowered: tuple[Nests, Program, Certificate] | None = None

    def __repr__(self) -> str:
        names = ", ".join(nest.name for nest in self._nests.nests)
        return f"<schedule by hand of {names}>"

    def __getitem__(self, key: Tensor | str | Stage) -> Stage:
        """The stage of a tensor, of the buffer of that name, or of a primitive's result.

        Raises PartitionError where there is none.
        """
        if isinstance(key, Stage):
            return Stage(self, key.nest_name, key.buffer)
        buffer = self._buffer(key)
        nests = self._nests.nests
        named = [nest for nest in nests if nest.name == buffer]
        homes = [nest for nest in nests if buffer in nest.written]
        if len(homes) == 1:
            return Stage(self, homes[0].name, buffer)
        if not homes and named:
            return Stage(self, buffer, named[0].written[0])
        raise PartitionError(
            "schedule",
            f"cannot tell the stage of {buffer}",
            because=f"{', '.join(h.name for h in homes)} write it"
            if homes
            else "no stage writes it",
            help=(f"stages: {', '.join(self.stages)}",),
        )

    def _buffer(self, key: Tensor | str) -> str:
        name = key.name if isinstance(key, Tensor) else str(key)
        return dict(self._nests.labels).get(name, name)

    @property
    def stages(self) -> tuple[str, ...]:
        """The names of the stages, in the order in which they were described."""
        nests = self._nests.nests
        listed = [(n.name, b) for n in nests for b in n.written]
        count = [buffer for _, buffer in listed]
        return tuple(b if count.count(b) == 1 else name for name, b in listed)

    def cache_read(
        self, tensor: Tensor | str | Stage, scope: str, readers: Sequence[Tensor | str | Stage]
    ) -> Stage:
        """A copy of `tensor` in the memory `scope`, which the stages `readers` read instead.

        Raises PartitionError where a reader does not read it, or it is written between them.
        """
        buffer = tensor.buffer if isinstance(tensor, Stage) else self._buffer(tensor)
        named = [self[reader].nest_name for reader in readers]
        self._nests, name = graph.cache_read(self._nests, buffer, scope, named)
        return self[name]

    def cache_write(self, tensor: Tensor | str | Stage, scope: str) -> Stage:
        """The stage that computes `tensor` in the memory `scope`; `tensor` is copied out of it.

        Raises PartitionError where it is updated in place, or its loops are scheduled already.
        """
        self._nests, name = graph.cache_write(self[tensor]._target(), scope)
        return self[name]

    @property
    def source(self) -> Program:
        """The program that is scheduled: every stage as described, no loop changed."""
        return self._nests.source

    def lower(self) -> Program:
        """The loop program, proved to compute what `source` does, for all sizes.

        Raises PartitionError, with the smallest witness, where an order or a result would change.
        """
        return self._proved()[1]

    def prove(self) -> Certificate:
        """What is proved of the lowered program.

        Raises PartitionError, with the smallest witness, where a theorem fails.
        """
        return self._proved()[2]

    def _proved(self) -> tuple[Nests, Program, Certificate]:
        if self._lowered is None or self._lowered[0] is not self._nests:
            help = 'fewer splits, or tail="cut"'
            with bounded("lower", "cannot lower the schedule", help=(help,)):
                program = lower(self._nests)
                self._lowered = self._nests, program, prove(self._nests, program)
        return self._lowered

    def run(self, inputs: Mapping[str, Any], **sizes: int) -> Any:
        """The result of the reference interpreter on numpy arrays, by the users' names.

        Raises CallError where an input or a size does not fit.
        """
        program = self.lower()
        buffers, names = dict(self._nests.labels), dict(self._nests.size_names)
        results = interpreter.run(
            program,
            {buffers.get(name, name): value for name, value in inputs.items()},
            {names.get(name, name): value for name, value in sizes.items()},
        )
        wanted = [b.name for b in program.buffers if b.kind in (Kind.OUTPUT, Kind.INOUT)]
        return results[wanted[0]] if len(wanted) == 1 else tuple(results[o] for o in wanted)

    def __str__(self) -> str:
        return str(self.lower())


class Stage:
    """A stage of a schedule: the loops around the stores of one buffer.

    Axes are named by text, or by what a primitive returned. Every primitive raises PartitionError
    where its theorem fails, or an axis is none of this stage.
    """

    def __init__(self, schedule: HandSchedule, nest_name: str, buffer: str) -> None:
        self._schedule, self.nest_name, self.buffer = schedule, nest_name, buffer

    @property
    def name(self) -> str:
        """The buffer that it writes."""
        return self.buffer

    @property
    def loops(self) -> tuple[str, ...]:
        """Its loops as they are now, outermost first."""
        return self._target().loops

    def _target(self) -> Target:
        return Target(self._schedule._nests, self.nest_name, self.buffer)

    def _set(self, nests: Nests) -> Stage:
        self._schedule._nests = nests
        return self

    def _axis(self, name: str) -> Axis:
        return Axis(self.nest_name, name)

    def split(
        self, axis: str | Axis, factor: int, tail: StrategyLike | None = None
    ) -> tuple[Axis, Axis]:
        """``axis = factor*outer + inner``; (outer, inner).

        factor  iterations of the inner loop
        tail    what the last, partial tile does: a strategy; by default it is cut off, or padded
                where an instruction runs it
        """
        nests, outer, inner = loops.split(self._target(), axis, factor, tail)
        self._set(nests)
        return self._axis(outer), self._axis(inner)

    def tile(self, *axes_then_factors: Any, tail: StrategyLike | None = None) -> tuple[Axis, ...]:
        """``tile("y", "x", 8, 8)``: every axis split, the outer loops around all inner ones.

        Returns the outer axes, then the inner ones.
        """
        rank = len(axes_then_factors) // 2
        axes, factors = axes_then_factors[:rank], axes_then_factors[rank:]
        if rank == 0 or len(factors) != rank:
            raise PartitionError(
                "tile",
                f"cannot tile by {', '.join(map(repr, axes_then_factors)) or 'nothing'}",
                at=f"stage {self.buffer}",
                because="each axis has one factor: first the axes, then the factors",
                help=('tile("y", "x", 8, 8)',),
            )
        names = self._target().axes("tile", *axes)
        before = self._schedule._nests
        try:
            pairs = [
                self.split(name, factor, tail) for name, factor in zip(names, factors, strict=True)
            ]
            made = (*(outer for outer, _ in pairs), *(inner for _, inner in pairs))
            self.reorder(*made)
        except PartitionError:
            self._schedule._nests = before
            raise
        return made

    def fuse(self, outer: str | Axis, inner: str | Axis) -> Axis:
        """One loop over the pairs of two loops, one directly inside the other."""
        nests, fused = loops.fuse(self._target(), outer, inner)
        self._set(nests)
        return self._axis(fused)

    def reorder(self, *axes: str | Axis) -> Stage:
        """The loops named, in this order, at the places that they have among all."""
        return self._set(loops.reorder(self._target(), *axes))

    def unroll(self, axis: str | Axis) -> Stage:
        """The loop written out."""
        return self._set(loops.run_as(self._target(), "unroll", axis, Execution.UNROLL))

    def vectorize(self, axis: str | Axis) -> Stage:
        """The iterations of the loop as lanes of vectors; it must carry no dependence."""
        return self._set(loops.run_as(self._target(), "vectorize", axis, Execution.VECTOR))

    def parallel(self, axis: str | Axis) -> Stage:
        """The iterations of the loop on several threads; it must carry no dependence."""
        return self._set(loops.run_as(self._target(), "parallel", axis, Execution.PARALLEL))

    def bind(self, axis: str | Axis, index: str) -> Stage:
        """The iterations of the loop run by a hardware index; it must carry no dependence."""
        return self._set(loops.bind(self._target(), axis, index))

    def compute_at(self, consumer: Tensor | str | Stage, axis: str | Axis) -> Stage:
        """Computed inside a loop of its reader, in a window of what is read there."""
        reader = self._schedule[consumer]._target()
        return self._set(place.compute_at(self._target(), reader, axis))

    def compute_inline(self) -> None:
        """Computed wherever it is read, and nowhere else; the stage is gone."""
        self._set(graph.compute_inline(self._target()))

    def rfactor(self, axis: str | Axis) -> Stage:
        """The new stage that reduces what is inside `axis`; this one reduces over `axis`."""
        nests, name = graph.rfactor(self._target(), axis)
        self._set(nests)
        return self._schedule[name]

    def tensorize(self, axis: str | Axis, intrinsic: Any) -> Stage:
        """The loops from `axis` inwards run by a declared instruction."""
        return self._set(tensorize.tensorize(self._target(), axis, intrinsic))

    def __repr__(self) -> str:
        return f"<stage {self.buffer}: {' > '.join(self.loops) or 'one instance'}>"
