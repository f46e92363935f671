"""Elementary functions that offcut has not: made of those that it has, in float64 where they cancel near 0."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from offcut.core.dtypes import FLOATS
from offcut.graph import Ref
from offcut.graph.call_conditions import Make
from offcut.plugins.onnx.importer.context import Context
from offcut.plugins.onnx.importer.operands import Call, Results, UnsupportedNode
from offcut.plugins.onnx.rules.elementwise import Operator
from offcut.plugins.operators import functions as special


def _in_double(formula: Callable[[Make, Ref], Ref]) -> Operator:
    """Return a function that cancels near 0, calculated in float64 for narrower floats."""

    def rule(g: Context, call: Call) -> Results:
        dtype = g.dtype(call[0])
        if dtype not in FLOATS or dtype == "float64":
            raise UnsupportedNode(f"it is not exact in {dtype}", "float32 and narrower")
        return g.cast(formula(g.op, g.ref(g.cast(call[0], "float64"))), dtype)

    return rule


def _half(op: str, make: Make, x: Ref) -> Ref:
    """Return ``(exp(x) op exp(-x)) / 2``."""
    both = make(op, make("exp", x), make("exp", make("negative", x)))
    return make("multiply", both, 0.5)


def _hyperbolic_sine(make: Make, x: Ref) -> Ref:
    return special.odd(make, x, _half("subtract", make, make("absolute", x)))


def _tangent(make: Make, x: Ref) -> Ref:
    return make("divide", make("sin", x), make("cos", x))


FUNCTIONS: Mapping[str, Operator] = {
    "Acos": _in_double(special.arccosine),
    "Acosh": _in_double(special.area_cosine),
    "Asin": _in_double(special.arcsine),
    "Asinh": _in_double(special.area_sine),
    "Atan": lambda g, call: special.arctangent(g.op, g.ref(call[0])),
    "Atanh": _in_double(special.area_tangent),
    "Cosh": _in_double(partial(_half, "add")),
    "Sinh": _in_double(_hyperbolic_sine),
    "Tan": _in_double(_tangent),
}
