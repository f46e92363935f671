"""Functions of expressions: values and axes go in; a function, a choice or a reduction of them comes out."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sympy.core.relational import Relational

from offcut.core.dtypes import FLOATS, INTEGERS
from offcut.core.expr import Binary, Cast, Reduce, Select, Var
from offcut.core.function import Function
from offcut.core.function_table import PUBLIC
from offcut.describe.refusals import NoOperand
from offcut.describe.tensor import checked_name, checked_shape
from offcut.describe.value import (
    Axis,
    Value,
    cast,
    check_no_tensor,
    combine,
    pair,
    size_value,
    unary,
)
from offcut.errors import DescribeError

if TYPE_CHECKING:
    from offcut.core.functions import *  # noqa: F403 - a name for each row


def _of_row(row: Function) -> Callable[..., Value]:
    """Return the function of expressions that a row says."""

    def of_one(a: Value) -> Value:
        return unary(row.name, a)

    def of_two(a: Any, b: Any) -> Value:
        x, y = _two(row.name, row.public, a, b)
        if x.dtype not in FLOATS and (x.dtype not in INTEGERS or not row.integers):
            kind = "elements that are numbers" if row.integers else "float elements"
            raise DescribeError(
                "compute",
                f"cannot take {row.public} of {x.dtype} {x} and {y}",
                because=f"{row.public} is for {kind}",
            )
        return combine(Binary(row.name, x.node, y.node), x, y)

    function: Callable[..., Value] = of_one if row.arity == 1 else of_two
    function.__name__ = function.__qualname__ = row.public
    function.__doc__ = row.help("a", "b")
    return function


globals().update({face: _of_row(row) for face, row in PUBLIC.items()})


def maximum(a: Any, b: Any) -> Value:
    """Return the larger of two, by element; NaN where either is NaN. Of -0.0 and a literal 0.0 it is -0.0."""
    return _extreme("max", a, b)


def minimum(a: Any, b: Any) -> Value:
    """Return the smaller of two, by element; NaN where either is NaN. Of -0.0 and a literal 0.0 it is -0.0."""
    return _extreme("min", a, b)


def _two(op: str, face: str, a: Any, b: Any) -> tuple[Value, Value]:
    """Return both operands as values of one type; `face` is what the user calls the function."""
    check_no_tensor(face, a, b)
    if not isinstance(a, Value) and not isinstance(b, Value):
        raise DescribeError(
            "compute",
            f"cannot take {face} of {a!r} and {b!r}",
            because="neither is an expression",
        )
    return pair(op, a, b)


def _extreme(op: str, a: Any, b: Any) -> Value:
    x, y = _two(op, f"{op}imum", a, b)
    if x.dtype == "bool":
        raise DescribeError(
            "compute",
            f"cannot take {op}imum of {x} and {y}",
            because="they are conditions",
            help=("a | b is the larger of two conditions, a & b the smaller",),
        )
    return combine(Binary(op, x.node, y.node), x, y)


def where(condition: Value, a: Any, b: Any) -> Value:
    """Return `a` where the condition holds, else `b`; only the branch taken is accessed."""
    check_no_tensor("where", condition, a, b)
    if not (isinstance(condition, Value) and condition.dtype == "bool"):
        raise DescribeError(
            "where",
            f"cannot choose by {condition}",
            because="the condition is a comparison of elements, axes or sizes",
            help=_as_condition(condition),
        )
    if not isinstance(a, Value) and not isinstance(b, Value):
        raise DescribeError(
            "where",
            f"cannot tell the element type of {a!r} and {b!r}",
            because="both are Python scalars",
            help=('where(c, cast(1.0, "float32"), 0.0)',),
        )
    x, y = pair("where", a, b)
    return combine(Select(condition.node, x.node, y.node), condition, x, y)


def _as_condition(condition: object) -> tuple[str, ...]:
    """What to write for a number, or a relation of sizes alone, that is to choose."""
    if isinstance(condition, Value):
        return (f"where({condition} != 0, a, b)",)
    if isinstance(condition, Relational):
        return ('where(cast(n, "int64") > 3, a, b): of a size as an element',)
    return ()


def index(value: Any) -> Value:
    """Return `value`, an integer element, as an index: ``table[index(ids[i]), j]``.

    value   an element of integers; a coordinate, a size or an int is an index as it is

    No proof knows what an array holds, so that the kernel itself compares such an index with the
    extents of what it reads: one below 0 or not below the extent is refused by CallError. Only the
    branch of a `where` that is taken is asked.

    Raises DescribeError for floats and conditions.
    """
    index_value = value if isinstance(value, Value) else size_value(value)
    if index_value is None or index_value.dtype not in (*INTEGERS, "index"):
        shown = repr(value) if index_value is None else f"{index_value.dtype} {index_value}"
        raise DescribeError(
            "index",
            f"cannot take {shown} as an index",
            because=f"an index is made of {', '.join(INTEGERS)}",
        )
    return (
        index_value
        if index_value.dtype == "index"
        else combine(Cast(index_value.node, "index"), index_value)
    )


def _reduce(op: str, value: Any, axis: Any) -> Value:
    if axis is None:
        whole = f"ops.{op}({value.name})" if isinstance(value, NoOperand) else f"ops.{op}(A)"
        raise DescribeError(
            op,
            "cannot reduce over no axis",
            because="a reduction says which axes of an expression it is over",
            help=(
                f'k = reduce_axis(768, name="k"); {op}(A[i, k], axis=k)',
                f"{whole} reduces a tensor",
            ),
        )
    check_no_tensor(op, value)
    axes = axis if isinstance(axis, tuple | list) else (axis,)
    named: list[Axis] = []
    for a in axes:
        if not (isinstance(a, Value) and isinstance(a.node, Var) and len(a.axes) == 1):
            raise DescribeError(
                op,
                f"cannot reduce over {a!r}",
                because="it is not an axis made by reduce_axis",
                help=(
                    'k = reduce_axis(768, name="k"); sum(A[i, k], axis=k)',
                    *_of_two(op, value, a),
                ),
            )
        named.append(a.axes[0])
    if not isinstance(value, Value) or value.dtype in ("bool", "index"):
        shown = f"{value.dtype} {value}" if isinstance(value, Value) else repr(value)
        raise DescribeError(
            op,
            f"cannot reduce {shown}",
            because="a reduction is over tensor elements",
            help=_as_element(op, value),
        )
    names = tuple(a.name for a in named)
    if len(set(names)) != len(names):
        raise DescribeError(op, f"cannot reduce over {names}", because="an axis is named twice")
    return combine(Reduce(op, value.node, names), value, *axes)


def _of_two(op: str, value: Any, other: Any) -> tuple[str, ...]:
    """What to write where the larger or smaller of two was meant."""
    by_element = isinstance(value, Value) and isinstance(other, Value | int | float)
    if op == "sum" or not by_element:
        return ()
    return (f"{op}imum({value}, {other}) is the {'larger' if op == 'max' else 'smaller'} of two",)


def _as_element(op: str, value: Any) -> tuple[str, ...]:
    """Return how a condition is reduced, or a coordinate."""
    if not isinstance(value, Value):
        return ()
    counted = f'{op}(cast({value}, "int32"), …)'
    if value.dtype == "index":
        return (counted,)
    return (counted, f"{op}(where({value}, a, b), …) of elements that it chooses")


def sum(value: Any, axis: Any = None) -> Value:
    """``sum of value over axis``, accumulated in the type of `value`; 0 over no element."""
    return _reduce("sum", value, axis)


def max(value: Any, axis: Any = None) -> Value:
    """Return the greatest `value` over `axis`; the least value of the type over no element."""
    return _reduce("max", value, axis)


def min(value: Any, axis: Any = None) -> Value:
    """Return the least `value` over `axis`; the greatest value of the type over no element."""
    return _reduce("min", value, axis)


def reduce_axis(extent: Any, name: str = "k") -> Value:
    """Return a reduction axis: ``0 <= name < extent``, for ``sum(…, axis=)``."""
    (size,) = checked_shape("reduce_axis", name, (extent,))
    axis = Axis(checked_name("reduce_axis", name), size)
    return Value(Var(axis.name), (), (axis,))


PRODUCTS = (-2, 4)
"""The least and the largest exponent of floats that are calculated by products: by these few they are as exact as the function."""
LARGEST = 64
"""The largest exponent of integers."""


def power(a: Any, b: Any) -> Value:
    """``a ** b``; of floats within 2 ULP (float32), 1 where `b` is 0, NaN where `a` is below 0 and `b` is not whole.

    a, b   elements of one type, or one of them a number. Numbers `b` that are whole, from -2 to 4, are calculated by
           products, and 0.5 is the square root: of -0.0 and -inf that is -0.0 and NaN. Integers wrap, and
           have a number from 0 to 64 as exponent

    Raises DescribeError for others.
    """
    check_no_tensor("power", a, b)
    if not isinstance(a, Value) and not isinstance(b, Value):
        raise DescribeError(
            "compute",
            f"cannot take the power of {a!r} and {b!r}",
            because="neither is an expression",
        )
    number = isinstance(b, int | float) and not isinstance(b, bool)
    if isinstance(a, Value) and a.dtype in FLOATS and number and _by_products(b):
        return _product(a, b)
    if isinstance(a, Value) and a.dtype not in (*FLOATS, "bool", "index"):
        if not (isinstance(b, int) and number and 0 <= b <= LARGEST):
            raise DescribeError(
                "compute",
                f"cannot take the power of {a} and {b}",
                because=f"the exponent of integers is a whole number from 0 to {LARGEST}",
                help=('cast(x, "float32") takes any exponent',),
            )
        return _product(a, b)
    x, y = pair("power", a, b)
    if x.dtype not in FLOATS:
        raise DescribeError(
            "compute",
            f"cannot take the power of {x.dtype} {x}",
            because="power is of elements that are numbers",
        )
    return combine(Binary("pow", x.node, y.node), x, y)


def _by_products(exponent: float) -> bool:
    return exponent == 0.5 or (PRODUCTS[0] <= exponent <= PRODUCTS[1] and exponent == int(exponent))


def _product(value: Value, exponent: float) -> Value:
    if exponent == 0.5:
        return sqrt(value)  # noqa: F405 - of a row
    if exponent < 0:
        return _product(1.0 / value, -exponent)
    if exponent == 0:
        return cast(1, value.dtype)
    if exponent == 1:
        return value
    half = _product(value, exponent // 2)
    square = half * half
    return square * value if exponent % 2 else square
