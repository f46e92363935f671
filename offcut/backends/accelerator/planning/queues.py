"""Cycles of a nest at a tiling, tile by tile: three queues, each in its order, and a bus that load and store share.

What is issued stands in the order of the stream; windows of some depth are taken in turn.
So tails of tiles take what they take, and wait for what they wait for.

Of a loop with many turns, those in its middle take as long as one another once units wait for each other as they did a
few turns before; `settled` looks at a few turns, at a few more, and takes what these add for what each of the others does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from offcut.backends.accelerator.instances.line import Line, Part
from offcut.backends.accelerator.isa import MemorySpace, Unit
from offcut.backends.accelerator.planning.dma_volume import Tile, Transfer
from offcut.backends.accelerator.planning.elementary import Operations
from offcut.backends.accelerator.planning.tiling import Tiling
from offcut.backends.accelerator.planning.window_usage import lanes
from offcut.backends.accelerator.spec import AcceleratorSpec
from offcut.core.expr import Binary, Load, walk
from offcut.core.program import Store

RESULTS = "#"
"""What the windows of results are called."""

SETTLED = 4
"""Turns of a loop, the last one among them, behind which others take as long as one another."""
PERIOD = 2
"""Turns of these whose mean is taken."""

Tiles = Mapping[str, Tile]


@dataclass
class Queues:
    """A nest at a tiling.

    extents  of its axes
    copies   what it reads
    result   what it stores
    most     by axis: turns of its loop that are looked at, the last one among them; of others, all
    """

    made: Operations
    tiling: Tiling
    spec: AcceleratorSpec
    extents: Mapping[str, int]
    copies: Sequence[Transfer]
    result: Transfer
    most: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.tiles = dict(self.tiling.tiles)
        self.cut = frozenset(self.tiles)
        terms = {axis.name for axis in self.made.terms}
        self.outer = sum(axis not in terms for axis in self.tiling.order)
        order = self.tiling.order
        self.levels = {
            copy.name: max(
                (at + 1 for at, axis in enumerate(order) if axis in copy.loops), default=0
            )
            for copy in self.copies
        }
        self.windows = {name: self.tiling.windows(level) for name, level in self.levels.items()}
        self.windows[RESULTS] = self.tiling.windows(self.outer)
        self.filled = dict.fromkeys(self.windows, -1)
        self.line = Line(self.spec)
        self.words = lanes(self.made, self.spec)
        own = {buffer.name for buffer in self.made.buffers}
        self.ends = [step for step in self.made.steps if step.buffer in own]
        self.stores = len(self.made.steps) - len(self.ends)
        lead = None if self.made.lead is None else self.made.lead[1].value
        reads = () if lead is None else (one for one in walk(lead) if isinstance(one, Load))
        summed = {load.buffer for load in reads}
        names = [copy.name for copy in self.copies]
        self.summed = [name for name in names if name in summed]
        self.others = [name for name in names if name not in summed]
        self.each_end = cycles_behind(self.made, self.spec)

    @property
    def instances(self) -> int:
        """Tiles of the innermost loop."""
        return prod(-(-self.extents[axis] // size) for axis, size in self.tiling.tiles)

    def turns(self, axis: str) -> int:
        """Turns of the loop over an axis."""
        return -(-self.extents[axis] // self.tiles[axis])

    @property
    def longest(self) -> str | None:
        """Return the axis whose loop has the most turns, where these are more than are looked at."""
        longest = max(self.tiling.order, key=self.turns, default=None)
        if longest is None or self.turns(longest) <= 2 * SETTLED + PERIOD:
            return None
        return longest

    def settled(self) -> float:
        """About the cycles, of a few turns of the longest loop."""
        axis = self.longest
        if axis is None:
            return self.cycles()
        seen = SETTLED, SETTLED + PERIOD
        few, more = (replace(self, most={axis: turns}).cycles() for turns in seen)
        return more + (more - few) / PERIOD * (self.turns(axis) - SETTLED - PERIOD)

    def cycles(self) -> float:
        """Until the last unit is free."""
        self.level(0, {axis: (0, extent) for axis, extent in self.extents.items()})
        return self.line.timed().cycles

    def level(self, at: int, tiles: Tiles) -> None:
        """What stands in the first `at` loops, at the tiles of these."""
        self.loads(at, tiles)
        if at == self.outer:
            self.tile(tiles)
            return
        for inside in self.loop(at, tiles):
            self.level(at + 1, inside)

    def loop(self, at: int, tiles: Tiles) -> Iterator[Tiles]:
        """Yield the turns of a loop."""
        axis = self.tiling.order[at]
        extent, size = self.extents[axis], self.tiles[axis]
        turns = range(0, extent, size)
        kept = self.most.get(axis, len(turns))
        for start in (*turns[: kept - 1], *turns[-1:]):
            yield {**tiles, axis: (start, min(size, extent - start))}

    def tile(self, tiles: Tiles) -> None:
        """A tile of results."""
        self.filled[RESULTS] += 1
        self.start(tiles)
        self.sums(self.outer, tiles)
        self.end(tiles)
        for _ in range(self.stores):
            self.line.instance([self.moved(self.result, tiles)], [self.window(RESULTS)])

    def sums(self, at: int, tiles: Tiles) -> None:
        """The loops over terms."""
        if at == len(self.tiling.order):
            self.sum(tiles)
            return
        for inside in self.loop(at, tiles):
            self.loads(at + 1, inside)
            self.sums(at + 1, inside)

    def loads(self, at: int, tiles: Tiles) -> None:
        """Fill the windows of the copies that stand in the first `at` loops."""
        for copy in self.copies:
            if self.levels[copy.name] == at:
                self.filled[copy.name] += 1
                self.line.instance([self.moved(copy, tiles)], (), [self.window(copy.name)])

    def moved(self, what: Transfer, tiles: Tiles) -> Part:
        """What a tile of a copy takes, or of results."""
        return Part(what.unit, *what.cycles(tiles, self.cut))

    def start(self, tiles: Tiles) -> None:
        """Set accumulators to 0."""
        if self.made.lead is not None:
            self.compute(1, self.results(tiles) * self.spec.gemm_cycles)

    def sum(self, tiles: Tiles) -> None:
        """Add up what a tile of terms has."""
        if self.made.lead is not None:
            each = self.spec.gemm_cycles if multiplies(self.made) else self.spec.operand_cycles
            terms = prod(self.along(axis.name, tiles) for axis in self.made.terms)
            self.compute(1, self.results(tiles) * terms * each, self.summed)

    def end(self, tiles: Tiles) -> None:
        """The operations behind the sum."""
        self.compute(len(self.ends), self.results(tiles) * self.each_end, self.others)

    def compute(self, instructions: int, cycles: float, copies: Sequence[str] = ()) -> None:
        """Note what the compute unit does, reading windows of copies."""
        own = instructions * self.spec.instruction_cycles[Unit.COMPUTE] + cycles
        part = Part(Unit.COMPUTE, own, 0.0, instructions)
        self.line.instance([part], [*map(self.window, copies)], [self.window(RESULTS)])

    def window(self, name: str) -> tuple[str, int]:
        """Return the window of a copy, or of results, that is in use."""
        return name, self.filled[name] % self.windows[name]

    def results(self, tiles: Tiles) -> int:
        """Words of a tile of results."""
        return prod(self.along(axis.name, tiles) for axis in self.made.axes)

    def along(self, axis: str, tiles: Tiles) -> int:
        """Words along an axis."""
        return -(-tiles[axis][1] // self.words.get(axis, 1))


def multiplies(made: Operations) -> bool:
    """Return whether its sum is of products, which the matrix unit adds up."""
    return made.roles.depth is not None or any(c.place is MemorySpace.WEIGHTS for c in made.copies)


def cycles_behind(made: Operations, spec: AcceleratorSpec) -> float:
    """Of the operations behind a sum, a word of results."""
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
