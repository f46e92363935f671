"""The tiles of a sum that a microkernel computes: rows, columns, cache groups, and predicted time.

Tiles are as tall as the microkernel allows and L1 holds, the wider, the fewer their rows. Columns pass
in cache groups, so that a group of the columns' operand stays near while all rows pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import cast

from offcut.backends.cpu.microkernels.family import Family
from offcut.backends.cpu.planning.operand_layout import OperandChoice, is_narrow
from offcut.core import index as ix
from offcut.core.dtypes import ITEM_BYTES
from offcut.core.expr import Binary, Expr, real, variables
from offcut.costmodel import (
    Machine,
    SumExtents,
    blocks_of,
    choice_seconds,
    pack_seconds,
    unpacked_factor,
)
from offcut.describe.computation import Computation, Stage
from offcut.partition import LADDER, AxisCut, Match, runs
from offcut.partition.cutting import ByHeight
from offcut.schedule import Nests


def column_heights(panels: Mapping[int, Iterable[int]], panel: int) -> ByHeight:
    """Return the columns of a tile and of the narrower ones after it by the rows of the row tile, equal ones together.

    panels  the widths by the rows from 1 on, in panels
    panel   columns of one
    """
    by_height: list[tuple[tuple[int, int], int, tuple[int, ...]]] = []
    for rows, widths in panels.items():
        columns = tuple(width * panel for width in sorted(set(widths), reverse=True))
        if by_height and by_height[-1][2] == columns:
            by_height[-1] = ((by_height[-1][0][0], rows), columns[0], columns)
        else:
            by_height.append(((rows, rows), columns[0], columns))
    return tuple(by_height)


@dataclass(frozen=True, slots=True)
class Tiles:
    """The tiles of the sums of a computation.

    families   whose microkernels there are, by name
    threads    that share the columns of one call
    """

    computation: Computation | Nests
    families: Mapping[str, Family]
    machine: Machine
    threads: int

    def tallest(self, match: Match) -> int:
        """Rows of the largest tile: what the microkernel has, and what L1 holds of A's rows."""
        tall = match.microkernel.max_rows
        if self.families[match.microkernel.name].wide:
            return tall
        a = match.by_rows
        shape = self.computation.buffer(a.buffer).shape
        on_rows = [axis for axis, part in enumerate(a.index) if match.rows in variables(part)]
        if len(on_rows) != 1:
            return tall
        row = 1
        for extent in shape[on_rows[0] + 1 :]:
            row *= ix.literal_value(extent) or 0
        step = row * ITEM_BYTES[a.dtype]
        return min(tall, max(self.machine.rows_in_l1(step), 1)) if step else tall

    def columns(self, lead: Stage, operand: OperandChoice) -> AxisCut:
        """Columns by the widest tile of the rows' height, then by the narrower ones, in turn."""
        match = operand.match
        name, lanes = match.columns, match.microkernel.panel
        assert name is not None
        widths = self.widths(operand)
        limit = self.group_size(lead, match, widths)
        if not widths:
            return AxisCut(name, LADDER, limit)
        tallest = self.tallest(match) if match.rows is not None else 1
        panels: dict[int, set[int]] = {}
        for rows, options in widths.items():
            if rows > tallest:
                break
            widest = next(w for w in options if limit % (w * lanes) == 0)
            panels[rows] = {widest, *(w for w in (4, 2, 1) if w <= widest)}
        by_height = column_heights(panels, lanes)
        if match.rows is None:
            _, tile, heights = by_height[0]
            return AxisCut(name, LADDER, tile, heights, group=limit)
        return AxisCut(name, LADDER, 0, None, by_height, group=limit)

    def widths(self, operand: OperandChoice) -> Mapping[int, tuple[int, ...]]:
        """Rows -> the widths of tiles in panels, widest first: one row reads no more panels than pay."""
        widths = self.families[operand.match.microkernel.name].widths
        if not widths or operand.how == "direct":
            return widths
        few = tuple(w for w in widths[1] if w <= self.machine.tiles.row_panels)
        return {**widths, 1: few}

    def group_size(self, lead: Stage, match: Match, widths: Mapping[int, tuple[int, ...]]) -> int:
        """Columns of B that a cache group holds: of the panels that the policy has, what fits the nearest cache,
        and leaves no thread without a group; of a family without fixed widths, no more than it takes.
        """
        kernel, policy = match.microkernel, self.machine.policy
        extent = next(a.extent for a in lead.reduce_axes if a.name == match.depth)
        depth = ix.literal_value(extent) or policy.group_terms
        for axis in lead.reduce_axes:
            if axis.name != match.depth:
                depth *= ix.literal_value(axis.extent) or 1
        panel_bytes = kernel.panel * max(depth, 1) * ITEM_BYTES[match.by_columns.dtype]
        panel_bytes = -(-panel_bytes // kernel.per_byte)
        room = policy.group_share * self.machine.nearest.bytes
        tallest = self.tallest(match) if match.rows is not None else 1
        most = policy.group_panels[0]
        width = widths[tallest][0] if widths else policy.wide_panels
        if not widths and not kernel.any_columns:
            most = kernel.columns_for(tallest) // kernel.panel
            width = min(width, most)
        columns = next(ix.literal_value(a.extent) for a in lead.axes if a.name == match.columns)
        if self.threads > 1 and columns is not None:
            each = columns // (self.threads * kernel.panel)
            most = min(most, each) if each >= self.machine.threads.panels else most
        fitting = (
            n
            for n in policy.group_panels
            if n * panel_bytes <= room and n % width == 0 and n <= most
        )
        return next(fitting, width) * kernel.panel

    def seconds(self, lead: Stage, operand: OperandChoice, splits: Iterable[AxisCut]) -> Expr:
        """Predicted seconds of a sum in tiles, as an expression in the sizes: by these, variants compete."""
        match = operand.match
        cuts = {cut.axis: cut for cut in splits}
        cut, column_cut = cuts.get(match.rows or ""), cuts.get(match.columns or "")
        extents = {a.name: a.extent for a in (*lead.axes, *lead.reduce_axes)}
        inside = (match.depth, *match.axes_in_function(lead))
        repeats, depth = cast("Expr", ix.const(1)), cast("Expr", ix.const(1))
        for name, extent in extents.items():
            if name in inside:
                depth = ix.mul(depth, extent)
            elif name not in (match.rows, match.columns):
                repeats = ix.mul(repeats, extent)
        columns = extents.get(match.columns or "", ix.const(1))
        item = ITEM_BYTES[match.by_columns.dtype]
        summed = SumExtents(columns, depth, repeats, item, match.microkernel.per_byte)
        blocks = blocks_of(match.microkernel, column_cut, ix.literal_value(columns))
        tiles: tuple[tuple[Expr, Expr], ...] = ((ix.const(1), ix.const(1)),)
        most = 1
        if cut is not None:
            rows, most = extents.get(match.rows or "", ix.const(1)), cut.tile
            tiles = runs(cut.strategy.with_heights(cut.heights), rows, most)
        direct = operand.how == "direct" and match.microkernel.packed
        is_strided = direct and not is_narrow(self.computation, match, self.machine)
        times = unpacked_factor(summed, self.machine) if is_strided else real(1.0)
        total = choice_seconds(summed, blocks, tiles, most, self.machine, times)
        if operand.how == "packed":
            return Binary("+", total, pack_seconds(summed, self.machine))
        return total
