"""Micro-batches: kernels that run one after the other for a few of a batch at a time, so that what one writes is still near

when the next reads it.

A convolution of many images writes more than the last cache holds, of one image less. A kernel is compiled for every batch, so running it for a part is a call with other sizes and addresses. What lies
between the kernels of a part is needed for that part alone, and takes memory for one part.

Against that stands that each part reads the weights again. How many run at a time, and which kernels together, is the cheapest
path through the steps ``s``, with a state for each count ``c``, in cycles::

    inside[s][c] = min(inside[s - 1][c], min over d of closed[s - 1][d] + enters(s, c)) + run(s, c)
    closed[s][c] = inside[s][c] + leaves(s, c)
    run(s, c)    = passes(s, c) + (parts(c) - 1) * (holds(s) + policy.part_cycles)

Counts begin at the threads that share a kernel, so that each has one of the batch, or where the size does.

Micro-batches as data: which kernels of a model run for a part of the batch at a time. A line says it of several kernels that follow
one another, by the values that the first and the last of them give::

    relu_1 to mean: 2 of b at a time
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from itertools import pairwise
from math import inf, lcm
from typing import TypeAlias

import numpy as np

from offcut.core.dtypes import ITEM_BYTES
from offcut.core.expr import Expr
from offcut.core.program import Size
from offcut.costmodel import Device, Machine
from offcut.describe.request import Array
from offcut.errors import DescribeError, PartitionError, blamed_on_another
from offcut.graph.graph import Value
from offcut.graph.models.compiling.batch_strides import couplings
from offcut.graph.models.kernel_step import Step
from offcut.graph.models.memory.calls import Calls, Operands
from offcut.graph.sizes.extent_values import Numbers, Valued
from offcut.graph.sizes.extents import product
from offcut.schedule.lines import Line

SHOWN = "relu_1 to mean: 2 of b at a time"


@dataclass(frozen=True, slots=True)
class Part:
    """Kernels from that of `first` to that of `last`, one after the other, for `count` of a size, then for the next."""

    first: str
    last: str
    count: int
    size: str

    def __str__(self) -> str:
        return f"{self.first} to {self.last}: {self.count} of {self.size} at a time"


Parts: TypeAlias = bool | str | Callable[[Mapping[str, int]], str]
"""Which kernels run so: those that the machine's memories say, none, those of a text, or those of what a rule gives for sizes."""


def check_parts(op: str, parts: object) -> None:
    """Refuse what is no `Parts`.

    op  the call as the user made it
    """
    if not (isinstance(parts, bool | str) or callable(parts)):
        raise DescribeError(
            op,
            f"cannot take parts={parts!r}",
            because="it is True, False, a text of parts, or a function from sizes to one",
            help=(f'parts="{SHOWN}"', f'parts=lambda sizes: "{SHOWN}" if sizes[\'b\'] > 8 else ""'),
        )


def said_by(rule: Callable[[Mapping[str, int]], str], sizes: Mapping[str, int]) -> str:
    """The text that a rule gives for sizes.

    Raises PartitionError where it gives none.
    """
    at = ", ".join(f"{name} = {value}" for name, value in sizes.items())
    help = f"a function of {{{', '.join(map(repr, sizes))}}}", f'"{SHOWN}", or ""'

    def refused(did: str) -> PartitionError:
        what = "cannot ask the rule"
        return PartitionError("parts", what, at=at, because=f"it {did}", help=help)

    with blamed_on_another(refused):
        text = rule(dict(sizes))
    if not isinstance(text, str):
        raise refused(f"gave {text!r}, and parts are text")
    return text


def parse_parts(text: str) -> tuple[Part, ...]:
    """The parts that print as the lines of `text`; what follows a # is left out.

    Raises ParseError, with the line, where one is of another form.
    """
    lines = enumerate((raw.partition("#")[0].strip() for raw in text.split("\n")), 1)
    return tuple(_read_part(Line(number, 0, line, "parts")) for number, line in lines if line)


def _read_part(line: Line) -> Part:
    pattern = r"(\S+) to (\S+): (\d+) of (\S+) at a time"
    first, last, count, size = line.match(pattern, SHOWN).groups()
    if not line.size(count):
        line.refuse("a part is of one at least", SHOWN)
    return Part(first, last, int(count), size)


_LISTED = 8
"""Kernels that a refusal names."""


@dataclass(frozen=True, slots=True)
class Run:
    """The steps of a part, from `first` to before `end`, at one set of sizes.

    total    how many the batch has
    numbers  the values of extents for one of the times that they run; for the last, where fewer are left
    """

    part: Part
    first: int
    end: int
    total: int
    numbers: tuple[Numbers, ...]


@dataclass(frozen=True, slots=True)
class WholeBatches:
    """The calls for which every kernel runs for the whole of a batch: of small batches, and of values that stay in the caches.

    size         of which parts may run: its place among the sizes of the graph; most: up to which it is not parted
    cache_bytes  of the last cache
    """

    size: int
    most: int
    cache_bytes: int


class MicroBatches:
    """Which kernels of a graph run for a part of a size at a time."""

    def __init__(
        self,
        operands: Operands,
        values: Mapping[str, Value],
        lengths: Mapping[str, Expr],
        sizes: Sequence[Size],
        parts: Parts = True,
    ) -> None:
        """What no size changes; `machine` is the one whose memories count.

        operands  of the steps that run a graph
        values    of the graph; lengths: elements of the memory of each; sizes: of the graph

        Raises ParseError for a text that says no parts, PartitionError for parts that may not run.
        """
        self._operands, self._lengths, self._asked = operands, lengths, parts
        self._steps, self._sizes = operands.steps, {size.name: size for size in sizes}
        self._place = {step.name: number for number, step in enumerate(self._steps)}
        native = (step.kernel.machine for step in self._steps if step.entry is not None)
        self.machine: Device | None = next(native, None)
        self._threads = max((step.kernel.threads for step in self._steps), default=1)
        self._weights = np.array([_weights(step, values) for step in self._steps], np.int64)
        self._is_input = np.array(
            [n < len(s.inputs) for s in self._steps for n in range(len(s.arrays))], np.bool_
        )
        self.strides = cache(operands.batch_strides)
        self._said: tuple[tuple[int, int, Part], ...] = ()
        self._size, self._parallel = "", np.zeros(len(self._steps), np.bool_)
        if isinstance(parts, str):
            self._said = self._checked_parts(parts)
        elif parts is True:
            self._size, self._parallel = self._batch()

    def runs(
        self, number: Numbers, sizes: Mapping[str, int], valued: Valued, calls: Calls
    ) -> tuple[list[Run], list[str]]:
        """The steps that run for a part of a size at a time, all others run for the whole of it; and which do not, and why.

        number  the values of extents at the sizes; valued: at any
        calls   say which sizes a kernel takes

        Raises what making this does, where a rule gives a text that is refused.
        """
        batch_runs, notes = list[Run](), list[str]()
        numbers: dict[tuple[str, int], Numbers] = {}
        refused: dict[tuple[str, int], list[tuple[int, str]]] = {}
        for first, end, part in self._parts(number, sizes):
            total = sizes[part.size]
            if part.count >= total:
                continue
            counts = dict.fromkeys((part.count, total % part.count or part.count))
            for one in counts:
                if (part.size, one) not in numbers:
                    numbers[part.size, one] = valued({**sizes, part.size: one})
                    refused[part.size, one] = calls.refusals(numbers[part.size, one])
            own = tuple(numbers[part.size, one] for one in counts)
            why = [
                f"{self._steps[n].name}: {because}"
                for one in counts
                for n, because in refused[part.size, one]
                if first <= n < end
            ]
            if why:
                notes.append(f"{part}: not so, since {why[0]}")
            else:
                batch_runs.append(Run(part, first, end, total, own))
        return batch_runs, notes

    @property
    def whole(self) -> WholeBatches | None:
        """Return the calls that run nothing for a part of the batch; None: all calls."""
        if not self._size or not isinstance(self.machine, Machine):
            return None
        least = next(self._counts(self._sizes[self._size].max), 1)
        cache_bytes = max(level.bytes for level in self.machine.memory)
        return WholeBatches([*self._sizes].index(self._size), least, cache_bytes)

    def traffic(self, number: Numbers, size: str | None = None) -> Traffic | None:
        """What the steps move at sizes, a part of `size` at a time or all at once; None on a machine whose memories are not caches."""
        if not isinstance(self.machine, Machine) or not self._steps:
            return None
        bytes_, first = self._operands.bytes(number.array), self._operands.first[:-1]
        moving = number.array[self.strides(size)] != 0 if size else np.zeros(len(bytes_), np.bool_)
        read, read_and_written, every = (
            np.add.reduceat(bytes_ * of, first) for of in (moving & self._is_input, moving, True)
        )
        return Traffic(
            self.machine, read, read_and_written - read, every - read_and_written, self._weights
        )

    def cycles(self, number: Numbers, runs: Sequence[Run]) -> tuple[Array, Array] | None:
        """Of each step, those in which weights are read, and in which values pass by main memory; None on a machine whose memories are
        not caches.

        number  the values of extents for the whole batch; runs: the steps that run for a part of it
        """
        whole = self.traffic(number)
        if whole is None:
            return None
        holds, passes = whole.holds, whole.passes(np.array([1]), 1, caches=False)[0][:, 0]
        for run in runs:
            traffic = self.traffic(number, run.part.size)
            assert traffic is not None
            counts = np.array([run.part.count])
            own, enters, leaves = traffic.passes(counts, run.total, caches=False)
            passes[run.first : run.end] = own[run.first : run.end, 0]
            passes[run.first] += enters[run.first, 0]
            passes[run.end - 1] += leaves[run.end - 1, 0]
            holds[run.first : run.end] *= -(-run.total // run.part.count)
        return holds, passes

    def _parts(self, number: Numbers, sizes: Mapping[str, int]) -> Sequence[tuple[int, int, Part]]:
        """What is asked for at sizes, with the first step of each part, and the one behind its last."""
        if callable(self._asked):
            return self._checked_parts(said_by(self._asked, sizes))
        if not self._size:
            return self._said
        total = sizes[self._size]
        counts = [*self._counts(total)]
        traffic = self.traffic(number, self._size) if counts else None
        if traffic is None or traffic.most <= traffic.machine.memory[1].bytes:
            return ()
        return [
            (first, end, self._part(first, end, count))
            for first, end, count in _cheapest(traffic, self._parallel, counts, total)
        ]

    def _part(self, first: int, end: int, count: int) -> Part:
        return Part(self._steps[first].name, self._steps[end - 1].name, count, self._size)

    def _checked_parts(self, text: str) -> tuple[tuple[int, int, Part], ...]:
        """The parts of a text, in order.

        Raises ParseError for a text that says none, PartitionError for parts that may not run.
        """
        ranges = list[tuple[int, int, Part]]()
        for part in parse_parts(text):
            for name in (part.first, part.last):
                if name not in self._place:
                    raise _refusal(part, name, "no kernel gives it", _kernels(name, self._place))
            first, end = self._place[part.first], self._place[part.last] + 1
            if end <= first:
                because = f"{part.last} is computed before {part.first}"
                other = Part(part.last, part.first, part.count, part.size)
                raise _refusal(part, "", because, f"{other}")
            self._check_count(part)
            why = couplings(self._steps[first:end], part.size, self._lengths)
            wrong = next((n for n, because in enumerate(why, first) if because), end)
            if wrong < end:
                names = [step.name for step in self._steps[first:end]]
                around = [names[: wrong - first]]
                if not any(why[wrong - first + 1 :]):
                    around.append(names[wrong - first + 1 :])
                help = [f"{Part(n[0], n[-1], part.count, part.size)}" for n in around if n]
                alone = f"no part of {part.size}: it runs for the whole of it"
                raise _refusal(
                    part, self._steps[wrong].name, why[wrong - first], *(help or [alone])
                )
            ranges.append((first, end, part))
        ranges.sort(key=lambda one: one[0])
        for (_, end, before), (first, _, part) in pairwise(ranges):
            if first < end:
                because = f"it runs in another part: {before}"
                raise _refusal(part, part.first, because, "leave one of the two out")
        return tuple(ranges)

    def _check_count(self, part: Part) -> None:
        """Raises PartitionError where the size of a part is none, or is never so many."""
        size = self._sizes.get(part.size)
        if size is None:
            raise _refusal(part, part.size, "the graph has no such size", *self._sizes)
        if part.count < size.min or part.count % size.multiple_of:
            of = f", a multiple of {size.multiple_of}" if size.multiple_of > 1 else ""
            help = f"{Part(part.first, part.last, size.at_or_above(1), part.size)}"
            raise _refusal(part, "", f"{size.name} is {size.min} at least{of}", help)

    def _batch(self) -> tuple[str, Array]:
        """The size that most steps may run a part of at a time, and which; "" where no two may."""
        best, most = "", np.zeros(len(self._steps), np.bool_)
        for size in self._sizes:
            why = couplings(self._steps, size, self._lengths)
            is_batched = np.array([not because for because in why], np.bool_)
            if is_batched.sum() > max(most.sum(), 1):
                best, most = size, is_batched
        return best, most

    def _counts(self, total: int) -> Iterator[int]:
        """The counts that are tried, each twice the one before or the next: such that the size may be that, and what is left of the batch."""
        facts = self._sizes[self._size]
        least, step = facts.min, lcm(self._threads, facts.multiple_of)
        count = -(-max(least, 1) // step) * step
        while count < total:
            if total % count == 0 or total % count >= least:
                yield count
                count *= 2
            else:
                count += step


def _cheapest(
    traffic: Traffic, parallel: Array, counts: Sequence[int], total: int
) -> list[tuple[int, int, int]]:
    """The steps that run for fewer than `total` at a time, from the first to before the last, and for how many.

    parallel  which may; counts: that are tried
    """
    candidates = np.array([*counts, total])
    passes, enters, leaves = traffic.passes(candidates, total, caches=True)
    again = -(-total // candidates) - 1
    run = passes + again * (traffic.holds[:, None] + traffic.machine.policy.part_cycles)
    run[np.ix_(np.logical_not(parallel), candidates < total)] = inf
    before = list[list[int]]()
    states = range(len(candidates))
    inside = closed = [*(inf for _ in counts), 0.0]
    for own, enter, leave in zip(run.tolist(), enters.tolist(), leaves.tolist(), strict=True):
        cheapest = min(closed)
        other = closed.index(cheapest)
        entered = [cheapest + cycles for cycles in enter]
        before.append([s if inside[s] <= entered[s] else other for s in states])
        inside = [min(inside[s], entered[s]) + own[s] for s in states]
        closed = [inside[s] + leave[s] for s in states]
    state, runs = closed.index(min(closed)), list[tuple[int, int, int]]()
    for at in reversed(range(len(before))):
        end, count = at + 1, int(candidates[state])
        if runs and count == runs[-1][2]:
            _, end, _ = runs.pop()
        runs.append((at, end, count))
        state = before[at][state]
    return [one for one in reversed(runs) if one[2] < total]


def _weights(step: Step, values: Mapping[str, Value]) -> int:
    """Bytes of the constants that a kernel holds."""
    constants = (values[name] for name, _, _ in step.constants)
    return sum(Numbers({})(product(one.shape)) * ITEM_BYTES[one.dtype] for one in constants)


def _kernels(name: str, known: Iterable[str]) -> str:
    """What kernels give, those that are called alike first."""
    names = [*known]
    near = get_close_matches(name, names, n=_LISTED)
    listed_names = [*near, *(one for one in names if one not in near)][:_LISTED]
    rest = f" and {len(names) - len(listed_names)} others" if len(names) > len(listed_names) else ""
    return f"kernels give {', '.join(listed_names)}{rest}"


def _refusal(part: Part, at: str, because: str, *help: str) -> PartitionError:
    return PartitionError("parts", f"cannot run {part}", at=at, because=because, help=help)


# How long what passes between the kernels of a model takes, by the memories of a machine: one model, of what a call costs and of the
# choice of parts.
#
# A kernel alone finds near what fits near. In a model it finds so what the kernel before has just written, and not its weights, since
# those of all others were read in between. In cycles, of a step ``s`` that runs for ``c`` of a batch of ``n`` at a time::
#
#     passes(s, c) = read(s) * rate(s, c) + written(s) * stored(s, c) + parts(c) * shared(s) * rate(s, c)
#     enters(s, c) = read(s) * (rate(s, n) - rate(s, c))
#     leaves(s, c) = written(s) * (stored(s, n) - stored(s, c))
#     holds(s)     = weights(s) * (sum over m of new(m, all weights) / speed(m))
#
#     rate(s, c)   = sum over m of new(m, b) / speed(m)              b = (read(s) + written(s)) * c / n + shared(s) + weights(s)
#     stored(s, c) = rate(s, c) + new(main memory, b) / speed(main memory)
#     new(m, b)    = share(m, b) - share(m - 1, b)
#     share(m, b)  = min(1, bytes of m / b), 1 of main memory
#
# ``m`` are the memories, the nearest first, and ``speed`` bytes per cycle of one. ``read`` and ``written`` are bytes of what is a part of the
# batch, ``shared`` of what all parts read, ``weights`` of what a kernel holds; ``parts(c) = ceil(n / c)``. So many bytes ``b`` that are gone
# through again and again come from each memory by the share that it holds and a nearer one does not; what is written there is read from
# main memory first. A step that comes first of those that run so enters what a whole batch left where that lies, and one that comes last
# leaves it there.
#
# Source: transfers that add up, and lines that are read to be written, are of the ECM model (Treibig & Hager, 2009); by how much is read in between
# (reuse distance: Mattson et al., 1970) we take the bytes of the step that reads. What passes by a step, as a residual does, is taken to be as near.


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes of each step for a whole batch, at one set of sizes.

    read     of inputs that are parts of the batch; written: of results that are
    shared   of all other arrays; weights: of constants that kernels hold
    """

    machine: Machine
    read: Array
    written: Array
    shared: Array
    weights: Array

    @property
    def most(self) -> int:
        """Bytes of the greediest step."""
        return int((self.read + self.written + self.shared + self.weights).max(initial=0))

    @property
    def holds(self) -> Array:
        """Cycles in which each step reads its weights once."""
        caches, main = self._rates(self.weights.sum())
        result: Array = self.weights * (caches + main)
        return result

    def passes(self, counts: Array, total: int, caches: bool) -> tuple[Array, Array, Array]:
        """Cycles of what passes by each step, for each of some counts of a batch of `total` at a time; and of what it enters, and leaves.

        caches  whether what they give counts; else what main memory gives alone
        """
        near = (self.shared + self.weights)[:, None]
        volume = (self.read + self.written)[:, None]
        cache_share, main = self._rates(near + volume * np.array([*counts, total]) // total)
        rate = caches * cache_share + main
        stored = rate + main
        read, written, shared = self.read[:, None], self.written[:, None], self.shared[:, None]
        own, own_stored = rate[:, :-1], stored[:, :-1]
        passing = (read + -(-total // counts) * shared) * own + written * own_stored
        return passing, read * (rate[:, -1:] - own), written * (stored[:, -1:] - own_stored)

    def _rates(self, count: Array) -> tuple[Array, Array]:
        """Cycles for one of so many bytes that are gone through again and again: in which caches give it, and main memory."""
        cycles, there = np.zeros(np.shape(count)), np.zeros(np.shape(count))
        for level in self.machine.memory:
            share = np.minimum(1.0, level.bytes / np.maximum(count, 1))
            cycles += (share - there) / level.bytes_per_cycle
            there = share
        return cycles, (1 - there) / self.machine.dram.bytes_per_cycle
