"""An expression over sizes as sympy writes it: floors, choices by size, and tables."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache
from itertools import product
from typing import TYPE_CHECKING, Any

from offcut.core.expr import (
    Binary,
    Cast,
    Compare,
    Const,
    Expr,
    Logic,
    Lookup,
    Select,
    Unary,
    Var,
    dtype_of,
    substitute,
)
from offcut.errors import InternalError

if TYPE_CHECKING:
    import sympy

_HIGHEST = 8  # degree of polynomials that are looked at


def in_sympy(
    expr: Expr, users: Mapping[str, str], values: Mapping[str, Expr] | None = None
) -> sympy.Expr:
    """`expr`, its sizes as symbols: integers that are not negative, by the names that the user gave them.

    users   these names, by the program's
    values  what other names stand for, each in terms of those before
    """
    for name, value in reversed(list((values or {}).items())):
        expr = substitute(expr, {name: value})
    made: sympy.Expr = _formula(substitute(expr, {name: Var(user) for name, user in users.items()}))
    return made


def _symbol(name: str) -> Any:
    import sympy  # takes longer to load than the rest of the cost model

    return sympy.Symbol(name, integer=True, nonnegative=True)


@cache
def _where() -> Any:
    """``where(condition, a, b)`` in a condition, where sympy tries to solve what a `Piecewise` says."""
    import sympy

    def evaluated(cls: Any, condition: Any, then: Any, other: Any) -> Any:
        return then if condition == sympy.true else other if condition == sympy.false else None

    def as_piecewise(self: Any, condition: Any, then: Any, other: Any, **_: Any) -> Any:
        return sympy.Piecewise((then, condition), (other, True))

    members = {
        "eval": classmethod(evaluated),
        "_eval_rewrite_as_Piecewise": as_piecewise,
        "nargs": 3,
    }
    return type("where", (sympy.Function,), members)


@lru_cache(maxsize=1 << 14)
def _formula(expr: Expr, asked: bool = False) -> Any:
    """`asked`: it is a part of a condition."""
    import sympy

    match expr:
        case Const(value, dtype):
            return sympy.Float(value) if dtype == "float64" else sympy.Integer(int(value))
        case Var(name):
            return _symbol(name)
        case Binary(op, a, b):
            return _binary(op, _formula(a, asked), _formula(b, asked), dtype_of(a))
        case Unary("neg", a):
            return -_formula(a, asked)
        case Cast(a, _):
            return _formula(a, asked)
        case Select(condition, then, other):
            parts = _formula(condition, True), _formula(then, asked), _formula(other, asked)
            return _choice(*parts, asked)
        case Compare(op, a, b):
            return sympy.Rel(_formula(a, True), _formula(b, True), op, evaluate=False)
        case Logic(op, args):
            join = {"and": sympy.And, "or": sympy.Or, "not": sympy.Not}[op]
            return join(*(_formula(arg, True) for arg in args), evaluate=False)
        case Lookup(values, index):
            at = _formula(index, asked)
            made: Any = sympy.Float(values[-1])
            for k, value in reversed(list(enumerate(values[:-1]))):
                made = _choice(sympy.Eq(at, k), sympy.Float(value), made, asked)
            return made
        case _:
            raise InternalError(f"no formula for {expr!r}")


def _choice(condition: Any, then: Any, other: Any, asked: bool) -> Any:
    import sympy

    if asked:
        return _where()(condition, then, other)
    return sympy.Piecewise((then, condition), (other, True), evaluate=False)


def _binary(op: str, a: Any, b: Any, dtype: str) -> Any:
    import sympy

    match op:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
        case "//":
            return a / b if _is_whole(a, b) else sympy.floor(a / b)
        case "/":
            return a / b
        case "%":
            return sympy.Mod(a, b)
        case "min":
            return sympy.Min(a, b, evaluate=False)
        case "max":
            return sympy.Max(a, b, evaluate=False)
        case _:
            raise InternalError(f"no formula for {op} of {dtype}")


def _is_whole(a: Any, b: Any) -> bool:
    """Whether ``a / b`` is a whole number at all whole sizes: a polynomial is where it is at as many
    values in a row of each size as its degree, and one more.
    """
    import sympy

    symbols = sorted(a.free_symbols, key=str)
    if not b.is_Integer or not a.is_polynomial(*symbols):
        return False
    found = sympy.Poly(a, *symbols) if symbols else None
    if found is None or found.total_degree() > _HIGHEST:
        return bool(found is None and (a / b).is_integer)
    ranges = (range(found.degree(symbol) + 1) for symbol in symbols)
    return all(int(found.eval(point)) % int(b) == 0 for point in product(*ranges))
