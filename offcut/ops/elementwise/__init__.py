"""Operators of one element of each operand: arithmetic, functions, conversions; shapes are joined as numpy does."""

from offcut.ops.elementwise.arithmetic import (
    add,
    divide,
    maximum,
    minimum,
    multiply,
    remainder,
    subtract,
)
from offcut.ops.elementwise.functions import (
    absolute,
    cast,
    clip,
    erf,
    exp,
    log,
    negative,
    reciprocal,
    rsqrt,
    sqrt,
    square,
)
from offcut.ops.elementwise.powers import power

__all__ = [
    "absolute",
    "add",
    "cast",
    "clip",
    "divide",
    "erf",
    "exp",
    "log",
    "maximum",
    "minimum",
    "multiply",
    "negative",
    "power",
    "reciprocal",
    "remainder",
    "rsqrt",
    "sqrt",
    "square",
    "subtract",
]
