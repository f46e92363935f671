"""The closed form: what a loop program costs on a machine, from exact counts, for any sizes or for given ones."""

from offcut.core.text.tables import quantity as quantity
from offcut.core.text.tables import table as table
from offcut.costmodel.closed.cost import Cost as Cost
from offcut.costmodel.closed.cost import PieceCost as PieceCost
from offcut.costmodel.closed.cost import PieceSeconds as PieceSeconds
from offcut.costmodel.closed.cost import StageSeconds as StageSeconds
from offcut.costmodel.closed.cost import cost as cost
from offcut.costmodel.closed.cost import stage_seconds as stage_seconds
from offcut.costmodel.closed.counts import Exactness as Exactness
from offcut.costmodel.closed.counts import HowExact as HowExact
from offcut.costmodel.closed.formulas import Formulas as Formulas
from offcut.costmodel.closed.formulas import formulas as formulas
from offcut.costmodel.resources import Hardware as Hardware
from offcut.costmodel.resources import Level as Level
