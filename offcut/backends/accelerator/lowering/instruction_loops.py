"""Boxes of words as instructions: rows of copies by DMA, and loops around micro-ops.

Boxes of words between main memory and the chip, as rows of instructions.

An instruction moves `y` rows of `x` words. The fastest axes of a box are its rows as far as words lie side by
side in both memories; the axis around them counts the rows; of the others each coordinate is an instruction.

Loops over words as an instruction's two loops around micro-ops.

The two longest loops that move all operands forwards are the instruction's own, the others are written out
as micro-ops; what does not fit the fields or the micro-op memory is cut, outermost first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from offcut.backends.accelerator.isa import Loop, MicroOp


@dataclass(frozen=True, slots=True)
class TransferAxis:
    """An axis of a box.

    extent    words
    chip      words from one to the next on the chip
    dram      likewise in main memory
    lo, hi    the part that is there in main memory: the rest is filled
    """

    extent: int
    chip: int
    dram: int
    lo: int
    hi: int

    @property
    def is_whole(self) -> bool:
        """Whether nothing is filled."""
        return self.lo == 0 and self.hi == self.extent


@dataclass(frozen=True, slots=True)
class RowTransfer:
    """One instruction: `y` rows of `x` words, and what is filled around them: top, bottom, left, right.

    Nothing is there to be moved where `x` or `y` is 0: all is filled.
    """

    chip: int
    dram: int
    y: int
    x: int
    stride: int
    pad: tuple[int, int, int, int] = (0, 0, 0, 0)


def dma_instructions(chip: int, dram: int, axes: Sequence[TransferAxis]) -> Iterator[RowTransfer]:
    """The instructions that move a box, slowest axis first."""
    if any(axis.extent == 0 for axis in axes):
        return
    rest = [axis for axis in axes if axis.extent != 1 or not axis.is_whole]
    rest.sort(key=lambda axis: -axis.chip)
    row = TransferAxis(1, 1, 1, 0, 1)
    while rest and _goes_on(row, rest[-1]):
        row = _joined_axis(row, rest.pop())
    column = TransferAxis(1, row.extent, 0, 0, 1)
    if rest and rest[-1].chip == row.extent:
        column = rest.pop()
    for point in product(*(range(axis.extent) for axis in rest)):
        at, source, there = chip, dram, True
        for coordinate, axis in zip(point, rest, strict=True):
            at += coordinate * axis.chip
            source += coordinate * axis.dram
            there &= axis.lo <= coordinate < axis.hi
        y, x = max(column.hi - column.lo, 0), max(row.hi - row.lo, 0)
        if not (there and x and y):
            yield RowTransfer(at, 0, 0, 0, 0, (column.extent, 0, 0, row.extent))
            continue
        pad = column.lo, column.extent - column.hi, row.lo, row.extent - row.hi
        first = source + column.lo * column.dram + row.lo
        yield RowTransfer(at, first, y, x, column.dram, pad)


def _goes_on(row: TransferAxis, axis: TransferAxis) -> bool:
    """Whether words of an axis follow those of a row in both memories, none of the row's filled."""
    return row.is_whole and axis.chip == row.extent and axis.dram == row.extent


def _joined_axis(row: TransferAxis, axis: TransferAxis) -> TransferAxis:
    count = row.extent
    return TransferAxis(axis.extent * count, 1, 1, axis.lo * count, axis.hi * count)


Steps = tuple[int, tuple[int, int, int]]
"""Iterations, and words that each moves: of dst, src and wgt."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What fields hold: iterations of a loop, words that it moves (dst, src, wgt), micro-ops."""

    extent: int
    steps: tuple[int, int, int]
    micro_ops: int


@dataclass(frozen=True, slots=True)
class Part:
    """One instruction: its loops, and its micro-ops."""

    outer: Loop
    inner: Loop
    micro_ops: tuple[MicroOp, ...]


def split_into_instructions(
    base: tuple[int, int, int], axes: Sequence[Steps], limits: Limits
) -> Iterator[Part]:
    """The instructions that visit all words, each once."""
    todo = _mergeneighbours([axis for axis in axes if axis[0] != 1])
    if any(extent == 0 for extent, _ in todo):
        return
    own = sorted(
        (at for at, axis in enumerate(todo) if _fits(axis, limits)), key=lambda at: -todo[at][0]
    )[:2]
    loops = [todo[at] for at in sorted(own)]
    rest = [axis for at, axis in enumerate(todo) if at not in own]
    outside: list[Steps] = []
    while prod(extent for extent, _ in rest) > limits.micro_ops:
        outside.append(rest.pop(0))
    pair = [Loop(extent, *steps) for extent, steps in loops]
    outer, inner = (*[Loop()] * (2 - len(pair)), *pair)
    for start in _points(base, outside):
        ops = tuple(MicroOp(*point) for point in _points(start, rest))
        yield Part(outer, inner, ops)


def _points(base: tuple[int, int, int], axes: Sequence[Steps]) -> Iterator[tuple[int, int, int]]:
    for point in product(*(range(extent) for extent, _ in axes)):
        d, s, w = base
        for at, (_, (dst, src, wgt)) in zip(point, axes, strict=True):
            d, s, w = d + at * dst, s + at * src, w + at * wgt
        yield d, s, w


def _fits(axis: Steps, limits: Limits) -> bool:
    extent, steps = axis
    return extent <= limits.extent and all(
        0 <= step <= most for step, most in zip(steps, limits.steps, strict=True)
    )


def _mergeneighbours(axes: Sequence[Steps]) -> list[Steps]:
    """Neighbours as one loop where all operands go on as they did."""
    merged: list[Steps] = []
    for extent, steps in axes:
        if merged and merged[-1][1] == tuple(extent * step for step in steps):
            merged[-1] = merged[-1][0] * extent, steps
        else:
            merged.append((extent, steps))
    return merged
