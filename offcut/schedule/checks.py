"""What the numbers of a decision must be before loops and layouts are made of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from offcut.core import index as ix
from offcut.core.memo import memo
from offcut.core.panels import as_panels
from offcut.core.program import Buffer
from offcut.core.text.layouts import format_layout
from offcut.describe.microkernel import Microkernel
from offcut.errors import PartitionError
from offcut.partition import AxisCut, Match, Strategy, segments
from offcut.partition.cutting import ByHeight


def check_splits(splits: Sequence[AxisCut], sums: frozenset[str]) -> None:
    """Refuse the last of `splits`, which stand in their order, where it says what no loops of a nest are.

    sums  axes whose iterations are the terms of a sum

    A split is by one strategy; a group is made of equal tiles, and one split of a variant has groups.
    """
    cut, axis = splits[-1], splits[-1].axis
    spatial = [one for one in splits[:-1] if one.axis not in sums]
    if cut.strategy.among:
        names = ", ".join(map(str, cut.strategy.among))
        because = f"a split is by one strategy, and this is the cheapest of {names}"
        raise _refusal(cut, because, "an option with each of them")
    if axis in sums and (cut.by_height or cut.group is not None):
        raise _refusal(cut, f"{axis} is summed over: it has one range of heights, and no groups")
    if cut.group is not None:
        if any(one.group is not None for one in spatial):
            raise _refusal(cut, "tiles are visited in groups along one axis")
        for tile, heights in _steps(cut):
            if not _are_equal(cut.strategy.with_heights(heights), cut.group, tile):
                raise _refusal(cut, f"a group of {cut.group} is not made of equal tiles of {tile}")


@memo(1 << 12)
def _are_equal(strategy: Strategy, extent: int, tile: int) -> bool:
    """Whether an extent is cut into tiles of one size."""
    return len(segments(strategy, ix.const(extent), tile)) == 1


def _steps(cut: AxisCut) -> list[tuple[int, tuple[int, ...]]]:
    """The tile and the heights, for each range of heights around."""
    if cut.by_height:
        return [(tile, heights) for _, tile, heights in cut.by_height]
    return [(cut.tile, cut.heights or ())]


def gap_in_ranges(classes: ByHeight, axis: str, tallest: int) -> str | None:
    """Return why the ranges of `classes` do not hold each height of the tiles of `axis`, up to `tallest`, once, in ascending order; None if they do."""
    next_height = 1
    for (low, high), _, _ in classes:
        if low != next_height or high < low:
            return f"after {next_height - 1}, the range {low}..{high} does not go on"
        next_height = high + 1
    if next_height <= tallest:
        return f"tiles of {axis} are up to {tallest} high, and no range holds {next_height}"
    return None


def check_widths(splits: Sequence[AxisCut], match: Match) -> None:
    """Refuse widths by height that no tile of the microkernel has which covers them."""
    kernel = match.microkernel
    for before, cut in pairwise(splits):
        if before.axis != match.rows or cut.axis != match.columns or kernel.any_columns:
            continue
        for (low, high), _, widths in cut.by_height:
            tallest = min(high, max(tile for tile, _ in _steps(before)))
            for height in range(low, tallest + 1):
                if max(widths) > kernel.columns_for(height):
                    because = f"no register tile of {kernel.name} has {height} × {max(widths)}"
                    widest = kernel.columns_for(height)
                    help = (f"{widest} columns at most beside a height of {height}",)
                    raise _refusal(cut, because, *(help if widest else ()))


def _refusal(cut: AxisCut, because: str, *help: str) -> PartitionError:
    return PartitionError("schedule", f"cannot split {cut.axis} so", because=because, help=help)


def check_layout(op: str, buffer: Buffer, kernels: Sequence[Microkernel]) -> None:
    """Refuse the layout of an array that none of `kernels` reads, or whose elements it does not hold.

    op  what is refused: ``lay``, ``pack``
    """
    layout, rank = buffer.layout, len(buffer.shape)
    assert layout is not None
    shape = as_panels(layout)
    if shape is None or len(layout.multiple) > rank:
        because = f"it has {rank} axes, of which rows and columns are two"
        raise PartitionError("schedule", f"cannot {op} {buffer.name} so", because=because)
    layouts = (kernel.layout_on(shape.rows, shape.columns) for kernel in kernels)
    read = dict.fromkeys(one for one in layouts if one is not None)
    if layout not in read:
        because = f"no microkernel reads {format_layout(layout)}"
        help = tuple(map(format_layout, read))
        raise PartitionError(
            "schedule", f"cannot {op} {buffer.name} so", because=because, help=help
        )
    if because := buffer.narrow_refusal:
        help = (format_layout(replace(layout, bits=None)),)
        raise PartitionError(
            "schedule", f"cannot {op} {buffer.name} so", because=because, help=help
        )
