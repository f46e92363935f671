"""What a call of a model costs, predicted: the sum of its kernels, each at the sizes that it runs at."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from offcut.costmodel import Cost, quantity, table
from offcut.graph.graph import Graph
from offcut.graph.models.plan import check_sizes
from offcut.graph.models.step import Step
from offcut.graph.sizes.extents import Numbers


@dataclass(frozen=True)
class ModelCost:
    """What a call of a model costs, on one core; ``str`` of it is a table.

    kernels  the value that each gives, the operators that it runs, and its cost, in the order of the call
    """

    name: str
    sizes: Mapping[str, int]
    kernels: tuple[tuple[str, str, Cost], ...]

    @property
    def seconds(self) -> float:
        """Of all kernels: they run one after the other."""
        return sum(cost.seconds for _, _, cost in self.kernels)

    @property
    def flop(self) -> int:
        """Operations of what the kernels are described by."""
        return sum(cost.flop for _, _, cost in self.kernels)

    @property
    def bytes(self) -> dict[str, int]:
        """From each memory: what lies between kernels is taken to be as near as what a kernel reads in a call by itself."""
        found = Counter[str]()
        for _, _, cost in self.kernels:
            found.update(cost.bytes)
        return dict(found)

    @property
    def energy(self) -> float:
        """Joules: an estimate, as of a kernel."""
        return sum(cost.energy for _, _, cost in self.kernels)

    def __str__(self) -> str:
        at = ", ".join(f"{name} = {value}" for name, value in self.sizes.items())
        first = f"{self.name}({at}): {quantity(self.seconds, 's')}, {self.flop:,} flop, {quantity(self.energy, 'J')}"
        rows = [("value", "operators", "predicted", "of the call", "flop", "bound by")]
        for value, operators, cost in self.kernels:
            share = f"{cost.seconds / self.seconds:.0%}" if self.seconds else ""
            took = quantity(cost.seconds, "s")
            rows.append((value, operators, took, share, f"{cost.flop:,}", cost.bound_by))
        return "\n".join([first, *table(rows)])

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


def cost_of(graph: Graph, steps: Sequence[Step], sizes: Mapping[str, int]) -> ModelCost:
    """What a call of a model costs at sizes.

    Raises CallError for a size that is missing, unknown, or not allowed.
    """
    check_sizes(graph, sizes, "cost")
    number = Numbers(sizes)

    def of(step: Step) -> Cost:
        given = {name: number(extent) for name, extent in step.sizes}
        found: Cost = step.kernel.cost(**given)
        return found

    kernels = tuple((step.name, " ".join(step.nodes), of(step)) for step in steps)
    return ModelCost(graph.name, dict(sizes), kernels)
