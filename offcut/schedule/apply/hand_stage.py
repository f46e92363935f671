"""A stage of a schedule by hand: each primitive writes a decision about its loops."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from offcut.core.program import LANE, THREAD, UNROLL
from offcut.describe.microkernel import Microkernel
from offcut.describe.tensor import Tensor
from offcut.errors import PartitionError, trim_tracebacks
from offcut.partition import StrategyLike, parse_strategy
from offcut.schedule.apply import covering, loops
from offcut.schedule.apply.axes import Axis, Target
from offcut.schedule.decisions import (
    SERIAL,
    UNIT_PRIMITIVES,
    At,
    Bind,
    Cover,
    Fuse,
    Inline,
    Level,
    Order,
    Primitive,
    RFactor,
    Split,
)

if TYPE_CHECKING:
    from offcut.schedule.apply.hand_schedule import HandSchedule


@trim_tracebacks
class Stage:
    """A stage of a schedule: the loops around the stores of one buffer.

    Axes are named by text, or by what a primitive returned. Every primitive raises PartitionError
    where its theorem fails, or an axis is none of this stage.
    """

    def __init__(self, schedule: HandSchedule, nest_name: str, buffer: str) -> None:
        self._schedule, self.nest_name, self.buffer = schedule, nest_name, buffer

    @property
    def name(self) -> str:
        """Return the buffer that it writes."""
        return self.buffer

    @property
    def loops(self) -> tuple[str, ...]:
        """Its loops as they are now, outermost first."""
        return self._target().loops

    def _target(self) -> Target:
        return Target(self._schedule._nests, self.nest_name, self.buffer)

    def _do(self, step: Primitive) -> Stage:
        self._schedule._do(step)
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
        target = self._target()
        name, names = target.axis("split", axis), target.nest.names()
        factor = loops.checked_factor(target, name, factor)
        at = f"axis {target.buffer}.{name}"
        strategy = (
            None if tail is None else parse_strategy(tail, at=at, op="split", tiles=(factor,))
        )
        outer, inner = names.fresh(f"{name}o"), names.fresh(f"{name}i")
        self._do(Split(target.stage, name, (Level(factor, strategy),), (outer, inner)))
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
        before = self._schedule._nests, self._schedule._steps
        try:
            pairs = [
                self.split(name, factor, tail) for name, factor in zip(names, factors, strict=True)
            ]
            results = (*(outer for outer, _ in pairs), *(inner for _, inner in pairs))
            self.reorder(*results)
        except PartitionError:
            self._schedule._nests, self._schedule._steps = before
            raise
        return results

    def fuse(self, outer: str | Axis, inner: str | Axis) -> Axis:
        """Fuse two loops, one directly inside the other; return the loop over their pairs."""
        target = self._target()
        first, second = target.axes("fuse", outer, inner)
        fused = target.nest.names().fresh(f"{first}_{second}")
        self._do(Fuse(target.stage, first, second, fused))
        return self._axis(fused)

    def reorder(self, *axes: str | Axis) -> Stage:
        """Put the loops named in this order, at the places that they have among all; return this stage."""
        target = self._target()
        return self._do(Order(target.stage, target.axes("reorder", *axes)))

    def unroll(self, axis: str | Axis) -> Stage:
        """Write the loop out; return this stage."""
        return self._run(axis, UNROLL)

    def vectorize(self, axis: str | Axis) -> Stage:
        """Run the iterations of the loop as lanes of vectors; it must carry no dependence. Return this stage."""
        return self._run(axis, LANE)

    def parallel(self, axis: str | Axis) -> Stage:
        """Run the iterations of the loop on several threads; it must carry no dependence. Return this stage."""
        return self._run(axis, THREAD)

    def bind(self, axis: str | Axis, index: str) -> Stage:
        """Run the iterations of the loop by a hardware index, for which it must carry no dependence, or one after the other
        (``serial``). Return this stage.
        """
        target, unit = self._target(), None if index == SERIAL else index
        return self._do(Bind(target.stage, target.axis("bind", axis), unit))

    def _run(self, axis: str | Axis, unit: str) -> Stage:
        target = self._target()
        return self._do(Bind(target.stage, target.axis(UNIT_PRIMITIVES[unit], axis), unit))

    def compute_at(self, consumer: Tensor | str | Stage, axis: str | Axis, depth: int = 1) -> Stage:
        """Compute the stage inside a loop of its reader, in a window of the elements that are read there; return this stage.

        depth  the number of windows, which iterations of the loop take in turn: one is filled while another one is read
        """
        reader = self._schedule[consumer]._target()
        name = reader.axis("compute_at", axis)
        return self._do(At(self._target().stage, reader.stage, name, None, depth))

    def compute_inline(self) -> None:
        """Compute the stage wherever it is read, and nowhere else: the stage is gone."""
        self._do(Inline(self._target().stage))

    def rfactor(self, axis: str | Axis) -> Stage:
        """Reduce the loops inside `axis` in a new stage, which is returned; this one reduces over `axis`."""
        target = self._target()
        name = target.nests.names().fresh(f"{target.buffer}F")
        self._do(RFactor(target.stage, target.axis("rfactor", axis), name))
        return self._schedule[name]

    def tensorize(self, axis: str | Axis, intrinsic: Any) -> Stage:
        """Run the loops from `axis` inwards by a declared instruction; return this stage."""
        target, schedule = self._target(), self._schedule
        name = target.axis("tensorize", axis)
        if not isinstance(intrinsic, Microkernel):
            raise covering.undeclared_error(intrinsic, f"axis {target.buffer}.{name}")
        intrinsics = (*target.nests.intrinsics, intrinsic)
        schedule._nests = replace(target.nests, intrinsics=intrinsics)
        return self._do(Cover(target.stage, name, intrinsic.name))

    def __repr__(self) -> str:
        return f"<stage {self.buffer}: {' > '.join(self.loops) or 'one instance'}>"
