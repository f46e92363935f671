"""What a cut costs: hardware descriptions as data, and formulas in the sizes."""

from offcut.costmodel.closed_form import (
    Blocks,
    Work,
    pack_seconds,
    real,
    rows_seconds,
    unpacked_factor,
)
from offcut.costmodel.hardware import Hardware, load, with_caches

__all__ = [
    "Blocks",
    "Hardware",
    "Work",
    "load",
    "pack_seconds",
    "real",
    "rows_seconds",
    "unpacked_factor",
    "with_caches",
]
