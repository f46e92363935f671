"""A schedule at several vectors of sizes, in numbers: what features are functions of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from offcut.core.expr import Var
from offcut.core.memo import lazy_property, memoize_method
from offcut.costmodel.arrays import Calls, Values
from offcut.costmodel.machine import Machine
from offcut.costmodel.nests import NestCost
from offcut.costmodel.nests.tile_runs import tiles_of
from offcut.describe.microkernel import Microkernel
from offcut.schedule import Schedule, Way

_EXTENT = Var("extent")


@dataclass(frozen=True, slots=True)
class TileStats:
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


def tile_stats(
    way: Way, axis: str | None, extents: Mapping[str, Values], around: Values
) -> TileStats:
    """The tiles of an axis of a way; one that is not cut has none, and is as long as it is.

    axis    None: the way has no such axis
    around  the height of the tile around, by which widths go
    """
    none = np.zeros(len(around))
    cut = next((cut for cut in way.splits if cut.axis == axis), None)
    if cut is None or cut.axis not in extents:
        return TileStats(0, none, np.asarray(extents.get(axis or "", none), float), none, 0.0)
    extent = np.asarray(extents[cut.axis], float)
    calls = Calls({_EXTENT.name: extent.astype(np.int64)}, len(extent))
    found = tiles_of(cut, _EXTENT, calls, np.maximum(np.ceil(around), 1))
    tiles = sum((run.count for run in found), none)
    covered = sum((run.count * run.height for run in found if run.body), none)
    whole = np.minimum(covered / np.maximum(extent, 1), 1.0)
    used = sum(float(run.count.any()) for run in found)
    return TileStats(cut.tile, tiles, extent / np.maximum(tiles, 1), whole, used)


T = TypeVar("T")
K = TypeVar("K")


@dataclass(frozen=True)
class Ran:
    """A way of a nest, as calls run it.

    nest     its first stage
    way      the decisions
    around   loops that it shares with other nests
    taken    whether a call takes it, at each vector of sizes
    parts    what it consists of, in closed form: a packed copy first
    extents  of the nest's axes; none of a stage that the schedule adds
    """

    nest: str
    way: Way
    around: int
    taken: Values
    parts: tuple[NestCost, ...]
    extents: Mapping[str, Values]

    @memoize_method
    def of(self, function: Callable[[Ran], T]) -> T:
        """What a function gives of it: it is asked once, though many schedules run a nest so."""
        return function(self)

    def total(self, of: Callable[[NestCost], Any]) -> Values:
        """The sum of what a function gives of each part; 0 where no call takes this way."""
        return np.where(self.taken, sum(of(part) for part in self.parts), 0.0)

    @lazy_property
    def cycles(self) -> Values:
        """By the closed form."""
        return self.total(lambda part: part.cycles)

    def flop(self) -> Values:
        """Operations on elements."""
        return self.total(lambda part: part.flop)

    @lazy_property
    def rows(self) -> TileStats:
        """The tiles along the rows of its microkernel."""
        cover = self.way.cover
        axis = None if cover is None else cover.rows
        return tile_stats(self.way, axis, self.extents, np.ones(len(self.taken)))

    @lazy_property
    def columns(self) -> TileStats:
        """The tiles along the columns of its microkernel; of loops that nothing covers, along the last axis that is cut."""
        cover, splits = self.way.cover, self.way.splits
        axis = cover.columns if cover is not None else splits[-1].axis if splits else None
        return tile_stats(self.way, axis, self.extents, self.rows.length)


@dataclass(frozen=True)
class Case:
    """A schedule of a program on a machine, at each of `count` vectors of sizes.

    machine       that it is predicted for
    microkernels  that its tiles may name
    sizes         of the calls, by the program's names
    ways          of all nests, in order
    seconds       by the closed form
    threads       of a call, at most
    """

    schedule: Schedule
    machine: Machine
    microkernels: Mapping[str, Microkernel]
    sizes: Mapping[str, Values]
    ways: tuple[Ran, ...]
    seconds: Values
    threads: int = 1
    count: int = field(default=1)

    @lazy_property
    def cycles(self) -> Values:
        """By the closed form, on one core."""
        return sum((way.cycles for way in self.ways), np.zeros(self.count))

    @lazy_property
    def flop(self) -> Values:
        """Operations on elements."""
        return self.sum(Ran.flop)

    def sum(self, function: Callable[[Ran], Values]) -> Values:
        """The sum over the ways of what a function gives of each, by level where it does."""
        found: Values = np.sum([way.of(function) for way in self.ways], axis=0)
        return found

    @lazy_property
    def shares(self) -> Values:
        """Of each of `ways`, its share of the cycles: ``(ways, count)``."""
        cycles = np.array([way.cycles for way in self.ways])
        found: Values = cycles / np.maximum(cycles.sum(axis=0), 1e-15)
        return found

    def mean(self, values: Iterable[Values | float]) -> Values:
        """The mean of numbers, one for each of `ways` in order, by the share of the cycles."""
        given = list(values)
        if not any(isinstance(value, np.ndarray) for value in given):
            plain: Values = np.asarray(given, float) @ self.shares
            return plain
        whole = np.empty((len(given), self.count))
        for place, value in enumerate(given):
            whole[place] = value
        found: Values = np.einsum("wc,wc->c", self.shares, whole)
        return found

    def means(self, names: Sequence[K], rows: Sequence[Sequence[float]]) -> dict[K, Values]:
        """The means of several numbers, of which there is a row for each of `ways`, by the share of the cycles."""
        found = np.asarray(rows, float).reshape(len(self.ways), len(names)).T @ self.shares
        return dict(zip(names, found, strict=True))
