"""Memory for the values between kernels: slots whose sizes are expressions over the sizes of the graph, each used by values that are
never needed at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from offcut.core import index as ix
from offcut.core.dtypes import ITEM_BYTES
from offcut.core.expr import Const, Expr
from offcut.core.program import Size
from offcut.core.text.printer import format_expr
from offcut.graph.graph import Value
from offcut.graph.models.kernel_step import Step
from offcut.graph.sizes import extents
from offcut.graph.sizes.extent_values import Numbers, typical_sizes

ALIGNMENT = 64
"""Bytes: where a slot begins."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A piece of the arena: the greatest of `bytes`, rounded up to `ALIGNMENT`."""

    bytes: tuple[Expr, ...]

    def __str__(self) -> str:
        each = ", ".join(map(format_expr, self.bytes))
        return f"max({each})" if len(self.bytes) > 1 else each


@dataclass(frozen=True, slots=True)
class Arena:
    """Slots, one after the other, and which value is in which.

    scratch of the kernels comes after the slots, of the size that the greediest of them asks for

    needs  bytes of each value
    lives  the first and the last step that has it; of what is read later, one more than there are
    """

    slots: tuple[Slot, ...]
    of: Mapping[str, int]
    needs: Mapping[str, Expr]
    lives: Mapping[str, tuple[int, int]]


def arena_of(
    steps: Sequence[Step],
    values: Mapping[str, Value],
    elsewhere: set[str],
    lasting: set[str],
    sizes: Sequence[Size],
) -> Arena:
    """An arena for the values that steps compute.

    elsewhere  values whose memory is not here
    lasting       values that are read after the last step
    """
    last: dict[str, int] = {}
    for number, step in enumerate(steps):
        last.update((one.root, number) for one in (*step.inputs, *step.outputs))
    last.update(dict.fromkeys(lasting, len(steps)))
    typical = Numbers(typical_sizes(sizes))
    slots, free, of = list[list[Expr]](), list[int](), dict[str, int]()
    needs, lives = dict[str, Expr](), dict[str, tuple[int, int]]()
    for number, step in enumerate(steps):
        for name in dict.fromkeys(one.root for one in step.outputs):
            if name in elsewhere:
                continue
            value = values[name]
            need = extents.product((*value.shape, ix.const(ITEM_BYTES[value.dtype])))
            needs[name], lives[name] = need, (number, last[name])
            slot = _fitting(need, slots, free, typical)
            if slot is None:
                slot = len(slots)
                slots.append([])
            else:
                free.remove(slot)
            if need not in slots[slot]:
                slots[slot].append(need)
            of[name] = slot
        finished = (name for name in of if last[name] == number)
        free += [of[name] for name in finished]
    return Arena(tuple(Slot(tuple(_greatest(needed))) for needed in slots), of, needs, lives)


def _greatest(needed: Sequence[Expr]) -> list[Expr]:
    """Without numbers that a greater number makes idle."""
    numbers = [int(one.value) for one in needed if isinstance(one, Const)]
    most = [ix.const(max(numbers))] if numbers else []
    return [*(one for one in needed if not isinstance(one, Const)), *most]


def _fitting(
    need: Expr, slots: Sequence[Sequence[Expr]], free: Sequence[int], typical: Numbers
) -> int | None:
    """The free slot that takes `need` with the least waste, at typical sizes; None where there is none."""
    equal = [slot for slot in free if need in slots[slot]]
    if equal:
        return equal[0]
    size = typical(need)
    most = {slot: max(typical(part) for part in slots[slot]) for slot in free}
    larger = [slot for slot in free if most[slot] >= size]
    if larger:
        return min(larger, key=lambda slot: most[slot])
    return max(free, key=lambda slot: most[slot], default=None)
