"""Torch's symbolic sizes as sizes of a graph: each symbol by its name, with the bounds that torch knows; sympy as index expressions."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import sympy
import torch
from torch.utils._sympy import functions as sf
from torch.utils._sympy.symbol import SymT, symbol_is_type

from offcut.core import index as ix
from offcut.core.expr import Binary, Const, Expr, Var, variables
from offcut.core.integers import MOST_PARTS, binary_fraction
from offcut.graph.sizes.extent_values import Valued
from offcut.graph.sizes.extents import normal, quotient
from offcut.plugins.torch.rule_table import Unsupported

FLOORS = (sf.FloorDiv, sf.CleanDiv)
REMAINDERS = (sf.Mod, sf.PythonMod, sympy.Mod)
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
    return normal(_translate(value if isinstance(value, sympy.Basic) else sympy_of(value)))


def canonical(value: sympy.Expr) -> sympy.Expr:
    """An expression in symbols in the form of extents, so that equal ones are equal; what no extent says has operands in that form."""
    if not value.args:
        return value
    try:
        return in_sympy(extent_of(value), {one.name: one for one in value.free_symbols})
    except Unsupported:
        return value.func(*map(canonical, value.args))


def in_sympy(extent: Expr, symbols: Mapping[str, sympy.Symbol]) -> sympy.Expr:
    """An extent as an expression in symbols, by their names."""
    match extent:
        case Const(value, _):
            return sympy.Integer(int(value))
        case Var(name):
            return symbols[name]
        case Binary(op, a, b):
            return _IN_SYMPY[op](in_sympy(a, symbols), in_sympy(b, symbols))
        case _:
            raise ValueError(f"no extent: {extent}")


_IN_SYMPY: Mapping[str, Callable[[sympy.Expr, sympy.Expr], sympy.Expr]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": sf.FloorDiv,
    "%": sf.PythonMod,
    "min": sf.Min,
    "max": sf.Max,
}


def is_size_symbol(symbol: sympy.Symbol) -> bool:
    """Whether a symbol is a size of the inputs, and not one that depends on data."""
    return bool(symbol_is_type(symbol, SymT.SIZE))


def is_extent_symbol(symbol: sympy.Symbol) -> bool:
    """Return whether a symbol is a size of the inputs, or an extent that an operator of torch finds: a number of elements that are not 0."""
    return bool(symbol_is_type(symbol, (SymT.SIZE, SymT.UNBACKED_INT)))


def symbols_of(*shapes: Any) -> set[sympy.Symbol]:
    """The symbols of some sizes."""
    symbols: set[sympy.Symbol] = set()
    for shape in shapes:
        for size in shape:
            if isinstance(size, torch.SymInt):
                symbols |= size.node.expr.free_symbols
    return symbols


def value_of(size: Any) -> Callable[[Mapping[str, int]], int]:
    """An int or a SymInt as a function of the sizes."""
    function = values_of((size,))
    return lambda sizes: function(sizes)[0]


def values_of(torch_extents: Sequence[Any]) -> Callable[[Mapping[str, int]], tuple[int, ...]]:
    """Ints or SymInts as one function of the sizes; an expression that is no integer gives a float."""
    every = [one if isinstance(one, sympy.Basic) else sympy_of(one) for one in torch_extents]
    try:
        extents = [*map(extent_of, every)]
    except Unsupported:
        return lambda sizes: tuple(
            _number(one.subs({symbol: sizes[symbol.name] for symbol in one.free_symbols}))
            for one in every
        )
    names = sorted({name for extent in extents for name in variables(extent)})
    valued = Valued(extents, names)
    places, function = [*map(valued.place, extents)], valued.function
    if not names:
        fixed = tuple(function()[place] for place in places)
        return lambda sizes: fixed

    last: tuple[Mapping[str, int], tuple[int, ...]] = {}, ()

    def values(sizes: Mapping[str, int]) -> tuple[int, ...]:
        nonlocal last
        before, result = last
        if sizes is not before:  # calls of one shape have the same
            known = function(*[sizes[name] for name in names])
            result = tuple([known[place] for place in places])
            last = sizes, result
        return result

    return values


def _number(value: sympy.Basic) -> Any:
    return int(value) if value.is_Integer else float(value)


def _translate(expr: sympy.Basic) -> Expr:
    if isinstance(expr, sympy.Integer):
        return ix.const(int(expr))
    if isinstance(expr, sympy.Symbol):
        return Var(expr.name)
    if isinstance(expr, sympy.Pow) and expr.exp.is_Integer and expr.exp > 0:
        return _fold("*", [expr.base] * int(expr.exp))
    if isinstance(expr, sympy.Add):
        return _fold("+", expr.args)
    if isinstance(expr, sympy.Mul):
        return _fold("*", expr.args)
    if isinstance(expr, FLOORS):
        return _divide("//", *expr.args)
    if isinstance(expr, REMAINDERS):
        return _divide("%", *expr.args)
    if isinstance(expr, sf.ModularIndexing):
        base, divisor, modulus = expr.args
        return _divide("%", sf.FloorDiv(base, divisor), modulus)
    if isinstance(expr, sf.TruncToInt | sf.FloorToInt | sf.CeilToInt):
        return _round_quotient(type(expr), expr.args[0])
    for kind, op in _EXTREMES.items():
        if isinstance(expr, kind):
            return _fold(op, expr.args)
    raise Unsupported(f"a size is {expr}")


def _fold(op: str, operands: Any) -> Expr:
    return reduce(lambda a, b: Binary(op, a, b), map(_translate, operands))


def _divide(op: str, dividend: sympy.Basic, divisor: sympy.Basic) -> Expr:
    if isinstance(divisor, sympy.Integer) and divisor > 0:
        return Binary(op, _translate(dividend), ix.const(int(divisor)))
    whole, by = normal(_translate(dividend)), normal(_translate(divisor))
    for rest in (ix.const(0), Binary("-", by, ix.const(1))):  # no rest, or what is rounded up
        result = quotient(normal(Binary("-", whole, rest)), by)
        if op == "//" and result is not None:
            return result
    raise Unsupported(f"a size is divided by {divisor}")


def _round_quotient(kind: type[sympy.Basic], expr: sympy.Basic) -> Expr:
    """A size over a number, or a fraction of sizes, rounded to an integer: down, up, or towards 0.

    Raises Left for anything else.
    """
    if isinstance(expr, sf.IntTrueDiv) and expr.args[1].is_Integer and expr.args[1] > 0:
        dividend, under = _translate(expr.args[0]), int(expr.args[1])
        is_above = expr.args[0].is_nonnegative
    else:
        dividend, under = _fraction(expr)
        is_above = expr.replace(sf.ToFloat, lambda size: size).is_nonnegative
    if under > MOST_PARTS:
        raise Unsupported(f"a size is {expr}")
    by = ix.const(under)
    if issubclass(kind, sf.CeilToInt):
        return Binary("//", Binary("+", dividend, ix.const(under - 1)), by)
    if issubclass(kind, sf.FloorToInt) or is_above:
        return Binary("//", dividend, by)
    nothing = ix.const(0)
    sides = dividend, Binary("-", nothing, dividend)
    above, below = (Binary("max", one, nothing) for one in sides)
    return Binary("-", Binary("//", above, by), Binary("//", below, by))


def _fraction(expr: sympy.Basic) -> tuple[Expr, int]:
    """Sizes and floats that are added, scaled and divided, as an extent over a power of 2: floats hold every step exactly.

    Raises Left for anything else.
    """
    if isinstance(expr, sf.ToFloat):
        return _translate(expr.args[0]), 1
    if expr.is_number:
        over, under = _ratio(expr)
        return ix.const(over), under
    if isinstance(expr, sf.FloatTrueDiv) and expr.args[1].is_number:
        (size, scale), (over, under) = _fraction(expr.args[0]), _ratio(expr.args[1])
        if over > 0 and over & (over - 1) == 0:
            return Binary("*", ix.const(under), size), scale * over
    if expr.is_Mul and len(expr.args) == 2 and expr.args[0].is_number:
        (over, under), (size, scale) = _ratio(expr.args[0]), _fraction(expr.args[1])
        return Binary("*", ix.const(over), size), scale * under
    if expr.is_Add:
        terms = [*map(_fraction, expr.args)]
        under = max(scale for _, scale in terms)
        parts = (Binary("*", ix.const(under // scale), size) for size, scale in terms)
        return reduce(lambda a, b: Binary("+", a, b), parts), under
    raise Unsupported(f"a size is {expr}")


def _ratio(number: sympy.Basic) -> tuple[int, int]:
    """A float as an integer over a power of 2.

    Raises Left where either is too large for floats to hold what sizes are scaled to.
    """
    fraction = binary_fraction(float(number))
    if fraction is None or abs(fraction[0]) > MOST_PARTS:
        raise Unsupported(f"a size is {number}")
    return fraction
