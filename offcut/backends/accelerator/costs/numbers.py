"""Sums and products of cycles: numbers as soon as both sides are, else expressions of float64."""

from __future__ import annotations

from functools import reduce

from offcut.core import index as ix
from offcut.core.expr import Binary, Compare, Const, Expr, Select, dtype_of, real
from offcut.core.interpret.values import evaluate

NONE = real(0.0)


def plus(*parts: Expr) -> Expr:
    """The sum."""
    return reduce(lambda a, b: b if a == NONE else a if b == NONE else _of("+", a, b), parts, NONE)


def less(a: Expr, b: Expr) -> Expr:
    """The difference."""
    return a if b == NONE else _of("-", a, b)


def times(a: Expr, b: Expr) -> Expr:
    """The product."""
    return NONE if NONE in (a, b) else _of("*", a, b)


def least(a: Expr, b: Expr) -> Expr:
    """The smaller one."""
    return _of("min", a, b)


def positive(a: Expr) -> Expr:
    """`a` where it is above 0, else 0."""
    return _of("max", a, NONE)


def scaled(count: Expr, by: float) -> Expr:
    """So many times `by`."""
    return times(real(count), real(by))


def each(total: Expr, count: Expr) -> Expr:
    """Of each of so many; all of it where there are none."""
    none = ix.const(0) if dtype_of(count) == "index" else NONE
    if isinstance(count, Const):
        return times(total, real(1.0 / float(count.value))) if count.value else total
    some = Select(Compare(">", count, none), real(count), real(1.0))
    return _of("/", total, some)


def _of(op: str, a: Expr, b: Expr) -> Expr:
    made = Binary(op, a, b)
    known = isinstance(a, Const) and isinstance(b, Const)
    return real(float(evaluate(made, {}))) if known else made
