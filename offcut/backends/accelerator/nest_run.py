"""What the leaves of a nest issue and move in a call whose sizes are all known: instance by instance.

What instances of one shape take is read once, from the instructions that the first of them is.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import groupby
from math import prod
from typing import NamedTuple

from offcut.backends.accelerator.isa import (
    Alu,
    Finish,
    Gemm,
    Instruction,
    Load,
    MemorySpace,
    Store,
    Unit,
)
from offcut.backends.accelerator.lowering.emit import Emitter, brings_micro_ops
from offcut.backends.accelerator.lowering.nest import LoweredNest
from offcut.backends.accelerator.lowering.python_codegen import Shape
from offcut.backends.accelerator.simulator.timing import cycles, moved_bytes, step_count
from offcut.backends.accelerator.spec import AcceleratorSpec
from offcut.core import index as ix
from offcut.core.expr import Expr
from offcut.costmodel.event_simulation import EventQueue, EventTiming, InstructionGroup


def run_of(nest: LoweredNest, sizes: Mapping[str, int]) -> Ran:
    """Return how a nest runs.

    Raises TargetError where a window does not fit.
    """
    visited = Visited(nest, sizes)
    leaves = visited.counts_by_leaf()
    timed = visited.line.end_time()
    return Ran(nest, leaves, visited.overhead, visited.bytes_by_memory, timed, visited.largest)


class Instance(NamedTuple):
    """An instance of a leaf: words along each of its axes, and its instructions."""

    counts: Sequence[int]
    instructions: Sequence[Instruction]


@dataclass(frozen=True, slots=True)
class Ran:
    """A nest in a call whose sizes are all known.

    leaves    their counts, by number
    overhead  what belongs to no leaf: micro-ops that are brought, and the end
    kept      bytes of each memory that its windows fill
    timed     when all has ended
    largest   by leaf, the largest of its instances
    """

    nest: LoweredNest
    leaves: Sequence[Issued]
    overhead: Issued
    kept: Mapping[str, int]
    timed: EventTiming
    largest: Mapping[int, Instance]


RESULTS = "results"
"""What all stores write, and the end reads."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """What instances of one shape are.

    parts   what its units do
    counts  as those of `Issued`, but for runs
    reads, writes  windows
    """

    parts: Sequence[InstructionGroup]
    counts: Mapping[str, int]
    reads: Sequence[Hashable]
    writes: Sequence[Hashable]


@dataclass
class Visited(Emitter):
    """Looks at every instance of a nest.

    line     all of them, in their order
    largest  by leaf, the one with the most words
    """

    line: EventQueue = field(init=False)
    kinds: dict[tuple[int, Shape], _Kind] = field(default_factory=dict)
    largest: dict[int, Instance] = field(default_factory=dict)

    def counts_by_leaf(self) -> list[Issued]:
        """Return the counts of each leaf, by its number.

        Raises TargetError where a window does not fit.
        """
        self.line = EventQueue(self.spec.resources)
        names = [one.name for one in fields(Issued)]
        self.totals = [dict.fromkeys(names, 0) for _ in self.nest.work]
        self.fills: list[int] = []
        self.lay_images()
        if not self.idle:
            self.visit_all()
        return [Issued(*(ix.const(total[name]) for name in names)) for total in self.totals]

    @property
    def overhead(self) -> Issued:
        """What belongs to no leaf: micro-ops that are brought, and the end."""
        if self.idle:
            return Issued()
        loads = [self.ops.load(fill) for fill in range(len(self.fills))]
        words = sum(one.words for one in loads)
        size = sum(moved_bytes(one.place, one.y, one.x, self.spec) for one in loads)
        return Issued(
            instructions=ix.const(len(loads) + 1), words=ix.const(words), bytes=ix.const(size)
        )

    def visit_all(self) -> None:
        """Note all instances, and the end."""
        self.nest.walk(self.measure, self.sizes)
        self.allocate()
        self.nest.walk(self.visit, self.sizes)
        finish = InstructionGroup(Unit.COMPUTE.value, *cycles(Finish(), self.spec))
        self.line.instance([finish], [RESULTS])
        for fill, event in enumerate(self.fills):
            self.line.replace(event, *cycles(self.ops.load(fill), self.spec))

    def visit(self, number: int, shape: Shape, values: Callable[[], Sequence[int]]) -> None:
        """Note an instance."""
        total, key = self.totals[number], (number, shape)
        kind = self.kinds.get(key)
        if kind is None:
            kind = self.instance(number, values())
            self.kinds[key] = kind
        total["runs"] += 1
        for name, count in kind.counts.items():
            total[name] += count
        self.line.instance(kind.parts, kind.reads, kind.writes)

    def instance(self, number: int, values: Sequence[int]) -> _Kind:
        """What an instance is; where it is the first to use micro-ops of a fill, this is brought before it."""
        work, fills = self.nest.work[number], len(self.ops.starts)
        self.stream.clear()
        self.issue_as(number, values)
        if len(self.ops.starts) > fills:
            self.kinds.clear()  # what others use was thrown out
        made = [one for one in self.stream if not brings_micro_ops(one)]
        if len(made) < len(self.stream):
            self.fills.append(len(self.line.events))
            self.line.instance([InstructionGroup(Unit.COMPUTE.value, 0.0, 0.0)])
        words = work.counts_of(values)
        if number not in self.largest or prod(words) > prod(self.largest[number].counts):
            self.largest[number] = Instance(words, made)
        taken = ((self.spec.unit(one), *cycles(one, self.spec)) for one in made)
        parts = [
            InstructionGroup(unit.value, own * count, bus * count, count)
            for (unit, own, bus), same in groupby(taken)
            for count in [len(list(same))]
        ]
        counts = _counts(made, self.spec)
        touched = [work.place_of(side.buffer, values) for side, _ in work.chip]
        if work.unit is Unit.STORE:
            return _Kind(parts, counts, touched, [RESULTS])
        return _Kind(parts, counts, touched[1:], touched[:1])


def _counts(made: Sequence[Instruction], spec: AcceleratorSpec) -> dict[str, int]:
    """What instructions are, by the names of `Issued`."""
    counts = dict.fromkeys(("steps", "pairs", "resets", "words", "bytes", "zeros"), 0)
    for one in made:
        match one:
            case Load(y=y, x=x) | Store(y=y, x=x):
                counts["words"] += y * x
                counts["zeros"] += one.words - y * x
                place = one.place if isinstance(one, Load) else MemorySpace.OUTPUTS
                counts["bytes"] += moved_bytes(place, y, x, spec)
            case Gemm(reset=True):
                counts["resets"] += step_count(one)
            case Alu(immediate=None):
                counts["pairs"] += step_count(one)
            case Gemm() | Alu():
                counts["steps"] += step_count(one)
            case _:
                pass
    return {"instructions": len(made), **counts}


ZERO, ONE = ix.const(0), ix.const(1)


@dataclass(frozen=True, slots=True)
class Issued:
    """Of a leaf, over all of its instances in a call.

    runs          instances
    instructions  that are issued
    steps         of products, or of the vector unit with an immediate; of a copy, those that fill what main memory has not
    pairs         of the vector unit with a second word
    resets        of words that are set to 0
    words, bytes  that the bus moves; bytes in whole beats
    zeros         words that a load fills
    """

    runs: Expr = ZERO
    instructions: Expr = ZERO
    steps: Expr = ZERO
    pairs: Expr = ZERO
    resets: Expr = ZERO
    words: Expr = ZERO
    bytes: Expr = ZERO
    zeros: Expr = ZERO

    def map(self, of: Callable[[Expr], Expr]) -> Issued:
        """Each count put through a function."""
        return Issued(*(of(getattr(self, one.name)) for one in fields(Issued)))
