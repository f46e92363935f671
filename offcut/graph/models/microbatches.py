"""Micro-batches: kernels that run one after the other for a few of a batch at a time, so that what one writes is still near
when the next reads it.

A convolution of thirteen images writes 60 MB and more, which main memory takes and gives back; of one image, the last cache
keeps it. A kernel is compiled for every batch, so running it for a part is a call with other sizes and addresses. What lies
between the kernels of a part is needed for that part alone, and takes memory for one part.

Against that stands that each part reads the weights again. How many at a time, and between which kernels, is the cheapest path
through the steps, a state for each count: bytes over the rates of the memories that hold what a step reads and writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf, prod

from offcut.core.dtypes import ITEM_BYTES
from offcut.core.expr import Expr
from offcut.costmodel import Device, Machine
from offcut.graph.graph import Value
from offcut.graph.models.moves import able
from offcut.graph.models.step import Step
from offcut.graph.placing.places import ZERO
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


@dataclass(frozen=True, slots=True)
class _Traffic:
    """Bytes that a step moves for a whole batch.

    read   of inputs that are parts of the batch; moved: of these and the results
    fixed  of others
    """

    read: int
    moved: int
    fixed: int


class MicroBatches:
    """The size of a graph of which kernels run a part at a time."""

    def __init__(
        self, size: str, steps: Sequence[Step], able: Sequence[bool], values: Mapping[str, Value]
    ) -> None:
        """What no size changes; `machine` is the one whose memories count.

        steps   that run a graph; able: which of them may run for a part
        values  of the graph
        """
        self.size, self.steps, self.able = size, tuple(steps), tuple(able)
        self.machine: Device = steps[0].kernel.machine
        self._threads = max(step.kernel.threads for step in steps)
        self._weights = [_weights(step, values) for step in steps]

    def parts(self, number: Numbers, sizes: Mapping[str, int], valued: Valued) -> list[Part]:
        """The steps that run for a part of the batch at a time; all others run for the whole of it.

        number  the values of extents at the sizes; valued: at any
        """
        total, found = sizes[self.size], list[Part]()
        for (first, end), count in self._runs(number, total):
            if count == total:
                continue
            rest = (total % count,) if total % count else ()
            numbers = tuple(valued({**sizes, self.size: n}) for n in (count, *rest))
            if not any(step.refuses(n) for step in self.steps[first:end] for n in numbers):
                found.append(Part(first, end, self.size, count, total, numbers))
        return found

    def _runs(self, number: Numbers, total: int) -> list[tuple[tuple[int, int], int]]:
        """All steps in order, each with those behind it that run for so many at a time."""
        machine = self.machine
        if total <= self._threads or not isinstance(machine, Machine):
            return []
        counts = [*_counts(self._threads, total), total]
        states = range(len(counts))
        far = _per_byte(machine, sum(self._weights))
        costs = ended = [inf] * (len(counts) - 1) + [0.0]
        ways = list[list[int]]()
        for step, may, weights in zip(self.steps, self.able, self._weights, strict=True):
            one = _traffic(step, self.size, weights, number)
            rates = [_per_byte(machine, one.fixed + one.moved * c // total) for c in counts]
            # what passes between steps of unlike counts lies where that of a whole batch does
            far_off = [rates[-1] - rate for rate in rates]
            other = min(states, key=ended.__getitem__)
            entered = [ended[other] + one.read * more for more in far_off]
            ways.append([n if costs[n] <= entered[n] else other for n in states])
            again = [-(-total // count) - 1 for count in counts]
            costs = [
                min(costs[n], entered[n])
                + one.moved * rates[n]
                + again[n] * (one.fixed * far + machine.policy.part_cycles)
                if may or not again[n]
                else inf
                for n in states
            ]
            written = one.moved - one.read
            ended = [cost + written * more for cost, more in zip(costs, far_off, strict=True)]
        state, runs = min(states, key=ended.__getitem__), list[tuple[tuple[int, int], int]]()
        for at in reversed(range(len(ways))):
            end = at + 1
            if runs and counts[state] == runs[-1][1]:
                (_, end), _ = runs.pop()
            runs.append(((at, end), counts[state]))
            state = ways[at][state]
        return runs[::-1]


def micro_batches_of(
    steps: Sequence[Step],
    values: Mapping[str, Value],
    lengths: Mapping[str, Expr],
    sizes: Sequence[str],
) -> MicroBatches | None:
    """The size that most steps may run a part of at a time; None where no two may.

    lengths  elements of the memory of each value
    sizes    their names
    """
    found = {size: able(steps, size, lengths) for size in sizes}
    best = max(found, key=lambda size: sum(found[size]), default="")
    if sum(found.get(best, ())) < 2:
        return None
    return MicroBatches(best, steps, found[best], values)


def _counts(least: int, total: int) -> Iterator[int]:
    """The counts that are tried."""
    while least < total:
        yield least
        least *= 2


def _weights(step: Step, values: Mapping[str, Value]) -> int:
    """Bytes of the constants that a kernel holds."""
    held = (values[name] for name, _, _ in step.constants)
    return sum(Numbers({})(product(one.shape)) * ITEM_BYTES[one.dtype] for one in held)


def _traffic(step: Step, size: str, weights: int, number: Numbers) -> _Traffic:
    moves = step.moves.get(size) or (ZERO,) * len(step.arrays)
    read, moved, fixed = 0, 0, weights
    for at, (one, move) in enumerate(zip(step.arrays, moves, strict=True)):
        count = prod(map(number, one.shape)) * ITEM_BYTES[one.dtype]
        if move == ZERO:
            fixed += count
        else:
            moved += count
            read += count if at < len(step.inputs) else 0
    return _Traffic(read, moved, fixed)


def _per_byte(machine: Machine, count: int) -> float:
    """Cycles for one of so many bytes that are gone through again and again: each memory gives the share that it holds."""
    cycles, there = 0.0, 0.0
    for level in machine.memory:
        share = min(1.0, level.bytes / count) if count else 1.0
        cycles += (share - there) / level.bytes_per_cycle
        there = share
    return cycles + (1 - there) / machine.dram.bytes_per_cycle
