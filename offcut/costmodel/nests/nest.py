"""What a nest takes in one of its ways, in closed form, at many sizes at once.

A nest is a band of loops around a tile (`GroupCut`), so what it takes is a sum over the runs of tiles along its axes::

    compute = trips of the loops * sum over rows' and columns' runs of count * count * tile(height, width)
    busy    = max(compute, instructions / issue)
    memory  = max over levels of bytes into it / bytes per cycle behind it
    cycles  = max(busy, memory) + loss * min(busy, memory behind the nearest two levels)

with the tables of the microkernels and the prices of statements that `offcut.costmodel.closed` counts by, and its bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from offcut.core.memo import lazy_property
from offcut.costmodel.closed.hardware import Hardware
from offcut.costmodel.nests.band import Band
from offcut.costmodel.nests.calls import Array, Calls
from offcut.costmodel.nests.footprints import Levels
from offcut.costmodel.nests.moved import Trips
from offcut.costmodel.nests.reuse import Earlier, Reuse
from offcut.costmodel.nests.runs import Tiles, tiles_of
from offcut.describe.computation import Computation
from offcut.partition import AxisCut, GroupCut


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

    @lazy_property
    def cycles(self) -> Array:
        """In all."""
        busy, moving = np.maximum(self.compute, self.issue), self.bytes / self.rates
        far = np.max(moving[2:], axis=0)
        total: Array = np.maximum(busy, np.max(moving, axis=0)) + self.loss * np.minimum(busy, far)
        return total


@dataclass
class Nests:
    """The nests of programs on a machine, at some sizes."""

    hardware: Hardware
    calls: Calls
    bands: dict[object, Band] = field(default_factory=dict, init=False)
    copies: dict[object, tuple[GroupCut, NestCost]] = field(default_factory=dict, init=False)
    tiles: dict[object, Tiles] = field(default_factory=dict, init=False)
    heights: dict[object, tuple[Array, Array]] = field(default_factory=dict, init=False)
    reuses: dict[int, Reuse] = field(default_factory=dict, init=False)
    fetches: dict[object, Array | None] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.levels = Levels(self.hardware.levels)
        machine = self.hardware.machine
        rates = [
            *(memory.bytes_per_cycle for memory in machine.memory),
            machine.dram.bytes_per_cycle,
        ]
        self.rates = np.array([[rate] for rate in rates])

    def cost(
        self, computation: Computation, cut: GroupCut, rows: bool, earlier: Earlier = ()
    ) -> NestCost:
        """Of a nest.

        rows    whether sums over rows of memory may run as lanes of themselves
        earlier  the nests that run before it
        """
        band = self.band(computation, cut, rows)
        extents = band.extents
        plain = [name for name in (*cut.around, *cut.outer, *cut.inner) if name in band.own]
        loops = [Trips(name, extents[name], extents[name]) for name in plain]
        inside = {
            name: band.one if name in plain or name in cut.inner else extent
            for name, extent in extents.items()
        }
        grouped = next((one for one in cut.cuts if one.group is not None), None)
        along = {}
        if grouped is not None and grouped.group is not None:
            extent = extents[grouped.axis]
            along[grouped.axis] = np.minimum(extent, grouped.group)
            groups = Trips(grouped.axis, np.ceil(extent / grouped.group), extent)
            loops.insert(len(loops) - sum(name in band.own for name in cut.inner), groups)
        height = band.one
        for one in cut.cuts:
            extent = along.get(one.axis, extents[one.axis])
            number, height = self.along(one, extent, height)
            inside[one.axis] = height
            loops.append(Trips(one.axis, number, extent))
        whole, tails = band.computed(cut, self.all_along(cut, band), inside)
        trips = band.one
        for name in plain:
            trips = trips * extents[name]
        fetched = self.fetched(computation, cut, band, earlier) if earlier else None
        size = band.moved.of(loops, inside, fetched) * band.filled
        total = whole.plus(tails).times(trips)
        return NestCost(
            total.cycles,
            tails.cycles * trips,
            total.issued / self.hardware.machine.core.issue,
            size,
            self.rates,
            band.flop,
            self.hardware.machine.traffic.overlap_loss,
        )

    def copy(
        self, computation: Computation, cut: GroupCut, rows: bool, earlier: Earlier
    ) -> NestCost:
        """Of a nest that many ways have before them."""
        key = id(computation), id(cut), rows, earlier
        if key not in self.copies:
            self.copies[key] = cut, self.cost(computation, cut, rows, earlier)
        return self.copies[key][1]

    def fetched(
        self, computation: Computation, cut: GroupCut, band: Band, earlier: Earlier
    ) -> Array | None:
        """Whether each access of a nest brings what it touches into a level, as `Reuse` says."""
        key = id(computation), cut.group[0].buffer, cut.around, earlier
        if key not in self.fetches:
            if id(computation) not in self.reuses:
                self.reuses[id(computation)] = Reuse(computation, self.levels, self.calls)
            found = self.reuses[id(computation)]
            self.fetches[key] = found.fetched(cut.group, band.moved.accesses, earlier)
        return self.fetches[key]

    def band(self, computation: Computation, cut: GroupCut, rows: bool) -> Band:
        """What is known of a nest in whatever way."""
        key = id(computation), cut.group[0].buffer, cut.around, rows
        if key not in self.bands:
            given = computation, cut.group, cut.around, rows
            self.bands[key] = Band(*given, self.hardware, self.calls, self.levels)
        return self.bands[key]

    def along(self, cut: AxisCut, extent: Array, around: Array) -> tuple[Array, Array]:
        """How many tiles there are along an axis, and their mean height.

        around  heights of the tile around
        """
        key = cut, extent.tobytes(), around.tobytes() if cut.by_height else b""
        if key not in self.heights:
            runs = tiles_of(cut, extent, around)
            number = sum((run.count for run in runs), start=np.zeros(self.calls.count))
            self.heights[key] = number, np.ceil(extent / np.maximum(number, 1))
        return self.heights[key]

    def all_along(self, cut: GroupCut, band: Band) -> Tiles:
        """All tiles along the axes that are cut."""
        plain, known, extents = cut.match is None, band.known, band.extents
        along = ((one, extents[one.axis].tobytes(), known.get(one.axis)) for one in cut.cuts)
        key = plain, *along
        if key not in self.tiles:
            self.tiles[key] = Tiles.of(cut.cuts, extents, self.calls.count, plain, known)
        return self.tiles[key]

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
