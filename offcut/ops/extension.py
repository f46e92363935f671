"""Expressions that operators need and the front end has no word for: logarithms, indices from memory."""

from __future__ import annotations

from offcut.core.expr import Cast, Unary
from offcut.core.tensor import Value


def log(a: Value) -> Value:
    """The natural logarithm of `a`; -inf of 0, NaN below."""
    return Value(Unary("log", a.node), a.tensors, a.axes, a.sizes)


def as_index(a: Value) -> Value:
    """An integer element as a coordinate, ``index(a)`` in the syntax of programs."""
    return Value(Cast(a.node, "index"), a.tensors, a.axes, a.sizes)
