"""Simplification of costs and of counts: parts without sizes become numbers, and decided conditions are dropped."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import inf

from offcut.core import index as ix
from offcut.core.expr import (
    Binary,
    Compare,
    Const,
    Expr,
    Logic,
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


def simplify_cost(cost: Expr) -> Expr:
    """Return a cost with its constant parts evaluated, without factors of one and terms of zero.

    The value is the same to rounding: parts are evaluated in the order in which the cost adds them.
    """
    if dtype_of(cost) == "index":
        return cost
    if not variables(cost) and not isinstance(cost, Const):
        return Const(evaluate(cost, {}), dtype_of(cost))
    return simplify_once(rebuild(cost, tuple(simplify_cost(part) for part in children(cost))))


def simplify_cost_over(cost: Expr, sizes: Sequence[Size]) -> Expr:
    """Return a simplified cost, without operands of ``min`` and ``max`` and conditions on indices that the ranges of the sizes decide."""
    ranges = {size.name: (size.min, size.max) for size in sizes}

    def known(part: Expr) -> tuple[float, float]:
        return ranges.get(part.name, (-inf, inf)) if isinstance(part, Var) else (-inf, inf)

    def at_least(a: Expr, b: Expr) -> bool:
        return interval(ix.sub(a, b), known)[0] >= 0

    def decided_by_ranges(expr: Expr) -> Expr:
        expr = rebuild(expr, tuple(map(decided_by_ranges, children(expr))))
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

    return simplify_cost(decided_by_ranges(cost))


def simplify_once(cost: Expr) -> Expr:
    """Return a cost with its root simplified; its parts already are."""
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


def simplify_index(expr: Expr) -> Expr:
    """Return an index expression in canonical form, without decided conditions."""
    return ix.simplify(drop_decided_conditions(ix.simplify(expr)))


def select(condition: Expr, then: Expr, other: Expr) -> Expr:
    """Return `then` where a condition holds, else `other`: a `Select` for each comparison."""
    condition = drop_decided_conditions(condition)
    if then == other:
        return then
    match condition:
        case Const(value):
            return then if value else other
        case Logic("not", (part,)):
            return select(part, other, then)
        case Logic("and", (part, *rest)):
            return select(part, select(_join("and", rest), then, other), other)
        case Logic("or", (part, *rest)):
            return select(part, then, select(_join("or", rest), then, other))
        case Compare("!=", a, b):
            return select(Compare("==", a, b), other, then)
        case Compare("==", a, b) if dtype_of(a) == "index":
            reached = select(ix.compare("<=", a, b), then, other)
            return select(ix.compare(">=", a, b), reached, other)
        case _:
            return Select(condition, then, other)


@lru_cache(maxsize=1 << 15)
def drop_decided_conditions(expr: Expr) -> Expr:
    """Return an expression without the conditions whose value is known whatever the sizes are."""
    parts = tuple(map(drop_decided_conditions, children(expr)))
    match expr, parts:
        case Select(), (condition, then, other):
            return (
                select(condition, then, other)
                if dtype_of(then) == "index"
                else rebuild(expr, parts)
            )
        case Compare(op, a, _), (x, y) if dtype_of(a) == "index":
            return ix.compare(op, x, y)
        case Compare("!=", a, b), _ if a == b:  # NaN is as rare as LLVM's branch probabilities say
            return Const(0, "bool")
        case Logic("not"), (Const(value),):
            return Const(int(not value), "bool")
        case Logic("and" | "or" as op, _), _:
            return _join(op, parts)
        case _:
            return rebuild(expr, parts) if parts else expr


def _join(op: str, parts: Sequence[Expr]) -> Expr:
    absorbing = int(op == "or")
    if any(isinstance(part, Const) and part.value == absorbing for part in parts):
        return Const(absorbing, "bool")
    open_parts = tuple(part for part in parts if not isinstance(part, Const))
    if not open_parts:
        return Const(1 - absorbing, "bool")
    return open_parts[0] if len(open_parts) == 1 else Logic(op, open_parts)


def part_of_cheapest(costs: Sequence[Expr], parts: Sequence[Expr]) -> Expr:
    """Return the part whose cost is least, the first if equal."""
    best, part = costs[0], parts[0]
    for cost, other in zip(costs[1:], parts[1:], strict=True):
        holds = Compare("<", cost, best)
        best, part = Select(holds, cost, best), Select(holds, other, part)
    return part
