"""What the nests of a schedule take, in closed form, at many sizes at once: nothing is cut, lowered or run."""

from offcut.costmodel.nests.as_they_stand import LoopPrices, standing
from offcut.costmodel.nests.nest import NestCost, Nests
from offcut.costmodel.nests.parametric import over_rows
from offcut.costmodel.nests.schedules import SchedulePrices, Taken, WayCost

__all__ = [
    "LoopPrices",
    "NestCost",
    "Nests",
    "SchedulePrices",
    "Taken",
    "WayCost",
    "over_rows",
    "standing",
]
