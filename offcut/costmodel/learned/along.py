"""The tiles along the rows or the columns of a way, in numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from offcut.core.expr import Var
from offcut.costmodel.arrays import Calls
from offcut.costmodel.learned.values import Values
from offcut.costmodel.nests.runs import tiles_of
from offcut.schedule import Way

_EXTENT = Var("extent")


@dataclass(frozen=True, slots=True)
class Along:
    """Tiles along an axis, at each vector of sizes.

    tile     the largest that the cut has; 0: it is not cut
    count    of them
    length   their mean length, in iterations
    whole    the share of the iterations that lies in whole tiles
    heights  how many lengths there are
    """

    tile: int
    count: Values
    length: Values
    whole: Values
    heights: float


def tiles_along(way: Way, axis: str | None, extents: Mapping[str, Values], around: Values) -> Along:
    """The tiles of an axis of a way; one that is not cut has none, and is as long as it is.

    axis    None: the way has no such axis
    around  the height of the tile around, by which widths go
    """
    none = np.zeros(len(around))
    cut = next((cut for cut in way.splits if cut.axis == axis), None)
    if cut is None or cut.axis not in extents:
        return Along(0, none, np.asarray(extents.get(axis or "", none), float), none, 0.0)
    extent = np.asarray(extents[cut.axis], float)
    calls = Calls({_EXTENT.name: extent.astype(np.int64)}, len(extent))
    found = tiles_of(cut, _EXTENT, calls, np.maximum(np.ceil(around), 1))
    tiles = sum((run.count for run in found), none)
    covered = sum((run.count * run.height for run in found if run.body), none)
    whole = np.minimum(covered / np.maximum(extent, 1), 1.0)
    used = sum(float(run.count.any()) for run in found)
    return Along(cut.tile, tiles, extent / np.maximum(tiles, 1), whole, used)
