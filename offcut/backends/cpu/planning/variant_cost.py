"""The predicted seconds of a variant of a nest: of a microkernel by its tiles, of plain loops by their statements."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from offcut.backends.cpu.machine.isa import Isa
from offcut.backends.cpu.microkernels.family import Family
from offcut.backends.cpu.planning.operand_layout import OperandChoice
from offcut.backends.cpu.planning.tile_sizes import Tiles
from offcut.core import index as ix
from offcut.core.expr import Binary, Expr, Var, real
from offcut.core.program import For, Store
from offcut.costmodel import Inside, StatementPrices, shortened
from offcut.costmodel.nests import over_rows
from offcut.describe.computation import Computation, Stage
from offcut.partition import (
    Match,
)
from offcut.schedule import (
    Way,
    WayPrice,
)


def variant_cost_model(families: Sequence[Family], isa: Isa, legible: bool = True) -> WayPrice:
    """Return the price of a way, by the cost model of these cores.

    legible  whether it is written as one would write it: somebody reads it, or code evaluates it
    """
    by_name = {family.microkernel.name: family for family in families}
    costs_by_key: dict[object, Expr] = {}

    def price(
        computation: Computation,
        group: Sequence[Stage],
        match_: Match | None,
        way: Way,
        prepacked: frozenset[str],
    ) -> Expr:
        if match_ is None:
            stages = tuple(group)
            if stages not in costs_by_key:
                costs_by_key[stages] = reduce(
                    _plus, (_plain_seconds(stage, isa) for stage in group)
                )
            return costs_by_key[stages]
        packed, match = way.pack is not None, (match_.microkernel.name, match_.axes)
        key = group[0], match, packed, way.splits, prepacked, computation.buffers
        if key not in costs_by_key:
            how = "panels" if match_.by_columns.buffer in prepacked else "direct"
            operand = OperandChoice(match_, "packed" if packed else how)
            tiles = Tiles(computation, by_name, isa.machine, 1)
            seconds = tiles.seconds(group[0], operand, way)
            costs_by_key[key] = shortened(seconds) if legible else seconds
        return costs_by_key[key]

    return price


def _plain_seconds(stage: Stage, isa: Isa) -> Expr:
    """Predicted seconds of a stage whose instances run as vectors, all lanes of them."""
    axes, width = [axis.name for axis in stage.axes], isa.lanes("float32")
    store = Store(stage.buffer, tuple(map(Var, axes)), stage.value, stage.reducer)
    inner = stage.reduce_axes[-1].name if stage.reduce_axes else ""
    lane = inner if inner and over_rows(store, inner) else axes[-1] if axes else None
    width = 1 if lane is None else width
    inside = Inside(lane, inner, frozenset((stage.buffer,)))
    around = For(inner, ix.const(0), ix.const(1), (store,))
    each = StatementPrices(isa.machine, width).each(store, inside, around)
    return Binary("*", real(stage.instances), real(each / width / isa.machine.hertz))


def _plus(a: Expr, b: Expr) -> Expr:
    return Binary("+", a, b)
