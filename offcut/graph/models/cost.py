"""What a call of a model runs, as a table, and what it costs, predicted.

What a call of a model costs, predicted: the sum of its kernels, each at the sizes that it runs at::

    seconds = sum over kernels of max(alone, weights) + passing

A kernel alone is one that was called before, and finds near what fits near. In a model its weights come from where those of all kernels
fit, while it computes; what kernels hand on and main memory gives and takes comes on top, since a kernel waits for it: convolutions of
eight images of a MobileNet do, products of a transformer do not wait for weights (`batches.microbatches` has the formulas of both).

What a call of a model runs, as a table.
"""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from offcut.core.expr import Expr
from offcut.core.interpret.run_arguments import given_sizes
from offcut.core.text.printer import format_expr
from offcut.core.text.tables import quantity, table
from offcut.costmodel import Cost
from offcut.graph.graph import Graph
from offcut.graph.models.batches.arena_plan import ArenaPlan, align_up
from offcut.graph.models.batches.microbatches import Part
from offcut.graph.models.frames import Prepared
from offcut.graph.models.kernel_step import Operand, Step
from offcut.graph.sizes.extent_values import Numbers


@dataclass(frozen=True)
class KernelCost:
    """What a kernel of a model costs.

    value    that it gives; operators: that it runs
    times    that it runs in a call
    each     the cost of one of these, of a kernel that was called before by itself
    alone    seconds of all of these, but for what main memory gives
    weights  seconds in which they read these; passing: in which main memory gives and takes what passes between kernels
    """

    value: str
    operators: str
    times: int
    each: Cost
    alone: float
    weights: float
    passing: float

    @property
    def seconds(self) -> float:
        """Of all times."""
        return max(self.alone, self.weights) + self.passing

    @property
    def bound_by(self) -> str:
        """``passing``, ``weights``, or the resource that binds the kernel by itself: that of most of the time."""
        if self.passing > max(self.alone, self.weights):
            return "passing"
        return "weights" if self.weights > self.alone else self.each.bound_by


@dataclass(frozen=True)
class ModelCost:
    """What a call of a model is predicted to cost, on one core; ``str`` of it is a table.

    kernels  in the order of the graph; what runs for a part of the batch at a time stands there for a part, and for the last
             part where that is smaller
    """

    name: str
    sizes: Mapping[str, int]
    kernels: tuple[KernelCost, ...]

    @property
    def seconds(self) -> float:
        """Of all kernels: they run one after the other."""
        return sum(one.seconds for one in self.kernels)

    @property
    def flop(self) -> int:
        """Operations of what the kernels are described by."""
        return sum(one.times * one.each.flop for one in self.kernels)

    @property
    def bytes(self) -> dict[str, int]:
        """From each memory, by kernels alone: what lies between them is taken to be as near as what one reads in a call by itself."""
        totals = Counter[str]()
        for one in self.kernels:
            totals.update({name: one.times * count for name, count in one.each.bytes.items()})
        return dict(totals)

    @property
    def energy(self) -> float:
        """Joules: an estimate, as of a kernel."""
        return sum(one.times * one.each.energy for one in self.kernels)

    def __str__(self) -> str:
        at = ", ".join(f"{name} = {value}" for name, value in self.sizes.items())
        first = f"{self.name}({at}): {quantity(self.seconds, 's')}, {self.flop:,} flop, {quantity(self.energy, 'J')}"
        rows = [("value", "operators", "predicted", "of the call", "flop", "bound by")]
        for one in self.kernels:
            cost, times = one.each, one.times
            share = f"{one.seconds / self.seconds:.0%}" if self.seconds else ""
            took = ("" if times == 1 else f"{times} × ") + quantity(one.seconds / times, "s")
            flop = f"{times * cost.flop:,}"
            rows.append((one.value, one.operators, took, share, flop, one.bound_by))
        weights = sum(max(one.weights - one.alone, 0) for one in self.kernels)
        passing = sum(one.passing for one in self.kernels)
        last = f"of this {quantity(weights, 's')} waiting for weights, {quantity(passing, 's')} passing values by main memory"
        return "\n".join([first, *table(rows), last])

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


def cost_of(graph: Graph, shared: Prepared, sizes: Mapping[str, int]) -> ModelCost:
    """What a call of a model costs at sizes.

    Raises CallError for a size that is missing, unknown, or not allowed.
    """
    sizes = given_sizes("cost", graph.name, graph.sizes, sizes)
    number = shared.valued(sizes)
    runs, _ = shared.runs(number, sizes)
    cycles = shared.batches.cycles(number, runs)
    whole: tuple[tuple[int, Numbers, float], ...] = ((1, number, 1.0),)
    times = dict.fromkeys(range(len(shared.steps)), whole)
    for run in runs:
        full, *rest = run.numbers
        count, remainder = divmod(run.total, run.part.count)
        shares = (
            (count, full, 1 - remainder / run.total),
            *((1, one, remainder / run.total) for one in rest),
        )
        times |= dict.fromkeys(range(run.first, run.end), shares)

    def kernel(place: int, step: Step, count: int, at: Numbers, share: float) -> KernelCost:
        each: Cost = step.kernel.cost(**{name: at(extent) for name, extent in step.sizes})
        alone, weights, passing = count * (each.cycles - each.call) / each.hertz, 0.0, 0.0
        if cycles is not None:
            near = (
                max(cycles for name, cycles in stage.items() if name != each.memories[-1])
                for stage in each.stages.values()
            )
            alone = count * sum(near) / each.hertz
            weights, passing = (share * float(values[place]) / each.hertz for values in cycles)
        operators = " ".join(step.nodes)
        return KernelCost(step.name, operators, count, each, alone, weights, passing)

    kernels = (
        kernel(place, step, *times_)
        for place, step in enumerate(shared.steps)
        for times_ in times[place]
    )
    return ModelCost(graph.name, dict(sizes), tuple(kernels))


TARGET = 2  # the column of `ModelPlan.rows`


@dataclass(frozen=True)
class ModelPlan:
    """The kernels of a call, in order; ``str`` of it is a table.

    rows     value, operators, target, shapes of the results, slots of the arena, or whether they lie there for a part or for all
             of the batch, or how large what is measured may be; the table shows targets where there are several
    kernels  how many of the kernels are distinct
    arena    bytes of the slots, by expressions or numbers; of all of it where kernels run in parts
    parts    kernels that run for a part of the batch at a time, where sizes are known; their lines are a text that `compiled` takes
    split    kernels that a target runs after others refused them, and why these did
    distributed  kernels in which products are distributed over sums, so that they may round otherwise than described
    notes    what was not fused, or does not run in parts as it might, and why
    """

    name: str
    sizes: Mapping[str, int]
    rows: tuple[tuple[str, str, str, str, str], ...]
    kernels: int
    arena: tuple[str, ...]
    parts: tuple[Part, ...]
    split: tuple[str, ...]
    distributed: tuple[str, ...]
    notes: tuple[str, ...]

    def __str__(self) -> str:
        at = ", ".join(f"{name} = {value}" for name, value in self.sizes.items())
        lines = [f"{self.name}({at}): {len(self.rows)} kernels, {self.kernels} distinct"]
        rows = [("value", "operators", "target", "shape", "memory"), *self.rows]
        several = len({row[TARGET] for row in self.rows}) > 1 or bool(self.split)
        columns = [column for column in range(4) if several or column != TARGET]
        widths = [max(len(row[column]) for row in rows) for column in columns]
        for row in rows:
            cells = [
                row[column].ljust(width) for column, width in zip(columns, widths, strict=True)
            ]
            lines.append("  ".join((*cells, row[4])).rstrip())
        lines.append(f"arena: {' + '.join(self.arena) or '0'} bytes")
        lines += map(str, self.parts)
        lines += self.split
        if self.distributed:
            lines.append(
                f"products distributed over sums, unless distributive=False: {', '.join(self.distributed)}"
            )
        return "\n".join([*lines, *self.notes])

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


def make_plan(
    graph: Graph, shared: Prepared, notes: Sequence[str], sizes: Mapping[str, int]
) -> ModelPlan:
    """The plan of a model, at sizes or in formulas.

    Raises CallError for a size that is missing, unknown, or not allowed.
    """
    sizes = given_sizes("plan", graph.name, graph.sizes, sizes) if sizes else {}
    number = shared.valued(sizes) if sizes or not graph.sizes else None
    steps, arena = shared.steps, shared.arena
    runs, dropped = ([], []) if number is None else shared.runs(number, sizes)
    layout = None if number is None else ArenaPlan(arena, number, runs)
    own = dict[str, str]()
    if layout is not None:
        own = dict.fromkeys(arena.lives, "arena") if runs else {}
        own |= dict.fromkeys(frozenset[str]().union(*layout.inner), "part")

    def format_extent(expr: Expr) -> str:
        return format_expr(expr) if number is None else f"{number(expr)}"

    def memory(root: str) -> str:
        return own.get(root) or (f"slot {arena.of[root]}" if root in arena.of else "result")

    def line(step: Step) -> tuple[str, str, str, str, str]:
        shape = ", ".join(_shape(one, format_extent) for one in step.outputs)
        lies = ", ".join(memory(one.root) for one in step.outputs)
        if step.limits:
            lies = ", ".join(f"at most {limit:.1e}" for limit in step.limits)
        return step.name, " ".join(step.nodes), step.target, shape, lies

    if layout is None:
        slots = tuple(map(str, arena.slots))
    else:
        slots = tuple(f"{align_up(need):,}" for need in layout.slots or (layout.bytes,))
    split = tuple(
        f"{step.name}: runs on {step.target}, since {name} refuses it: {because}"
        for step in steps
        for name, because in step.refused
    )
    return ModelPlan(
        graph.name,
        dict(sizes),
        rows=tuple(map(line, steps)),
        kernels=len({step.code for step in steps}),
        arena=slots,
        parts=tuple(run.part for run in runs),
        split=split,
        distributed=tuple(step.name for step in steps if step.distributed),
        notes=(*dropped, *notes),
    )


def _shape(one: Operand, format_extent: Callable[[Expr], str]) -> str:
    return f"[{', '.join(map(format_extent, one.shape))}]"
