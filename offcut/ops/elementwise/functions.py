"""Functions of one element, and conversions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from offcut.core.dtypes import FLOATS, NUMBERS, UNSIGNED
from offcut.core.function import Function
from offcut.core.function_table import PUBLIC
from offcut.describe import functions
from offcut.describe.tensor import Tensor, compute
from offcut.describe.value import Value
from offcut.describe.value import cast as converted
from offcut.errors import DescribeError
from offcut.ops.checks import Option, axis_letters, check_result, check_tensor, result_name, wider
from offcut.ops.elementwise.broadcasting import Operand, number_of, pointwise

if TYPE_CHECKING:
    from offcut.core.functions import *  # noqa: F403 - a name for each row


def negative(x: Tensor, *, name: str | None = None) -> Tensor:
    """``-x`` by element, of any shape; integers wrap."""
    return of_each("negative", name, x, lambda a: -a, NUMBERS)


def square(x: Tensor, *, name: str | None = None) -> Tensor:
    """``x * x`` by element, of any shape; integers wrap."""
    return of_each("square", name, x, lambda a: a * a, NUMBERS)


def reciprocal(x: Tensor, *, name: str | None = None) -> Tensor:
    """``1 / x`` by element of floats, of any shape; ±inf of ±0."""
    return of_each("reciprocal", name, x, lambda a: 1.0 / a, FLOATS)


def rsqrt(x: Tensor, *, name: str | None = None) -> Tensor:
    """``1 / sqrt(x)`` by element of floats, both rounded; ±inf of ±0, NaN below."""
    return of_each("rsqrt", name, x, lambda a: 1.0 / functions.sqrt(a), FLOATS)


def sign(x: Tensor, *, name: str | None = None) -> Tensor:
    """-1 below 0, 1 above, else `x` itself, by element: 0, or NaN."""
    return of_each("sign", name, x, _sign, NUMBERS)


def _sign(x: Value) -> Value:
    above = functions.where(x > 0, 1, x)
    return above if x.dtype in UNSIGNED else functions.where(x < 0, -1, above)


def _of_row(row: Function) -> Callable[..., Tensor]:
    """Return the operator on tensors that a row says."""
    of, allowed = getattr(functions, row.public), NUMBERS if row.integers else FLOATS

    def of_one(x: Tensor, *, name: str | None = None) -> Tensor:
        return of_each(row.public, name, x, of, allowed)

    def of_two(x: Operand, y: Operand, *, name: str | None = None) -> Tensor:
        return pointwise(row.public, name, {"x": x, "y": y}, of, allowed)

    operator: Callable[..., Tensor] = of_one if row.arity == 1 else of_two
    operator.__name__ = operator.__qualname__ = row.public
    operator.__doc__ = f"By element, of any shape: {row.help('x', 'y')}"
    return operator


def clip(
    x: Tensor, low: float | None = None, high: float | None = None, *, name: str | None = None
) -> Tensor:
    """``min(max(x, low), high)`` by element, of any shape; NaN stays NaN.

    low, high   numbers that the element type holds; None: no end on that side

    Raises DescribeError where both are None, or one is no such number.
    """
    check_tensor("clip", "x", x)
    if low is None and high is None:
        raise DescribeError(
            "clip", "cannot do without low and high", at=repr(x), because="neither end is given"
        )
    ends = {
        label: None if end is None else _end(label, end, x)
        for label, end in (("low", low), ("high", high))
    }

    def at(value: Value) -> Value:
        if ends["low"] is not None:
            value = functions.maximum(value, ends["low"])
        return value if ends["high"] is None else functions.minimum(value, ends["high"])

    options = [(label, end, None) for label, end in ends.items()]
    return of_each("clip", name, x, at, NUMBERS, *options)


def _end(label: str, end: Any, x: Tensor) -> float:
    end_value = number_of("clip", label, end, x.dtype, x)
    if end_value != end_value:
        raise DescribeError(
            "clip", f"cannot take {label}={end!r}", at=repr(x), because="NaN is not an end"
        )
    return end_value


def cast(x: Tensor, dtype: str, *, name: str | None = None) -> Tensor:
    """`x` converted to `dtype` by element, of any shape.

    Floats become integers toward zero, what is too far the nearest that there is, NaN 0; integers wrap; bool is
    whether an element is not 0.
    Raises DescribeError where `dtype` is no element type.
    """
    check_tensor("cast", "x", x)
    result_dtype = check_result("cast", dtype, x.dtype)
    name, axes = (
        result_name("cast", name, [x], ("", result_dtype, None)),
        axis_letters(len(x.shape)),
    )
    return compute(x.shape, lambda *at: converted(x[at], result_dtype), name, axes)


def of_each(
    op: str,
    name: str | None,
    x: Any,
    of: Callable[[Value], Value],
    allowed: tuple[str, ...],
    *options: Option,
) -> Tensor:
    """``result[…] = of(x[…])``, calculated in float32 for 16-bit floats, and rounded once.

    Raises DescribeError where `x` is no tensor of an `allowed` type.
    """
    check_tensor(op, "x", x, dtypes=allowed)

    def at(*axes: Value) -> Value:
        inner = wider(x.dtype) if x.dtype in FLOATS else x.dtype
        return converted(of(converted(x[axes], inner)), x.dtype)

    return compute(x.shape, at, result_name(op, name, [x], *options), axis_letters(len(x.shape)))


globals().update({face: _of_row(row) for face, row in PUBLIC.items()})
