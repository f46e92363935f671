"""Boxes of iterations in whole words: a statement begins where a word does, and ends where one does or where
there is nothing more.

A word is moved and computed as a whole. So what a box leaves of its last word must be no element of any operand:
beyond the end of an array, whose words are filled with zeros, or beyond that of a window. Only accumulators may
be given more than is asked for: each lane of theirs is computed by itself, and a store is looked at for its own end.
"""

from __future__ import annotations

from collections.abc import Sequence

from offcut.backends.accelerator.isa import MemorySpace
from offcut.backends.accelerator.lowering.instruction_selection import (
    Copy,
    Does,
    InstructionSelection,
)
from offcut.backends.accelerator.lowering.issue_tree import Leaf
from offcut.backends.accelerator.lowering.word_layout import OperandAddress
from offcut.core import index as ix
from offcut.core.expr import Expr, Var
from offcut.core.text.printer import format_expr
from offcut.partition.judge import is_multiple


def lanes_per_word(
    covers: InstructionSelection, leaf: Leaf, does: Does, at: int, sides: Sequence[OperandAddress]
) -> int:
    """Iterations of an axis of a leaf, by its position, that one word has.

    Raises TargetError where operands have other elements in a word, or a word is taken apart.
    """
    name, first, count = leaf.axes[at]
    moved = [(side, axis) for side in sides for axis, step in enumerate(side.steps[at]) if step]
    along = {side.lanes.lanes_of(axis): side.buffer for side, axis in moved}
    if len(along) > 1:
        one, other = list(along.values())[:2]
        raise covers.refuse(leaf, f"{name} runs along the words of {one}, and not of {other}")
    lanes = next(iter(along), 1)
    if lanes == 1:
        return lanes
    if not is_multiple(first, lanes):
        raise covers.refuse(
            leaf, f"its tiles along {name} begin within a word of {lanes}", f"multiples of {lanes}"
        )
    if isinstance(does, Copy) and any(bound.a == Var(name) for bound in does.bounds):
        raise covers.refuse(leaf, f"{name} runs along words, and a load fills whole words alone")
    for side, axis in moved:
        if isinstance(does, Copy) and does.place is MemorySpace.ACCUMULATORS and not side.window:
            continue
        for arm in ix.parts_of_minimum(count):
            end = ix.simplify(ix.add(side.asked[axis], arm))
            if not is_multiple(end, lanes) and end not in _ends(covers, side, axis):
                raise covers.refuse(
                    leaf,
                    f"it ends at {format_expr(end)} along {name}, within a word of {lanes} "
                    f"elements of {side.buffer}",
                    f"multiples of {lanes}",
                )
    return lanes


def _ends(covers: InstructionSelection, side: OperandAddress, axis: int) -> list[Expr]:
    """Where an operand has no more elements."""
    rank = len(side.lanes.order)
    ends = [covers.program.buffer(side.buffer).shape[axis]]
    if side.window:
        start = side.asked[rank + 2 * axis]
        ends += [ix.add(start, arm) for arm in ix.parts_of_minimum(side.extents[axis])]
    return [ix.simplify(end) for end in ends]
