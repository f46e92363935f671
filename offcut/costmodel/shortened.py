"""A cost as it was built -> the same cost as one would write it: what no size tells is a number."""

from __future__ import annotations

from offcut.core.expr import Binary, Const, Expr, Select, children, dtype_of, rebuild, variables
from offcut.core.interpret.values import evaluate

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
