"""A cost as it was built -> the same cost as one would write it: what no size tells is a number."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from offcut.core import index as ix
from offcut.core.expr import (
    Binary,
    Compare,
    Const,
    Expr,
    Select,
    Var,
    children,
    dtype_of,
    rebuild,
    variables,
)
from offcut.core.interpret.values import evaluate
from offcut.core.intervals import interval
from offcut.core.program import Size

_ONE, _ZERO = Const(1.0, "float64"), Const(0.0, "float64")


def shortened(cost: Expr) -> Expr:
    """`cost` with the value of every part that names no size, without factors of one and terms of zero.

    The value is the same to rounding: parts are computed in the order in which the cost adds them.
    """
    if dtype_of(cost) == "index":
        return cost
    if not variables(cost) and not isinstance(cost, Const):
        return Const(evaluate(cost, {}), dtype_of(cost))
    return shortened_once(rebuild(cost, tuple(shortened(part) for part in children(cost))))


def shortened_over(cost: Expr, sizes: Sequence[Size]) -> Expr:
    """`cost` without the parts of ``min``, ``max`` and conditions of indices that the ranges of the sizes decide, and shortened."""
    ranges = {size.name: (size.min, size.max) for size in sizes}

    def known(part: Expr) -> tuple[float, float]:
        return ranges.get(part.name, (-inf, inf)) if isinstance(part, Var) else (-inf, inf)

    def at_least(a: Expr, b: Expr) -> bool:
        return interval(ix.sub(a, b), known)[0] >= 0

    def decided(expr: Expr) -> Expr:
        expr = rebuild(expr, tuple(map(decided, children(expr))))
        match expr:
            case Compare(">" | "<=" as op, a, b) if dtype_of(a) == "index":
                above, not_above = at_least(a, ix.add(b, 1)), at_least(b, a)
                holds = above if op == ">" else not_above
                return Const(holds, "bool") if above or not_above else expr
            case Select(Const(holds, _), then, other):
                return then if holds else other
            case Binary("max", a, b) if dtype_of(expr) == "index" and at_least(a, b):
                return a
            case Binary("max", a, b) if dtype_of(expr) == "index" and at_least(b, a):
                return b
            case Binary("min", a, b) if dtype_of(expr) == "index" and at_least(a, b):
                return b
            case Binary("min", a, b) if dtype_of(expr) == "index" and at_least(b, a):
                return a
        return ix.simplify(expr) if dtype_of(expr) == "index" else expr

    return shortened(decided(cost))


def shortened_once(cost: Expr) -> Expr:
    """`cost`, whose parts are short."""
    match cost:
        case Select(Const(holds, _), then, other):
            return then if holds else other
        case Binary("*", a, b) if _ONE in (a, b):
            return b if a == _ONE else a
        case Binary("*", Binary("*", a, Const(x, dtype)), Const(y)):
            return Binary("*", a, Const(x * y, dtype))
        case Binary(op, Const(), Const()) if op != "/" and dtype_of(cost) == "float64":
            return Const(evaluate(cost, {}), "float64")
        case Binary("*", a, b) if _ZERO in (a, b):
            return _ZERO
        case Binary("+" | "-", a, b) if b == _ZERO:
            return a
        case Binary("+", a, b) if a == _ZERO:
            return b
        case _:
            return cost


def part_of_cheapest(costs: Sequence[Expr], parts: Sequence[Expr]) -> Expr:
    """Return the part whose cost is least, the first if equal."""
    best, part = costs[0], parts[0]
    for cost, other in zip(costs[1:], parts[1:], strict=True):
        holds = Compare("<", cost, best)
        best, part = Select(holds, cost, best), Select(holds, other, part)
    return part
