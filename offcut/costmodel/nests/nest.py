"""What a nest takes in one of its ways, in closed form, at many sizes at once.

A nest is a band of loops around a tile (`GroupCut`), so what it takes is a sum over the runs of tiles along its axes::

    compute = trips of the loops * sum over rows' and columns' runs of count * count * tile(height, width)
    busy    = max(compute, instructions / issue)
    memory  = max over levels of bytes into it / bytes per cycle behind it
    cycles  = max(busy, memory) + loss * min(busy, memory behind the nearest two levels)

with the tables of the microkernels and the prices of statements that `offcut.costmodel.closed` counts by, and its bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from offcut.core.dtypes import ITEM_BYTES
from offcut.core.expr import Var
from offcut.core.program import Kind, Store
from offcut.costmodel.closed.counted import Hardware
from offcut.costmodel.closed.operations import operations
from offcut.costmodel.nests.calls import Array, Calls
from offcut.costmodel.nests.footprints import Levels, accesses
from offcut.costmodel.nests.moved import Trips, moved
from offcut.costmodel.nests.runs import Form, Run, tiles_of
from offcut.costmodel.nests.tile_cycles import Plain, Taken, covered
from offcut.describe.computation import Computation
from offcut.partition import GroupCut, Match
from offcut.schedule import beside


@dataclass(frozen=True)
class NestCost:
    """What a nest takes in a way, by call.

    compute  cycles, operands at hand
    tails    of them, those of tiles that are not whole
    issue    cycles to issue its instructions
    bytes    into each level, nearest first: registers, caches
    rates    bytes per cycle that fill each of them
    flop     operations on elements
    loss     of the shorter of computing and moving, the share that is not hidden
    """

    compute: Array
    tails: Array
    issue: Array
    bytes: Array
    rates: Array
    flop: Array
    loss: float

    @property
    def memory(self) -> Array:
        """Cycles of the level that takes longest."""
        longest: Array = np.max(self.bytes / self.rates, axis=0)
        return longest

    @property
    def cycles(self) -> Array:
        """In all."""
        busy = np.maximum(self.compute, self.issue)
        far = np.max(self.bytes[2:] / self.rates[2:], axis=0)
        total: Array = np.maximum(busy, self.memory) + self.loss * np.minimum(busy, far)
        return total


class Nests:
    """The nests of programs on a machine, at some sizes."""

    def __init__(self, hardware: Hardware, calls: Calls) -> None:
        self.hardware, self.calls = hardware, calls
        self.levels = Levels(hardware.levels)
        machine = hardware.machine
        rates = [
            *(memory.bytes_per_cycle for memory in machine.memory),
            machine.dram.bytes_per_cycle,
        ]
        self.rates = np.array([[rate] for rate in rates])

    def cost(self, computation: Computation, cut: GroupCut, rows: bool) -> NestCost:
        """Of a nest.

        rows  whether sums over rows of memory may run as lanes of themselves
        """
        lead, machine = cut.group[0], self.hardware.machine
        extents = {
            a.name: self.calls.of(a.extent) for s in cut.group for a in (*s.axes, *s.reduce_axes)
        }
        own = {axis.name for axis in lead.axes}
        loops = [
            Trips(name, extents[name], extents[name])
            for name in (*cut.around, *cut.outer)
            if name in own
        ]
        single = {loop.axis for loop in loops} | set(cut.inner)
        inside: dict[str, Array] = {
            name: self.calls.constant(1) if name in single else extent
            for name, extent in extents.items()
        }
        grouped: Mapping[str, Array] = {}
        for one in cut.cuts:
            if one.group is not None:
                extent = extents[one.axis]
                grouped = {one.axis: np.minimum(extent, one.group)}
                loops.append(Trips(one.axis, np.ceil(extent / one.group), extent))
                break
        loops += [Trips(name, extents[name], extents[name]) for name in cut.inner]
        runs: list[tuple[str, tuple[Run, ...]]] = []
        height = self.calls.constant(1)
        for one in cut.cuts:
            extent = grouped.get(one.axis, extents[one.axis])
            found = tiles_of(one, extent, height)
            count = sum((run.count for run in found), start=np.zeros(self.calls.count))
            mean = extent / np.maximum(count, 1)
            inside[one.axis] = height = np.ceil(mean)
            loops.append(Trips(one.axis, count, extent))
            runs.append((one.axis, found))
        whole, tails = self.computed(computation, cut, runs, inside, extents, grouped, rows)
        trips = self.calls.constant(1)
        for loop in loops:
            if loop.axis in single:
                trips = trips * loop.count
        found_accesses = accesses(computation, cut.group, cut.around, self.calls)
        size = moved(found_accesses, loops, inside, self.levels)
        size = np.broadcast_to(size, (len(self.rates), self.calls.count)).copy()
        size[1:] = np.where(self.resident(computation) <= self.levels.bytes[1:], 0.0, size[1:])
        flop = self.calls.constant(0)
        for stage in cut.group:
            point = tuple(Var(axis.name) for axis in stage.axes)
            each = operations(Store(stage.buffer, point, stage.value, stage.reducer))
            flop = flop + each * self.calls.of(stage.instances)
        total = whole.plus(tails)
        full = np.broadcast_to(trips, self.calls.count)
        return NestCost(
            total.cycles * full,
            tails.cycles * full,
            total.issued * full / machine.core.issue,
            size,
            self.rates,
            flop,
            machine.traffic.overlap_loss,
        )

    def waits(self, cut: GroupCut, behind: Sequence[tuple[str, int]]) -> Array:
        """Cycles in which a nest waits for what the nest before it, in loops that they share, has just computed.

        behind  axes of those loops, and how many iterations of each run at once
        """
        extents = {axis.name: self.calls.of(axis.extent) for axis in cut.group[0].axes}
        times = self.calls.constant(1 if behind else 0)
        for name, block in behind:
            if name in extents:
                times = times * np.ceil(extents[name] / block)
        return times * self.hardware.machine.loops.wait_cycles

    def computed(
        self,
        computation: Computation,
        cut: GroupCut,
        runs: Sequence[tuple[str, tuple[Run, ...]]],
        inside: Mapping[str, Array],
        extents: Mapping[str, Array],
        grouped: Mapping[str, Array],
        rows: bool,
    ) -> tuple[Taken, Taken]:
        """Of all tiles along the axes that are cut, loops around them run once: the whole ones, and the others."""
        zero = self.calls.constant(0)
        totals = {True: Taken(zero, zero), False: Taken(zero, zero)}
        by_axis = {one.axis: one for one in cut.cuts}

        def groups(axis: str, found: tuple[Run, ...], height: Array) -> tuple[Run, ...]:
            """Tiles along an axis by all its groups, those of the tile around."""
            one, extent = by_axis[axis], extents[axis]
            if axis not in grouped:
                return tiles_of(one, extent, height) if one.by_height else found
            assert one.group is not None
            full, left = np.divmod(extent, one.group)
            many = tiles_of(one, self.calls.constant(one.group), height)
            few = tiles_of(one, left, height)
            return (
                *(Run(run.count * full, run.height, run.form) for run in many),
                *(Run(run.count * (left > 0), run.height, run.form) for run in few),
            )

        def visit(place: int, lengths: dict[str, Array], count: Array, form: Form) -> None:
            if place == len(runs):
                one = self.tile(computation, cut, lengths, rows, form).times(count)
                totals[form.body] = totals[form.body].plus(one)
                return
            axis, found = runs[place]
            height = lengths[runs[place - 1][0]] if place else self.calls.constant(1)
            for run in groups(axis, found, height):
                if not run.count.any():
                    continue
                inner = {**lengths, axis: run.height}
                visit(place + 1, inner, count * run.count, form.within(run.form))

        visit(0, dict(inside), self.calls.constant(1), Form(body=True, fixed=True, apart=False))
        return totals[True], totals[False]

    def tile(
        self,
        computation: Computation,
        cut: GroupCut,
        lengths: Mapping[str, Array],
        rows: bool,
        form: Form,
    ) -> Taken:
        """One tile, whose axes have these lengths."""
        plain = Plain(self.hardware, rows)
        lane = cut.cuts[-1].axis if cut.cuts else None
        if cut.match is None:
            return plain.taken(cut.group, lane, lengths, form)
        found, lead = cut.match, cut.group[0]
        one = self.calls.constant(1)
        height = one if found.rows is None else lengths[found.rows]
        width = one if found.columns is None else lengths[found.columns]
        kernel, depth, inside = found.microkernel, lengths[found.depth], found.turned(lead)
        for name in inside:
            depth = depth * lengths[name]
        lanes = self.hardware.lanes if self.hardware.on_core(kernel) else None
        taken = covered(kernel, height, width, depth, lanes)
        taken = taken.times(self.factor(computation, found))
        for axis in lead.reduce_axes:
            if axis.name not in (found.depth, *inside):
                taken = taken.times(lengths[axis.name])
        return taken.plus(plain.taken(cut.group[1:], lane, lengths, form))

    def factor(self, computation: Computation, found: Match) -> Array:
        """How much longer a microkernel takes on operands that lie otherwise than it likes."""
        traffic, load = self.hardware.machine.traffic, found.by_columns
        times = 1.0 if beside(found.by_rows, found.depth) else traffic.strided
        buffer = computation.buffer(load.buffer)
        if not found.microkernel.packed or buffer.layout is not None or not buffer.shape:
            return self.calls.constant(times)
        row = self.calls.of(buffer.shape[-1]) * ITEM_BYTES[buffer.dtype]
        return times * np.where(row <= traffic.narrow_bytes, 1.0, traffic.unpacked_near)

    def resident(self, computation: Computation) -> Array:
        """Bytes of all arrays: what holds them is not filled again in a call after one of the same sizes."""
        total = self.calls.constant(0)
        for buffer in computation.buffers:
            if buffer.kind is not Kind.PRIVATE:
                size = self.calls.constant(ITEM_BYTES[buffer.dtype])
                for extent in buffer.shape:
                    size = size * self.calls.of(extent)
                total = total + size
        return total
