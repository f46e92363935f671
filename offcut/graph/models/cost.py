"""What a call of a model costs, predicted: the sum of its kernels, each at the sizes that it runs at::

    seconds = sum over kernels of max(alone, weights) + passing

A kernel alone is one that was called before, and finds near what fits near. In a model its weights come from where those of all kernels
fit, while it computes; what kernels hand on and main memory gives and takes comes on top, since a kernel waits for it: convolutions of
eight images of a MobileNet do, products of a transformer do not wait for weights (`batches.microbatches` has the formulas of both).
"""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from offcut.core.interpret.run_arguments import given_sizes
from offcut.core.text.tables import quantity, table
from offcut.costmodel import Cost
from offcut.graph.graph import Graph
from offcut.graph.models.frames import Prepared
from offcut.graph.models.kernel_step import Step
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
