"""Where elements lie in words: which axes run along the lanes, how words follow one another, and where those of a leaf lie.

Coordinates of a word are those of the element, but for axes in lanes, of which it is the block. Words of a
window follow one another along its axes, the last one first; words of an array in main memory likewise.

Axes in lanes are cut into blocks of a word, the last of which is filled with zeros. Where an operand of the
vector unit does not move along a lane, all lanes hold its element.

Where the words of a leaf lie at the sizes of a call: a base for each operand, and steps along its loops.

A *side* is an operand of a leaf. What has to be known of it at each instance is a row of expressions; the
numbers that they have are turned into words here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import prod

import numpy as np

from offcut.backends.accelerator.lowering.issue_tree import Leaf
from offcut.core import index as ix
from offcut.core.expr import Expr, Var, substitute, variables
from offcut.core.interpret.values import Array
from offcut.core.layout import Digit, Layout
from offcut.core.memo import lazy_property
from offcut.core.text.printer import format_expr, format_stmt
from offcut.errors import AddressError
from offcut.partition.judge import is_multiple


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


@dataclass(frozen=True)
class OperandAddress:
    """An operand.

    lanes   of its words
    steps   by axis of the leaf, elements along each axis of the array
    window  whether it lies in a window; else its array is whole
    asked   expressions: the first element, then the window (start and count of each axis) or the extents
    """

    buffer: str
    lanes: LaneLayout
    steps: tuple[tuple[int, ...], ...]
    window: bool
    asked: tuple[Expr, ...]

    @lazy_property
    def along(self) -> tuple[int, ...]:
        """Elements of a word along each axis of the array."""
        return tuple(map(self.lanes.lanes_of, range(len(self.lanes.order))))

    @lazy_property
    def moves(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """By axis of the leaf, which axes of the array it moves along, and by how many elements."""
        return tuple(tuple((at, by) for at, by in enumerate(one) if by) for one in self.steps)

    @property
    def extents(self) -> tuple[Expr, ...]:
        """Elements along each axis of the window or the array."""
        rank = len(self.lanes.order)
        return self.asked[rank + 1 : 3 * rank : 2] if self.window else self.asked[rank:]

    def words(
        self, values: Sequence[int], counts: Sequence[int]
    ) -> tuple[int, list[int], list[int]]:
        """Return the first word, the words from one iteration of each axis of the leaf to the next, and the words along
        each axis of the window or the array.

        values  of `asked`
        counts  iterations of each axis of the leaf; of an axis in lanes, those of its blocks are meant
        """
        along, rank = self.along, len(self.along)
        if self.window:
            starts, extents = values[rank : 3 * rank : 2], values[rank + 1 : 3 * rank : 2]
        else:
            starts, extents = (0,) * rank, values[rank : 2 * rank]
        word_counts = [-(-extent // lanes) for extent, lanes in zip(extents, along, strict=True)]
        strides = self.lanes.strides(word_counts)
        base = 0
        for axis in range(rank):
            base += (values[axis] - starts[axis]) // along[axis] * strides[axis]
        moved = [sum([by * strides[axis] for axis, by in steps]) for steps in self.moves]
        return base, moved, word_counts


def operand_address(
    leaf: Leaf, buffer: str, index: Sequence[Expr], lanes: LaneLayout, shape: Sequence[Expr]
) -> OperandAddress:
    """Return an operand of a leaf, read or written at `index`.

    Raises AddressError where words of lanes are taken apart.
    """
    starts: dict[str, Expr] = {name: first for name, first, _ in leaf.axes}
    first = tuple(ix.simplify(substitute(part, starts)) for part in index)
    steps = tuple(tuple(_step(leaf, part, name) for part in index) for name, _, _ in leaf.axes)
    for axis, part in enumerate(index):
        moving = [name for name, _, _ in leaf.axes if name in variables(part)]
        if lanes.lanes_of(axis) > 1 and moving and part != Var(moving[0]):
            raise _refusal(leaf, f"{buffer} is read within words, at {format_expr(part)}")
    window = leaf.windows.get(buffer)
    if window is None:
        return OperandAddress(buffer, lanes, steps, False, (*first, *shape))
    for axis, (start, _) in enumerate(window.axes):
        for part in (start, first[axis]):
            count = lanes.lanes_of(axis)
            if count > 1 and not is_multiple(part, count):
                raise _refusal(
                    leaf,
                    f"{buffer} begins at {format_expr(part)}, and a word has {count} elements",
                    f"tiles of multiples of {count} along {format_expr(index[axis])}",
                )
    return OperandAddress(
        buffer, lanes, steps, True, (*first, *(e for pair in window.axes for e in pair))
    )


def _step(leaf: Leaf, part: Expr, name: str) -> int:
    """By how much an index moves with an axis of the leaf."""
    moved = ix.to_linear(ix.sub(substitute(part, {name: ix.add(Var(name), 1)}), part))
    if moved.terms:
        raise _refusal(leaf, f"{format_expr(part)} does not move by a constant with {name}")
    return moved.const


def _refusal(leaf: Leaf, because: str, *help: str) -> AddressError:
    return AddressError(
        "compile",
        "cannot find the words of a statement",
        at=format_stmt(leaf.store),
        because=because,
        help=help,
    )
