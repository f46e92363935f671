"""Bounds of what an expression of floats gives, read off its text: what is cut off at both ends is a number between them, and no NaN."""

from __future__ import annotations

from math import inf

from offcut.core.expr import Binary, Compare, Const, Expr, Select, Unary

Bounds = tuple[float, float, bool]
"""The least and the greatest number, and whether it may be NaN."""


def float_bounds(expr: Expr) -> Bounds:
    """Return bounds of a float; an element of an array has none.

    ``where(x < c, x, c)`` is at most c, and c where x is NaN.
    """
    match expr:
        case Const(value):
            return (-inf, inf, True) if value != value else (float(value), float(value), False)
        case Unary("round" | "floor" | "ceil", a):
            return float_bounds(a)
        case Binary("min" | "max" as op, a, Const(limit)):
            low, high, may_be_nan = float_bounds(a)
            end, cut = float(limit), min if op == "min" else max
            return cut(low, end), cut(high, end), may_be_nan or end != end
        case Select(Compare("<" | "<=" | ">" | ">=" as op, a, Const(limit)), then, Const(other)):
            if a == then and limit == other:
                low, high, _ = float_bounds(a)
                end = float(limit)
                below = op[0] == "<"
                return (
                    (min(low, end), min(high, end), False)
                    if below
                    else (max(low, end), max(high, end), False)
                )
    return -inf, inf, True
