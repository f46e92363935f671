"""What a call of a model costs, predicted: the sum of its kernels, each at the sizes that it runs at."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from offcut.costmodel import Cost, quantity, table
from offcut.graph.graph import Graph
from offcut.graph.models.plan import check_sizes
from offcut.graph.models.running import Shared
from offcut.graph.models.step import Step
from offcut.graph.sizes.extents import Numbers


@dataclass(frozen=True)
class ModelCost:
    """What a call of a model costs, on one core; ``str`` of it is a table.

    kernels  the value that each gives, the operators that it runs, how often, and what one of these times costs, in the
             order of the graph: what runs for a part of the batch at a time stands there for a part, and for the last
    """

    name: str
    sizes: Mapping[str, int]
    kernels: tuple[tuple[str, str, int, Cost], ...]

    @property
    def seconds(self) -> float:
        """Of all kernels: they run one after the other."""
        return sum(times * cost.seconds for _, _, times, cost in self.kernels)

    @property
    def flop(self) -> int:
        """Operations of what the kernels are described by."""
        return sum(times * cost.flop for _, _, times, cost in self.kernels)

    @property
    def bytes(self) -> dict[str, int]:
        """From each memory: what lies between kernels is taken to be as near as what a kernel reads in a call by itself."""
        found = Counter[str]()
        for _, _, times, cost in self.kernels:
            found.update({name: times * count for name, count in cost.bytes.items()})
        return dict(found)

    @property
    def energy(self) -> float:
        """Joules: an estimate, as of a kernel."""
        return sum(times * cost.energy for _, _, times, cost in self.kernels)

    def __str__(self) -> str:
        at = ", ".join(f"{name} = {value}" for name, value in self.sizes.items())
        first = f"{self.name}({at}): {quantity(self.seconds, 's')}, {self.flop:,} flop, {quantity(self.energy, 'J')}"
        rows = [("value", "operators", "predicted", "of the call", "flop", "bound by")]
        for value, operators, times, cost in self.kernels:
            share = f"{times * cost.seconds / self.seconds:.0%}" if self.seconds else ""
            took = (
                quantity(cost.seconds, "s")
                if times == 1
                else f"{times} × {quantity(cost.seconds, 's')}"
            )
            rows.append((value, operators, took, share, f"{times * cost.flop:,}", cost.bound_by))
        return "\n".join([first, *table(rows)])

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


def cost_of(graph: Graph, shared: Shared, sizes: Mapping[str, int]) -> ModelCost:
    """What a call of a model costs at sizes.

    Raises CallError for a size that is missing, unknown, or not allowed.
    """
    check_sizes(graph, sizes, "cost")
    number = shared.valued(sizes)
    once: tuple[tuple[int, Numbers], ...] = ((1, number),)
    times = dict.fromkeys(range(len(shared.steps)), once)
    for part in shared.parts(number, sizes):
        whole, *rest = part.numbers
        runs = ((part.total // part.count, whole), *((1, one) for one in rest))
        times |= dict.fromkeys(range(part.first, part.end), runs)

    def of(step: Step, at: Numbers) -> Cost:
        found: Cost = step.kernel.cost(**{name: at(extent) for name, extent in step.sizes})
        return found

    kernels = (
        (step.name, " ".join(step.nodes), count, of(step, at))
        for place, step in enumerate(shared.steps)
        for count, at in times[place]
    )
    return ModelCost(graph.name, dict(sizes), tuple(kernels))
