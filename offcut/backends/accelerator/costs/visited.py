"""What the leaves of a nest issue and move in a call whose sizes are all known: instance by instance.

What instances of one shape take is read once, from the instructions that the first of them is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from math import prod

from offcut.backends.accelerator.costs.issued import Fetched, Issued
from offcut.backends.accelerator.costs.line import Line
from offcut.backends.accelerator.isa import Alu, Gemm, Instruction, Load, Store, Unit
from offcut.backends.accelerator.lowering.covers import Copy, Result
from offcut.backends.accelerator.lowering.emit import Emitter, brings_micro_ops
from offcut.backends.accelerator.lowering.nest import Work, touched_of
from offcut.backends.accelerator.simulator.cycles import cycles, step_count
from offcut.core import index as ix


@dataclass(frozen=True, slots=True)
class _Shape:
    """What instances of one shape are.

    own, bus  cycles without the bus and with it
    counts    as those of `Issued`, but for runs and turns
    """

    own: float
    bus: float
    counts: Mapping[str, int]


@dataclass
class Visited(Emitter):
    """Looks at every instance of a nest.

    line  all of them, in their order
    """

    line: Line = field(init=False)
    shapes: dict[tuple[object, ...], _Shape] = field(default_factory=dict)

    def counted(self) -> tuple[list[Issued], Fetched]:
        """The counts of each leaf, by its number, and the loads of micro-ops.

        Raises TargetError where a window does not fit.
        """
        self.line = Line(self.spec)
        self.touches = [touched_of(work) for work in self.nest.work]
        names = [one.name for one in fields(Issued)]
        self.totals = [dict.fromkeys(names, 0) for _ in self.nest.work]
        self.brought: list[Load] = []
        self.lay_images()
        self.nest.walk(self.measure, self.sizes)
        self.allocate()
        self.nest.walk(self.visit, self.sizes)
        counts = [Issued(*(ix.const(total[name]) for name in names)) for total in self.totals]
        return counts, Fetched(len(self.brought), sum(one.x for one in self.brought))

    def visit(self, number: int, values: Sequence[int]) -> None:
        """Note an instance."""
        work, total = self.nest.work[number], self.totals[number]
        key = number, *_shape(work, values)
        shape = self.shapes.get(key)
        if shape is None:
            shape = self.looked(number, values)
            self.shapes[key] = shape
        first = not any(values[at] for at in work.threads.values())
        total["runs"] += 1
        total["turns"] += first
        total["turned"] += shape.counts["words"] * first
        for name, count in shape.counts.items():
            total[name] += count
        touched = [
            ((self.nest.regions[name], work.thread_of(name, values)), writes)
            for name, writes in self.touches[number]
        ]
        self.line.event(
            work.unit,
            shape.own,
            shape.bus,
            [key for key, writes in touched if not writes],
            [key for key, writes in touched if writes],
            shape.counts["instructions"],
        )

    def looked(self, number: int, values: Sequence[int]) -> _Shape:
        """What an instance is; micro-ops that it is the first to use are brought before it."""
        work, end = self.nest.work[number], self.ops.end
        self.stream.clear()
        self.issue(number, values)
        if self.ops.end < end:
            self.shapes.clear()  # all micro-ops were thrown out
        own, bus, made = 0.0, 0.0, list[Instruction]()
        for one in self.stream:
            alone, moving = cycles(one, self.spec)
            if brings_micro_ops(one):
                assert isinstance(one, Load)
                self.brought.append(one)
                self.line.event(Unit.COMPUTE, alone, moving)
            else:
                own, bus = own + alone, bus + moving
                made.append(one)
        counts = _counts(made)
        if isinstance(work.does, Copy | Result):
            counts["zeros"] = prod(work.counts_of(values)) - counts["words"]
        return _Shape(own, bus, counts)


def _counts(made: Sequence[Instruction]) -> dict[str, int]:
    """What instructions are, by the names of `Issued`."""
    counts = dict.fromkeys(("steps", "pairs", "resets", "rows", "words"), 0)
    for one in made:
        match one:
            case Load(y=y, x=x) | Store(y=y, x=x):
                counts["rows"] += y if x else 0
                counts["words"] += y * x
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
