"""What tiles of a nest take, many tilings at once: words that are moved and computed on, by the axes of windows."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from statistics import fmean
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from offcut.backends.accelerator.isa import Unit
from offcut.backends.accelerator.planning.dma_volume import Part, Tile, Transfer
from offcut.backends.accelerator.planning.elementary import Operations
from offcut.backends.accelerator.spec import AcceleratorSpec
from offcut.core import index as ix
from offcut.core.memo import lazy_property
from offcut.costmodel.resources import BUS
from offcut.costmodel.unit_program import End, Ends, Work

Counts: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True)
class NestAtSizes:
    """A nest at some sizes, with what its copies and its stores move there.

    extents  of all axes
    """

    made: Operations
    spec: AcceleratorSpec
    extents: Mapping[str, int]
    copies: Sequence[Transfer]
    result: Transfer

    @lazy_property
    def numbers(self) -> dict[Hashable, float]:
        """Return what has been computed of tiles, by its key, the axes that are cut, and their tiles."""
        return {}

    def is_open(self, axis: str) -> bool:
        """Return whether the extent of an axis is one of a call."""
        axes = (*self.made.axes, *self.made.terms)
        return any(one.name == axis and ix.literal_value(one.extent) is None for one in axes)


@dataclass(frozen=True)
class TileWork:
    """What tiles take: arrays have a number for each of the tilings that cut the same axes.

    options  by axis, its tiles
    """

    of: NestAtSizes
    axes: tuple[str, ...]
    options: Mapping[str, Sequence[int]]

    @lazy_property
    def results(self) -> list[str]:
        """Return the axes of results."""
        terms = {axis.name for axis in self.of.made.terms}
        return [axis for axis in self.axes if axis not in terms]

    @lazy_property
    def terms(self) -> list[str]:
        """Return the axes of the sum."""
        return [axis for axis in self.axes if axis not in self.results]

    @property
    def count(self) -> int:
        """Return how many there are."""
        return prod(map(len, self.options.values()))

    @lazy_property
    def every(self) -> Mapping[str, NDArray[np.int64]]:
        """Return the number of each axis's option, by tiling."""
        counts = [len(self.options[axis]) for axis in self.axes]
        numbers = np.indices(counts).reshape(len(counts), self.count)
        return dict(zip(self.axes, numbers, strict=True))

    def level(self, what: Transfer, order: Sequence[str]) -> int:
        """Return the number of loops that a copy stands in."""
        return max((at for at, axis in enumerate(order, 1) if axis in what.loops), default=0)

    def beside(self, order: Sequence[str]) -> frozenset[str]:
        """Return the copies that stand in the loop of the tile, in an order of loops."""
        inmost = len(self.results)
        return frozenset(c.name for c in self.of.copies if self.level(c, order) == inmost)

    def window_words(self, what: Transfer) -> Counts:
        """Return the words of a window."""
        whole = {axis: (0, extent) for axis, extent in self.of.extents.items()}
        count = np.ones(1)
        for number, part in enumerate(what.parts):

            def words(sizes: Mapping[str, int], part: Part = part) -> float:
                return part.counts(whole | {axis: (0, size) for axis, size in sizes.items()})[0]

            loops = [loop for loop, _ in part.loops]
            count = count * self.table(("held", what.name, number), loops, words)
        return count

    def table(
        self, key: Hashable, loops: Sequence[str], number: Callable[[Mapping[str, int]], float]
    ) -> Counts:
        """Return a number that the tiles along some loops say, computed once for a key: of no loop that is cut, alone."""
        if key not in self.memo:
            axes, known = [axis for axis in self.axes if axis in loops], self.of.numbers
            each = list[float]()
            for sizes in product(*(self.options[axis] for axis in axes)):
                at_sizes = key, *zip(axes, sizes, strict=True)
                if at_sizes not in known:
                    known[at_sizes] = number(dict(zip(axes, sizes, strict=True)))
                each.append(known[at_sizes])
            values = np.array(each, float).reshape([len(self.options[axis]) for axis in axes])
            at = tuple(self.every[axis] for axis in axes)
            self.memo[key] = values[at] if axes else values.reshape(1)
        numbers: Counts = self.memo[key]
        return numbers

    @lazy_property
    def memo(self) -> dict[Hashable, Any]:
        """Return what has been computed, by its key."""
        return {}

    def tiles(self, axis: str, size: int, ends: Ends) -> list[Tile]:
        """Return the tile at an end of an axis, or those between; of one tile, itself."""
        extent = self.of.extents[axis]
        tiles = [(start, min(size, extent - start)) for start in range(0, extent, size)]
        if (axis, End.LAST) in ends or len(tiles) == 1:
            return tiles[-1:]
        return tiles[:1] if (axis, End.FIRST) in ends else tiles[1:-1] or tiles[:1]

    def turns(self, axis: str) -> Counts:
        """Return the number of tiles along an axis."""
        extent = self.of.extents[axis]
        return self.table(("turns", axis), [axis], lambda sizes: -(-extent // sizes[axis]))

    def along(self, axis: str, lane: int, ends: Ends) -> Counts:
        """Return the words along an axis in a tile at its ends, or the mean of the others."""
        if axis not in self.axes:
            return np.full(1, float(-(-self.of.extents[axis] // lane)))

        def words(sizes: Mapping[str, int]) -> float:
            return fmean([-(-count // lane) for _, count in self.tiles(axis, sizes[axis], ends)])

        return self.table(("along", axis, ends), [axis], words)

    def moves(self, what: Transfer, ends: Ends) -> Work:
        """Return what an instance takes at ends of `what.ends`."""
        key = "moves", what.name, ends
        if key in self.memo:
            work: Work = self.memo[key]
            return work
        ordered = sorted(
            enumerate(what.parts), key=lambda one: not any(a in self.axes for a, _ in one[1].loops)
        )
        words = words_on_bus = rows = calls = np.ones(1)
        missing = np.zeros(1)  # of the axes that one instruction runs along
        in_row = before_column = np.ones(1, bool)
        for number, part in reversed(ordered):
            count, there = (self.part((what.name, number), part, which, ends) for which in (0, 1))
            words, words_on_bus = words * count, words_on_bus * there
            rows = rows * np.where(in_row, 1.0, there)
            calls = calls * np.where(in_row | before_column, 1.0, count)
            missing = missing + np.where(in_row | before_column, count - there, 0.0)
            before_column = before_column & (in_row | (count == 1))
            in_row = in_row & (count == there) & (there == part.whole)
        spec = self.of.spec
        of = spec.words[what.place]
        size = -(-of.bytes // spec.beat) * spec.beat
        zeros = (words - words_on_bus) * of.fill_cycles
        if (
            what.fill
        ):  # windows of which a part is missing: filled by the vector unit, then moved row by row
            zeros = np.zeros(1)
            padded = np.minimum(missing, 1.0)
            self.memo["boxes", *key[1:]] = np.maximum(np.round(calls), 1)
            self.memo["fills", *key[1:]] = self.fills_of(calls, words - (1 - padded) * words_on_bus)
            calls = (1 - padded) * calls + padded * rows
        own = calls * spec.instruction_cycles[what.unit] + zeros
        bus = spec.resources[BUS].cycles(rows, words_on_bus * size)
        self.memo[key] = Work(own, bus, calls)
        return self.moves(what, ends)

    def fills_of(self, calls: Counts, words: Counts) -> Work:
        """Return what it takes the vector unit to fill words with a value."""
        spec = self.of.spec
        each = spec.gemm_cycles + spec.immediate_cycles
        instructions = np.where(words > 0, 2 * calls, 0.0)
        start = instructions * spec.instruction_cycles[Unit.COMPUTE]
        return Work(start + words * each, np.zeros(1), instructions)

    def fills(self, what: Transfer, ends: Ends) -> Work:
        """Return what it takes to fill a window with what main memory has not; `ends` as in `moves`."""
        self.moves(what, ends)
        work: Work = self.memo["fills", what.name, ends]
        return work

    def boxes(self, what: Transfer) -> Counts:
        """Return in how many boxes, each of rows side by side, that is done."""
        self.moves(what, frozenset())
        boxes: Counts = self.memo["boxes", what.name, frozenset()]
        return boxes

    def part(self, key: Hashable, part: Part, which: int, ends: Ends) -> Counts:
        """Return the words along an axis of a window, or how many of them main memory has: the mean of the tiles."""
        loops, own = [loop for loop, _ in part.loops], ends & part.ends
        whole = {axis: (0, extent) for axis, extent in self.of.extents.items()}

        def number(sizes: Mapping[str, int]) -> float:
            tiles = [self.tiles(axis, size, own) for axis, size in sizes.items()]
            each = [whole | dict(zip(sizes, one, strict=True)) for one in product(*tiles)]
            return fmean([part.counts(one)[which] for one in each])

        return self.table((key, which, own), loops, number)
