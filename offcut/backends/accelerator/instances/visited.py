"""What the leaves of a nest issue and move in a call whose sizes are all known: instance by instance.

What instances of one shape take is read once, from the instructions that the first of them is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import groupby
from math import prod

from offcut.backends.accelerator.instances.issued import Issued
from offcut.backends.accelerator.instances.line import Line, Part
from offcut.backends.accelerator.isa import Alu, Finish, Gemm, Instruction, Load, Place, Store, Unit
from offcut.backends.accelerator.lowering.covers import Copy, Result
from offcut.backends.accelerator.lowering.emit import Emitter, brings_micro_ops
from offcut.backends.accelerator.lowering.nest import Lowered, Work, touched_of
from offcut.backends.accelerator.simulator.cycles import cycles, moved_bytes, step_count
from offcut.backends.accelerator.spec import Spec
from offcut.core import index as ix


def cycles_of(nest: Lowered, sizes: Mapping[str, int]) -> float:
    """Cycles of a nest in a call."""
    visited = Visited(nest, sizes)
    visited.counted()
    return visited.line.timed().cycles


RESULTS = "results"
"""What all stores write, and the end reads."""


@dataclass(frozen=True, slots=True)
class _Shape:
    """What instances of one shape are.

    parts   what its units do
    counts  as those of `Issued`, but for runs
    """

    parts: Sequence[Part]
    counts: Mapping[str, int]


@dataclass
class Visited(Emitter):
    """Looks at every instance of a nest.

    line  all of them, in their order
    """

    line: Line = field(init=False)
    shapes: dict[tuple[object, ...], _Shape] = field(default_factory=dict)

    def counted(self) -> list[Issued]:
        """The counts of each leaf, by its number.

        Raises TargetError where a window does not fit.
        """
        self.line = Line(self.spec)
        self.touches = [touched_of(work) for work in self.nest.work]
        names = [one.name for one in fields(Issued)]
        self.totals = [dict.fromkeys(names, 0) for _ in self.nest.work]
        self.fills: list[int] = []
        self.lay_images()
        self.nest.walk(self.measure, self.sizes)
        self.allocate()
        self.nest.walk(self.visit, self.sizes)
        self.line.instance([Part(Unit.COMPUTE, *cycles(Finish(), self.spec))], [RESULTS])
        for fill, event in enumerate(self.fills):
            self.line.replace(event, *cycles(self.ops.load(fill), self.spec))
        return [Issued(*(ix.const(total[name]) for name in names)) for total in self.totals]

    def visit(self, number: int, values: Sequence[int]) -> None:
        """Note an instance."""
        work, total = self.nest.work[number], self.totals[number]
        key = number, *_shape(work, values)
        shape = self.shapes.get(key)
        if shape is None:
            shape = self.looked(number, values)
            self.shapes[key] = shape
        total["runs"] += 1
        for name, count in shape.counts.items():
            total[name] += count
        touched = [
            ((self.nest.regions[name], work.thread_of(name, values)), writes)
            for name, writes in self.touches[number]
        ]
        writes = [RESULTS] if work.unit is Unit.STORE else [key for key, own in touched if own]
        self.line.instance(shape.parts, [key for key, own in touched if not own], writes)

    def looked(self, number: int, values: Sequence[int]) -> _Shape:
        """What an instance is; where it is the first to use micro-ops of a fill, this is brought before it."""
        work, fills = self.nest.work[number], len(self.ops.starts)
        self.stream.clear()
        self.issue(number, values)
        if len(self.ops.starts) > fills:
            self.shapes.clear()  # what others use was thrown out
        made = [one for one in self.stream if not brings_micro_ops(one)]
        if len(made) < len(self.stream):
            self.fills.append(len(self.line.events))
            self.line.instance([Part(Unit.COMPUTE, 0.0, 0.0)])
        taken = ((self.spec.unit(one), *cycles(one, self.spec)) for one in made)
        parts = [
            Part(unit, own * count, bus * count, count)
            for (unit, own, bus), same in groupby(taken)
            for count in [len(list(same))]
        ]
        counts = _counts(made, self.spec)
        if isinstance(work.does, Copy | Result):
            counts["zeros"] = prod(work.counts_of(values)) - counts["words"]
        return _Shape(parts, counts)


def _counts(made: Sequence[Instruction], spec: Spec) -> dict[str, int]:
    """What instructions are, by the names of `Issued`."""
    counts = dict.fromkeys(("steps", "pairs", "resets", "words", "bytes"), 0)
    for one in made:
        match one:
            case Load(y=y, x=x) | Store(y=y, x=x):
                counts["words"] += y * x
                place = one.place if isinstance(one, Load) else Place.OUTPUTS
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


def _shape(work: Work, values: Sequence[int]) -> Iterator[object]:
    """What an instance has in common with those that are run as it is: its extents, what is there of them in main
    memory, its virtual thread, and where in its windows it lies.
    """
    counts = work.counts_of(values)
    yield from counts
    for count, (low, high) in zip(counts, work.bounds_of(values, counts), strict=True):
        yield max(low, 0), min(high, count)
    yield from (values[at] for at in work.threads.values())
    for side, at in work.sides:
        if side.window:
            rank = len(side.lanes.order)
            firsts, starts = values[at : at + rank], values[at + rank : at + 3 * rank : 2]
            yield from (first - start for first, start in zip(firsts, starts, strict=True))
            yield from values[at + rank + 1 : at + 3 * rank : 2]
