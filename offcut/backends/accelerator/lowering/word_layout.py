"""Where elements lie in words: which axes of an array run along the lanes, and how words follow one another.

Coordinates of a word are those of the element, but for axes in lanes, of which it is the block. Words of a
window follow one another along its axes, the last one first; words of an array in main memory likewise.

Axes in lanes are cut into blocks of a word, the last of which is filled with zeros. Where an operand of the
vector unit does not move along a lane, all lanes hold its element.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import prod

import numpy as np

from offcut.core.interpret.values import Array
from offcut.core.layout import Digit, Layout


@dataclass(frozen=True, slots=True)
class LaneLayout:
    """The axes of an array in the lanes of its words.

    axes    for each axis of a word, that of the array, by position; None: none
    counts  lanes along each axis of a word
    order   the axes of the array as words follow one another, the slowest first
    """

    axes: tuple[int | None, ...]
    counts: tuple[int, ...]
    order: tuple[int, ...]

    def lanes_of(self, axis: int) -> int:
        """Elements of an axis of the array in one word."""
        return next((n for a, n in zip(self.axes, self.counts, strict=True) if a == axis), 1)

    def extents(self, extents: Sequence[int]) -> list[int]:
        """Words along each axis of an array, or of a window that begins at a word."""
        return [-(-extent // self.lanes_of(axis)) for axis, extent in enumerate(extents)]

    def strides(self, extents: Sequence[int]) -> list[int]:
        """Words from one to the next along each axis, by words along each axis."""
        steps, step = [0] * len(extents), 1
        for axis in reversed(self.order):
            steps[axis] = step
            step *= extents[axis]
        return steps


@cache
def layout_of(lanes: LaneLayout) -> Layout:
    """Return the layout of an array's words, with an axis more for each axis of a word that has none of the array."""
    rank = len(lanes.order)
    free = iter(range(rank, rank + len(lanes.axes)))
    axes = [next(free) if axis is None else axis for axis in lanes.axes]
    inside = tuple(
        Digit(axis, 1, count, prod(lanes.counts[at + 1 :]))
        for at, (axis, count) in enumerate(zip(axes, lanes.counts, strict=True))
    )
    blocks = tuple(
        (f"word{axis}", (Digit(axis, lanes.lanes_of(axis), None, 1),)) for axis in lanes.order
    )
    multiple = dict(zip(axes, lanes.counts, strict=True))
    whole = range(rank + lanes.axes.count(None))
    return Layout((*blocks, ("lane", inside)), tuple(multiple.get(axis, 1) for axis in whole))


def word_order(layout: Layout, rank: int) -> tuple[int, ...]:
    """Return the axes of an array of `rank` axes in the order in which a layout has its words follow one another."""
    last = [of[-1] for of in layout.digits(rank) if of]
    order = list(dict.fromkeys(digit.axis for digit in last if digit.extent is None))
    return (*(axis for axis in range(rank) if axis not in order), *order)


def lane_axes(names: Sequence[str], rows: int, columns: int) -> tuple[str | None, str | None]:
    """The axes along the rows and the columns of words of accumulators, of those that may run there, in their order.

    rows, columns  of a word

    The last one runs along columns, the one before it along rows; one that is alone along the longer side.
    """
    if len(names) > 1 and rows > 1:
        return names[-2], names[-1]
    last = names[-1] if names else None
    return (last, None) if rows > columns else (None, last)


def to_words(array: Array, lanes: LaneLayout, dtype: str, spread: bool) -> Array:
    """``(words, lanes…)``: the words of an array, one after the other.

    spread  whether lanes along which it does not move all hold its element; else the first does
    """
    free = [count for axis, count in zip(lanes.axes, lanes.counts, strict=True) if axis is None]
    array = array.astype(dtype, copy=False).reshape(*array.shape, *(1 for _ in free))
    if spread:
        array = np.broadcast_to(array, (*array.shape[: array.ndim - len(free)], *free))
    return layout_of(lanes).arrange(array).reshape(-1, *lanes.counts)


def from_words(words: Array, lanes: LaneLayout, shape: Sequence[int]) -> Array:
    """The array whose words these are."""
    layout, whole = layout_of(lanes), (*shape, *(1 for axis in lanes.axes if axis is None))
    return layout.restore(words.reshape(layout.extents(whole)), whole).reshape(shape)
