"""Where the words of a leaf lie at the sizes of a call: a base for each operand, and steps along its loops.

A *side* is an operand of a leaf. What has to be known of it at each instance is a row of expressions; the
numbers that they have are turned into words here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from offcut.backends.accelerator.lowering.issue_tree import Leaf
from offcut.backends.accelerator.lowering.word_layout import LaneLayout
from offcut.core import index as ix
from offcut.core.expr import Expr, Var, substitute, variables
from offcut.core.memo import lazy_property
from offcut.core.text.printer import format_expr, format_stmt
from offcut.errors import AddressError
from offcut.partition.judge import is_multiple


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
