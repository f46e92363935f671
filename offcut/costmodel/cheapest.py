"""What the cheapest of several options takes, as an expression in the sizes."""

from __future__ import annotations

from collections.abc import Sequence

from offcut.core.expr import Compare, Expr, Select


def part_of_cheapest(costs: Sequence[Expr], parts: Sequence[Expr]) -> Expr:
    """Return the part whose cost is least, the first if equal."""
    best, part = costs[0], parts[0]
    for cost, other in zip(costs[1:], parts[1:], strict=True):
        holds = Compare("<", cost, best)
        best, part = Select(holds, cost, best), Select(holds, other, part)
    return part


__all__ = ["part_of_cheapest"]
