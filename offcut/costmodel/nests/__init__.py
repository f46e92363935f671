"""What the nests of a schedule take, in closed form, at many sizes at once: nothing is cut, lowered or run."""

from offcut.costmodel.nests.calls import Calls
from offcut.costmodel.nests.nest import NestCost, Nests
from offcut.costmodel.nests.schedules import SchedulePrices, WayCost

__all__ = ["Calls", "NestCost", "Nests", "SchedulePrices", "WayCost"]
