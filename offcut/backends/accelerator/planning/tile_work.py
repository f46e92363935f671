"""What tiles of a nest take, many tilings at once: words that are moved and computed on, by the axes of windows.

What a copy of a tile moves, or a store of results: words, by the axes of its window.

Words follow one another along the axes that tiles cut, then along those that they have all of, in both memories.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from statistics import fmean
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from offcut.backends.accelerator.isa import MemorySpace, Unit
from offcut.backends.accelerator.planning.elementary import Operations, lanes
from offcut.backends.accelerator.planning.roles import TYPICAL, typical_extents
from offcut.backends.accelerator.planning.staging import Staged
from offcut.backends.accelerator.spec import AcceleratorSpec
from offcut.core import index as ix
from offcut.core.expr import Compare, Const, Expr, Var, substitute, variables
from offcut.core.memo import lazy_property
from offcut.costmodel.clock import End, Ends, Work
from offcut.costmodel.resources import BUS
from offcut.proof.normal_forms.condition_hoisting import bound

Tile = tuple[int, int]
"""First iteration, and how many."""


@dataclass(frozen=True, slots=True)
class Part:
    """An axis of a window: the sum ``const + k * loop + …``.

    loops   (name, k)
    lane    elements of a word along it
    lo, hi  the elements that main memory has
    padded  whether there are others, which are filled
    whole   words of all that main memory has
    """

    loops: tuple[tuple[str, int], ...]
    const: int
    lane: int
    lo: int
    hi: int
    padded: bool
    whole: int

    @property
    def ends(self) -> Ends:
        """Return the ends of loops at which tiles are others: the last one is smaller, the first one lies over a border."""
        ends = (End.FIRST, End.LAST) if self.padded else (End.LAST,)
        return frozenset((loop, end) for loop, _ in self.loops for end in ends)

    def counts(self, tiles: Mapping[str, Tile]) -> tuple[int, int]:
        """Words of a tile, and how many of them are moved."""
        first, reach = self.const, 1
        for loop, k in self.loops:
            start, count = tiles[loop]
            first += k * start if k > 0 else k * (start + count - 1)
            reach += abs(k) * (count - 1)
        there = max(min(first + reach, self.hi) - max(first, self.lo), 0) if self.padded else reach
        return -(-reach // self.lane), -(-there // self.lane)


@dataclass(frozen=True)
class Transfer:
    """A copy, or what is stored, at the extents of the axes of its nest.

    place  of its words
    parts  by axis
    fill   the value of words that main memory has not
    """

    name: str
    place: MemorySpace
    parts: tuple[Part, ...]
    spec: AcceleratorSpec
    fill: int = 0

    @lazy_property
    def loops(self) -> frozenset[str]:
        """Those that move it."""
        return frozenset(loop for part in self.parts for loop, _ in part.loops)

    @lazy_property
    def ends(self) -> Ends:
        """Return the ends of loops at which tiles are others."""
        return frozenset().union(*(part.ends for part in self.parts))

    @property
    def unit(self) -> Unit:
        """Which moves it."""
        return Unit.STORE if self.place is MemorySpace.OUTPUTS else self.spec.loads[self.place]


def load_volume(
    copy: Staged,
    operations: Operations,
    spec: AcceleratorSpec,
    sizes: Mapping[str, int],
    shapes: Mapping[str, Sequence[Expr]],
) -> Transfer:
    """A copy with its numbers, at these sizes.

    shapes  of arrays in main memory
    """
    lane_counts, reached = lanes(operations, spec), typical_extents(sizes, copy.axes)
    loops = {axis.name for axis in (*operations.axes, *operations.terms)}
    known: dict[str, Expr] = {name: ix.const(size) for name, size in sizes.items()}
    parts = []
    for axis, part in zip(copy.axes, copy.index, strict=True):
        lo, hi = 0, reached[axis.name]
        for condition in copy.element.conditions if not copy.by_host else ():
            match bound(substitute(condition, known), axis.name):
                case Compare(">=", _, Const(end)):
                    lo = max(lo, int(end))
                case Compare("<", _, Const(end)):
                    hi = min(hi, int(end))
        form = ix.to_linear(part)
        terms = tuple((a.name, k) for a, k in form.terms if isinstance(a, Var) and a.name in loops)
        lane = lane_counts.get(part.name, 1) if isinstance(part, Var) else 1
        padded = (lo, hi) != (0, reached[axis.name])
        length = reached[axis.name] if copy.by_host else _length(copy, axis.name, shapes, known)
        parts.append(Part(terms, form.const, lane, lo, hi, padded, -(-length // lane)))
    fill = 0 if copy.by_host else copy.element.fill
    return Transfer(copy.name, copy.place, tuple(parts), spec, fill)


def _length(
    copy: Staged, axis: str, shapes: Mapping[str, Sequence[Expr]], sizes: Mapping[str, Expr]
) -> int:
    """Elements of the array along an axis of its copy."""
    load = copy.element.load
    along = zip(load.index, shapes[load.buffer], strict=True)
    extent = next((extent for part, extent in along if axis in variables(part)), ix.const(1))
    known = ix.literal_value(ix.simplify(substitute(extent, sizes)))
    return TYPICAL if known is None else known


def store_volume(
    operations: Operations, spec: AcceleratorSpec, extents: Mapping[str, int]
) -> Transfer:
    """Results, at these extents of the axes."""
    lane_counts = lanes(operations, spec)
    parts = (
        Part(((axis.name, 1),), 0, lane, 0, extent, padded=False, whole=-(-extent // lane))
        for axis in operations.axes
        for lane, extent in [(lane_counts.get(axis.name, 1), extents[axis.name])]
    )
    return Transfer(operations.label, MemorySpace.OUTPUTS, tuple(parts), spec)


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
