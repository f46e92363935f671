"""Sums and products of cycles: floats as far as they are known, else expressions over sizes."""

from __future__ import annotations

from collections.abc import Callable
from operator import add, mul, sub, truediv
from typing import TypeAlias

from offcut.core.expr import Binary, Compare, Const, Expr, Select, real
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


def less(a: Number, b: Number) -> Number:
    """The difference."""
    return a if b == 0.0 else _of("-", a, b)


def times(a: Number, b: Number) -> Number:
    """The product."""
    return 0.0 if 0.0 in (a, b) else _of("*", a, b)


def least(a: Number, b: Number) -> Number:
    """The smaller one."""
    return _of("min", a, b)


def positive(a: Number) -> Number:
    """`a` where it is above 0, else 0."""
    return _of("max", a, 0.0)


def scaled(count: Expr, by: float) -> Number:
    """So many times `by`."""
    return times(count_of(count), by)


def count_of(count: Expr) -> Number:
    """A count as a number of cycles is."""
    return float(count.value) if isinstance(count, Const) else real(count)


def each(total: Number, count: Number) -> Number:
    """Of each of so many; all of it where there are none."""
    if isinstance(count, float):
        return times(total, 1.0 / count) if count > 0 else total
    return _of("/", total, Select(Compare(">", count, real(0.0)), count, real(1.0)))


def where_any(count: Expr, number: Number) -> Number:
    """`number` where the count is above 0, else 0."""
    if isinstance(count, Const):
        return number if count.value > 0 else 0.0
    return Select(Compare(">", count, Const(0, "index")), expression(number), real(0.0))


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
