"""What instances of a stage take that no microkernel computes, one by one or as vectors."""

from __future__ import annotations

from dataclasses import dataclass

from offcut.core import index as ix
from offcut.core.expr import Var
from offcut.core.program import For, Store
from offcut.costmodel.machine import Machine
from offcut.costmodel.nests.parametric import beside
from offcut.costmodel.statements import Inside, StatementPrices
from offcut.describe.computation import Stage


@dataclass(frozen=True, slots=True)
class Instances:
    """What instances of a stage take, lanes along an axis.

    width   of them at once
    each    cycles of a vector
    """

    width: int
    each: float

    @staticmethod
    def of(stage: Stage, lane: str | None, machine: Machine, width: int) -> Instances:
        """Of a stage, lanes along an axis; None: one by one.

        width  lanes of a vector of what is stored
        """
        width = 1 if lane is None else width
        point = tuple(Var(axis.name) for axis in stage.axes)
        store = Store(stage.buffer, point, stage.value, stage.reducer)
        summed = [axis.name for axis in stage.reduce_axes]
        axes = [axis.name for axis in stage.axes]
        inner = summed[-1] if summed else "".join(axes[-1:] if lane is None else ())
        around = For(inner, ix.const(0), ix.const(1), (store,))
        inside = Inside(lane, inner, frozenset((stage.buffer,)))
        return Instances(width, StatementPrices(machine, width).each(store, inside, around))


def lane_of(stage: Stage) -> str | None:
    """The axis that lanes run along where nobody says otherwise: of a sum over rows of memory, of what is stored."""
    if stage.reduce_axes:
        summed = stage.reduce_axes[-1].name
        point = tuple(Var(axis.name) for axis in stage.axes)
        if beside(Store(stage.buffer, point, stage.value, stage.reducer), summed):
            return summed
    return stage.axes[-1].name if stage.axes else None
