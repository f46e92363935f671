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
from offcut.backends.accelerator.planning.step_costs import (
    StepCost,
    cost_behind,
    start_cost,
    update_cost,
    windows_of_results,
)
from offcut.backends.accelerator.planning.tiling import Tiling
from offcut.backends.accelerator.spec import AcceleratorSpec
from offcut.core import index as ix
from offcut.core.expr import Load
from offcut.core.expr import walk as nodes_of
from offcut.core.memo import lazy_property
from offcut.costmodel.clock import End, Ends, Loop, Node, Run, Work, busy, cycles, fused
from offcut.costmodel.resources import BUS
from offcut.costmodel.walk import walk

MAX_TILINGS = 1 << 16
"""Tilings of the same cut axes that are looked at; of more, every other size of an axis."""
MAX_ORDERS = 24
"""Orders of the loops over tiles of results, at most: all of four."""
BATCH = 256
"""Tilings that the clock takes at once: those whose busiest resource has least to do come first."""

DRAFTED = 2
"""Sizes at which tilings are ranked by the clock: the typical ones, and the first of the others."""
WALKED, NEAR = 16, 1.1
"""Tilings that are walked turn by turn, at most of those that the clock likes at a size, and how many more cycles than the fewest
it may give them."""

BOX, BOXES = "box of ", 4
"""The window of a box that the vector unit fills, and how many of them it is ahead of rows at most."""
NO_WORK = Work(np.zeros(1), np.zeros(1), np.zeros(1))

RESULTS = "#"
"""The window of results; no user can name an array so."""

Counts: TypeAlias = NDArray[np.float64]
Truths: TypeAlias = NDArray[np.bool_]


@dataclass(frozen=True)
class Tilings:
    """The tilings of a nest.

    extents  of all axes
    sizes    by axis that may be cut: its tiles, 0 where it is left whole
    """

    made: Operations
    spec: AcceleratorSpec
    extents: Mapping[str, int]
    copies: Sequence[Transfer]
    result: Transfer
    sizes: Mapping[str, Sequence[int]]

    def best(self, depth: int, others: Sequence[Tilings] = ()) -> Tiling | None:
        """Return the tiling that takes the fewest cycles turn by turn, of those to which the clock gives the fewest; None if none
        fits.

        depth   windows that iterations may take in turn; 1: they have one each
        others  the same at other sizes: the longer a tiling takes there, beside the best of them, the less it is worth
        """
        at_sizes = (self, *others)
        drafted = at_sizes[:DRAFTED]
        tilings = list(dict.fromkeys(one for at in drafted for one in at.nearest(depth)))
        if not tilings:
            return None
        every = np.array([[at.walked(one) for one in tilings] for at in at_sizes])
        return tilings[int((every / every.min(axis=1, keepdims=True)).sum(axis=0).argmin())]

    def nearest(self, depth: int) -> list[Tiling]:
        """Return the tilings to which the clock gives the fewest cycles."""
        ranked = sorted(
            (one for same in self.same_loops() for one in same.candidates(depth)),
            key=lambda one: one.least,
        )
        near: list[tuple[float, int, Tiling]] = []
        limit = np.inf
        for number, one in enumerate(ranked):
            if one.least >= limit:
                break
            near += [(taken, number, one.tiling(at)) for taken, at in one.below(limit)]
            near = sorted(near, key=lambda candidate: candidate[:2])[:WALKED]
            if near:
                limit = NEAR * near[0][0] if len(near) < WALKED else near[-1][0]
        return [tiling for _, _, tiling in near]

    def walked(self, tiling: Tiling) -> float:
        """Return the cycles of a tiling, turn by turn."""
        sizes = dict(tiling.tiles)
        axes = tuple(axis for axis in self.sizes if axis in sizes)
        same = SameLoops(self, axes, {axis: [sizes[axis]] for axis in axes})
        turning, depth = tiling.depth or (None, 1)
        depths = same.depths(tiling.order, turning, depth)
        body = _Body(same, tiling.order).nodes
        return walk(body, depths, self.spec.resources, 0).timed().cycles

    def is_open(self, axis: str) -> bool:
        """Return whether the extent of an axis is one of a call."""
        axes = (*self.made.axes, *self.made.terms)
        return any(one.name == axis and ix.literal_value(one.extent) is None for one in axes)

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

    def orders(self) -> Iterator[tuple[str, ...]]:
        """Yield the orders of the loops over tiles of results. Those that move the same copies stand together, as any order of
        them brings the same: those of open extents outside, since slots go on from one run of the others to the next.
        """
        alike: dict[frozenset[str], list[str]] = {}
        for axis in self.results:
            moved = frozenset(copy.name for copy in self.of.copies if axis in copy.loops)
            alike.setdefault(moved, []).append(axis)
        for axes in alike.values():
            axes.sort(key=lambda axis: not self.of.is_open(axis))
        for groups in islice(permutations(alike.values()), MAX_ORDERS):
            yield tuple(axis for axes in groups for axis in axes)

    def candidates(self, depth: int) -> Iterator[Candidates]:
        """Yield the tilings that fit, by the order of their loops and the loop whose iterations take windows in turn: the outermost
        one with which they fit, as more windows wait for less.
        """
        for order in self.orders():
            loops = (*order, *self.terms)
            body = _Body(self, loops).nodes
            beside = self.beside(loops)
            windows = max(windows_of_results(self.of.made, self.of.spec, beside), 1)
            if not any(copy.fill for copy in self.of.copies):  # what is filled at borders alone
                body = fused(body)
            bound = np.broadcast_to(busy(body, self.of.spec.resources), (self.count,))
            rest = np.ones(self.count, bool)
            for turning in (*(order if depth > 1 else ()), None):
                depths = self.depths(loops, turning, depth)
                fits = rest & self.fit(depths, windows)
                rest &= ~fits
                which = np.flatnonzero(fits)
                if which.size:
                    which = which[np.argsort(bound[which], kind="stable")]
                    turns = (turning, depth) if turning else None
                    yield Candidates(self, loops, turns, depths, body, which, bound)

    def depths(
        self, order: Sequence[str], turning: str | None, depth: int
    ) -> Mapping[Hashable, int]:
        """Return the slots of each window, where iterations of the loop `turning` take so many in turn."""
        inside = order.index(turning) if turning else len(order)
        depths: dict[Hashable, int] = {RESULTS: depth if turning else 1}
        for copy in self.of.copies:
            depths[copy.name] = depth if self.level(copy, order) > inside else 1
            if copy.fill:
                depths[BOX, copy.name] = BOXES
        return depths

    def level(self, what: Transfer, order: Sequence[str]) -> int:
        """Return the number of loops that a copy stands in."""
        return max((at for at, axis in enumerate(order, 1) if axis in what.loops), default=0)

    def beside(self, order: Sequence[str]) -> frozenset[str]:
        """Return the copies that stand in the loop of the tile, in an order of loops."""
        inmost = len(self.results)
        return frozenset(c.name for c in self.of.copies if self.level(c, order) == inmost)

    def fit(self, depths: Mapping[Hashable, int], windows: int) -> Truths:
        """Return whether the windows of each tiling fit their memories.

        windows  of results: as many as lie side by side
        """
        spec = self.of.spec
        results = self.window_words(self.of.result) * depths[RESULTS]
        fits = results <= spec.words[MemorySpace.OUTPUTS].depth
        of = spec.words[MemorySpace.ACCUMULATORS]
        bytes_in = {of.memory: (results * windows + 1) * of.bytes}
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
            return fmean(-(-count // lane) for _, count in self.tiles(axis, sizes[axis], ends))

        return self.table(("along", axis, ends), [axis], words)

    def moves(self, what: Transfer, ends: Ends) -> Work:
        """Return what an instance takes at ends of `what.ends`."""
        key = "moves", what.name, ends
        if key in self.known:
            work: Work = self.known[key]
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
            self.known["boxes", *key[1:]] = np.maximum(np.round(calls), 1)
            self.known["fills", *key[1:]] = self.fills_of(
                calls, words - (1 - padded) * words_on_bus
            )
            calls = (1 - padded) * calls + padded * rows
        own = calls * spec.instruction_cycles[what.unit] + zeros
        bus = spec.resources[BUS].cycles(rows, words_on_bus * size)
        self.known[key] = Work(own, bus, calls)
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
        work: Work = self.known["fills", what.name, ends]
        return work

    def boxes(self, what: Transfer) -> Counts:
        """Return in how many boxes, each of rows side by side, that is done."""
        self.moves(what, frozenset())
        boxes: Counts = self.known["boxes", what.name, frozenset()]
        return boxes

    def part(self, key: Hashable, part: Part, which: int, ends: Ends) -> Counts:
        """Return the words along an axis of a window, or how many of them main memory has: the mean of the tiles."""
        loops, own = [loop for loop, _ in part.loops], ends & part.ends
        whole = {axis: (0, extent) for axis, extent in self.of.extents.items()}

        def number(sizes: Mapping[str, int]) -> float:
            tiles = [self.tiles(axis, size, own) for axis, size in sizes.items()]
            each = (whole | dict(zip(sizes, one, strict=True)) for one in product(*tiles))
            return fmean(part.counts(one)[which] for one in each)

        return self.table((key, which, own), loops, number)


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

    def below(self, limit: float) -> Iterator[tuple[float, int]]:
        """Yield those to which the clock gives less than a limit, or than the fewest of them and a bit: cycles, number."""
        for first in range(0, self.which.size, BATCH):
            some = self.which[first : first + BATCH]
            some = some[self.bound[some] < limit]
            if not some.size:
                break
            counts = cycles(self.body, self.depths, self.same.of.spec.resources, some)
            limit = min(limit, NEAR * float(counts.min()))
            yield from ((float(counts[at]), int(some[at])) for at in np.flatnonzero(counts < limit))

    def tiling(self, number: int) -> Tiling:
        """Return one."""
        same = self.same
        tiles = ((axis, same.options[axis][same.every[axis][number]]) for axis in self.order)
        return Tiling(tuple(tiles), self.order, self.turns)


class _Body:
    """The program of tilings in an order of loops."""

    def __init__(self, same: SameLoops, order: Sequence[str]) -> None:
        self.same, self.order = same, order
        self.of, self.spec, self.made = same.of, same.of.spec, same.of.made
        self.words = lanes(self.made, self.spec)
        own = {buffer.name for buffer in self.made.buffers}
        self.ends = [step for step in self.made.steps if step.buffer in own]
        lead = self.made.lead
        reads = () if lead is None else (o for o in nodes_of(lead[1].value) if isinstance(o, Load))
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
        name = self.order[at]
        return Loop(name, self.same.turns(name), body, restarts=self.of.is_open(name))

    def loads(self, at: int) -> Iterator[Node]:
        """Yield the copies that stand in the first `at` loops."""
        for copy in self.of.copies:
            if self.same.level(copy, self.order) == at:
                if copy.fill:
                    yield from self.filled(copy)
                    continue
                moves = partial(self.same.moves, copy)
                yield Run(copy.unit.value, moves, (), (copy.name,), fills=True, ends=copy.ends)

    def filled(self, copy: Transfer) -> Iterator[Node]:
        """Yield a copy whose windows the vector unit fills, box by box, before the rows of a box are moved there."""
        same = self.same
        boxes = same.boxes(copy)

        def each(work: Callable[[Transfer, Ends], Work], ends: Ends) -> Work:
            return Work(*(part / boxes for part in work(copy, ends)))

        box, unit, ends = (BOX, copy.name), Unit.COMPUTE.value, copy.ends
        fills = Run(unit, partial(each, same.fills), (), (box,), fills=True, ends=ends)
        moves = Run(copy.unit.value, partial(each, same.moves), (box,), (copy.name,), ends=ends)
        yield Run(copy.unit.value, lambda _: NO_WORK, (), (copy.name,), fills=True)
        yield Loop(f"{BOX}{copy.name}", boxes, (fills, moves))

    def tile(self) -> Iterator[Node]:
        """Yield a tile of results: its sum, the operations behind it, its stores."""
        made = self.made
        if made.lead is not None:
            yield self.compute(start_cost(made.lead[0], made, self.spec), (), fills=True)
            yield from self.sums(len(self.same.results))
        behind = cost_behind(made, self.spec, self.same.beside(self.order))
        if behind.instructions or made.lead is None:
            yield self.compute(behind, self.others, fills=made.lead is None)
        result = self.of.result
        for _ in range(len(made.steps) - len(self.ends)):
            moves = partial(self.same.moves, result)
            yield Run(result.unit.value, moves, reads=(RESULTS,), ends=result.ends)

    def sums(self, at: int) -> Iterator[Node]:
        """Yield the loops over tiles of terms."""
        if at < len(self.order):
            yield self.loop(at, (*self.loads(at + 1), *self.sums(at + 1)))
            return
        assert self.made.lead is not None
        update = update_cost(self.made.lead[1], self.made, self.spec)
        yield self.compute(update, self.summed, over_terms=True)

    def compute(
        self,
        cost: StepCost,
        reads: tuple[str, ...],
        fills: bool = False,
        over_terms: bool = False,
    ) -> Run:
        """Return a run of the compute unit over the words of results, or of products."""
        axes = [axis.name for axis in (*self.made.axes, *(self.made.terms if over_terms else ()))]
        start = cost.instructions * self.spec.instruction_cycles[Unit.COMPUTE]
        known: dict[Ends, Work] = {}

        def taken(ends: Ends) -> Work:
            if ends not in known:
                words = np.ones(1)
                for axis in axes:
                    own = ends & {(axis, End.LAST)}
                    words = words * self.same.along(axis, self.words.get(axis, 1), own)
                instructions = np.full(1, float(cost.instructions))
                known[ends] = Work(start + words * cost.cycles, np.zeros(1), instructions)
            return known[ends]

        ends = frozenset((axis, End.LAST) for axis in axes)
        return Run(Unit.COMPUTE.value, taken, reads, (RESULTS,), fills, ends)


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
