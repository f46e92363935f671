"""Micro-batches: kernels that run one after the other for a few of a batch at a time, so that what one writes is still near
when the next reads it.

A convolution of many images writes more than the last cache holds, of one image less. A kernel is compiled for every batch, so running it for a part is a call with other sizes and addresses. What lies
between the kernels of a part is needed for that part alone, and takes memory for one part.

Against that stands that each part reads the weights again. How many run at a time, and which kernels together, is the cheapest
path through the steps ``s``, with a state for each count ``c``, in cycles::

    inside[s][c] = min(inside[s - 1][c], min over d of closed[s - 1][d] + read(s) * slower(s, c)) + run(s, c)
    closed[s][c] = inside[s][c] + written(s) * slower(s, c)
    run(s, c)    = moved(s) * rate(s, c) + (parts(c) - 1) * (fixed(s) * rate of all weights + policy.part_cycles)

``read``, ``written``, ``moved`` (both) and ``fixed`` are bytes: of what is a part of the batch, and of weights. ``rate(s, c)`` is cycles for a byte where
what the step moves for ``c`` is held, ``slower`` how many more it takes where that for the whole batch is: there lies what passes
between steps of unlike counts. Counts begin at the threads that share a kernel, so that each has one of the batch, or where the size does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf, lcm

import numpy as np

from offcut.core.dtypes import ITEM_BYTES
from offcut.core.expr import Expr
from offcut.core.program import Size
from offcut.costmodel import Device, Machine
from offcut.describe.request import Array
from offcut.graph.graph import Value
from offcut.graph.models.calls import Calls
from offcut.graph.models.moves import able
from offcut.graph.models.operands import Operands
from offcut.graph.models.step import Step
from offcut.graph.sizes.extents import Numbers, Valued, product


@dataclass(frozen=True, slots=True)
class Part:
    """Steps from `first` to before `end` that run for `count` at a time of a batch of `total`.

    size     of which there are so many
    numbers  the values of extents for one of these times; for the last, where fewer are left
    """

    first: int
    end: int
    size: str
    count: int
    total: int
    numbers: tuple[Numbers, ...]


class MicroBatches:
    """The size of a graph of which kernels run a part at a time."""

    def __init__(
        self, size: Size, operands: Operands, able: Sequence[bool], values: Mapping[str, Value]
    ) -> None:
        """What no size changes; `machine` is the one whose memories count.

        operands  of the steps that run a graph; able: which steps may run for a part
        values    of the graph
        """
        self.size, self.able, self.moves = size.name, tuple(able), operands.moves(size.name)
        self._facts = size
        self.machine: Device = operands.steps[0].kernel.machine
        self._operands, self._threads = operands, max(s.kernel.threads for s in operands.steps)
        self._weights = np.array([_weights(step, values) for step in operands.steps], np.int64)
        self._read = np.array(
            [n < len(s.inputs) for s in operands.steps for n in range(len(s.arrays))]
        )

    def parts(
        self, number: Numbers, sizes: Mapping[str, int], valued: Valued, calls: Calls
    ) -> list[Part]:
        """The steps that run for a part of the batch at a time; all others run for the whole of it.

        number  the values of extents at the sizes; valued: at any
        calls   say which sizes a kernel takes
        """
        total, found = sizes[self.size], list[Part]()
        numbers: dict[int, Numbers] = {}
        for (first, end), count in self._runs(number, total):
            if count == total:
                continue
            counts = (count, total % count) if total % count else (count,)
            for one in counts:
                if one not in numbers:
                    numbers[one] = valued({**sizes, self.size: one})
            if not any(calls.refuses(first, end, numbers[one]) for one in counts):
                own = tuple(numbers[one] for one in counts)
                found.append(Part(first, end, self.size, count, total, own))
        return found

    def _runs(self, number: Numbers, total: int) -> list[tuple[tuple[int, int], int]]:
        """All steps in order, each with those behind it that run for so many at a time; none where all fits near."""
        machine = self.machine
        if next(self._counts(total), total) == total or not isinstance(machine, Machine):
            return []
        read, moved, fixed = self._traffic(number)
        if max(moved + fixed) <= machine.memory[1].bytes:
            return []
        counts = np.array([*self._counts(total), total])
        rates = _per_byte(machine, fixed[:, None] + moved[:, None] * counts // total)
        slower = rates[:, -1:] - rates
        again = -(-total // counts) - 1
        weights = _per_byte(machine, self._weights.sum())
        once_more = fixed[:, None] * weights + machine.policy.part_cycles
        run = moved[:, None] * rates + again * once_more
        run[np.ix_(np.logical_not(self.able), again > 0)] = inf
        enter, leave = read[:, None] * slower, (moved - read)[:, None] * slower
        states, before = np.arange(len(counts)), list[Array]()
        inside = closed = np.where(again > 0, inf, 0.0)
        for n in range(len(read)):
            other = int(closed.argmin())
            entered = closed[other] + enter[n]
            before.append(np.where(inside <= entered, states, other))
            inside = np.minimum(inside, entered) + run[n]
            closed = inside + leave[n]
        state, runs = int(closed.argmin()), list[tuple[tuple[int, int], int]]()
        for at in reversed(range(len(before))):
            end, count = at + 1, int(counts[state])
            if runs and count == runs[-1][1]:
                (_, end), _ = runs.pop()
            runs.append(((at, end), count))
            state = int(before[at][state])
        return runs[::-1]

    def _counts(self, total: int) -> Iterator[int]:
        """The counts that are tried, each twice the one before or the next: such that the size may be that, and what is left of the batch."""
        least, step = self._facts.min, lcm(self._threads, self._facts.multiple_of)
        count = -(-max(least, 1) // step) * step
        while count < total:
            if total % count == 0 or total % count >= least:
                yield count
                count *= 2
            else:
                count += step

    def _traffic(self, number: Numbers) -> tuple[Array, Array, Array]:
        """Bytes of each step for a whole batch: of inputs that are parts of it, of these and the results, and of all else."""
        bytes_, first = self._operands.bytes(number.array), self._operands.first[:-1]
        moving = number.array[self.moves] != 0
        read, moved, every = (
            np.add.reduceat(bytes_ * of, first) for of in (moving & self._read, moving, True)
        )
        return read, moved, every - moved + self._weights


def micro_batches_of(
    operands: Operands,
    values: Mapping[str, Value],
    lengths: Mapping[str, Expr],
    sizes: Sequence[Size],
) -> MicroBatches | None:
    """The size that most steps may run a part of at a time; None where no two may.

    lengths  elements of the memory of each value
    sizes    of the graph
    """
    found = {size: able(operands.steps, size.name, lengths) for size in sizes}
    best = max(found, key=lambda size: sum(found[size]), default=None)
    if best is None or sum(found[best]) < 2:
        return None
    return MicroBatches(best, operands, found[best], values)


def _weights(step: Step, values: Mapping[str, Value]) -> int:
    """Bytes of the constants that a kernel holds."""
    held = (values[name] for name, _, _ in step.constants)
    return sum(Numbers({})(product(one.shape)) * ITEM_BYTES[one.dtype] for one in held)


def _per_byte(machine: Machine, count: Array) -> Array:
    """Cycles for one of so many bytes that are gone through again and again: each memory gives the share that it holds."""
    cycles, there = np.zeros(np.shape(count)), np.zeros(np.shape(count))
    for level in machine.memory:
        share = np.minimum(1.0, level.bytes / np.maximum(count, 1))
        cycles += (share - there) / level.bytes_per_cycle
        there = share
    found: Array = cycles + (1 - there) / machine.dram.bytes_per_cycle
    return found
