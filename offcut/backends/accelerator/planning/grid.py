"""Every tiling of a nest at once, in numpy: which fit, and about how many cycles each takes.

Units and the bus do what they do whatever the order, so the busiest of them is a bound; tails of tiles count as they
are. What a grid sums up is a product over axes: of words, of rows, of instructions, each summed over the tiles of an
axis. What of it waits for what is left to `Queues`, for the few that come first here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations, product
from math import prod
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from offcut.backends.accelerator.isa import MemorySpace, Unit
from offcut.backends.accelerator.planning.dma_volume import Part, Transfer
from offcut.backends.accelerator.planning.elementary import Operations
from offcut.backends.accelerator.planning.queues import cycles_behind, multiplies
from offcut.backends.accelerator.planning.tiling import Tiling
from offcut.backends.accelerator.planning.window_usage import lanes
from offcut.backends.accelerator.spec import AcceleratorSpec
from offcut.core import index as ix
from offcut.core.memo import lazy_property

MOST = 1 << 16
"""Tilings of an order that are looked at; of more, every other size of an axis."""
MOST_ORDERS = 24
"""Orders of the loops over tiles of results, at most: all of four."""
KEPT = 12
"""Of each order and depth."""

Counts: TypeAlias = NDArray[np.float64]
Truths: TypeAlias = NDArray[np.bool_]


@dataclass(frozen=True)
class Grid:
    """The tilings of a nest.

    sizes   by axis that may be cut: its tiles, 0 where it is left whole
    kept    windows of results
    """

    made: Operations
    spec: AcceleratorSpec
    extents: Mapping[str, int]
    copies: Sequence[Transfer]
    result: Transfer
    sizes: Mapping[str, Sequence[int]]
    kept: int

    @lazy_property
    def axes(self) -> list[str]:
        """Those that may be cut."""
        return list(self.sizes)

    @lazy_property
    def options(self) -> dict[str, list[int]]:
        """Sizes of each axis, few enough."""
        found = {axis: list(sizes) for axis, sizes in self.sizes.items()}
        while prod(map(len, found.values())) > MOST:
            longest = max(found, key=lambda axis: len(found[axis]))
            found[longest] = found[longest][::-2][::-1]
        return found

    @lazy_property
    def at(self) -> dict[str, NDArray[np.int64]]:
        """Which option each tiling has, by axis; those whose windows fit."""
        counts = [len(self.options[axis]) for axis in self.axes]
        every = np.indices(counts).reshape(len(counts), prod(counts))
        whole = dict(zip(self.axes, every, strict=True))
        inside = np.broadcast_to(self.fit(whole, {}, 1), prod(counts))
        return {axis: found[inside] for axis, found in whole.items()}

    def tile(self, axis: str, option: int) -> int:
        """Iterations of a tile, as far as there are any."""
        return min(self.options[axis][option] or self.extents[axis], self.extents[axis])

    def tiles(self, axis: str, option: int) -> list[tuple[int, int]]:
        """Return the tiles of an axis."""
        extent, size = self.extents[axis], self.tile(axis, option)
        return [(start, min(size, extent - start)) for start in range(0, extent, size)]

    def count(self, axis: str) -> Counts:
        """Return how many tiles an axis has."""
        of = [len(self.tiles(axis, option)) for option in range(len(self.options[axis]))]
        return np.array(of, float)[self.at[axis]]

    def fit(
        self, at: Mapping[str, NDArray[np.int64]], deep: Mapping[str, Truths], windows: int
    ) -> Truths:
        """Return whether windows fit, of results as many as `windows` says, and of the copies that are `deep`."""
        spec = self.spec
        results = self.held(self.result, at) * windows
        fits = results <= spec.words[MemorySpace.OUTPUTS].depth
        taken: dict[str, Counts] = {}
        of = spec.words[MemorySpace.ACCUMULATORS]
        taken[of.memory] = (results * self.kept + 1) * of.bytes
        for copy in self.copies:
            of = spec.words[copy.place]
            own = np.where(deep[copy.name], windows, 1) if deep else 1
            words = (self.held(copy, at) * own + 1) * of.bytes
            taken[of.memory] = taken.get(of.memory, 0) + words
        for memory, bytes_ in taken.items():
            fits = fits & (bytes_ <= spec.memories[memory])
        return np.asarray(fits)

    def held(self, what: Transfer, at: Mapping[str, NDArray[np.int64]]) -> Counts:
        """Words of a window."""
        found: Counts = np.ones(1)
        for part in what.parts:

            def words(options: Sequence[int], axes: Sequence[str], part: Part = part) -> float:
                sizes = {
                    axis: (0, self.options[axis][option] or self.extents[axis])
                    for axis, option in zip(axes, options, strict=True)
                }
                return part.counts({**self.whole, **sizes})[0]

            found = found * self.table(part, words, at)
        return found

    @lazy_property
    def whole(self) -> dict[str, tuple[int, int]]:
        """Axes as they are."""
        return {axis: (0, extent) for axis, extent in self.extents.items()}

    def table(self, part: Part, of: object, at: Mapping[str, NDArray[np.int64]]) -> Counts:
        """Return a number of a part, by the options of the axes that move it."""
        axes = [loop for loop, _ in part.loops if loop in self.sizes]
        every = product(*(range(len(self.options[axis])) for axis in axes))
        assert callable(of)
        numbers = np.array([of(options, axes) for options in every], float)
        shape = [len(self.options[axis]) for axis in axes]
        where = tuple(at[axis] for axis in axes)
        return np.asarray(numbers.reshape(shape)[where] if axes else numbers)

    def summed(self, part: Part) -> tuple[Counts, Counts, Counts, Counts, Truths]:
        """Over the tiles of the axes that move a part: words, those that are moved, tiles that move any, tiles; and
        whether all is moved at once.
        """

        def sums(options: Sequence[int], axes: Sequence[str]) -> tuple[float, ...]:
            each = [self.tiles(axis, option) for axis, option in zip(axes, options, strict=True)]
            found = [
                part.counts({**self.whole, **dict(zip(axes, one, strict=True))})
                for one in product(*each)
            ]
            return (
                sum(words for words, _ in found),
                sum(there for _, there in found),
                sum(there > 0 for _, there in found),
                len(found),
                all(words == there == part.whole for words, there in found),
            )

        made: dict[tuple[int, ...], tuple[float, ...]] = {}

        def number(which: int) -> Counts:
            def one(options: Sequence[int], axes: Sequence[str]) -> float:
                key = tuple(options)
                if key not in made:
                    made[key] = sums(options, axes)
                return made[key][which]

            return self.table(part, one, self.at)

        words, there, any_, count, whole = (number(which) for which in range(5))
        return words, there, any_, count, whole > 0

    def is_cut(self, part: Part) -> Truths:
        """Return whether tiles have a part of it."""
        return _any([self.cut(loop) for loop, _ in part.loops if loop in self.sizes])

    def cut(self, axis: str) -> Truths:
        """Return whether an axis is cut."""
        return np.array([size > 0 for size in self.options[axis]])[self.at[axis]]

    def moves(self, what: Transfer) -> tuple[Counts, Counts, Counts]:
        """Cycles without the bus and with it, and instances, of what moves by the loops of its own alone."""
        spec, of = self.spec, self.spec.words[what.place]
        sums = [(self.summed(part), self.is_cut(part)) for part in reversed(what.parts)]
        ones = np.ones(1)
        rows = calls = words = moved = count = ones
        on, free = ones > 0, ones > 0
        for cut in (False, True):
            for (all_, there, any_, tiles, whole), is_cut in sums:
                mine = is_cut == cut
                row, rest = mine & on, mine & ~on
                rows = rows * np.where(rest, there, np.where(row, any_, 1.0))
                column = rest & free & (all_ > tiles)
                calls = calls * np.where(rest & ~column, all_, np.where(mine, tiles, 1.0))
                free, on = free & ~column, on & (~row | whole)
        for (all_, there, _, tiles, _), _ in sums:
            words, moved, count = words * all_, moved * there, count * tiles
        own = calls * spec.instruction_cycles[what.unit] + (words - moved) * of.fill_cycles
        beat = -(-of.bytes // spec.beat) * spec.beat
        return own, rows * spec.row_cycles + moved * beat / spec.bus_bytes, count

    def best(self, windows: int) -> Iterator[tuple[float, Tiling]]:
        """Yield the first few of each order and axis in whose loop windows take turns, with about their cycles.

        windows  the number that take turns; 1: none do
        """
        if not next(iter(self.at.values()), np.ones(1)).size:
            return
        terms = [axis.name for axis in self.made.terms if axis.name in self.sizes]
        results = [axis for axis in self.axes if axis not in terms]
        base = [self.moves(copy) for copy in self.copies]
        stores = len(self.made.steps) - len(self.ends)
        store, on_bus, _ = (stores * one for one in self.moves(self.result))
        count = {axis: self.count(axis) for axis in self.axes}
        tiles = _product([count[axis] for axis in results])
        compute, end = self.computed(tiles, tiles * _product([count[axis] for axis in terms]))
        for order in list(permutations(results))[:MOST_ORDERS]:
            loops = [*order, *terms]
            depths = [self.depth(copy, loops) for copy in self.copies]
            times = [
                _product(
                    [
                        np.where(depth > at, count[axis], 1.0)
                        for at, axis in enumerate(loops)
                        if axis not in copy.loops
                    ]
                )
                for copy, depth in zip(self.copies, depths, strict=True)
            ]
            moved = [
                (own * n, bus * n, each * n)
                for (own, bus, each), n in zip(base, times, strict=True)
            ]
            load = sum((own + bus for own, bus, _ in moved), np.zeros(1))
            first = sum(((own + bus) / each for own, bus, each in moved), np.zeros(1))
            last = (end + store + on_bus) / tiles
            busy = sum((bus for _, bus, _ in moved), on_bus)
            yield from self.few(load + compute + store + on_bus, loops, None)
            for axis in order if windows > 1 else ():
                at = loops.index(axis)
                own = {c.name: d > at for c, d in zip(self.copies, depths, strict=True)}
                again = sum(
                    (
                        np.where(depth > at, 0.0, (one + bus) * (1.0 - 1.0 / each))
                        for depth, (one, bus, each) in zip(depths, moved, strict=True)
                    ),
                    np.zeros(1),
                )
                most = np.maximum.reduce(
                    np.broadcast_arrays(load, compute + again, store + on_bus, busy)
                )
                there = self.cut(axis) & self.fit(self.at, own, windows)
                yield from self.few(
                    np.where(there, most + first + last, np.inf), loops, (axis, windows)
                )

    @lazy_property
    def ends(self) -> list[object]:
        """Return the operations behind the sum."""
        own = {buffer.name for buffer in self.made.buffers}
        return [step for step in self.made.steps if step.buffer in own]

    def computed(self, tiles: Counts, sums: Counts) -> tuple[Counts, Counts]:
        """Cycles of the compute unit, and of these the ones behind sums."""
        spec, words = self.spec, lanes(self.made, self.spec)
        issue = spec.instruction_cycles[Unit.COMPUTE]
        along = {axis: -(-extent // words.get(axis, 1)) for axis, extent in self.extents.items()}
        results = prod(along[axis.name] for axis in self.made.axes)
        end = tiles * len(self.ends) * issue + results * cycles_behind(self.made, spec)
        if self.made.lead is None:
            return end, end
        each = spec.gemm_cycles if multiplies(self.made) else spec.operand_cycles
        steps = results * prod(along[axis.name] for axis in self.made.terms) * each
        return end + (tiles + sums) * issue + steps + results * spec.gemm_cycles, end

    def depth(self, copy: Transfer, loops: Sequence[str]) -> NDArray[np.int64]:
        """Return how many loops a copy stands in."""
        found = np.zeros(1, int)
        for at, axis in enumerate(loops):
            if axis in copy.loops:
                found = np.where(self.cut(axis), at + 1, found)
        return found

    def few(
        self, cycles: Counts, loops: Sequence[str], depth: tuple[str, int] | None
    ) -> Iterator[tuple[float, Tiling]]:
        """Those with the fewest cycles."""
        size = next((one.size for one in self.at.values()), 1)
        every = np.broadcast_to(cycles, (size,))
        for number in np.argsort(every, kind="stable")[:KEPT]:
            if np.isfinite(every[number]):
                tiles = {a: self.options[a][self.at[a][number]] for a in loops}
                cut = tuple((axis, size) for axis, size in tiles.items() if size)
                yield float(every[number]), Tiling(cut, tuple(axis for axis, _ in cut), depth)


def sizes_of(
    made: Operations, spec: AcceleratorSpec, extents: Mapping[str, int]
) -> dict[str, tuple[int, ...]]:
    """Tiles of each axis that may be cut; windows of a sum stay whole where their extent is known."""
    words = lanes(made, spec)
    found = {}
    for axis in (*made.axes, *made.terms):
        known, count = ix.literal_value(axis.extent), words.get(axis.name, 1)
        inside = axis in made.terms and axis.name not in words
        if known is None or (known > count and not inside):
            found[axis.name] = sizes(extents[axis.name], count, known is not None)
    return found


def sizes(extent: int, words: int, bounded: bool) -> tuple[int, ...]:
    """Tiles that cut an extent into so many of about one size, by whole words, and powers of two: any other has as
    many tiles as the next smaller one, and takes more room.

    bounded  whether the axis may be left whole: 0
    """
    count = -(-extent // words)
    even = {-(-count // parts) for parts in range(1, count + 1)}
    powers = {2**k for k in range(count.bit_length()) if 2**k <= count}
    found = sorted(words * size for size in even | powers if not bounded or size < count)
    return (*found, 0) if bounded else tuple(found)


def _any(parts: Sequence[Truths]) -> Truths:
    found: Truths = np.zeros(1, bool)
    for part in parts:
        found = found | part
    return found


def _product(parts: Sequence[Counts]) -> Counts:
    found: Counts = np.ones(1)
    for part in parts:
        found = found * part
    return found
