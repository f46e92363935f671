"""The closed form: what a loop program costs on a machine, from exact counts, for any sizes or for given ones."""

from offcut.core.text.tables import quantity, table
from offcut.costmodel.closed.cost import Cost, PieceCost, StageSeconds, cost, stage_seconds
from offcut.costmodel.closed.counts import Exactness, HowExact
from offcut.costmodel.closed.formulas import Formulas, formulas
from offcut.costmodel.closed.hardware import Hardware
from offcut.costmodel.closed.touched import Level

__all__ = [
    "Cost",
    "Exactness",
    "Formulas",
    "Hardware",
    "HowExact",
    "Level",
    "PieceCost",
    "StageSeconds",
    "cost",
    "formulas",
    "quantity",
    "stage_seconds",
    "table",
]
