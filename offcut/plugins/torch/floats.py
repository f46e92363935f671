"""Floats that torch calculates from sizes, such as ``1 / sqrt(n)``, as arrays without axes, of float64."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any

import sympy
from torch.utils._sympy import functions as sf

from offcut.plugins.torch.rule_table import Unsupported

if TYPE_CHECKING:
    from offcut.plugins.torch.translation import Translation

_QUOTIENTS = (sf.IntTrueDiv, sf.FloatTrueDiv)
_POWERS = (sympy.Pow, sf.FloatPow, sf.PowByNatural)
_FUNCTIONS: Mapping[Any, str] = {
    sf.OpaqueUnaryFn_sqrt: "sqrt",
    sf.OpaqueUnaryFn_exp: "exp",
    sf.OpaqueUnaryFn_log: "log",
}


def float_of(t: Translation, expr: Any) -> Any:
    """An expression in sizes as a float, or as a value of the graph.

    Raises Left for one that is made of other things.
    """
    if expr.is_number:
        return float(expr)
    if expr.is_integer:
        return t.scalar(t.extent_in(expr), "float64")
    if isinstance(expr, sf.ToFloat):
        return float_of(t, expr.args[0])
    if isinstance(expr, sympy.Add):
        return _join(t, "add", expr.args)
    if isinstance(expr, sympy.Mul):
        return _join(t, "multiply", expr.args)
    if isinstance(expr, _QUOTIENTS):
        return _join(t, "divide", expr.args)
    if isinstance(expr, _POWERS) and expr.args[1].is_number:
        return _power(t, _value(t, expr.args[0]), float(expr.args[1]))
    for kind, op in _FUNCTIONS.items():
        if isinstance(expr, kind):
            return t.node(op, _value(t, expr.args[0]))
    raise Unsupported(f"a number is {expr}")


def _power(t: Translation, base: Any, exponent: float) -> Any:
    """Of a base that is not below 0."""
    if exponent in (0.5, -0.5):
        return t.node("sqrt" if exponent > 0 else "rsqrt", base)
    if exponent == int(exponent):
        return t.node("power", base, exponent)
    raise Unsupported(f"a number is a power by {exponent}")


def _join(t: Translation, op: str, operands: Any) -> Any:
    return reduce(lambda a, b: t.node(op, a, b), (_value(t, one) for one in operands))


def _value(t: Translation, expr: Any) -> Any:
    """The same as a value in any case."""
    value = float_of(t, expr)
    return t.scalar(value, "float64") if isinstance(value, float) else value
