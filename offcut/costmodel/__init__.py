"""What a cut costs: machine descriptions as data, and formulas in the sizes."""

from offcut.costmodel.accelerator import Accelerator
from offcut.costmodel.choice import (
    SumExtents,
    blocks_of,
    choice_seconds,
    pack_seconds,
    unpacked_factor,
)
from offcut.costmodel.closed import (
    Cost,
    Exactness,
    Formulas,
    Hardware,
    HowExact,
    Level,
    StageSeconds,
    cost,
    formulas,
    quantity,
    stage_seconds,
    table,
)
from offcut.costmodel.description import features_of, load, of_plain, plain, shipped
from offcut.costmodel.device import Device, Energy, MainMemory, Memory, Unit
from offcut.costmodel.machine import Loops, Machine, Threads, TileUnit, processor
from offcut.costmodel.option_selection import OptionSelection, select_options
from offcut.costmodel.resources import Roofline, roofline
from offcut.costmodel.shortened import shortened, shortened_over
from offcut.costmodel.statements import Inside, StatementPrices
from offcut.costmodel.tile_cycles import copies_worth, tile_cycles, tile_price
from offcut.costmodel.worth import sampled, worth

__all__ = [
    "Accelerator",
    "Cost",
    "Device",
    "Energy",
    "Exactness",
    "Formulas",
    "Hardware",
    "HowExact",
    "Inside",
    "Level",
    "Loops",
    "Machine",
    "MainMemory",
    "Memory",
    "OptionSelection",
    "Roofline",
    "StageSeconds",
    "StatementPrices",
    "SumExtents",
    "Threads",
    "TileUnit",
    "Unit",
    "blocks_of",
    "choice_seconds",
    "copies_worth",
    "cost",
    "features_of",
    "formulas",
    "load",
    "of_plain",
    "pack_seconds",
    "plain",
    "processor",
    "quantity",
    "roofline",
    "sampled",
    "select_options",
    "shipped",
    "shortened",
    "shortened_over",
    "stage_seconds",
    "table",
    "tile_cycles",
    "tile_price",
    "unpacked_factor",
    "worth",
]
