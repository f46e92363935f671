"""What features say of a microkernel, and of the tiles along an axis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import log, log1p

import numpy as np

from offcut.costmodel.learned.case import Ran, Values
from offcut.costmodel.nests.runs import tiles_of
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


@dataclass(frozen=True, slots=True)
class Along:
    """Tiles along an axis of a way, at each vector of sizes.

    count    of them
    length   their mean length, in iterations
    whole    the share of the iterations that lies in whole tiles
    heights  how many lengths there are
    """

    count: Values
    length: Values
    whole: Values
    heights: float


def tiles_along(one: Ran, which: str) -> Along:
    """The tiles along the rows or the columns of a way; of loops that nothing covers, its last cut is that of the columns."""
    cover = one.way.cover
    name = None if cover is None else (cover.rows if which == "rows" else cover.columns)
    if cover is None and which == "columns" and one.way.splits:
        name = one.way.splits[-1].axis
    count = len(one.taken)
    cut = next((cut for cut in one.way.splits if cut.axis == name), None)
    if cut is None or cut.axis not in one.extents:
        none = np.zeros(count)
        return Along(none, np.asarray(one.extents.get(name or "", none), float), none, 0.0)
    extent = np.asarray(one.extents[cut.axis], float)
    around = np.ones(count) if which == "rows" else tiles_along(one, "rows").length
    found = tiles_of(cut, extent, np.maximum(np.ceil(around), 1))
    tiles = sum((run.count for run in found), np.zeros(count))
    covered = sum((run.count * run.height for run in found if run.form.body), np.zeros(count))
    whole = np.minimum(covered / np.maximum(extent, 1), 1.0)
    used = sum(float(np.any(run.count > 0)) for run in found)
    return Along(tiles, extent / np.maximum(tiles, 1), whole, used)
