"""The tilings of a nest, many at once, and the one that the clock gives the fewest cycles.

Tilings that cut the same axes, in the same order, are the same loops with other turns: of each run the clock is told
what a full tile takes and what the last one along each axis takes, for all of them in arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, islice, permutations, product
from math import prod
from statistics import fmean
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from offcut.backends.accelerator.isa import MemorySpace, Unit
from offcut.backends.accelerator.planning.dma_volume import Part, Tile, Transfer
from offcut.backends.accelerator.planning.elementary import Operations, lanes
from offcut.backends.accelerator.planning.tiling import Tiling
from offcut.backends.accelerator.spec import AcceleratorSpec
from offcut.core import index as ix
from offcut.core.expr import Binary, Load, walk
from offcut.core.memo import lazy_property
from offcut.core.program import Store
from offcut.costmodel.clock import Loop, Node, Run, busy, cycles
from offcut.costmodel.resources import BUS

MAX_TILINGS = 1 << 16
"""Tilings of the same cut axes that are looked at; of more, every other size of an axis."""
MAX_ORDERS = 24
"""Orders of the loops over tiles of results, at most: all of four."""
BATCH = 256
"""Tilings that the clock takes at once: those whose busiest resource has least to do come first."""

RESULTS = "#"
"""The window of results; no user can name an array so."""

Counts: TypeAlias = NDArray[np.float64]
Truths: TypeAlias = NDArray[np.bool_]


@dataclass(frozen=True)
class Tilings:
    """The tilings of a nest.

    extents  of all axes
    sizes    by axis that may be cut: its tiles, 0 where it is left whole
    windows  of results: as many as lie side by side
    """

    made: Operations
    spec: AcceleratorSpec
    extents: Mapping[str, int]
    copies: Sequence[Transfer]
    result: Transfer
    sizes: Mapping[str, Sequence[int]]
    windows: int

    def best(self, depth: int) -> Tiling | None:
        """Return the tiling with the fewest cycles; None if none fits.

        depth  windows that iterations may take in turn; 1: they have one each
        """
        ranked = sorted(
            (one for same in self.same_loops() for one in same.candidates(depth)),
            key=lambda one: one.least,
        )
        best, least = None, np.inf
        for one in ranked:
            if one.least >= least:
                break
            tiling, cycles_of_tiling = one.fewest(least)
            if tiling is not None:
                best, least = tiling, cycles_of_tiling
        return best

    def same_loops(self) -> Iterator[SameLoops]:
        """Yield the tilings by the axes that they cut."""
        for axes in self.cut_axes():
            options = {axis: [size for size in self.sizes[axis] if size] for axis in axes}
            while prod(map(len, options.values())) > MAX_TILINGS:
                longest = max(options, key=lambda axis: len(options[axis]))
                options[longest] = options[longest][::-2][::-1]
            yield SameLoops(self, axes, options)

    def cut_axes(self) -> Iterator[tuple[str, ...]]:
        """Yield the axes that are cut: all that have to be, and some of the others."""
        free = [axis for axis, sizes in self.sizes.items() if 0 in sizes]
        for count in range(len(free) + 1):
            for some in combinations(free, count):
                cut = (axis for axis in self.sizes if axis not in free or axis in some)
                axes = tuple(axis for axis in cut if any(self.sizes[axis]))
                if len(axes) == len(self.sizes) - len(free) + count:
                    yield axes


@dataclass(frozen=True)
class SameLoops:
    """Tilings that cut the same axes: arrays have a number for each.

    options  by axis, its tiles
    """

    of: Tilings
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

    def candidates(self, depth: int) -> Iterator[Candidates]:
        """Yield the tilings that fit, by the order of their loops and the loop whose iterations take windows in turn: those that
        do come first, as the bus delays them less than the clock says.
        """
        for order in islice(permutations(self.results), MAX_ORDERS):
            loops = (*order, *self.terms)
            body = _Body(self, loops).nodes
            bound = np.broadcast_to(busy(body, self.of.spec.resources), (self.count,))
            for turning in (*(order if depth > 1 else ()), None):
                inside = loops.index(turning) if turning else len(loops)
                depths: dict[Hashable, int] = {
                    copy.name: depth if self.level(copy, loops) > inside else 1
                    for copy in self.of.copies
                }
                depths[RESULTS] = depth if turning else 1
                fits = np.flatnonzero(self.fit(depths))
                if fits.size:
                    which = fits[np.argsort(bound[fits], kind="stable")]
                    turns = (turning, depth) if turning else None
                    yield Candidates(self, loops, turns, depths, body, which, bound)

    def level(self, what: Transfer, order: Sequence[str]) -> int:
        """Return the number of loops that a copy stands in."""
        return max((at for at, axis in enumerate(order, 1) if axis in what.loops), default=0)

    def fit(self, depths: Mapping[Hashable, int]) -> Truths:
        """Return whether the windows of each tiling fit their memories."""
        spec = self.of.spec
        results = self.window_words(self.of.result) * depths[RESULTS]
        fits = results <= spec.words[MemorySpace.OUTPUTS].depth
        of = spec.words[MemorySpace.ACCUMULATORS]
        bytes_in = {of.memory: (results * self.of.windows + 1) * of.bytes}
        for copy in self.of.copies:
            of = spec.words[copy.place]
            bytes_ = (self.window_words(copy) * depths[copy.name] + 1) * of.bytes
            bytes_in[of.memory] = bytes_in.get(of.memory, 0) + bytes_
        for memory, bytes_ in bytes_in.items():
            fits = fits & (bytes_ <= spec.memories[memory])
        return np.asarray(np.broadcast_to(fits, (self.count,)))

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
        if key not in self.known:
            axes = [axis for axis in self.axes if axis in loops]
            every = product(*(self.options[axis] for axis in axes))
            each = [number(dict(zip(axes, sizes, strict=True))) for sizes in every]
            values = np.array(each, float).reshape([len(self.options[axis]) for axis in axes])
            at = tuple(self.every[axis] for axis in axes)
            self.known[key] = values[at] if axes else values.reshape(1)
        numbers: Counts = self.known[key]
        return numbers

    @lazy_property
    def known(self) -> dict[Hashable, Any]:
        """Return what has been computed, by its key."""
        return {}

    def tiles(self, axis: str, size: int, last: bool) -> list[Tile]:
        """Return the last tile along an axis, or those before it; of one tile, itself."""
        extent = self.of.extents[axis]
        tiles = [(start, min(size, extent - start)) for start in range(0, extent, size)]
        return tiles[-1:] if last or len(tiles) == 1 else tiles[:-1]

    def turns(self, axis: str) -> Counts:
        """Return the number of tiles along an axis."""
        extent = self.of.extents[axis]
        return self.table(("turns", axis), [axis], lambda sizes: -(-extent // sizes[axis]))

    def along(self, axis: str, lane: int, last: bool) -> Counts:
        """Return the words along an axis in a tile: the last one, or the mean of those before."""
        if axis not in self.axes:
            return np.full(1, float(-(-self.of.extents[axis] // lane)))

        def words(sizes: Mapping[str, int]) -> float:
            return fmean(-(-count // lane) for _, count in self.tiles(axis, sizes[axis], last))

        return self.table(("along", axis, last), [axis], words)

    def moves(self, what: Transfer, last: frozenset[str]) -> tuple[Counts, Counts]:
        """Return the cycles of an instance without the bus and with it, as `Transfer.cycles` has them of one tile.

        last  the loops that are in their last turn
        """
        key = "moves", what.name, last & what.loops
        if key in self.known:
            cached: tuple[Counts, Counts] = self.known[key]
            return cached
        ordered = sorted(
            enumerate(what.parts), key=lambda one: not any(a in self.axes for a, _ in one[1].loops)
        )
        words = words_on_bus = rows = calls = np.ones(1)
        in_row = before_column = np.ones(1, bool)
        for number, part in reversed(ordered):
            count, there = (self.part((what.name, number), part, which, last) for which in (0, 1))
            words, words_on_bus = words * count, words_on_bus * there
            rows = rows * np.where(in_row, 1.0, there)
            calls = calls * np.where(in_row | before_column, 1.0, count)
            before_column = before_column & (in_row | (count == 1))
            in_row = in_row & (count == there) & (there == part.whole)
        spec = self.of.spec
        of = spec.words[what.place]
        size = -(-of.bytes // spec.beat) * spec.beat
        own = calls * spec.instruction_cycles[what.unit] + (words - words_on_bus) * of.fill_cycles
        self.known[key] = own, self.of.spec.resources[BUS].cycles(rows, words_on_bus * size)
        return self.moves(what, last)

    def part(self, key: Hashable, part: Part, which: int, last: frozenset[str]) -> Counts:
        """Return the words along an axis of a window, or how many of them main memory has: the mean of the tiles."""
        loops = [loop for loop, _ in part.loops]
        whole = {axis: (0, extent) for axis, extent in self.of.extents.items()}

        def number(sizes: Mapping[str, int]) -> float:
            tiles = [self.tiles(axis, size, axis in last) for axis, size in sizes.items()]
            each = (whole | dict(zip(sizes, one, strict=True)) for one in product(*tiles))
            return fmean(part.counts(one)[which] for one in each)

        return self.table((key, which, last & frozenset(loops)), loops, number)


@dataclass(frozen=True)
class Candidates:
    """Tilings of the same loops in the same order.

    which  those that fit, the one whose busiest resource has least to do first; bound: what that takes, of all
    """

    same: SameLoops
    order: tuple[str, ...]
    turns: tuple[str, int] | None
    depths: Mapping[Hashable, int]
    body: tuple[Node, ...]
    which: NDArray[np.int64]
    bound: Counts

    @property
    def least(self) -> float:
        """Return the cycles that none of them is below."""
        return float(self.bound[self.which[0]])

    def fewest(self, least: float) -> tuple[Tiling | None, float]:
        """Return the tiling that takes the fewest cycles, and these; None if none takes less than `least`."""
        best = None
        for first in range(0, self.which.size, BATCH):
            some = self.which[first : first + BATCH]
            some = some[self.bound[some] < least]
            if not some.size:
                break
            counts = cycles(self.body, self.depths, self.same.of.spec.resources, some)
            number = int(counts.argmin())
            if counts[number] < least:
                least, at = float(counts[number]), some[number]
                same = self.same
                tiles = ((axis, same.options[axis][same.every[axis][at]]) for axis in self.order)
                best = Tiling(tuple(tiles), self.order, self.turns)
        return best, least


class _Body:
    """The program of tilings in an order of loops."""

    def __init__(self, same: SameLoops, order: Sequence[str]) -> None:
        self.same, self.order = same, order
        self.of, self.spec, self.made = same.of, same.of.spec, same.of.made
        self.words = lanes(self.made, self.spec)
        own = {buffer.name for buffer in self.made.buffers}
        self.ends = [step for step in self.made.steps if step.buffer in own]
        lead = self.made.lead
        reads = () if lead is None else (o for o in walk(lead[1].value) if isinstance(o, Load))
        summed = {one.buffer for one in reads}
        names = [copy.name for copy in self.of.copies]
        self.summed = tuple(name for name in names if name in summed)
        self.others = tuple(name for name in names if name not in summed)

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Return it: in each loop its copies, then the loops inside; in the last one a tile of results."""
        return self.level(0)

    def level(self, at: int) -> tuple[Node, ...]:
        """Return what stands in the first `at` loops."""
        if at == len(self.same.results):
            return (*self.loads(at), *self.tile())
        return (*self.loads(at), self.loop(at, self.level(at + 1)))

    def loop(self, at: int, body: tuple[Node, ...]) -> Loop:
        """Return a loop over tiles."""
        return Loop(self.order[at], self.same.turns(self.order[at]), body)

    def loads(self, at: int) -> Iterator[Run]:
        """Yield the copies that stand in the first `at` loops."""
        for copy in self.of.copies:
            if self.same.level(copy, self.order) == at:
                moves = partial(self.same.moves, copy)
                yield Run(copy.unit.value, moves, writes=(copy.name,), fills=True)

    def tile(self) -> Iterator[Node]:
        """Yield a tile of results: its sum, the operations behind it, its stores."""
        if self.made.lead is not None:
            yield self.compute(1, self.spec.gemm_cycles, (), fills=True)
            yield from self.sums(len(self.same.results))
        behind, begins = cycles_behind(self.made, self.spec), self.made.lead is None
        yield self.compute(len(self.ends), behind, self.others, fills=begins)
        result = self.of.result
        for _ in range(len(self.made.steps) - len(self.ends)):
            yield Run(result.unit.value, partial(self.same.moves, result), reads=(RESULTS,))

    def sums(self, at: int) -> Iterator[Node]:
        """Yield the loops over tiles of terms."""
        if at < len(self.order):
            yield self.loop(at, (*self.loads(at + 1), *self.sums(at + 1)))
            return
        each = self.spec.gemm_cycles if multiplies(self.made) else self.spec.operand_cycles
        yield self.compute(1, each, self.summed, over_terms=True)

    def compute(
        self,
        instructions: int,
        each: float,
        reads: tuple[str, ...],
        fills: bool = False,
        over_terms: bool = False,
    ) -> Run:
        """Return a run of the compute unit: so many cycles for each word of results, or of products."""
        axes = [axis.name for axis in (*self.made.axes, *(self.made.terms if over_terms else ()))]
        start = instructions * self.spec.instruction_cycles[Unit.COMPUTE]
        cycles_by_loops: dict[frozenset[str], tuple[Counts, Counts]] = {}

        def taken(last: frozenset[str]) -> tuple[Counts, Counts]:
            key = last & frozenset(axes)
            if key not in cycles_by_loops:
                words = np.ones(1)
                for axis in axes:
                    words = words * self.same.along(axis, self.words.get(axis, 1), axis in last)
                cycles_by_loops[key] = start + words * each, np.zeros(1)
            return cycles_by_loops[key]

        return Run(Unit.COMPUTE.value, taken, reads, (RESULTS,), fills)


def multiplies(made: Operations) -> bool:
    """Return whether its sum is of products, which the matrix unit adds up."""
    return made.roles.depth is not None or any(
        copy.place is MemorySpace.WEIGHTS for copy in made.copies
    )


def cycles_behind(made: Operations, spec: AcceleratorSpec) -> float:
    """Return the cycles of the operations behind a sum, for a word of results."""
    own = {buffer.name for buffer in made.buffers}
    return sum(
        spec.operand_cycles if _reads_two(step) else spec.immediate_cycles
        for step in made.steps
        if step.buffer in own
    )


def _reads_two(step: Store) -> bool:
    """Return whether an operation takes a second word."""
    value = step.value
    return isinstance(value, Binary) and isinstance(value.a, Load) and isinstance(value.b, Load)


def sizes_of(
    made: Operations, spec: AcceleratorSpec, extents: Mapping[str, int]
) -> dict[str, tuple[int, ...]]:
    """Return the tiles of each axis that may be cut; windows of a sum stay whole where their extent is known."""
    words = lanes(made, spec)
    sizes_by_axis = {}
    for axis in (*made.axes, *made.terms):
        extent, count = ix.literal_value(axis.extent), words.get(axis.name, 1)
        inside = axis in made.terms and axis.name not in words
        if extent is None or (extent > count and not inside):
            sizes_by_axis[axis.name] = sizes(extents[axis.name], count, extent is not None)
    return sizes_by_axis


def sizes(extent: int, words: int, bounded: bool) -> tuple[int, ...]:
    """Return tiles that cut an extent into so many of about one size, by whole words, and powers of two: any other has as
    many tiles as the next smaller one, and takes more room.

    bounded  whether the axis may be left whole: 0
    """
    count = -(-extent // words)
    even = {-(-count // parts) for parts in range(1, count + 1)}
    powers = {2**k for k in range(count.bit_length()) if 2**k <= count}
    multiples = sorted(words * size for size in even | powers if not bounded or size < count)
    return (*multiples, 0) if bounded else tuple(multiples)
