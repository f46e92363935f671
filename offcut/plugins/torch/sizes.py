"""Torch's symbolic sizes as sizes of a graph: each symbol by its name, with the bounds that torch knows; sympy as index expressions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import sympy
import torch
from torch.utils._sympy import functions as sf

from offcut.core import index as ix
from offcut.core.expr import Binary, Expr, Var
from offcut.core.sizes import MAX_SIZE
from offcut.graph.extents import normal
from offcut.plugins.torch.left import Left

Bounds = Callable[[sympy.Symbol], tuple[Any, Any]]
"""The least and the greatest value of a symbol; either may be infinite."""

_FLOOR = (sf.FloorDiv, sf.CleanDiv)
_REMAINDER = (sf.Mod, sf.PythonMod, sympy.Mod)
_EXTREMES: Mapping[Any, str] = {
    sf.Max: "max",
    sf.Min: "min",
    sympy.Max: "max",
    sympy.Min: "min",
}


def sympy_of(value: Any) -> sympy.Expr:
    """An int or a SymInt as an expression."""
    return value.node.expr if isinstance(value, torch.SymInt) else sympy.Integer(int(value))


def extent_of(value: Any) -> Expr:
    """An int, a SymInt or an expression in symbols, as an extent of a graph.

    Raises Left for an expression that no extent says.
    """
    return normal(_translated(value if isinstance(value, sympy.Basic) else sympy_of(value)))


def symbols_of(*shapes: Any) -> set[sympy.Symbol]:
    """The symbols of some sizes."""
    found: set[sympy.Symbol] = set()
    for shape in shapes:
        for size in shape:
            if isinstance(size, torch.SymInt):
                found |= size.node.expr.free_symbols
    return found


def bounds_of(symbol: sympy.Symbol, bounds: Bounds) -> tuple[int, int]:
    """The bounds of a symbol as ints."""
    low, high = bounds(symbol)
    return max(_whole(low, 0), 0), min(_whole(high, MAX_SIZE), MAX_SIZE)


def bounds_in(shape_env: Any) -> Bounds:
    """The bounds that a shape environment knows."""

    def known(symbol: sympy.Symbol) -> tuple[Any, Any]:
        found = shape_env.bound_sympy(symbol)
        return found.lower, found.upper

    return known


def _whole(value: Any, otherwise: int) -> int:
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError, AttributeError):
        return otherwise


def _translated(expr: sympy.Basic) -> Expr:
    if isinstance(expr, sympy.Integer):
        return ix.const(int(expr))
    if isinstance(expr, sympy.Symbol):
        return Var(expr.name)
    if isinstance(expr, sympy.Pow) and expr.exp.is_Integer and expr.exp > 0:
        return _folded("*", [expr.base] * int(expr.exp))
    if isinstance(expr, sympy.Add):
        return _folded("+", expr.args)
    if isinstance(expr, sympy.Mul):
        return _folded("*", expr.args)
    if isinstance(expr, _FLOOR):
        return _divided("//", *expr.args)
    if isinstance(expr, _REMAINDER):
        return _divided("%", *expr.args)
    if isinstance(expr, sf.ModularIndexing):
        base, divisor, modulus = expr.args
        return _divided("%", sf.FloorDiv(base, divisor), modulus)
    for kind, op in _EXTREMES.items():
        if isinstance(expr, kind):
            return _folded(op, expr.args)
    raise Left(f"a size is {expr}")


def _folded(op: str, parts: Any) -> Expr:
    return reduce(lambda a, b: Binary(op, a, b), map(_translated, parts))


def _divided(op: str, dividend: sympy.Basic, divisor: sympy.Basic) -> Expr:
    if not (isinstance(divisor, sympy.Integer) and divisor > 0):
        raise Left(f"a size is divided by {divisor}")
    return Binary(op, _translated(dividend), ix.const(int(divisor)))
