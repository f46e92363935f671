"""Substitution with backtracking: graphs that rules lead to, the cheapest by predicted cost, through some that are dearer.

A search that takes only what is cheaper at once misses what is cheaper after two rules. So a graph that costs at most
``alpha`` times the best one is looked at again. A rule is applied at all places where it fits, and at each alone where these are few.

Source: Jia et al., "Optimizing DNN Computation with Relaxed Graph Substitutions" (MetaFlow), MLSys 2019. There a graph's cost is the sum of measured times of
operators; here it is the sum of predicted times of its kernels, after fusion.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TypeAlias

from offcut.errors import DescribeError, OffcutError
from offcut.graph.graph import Bound
from offcut.graph.models.compiling.kernels import Kernels
from offcut.graph.models.compiling.split import Targets
from offcut.graph.models.compiling.stepping import steps_of_bound
from offcut.graph.passes import (
    Pass,
    eliminate_common_subexpressions,
    eliminate_dead_code,
    fold_constants,
    improved,
)
from offcut.graph.sizes.extent_values import Numbers
from offcut.graph.sizes.typical import typical_sizes
from offcut.graph.substitution.matching import applied, matches
from offcut.graph.substitution.rules import Rule

CallPrice: TypeAlias = tuple[float, int]
"""Predicted seconds of a call, and its kernels: of two graphs of one time, fewer are cheaper."""
FEW = 3
"""Places of a rule that are tried one by one."""
TIDIED: tuple[Pass, ...] = (eliminate_dead_code, fold_constants, eliminate_common_subexpressions)
"""What is done to graphs before rules are looked for in them; they are priced after all passes."""


@dataclass(frozen=True)
class Substituted:
    """What a search found.

    rules           that were applied, in order
    before, after   predicted seconds of a call
    tried           graphs that were priced
    unproved        those of the rules that were tried only
    """

    bound: Bound
    rules: tuple[str, ...]
    before: float
    after: float
    tried: int
    unproved: tuple[str, ...] = ()


def substituted(
    bound: Bound,
    rules: Sequence[Rule],
    alpha: float = 1.05,
    sizes: Mapping[str, int] | None = None,
    most: int = 32,
    target: Targets = "cpu",
) -> Substituted:
    """The cheapest graph that rules lead to.

    alpha  a graph that costs at most so many times the best is gone on from, at least 1
    sizes  at which graphs are priced, each of the graph's; None: typical ones
    most   graphs that are priced, at most

    Raises DescribeError for arguments that mean nothing, and what `offcut.graph.compiled` raises for the first graph.
    """
    names = [size.name for size in bound.graph.sizes]
    if not alpha >= 1:
        raise DescribeError("graph", f"cannot take alpha={alpha!r}", because="alpha is at least 1")
    if sizes is not None and set(sizes) != set(names):
        because = f"its sizes are {', '.join(names) or 'none'}"
        raise DescribeError("graph", f"cannot price at {', '.join(sizes)}", because=because)
    start = improved(bound, TIDIED)
    at = dict(typical_sizes(start.graph.sizes) if sizes is None else sizes)
    prices = Prices(improved(start), at, target)
    first = prices.known_of(improved(start))
    best, count, seen = (first, start, tuple[str, ...]()), 1, {str(start)}
    queue: list[tuple[CallPrice, int, Bound, tuple[str, ...]]] = []
    heappush(queue, (first, 0, start, tuple[str, ...]()))
    while queue and count < most:
        cost, _, graph, path = heappop(queue)
        if cost[0] > alpha * best[0][0]:
            break
        for rule in rules:
            places = matches(rule, graph.graph)
            groups = [places] if places else []
            groups += [(one,) for one in places] if 1 < len(places) <= FEW else []
            for group in groups:
                rewritten = applied(graph, rule, group)
                now = None if rewritten is None else improved(rewritten, TIDIED)
                if now is None or str(now) in seen or count >= most:
                    continue
                seen.add(str(now))
                count += 1
                price, steps = prices.of(improved(now)), (*path, rule.name)
                if price < best[0]:
                    best = price, now, steps
                if price[0] <= alpha * best[0][0]:
                    heappush(queue, (price, count, now, steps))
    unproved = {rule.name for rule in rules if rule.unproved}
    tried_only = tuple(name for name in best[2] if name in unproved)
    return Substituted(best[1], best[2], first[0], best[0][0], count, tried_only)


class Prices:
    """Predicted seconds of a call of a graph, at some sizes; equal kernels are priced once."""

    def __init__(self, bound: Bound, sizes: Mapping[str, int], target: Targets) -> None:
        self.sizes, self.target = sizes, target
        self.first = self.kernels(bound, None)
        self.known: dict[object, float] = {}

    def kernels(self, bound: Bound, like: Kernels | None) -> Kernels:
        """Kernels of a graph that share code with those of the first."""
        graph = bound.graph
        return Kernels(graph.sizes, graph.values, bound.arrays, self.target, 1, like)

    def of(self, bound: Bound) -> CallPrice:
        """What a call costs; infinite where a node has no kernel."""
        try:
            return self.known_of(bound)
        except OffcutError:
            return float("inf"), 0

    def known_of(self, bound: Bound) -> CallPrice:
        """What a call costs.

        Raises what `offcut.graph.compiled` does where a node has no kernel.
        """
        steps = steps_of_bound(bound, self.kernels(bound, self.first), priced=True).steps
        number, total = Numbers(self.sizes), 0.0
        for step in steps:
            at = {name: number(extent) for name, extent in step.sizes}
            key = step.code, tuple(sorted(at.items()))
            if key not in self.known:
                self.known[key] = float(step.kernel.cost(**at).seconds)
            total += self.known[key]
        return total, len(steps)
