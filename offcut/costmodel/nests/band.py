"""What is known of a nest in whatever way it runs: its extents, its accesses, and what its tiles take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from offcut.core import index as ix
from offcut.core.dtypes import ITEM_BYTES
from offcut.core.expr import Var
from offcut.core.program import Kind, Store
from offcut.costmodel.closed.hardware import Hardware
from offcut.costmodel.closed.operations import operations
from offcut.costmodel.nests.calls import Array, Calls
from offcut.costmodel.nests.footprints import Levels, accesses
from offcut.costmodel.nests.moved import Moved
from offcut.costmodel.nests.runs import Tiles
from offcut.costmodel.nests.tile_cycles import Covering, Plain, Taken
from offcut.describe.computation import Computation, Stage
from offcut.partition import GroupCut, Match
from offcut.schedule import beside


class Band:
    """A nest of a computation.

    own      the axes of its first statements
    extents  of all axes
    known    those of them that are the same whatever the sizes
    moved    the bytes of its accesses
    filled   1 for each level that a call fills, 0 for one that holds all arrays: it is not filled again in a call after
             one of the same sizes
    flop     operations on elements
    """

    def __init__(
        self,
        computation: Computation,
        group: Sequence[Stage],
        around: Sequence[str],
        rows: bool,
        hardware: Hardware,
        calls: Calls,
        levels: Levels,
    ) -> None:
        """Of the statements `group` in loops along `around`.

        rows  whether sums over rows of memory may run as lanes of themselves
        """
        self.computation, self.hardware, self.calls = computation, hardware, calls
        self.plain = Plain(hardware, rows)
        self.one = calls.constant(1)
        self.factors: dict[tuple[str | None, ...], Array] = {}
        self.covering: dict[str, Covering] = {}
        self.own = {axis.name for axis in group[0].axes}
        axes = [axis for stage in group for axis in (*stage.axes, *stage.reduce_axes)]
        self.extents = {axis.name: calls.of(axis.extent) for axis in axes}
        literals = {axis.name: ix.literal_value(axis.extent) for axis in axes}
        self.known = {name: value for name, value in literals.items() if value is not None}
        self.moved = Moved(accesses(computation, group, around, calls), levels)
        filled = self.bytes > levels.bytes[:, 0]
        filled[0] = True
        self.filled = filled.astype(float)
        self.flop = calls.constant(0)
        for stage in group:
            point = tuple(Var(axis.name) for axis in stage.axes)
            each = operations(Store(stage.buffer, point, stage.value, stage.reducer))
            self.flop = self.flop + each * calls.of(stage.instances)

    @property
    def bytes(self) -> Array:
        """Of all arrays."""
        total = self.calls.constant(0)
        for buffer in self.computation.buffers:
            if buffer.kind is not Kind.PRIVATE:
                size = self.calls.constant(ITEM_BYTES[buffer.dtype])
                for extent in buffer.shape:
                    size = size * self.calls.of(extent)
                total = total + size
        return total

    def computed(
        self, cut: GroupCut, tiles: Tiles, inside: Mapping[str, Array]
    ) -> tuple[Taken, Taken]:
        """Of all tiles, loops around the axes that are cut run once: the whole ones, and the others.

        inside  lengths of the axes that are not cut
        """
        found = cut.match
        lane = cut.cuts[-1].axis if cut.cuts else None
        cycles, issued = np.zeros_like(tiles.count), np.zeros_like(tiles.count)
        if found is not None:
            taken = self.covered(found, cut.group[0], {**inside, **tiles.heights})
            cycles, issued = cycles + taken.cycles, issued + taken.issued
        plain = cut.group if found is None else cut.group[1:]
        for form, here in tiles.forms if plain else ():
            heights = {axis: height[here] for axis, height in tiles.heights.items()}
            taken = self.plain.taken(plain, lane, {**inside, **heights}, form)
            cycles[here] += taken.cycles
            issued[here] += taken.issued
        cycles, issued = cycles * tiles.count, issued * tiles.count
        whole = Taken(cycles[tiles.body].sum(axis=0), issued[tiles.body].sum(axis=0))
        return whole, Taken(cycles.sum(axis=0) - whole.cycles, issued.sum(axis=0) - whole.issued)

    def covered(self, found: Match, lead: Stage, lengths: Mapping[str, Array]) -> Taken:
        """Tiles of a microkernel, whose axes have these lengths."""
        height = self.one if found.rows is None else lengths[found.rows]
        width = self.one if found.columns is None else lengths[found.columns]
        kernel, depth, inside = found.microkernel, lengths[found.depth], found.turned(lead)
        if kernel.name not in self.covering:
            self.covering[kernel.name] = Covering.of(kernel, self.hardware)
        for name in inside:
            depth = depth * lengths[name]
        times = self.factor(found)
        for axis in lead.reduce_axes:
            if axis.name not in (found.depth, *inside):
                times = times * lengths[axis.name]
        return self.covering[kernel.name].taken(height, width, depth).times(times)

    def factor(self, found: Match) -> Array:
        """How much longer a microkernel takes on operands that lie otherwise than it likes."""
        key = found.microkernel.name, found.rows, found.columns, found.depth
        if key not in self.factors:
            self.factors[key] = self.laid(found)
        return self.factors[key]

    def laid(self, found: Match) -> Array:
        """The same, of a match that is new."""
        traffic, load = self.hardware.machine.traffic, found.by_columns
        times = 1.0 if beside(found.by_rows, found.depth) else traffic.strided
        buffer = self.computation.buffer(load.buffer)
        if not found.microkernel.packed or buffer.layout is not None or not buffer.shape:
            return self.calls.constant(times)
        row = self.calls.of(buffer.shape[-1]) * ITEM_BYTES[buffer.dtype]
        return times * np.where(row <= traffic.narrow_bytes, 1.0, traffic.unpacked_near)
