"""What torch knows of its symbolic sizes: bounds, what is equal in every call, and what they are multiples of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy
from torch.utils._sympy import functions as sf

from offcut.core import index as ix
from offcut.core.expr import Binary, Const, Expr, Var
from offcut.core.program import MAX_SIZE
from offcut.graph.sizes.extents import at, equate_terms, normal
from offcut.plugins.torch.rule_table import Unsupported
from offcut.plugins.torch.sizes import FLOORS, REMAINDERS, canonical, extent_of, in_sympy

Bounds = Callable[[sympy.Symbol], tuple[Any, Any]]
"""The least and the greatest value of a symbol; either may be infinite."""


@dataclass(frozen=True)
class Facts:
    """What torch knows of its symbols.

    bounds   of each
    equal    expressions that stand for simpler ones in every call: torch guards it
    factors  by a symbol, the number of which it is a multiple in every call: an extent is written in quotients by it, so that
             ``2*(s//2)`` is s
    """

    bounds: Bounds
    equal: tuple[tuple[sympy.Expr, sympy.Expr], ...] = ()
    factors: Mapping[sympy.Symbol, int] = field(default_factory=dict)
    _simplified: dict[sympy.Expr, sympy.Expr] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def range(self, symbol: sympy.Symbol) -> tuple[int, int]:
        """The least and the greatest value of a symbol."""
        for whole, factor in self.factors.items():
            if symbol == quotient_of(whole, factor):
                least, most = self.range(whole)
                return -(-least // factor), most // factor
        low, high = self.bounds(symbol)
        least, most = max(_whole(low, 0), 0), min(_whole(high, MAX_SIZE), MAX_SIZE)
        for expr, other in self.equal:
            if other == symbol and isinstance(expr, sf.Min | sympy.Min):
                most = min([most, *(int(one) for one in expr.args if one.is_Integer)])
        return least, most

    def simplify(self, expr: sympy.Expr) -> sympy.Expr:
        """An expression in its simplest terms."""
        if expr not in self._simplified:
            self._simplified[expr] = self._simplest(expr)
        return self._simplified[expr]

    def _simplest(self, expr: sympy.Expr) -> sympy.Expr:
        expr = _substitute(canonical(expr), self.equal)
        for symbol in expr.free_symbols:
            least, most = self.range(symbol)
            if least == most:
                expr = expr.subs(symbol, least)
        return _substitute(_in_quotients(expr, self.factors), self.equal)

    @property
    def quotients(self) -> tuple[tuple[str, str, int], ...]:
        """Of each symbol that is a multiple: the name of its quotient, its own, and the divisor."""
        return tuple((quotient_of(one, by).name, one.name, by) for one, by in self.factors.items())


def quotient_of(symbol: sympy.Symbol, factor: int) -> sympy.Symbol:
    """The size that is a symbol over a number of which that is a multiple."""
    return sympy.Symbol(f"{symbol.name}_{factor}", integer=True, nonnegative=True)


def _in_quotients(expr: sympy.Expr, factors: Mapping[sympy.Symbol, int]) -> sympy.Expr:
    """An expression in the quotients of symbols that are multiples."""
    here = [symbol for symbol in factors if symbol in expr.free_symbols]
    products = {symbol: factors[symbol] * quotient_of(symbol, factors[symbol]) for symbol in here}
    return canonical(expr.subs(products)) if products else expr


def read_shape_env(shape_env: Any) -> Facts:
    """What a shape environment knows."""

    def known(symbol: sympy.Symbol) -> tuple[Any, Any]:
        bounds = shape_env.bound_sympy(symbol)
        return bounds.lower, bounds.upper

    factors = multiples(shape_env)
    return Facts(known, equalities(shape_env, factors), factors)


def multiples(shape_env: Any) -> dict[sympy.Symbol, int]:
    """Symbols that a shape environment guards to be multiples: ``Eq(2*(s//2), s)``, ``Eq(s % 2, 0)``, ``Eq(6*(s//2)*(t//3), s*t)``."""
    symbols = {one.name: one for guard in shape_env.guards for one in guard.expr.free_symbols}
    sides = [pair for guard in shape_env.guards for pair in _equal_sides(guard.expr)]
    equal = [pair for one, other in sides for pair in _pairs(one, other)]
    nothing = [zero for pair in equal if (zero := _difference(*pair)) is not None]
    factors: dict[str, int] = {}
    while True:
        products = {name: Binary("*", ix.const(by), Var(name)) for name, by in factors.items()}
        more = [one for zero in nothing if (one := _rest(at(zero, products))) is not None]
        if not more:
            return {symbols[name]: factor for name, factor in factors.items()}
        name, by = more[0]
        factors[name] = factors.get(name, 1) * by


def _equal_sides(guard: sympy.Basic) -> Iterable[tuple[sympy.Expr, sympy.Expr]]:
    """What a guard says to be equal; a remainder that is 0 at most is 0."""
    if isinstance(guard, sympy.And):
        return [pair for one in guard.args for pair in _equal_sides(one)]
    if isinstance(guard, sympy.Eq):
        return [guard.args]
    if isinstance(guard, sympy.Le) and guard.rhs == 0 and isinstance(guard.lhs, REMAINDERS):
        return [guard.args]
    return []


def _pairs(one: sympy.Expr, other: sympy.Expr) -> Iterable[tuple[sympy.Expr, sympy.Expr]]:
    """What is equal, beside two sides, in every call of sizes above 0.

    ``c*(s//c)`` is s at most: where the product of such is that of their sizes, each is its size.
    """
    for product, rest in ((one, other), (other, one)):
        floors = [each for each in sympy.Mul.make_args(product) if isinstance(each, FLOORS)]
        pairs = [(floor.args[0], floor.args[1] * floor) for floor in floors]
        whole = sympy.prod([whole / floored for whole, floored in pairs])
        if floors and canonical(product * whole) == canonical(rest):
            return [(one, other), *pairs]
    return [(one, other)]


def _difference(one: sympy.Expr, other: sympy.Expr) -> Expr | None:
    """What is 0 where two are equal; None for what no extent says."""
    try:
        return normal(Binary("-", extent_of(one), extent_of(other)))
    except Unsupported:
        return None


def _rest(zero: Expr) -> tuple[str, int] | None:
    """The size whose rest is 0, and that of which it is the rest; None for anything else."""
    match zero:
        case Binary("*", Const(), Binary("%") as rest):
            return _rest(rest)
        case Binary("%", Var(name) | Binary("*", Const(-1), Var(name)), Const(by, _)):
            return name, int(by)
        case _:
            return None


def equalities(
    shape_env: Any, factors: Mapping[sympy.Symbol, int]
) -> tuple[tuple[sympy.Expr, sympy.Expr], ...]:
    """What a shape environment guards to be equal, the simpler side second; what has no simpler side is left out.

    factors  by a symbol, the number of which it is a multiple
    """
    pairs = [
        tuple(canonical(shape_env.replace(side)) for side in pair)
        for guard in shape_env.guards
        for pair in _equal_sides(guard.expr)
    ]
    divided = [tuple(_in_quotients(side, factors) for side in pair) for pair in pairs]
    sides = pairs + [pair for pair, before in zip(divided, pairs, strict=True) if pair != before]
    solutions: list[tuple[sympy.Expr, sympy.Expr]] = []
    known = -1
    while known < len(solutions):  # what one says may make another simpler
        known = len(solutions)
        for pair in sides:
            one, other = (_substitute(side, solutions) for side in pair)
            if one.is_Integer or (one.is_Symbol and not other.is_Integer):
                one, other = other, one
            one, other = _solve_equality(one, other)
            if one != other and not one.is_Integer and (other.is_Symbol or other.is_Integer):
                solutions.append((one, other))
    return tuple(solutions)


def _substitute(expr: sympy.Expr, equal: Sequence[tuple[sympy.Expr, sympy.Expr]]) -> sympy.Expr:
    """An expression with what stands for terms of it."""
    for one, other in equal:
        if expr.has(one):
            expr = canonical(expr.subs(one, other))
    return expr


def _solve_equality(one: sympy.Expr, other: sympy.Expr) -> tuple[sympy.Expr, sympy.Expr]:
    """An equality ``c*a*e == c*a*f`` as that of e and f, of which one is a number or no sum: the simpler one second.

    Where a is 0, e and f may differ: arguments of such shapes contradict the graph, and its call is refused.
    """
    difference = _difference(one, other)
    sides = None if difference is None else equate_terms(difference)
    if sides is None:
        return one, other
    symbols = {symbol.name: symbol for side in (one, other) for symbol in side.free_symbols}
    left, right = (in_sympy(side, symbols) for side in sides)
    return (right, left) if left.is_Symbol and not right.is_Number else (left, right)


def _whole(value: Any, otherwise: int) -> int:
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError, AttributeError):
        return otherwise
