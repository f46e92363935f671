"""What the nests of a schedule take, in closed form, at many sizes at once: nothing is cut, lowered or run."""

from offcut.costmodel.nests.nest import NestCost as NestCost
from offcut.costmodel.nests.nest import Nests as Nests
from offcut.costmodel.nests.parametric import over_rows as over_rows
from offcut.costmodel.nests.schedules import LoopPrices as LoopPrices
from offcut.costmodel.nests.schedules import SchedulePrices as SchedulePrices
from offcut.costmodel.nests.schedules import Taken as Taken
from offcut.costmodel.nests.schedules import VariantCost as VariantCost
from offcut.costmodel.nests.schedules import standing as standing
