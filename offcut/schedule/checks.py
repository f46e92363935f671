"""What the numbers and the costs of a decision must be before loops and layouts are made of them.

What a cost must be that somebody wrote: seconds, told by the sizes alone.

What it divides by is shown to be positive for all sizes, as the loops evaluate it at each call. That it is a number and at least
0 is looked at where sizes are small, and at some larger ones: it decides what runs, never what that computes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise, product

import numpy as np

from offcut.core import index as ix
from offcut.core.expr import Expr, Load, variables, walk
from offcut.core.interpret.values import Array, evaluate_all
from offcut.core.memo import memo
from offcut.core.panels import as_panels
from offcut.core.program import Buffer, Size
from offcut.core.sizes import samples
from offcut.core.text.layouts import format_layout
from offcut.core.text.printer import format_expr
from offcut.describe.microkernel import Microkernel
from offcut.errors import PartitionError
from offcut.partition import AxisCut, Match, Strategy, segments
from offcut.partition.cutting import ByHeight
from offcut.polyhedral import unsafe_divisor


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
        raise _split_refusal(cut, because, "an option with each of them")
    if axis in sums and (cut.by_height or cut.group is not None):
        raise _split_refusal(
            cut, f"{axis} is summed over: it has one range of heights, and no groups"
        )
    if cut.group is not None:
        if any(one.group is not None for one in spatial):
            raise _split_refusal(cut, "tiles are visited in groups along one axis")
        for tile, heights in _steps(cut):
            if not _are_equal(cut.strategy.with_heights(heights), cut.group, tile):
                raise _split_refusal(
                    cut, f"a group of {cut.group} is not made of equal tiles of {tile}"
                )


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
                    raise _split_refusal(cut, because, *(help if widest else ()))


def _split_refusal(cut: AxisCut, because: str, *help: str) -> PartitionError:
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


_POINTS = 1024  # that are looked at, of all sizes together
_LONGEST = 80  # characters of a cost that are shown: one that a target made has hundreds


def check_cost(cost: Expr, sizes: Sequence[Size], assumptions: Sequence[Expr]) -> None:
    """Refuse predicted seconds that are no expression in the sizes alone, or no seconds at some of them.

    Raises PartitionError with the smallest sizes that are looked at at which it is negative, or no number.
    """
    known = [size.name for size in sizes]
    loads = (one.buffer for one in walk(cost) if isinstance(one, Load))
    others = sorted({*variables(cost), *loads} - {*known})
    if others:
        because = f"it reads {', '.join(others)}, and a cost is told by the sizes alone"
        raise _cost_refusal(cost, f"{because}, which are {', '.join(known) or 'none'}")
    unsafe = unsafe_divisor(cost, sizes, assumptions)
    if unsafe is not None:
        divisor, because = unsafe
        help = f"max({format_expr(divisor)}, 1)", "where(…), around the division"
        raise _cost_refusal(cost, f"it divides by {format_expr(divisor)}; {because}", *help)
    points = _points(tuple(sizes))
    count = len(points.T)
    values = dict(zip(known, points, strict=True))
    allowed = [evaluate_all(fact, values, count) for fact in assumptions]
    costs = np.asarray(evaluate_all(cost, values, count), np.float64)
    (broken,) = np.nonzero(np.logical_and.reduce([~(costs >= 0), *allowed]))
    if broken.size:
        at = ", ".join(f"{name} = {of[broken[0]]}" for name, of in values.items())
        condition = f"with {at}, " if variables(cost) else ""
        raise _cost_refusal(
            cost, f"{condition}it is {costs[broken[0]]:g}, and seconds are at least 0"
        )


@lru_cache(1 << 8)
def _points(sizes: tuple[Size, ...]) -> Array:
    """Some values of all sizes, by size, then by point; the smallest points first."""
    each = int(_POINTS ** (1 / max(len(sizes), 1)))
    points = product(*(_values(size, each) for size in sizes))
    return np.array(sorted(points, key=lambda at: (sum(at), at)), np.int64).T


def _values(size: Size, count: int) -> Sequence[int]:
    """As many values of a size at most: half of them its least ones, the others further and further apart, up to the last."""
    least = range(size.at_or_above(0), size.max + 1, size.multiple_of)[: max(count // 2, 1)]
    larger = samples(size, count - len(least)) if size.max > least[-1] else ()
    return sorted({*least, *map(int, larger)})


def _cost_refusal(cost: Expr, because: str, *help: str) -> PartitionError:
    text = format_expr(cost)
    what = f"cannot take {text if len(text) <= _LONGEST else f'{text[:_LONGEST]}…'} as a cost"
    return PartitionError("schedule", what, because=because, help=help)
