"""Symbolic sizes: sympy symbols that carry facts, and the affine facts between them.

A size is its name and its facts: ``dim("n")`` twice is the same size. Extents are sympy
expressions in sizes; what isl can reason about, and so what offcut accepts, is a quasi-affine one:
sums, integer multiples, ``//`` and ``%`` by positive integers.

Sample values of a size, at which a claim about all of its values is looked at.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache, partial, reduce
from numbers import Integral, Real
from typing import Any

import numpy as np
import numpy.typing as npt
import sympy
from sympy.core.relational import Relational

from offcut.core import index as ix
from offcut.core.expr import Binary, Compare, Const, Expr, Var, real
from offcut.core.integers import whole
from offcut.core.program import MAX_SIZE, Size
from offcut.errors import DescribeError, trim_traceback

_POWERS = (*range(-8, 0), *range(1, 9))  # that are written as products


class Undecided(DescribeError, TypeError):
    """Of a size that is asked for its value, or a relation of sizes whether it holds; a TypeError as well, since that is what sympy and
    numpy expect then.
    """


_UNKNOWN = "a size is known only when the kernel runs"
_RELATIONS = (sympy.Le, sympy.Ge, sympy.Lt, sympy.Gt)


class _Asked:
    """What a relation of sizes says where Python asks whether it holds, as it does of the first of ``1 <= n <= m``."""

    __slots__ = ()

    def __bool__(self) -> bool:
        raise Undecided(
            "dim",
            f"cannot decide {self}",
            because=f"{_UNKNOWN}, and a chain a <= n <= b asks for the first part alone",
            help=(
                "assume(a <= n, n <= b)",
                'where(cast(n, "int64") > 3, a, b) of elements, in place of if',
                'maximum(cast(n, "int64"), 3), minimum, in place of Python\'s max and min',
            ),
        )

    @property
    def func(self) -> Any:
        """What sympy makes of it: a relation of its own."""
        return next(kind for kind in type(self).__mro__ if kind in _RELATIONS)


class _Le(_Asked, sympy.Le):  # type: ignore[misc]  # sympy ships no types
    __slots__ = ()


class _Ge(_Asked, sympy.Ge):  # type: ignore[misc]
    __slots__ = ()


class _Lt(_Asked, sympy.Lt):  # type: ignore[misc]
    __slots__ = ()


class _Gt(_Asked, sympy.Gt):  # type: ignore[misc]
    __slots__ = ()


class Dim(sympy.Symbol):  # type: ignore[misc]  # sympy ships no types
    """A symbolic size with ``min <= size <= max`` and ``size % multiple_of == 0``."""

    __slots__ = ("max", "min", "multiple_of")

    min: int
    max: int
    multiple_of: int

    def __new__(cls, name: str, min: int, max: int, multiple_of: int) -> Dim:
        """A new symbol; sympy's own cache knows no facts, so it is passed by."""
        self = sympy.Symbol.__xnew__(cls, name, integer=True, nonnegative=True)
        self.min, self.max, self.multiple_of = min, max, multiple_of
        return self  # type: ignore[no-any-return]

    def __getnewargs_ex__(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (self.name, self.min, self.max, self.multiple_of), {}

    def _hashable_content(self) -> tuple[Any, ...]:
        content: tuple[Any, ...] = super()._hashable_content()
        return (*content, self.min, self.max, self.multiple_of)

    def __le__(self, other: Any) -> Any:
        return _Le(self, other)

    def __ge__(self, other: Any) -> Any:
        return _Ge(self, other)

    def __lt__(self, other: Any) -> Any:
        return _Lt(self, other)

    def __gt__(self, other: Any) -> Any:
        return _Gt(self, other)

    def __mod__(self, other: Any) -> Any:
        return Residue(self, other) if isinstance(other, int) else super().__mod__(other)

    def __index__(self) -> int:
        raise Undecided(
            "dim",
            f"cannot count to {self} in Python",
            because=_UNKNOWN,
            help=(
                f"reduce_axis({self}) and the axes of compute, in place of range",
                f"placeholder(({self},)) stands for an array of any such size",
            ),
        )

    def __int__(self) -> int:
        raise self._no_number("int", "int64")

    def __float__(self) -> float:
        raise self._no_number("float", "float64")

    def _no_number(self, kind: str, dtype: str) -> Undecided:
        return Undecided(
            "dim",
            f"cannot make a Python {kind} of {self}",
            because=_UNKNOWN,
            help=(f'cast({self}, "{dtype}") is its value as an element', f"{self}.min, {self}.max"),
        )


class Residue:
    """``n % 8``: a sympy ``Mod`` that compares into a fact, so that ``assume(n % 8 == 0)`` reads well."""

    __slots__ = ("value",)

    def __init__(self, size: Dim, modulus: int) -> None:
        self.value = sympy.Mod(sympy.sympify(size), modulus)

    def _sympy_(self) -> Any:
        return self.value

    def __eq__(self, other: object) -> Any:
        return sympy.Eq(self.value, sympy.sympify(other))

    __hash__ = None  # type: ignore[assignment]

    def __le__(self, other: Any) -> Any:
        return self.value <= sympy.sympify(other)

    def __lt__(self, other: Any) -> Any:
        return self.value < sympy.sympify(other)

    def __ge__(self, other: Any) -> Any:
        return self.value >= sympy.sympify(other)

    def __gt__(self, other: Any) -> Any:
        return self.value > sympy.sympify(other)

    def __add__(self, other: Any) -> Any:
        return self.value + other

    def __radd__(self, other: Any) -> Any:
        return other + self.value

    def __sub__(self, other: Any) -> Any:
        return self.value - other

    def __rsub__(self, other: Any) -> Any:
        return other - self.value

    def __mul__(self, other: Any) -> Any:
        return self.value * other

    __rmul__ = __mul__

    def __str__(self) -> str:
        return str(self.value)


@trim_traceback
def dim(name: str, min: int = 0, max: int = MAX_SIZE, multiple_of: int = 1) -> Dim:
    """A symbolic size, known only when a kernel is called.

    name          an identifier; two sizes of one name in one program must carry the same facts
    min, max      inclusive bounds, ``0 <= min <= max <= 2**31 - 1``
    multiple_of   every value is a multiple of it, at least 1

    >>> n = dim("n", max=4096, multiple_of=8)
    >>> n == dim("n", max=4096, multiple_of=8)
    True

    Raises DescribeError when no value satisfies the facts.
    """
    if not (isinstance(name, str) and name.isidentifier() and name.isascii()):
        raise DescribeError(
            "dim",
            f"cannot name a size {name!r}",
            because="a size is known by an ASCII identifier",
            help=('dim("n")',),
        )
    if name == "out":
        raise DescribeError(
            "dim",
            "cannot name a size 'out'",
            because="out= of a call says where the result goes",
            help=('dim("n")',),
        )
    for label, value in (("min", min), ("max", max), ("multiple_of", multiple_of)):
        if whole(value) is None:
            raise DescribeError(
                "dim",
                f"cannot take {label}={value!r}",
                at=f"size {name}",
                because="a fact of a size is an integer",
            )
    min, max, multiple_of = (operator.index(value) for value in (min, max, multiple_of))
    first = -(-min // multiple_of) * multiple_of if multiple_of > 0 else 0
    if not (0 <= min <= max <= MAX_SIZE and multiple_of >= 1 and first <= max):
        raise DescribeError(
            "dim",
            f"no size can be in {min}…{max} and a multiple of {multiple_of}",
            at=f"size {name}",
            because=f"0 <= min <= max <= {MAX_SIZE} and multiple_of >= 1 leave no value",
            help=('dim("n", min=1, max=4096, multiple_of=8)',),
        )
    return Dim(name, min, max, multiple_of)


_facts: list[Relational] = []


class Assumption:
    """Facts in force from `assume` on; as a context manager, until the block ends."""

    def __init__(self, facts: tuple[Relational, ...]) -> None:
        self.facts = facts

    def __enter__(self) -> Assumption:
        return self

    def __exit__(self, *_: object) -> None:
        for fact in self.facts:
            if fact in _facts:
                _facts.remove(fact)


@trim_traceback
def assume(*facts: Any) -> Assumption:
    """Promise affine facts between sizes, such as ``n <= m`` or ``n % 8 == 0``.

    They hold for all that is compiled, cut or lowered from then on and has these sizes, and each call is checked
    against them. ``with assume(n <= m): …`` limits them to a block; what was compiled in it keeps them.

    facts  ``<=``, ``<``, ``>=``, ``>``, ``sympy.Eq(a, b)``, or ``n % 8 == 0``

    Raises DescribeError for what is not an affine relation between sizes.
    """
    stated = tuple(fact for fact in facts if fact is not sympy.true)
    for fact in stated:
        because = ""
        if fact is sympy.false:
            because = "no values of the sizes meet it, by what each of them is bounded by"
        elif fact is False or fact is True:
            because = f"it is {fact}: sympy compares with == by structure; use sympy.Eq(a, b), or n % 8 == 0"
        elif not isinstance(fact, Relational):
            because = f"it is of type {type(fact).__name__}, and no relation of sizes made by dim"
        elif not all(isinstance(symbol, Dim) for symbol in fact.free_symbols):
            because = "a fact is about sizes made by dim"
        elif fact.rel_op == "!=":
            because = "a call checks <=, <, >=, > and =="
        elif not all(c.is_Rational for c in _coefficients(fact)):
            because = "a fact is of ints and of sizes: isl decides those alone"
        elif any(abs(c) > 2**31 for c in _coefficients(fact)):
            because = "a call checks it in int64: factors are at most 2**31"
        elif condition_of(fact) is None:
            because = "isl decides quasi-affine facts only: no product of two sizes"
        if because:
            raise DescribeError(
                "assume", f"cannot promise {fact}", because=because, help=("assume(n <= m)",)
            )
    _facts.extend(stated)
    return Assumption(stated)


def _coefficients(fact: Relational) -> list[Any]:
    terms = sympy.Add.make_args(sympy.expand(fact.lhs - fact.rhs))
    return [term.as_coeff_Mul()[0] for term in terms]


def facts_about(sizes: Iterable[Dim]) -> tuple[Relational, ...]:
    """The assumptions that speak of these sizes and no other."""
    known = frozenset(sizes)
    return tuple(dict.fromkeys(fact for fact in _facts if fact.free_symbols <= known))


def size_expr(value: Any, what: str) -> Any:
    """`value`, an int or an expression in sizes, as a sympy expression.

    Raises DescribeError, naming `what`, for anything else and for what is not quasi-affine.
    """
    if isinstance(value, Residue):
        value = value.value
    symbolic = isinstance(value, sympy.Expr)
    number = None if symbolic or hasattr(value, "node") else whole(value)
    if number is not None or symbolic:
        expr = value if number is None else sympy.sympify(number)
        if expr.free_symbols <= {s for s in expr.free_symbols if isinstance(s, Dim)}:
            if index_of(expr) is not None:
                return expr
            raise DescribeError(
                what,
                f"cannot take the size {expr}",
                because="isl decides quasi-affine sizes only: no product of two sizes, "
                "no division but // and % by a positive int",
                help=("2*n + 1, n//4 and n % 4 are accepted",),
            )
    raise DescribeError(
        what,
        f"cannot take the size {value!r}",
        because="a size is an int or an expression in sizes made by dim",
        help=('n = dim("n"); (n, 768)',),
    )


def index_of(expr: Any) -> Expr | None:
    """A sympy expression in sizes as an index expression; None where it is not quasi-affine."""
    if isinstance(expr, sympy.Symbol):
        return Var(expr.name)
    if isinstance(expr, sympy.Integer):
        return ix.const(int(expr))
    if isinstance(expr, sympy.Add):
        parts = [index_of(arg) for arg in expr.args]
        return None if None in parts else ix.add(*(part for part in parts if part is not None))
    if isinstance(expr, sympy.Mul):
        factor, rest = expr.as_coeff_Mul()
        if factor == 1 or not isinstance(factor, sympy.Integer):
            return None
        part = index_of(rest)
        if part is None:
            return None
        return ix.mul(int(factor), part)
    if isinstance(expr, sympy.floor):
        return _floor_index(expr)
    if isinstance(expr, sympy.Mod):
        part, modulus = index_of(expr.args[0]), expr.args[1]
        ok = part is not None and isinstance(modulus, sympy.Integer) and modulus > 0
        return ix.mod(part, int(modulus)) if part is not None and ok else None
    return None


@lru_cache(maxsize=4096)
def _floor_index(expr: sympy.floor) -> Expr | None:
    """`index_of` a floor: sympy takes long to bring its terms together, and every tensor of a layer has the same few."""
    numerator, denominator = sympy.fraction(sympy.together(expr.args[0]))
    part = index_of(sympy.expand(numerator))
    ok = part is not None and isinstance(denominator, sympy.Integer) and denominator > 0
    return ix.floordiv(part, int(denominator)) if part is not None and ok else None


def quotient(size: Any, divisor: int) -> Any:
    """``size // divisor``, what sympy's `floor` gives, in a tenth of its time: terms that `divisor` divides are whole.

    size     a sum of products of sizes with integer factors, as extents are; anything else is left to sympy
    divisor  a positive int
    """
    size, whole, rest = sympy.sympify(size), list[Any](), list[Any]()
    for term in sympy.Add.make_args(size):
        factor, product = term.as_coeff_Mul()
        if not (factor.is_Integer and product.is_integer):
            return sympy.floor(size / divisor)
        (rest if factor % divisor else whole).append(term / divisor)
    left = sympy.Add(*rest)
    return sympy.Add(*whole, sympy.floor(left, evaluate=bool(left.is_number)))


def with_sizes(expr: Any, now: Mapping[Dim, Dim]) -> Any:
    """A size in other symbols of the same facts, what sympy's `xreplace` gives: a `floor` that stood for itself does so in them, and is
    not asked again, which takes sympy long.
    """
    if not expr.args:
        return now.get(expr, expr)
    args = [with_sizes(arg, now) for arg in expr.args]
    return sympy.floor(*args, evaluate=False) if expr.func is sympy.floor else expr.func(*args)


def real_of(expr: Any, reals: Collection[str] = ()) -> Expr | None:
    """Return a number, or a sympy expression in sizes, as a float64 expression; None where it is none of sums,
    products, quotients, powers up to 8, ``min`` and ``max``.

    reals  names of symbols that are no sizes: a float64 expression takes the place of each later on
    """
    if isinstance(expr, Real):
        expr = sympy.sympify(int(expr) if isinstance(expr, Integral) else float(expr))
    if isinstance(expr, sympy.Symbol) and expr.name in reals:
        return Var(expr.name)
    names = {symbol.name for symbol in getattr(expr, "free_symbols", ())}
    whole = index_of(expr) if names.isdisjoint(reals) else None
    if whole is not None:
        return real(whole)
    if isinstance(expr, sympy.Number) and expr.is_finite:
        return real(float(expr))
    if isinstance(expr, sympy.Pow):
        base = real_of(expr.base, reals)
        if base is None or expr.exp not in _POWERS:
            return None
        power = reduce(partial(Binary, "*"), [base] * abs(int(expr.exp)))
        return power if expr.exp > 0 else Binary("/", real(1.0), power)
    folds = {sympy.Add: "+", sympy.Mul: "*", sympy.Min: "min", sympy.Max: "max"}
    op = next((op for kind, op in folds.items() if isinstance(expr, kind)), None)
    if op is None:
        return None
    parts = [part for arg in expr.args if (part := real_of(arg, reals)) is not None]
    if len(parts) < len(expr.args):
        return None
    return reduce(partial(Binary, op), parts)


def no_real(expr: Any) -> Any:
    """What of a sympy expression in sizes `real_of` takes no float64 expression of: the innermost part; None where it takes all.

    >>> n = dim("n")
    >>> no_real(2 * sympy.sqrt(n) + n)
    sqrt(n)
    """
    if not isinstance(expr, sympy.Basic) or real_of(expr) is not None:
        return None
    return next((part for arg in expr.args if (part := no_real(arg)) is not None), expr)


def condition_of(fact: Relational) -> Expr | None:
    """A relation between sizes as a condition; None where a side is not quasi-affine.

    sympy writes ``n//4 <= m`` as ``n/4 < m + 1``, so that denominators are cleared first.
    """
    terms = sympy.Add.make_args(sympy.expand(fact.lhs - fact.rhs))
    scale = sympy.ilcm(1, *(term.as_coeff_Mul()[0].q for term in terms if term != 0))
    a, b = index_of(sympy.expand(fact.lhs * scale)), index_of(sympy.expand(fact.rhs * scale))
    return None if a is None or b is None else Compare(fact.rel_op, a, b)


def sympy_of(expr: Expr, sizes: dict[str, Any]) -> Any:
    """An index expression as a sympy expression over the given sizes."""
    match expr:
        case Const(value, _):
            return sympy.Integer(int(value))
        case Var(name):
            return sizes[name]
        case Binary(op, a, b):
            x, y = sympy_of(a, sizes), sympy_of(b, sizes)
            return {
                "+": lambda: x + y,
                "-": lambda: x - y,
                "*": lambda: x * y,
                "//": lambda: quotient(x, int(y)),
                "%": lambda: sympy.Mod(x, y),
                "min": lambda: sympy.Min(x, y),
                "max": lambda: sympy.Max(x, y),
            }[op]()
        case _:
            raise ValueError(f"not an index expression: {expr}")


def samples(size: Size, count: int, most: int = 2**31 - 1) -> npt.NDArray[np.int64]:
    """As many values of a size at most, ascending: the further apart the larger they are, none of them 0.

    most  the largest that is looked at, where the size has one below
    """
    step = size.multiple_of
    first = max(size.at_or_above(1), step)
    last = max(min(size.max, most) // step * step, first)
    values: npt.NDArray[np.int64] = np.geomspace(first, last, count).astype(np.int64)
    return np.unique(values // step * step)
