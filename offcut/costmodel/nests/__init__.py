"""What the nests of a schedule take, in closed form, at many sizes at once: nothing is cut, lowered or run."""

from offcut.costmodel.nests.as_they_stand import LoopPrices, standing
from offcut.costmodel.nests.calls import Calls
from offcut.costmodel.nests.nest import NestCost, Nests
from offcut.costmodel.nests.schedules import SchedulePrices, Taken, WayCost
from offcut.costmodel.nests.tile_cycles import Instances, lane_of

__all__ = [
    "Calls",
    "Instances",
    "LoopPrices",
    "NestCost",
    "Nests",
    "SchedulePrices",
    "Taken",
    "WayCost",
    "lane_of",
    "standing",
]
