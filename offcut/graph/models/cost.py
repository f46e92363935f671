"""What a call of a model costs, predicted: the sum of its kernels, each at the sizes that it runs at."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from offcut.costmodel import Cost, quantity, table
from offcut.graph.graph import Graph
from offcut.graph.models.plan import check_sizes
from offcut.graph.models.running import Prepared
from offcut.graph.models.step import Step
from offcut.graph.sizes.extents import Numbers


@dataclass(frozen=True)
class KernelCost:
    """What a kernel of a model costs.

    value    that it gives; operators: that it runs
    times    that it runs in a call
    each     the cost of one of these
    """

    value: str
    operators: str
    times: int
    each: Cost


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
        return sum(one.times * one.each.seconds for one in self.kernels)

    @property
    def flop(self) -> int:
        """Operations of what the kernels are described by."""
        return sum(one.times * one.each.flop for one in self.kernels)

    @property
    def bytes(self) -> dict[str, int]:
        """From each memory: what lies between kernels is taken to be as near as what a kernel reads in a call by itself."""
        found = Counter[str]()
        for one in self.kernels:
            found.update({name: one.times * count for name, count in one.each.bytes.items()})
        return dict(found)

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
            share = f"{times * cost.seconds / self.seconds:.0%}" if self.seconds else ""
            took = ("" if times == 1 else f"{times} × ") + quantity(cost.seconds, "s")
            flop = f"{times * cost.flop:,}"
            rows.append((one.value, one.operators, took, share, flop, cost.bound_by))
        return "\n".join([first, *table(rows)])

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


def cost_of(graph: Graph, shared: Prepared, sizes: Mapping[str, int]) -> ModelCost:
    """What a call of a model costs at sizes.

    Raises CallError for a size that is missing, unknown, or not allowed.
    """
    check_sizes(graph, sizes, "cost")
    number = shared.valued(sizes)
    once: tuple[tuple[int, Numbers], ...] = ((1, number),)
    times = dict.fromkeys(range(len(shared.steps)), once)
    for run in shared.runs(number, sizes)[0]:
        whole, *rest = run.numbers
        found = ((run.total // run.part.count, whole), *((1, one) for one in rest))
        times |= dict.fromkeys(range(run.first, run.end), found)

    def of(step: Step, at: Numbers) -> Cost:
        found: Cost = step.kernel.cost(**{name: at(extent) for name, extent in step.sizes})
        return found

    kernels = (
        KernelCost(step.name, " ".join(step.nodes), count, of(step, at))
        for place, step in enumerate(shared.steps)
        for count, at in times[place]
    )
    return ModelCost(graph.name, dict(sizes), tuple(kernels))
