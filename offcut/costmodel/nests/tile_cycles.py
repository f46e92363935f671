"""What one tile of a nest takes, operands at hand, in numbers: of a microkernel by its table, of plain loops by their statements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from offcut.core import index as ix
from offcut.core.expr import Load, Var, dtype_of, walk
from offcut.core.program import For, Store
from offcut.costmodel.closed.hardware import Hardware
from offcut.costmodel.closed.operations import instructions
from offcut.costmodel.machine import Machine
from offcut.costmodel.nests.calls import Array
from offcut.costmodel.nests.footprints import Lengths
from offcut.costmodel.nests.runs import Form
from offcut.costmodel.statements import Inside, StatementPrices
from offcut.costmodel.tile_cycles import TileCycles, tile_cycles
from offcut.describe.computation import Stage
from offcut.describe.microkernel import Microkernel
from offcut.polyhedral import coefficient


@dataclass(frozen=True, slots=True)
class Taken:
    """What a tile takes.

    cycles   that computing it takes
    issued   instructions
    """

    cycles: Array
    issued: Array

    def plus(self, other: Taken) -> Taken:
        """Both."""
        return Taken(self.cycles + other.cycles, self.issued + other.issued)

    def times(self, count: Array) -> Taken:
        """That often."""
        return Taken(self.cycles * count, self.issued * count)


@dataclass(frozen=True, slots=True)
class Covering:
    """Tiles of a microkernel on a machine.

    lanes       of the vectors that hold its accumulators; None: another unit does, and issues one instruction a cycle
                at most
    interleave  terms that are added up at once
    """

    table: TileCycles
    lanes: int | None
    interleave: int

    @staticmethod
    def of(kernel: Microkernel, hardware: Hardware) -> Covering:
        """Those of a microkernel."""
        lanes = hardware.lanes if hardware.on_core(kernel) else None
        return Covering(tile_cycles(kernel), lanes, kernel.interleave)

    def taken(self, rows: Array, columns: Array, depth: Array) -> Taken:
        """A tile, in one call of its functions; of more rows than it has in turn."""
        table, heights, widths = self.table, rows.astype(np.int64), columns.astype(np.int64)

        def at(height: npt.NDArray[np.int64]) -> Array:
            widest = np.maximum(table.widest[height], 1)
            width = np.minimum(widths, widest)
            once = table.term[height, width] * depth + table.start[height, width]
            found: Array = np.ceil(columns / widest) * once
            return found

        if heights.max(initial=0) <= table.tallest:
            total = at(heights)
        else:
            whole, rest = np.divmod(heights, table.tallest)
            total = whole * at(np.full_like(whole, table.tallest)) + at(rest)
        if self.lanes is None:
            return Taken(total, total)
        vectors = np.ceil(columns / self.lanes)
        return Taken(total, vectors * (rows + 1) * np.ceil(depth / self.interleave))


@dataclass(frozen=True, slots=True)
class Plain:
    """Tiles of plain loops on a machine.

    rows   whether sums over rows of memory may run as lanes of themselves
    known  what instances take, by stage, lanes, and whether the code has a loop along these
    """

    hardware: Hardware
    rows: bool
    known: dict[tuple[Stage, str | None, bool], Instances] = field(default_factory=dict)

    def taken(
        self, stages: Sequence[Stage], lane: str | None, lengths: Lengths, form: Form
    ) -> Taken:
        """The instances of stages over tiles of a form.

        lane   the axis of the tile that lanes run along; None: the tile has none
        """
        total = Taken(np.zeros(1), np.zeros(1))
        for stage in stages:
            total = total.plus(self.stage(stage, lane, lengths, form))
        return total

    def stage(self, stage: Stage, lane: str | None, lengths: Lengths, form: Form) -> Taken:
        """The cheapest of what lanes may run along."""
        summed = stage.reduce_axes[-1].name if stage.reduce_axes else None
        if summed is not None and self.rows and _beside(stage, summed):
            return self.along(stage, summed, lengths, fixed=False)
        if form.apart:
            return self.along(stage, None, lengths, fixed=False)
        if lane is not None:
            every = np.maximum(lengths[lane], form.asked)
            return self.along(stage, lane, {**lengths, lane: every}, form.fixed)
        choices = [None, *(axis.name for axis in stage.axes[-1:])]
        found = (self.along(stage, one, lengths, fixed=False) for one in choices)
        return min(found, key=lambda taken: float(taken.cycles.mean()))

    def along(self, stage: Stage, lane: str | None, lengths: Lengths, fixed: bool) -> Taken:
        """All instances, lanes along an axis; None: one by one.

        fixed  whether the code has no loop along the lanes
        """
        key = stage, lane, fixed
        if key not in self.known:
            width = self.hardware.lanes_of(dtype_of(stage.value))
            self.known[key] = Instances.of(stage, lane, self.hardware.machine, width, fixed)
        one = self.known[key]
        vectors, outside = np.ones(1), np.ones(1)
        for axis in (*stage.axes, *stage.reduce_axes):
            length = np.maximum(lengths[axis.name], 0)
            if axis.name == lane:
                vectors = vectors * np.ceil(length / one.width)
                continue
            vectors = vectors * length
            if axis not in stage.reduce_axes:
                outside = outside * length
        return Taken(vectors * one.each + outside * one.once, vectors * one.issued)


@dataclass(frozen=True, slots=True)
class Instances:
    """What instances of a stage take, one by one or as vectors.

    width   of them at once
    each    cycles of a vector
    once    cycles of a loop along the lanes, or of a sum
    issued  instructions of a vector
    """

    width: int
    each: float
    once: float
    issued: float

    @staticmethod
    def of(
        stage: Stage, lane: str | None, machine: Machine, width: int, fixed: bool = False
    ) -> Instances:
        """Of a stage, lanes along an axis; None: one by one.

        width  lanes of a vector of what is stored
        fixed  whether the code has no loop along the lanes
        """
        loops, width = machine.loops, 1 if lane is None else width
        point = tuple(Var(axis.name) for axis in stage.axes)
        store = Store(stage.buffer, point, stage.value, stage.reducer)
        summed = [axis.name for axis in stage.reduce_axes]
        axes = [axis.name for axis in stage.axes]
        inner = summed[-1] if summed else "".join(axes[-1:] if lane is None else ())
        around = None if fixed and not summed else For(inner, ix.const(0), ix.const(1), (store,))
        inside = Inside(lane, inner, frozenset((stage.buffer,)))
        each = StatementPrices(machine, width).each(store, inside, around)
        once = 0.0 if lane is None else loops.tile_cycles if fixed else loops.begin_cycles
        once += loops.reduce_cycles if lane in summed else 0.0
        return Instances(width, each, once, instructions(store))


def lane_of(stage: Stage) -> str | None:
    """The axis that lanes run along where nobody says otherwise: of a sum over rows of memory, of what is stored."""
    summed = stage.reduce_axes[-1].name if stage.reduce_axes else None
    if summed is not None and _beside(stage, summed):
        return summed
    return stage.axes[-1].name if stage.axes else None


@lru_cache(1 << 10)
def _beside(stage: Stage, axis: str) -> bool:
    """Whether what a stage reads along an axis of its sum lies side by side."""
    read = [node for node in walk(stage.value) if isinstance(node, Load)]
    steps = [[coefficient(part, axis) for part in node.index] for node in read if node.index]
    return (
        bool(steps)
        and all(not any(s[:-1]) and s[-1] in (0, 1) for s in steps)
        and any(s[-1] == 1 for s in steps)
    )
