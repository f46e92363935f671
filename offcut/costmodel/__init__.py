"""What a cut costs: hardware descriptions as data, and formulas in the sizes."""

from offcut.costmodel.closed_form import (
    LANE,
    Blocks,
    Work,
    lanes_seconds,
    pack_seconds,
    rows_seconds,
    unpacked_factor,
)
from offcut.costmodel.hardware import Hardware, load, with_caches
from offcut.costmodel.tiles import copies_worth, tile_price

__all__ = [
    "LANE",
    "Blocks",
    "Hardware",
    "Work",
    "copies_worth",
    "lanes_seconds",
    "load",
    "pack_seconds",
    "rows_seconds",
    "tile_price",
    "unpacked_factor",
    "with_caches",
]
