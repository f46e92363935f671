"""Loops over words as an instruction's two loops around micro-ops.

The two longest loops that move all operands forwards are the instruction's own, the others are written out
as micro-ops; what does not fit the fields or the micro-op memory is cut, outermost first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from offcut.backends.accelerator.isa import Loop, MicroOp

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
