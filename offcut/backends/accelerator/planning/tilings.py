"""The tilings of a nest, many at once, and those that the clock gives the fewest cycles.

Tilings that cut the same axes, in the same order, are the same loops with other turns (`TilingProgram`), of which arrays
say what the first tile along each axis takes, the last one, and the mean of the others (`TileWork`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cache, partial, reduce
from itertools import combinations, islice, permutations
from math import prod
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from offcut.backends.accelerator.isa import MemorySpace
from offcut.backends.accelerator.planning.elementary import Operations, lanes
from offcut.backends.accelerator.planning.tile_work import Counts, NestAtSizes, TileWork
from offcut.backends.accelerator.planning.tiling_program import (
    RESULTS,
    TilingProgram,
    window_depths,
    windows_of_results,
)
from offcut.backends.accelerator.spec import AcceleratorSpec
from offcut.core import index as ix
from offcut.costmodel import select_options
from offcut.costmodel.clock import estimate_cycles
from offcut.costmodel.event_simulation import walk

MAX_TILINGS = 1 << 16
"""Tilings of the same cut axes that are looked at; of more, every other size of an axis."""
MAX_ORDERS = 24
"""Orders of the loops over tiles of results, at most: all of four."""
DRAFTED = 2
"""Sizes at which tilings are ranked by the clock: the typical ones, and the first of the others."""
WALKED, NEAR = 12, 1.1
"""Tilings that are walked turn by turn, at most of those that the clock likes at a size, and how many more cycles than the fewest
it may give them."""
WALKED_SMALL, FINALISTS = 48, 6
"""Of several sizes, the tilings that are walked at the smaller one at which they are ranked, at most, and how many of these, and of
those that the clock likes best at the other one, are walked at all: a turn of a large size costs as much as one of a small one."""
SHORTLISTED = 3
"""Tilings of each size that compete with those of the others, at most: they are walked at all sizes, if they gain where they are best."""
ALIKE = 0.005
"""Of the cycles in the mean of sizes: tilings that differ by less are alike, as the clock and the walk are no nearer to the machine."""
GAIN = 0.02
"""What a tiling gains in the mean of sizes, at least, of the cycles of the best one: each is proved by itself."""

Truths: TypeAlias = NDArray[np.bool_]


@dataclass(frozen=True)
class Tilings(NestAtSizes):
    """The tilings of a nest.

    sizes  by axis that may be cut: its tiles, 0 where it is left whole
    """

    sizes: Mapping[str, Sequence[int]]

    def nearest(self, depth: int, most: int = WALKED) -> list[Tiling]:
        """Return the tilings to which the clock gives the fewest cycles.

        depth  windows that iterations may take in turn; 1: they have one each
        most   tilings, at most
        """
        ranked: list[tuple[float, Tiling]] = []
        for same in self.same_loops():
            ranked += same.nearest(depth, most)
            ranked = sorted(ranked, key=lambda candidate: candidate[0])[:most]
        return [tiling for cycles, tiling in ranked if cycles <= NEAR * ranked[0][0]]

    def exact_cycles(self, tiling: Tiling) -> float:
        """Return the cycles of a tiling, turn by turn, its last tiles in the windows of the others."""
        same, depths = self.alone(tiling)
        body = TilingProgram(same, tiling.order).nodes
        return walk(body, depths, self.spec.resources, 0).end_time().cycles

    def alone(self, tiling: Tiling) -> tuple[SameLoops, Mapping[Hashable, int]]:
        """Return a tiling as a `SameLoops` of one, and the number of slots of each window."""
        sizes = dict(tiling.tiles)
        axes = tuple(axis for axis in self.sizes if axis in sizes)
        same = SameLoops(self, axes, {axis: [sizes[axis]] for axis in axes})
        turning, depth = tiling.depth or (None, 1)
        return same, window_depths(same, tiling.order, turning, depth)

    def with_tail(self, tiling: Tiling) -> Tiling:
        """Return `tiling` with the last tile along an open axis in windows of its own; the same object if these do not fit.

        Slots begin anew with each run of a loop whose turns no text counts: after an odd number of them, the first load waits for the
        tile that was computed last. Where the last tile has windows of its own, there is another tile between, or as many turns
        as before: it waits for nothing else. So it is never worse, but for what it takes to issue.
        """
        turning, order, sizes = tiling.depth, tiling.order, dict(tiling.tiles)
        if turning is None:
            return tiling
        same, depths = self.alone(tiling)
        again = order[max(order.index(turning[0]), 1) :]
        for axis in [axis for axis in again if axis in same.results and self.is_open(axis)][-1:]:
            rest, _ = self.alone(
                replace(tiling, tiles=(*(sizes | {axis: sizes[axis] - 1}).items(),))
            )
            inside = {copy.name for copy in self.copies if axis in order[: same.level(copy, order)]}
            own = {
                name: count if name in inside | {RESULTS} else 0 for name, count in depths.items()
            }
            windows = max(windows_of_results(self.made, self.spec, same.beside(order)), 1)
            both = zip(
                same.window_sizes(depths, windows), rest.window_sizes(own, windows), strict=True
            )
            if sizes[axis] > 1 and same.fits([one + other for one, other in both]).all():
                return replace(tiling, tail=axis)
        return tiling

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


def by_size(
    at_sizes: Sequence[Tilings], least: Tilings, alone: int, depth: int, most: int
) -> tuple[Tiling, ...]:
    """Return the tilings of a nest of which each call takes the fastest, turn by turn; none if none fits.

    at_sizes  the tilings at each of the sizes that are compared
    least     the tilings at the least sizes, which decide between those that are alike at the others
    alone     how many of these decide which tiling is taken if it is the only one: the longer it takes there, beside the best, the less
              it is worth
    depth     windows that iterations may take in turn; 1: they have one each
    most      tilings, at most
    """

    @cache
    def walked(at: int, tiling: Tiling) -> float:
        return at_sizes[at].exact_cycles(tiling)

    def cycles(tilings: Sequence[Tiling], sizes: int) -> NDArray[np.float64]:
        return np.array([[walked(at, one) for at in range(sizes)] for one in tilings])

    drafted = at_sizes[:DRAFTED]
    small = len(drafted) - 1
    drafts = drafted[small].nearest(depth, WALKED_SMALL if small else WALKED)
    if not drafts:
        return ()
    best = sorted(drafts, key=partial(walked, small))[: FINALISTS if small else None]
    liked = (one for at in drafted[:small] for one in at.nearest(depth, FINALISTS))
    finalists = list(dict.fromkeys((*best, *liked)))
    every = cycles(finalists, alone)
    off = (every / every.min(axis=0)).mean(axis=1)
    alike = (finalists[at] for at in np.flatnonzero(off <= off.min() + ALIKE))
    first = min(alike, key=least.exact_cycles)
    if most == 1 or len(at_sizes) == 1:
        return (first,)
    best = [finalists[at] for column in every.T for at in column.argsort()[:SHORTLISTED]]
    competing = list(dict.fromkeys((first, *best)))
    for number, at in enumerate(at_sizes[alone - 1 :], alone - 1):
        least_there = min(walked(number, one) for one in competing)
        others = at.nearest(depth, SHORTLISTED)
        competing += [one for one in others if walked(number, one) < (1 - GAIN) * least_there]
    selection = select_options(cycles(competing, len(at_sizes)), most, GAIN, keeps_first=True)
    return tuple(competing[at] for at in selection.options)


@dataclass(frozen=True)
class SameLoops(TileWork):
    """Tilings that cut the same axes."""

    of: Tilings

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

    def nearest(self, depth: int, most: int) -> Iterator[tuple[float, Tiling]]:
        """Yield (cycles, tiling) of the tilings that fit and to which the clock gives the fewest cycles. Windows take turns in the outermost
        loop with which they fit, as more windows wait for less.

        depth  windows that iterations may take in turn; 1: they have one each
        most   tilings of each order of loops and each loop in which windows take turns
        """
        for order in self.orders():
            loops = (*order, *self.terms)
            body = TilingProgram(self, loops).nodes
            beside = self.beside(loops)
            windows = max(windows_of_results(self.of.made, self.of.spec, beside), 1)
            rest = np.ones(self.count, bool)
            for turning in (*(order if depth > 1 else ()), None):
                depths = window_depths(self, loops, turning, depth)
                fits = rest & self.fits(self.window_sizes(depths, windows))
                rest &= ~fits
                which = np.flatnonzero(fits)
                if not which.size:
                    continue
                cycles = estimate_cycles(body, depths, self.of.spec.resources)
                cycles = np.broadcast_to(cycles, (self.count,))
                turns = (turning, depth) if turning else None
                for at in which[np.argsort(cycles[which], kind="stable")[:most]]:
                    yield float(cycles[at]), self.tiling(int(at), loops, turns)

    def tiling(self, number: int, order: tuple[str, ...], depth: tuple[str, int] | None) -> Tiling:
        """Return the tiling of a number in the arrays, with its loops in an order; `depth` as that of `Tiling`."""
        tiles = ((axis, self.options[axis][self.every[axis][number]]) for axis in order)
        return Tiling(tuple(tiles), order, depth)

    def window_sizes(self, depths: Mapping[Hashable, int], windows: int) -> list[Counts]:
        """Return what the windows of each tiling take: words of results, then bytes of each memory.

        windows  of results: as many as lie side by side
        """
        spec = self.of.spec
        results = self.window_words(self.of.result) * depths[RESULTS]
        of = spec.words[MemorySpace.ACCUMULATORS]
        bytes_in = dict.fromkeys(spec.memories, np.zeros(1))
        bytes_in[of.memory] = (results * windows + 1) * of.bytes
        for copy in self.of.copies:
            of = spec.words[copy.place]
            bytes_ = (self.window_words(copy) * depths[copy.name] + 1) * of.bytes
            bytes_in[of.memory] = bytes_in[of.memory] + bytes_
        return [results, *bytes_in.values()]

    def fits(self, word_counts: Sequence[Counts]) -> Truths:
        """Return, for each tiling, whether its windows fit the memories; `word_counts` as that method returns it."""
        spec = self.of.spec
        room = spec.words[MemorySpace.OUTPUTS].depth, *spec.memories.values()
        each = [words <= most for words, most in zip(word_counts, room, strict=True)]
        return np.asarray(np.broadcast_to(reduce(np.logical_and, each), (self.count,)))


@dataclass(frozen=True, slots=True)
class Tiling:
    """What is decided of the loops of a nest.

    tiles  (axis, iterations) of those that are cut
    order  of the loops over tiles, outermost first
    depth  (axis, windows): so many windows, which iterations take in turn, of all that lies in the loop over the tiles of
           an axis; None: of everything one
    tail   the axis whose last tile stands behind its loop, in windows of its own, where it is smaller than the others; None: it is one
           of the loop's
    """

    tiles: tuple[tuple[str, int], ...]
    order: tuple[str, ...]
    depth: tuple[str, int] | None = None
    tail: str | None = None

    def level(self, axes: Set[str]) -> int:
        """Return in how many loops something stands that moves along these axes: down to the innermost of them."""
        return max((at for at, axis in enumerate(self.order, 1) if axis in axes), default=0)

    def windows(self, level: int) -> int:
        """Return how many windows there are of what lies in the first `level` loops."""
        axis, count = self.depth or ("", 1)
        return count if axis in self.order[:level] else 1


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
