"""What each instance of a leaf takes, read from its largest one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from offcut.backends.accelerator.isa import Alu, Gemm, Load, Store
from offcut.backends.accelerator.lowering.instruction_selection import Copy, Result
from offcut.backends.accelerator.lowering.nest import LoweredLeaf
from offcut.backends.accelerator.nest_run import Instance
from offcut.backends.accelerator.simulator.cycles import step_count


@dataclass(frozen=True, slots=True)
class PerInstance:
    """What an instance of a leaf takes.

    instructions  of one, at each coordinate of the axes that no instruction runs along
    steps, pairs, resets  times that each word of the box is visited: by a product or with an immediate; with a second
                          word; to be set to 0
    across        axes that are in no row, of what moves words; apart: of these, the ones along which no instruction runs
    """

    instructions: int
    steps: int = 0
    pairs: int = 0
    resets: int = 0
    across: tuple[int, ...] = ()
    apart: tuple[int, ...] = ()


def per_instance(work: LoweredLeaf, largest: Instance) -> PerInstance:
    """Return what an instance takes."""
    counts, instructions = largest
    if isinstance(work.does, Copy | Result):
        moving = [one for one in instructions if isinstance(one, Load | Store)]
        row = max((one.x for one in moving), default=0)
        across = _across(work, counts, row)
        column = next((axis for axis in across if counts[axis] != 1), None)
        apart = tuple(axis for axis in across if axis != column)
        each = max(prod(counts[axis] for axis in apart), 1)
        return PerInstance(len(moving) // each, across=across, apart=apart)
    steps = pairs = resets = 0
    own = [one for one in instructions if isinstance(one, Gemm | Alu)]
    for one in own:
        visited = step_count(one)
        if isinstance(one, Gemm) and one.reset:
            resets += visited
        elif isinstance(one, Alu) and one.immediate is None:
            pairs += visited
        else:
            steps += visited
    box = max(prod(counts), 1)
    return PerInstance(len(own), steps // box, pairs // box, resets // box)


def _across(work: LoweredLeaf, counts: Sequence[int], row: int) -> tuple[int, ...]:
    """The axes around a row: those that are fastest on the chip are in it, until it is as long."""
    side, _ = work.sides[0]
    order = side.lanes.order
    fast = [
        max((order.index(a) for a, k in enumerate(moved) if k), default=-1) for moved in side.steps
    ]
    rest = sorted(range(len(counts)), key=lambda axis: -fast[axis])
    length = 1
    while rest and length < row:
        length *= counts[rest.pop(0)]
    return tuple(rest)
