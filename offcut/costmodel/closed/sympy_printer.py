"""An expression over sizes as sympy writes it: floors, choices by size, tables, and names for what occurs again and again.

What has a name in the program, ``q = n // t``, and what a formula says several times, ``e1``, ``e2``, is a function of the
sizes: ``q(n)``, whose value is known where they are numbers. So is ``table(i, a, b, …)``, the i-th of several numbers, and
``where(condition, a, b)`` in a condition, where sympy would try to solve what a `Piecewise` says. ``formula.doit()`` writes
all of them out; of several sizes and competing ways that may be more than memory holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from itertools import count, product
from operator import add, mul, sub, truediv
from typing import TYPE_CHECKING, Any, TypeAlias

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
    children,
    dtype_of,
    rebuild,
    substitute,
    variables,
)
from offcut.core.interpret.values import evaluate
from offcut.core.memo import lazy_property, memoize_method
from offcut.costmodel.simplification import simplify_once
from offcut.errors import InternalError

if TYPE_CHECKING:
    import sympy

_HIGHEST = 8  # degree of polynomials that are looked at
_SHORT = 6  # operations that are written again rather than named


_Known: TypeAlias = frozenset[tuple[Expr, bool]]
"""Conditions, and whether they hold."""


class Names:
    """What formulas of one kernel name, and the formulas.

    users   the names that the user gave sizes, by the program's
    values  what other names stand for, each in terms of those before
    """

    def __init__(self, users: Mapping[str, str], values: Mapping[str, Expr]) -> None:
        self.users: dict[str, Expr] = {name: Var(user) for name, user in users.items()}
        self.known: dict[str, Expr] = {}
        self.sizes: dict[str, tuple[str, ...]] = {}
        self.types: dict[str, str] = {}
        self.called: dict[Expr, Expr] = {}
        for name, value in values.items():
            self._call(name, substitute(value, self.users), "index")

    def formula(self, expr: Expr) -> sympy.Expr:
        """An expression over the sizes, and over what has a name; its sizes as integers that are not negative."""
        written = self._resolve(expr, frozenset(), {})
        for part in _repeated_parts(written):
            name = self._fresh()
            self._call(name, self._with_names(part), dtype_of(part))
            self.called[part] = Var(name)
        result: sympy.Expr = self._formula(self._with_names(written))
        return result

    @property
    def parts(self) -> dict[str, sympy.Expr]:
        """What each name stands for, in terms of those before."""
        return {name: self._formula(value) for name, value in self.known.items()}

    def _resolve(self, expr: Expr, known: _Known, results: dict[tuple[Expr, _Known], Expr]) -> Expr:
        """`expr` in the user's names, without the choices that conditions settle which hold or fail around it."""
        key = expr, known
        if key in results:
            return results[key]
        if isinstance(expr, Select):
            condition = self._resolve(expr.condition, known, results)
            values = [holds for other, holds in known if other == condition]
            ways = [
                self._resolve(part, known | {(condition, holds)}, results)
                for part, holds in ((expr.then, True), (expr.other, False))
                if not values or values[0] == holds
            ]
            alike = len(ways) == 1 or ways[0] == ways[1]
            results[key] = ways[0] if alike else Select(condition, *ways)
        elif isinstance(expr, Var):
            results[key] = self.users.get(expr.name, expr)
        else:
            inner = tuple(self._resolve(part, known, results) for part in children(expr))
            results[key] = _joined_cases(rebuild(expr, inner)) if inner else expr
        return results[key]

    def _fresh(self) -> str:
        """A name that neither a part nor a size has."""
        used_names = {
            *self.known,
            *(str(size.name) for size in self.users.values() if isinstance(size, Var)),
        }
        return next(name for k in count(len(self.known) + 1) if (name := f"e{k}") not in used_names)

    def _call(self, name: str, value: Expr, dtype: str) -> None:
        """Name a value; whatever its type, its name is a variable in the values of others."""
        self.types[name] = dtype
        own = variables(value)
        inner = (size for other in own & set(self.sizes) for size in self.sizes[other])
        self.sizes[name] = tuple(sorted({*(own - set(self.known)), *inner}))
        self.known[name] = value

    def _with_names(self, expr: Expr) -> Expr:
        """`expr` with the names of its parts that have one."""
        results: dict[Expr, Expr] = {}

        def visit(part: Expr) -> Expr:
            if part not in results:
                inner = tuple(map(visit, children(part)))
                results[part] = self.called.get(part, rebuild(part, inner) if inner else part)
            return results[part]

        return visit(expr)

    @lazy_property
    def _values(self) -> dict[tuple[tuple[str, int], ...], dict[str, int | float]]:
        """What names stand for, by the sizes."""
        return {}

    def value(self, name: str, sizes: Mapping[str, int]) -> int | float:
        """What a name stands for at sizes."""
        values = self._values.setdefault(tuple(sorted(sizes.items())), dict(sizes))
        if name not in values:
            inside: dict[str, Expr] = {}
            for inner in sorted(variables(self.known[name]) & set(self.known)):
                known = self.value(inner, {size: sizes[size] for size in self.sizes[inner]})
                inside[inner] = Const(known, self.types[inner])
            values[name] = evaluate(substitute(self.known[name], inside), sizes)
        return values[name]

    def _function_of_sizes(self, name: str) -> Any:
        """A name as a function of the sizes that it depends on."""
        sizes = self.sizes[name]
        if not sizes:
            return self._formula(self.known[name])
        return self._function_of(name)(*map(_symbol, sizes))

    @memoize_method
    def _function_of(self, name: str) -> Any:
        """The function of the sizes that a name is."""
        import sympy

        sizes = self.sizes[name]

        def evaluated(cls: Any, *at: Any) -> Any:
            if not all(one.is_Integer for one in at):
                return None
            return sympy.sympify(self.value(name, dict(zip(sizes, map(int, at), strict=True))))

        def written_out(call: Any, **_: Any) -> Any:
            whole = self._formula(self.known[name]).doit()
            pairs = zip(map(_symbol, sizes), call.args, strict=True)
            return whole.subs(list(pairs), simultaneous=True)

        members = {"eval": classmethod(evaluated), "doit": written_out, "is_real": True}
        if self.types[name] == "index":
            members["is_integer"] = True
        return type(name, (sympy.Function,), members)

    @memoize_method
    def _formula(self, expr: Expr, is_condition: bool = False) -> Any:
        """`is_condition`: it is a part of a condition."""
        import sympy

        def of(part: Expr, inside: bool = is_condition) -> Any:
            return self._formula(part, inside)

        match expr:
            case Const(value, dtype):
                return sympy.Float(value) if dtype == "float64" else sympy.Integer(int(value))
            case Var(name):
                return self._function_of_sizes(name) if name in self.known else _symbol(name)
            case Binary(op, a, b):
                return _binary(op, of(a), of(b), dtype_of(a))
            case Unary("neg", a):
                return -of(a)
            case Cast(a, _):
                return of(a)
            case Select(condition, then, other):
                if is_condition:
                    return _function("where")(of(condition, True), of(then), of(other))
                cases = (of(then), of(condition, True)), (of(other), True)
                return sympy.Piecewise(*cases, evaluate=False)
            case Compare(op, a, b):
                return sympy.Rel(of(a, True), of(b, True), op, evaluate=False)
            case Logic(op, args):
                join = {"and": sympy.And, "or": sympy.Or, "not": sympy.Not}[op]
                return join(*(of(arg, True) for arg in args), evaluate=False)
            case Lookup(values, index):
                return _function("table")(of(index), *map(sympy.Float, values))
            case _:
                raise InternalError(f"no formula for {expr!r}")


def _joined_cases(expr: Expr) -> Expr:
    """``where(c, a, b) + where(c, d, e)`` as ``where(c, a + d, b + e)``, factors inside; without sums of nothing."""
    match expr:
        case Binary(op, Select(one, a, b), Select(other, d, e)) if one == other:
            return Select(one, _joined_cases(Binary(op, a, d)), _joined_cases(Binary(op, b, e)))
        case Binary("*", Select(condition, a, b), Const() as factor) | Binary(
            "*", Const() as factor, Select(condition, a, b)
        ):
            ways = (_joined_cases(Binary("*", way, factor)) for way in (a, b))
            return Select(condition, *ways)
        case Cast(Select(condition, a, b), dtype):
            return Select(condition, Cast(a, dtype), Cast(b, dtype))
        case _:
            return simplify_once(expr)


def _repeated_parts(expr: Expr) -> Iterator[Expr]:
    """The parts of an expression that occur several times and are long, each after those in it."""
    uses: dict[Expr, int] = {}
    order: list[Expr] = []
    length: dict[Expr, int] = {}

    def visit(part: Expr) -> int:
        uses[part] = uses.get(part, 0) + 1
        if part not in length:
            inner = [visit(child) for child in children(part)]
            length[part] = 1 + sum(inner)
            order.append(part)
        return 1 if uses[part] > 1 and length[part] > _SHORT else length[part]

    visit(expr)
    for part in order:
        if uses[part] > 1 and length[part] > _SHORT and dtype_of(part) != "bool" and part != expr:
            yield part


def _symbol(name: str) -> Any:
    import sympy  # takes longer to load than the rest of the cost model

    return sympy.Symbol(name, integer=True, nonnegative=True)


@cache
def _function(kind: str) -> Any:
    """A function that sympy writes and cannot evaluate itself: ``where`` or ``table``."""
    import sympy

    def select(cls: Any, condition: Any, then: Any, other: Any) -> Any:
        return then if condition == sympy.true else other if condition == sympy.false else None

    def looked_up(cls: Any, at: Any, *values: Any) -> Any:
        return values[min(max(int(at), 0), len(values) - 1)] if at.is_Integer else None

    def written_out(self: Any, **_: Any) -> Any:
        if kind == "where":
            condition, then, other = (part.doit() for part in self.args)
            return sympy.Piecewise((then, condition), (other, True))
        at, *values = (part.doit() for part in self.args)
        cases = ((value, sympy.Eq(at, k)) for k, value in enumerate(values[:-1]))
        return sympy.Piecewise(*cases, (values[-1], True))

    evaluated = select if kind == "where" else looked_up
    members = {"eval": classmethod(evaluated), "doit": written_out, "is_real": True}
    return type(kind, (sympy.Function,), members)


def _binary(op: str, a: Any, b: Any, dtype: str) -> Any:
    import sympy

    if op == "//":
        return a / b if _is_whole(a, b) else sympy.floor(a / b)
    if op in ("min", "max"):
        return (sympy.Min if op == "min" else sympy.Max)(a, b, evaluate=False)
    function = {"+": add, "-": sub, "*": mul, "/": truediv, "%": sympy.Mod}.get(op)
    if function is None:
        raise InternalError(f"no formula for {op} of {dtype}")
    return function(a, b)


def _is_whole(a: Any, b: Any) -> bool:
    """Whether ``a / b`` is a whole number at all whole sizes: a polynomial is where it is at as many
    values in a row of each size as its degree, and one more.
    """
    import sympy

    symbols = sorted(a.free_symbols, key=str)
    if not b.is_Integer or not a.is_polynomial(*symbols):
        return False
    polynomial = sympy.Poly(a, *symbols) if symbols else None
    if polynomial is None or polynomial.total_degree() > _HIGHEST:
        return bool(polynomial is None and (a / b).is_integer)
    ranges = (range(polynomial.degree(symbol) + 1) for symbol in symbols)
    return all(int(polynomial.eval(point)) % int(b) == 0 for point in product(*ranges))
