"""Sums and products of cycles: floats as far as they are known, else expressions over sizes."""

from __future__ import annotations

from collections.abc import Callable
from operator import add, mul, sub, truediv
from typing import TypeAlias

from offcut.core.expr import Binary, Const, Expr, real
from offcut.core.interpret.values import evaluate

Number: TypeAlias = Expr | float

_ON_FLOATS: dict[str, Callable[[float, float], float]] = {
    "+": add,
    "-": sub,
    "*": mul,
    "/": truediv,
    "min": min,
    "max": max,
}


def plus(*parts: Number) -> Number:
    """The sum."""
    total: Number = 0.0
    for part in parts:
        total = part if total == 0.0 else total if part == 0.0 else _of("+", total, part)
    return total


def times(a: Number, b: Number) -> Number:
    """The product."""
    return 0.0 if 0.0 in (a, b) else _of("*", a, b)


def scaled(count: Expr, by: float) -> Number:
    """So many times `by`."""
    return times(count_of(count), by)


def count_of(count: Expr) -> Number:
    """A count as a number of cycles is."""
    return float(count.value) if isinstance(count, Const) else real(count)


def expression(number: Number) -> Expr:
    """A number as an expression."""
    return real(number) if isinstance(number, float) else number


def value(number: Number) -> float:
    """A number that is known."""
    return number if isinstance(number, float) else float(evaluate(number, {}))


def _of(op: str, a: Number, b: Number) -> Number:
    if isinstance(a, float) and isinstance(b, float):
        return _ON_FLOATS[op](a, b)
    return Binary(op, expression(a), expression(b))
