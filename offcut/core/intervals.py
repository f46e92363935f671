"""Bounds of an index expression whose names have ranges: as integers (`interval`), or as expressions (`ends`).

Both are interval arithmetic: each part varies by itself. So every value lies between the bounds, and both are reached if every name
occurs once, in sums, in products with a factor of one sign, in quotients, ``min`` and ``max``. Bounds of `interval` are integers, or
infinite if a value is unbounded; `polyhedral.greatest` computes exact ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from itertools import product
from math import inf
from typing import Any, TypeVar

from offcut.core import index as ix
from offcut.core.expr import Binary, Cast, Const, Expr, Select, Unary, Var, dtype_of, variables

Interval = tuple[int, int]
"""The least and the greatest value, inclusive."""

Ends = tuple[Expr, Expr]
"""The least and the greatest value, inclusive, as expressions."""

_End = TypeVar("_End", int, float)


def interval(
    expr: Expr,
    known: Callable[[Expr], tuple[_End, _End] | None],
    within: Callable[[Expr, tuple[_End, _End]], tuple[_End, _End]] = lambda _, bounds: bounds,
) -> tuple[_End, _End]:
    """Return the least and the greatest value that an expression may have.

    known   the bounds of a part that is no arithmetic: a name, an element, a condition, a conversion; None: the conversion keeps the value
    within  the bounds to use for a part with these bounds: closer ones, or all values of its element type if it may wrap; it may raise
    """
    bounds: tuple[Any, Any]
    match expr:
        case Const(value, _):
            bounds = int(value), int(value)
        case Binary("-", a, Binary("*", Const(c), Binary("//", b, Const(d)))) if (
            a == b and c == d and c > 0
        ):  # a % c
            bounds = 0, int(c) - 1
        case Binary(op, a, b) if op in _CORNERS or (op in ("//", "%") and _is_positive(b)):
            bounds = interval_op(op, interval(a, known, within), interval(b, known, within))
        case Binary("shr", a, Const(by)) if 0 <= by < 64:
            bounds = interval_op("//", interval(a, known, within), (1 << int(by), 1 << int(by)))
        case Unary("neg" | "abs" as op, a):
            low, high = interval(a, known, within)
            bounds = (-high, -low) if op == "neg" else (max(low, -high, 0), max(-low, high))
        case Select(_, a, b):
            one, other = interval(a, known, within), interval(b, known, within)
            bounds = min(one[0], other[0]), max(one[1], other[1])
        case Cast(a, _) if known(expr) is None:
            bounds = interval(a, known, within)
        case _:
            leaf = known(expr)
            assert leaf is not None
            bounds = leaf
    return within(expr, bounds)


def _is_positive(divisor: Expr) -> bool:
    """Return whether a divisor is at least 1 wherever it is evaluated, as every index is."""
    return divisor.value > 0 if isinstance(divisor, Const) else dtype_of(divisor) == "index"


def interval_op(op: str, a: tuple[_End, _End], b: tuple[_End, _End]) -> tuple[_End, _End]:
    """Return bounds of ``a op b``, with op one of ``+ - * // % min max``; a divisor is at least 1 where it is evaluated."""
    ends: list[Any]
    match op:
        case "+":
            return a[0] + b[0], a[1] + b[1]
        case "-":
            return a[0] - b[1], a[1] - b[0]
        case "%":
            return a if a[0] >= 0 and a[1] < b[0] else (0, max(b[1] - 1, 0))
        case "//":
            ends = [_quotient(p, max(q, 1)) for p in a for q in b]
        case _:
            ends = [_CORNERS[op](p, q) for p in a for q in b]
    return min(ends), max(ends)


def _quotient(p: float, q: float) -> float:
    return p if p in (-inf, inf) else p // q


_CORNERS: dict[str, Callable[..., Any]] = {
    "+": lambda p, q: p + q,
    "-": lambda p, q: p - q,
    "*": lambda p, q: 0 if 0 in (p, q) else p * q,
    "min": min,
    "max": max,
}
"""Operations that have their extremes at those of their operands."""


def greatest_value(expr: Expr, ranges: Sequence[tuple[str, Expr, Expr]]) -> Expr | None:
    """Return the greatest value of an index expression while iterators take values; None if its form does not show it.

    ranges  each iterator with its first and its last value, which iterators before it may move
    """
    greatest: Expr | None = expr
    for name, first, last in reversed(ranges):
        extremes = greatest and ends(greatest, {name: (first, last)})
        greatest = extremes and extremes[1]
    return greatest


def ends(
    expr: Expr,
    ranges: Mapping[str, Ends | None],
    natural: Callable[[Expr], bool] | None = None,
) -> Ends | None:
    """Return the least and the greatest value of an index expression, over the names that `ranges` does not bind; None if
    its form does not show them.

    ranges   the least and the greatest value of names; None if they are not known
    natural  whether an expression is known to be 0 or more, which bounds products and quotients of parts that vary; None:
             these have no bounds
    """
    if variables(expr).isdisjoint(ranges):
        return expr, expr
    match expr:
        case Var(name):
            return ranges[name]
        case Binary("//" | "%" | "min" | "max" as op, a, b):
            one, other = ends(a, ranges, natural), ends(b, ranges, natural)
            if op == "%":
                return other and (ix.const(0), ix.sub(other[1], 1))
            if one is None or other is None:
                return None
            if op != "//":
                pick = ix.minimum if op == "min" else ix.maximum
                return pick(one[0], other[0]), pick(one[1], other[1])
            if other[0] == other[1]:
                return ix.floordiv(one[0], other[0]), ix.floordiv(one[1], other[0])
            return _at_corners(ix.floordiv, one, (other[1], other[0]), natural)
        case Select(condition, a, b):
            one, other = ends(a, ranges, natural), ends(b, ranges, natural)
            if one is None or other is None:
                return None
            if variables(condition).isdisjoint(ranges):
                return Select(condition, one[0], other[0]), Select(condition, one[1], other[1])
            return ix.minimum(one[0], other[0]), ix.maximum(one[1], other[1])
    form = ix.to_linear(expr)
    total: Ends = ix.const(form.const), ix.const(form.const)
    for atom, factor in form.terms:
        bounds: Ends | None
        match atom:
            case Binary("*", a, b):
                one, other = ends(a, ranges, natural), ends(b, ranges, natural)
                bounds = one and other and _at_corners(ix.mul, one, other, natural)
            case _:
                bounds = None if atom == expr else ends(atom, ranges, natural)
        if bounds is None:
            return None
        low, high = bounds if factor > 0 else bounds[::-1]
        total = ix.add(total[0], ix.mul(factor, low)), ix.add(total[1], ix.mul(factor, high))
    return total


def _at_corners(
    apply: Callable[[Expr, Expr], Expr],
    a: Ends,
    b: Ends,
    natural: Callable[[Expr], bool] | None,
) -> Ends | None:
    """Return the bounds of ``apply(a, b)``, which is monotone in each; on values of 0 or more, it grows from ``a[0]`` to ``a[1]``,
    and from ``b[0]`` to ``b[1]``.
    """
    if a[0] == a[1] and b[0] == b[1]:
        value = apply(a[0], b[0])
        return value, value
    if natural is None:
        return None
    if natural(a[0]) and all(map(natural, b)):
        return apply(a[0], b[0]), apply(a[1], b[1])
    every = [apply(x, y) for x, y in dict.fromkeys(product(a, b))]
    return reduce(ix.minimum, every), reduce(ix.maximum, every)
