"""An expression over sizes as sympy writes it: floors, choices by size, and tables."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
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


@lru_cache(maxsize=1 << 14)
def _formula(expr: Expr) -> Any:
    import sympy

    match expr:
        case Const(value, dtype):
            return sympy.Float(value) if dtype == "float64" else sympy.Integer(int(value))
        case Var(name):
            return _symbol(name)
        case Binary(op, a, b):
            return _binary(op, _formula(a), _formula(b), dtype_of(a))
        case Unary("neg", a):
            return -_formula(a)
        case Cast(a, _):
            return _formula(a)
        case Select(condition, then, other):
            yes = _formula(then), _formula(condition)
            return sympy.Piecewise(yes, (_formula(other), True), evaluate=False)
        case Compare(op, a, b):
            return sympy.Rel(_formula(a), _formula(b), op)
        case Logic(op, args):
            return {"and": sympy.And, "or": sympy.Or, "not": sympy.Not}[op](*map(_formula, args))
        case Lookup(values, index):
            at = _formula(index)
            *some, last = values
            cases = ((sympy.Float(value), sympy.Eq(at, k)) for k, value in enumerate(some))
            return sympy.Piecewise(*cases, (sympy.Float(last), True), evaluate=False)
        case _:
            raise InternalError(f"no formula for {expr!r}")


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
