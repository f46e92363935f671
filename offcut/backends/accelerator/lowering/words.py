"""Where elements lie in words: which axes of an array run along the lanes, and how words follow one another.

Coordinates of a word are those of the element, but for axes in lanes, of which it is the block. Words of a
window follow one another along its axes, the last one first; words of an array in main memory likewise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Lanes:
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
        found, step = [0] * len(extents), 1
        for axis in reversed(self.order):
            found[axis] = step
            step *= extents[axis]
        return found


def sides(names: Sequence[str], rows: int, columns: int) -> tuple[str | None, str | None]:
    """The axes along the rows and the columns of words of accumulators, of those that may run there, in their order.

    rows, columns  of a word

    The last one runs along columns, the one before it along rows; one that is alone along the longer side.
    """
    if len(names) > 1 and rows > 1:
        return names[-2], names[-1]
    last = names[-1] if names else None
    return (last, None) if rows > columns else (None, last)
