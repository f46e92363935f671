"""What features say of a microkernel."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import log, log1p

from offcut.describe.microkernel import Microkernel

NOTHING: Mapping[str, float] = dict.fromkeys(
    ("covered", "lanes", "most_rows", "most_columns", "at_once", "interleave", "rate", "start"), 0.0
)
"""The facts of what no microkernel covers."""


@lru_cache(256)
def facts_of(kernel: Microkernel) -> Mapping[str, float]:
    """Lanes, rows, columns and terms at once; operations a cycle of the best tile, and cycles to start it, as logarithms."""
    best = min(kernel.tiles, key=lambda shape: shape.cycles / (shape.rows * shape.columns))
    return {
        "covered": 1.0,
        "lanes": float(kernel.panel),
        "most_rows": float(kernel.max_rows),
        "most_columns": float(max(shape.columns for shape in kernel.tiles)),
        "at_once": float(kernel.at_once),
        "interleave": float(kernel.interleave),
        "rate": log(best.rows * best.columns / best.cycles),
        "start": log1p(best.startup),
    }
