"""Scalar expressions: what one statement instance computes, and where it reads.

One family of nodes serves indices, conditions and values; the element type tells them apart:
"index" for iteration coordinates and sizes (int64 at run time), "bool" for conditions and elements
that are conditions, and the numeric types of `core.dtypes` for values. Nodes are values: frozen, hashable, equal when their
fields are equal. `printer.py` says how they look.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import copysign
from operator import attrgetter, is_
from typing import Any, TypeAlias, assert_never

from offcut.core.dtypes import describe_range, in_range
from offcut.core.memo import CachedHash, memo, node
from offcut.errors import DescribeError

MAX_HEIGHT = 200
"""Operations that may be nested in what is written: functions of expressions call themselves."""

COMBINED = {"sum": "+", "max": "max", "min": "min"}
"""The operator or function that joins the terms of a reduction."""
BITWISE = ("bitand", "bitor", "bitxor", "shl", "shr")
"""Operations on the bits of integers of two's complement, of w bits: ``shl(a, b)`` is ``a * 2**b`` modulo ``2**w``, ``shr(a, b)`` is
``floor(a / 2**b)``. Where b is w or more, or below 0, it counts as w: 0, and of a right shift of what is below 0 that is -1.
"""


@node
@dataclass(frozen=True, slots=True, eq=False)
class Const(CachedHash):
    """A literal of element type `dtype`; 0.0 and -0.0 are two, NaN is one."""

    value: int | float
    dtype: str

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Const):
            return NotImplemented
        if type(self.value) is int and type(other.value) is int:
            return self.value == other.value and self.dtype == other.dtype
        return (repr(self.value), self.dtype) == (repr(other.value), other.dtype)

    def __hash__(self) -> int:
        try:
            known: int = self._hash
        except AttributeError:
            known = hash((self.value if self.value == self.value else "nan", self.dtype))
            object.__setattr__(self, "_hash", known)
        return known


class Extent:
    """The base of what extents are written with, by Python's operators: ``2*n + 1`` of a size n of a graph."""

    __slots__ = ()

    def __add__(self, other: object) -> Binary:
        return _of_extents("+", self, other)

    def __radd__(self, other: object) -> Binary:
        return _of_extents("+", other, self)

    def __sub__(self, other: object) -> Binary:
        return _of_extents("-", self, other)

    def __rsub__(self, other: object) -> Binary:
        return _of_extents("-", other, self)

    def __mul__(self, other: object) -> Binary:
        return _of_extents("*", self, other)

    def __rmul__(self, other: object) -> Binary:
        return _of_extents("*", other, self)

    def __floordiv__(self, other: object) -> Binary:
        return _of_extents("//", self, other)

    def __mod__(self, other: object) -> Binary:
        return _of_extents("%", self, other)

    def __neg__(self) -> Binary:
        return _of_extents("*", -1, self)


def _of_extents(op: str, a: object, b: object) -> Binary:
    """An expression over sizes and integers; NotImplemented, as Python asks of operators, where one is something else.

    Raises DescribeError for a divisor that is 0 or negative, and for an integer of more than 64 bits.
    """
    parts = tuple(Const(one, "index") if type(one) is int else one for one in (a, b))
    if not all(isinstance(one, Const | Var | Binary) and dtype_of(one) == "index" for one in parts):
        return NotImplemented  # type: ignore[no-any-return]
    for one in parts:
        if isinstance(one, Const) and not in_range(one.value, "index"):
            raise DescribeError(
                "extent", f"cannot calculate with {one.value}", because=describe_range("index")
            )
    if op in ("//", "%") and isinstance(b, int) and b <= 0:
        raise DescribeError(
            "extent",
            f"cannot divide by {b}",
            because=f"`{op}` is the floor for positive divisors",
        )
    return Binary(op, *parts)  # type: ignore[arg-type]


@node
@dataclass(frozen=True, slots=True)
class Var(CachedHash, Extent):
    """An iteration coordinate or a size: an integer, known by its name."""

    name: str


@node
@dataclass(frozen=True, slots=True)
class Load(CachedHash):
    """``buffer[index]``: one index expression per axis of `buffer`, whose type is `dtype`."""

    buffer: str
    index: tuple[Expr, ...]
    dtype: str

    @property
    def asks_memory(self) -> bool:
        """Whether its index is read from memory: only a call can tell whether it is in bounds."""
        return any(map(all_loads, self.index))


@node
@dataclass(frozen=True, slots=True)
class Binary(CachedHash, Extent):
    """``a op b`` on equal types: ``+ - * / // %``, `BITWISE`, and the functions of two elements.

    ``//`` and ``%`` floor, ``/`` is for floats, BITWISE for integers that are elements; `function_table` has the functions.
    """

    op: str
    a: Expr
    b: Expr


@node
@dataclass(frozen=True, slots=True)
class Unary(CachedHash):
    """``op(a)``: ``neg``, or a function of one element, which `function_table` has."""

    op: str
    a: Expr


@node
@dataclass(frozen=True, slots=True)
class Cast(CachedHash):
    """`a` converted to `dtype`; to an integer it truncates, as C does; to "bool" it is whether it is not 0."""

    a: Expr
    dtype: str


@node
@dataclass(frozen=True, slots=True)
class Select(CachedHash):
    """`then` where `condition` holds, else `other`; only the branch taken is accessed."""

    condition: Expr
    then: Expr
    other: Expr


@node
@dataclass(frozen=True, slots=True)
class Compare(CachedHash):
    """``a op b`` as a condition: ``< <= > >= == !=``."""

    op: str
    a: Expr
    b: Expr


@node
@dataclass(frozen=True, slots=True)
class Logic(CachedHash):
    """``and``, ``or`` of two or more conditions, ``not`` of one."""

    op: str
    args: tuple[Expr, ...]


@node
@dataclass(frozen=True, slots=True)
class Lookup(CachedHash):
    """``values[index]``: a table of float64 literals, read at an index inside it."""

    values: tuple[float, ...]
    index: Expr


@node
@dataclass(frozen=True, slots=True)
class Reduce(CachedHash):
    """`value` reduced over `axes` by ``sum``, ``max`` or ``min``; the outermost node of a compute."""

    op: str
    value: Expr
    axes: tuple[str, ...]


Expr: TypeAlias = (
    Const | Var | Load | Binary | Unary | Cast | Select | Compare | Logic | Lookup | Reduce
)


def real(value: Expr | float) -> Expr:
    """A number or an expression as float64."""
    if isinstance(value, int | float):
        return Const(float(value), "float64")
    return Cast(value, "float64") if not isinstance(value, Const) else real(float(value.value))


def dtype_of(expr: Expr) -> str:
    """The element type of an expression: "index", "bool" or a numeric type."""
    match expr:
        case Const(_, dtype) | Load(_, _, dtype) | Cast(_, dtype):
            return dtype
        case Var():
            return "index"
        case Binary(_, a, _) | Unary(_, a) | Reduce(_, a, _):
            return dtype_of(a)
        case Select(_, then, _):
            return dtype_of(then)
        case Compare() | Logic():
            return "bool"
        case Lookup():
            return "float64"
        case _:
            assert_never(expr)


_CHILDREN: dict[type, Callable[[Any], tuple[Expr, ...]]] = {
    Const: lambda _: (),
    Var: lambda _: (),
    Load: attrgetter("index"),
    Binary: attrgetter("a", "b"),
    Unary: lambda node: (node.a,),
    Cast: lambda node: (node.a,),
    Select: attrgetter("condition", "then", "other"),
    Compare: attrgetter("a", "b"),
    Logic: attrgetter("args"),
    Lookup: lambda node: (node.index,),
    Reduce: lambda node: (node.value,),
}


_REBUILT: dict[type, Callable[[Any, tuple[Expr, ...]], Expr]] = {
    Load: lambda node, parts: Load(node.buffer, parts, node.dtype),
    Binary: lambda node, parts: Binary(node.op, *parts),
    Compare: lambda node, parts: Compare(node.op, *parts),
    Unary: lambda node, parts: Unary(node.op, *parts),
    Cast: lambda node, parts: Cast(parts[0], node.dtype),
    Reduce: lambda node, parts: Reduce(node.op, parts[0], node.axes),
    Select: lambda _, parts: Select(*parts),
    Logic: lambda node, parts: Logic(node.op, parts),
    Lookup: lambda node, parts: replace(node, index=parts[0]),
}


def children(expr: Expr) -> tuple[Expr, ...]:
    """The direct operands, in printing order."""
    return _CHILDREN[type(expr)](expr)


def rebuild(expr: Expr, parts: tuple[Expr, ...]) -> Expr:
    """`expr` with its direct operands replaced; the same object when nothing changed."""
    if all(map(is_, parts, children(expr))):
        return expr
    return _REBUILT[type(expr)](expr, parts)


def is_zero(expr: Expr) -> bool:
    """Whether an expression is the number 0, and not -0.0."""
    return isinstance(expr, Const) and expr.value == 0 and copysign(1.0, expr.value) > 0


def is_same_node(a: Expr, b: Expr) -> bool:
    """Whether two expressions are equal but for their operands."""
    parts = children(b)
    return type(a) is type(b) and len(children(a)) == len(parts) and rebuild(a, parts) == b


def rewrite(expr: Expr, rule: Callable[[Expr], Expr | None]) -> Expr:
    """`expr` with `rule` applied from the leaves up; where it returns None the node stays."""
    parts = children(expr)
    if parts:
        expr = rebuild(expr, tuple([rewrite(child, rule) for child in parts]))
    changed = rule(expr)
    return expr if changed is None else changed


def substitute(expr: Expr, values: Mapping[str, Expr]) -> Expr:
    """`expr` with every `Var` named in `values` replaced."""
    if variables(expr).isdisjoint(values):
        return expr
    if isinstance(expr, Var):
        return values[expr.name]
    return rebuild(expr, tuple([substitute(child, values) for child in children(expr)]))


def walk(expr: Expr) -> Iterator[Expr]:
    """Every node of `expr`, parents first."""
    pending = [expr]
    while pending:
        node = pending.pop()
        yield node
        pending += reversed(children(node))


@memo(1 << 14)
def variables(expr: Expr) -> frozenset[str]:
    """The names of all `Var` nodes."""
    if isinstance(expr, Var):
        return frozenset((expr.name,))
    return frozenset().union(*map(variables, children(expr)))


def reads_memory(expr: Expr) -> bool:
    """Whether the value of an expression depends on the elements of an array."""
    return bool(all_loads(expr))


@memo(1 << 14)
def all_loads(expr: Expr) -> tuple[Load, ...]:
    """Every `Load` in an expression, parents first."""
    inside = (load for child in children(expr) for load in all_loads(child))
    return (expr, *inside) if isinstance(expr, Load) else tuple(inside)


def loads(expr: Expr) -> Iterator[tuple[Load, tuple[Expr, ...]]]:
    """Every `Load` with the conditions of the `Select` branches around it, outermost first."""
    return iter(_guarded_operands(expr))


@memo(1 << 12)
def _guarded_operands(expr: Expr) -> tuple[tuple[Load, tuple[Expr, ...]], ...]:
    return tuple(_loads(expr, ())) if all_loads(expr) else ()


def _loads(expr: Expr, path: tuple[Expr, ...]) -> Iterator[tuple[Load, tuple[Expr, ...]]]:
    if isinstance(expr, Load):
        yield expr, path
    if isinstance(expr, Select):
        yield from _loads(expr.condition, path)
        yield from _loads(expr.then, (*path, expr.condition))
        yield from _loads(expr.other, (*path, Logic("not", (expr.condition,))))
        return
    for child in children(expr):
        yield from _loads(child, path)
