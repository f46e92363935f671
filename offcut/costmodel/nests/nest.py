"""What a nest takes in one of its variants, in closed form, at many sizes at once.

A nest is a band of loops around a tile (`ResolvedVariant`). What `offcut.costmodel.closed` counts of it is counted once, its tiles being
parameters (`parametric`), and evaluated over arrays: computing and issuing at each run of tiles along its axes, bytes at their mean
tile. The resources of a nest are those of a stage, and so are its cycles (`offcut.costmodel.closed.prediction`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from offcut.core import index as ix
from offcut.core.dtypes import ITEM_BYTES
from offcut.core.memo import lazy_property
from offcut.core.program import Form, Kind
from offcut.costmodel.arrays import Array, Calls, Formulas
from offcut.costmodel.clock import stage_arrays
from offcut.costmodel.closed.count_loops import BytesOf
from offcut.costmodel.closed.counting import count_program
from offcut.costmodel.closed.counts import THOUSANDTHS, Counted
from offcut.costmodel.nests.parametric import (
    GROUPS,
    OWNED,
    Earlier,
    Loops,
    Parametric,
    Reuse,
    active_parameter,
    count_parameter,
    group_parameter,
    height_parameter,
)
from offcut.costmodel.nests.tile_runs import Shape, tiles_of, tiles_of_nest
from offcut.costmodel.resources import ISSUE, Hardware, resources_of
from offcut.describe.computation import Computation
from offcut.schedule import ResolvedVariant

T = TypeVar("T")


@dataclass(frozen=True)
class NestCost:
    """What a nest takes in a variant, by call.

    compute  cycles, operands at hand
    tails    of them, those of tiles that are not whole
    issue    cycles to issue its instructions
    bytes    into each level, nearest first: registers, caches
    rates    bytes per cycle that fill each of them
    flop     operations on elements
    runs     of tiles, and of statements outside of tiles
    loss     of the shorter of computing and moving, the share that is not hidden
    """

    compute: Array
    tails: Array
    issue: Array
    bytes: Array
    rates: Array
    flop: Array
    runs: Array
    loss: float

    @lazy_property
    def cycles(self) -> Array:
        """In all."""
        resources = (self.compute, self.issue, *(self.bytes / self.rates))
        cycles: Array = stage_arrays(resources, self.loss)
        return cycles


@dataclass(frozen=True)
class _Moved:
    """Bytes into each level, by array and level in turn; the arrays."""

    formulas: Formulas
    arrays: tuple[str, ...]


@dataclass
class Nests:
    """The nests of programs on a machine, at some sizes."""

    hardware: Hardware
    calls: Calls
    known: dict[Hashable, tuple[Computation, Any]] = field(default_factory=dict, init=False)
    copies: dict[object, tuple[ResolvedVariant, NestCost]] = field(default_factory=dict, init=False)
    reuses: dict[int, Reuse] = field(default_factory=dict, init=False)
    filled: dict[tuple[int, Earlier], Array] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.resources = resources_of(self.hardware.machine)
        self.rates = np.array([[one.rate] for one in self.resources.memories])

    def cost(
        self,
        computation: Computation,
        cut: ResolvedVariant,
        rows: bool,
        earlier: Earlier = (),
        behind: Loops = (),
        shared: Loops = (),
        windows: Earlier = (),
    ) -> NestCost:
        """Of a nest.

        rows    whether sums over rows of memory may run as lanes of themselves
        earlier  the nests that run before it
        behind  loops that it shares with the nest before it
        shared  loops that it shares with any other
        windows  all nests in shared loops, each with these
        """
        extents = {axis.name: axis.extent for axis in cut.group[0].axes}
        every = tiles_of_nest(cut.cuts, extents, self.calls)
        one = self.calls.constant(1)
        total, tails = np.zeros((4, self.calls.count)), self.calls.constant(0)
        for shapes, here in every.shapes.items():
            values: dict[str, npt.NDArray[Any]] = {GROUPS: one, **self.calls.values}
            if cut.cuts:
                values[count_parameter(cut.cuts[0].axis)] = every.count[here]
            for place, axis in enumerate(along.axis for along in cut.cuts):
                if place:
                    values[count_parameter(axis)] = one
                values[height_parameter(axis)] = every.tiles[axis][here]
                values[active_parameter(axis)] = every.heights[axis][here]
                values[group_parameter(axis)] = one
            shapes_by_axis = dict(zip((along.axis for along in cut.cuts), shapes, strict=True))
            amounts = self.tile_work(computation, cut, rows, shapes_by_axis, shared)(values)
            each = [np.broadcast_to(part, (len(here), self.calls.count)) for part in amounts]
            total += np.array([part.sum(axis=0) for part in each])
            tails = tails + each[0][~every.body[here]].sum(axis=0)
        cycles, issued, flop, runs = total
        return NestCost(
            cycles / THOUSANDTHS + self.waits(cut, behind),
            tails / THOUSANDTHS,
            issued / THOUSANDTHS / self.resources[ISSUE].rate,
            self.bytes(computation, cut, rows, earlier, shared, windows),
            self.rates,
            flop,
            runs,
            self.resources.unhidden,
        )

    def tile_work(
        self,
        computation: Computation,
        cut: ResolvedVariant,
        rows: bool,
        shapes: Mapping[str, Shape],
        shared: Loops,
    ) -> Formulas:
        """Return thousandths of cycles and of instructions, operations, and runs, of tiles of these shapes."""
        # How wide a tile is says which function runs it, and how its lanes do; other heights are told by the sizes.
        last = cut.cuts[-1].axis if cut.cuts else ""
        known = {
            axis: shape if axis == last or shape.form is not Form.FULL else Shape()
            for axis, shape in shapes.items()
        }

        def formulas() -> Formulas:
            nest = Parametric(computation, cut, rows, known, {}, shared)
            counts = self.counted(nest, BytesOf.NOTHING).counts
            return Formulas(
                [
                    reduce(ix.add, [getattr(one, name) for one in counts])
                    for name in ("cycles", "instructions", "flop", "runs")
                ]
            )

        what = "computed", shared, *known.values()
        return self.memo_of_form(what, computation, cut, rows, formulas)

    def bytes(
        self,
        computation: Computation,
        cut: ResolvedVariant,
        rows: bool,
        earlier: Earlier,
        shared: Loops,
        windows: Earlier,
    ) -> Array:
        """Bytes into each level, by level and call: as of tiles that are all as high as they are in the mean."""

        values, counts, shapes = self.mean(cut)

        def moved_formulas() -> _Moved:
            nest = Parametric(computation, cut, rows, shapes, counts, shared)
            volumes = self.counted(nest, BytesOf.ARRAYS).moved
            arrays = tuple(dict.fromkeys(str(name) for level in volumes for name in level))
            zero = ix.const(0)
            each = [level.get(name, zero) for name in arrays for level in volumes]
            return _Moved(Formulas(each), arrays)

        what = "bytes", shared, *shapes.values(), *counts.items()
        formulas = self.memo_of_form(what, computation, cut, rows, moved_formulas)
        levels, count = len(self.rates), self.calls.count
        if not formulas.arrays:
            return np.zeros((levels, count))
        amounts = formulas.formulas(values)
        each = np.array([np.broadcast_to(part, count) for part in amounts])
        each = each.reshape(len(formulas.arrays), levels, count)
        if earlier:
            each = each * self.reuse(computation).fetch_flags(cut.group, formulas.arrays, earlier)
        size: Array = each.sum(axis=0) * self.refill_flags(computation, windows)
        return size

    def mean(
        self, cut: ResolvedVariant
    ) -> tuple[dict[str, npt.NDArray[Any]], dict[str, int], dict[str, Shape]]:
        """The parameters of a nest whose tiles all are of their mean height; the numbers of tiles, and the shapes, that are known."""
        values: dict[str, npt.NDArray[Any]] = dict(self.calls.values)
        counts, shapes = dict[str, int](), {one.axis: Shape() for one in cut.cuts}
        extents = {axis.name: axis.extent for axis in cut.group[0].axes}
        height = self.calls.constant(1)
        for one in cut.cuts:
            extent, whole = extents[one.axis], self.calls.of(extents[one.axis])
            if one.group is not None:
                groups = np.maximum(np.ceil(whole / one.group), 1)
                values[GROUPS], whole = groups, whole / groups
                values[group_parameter(one.axis)] = whole
                extent = ix.minimum(extent, one.group)
            runs = tiles_of(one, extent, self.calls, height)
            count = sum((run.count for run in runs), start=np.zeros(self.calls.count))
            values[count_parameter(one.axis)] = np.maximum(count, 1)
            height = whole / np.maximum(count, 1)
            values[height_parameter(one.axis)] = height
            height = np.ceil(height)
            some = [run.shape for run in runs if run.count.any()]
            tile, all_ = some[0].height if len(some) == 1 else None, ix.literal_value(extent)
            if one.group is None and tile and all_ and all_ % tile == 0:
                counts[one.axis], shapes[one.axis] = all_ // tile, Shape(height=tile)
        return values, counts, shapes

    def counted(self, nest: Parametric, bytes_of: BytesOf) -> Counted:
        """Return the counts of a nest whose tiles are parameters."""
        program = nest.program(self.hardware.machine, self.hardware.lanes)
        return count_program(program, self.hardware, {}, bytes_of=bytes_of)

    def memo_of_form(
        self,
        what: Hashable,
        computation: Computation,
        cut: ResolvedVariant,
        rows: bool,
        make: Callable[[], T],
    ) -> T:
        """What depends on the form of a nest, and not on its tiles."""
        axes = tuple((one.axis, one.group is not None) for one in cut.cuts)
        match = cut.match and (cut.match.microkernel.name, cut.match.axes)
        form = cut.around, cut.outer, cut.decisions.inner, axes, match
        key = what, id(computation), cut.group[0].buffer, form, rows
        if key not in self.known:
            self.known[key] = computation, make()
        result: T = self.known[key][1]
        return result

    def copy(
        self,
        computation: Computation,
        cut: ResolvedVariant,
        rows: bool,
        earlier: Earlier,
        shared: Loops,
        windows: Earlier,
    ) -> NestCost:
        """Of a nest that many variants have before them."""
        key = id(computation), id(cut), rows, earlier, shared, windows
        if key not in self.copies:
            self.copies[key] = (
                cut,
                self.cost(computation, cut, rows, earlier, shared=shared, windows=windows),
            )
        return self.copies[key][1]

    def reuse(self, computation: Computation) -> Reuse:
        """What a nest finds of those before it."""
        if id(computation) not in self.reuses:
            self.reuses[id(computation)] = Reuse(computation, self.hardware, self.calls)
        return self.reuses[id(computation)]

    def refill_flags(self, computation: Computation, windows: Earlier) -> npt.NDArray[np.float64]:
        """Return 1 for each level that a call fills, 0 for a cache that holds all arrays: after a call of the same sizes, it does.

        windows  all nests in shared loops, each with these: of what they compute a cache holds a window
        """
        key = id(computation), windows
        if key not in self.filled:
            loops, at_once = dict(windows), dict[str, dict[int, int]]()
            for group in computation.groups:
                blocks = dict(loops.get(group[0].buffer, ()))
                for stage in group:
                    at_once[stage.buffer] = {
                        place: blocks[axis.name]
                        for place, axis in enumerate(stage.axes)
                        if axis.name in blocks
                    }
            total = self.calls.constant(0)
            for buffer in computation.buffers:
                if buffer.kind is Kind.PRIVATE:
                    continue
                size = self.calls.constant(ITEM_BYTES[buffer.dtype])
                rows = {} if buffer.kind in OWNED else at_once.get(buffer.name, {})
                for place, extent in enumerate(buffer.shape):
                    length = self.calls.of(extent)
                    size = size * (np.minimum(length, rows[place]) if place in rows else length)
                total = total + size
            is_filled = np.array([total > level.bytes for level in self.hardware.levels], float)
            is_filled[0] = 1.0
            self.filled[key] = is_filled
        return self.filled[key]

    def waits(self, cut: ResolvedVariant, behind: Loops) -> Array:
        """Cycles in which a nest waits for what the nest before it, in loops that they share, has just computed."""
        extents = {axis.name: self.calls.of(axis.extent) for axis in cut.group[0].axes}
        times = self.calls.constant(1 if behind else 0)
        for name, block in behind:
            if name in extents:
                times = times * np.ceil(extents[name] / block)
        return times * self.hardware.machine.loops.wait_cycles
