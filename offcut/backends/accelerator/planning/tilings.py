"""The tilings of a nest, many at once, and the one that the clock gives the fewest cycles.

Tilings that cut the same axes, in the same order, are the same loops with other turns: of each run the clock is told
what a full tile takes and what the last one along each axis takes, for all of them in arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, islice, permutations, product
from math import prod
from statistics import fmean
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from offcut.backends.accelerator.isa import MemorySpace, Unit
from offcut.backends.accelerator.planning.dma_volume import Part, Tile, Transfer
from offcut.backends.accelerator.planning.elementary import Operations
from offcut.backends.accelerator.planning.tiling import Tiling
from offcut.backends.accelerator.planning.window_usage import lanes
from offcut.backends.accelerator.simulator.cycles import bus_cycles
from offcut.backends.accelerator.spec import Spec
from offcut.core import index as ix
from offcut.core.expr import Binary, Load, walk
from offcut.core.memo import lazy_property
from offcut.core.program import Store
from offcut.costmodel.clock import Loop, Node, Run, busy, cycles

MAX_TILINGS = 1 << 16
"""Tilings of the same cut axes that are looked at; of more, every other size of an axis."""
MAX_ORDERS = 24
"""Orders of the loops over tiles of results, at most: all of four."""
BATCH = 64
"""Tilings that the clock takes at once: those whose busiest resource has least to do come first."""

RESULTS = "#"
"""The window of results; no user can name an array so."""

Counts: TypeAlias = NDArray[np.float64]
Truths: TypeAlias = NDArray[np.bool_]
Choices: TypeAlias = Mapping[str, NDArray[np.int64]]
"""By axis that is cut, the number of its option in each tiling."""


@dataclass(frozen=True)
class Tilings:
    """The tilings of a nest.

    extents  of all axes
    sizes    by axis that may be cut: its tiles, 0 where it is left whole
    windows  of results: as many as lie side by side
    """

    made: Operations
    spec: Spec
    extents: Mapping[str, int]
    copies: Sequence[Transfer]
    result: Transfer
    sizes: Mapping[str, Sequence[int]]
    windows: int

    def best(self, depth: int) -> Tiling | None:
        """Return the tiling with the fewest cycles; None if none fits.

        depth  windows that iterations may take in turn; 1: they have one each
        """
        best, least = None, np.inf
        for axes in self.cut_axes():
            options = {axis: [size for size in self.sizes[axis] if size] for axis in axes}
            while prod(map(len, options.values())) > MAX_TILINGS:
                longest = max(options, key=lambda axis: len(options[axis]))
                options[longest] = options[longest][::-2][::-1]
            same = SameLoops(self, axes, options)
            for order, turning in same.loops(depth):
                found, taken = same.fewest(order, turning, depth, least)
                if found is not None:
                    best, least = found, taken
        return best

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
    """Tilings that cut the same axes.

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

    def loops(self, depth: int) -> Iterator[tuple[tuple[str, ...], str | None]]:
        """Yield the orders of loops, and the one whose iterations take windows in turn; None: no loop's do."""
        for order in islice(permutations(self.results), MAX_ORDERS):
            whole = (*order, *self.terms)
            for turning in (None, *(order if depth > 1 else ())):
                yield whole, turning

    def level(self, what: Transfer, order: Sequence[str]) -> int:
        """Return the number of loops that a copy stands in."""
        return max((at for at, axis in enumerate(order, 1) if axis in what.loops), default=0)

    @lazy_property
    def every(self) -> Choices:
        """Return all tilings."""
        counts = [len(self.options[axis]) for axis in self.axes]
        found = np.indices(counts).reshape(len(counts), prod(counts))
        return dict(zip(self.axes, found, strict=True))

    def fewest(
        self, order: tuple[str, ...], turning: str | None, depth: int, least: float
    ) -> tuple[Tiling | None, float]:
        """Return the tiling that takes the fewest cycles, and these; None if none takes less than `least`."""
        inside = order.index(turning) if turning else len(order)
        depths: dict[Hashable, int] = {
            copy.name: depth if self.level(copy, order) > inside else 1 for copy in self.of.copies
        }
        depths[RESULTS] = depth if turning else 1
        fits = np.flatnonzero(self.fit(depths))
        if not fits.size:
            return None, least
        programs = _Programs(self, {axis: at[fits] for axis, at in self.every.items()}, order)
        bound = np.broadcast_to(busy(programs.body, self.of.spec.resources), fits.shape)
        ranked = np.argsort(bound, kind="stable")
        best = None
        for first in range(0, fits.size, BATCH):
            some = ranked[first : first + BATCH]
            some = some[bound[some] < least]
            if not some.size:
                break
            at = {axis: one[some] for axis, one in programs.at.items()}
            batch = _Programs(self, at, order)
            taken = cycles(batch.body, depths, self.of.spec.resources, some.size)
            number = int(taken.argmin())
            if taken[number] < least:
                tiles = tuple((axis, self.options[axis][at[axis][number]]) for axis in order)
                best = Tiling(tiles, order, (turning, depth) if turning else None)
                least = float(taken[number])
        return best, least

    def fit(self, depths: Mapping[Hashable, int]) -> Truths:
        """Return whether the windows of each tiling fit their memories."""
        spec = self.of.spec
        results = self.held(self.of.result)
        fits = results * depths[RESULTS] <= spec.words[MemorySpace.OUTPUTS].depth
        of = spec.words[MemorySpace.ACCUMULATORS]
        taken = {of.memory: (results * depths[RESULTS] * self.of.windows + 1) * of.bytes}
        for copy in self.of.copies:
            of = spec.words[copy.place]
            bytes_ = (self.held(copy) * depths[copy.name] + 1) * of.bytes
            taken[of.memory] = taken.get(of.memory, 0) + bytes_
        for memory, bytes_ in taken.items():
            fits = fits & (bytes_ <= spec.memories[memory])
        return np.asarray(np.broadcast_to(fits, (prod(map(len, self.options.values())),)))

    def held(self, what: Transfer) -> Counts:
        """Return the words of a window."""
        whole = {axis: (0, extent) for axis, extent in self.of.extents.items()}
        found = np.ones(1)
        for number, part in enumerate(what.parts):

            def words(sizes: Mapping[str, int], part: Part = part) -> float:
                return part.counts(whole | {axis: (0, size) for axis, size in sizes.items()})[0]

            loops = [loop for loop, _ in part.loops]
            found = found * self.table(("held", what.name, number), loops, words, self.every)
        return found

    def table(
        self,
        key: Hashable,
        loops: Sequence[str],
        number: Callable[[Mapping[str, int]], float],
        at: Choices,
    ) -> Counts:
        """Return a number that the tiles along some loops say, for each tiling.

        key  under which the numbers of all options are kept
        """
        axes = [axis for axis in self.axes if axis in loops]
        if key not in self._tables:
            every = product(*(self.options[axis] for axis in axes))
            each = [number(dict(zip(axes, sizes, strict=True))) for sizes in every]
            shape = [len(self.options[axis]) for axis in axes]
            self._tables[key] = np.array(each, float).reshape(shape)
        values = self._tables[key]
        return np.asarray(values[tuple(at[axis] for axis in axes)]) if axes else values.reshape(1)

    @lazy_property
    def _tables(self) -> dict[Hashable, Counts]:
        return {}

    def tiles(self, axis: str, size: int, last: bool) -> list[Tile]:
        """Return the last tile along an axis, or those before it; of one tile, itself."""
        extent = self.of.extents[axis]
        found = [(start, min(size, extent - start)) for start in range(0, extent, size)]
        return found[-1:] if last or len(found) == 1 else found[:-1]


class _Programs:
    """The programs of some tilings, in an order of loops.

    at  the option of each axis, by tiling
    """

    def __init__(self, same: SameLoops, at: Choices, order: Sequence[str]) -> None:
        self.same, self.at, self.order = same, at, order
        self.of, self.spec, self.made = same.of, same.of.spec, same.of.made
        self.words = lanes(self.made, self.spec)
        self.known: dict[tuple[str, frozenset[str]], tuple[Counts, Counts]] = {}
        own = {buffer.name for buffer in self.made.buffers}
        self.ends = [step for step in self.made.steps if step.buffer in own]
        self.stores = len(self.made.steps) - len(self.ends)

    @lazy_property
    def body(self) -> tuple[Node, ...]:
        """Return the program: in each loop its copies, then the loops inside; around a tile of results its sum."""
        return self.level(0)

    def level(self, at: int) -> tuple[Node, ...]:
        """Return what stands in the first `at` loops."""
        if at == len(self.same.results):
            return (*self.loads(at), *self.tile())
        return (*self.loads(at), self.loop(at, self.level(at + 1)))

    def loop(self, at: int, body: tuple[Node, ...]) -> Loop:
        """Return a loop over tiles."""
        axis = self.order[at]
        extent = self.of.extents[axis]
        turns = self.same.table(
            ("turns", axis), [axis], lambda sizes: -(-extent // sizes[axis]), self.at
        )
        return Loop(axis, turns, body)

    def loads(self, at: int) -> Iterator[Run]:
        """Yield the copies that stand in the first `at` loops."""
        for copy in self.of.copies:
            if self.same.level(copy, self.order) == at:
                yield Run(copy.unit.value, self.moved(copy), (), (copy.name,), fills=True)

    def tile(self) -> Iterator[Node]:
        """Yield a tile of results: its sum, the operations behind it, its stores."""
        if self.made.lead is not None:
            yield self.compute(1, self.spec.gemm_cycles, (), fills=True)
            yield from self.sums(len(self.same.results))
        names = [copy.name for copy in self.of.copies]
        others = tuple(name for name in names if name not in self.summed)
        each = cycles_behind(self.made, self.spec)
        yield self.compute(len(self.ends), each, others, fills=self.made.lead is None)
        for _ in range(self.stores):
            yield Run(self.of.result.unit.value, self.moved(self.of.result), (RESULTS,))

    def sums(self, at: int) -> Iterator[Node]:
        """Yield the loops over tiles of terms."""
        if at == len(self.order):
            each = self.spec.gemm_cycles if multiplies(self.made) else self.spec.operand_cycles
            yield self.compute(1, each, tuple(self.summed), over_terms=True)
            return
        yield self.loop(at, (*self.loads(at + 1), *self.sums(at + 1)))

    @lazy_property
    def summed(self) -> list[str]:
        """Return the copies that the sum reads."""
        assert self.made.lead is not None or not self.same.terms
        value = None if self.made.lead is None else self.made.lead[1].value
        reads = {one.buffer for one in walk(value) if isinstance(one, Load)} if value else set()
        return [copy.name for copy in self.of.copies if copy.name in reads]

    def compute(
        self, instructions: int, each: float, reads: tuple[str, ...], fills: bool = False, over_terms: bool = False
    ) -> Run:
        """Return a run of the compute unit: so many cycles for each word of results, or of products."""
        axes = (*self.made.axes, *(self.made.terms if over_terms else ()))
        start = instructions * self.spec.instruction_cycles[Unit.COMPUTE]

        def taken(last: frozenset[str]) -> tuple[Counts, Counts]:
            words = np.ones(1)
            for axis in axes:
                words = words * self.along(axis.name, axis.name in last)
            return start + words * each, np.zeros(1)

        return Run(Unit.COMPUTE.value, taken, reads, (RESULTS,), fills)

    def along(self, axis: str, last: bool) -> Counts:
        """Return the words along an axis in a tile."""
        lane = self.words.get(axis, 1)
        if axis not in self.same.axes:
            return np.full(1, float(-(-self.of.extents[axis] // lane)))

        def words(sizes: Mapping[str, int]) -> float:
            return fmean(-(-count // lane) for _, count in self.same.tiles(axis, sizes[axis], last))

        return self.same.table(("along", axis, last), [axis], words, self.at)

    def moved(self, what: Transfer) -> Callable[[frozenset[str]], tuple[Counts, Counts]]:
        """Return the cycles of what moves words, without the bus and with it."""
        moving = frozenset(what.loops) & frozenset(self.order)

        def taken(last: frozenset[str]) -> tuple[Counts, Counts]:
            key = what.name, last & moving
            if key not in self.known:
                self.known[key] = self.moves(what, last & moving)
            return self.known[key]

        return taken

    def moves(self, what: Transfer, last: frozenset[str]) -> tuple[Counts, Counts]:
        """Return the cycles of an instance, as `Transfer.cycles` has them of one tile."""
        cut = set(self.order)
        ordered = sorted(what.parts, key=lambda part: not any(loop in cut for loop, _ in part.loops))
        words = moved = rows = calls = np.ones(1)
        in_row = before_column = np.ones(1, bool)
        for part in reversed(ordered):
            count, there = self.counts((what.name, what.parts.index(part)), part, last)
            words, moved = words * count, moved * there
            rows = rows * np.where(in_row, 1.0, there)
            calls = calls * np.where(in_row | before_column, 1.0, count)
            before_column = before_column & (in_row | (count == 1))
            in_row = in_row & (count == there) & (there == part.whole)
        of = self.spec.words[what.place]
        own = calls * self.spec.instruction_cycles[what.unit] + (words - moved) * of.fill_cycles
        return own, np.asarray(bus_cycles(self.spec, what.place, rows, moved))

    def counts(self, key: Hashable, part: Part, last: frozenset[str]) -> tuple[Counts, Counts]:
        """Return the words along an axis of a window, and how many of them main memory has: the mean of the tiles."""
        loops = [loop for loop, _ in part.loops]
        last = last & frozenset(loops)

        def mean(which: int) -> Counts:
            def number(sizes: Mapping[str, int]) -> float:
                tiles = [self.same.tiles(axis, size, axis in last) for axis, size in sizes.items()]
                whole = {axis: (0, extent) for axis, extent in self.of.extents.items()}
                return fmean(
                    part.counts(whole | dict(zip(sizes, one, strict=True)))[which]
                    for one in product(*tiles)
                )

            return self.same.table((key, which, last), loops, number, self.at)

        return mean(0), mean(1)


def multiplies(made: Operations) -> bool:
    """Return whether its sum is of products, which the matrix unit adds up."""
    return made.roles.depth is not None or any(
        copy.place is MemorySpace.WEIGHTS for copy in made.copies
    )


def cycles_behind(made: Operations, spec: Spec) -> float:
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
    made: Operations, spec: Spec, extents: Mapping[str, int]
) -> dict[str, tuple[int, ...]]:
    """Return the tiles of each axis that may be cut; windows of a sum stay whole where their extent is known."""
    words = lanes(made, spec)
    found = {}
    for axis in (*made.axes, *made.terms):
        known, count = ix.literal_value(axis.extent), words.get(axis.name, 1)
        inside = axis in made.terms and axis.name not in words
        if known is None or (known > count and not inside):
            found[axis.name] = sizes(extents[axis.name], count, known is not None)
    return found


def sizes(extent: int, words: int, bounded: bool) -> tuple[int, ...]:
    """Return tiles that cut an extent into so many of about one size, by whole words, and powers of two: any other has as
    many tiles as the next smaller one, and takes more room.

    bounded  whether the axis may be left whole: 0
    """
    count = -(-extent // words)
    even = {-(-count // parts) for parts in range(1, count + 1)}
    powers = {2**k for k in range(count.bit_length()) if 2**k <= count}
    found = sorted(words * size for size in even | powers if not bounded or size < count)
    return (*found, 0) if bounded else tuple(found)
