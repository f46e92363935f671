"""Elementary functions that offcut has not: made of those that it has, in float64 where they cancel near 0."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from offcut.core.dtypes import FLOATS
from offcut.plugins.onnx.context import Context
from offcut.plugins.onnx.elementwise import Operator, number, scalar
from offcut.plugins.onnx.operands import Call, Operand, Refused, Results


def _in_double(formula: Callable[[Context, Operand], Operand]) -> Operator:
    """A function that cancels near 0, calculated in float64 for narrower floats."""

    def rule(g: Context, call: Call) -> Results:
        dtype = g.dtype(call[0])
        if dtype not in FLOATS or dtype == "float64":
            raise Refused(f"it is not exact in {dtype}", "float32 and narrower")
        return g.cast(formula(g, g.cast(call[0], "float64")), dtype)

    return rule


def _halves(g: Context, x: Operand, op: str) -> Operand:
    """``(exp(x) op exp(-x)) / 2``."""
    grown, shrunk = g.op("exp", x), g.op("exp", g.op("negative", x))
    return scalar(g, "multiply", g.binary(op, grown, shrunk), 0.5)


def _tangent(g: Context, x: Operand) -> Operand:
    return g.binary("divide", g.op("sin", x), g.op("cos", x))


def _area_sine(g: Context, x: Operand) -> Operand:
    """``sign(x) * log(|x| + sqrt(x**2 + 1))``."""
    size = g.op("absolute", x)
    root = g.op("sqrt", scalar(g, "add", g.op("square", x), 1.0))
    return g.binary("multiply", g.op("sign", x), g.op("log", g.binary("add", size, root)))


def _area_cosine(g: Context, x: Operand) -> Operand:
    """``log(x + sqrt(x**2 - 1))``."""
    root = g.op("sqrt", scalar(g, "subtract", g.op("square", x), 1.0))
    return g.op("log", g.binary("add", x, root))


def _area_tangent(g: Context, x: Operand) -> Operand:
    """``log((1 + x) / (1 - x)) / 2``."""
    above, below = scalar(g, "add", x, 1.0), scalar(g, "add", g.op("negative", x), 1.0)
    return scalar(g, "multiply", g.op("log", g.binary("divide", above, below)), 0.5)


def _angle(g: Context, x: Operand) -> Operand:
    """The arctangent: of x, ``(x - 1) / (x + 1)`` or ``-1 / x``, whichever is small, by its series."""
    size: Operand = g.op("absolute", x)
    far = scalar(g, "greater", size, 1 + math.sqrt(2))
    middle = scalar(g, "greater", size, math.sqrt(2) - 1)
    quotient = g.binary("divide", scalar(g, "subtract", size, 1.0), scalar(g, "add", size, 1.0))
    beyond = g.op("negative", g.op("reciprocal", size))
    near = g.op("where", far, beyond, g.op("where", middle, quotient, size))
    start = g.op("where", far, math.pi / 2, g.op("where", middle, number(g, x, math.pi / 4), 0.0))
    square: Operand = g.op("square", near)
    series: Operand = number(g, x, 0.0)
    for place in range(21, 0, -2):
        term = number(g, x, (1 if place % 4 == 1 else -1) / place)
        series = (
            term if place == 21 else g.binary("add", g.binary("multiply", series, square), term)
        )
    angle = g.binary("add", g.binary("multiply", near, series), start)
    return g.op("where", scalar(g, "less", x, 0.0), g.op("negative", angle), angle)


def _arc_sine(g: Context, x: Operand) -> Operand:
    """``atan(x / sqrt((1 - x) * (1 + x)))``."""
    above, below = scalar(g, "add", x, 1.0), scalar(g, "add", g.op("negative", x), 1.0)
    return _angle(g, g.binary("divide", x, g.op("sqrt", g.binary("multiply", above, below))))


def _arc_cosine(g: Context, x: Operand) -> Operand:
    """``2 * atan(sqrt((1 - x) / (1 + x)))``."""
    above, below = scalar(g, "add", x, 1.0), scalar(g, "add", g.op("negative", x), 1.0)
    return scalar(g, "multiply", _angle(g, g.op("sqrt", g.binary("divide", below, above))), 2.0)


FUNCTIONS: Mapping[str, Operator] = {
    "Acos": _in_double(_arc_cosine),
    "Acosh": _in_double(_area_cosine),
    "Asin": _in_double(_arc_sine),
    "Asinh": _in_double(_area_sine),
    "Atan": _in_double(_angle),
    "Atanh": _in_double(_area_tangent),
    "Cosh": _in_double(lambda g, x: _halves(g, x, "add")),
    "Sinh": _in_double(lambda g, x: _halves(g, x, "subtract")),
    "Tan": _in_double(_tangent),
}
