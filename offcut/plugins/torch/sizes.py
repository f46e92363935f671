"""Torch's symbolic sizes as sizes of a graph: each symbol by its name, with the bounds that torch knows; sympy as index expressions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import sympy
import torch
from torch.utils._sympy import functions as sf
from torch.utils._sympy.symbol import SymT, symbol_is_type

from offcut.core import index as ix
from offcut.core.expr import Binary, Const, Expr, Var, variables
from offcut.core.sizes import MAX_SIZE
from offcut.graph.sizes.extents import Valued, at, normal, quotient
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


def is_size_symbol(symbol: sympy.Symbol) -> bool:
    """Whether a symbol is a size of the inputs, and not one that depends on data."""
    return bool(symbol_is_type(symbol, SymT.SIZE))


def symbols_of(*shapes: Any) -> set[sympy.Symbol]:
    """The symbols of some sizes."""
    found: set[sympy.Symbol] = set()
    for shape in shapes:
        for size in shape:
            if isinstance(size, torch.SymInt):
                found |= size.node.expr.free_symbols
    return found


@dataclass(frozen=True)
class Facts:
    """What torch knows of its symbols.

    bounds   of each
    equal    expressions that stand for simpler ones in every call: torch guards it
    factors  by a symbol, the number of which it is a multiple in every call: an extent is written in parts of it, so that
             ``2*(s//2)`` is s
    """

    bounds: Bounds
    equal: tuple[tuple[sympy.Expr, sympy.Expr], ...] = ()
    factors: Mapping[sympy.Symbol, int] = field(default_factory=dict)

    def range(self, symbol: sympy.Symbol) -> tuple[int, int]:
        """The least and the greatest value of a symbol."""
        for whole, factor in self.factors.items():
            if symbol == part_of(whole, factor):
                least, most = self.range(whole)
                return -(-least // factor), most // factor
        low, high = self.bounds(symbol)
        least, most = max(_whole(low, 0), 0), min(_whole(high, MAX_SIZE), MAX_SIZE)
        for expr, other in self.equal:
            if other == symbol and isinstance(expr, sf.Min | sympy.Min):
                most = min([most, *(int(one) for one in expr.args if one.is_Integer)])
        return least, most

    def simplified(self, expr: sympy.Expr) -> sympy.Expr:
        """An expression in its simplest terms."""
        expr = _put(expr, self.equal)
        for symbol in expr.free_symbols:
            least, most = self.range(symbol)
            if least == most:
                expr = expr.subs(symbol, least)
        for symbol, factor in self.factors.items():
            expr = expr.subs(symbol, factor * part_of(symbol, factor))
        return expr

    @property
    def parts(self) -> tuple[tuple[str, str, int], ...]:
        """The size that gives each multiple: its name, that of the multiple, and the number."""
        return tuple((part_of(one, by).name, one.name, by) for one, by in self.factors.items())


def part_of(symbol: sympy.Symbol, factor: int) -> sympy.Symbol:
    """The size that gives a symbol, times a number."""
    return sympy.Symbol(f"{symbol.name}_{factor}", integer=True, nonnegative=True)


def facts_in(shape_env: Any) -> Facts:
    """What a shape environment knows."""

    def known(symbol: sympy.Symbol) -> tuple[Any, Any]:
        found = shape_env.bound_sympy(symbol)
        return found.lower, found.upper

    return Facts(known, equalities(shape_env), multiples(shape_env))


def multiples(shape_env: Any) -> dict[sympy.Symbol, int]:
    """Symbols that a shape environment guards to be multiples: ``Eq(2*(s//2), s)``, ``Eq(s % 2, 0)``, ``Eq(6*(s//2)*(t//3), s*t)``."""
    symbols = {one.name: one for guard in shape_env.guards for one in guard.expr.free_symbols}
    equal = [pair for guard in shape_env.guards for pair in _pairs(guard.expr)]
    nothing = [zero for pair in equal if (zero := _difference(*pair)) is not None]
    found: dict[str, int] = {}
    while True:
        parts = {name: Binary("*", ix.const(by), Var(name)) for name, by in found.items()}
        more = [one for zero in nothing if (one := _rest(at(zero, parts))) is not None]
        if not more:
            return {symbols[name]: factor for name, factor in found.items()}
        name, by = more[0]
        found[name] = found.get(name, 1) * by


def _pairs(guard: sympy.Basic) -> Iterable[tuple[sympy.Expr, sympy.Expr]]:
    """What is equal in every call of sizes above 0; nothing where a guard is no equality.

    ``c*(s//c)`` is s at most: where the product of such is that of their sizes, each is its size.
    """
    if not isinstance(guard, sympy.Eq):
        return []
    if not (guard.lhs.is_Mul and guard.rhs.is_Mul):
        return [guard.args]
    sides = (guard.lhs / guard.rhs).as_numer_denom()
    floors = [part for side in sides for part in side.args if isinstance(part, _FLOOR)]
    whole = sympy.prod([floor.args[0] / (floor.args[1] * floor) for floor in floors])
    if floors and any(
        sympy.simplify(one / other - whole) == 0 for one, other in (sides, sides[::-1])
    ):
        return [(floor.args[0], floor.args[1] * floor) for floor in floors]
    return [guard.args]


def _difference(one: sympy.Expr, other: sympy.Expr) -> Expr | None:
    """What is 0 where two are equal; None for what no extent says."""
    try:
        return normal(Binary("-", _translated(one), _translated(other)))
    except Left:
        return None


def _rest(zero: Expr) -> tuple[str, int] | None:
    """The size whose rest is 0, and that of which it is the rest; None for anything else."""
    match zero:
        case Binary("*", Const(), Binary("%", Var(name), Const(by, _))):
            return name, int(by)
        case Binary("%", Var(name), Const(by, _)):
            return name, int(by)
        case _:
            return None


def equalities(shape_env: Any) -> tuple[tuple[sympy.Expr, sympy.Expr], ...]:
    """What a shape environment guards to be equal, the simpler side second; what has no simpler side is left out."""
    found: list[tuple[sympy.Expr, sympy.Expr]] = []
    for guard in shape_env.guards:
        if isinstance(guard.expr, sympy.Eq):
            one, other = (_put(shape_env.replace(side), found) for side in guard.expr.args)
            if one.is_Integer or (one.is_Symbol and not other.is_Integer):
                one, other = other, one
            one, other = _solved(one, other)
            if one != other and not one.is_Integer and (other.is_Symbol or other.is_Integer):
                found.append((one, other))
    return tuple(found)


def _put(expr: sympy.Expr, equal: Sequence[tuple[sympy.Expr, sympy.Expr]]) -> sympy.Expr:
    """An expression with what stands for the parts of it."""
    for one, other in equal:
        expr = expr.subs(one, other)
    return expr


def _solved(one: sympy.Expr, other: sympy.Expr) -> tuple[sympy.Expr, sympy.Expr]:
    """An equality ``a*s + b == number`` as one of the symbol, where it has a whole solution; ``a*s == a*t`` as one of s and t.

    Where a is 0, s and t may differ: arguments of such shapes contradict the graph, and its call is refused.
    """
    if one.is_Mul and other.is_Mul:
        left, right = (one / other).as_numer_denom()
        if left.is_Symbol and (right.is_Symbol or right.is_Integer):
            return left, right
        if right.is_Integer and left.is_Add:
            return _solved(left, right)
    if other.is_Integer and len(one.free_symbols) == 1 and not one.is_Symbol:
        (symbol,) = one.free_symbols
        factor = one.coeff(symbol)
        rest = sympy.expand(one - factor * symbol)
        if factor.is_Integer and rest.is_Integer and factor and (other - rest) % factor == 0:
            return symbol, (other - rest) / factor
    return one, other


def value_of(size: Any) -> Callable[[Mapping[str, int]], int]:
    """An int or a SymInt as a function of the sizes."""
    found = values_of((size,))
    return lambda sizes: found(sizes)[0]


def values_of(given: Sequence[Any]) -> Callable[[Mapping[str, int]], tuple[int, ...]]:
    """Ints or SymInts as one function of the sizes."""
    every = [one if isinstance(one, sympy.Basic) else sympy_of(one) for one in given]
    try:
        extents = [*map(extent_of, every)]
    except Left:
        return lambda sizes: tuple(
            int(one.subs({symbol: sizes[symbol.name] for symbol in one.free_symbols}))
            for one in every
        )
    names = sorted({name for extent in extents for name in variables(extent)})
    valued = Valued(extents, names)
    places, found = valued.places, valued.function
    if not names:
        fixed = tuple(found()[place] for place in places)
        return lambda sizes: fixed

    def values(sizes: Mapping[str, int]) -> tuple[int, ...]:
        known = found(*[sizes[name] for name in names])
        return tuple([known[place] for place in places])

    return values


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
        found = quotient(normal(_translated(dividend)), normal(_translated(divisor)))
        if op != "//" or found is None:
            raise Left(f"a size is divided by {divisor}")
        return found
    return Binary(op, _translated(dividend), ix.const(int(divisor)))
