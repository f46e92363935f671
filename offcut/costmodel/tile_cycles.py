"""What a tile of a microkernel takes, operands at hand: whoever predicts it reads it here.

A tile of h rows and n columns that sums d terms, in r calls of its functions, takes::

    tile(h, n, d, r) = ceil(n / width(h)) * (c(h, n) * d + u(h, n) * r)

with c the cycles of a term and u those to start and to end the narrowest tile that holds the columns, as the microkernel
declares them. Loops around the depth of a sum run inside of the functions (`Match.turned`), or call them in each
iteration.

A loop cut into tiles of heights h runs ``sum of count * (c(h) + startup)`` cycles per column, with
c(h) the microkernel's cycles at that height. Without a microkernel of that height, a tile costs as
many cycles as the tallest one does for its share of rows.


The price by which a call chooses among ways to run a sum: what is counted of them (`offcut.costmodel.closed`), shortened.

A sum over K terms for M rows and N columns runs as blocks of rows, and what a block takes depends on its height alone. So that is a table,
of the cycles that are counted of its tiles along all columns, and the price is a sum over the runs of blocks::

    T(h)  = max(sum over the tiles of h rows of their cycles, K*N*item / near)
    price = repeats * max(sum over the runs of count * T(height), K*N*item / far) / hertz

with ``near`` and ``far`` what the nearest cache, and the memory that holds K*N elements, give per cycle; what fits the nearest comes from no further. Left out is what is alike
for the ways that compete: the rows' operand, the result, levels further out, and what moving does not hide. Where K or N are open,
T(h) is ``K*N*c(h) + N*u(h)``. How far it is off, and what a call takes longer for it, `plan` says (`offcut.costmodel.nests.schedules`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from offcut.core import index as ix
from offcut.core.expr import Binary, Const, Expr, Lookup, Select, real
from offcut.core.interpret.values import evaluate
from offcut.costmodel.device import Device, MainMemory, Memory
from offcut.costmodel.machine import Machine
from offcut.describe.microkernel import Microkernel
from offcut.partition import AxisCut, runs


@dataclass(frozen=True, slots=True)
class TileCycles:
    """Of all tiles of a microkernel, by their rows from 1 on.

    widest  columns of the widest tile
    term    by columns, too: cycles of a term, c
    start   likewise: cycles to start and to end, u
    """

    widest: npt.NDArray[np.int64]
    term: npt.NDArray[np.float64]
    start: npt.NDArray[np.float64]

    @property
    def tallest(self) -> int:
        """The most rows."""
        return len(self.widest) - 1

    def of(self, rows: int, columns: int | None = None) -> tuple[int, float, float]:
        """The columns of the tile that holds so many, a whole one where they are None or more; its c and u."""
        widest = int(self.widest[rows])
        column = widest if columns is None else min(columns, widest)
        return widest, float(self.term[rows, column]), float(self.start[rows, column])

    def by_column(self, rows: int) -> tuple[float, float]:
        """c and u of the widest tile, over its columns."""
        widest, term, start = self.of(rows)
        return term / widest, start / widest

    @property
    def multiply_adds(self) -> float:
        """In a cycle, of the tile and in the terms that take the fewest for each."""
        columns = np.arange(self.term.shape[1])
        rows = np.arange(self.term.shape[0])[:, None]
        done = np.divide(
            rows * columns, self.term, out=np.zeros_like(self.term), where=self.term > 0
        )
        return float(done.max())


@lru_cache(64)
def tile_cycles(kernel: Microkernel) -> TileCycles:
    """Those of a microkernel."""
    tallest = kernel.max_rows
    widest = np.zeros(tallest + 1, np.int64)
    most = max(shape.columns for shape in kernel.tiles)
    term, start = (np.zeros((tallest + 1, most + 1)) for _ in range(2))
    # Of the tiles of a height each holds the columns that the narrower ones do not.
    for shape in sorted(kernel.tiles, key=lambda shape: (shape.rows, shape.columns)):
        own = slice(int(widest[shape.rows]) + 1, shape.columns + 1)
        term[shape.rows, own], start[shape.rows, own] = shape.cycles, shape.startup
        widest[shape.rows] = max(int(widest[shape.rows]), shape.columns)
    for rows in range(tallest - 1, 0, -1):  # rows that no tile has alone run in the next higher one
        if widest[rows] == 0:
            widest[rows], term[rows], start[rows] = (one[rows + 1] for one in (widest, term, start))
    return TileCycles(widest, term, start)


def tile_price(
    kernel: Microkernel, machine: Device
) -> Callable[[Sequence[tuple[Expr, Expr]], int], Expr]:
    """Predicted seconds per column of runs of equal tiles, ``(how many, their height)``.

    The heights are at most the second argument; a run of no tile costs nothing.
    """

    kernel_cycles = tile_cycles(kernel)

    def price(runs: Sequence[tuple[Expr, Expr]], tile: int) -> Expr:
        tallest = min(tile, kernel_cycles.tallest)
        table = (0.0, *(sum(kernel_cycles.by_column(height)) for height in range(1, tallest + 1)))
        total: Expr = real(0.0)
        for count, height in runs:
            one: Expr = Lookup(table, ix.minimum(ix.maximum(height, 0), tallest))
            if tile > tallest:
                above = real(ix.maximum(ix.sub(height, tallest), 0))
                one = Binary("+", one, Binary("*", above, real(table[-1] / tallest)))
            total = Binary("+", total, Binary("*", real(count), one))
        return Binary("*", total, real(1.0 / machine.hertz))

    return price


def copies_worth(machine: Device, stores: int) -> int:
    """How many copies of each of `stores` statements conditions may cost.

    As many as keep all of them in the instruction cache, and compile within the time that a call
    has to win back: ``min(code_bytes / statement_bytes, budget_seconds / statement_seconds)`` in
    all, and at least 2 of each; no more for a machine whose description does not say what code costs.
    """
    if not isinstance(machine, Machine):
        return 2
    cached = machine.core.code_bytes / machine.compiling.statement_bytes
    timely = machine.compiling.budget_seconds / machine.compiling.statement_seconds
    return max(2, int(min(cached, timely)) // max(1, stores))


@dataclass(frozen=True, slots=True)
class SumExtents:
    """A sum that is cut along its rows: its columns, its terms, how often it is repeated (outer loops).

    item      bytes of an element of the columns' operand
    per_byte  elements that share a byte of it
    """

    columns: Expr
    depth: Expr
    repeats: Expr
    item: int
    per_byte: int = 1

    @property
    def bytes(self) -> Expr:
        """Of the columns' operand."""
        return ix.ceildiv(ix.mul(ix.mul(self.depth, self.columns), self.item), self.per_byte)


@dataclass(frozen=True, slots=True)
class Blocks:
    """What a block of rows takes, by its height from 0 (none) on.

    step     cycles per term and column
    startup  cycles per column
    """

    step: tuple[float, ...]
    startup: tuple[float, ...]


@lru_cache(1 << 10)
def blocks_of(kernel: Microkernel, columns: AxisCut | None, extent: int | None) -> Blocks:
    """The blocks of a microkernel whose columns, so many, are cut so; None: as if all its tiles were as wide as they may be."""
    table = tile_cycles(kernel)
    step, startup = [0.0], [0.0]
    for height in range(1, table.tallest + 1):
        term, start = table.by_column(height)
        widths = [] if columns is None or not extent else _widths(columns, extent, height)
        if widths and extent:
            term = start = 0.0
            for count, width in widths:
                widest, each, once = table.of(height, width)
                count *= -(-width // widest) if widest else 0
                term, start = term + count * each / extent, start + count * once / extent
        step.append(term)
        startup.append(start)
    return Blocks(tuple(step), tuple(startup))


def _widths(cut: AxisCut, extent: int, height: int) -> list[tuple[int, int]]:
    """How many tiles of which width there are along so many columns, in tiles of a height; none of a height that there is not."""
    tile, heights = cut.tile, cut.heights
    for (low, high), wide, narrower in cut.by_height:
        if low <= height <= high:
            tile, heights = wide, narrower
    groups = [(1, extent)]
    if cut.group is not None:
        groups = [(extent // cut.group, cut.group), (1, extent % cut.group)]
    return [
        (times * int(evaluate(count, {})), int(evaluate(width, {})))
        for times, part in groups
        for count, width in (
            runs(cut.strategy.with_heights(heights), ix.const(part), tile) if tile else ()
        )
    ]


def choice_seconds(
    summed: SumExtents,
    blocks: Blocks,
    tiles: tuple[tuple[Expr, Expr], ...],
    most: int,
    machine: Machine,
    times: Expr,
) -> Expr:
    """Predicted seconds of runs of equal blocks, by which ways compete.

    tiles  (how many blocks, their height)
    most   rows of a block
    times  how much longer blocks take than on operands that lie as a microkernel likes them
    """
    near = summed.item / machine.nearest.bytes_per_cycle
    blocks = Blocks((0.0, *(max(one, near) for one in blocks.step[1:])), blocks.startup)
    total: Expr = real(0.0)
    for count, height in reversed(tiles):
        one = _block(summed, blocks, height, most)
        if count != ix.minimum(height, 1):  # of no row there is none, and the table says so
            one = Binary("*", real(count), one)
        total = one if total == real(0.0) else Binary("+", one, total)
    stream = _passing(summed, machine, real(summed.bytes), real(0.0))
    cycles = Binary("max", Binary("*", times, total), stream)
    return Binary("*", real(summed.repeats), Binary("*", cycles, real(1.0 / machine.hertz)))


def unpacked_factor(summed: SumExtents, machine: Machine) -> Expr:
    """Time on the columns' operand as it lies, rows apart, over time on panels of it."""
    near, far = real(machine.traffic.unpacked_near), real(machine.traffic.unpacked_far)
    return _where_near(summed, machine, near, far)


def pack_seconds(summed: SumExtents, machine: Machine) -> Expr:
    """Predicted seconds to copy the columns' operand into panels: each byte is read and written, and a cache is filled before that."""
    size = real(summed.bytes)
    copied = Binary("*", size, real(2.0 / machine.traffic.pack_bytes_per_cycle))
    memory_cycles = _passing(summed, machine, Binary("*", real(3.0), size), copied)
    cycles = copied if memory_cycles == copied else Binary("max", copied, memory_cycles)
    return Binary("*", real(summed.repeats), Binary("*", cycles, real(1.0 / machine.hertz)))


def _block(summed: SumExtents, blocks: Blocks, height: Expr, most: int) -> Expr:
    """Cycles of one block of `height` rows, which are at most `most`; of more than the tallest, in turn."""
    tallest = len(blocks.step) - 1
    if most > tallest:
        whole, rest = ix.floordiv(height, tallest), ix.mod(height, tallest)
        one = _block(summed, blocks, ix.const(tallest), tallest)
        return Binary("+", Binary("*", real(whole), one), _block(summed, blocks, rest, tallest))
    grid, columns = ix.mul(summed.depth, summed.columns), summed.columns
    terms, width = ix.literal_value(grid), ix.literal_value(columns)
    if terms is not None and width is not None:
        pairs = zip(blocks.step, blocks.startup, strict=True)
        return Lookup(tuple(round(terms * a + width * b, 1) for a, b in pairs), height)
    steps = Binary("*", real(grid), Lookup(blocks.step, height))
    return Binary("+", steps, Binary("*", real(columns), Lookup(blocks.startup, height)))


def _passing(summed: SumExtents, machine: Machine, size: Expr, near: Expr) -> Expr:
    """Cycles in which bytes come from where the columns' operand lies; `near`, where that is the nearest cache."""

    def rate(memory: Memory | MainMemory) -> Expr:
        return Binary("*", size, real(1.0 / memory.bytes_per_cycle))

    behind = machine.memory[machine.memory.index(machine.nearest) + 1 :]
    cycles = rate(machine.dram)
    for memory in reversed(behind):
        cycles = _where(ix.compare("<=", summed.bytes, memory.bytes), rate(memory), cycles)
    return _where_near(summed, machine, near, cycles)


def _where_near(summed: SumExtents, machine: Machine, near: Expr, far: Expr) -> Expr:
    """One of two, as the columns' operand fits the nearest cache or not."""
    return _where(ix.compare("<=", summed.bytes, machine.nearest.bytes), near, far)


def _where(fits: Expr, near: Expr, far: Expr) -> Expr:
    if isinstance(fits, Const):
        return near if fits.value else far
    return Select(fits, near, far)
