"""Functions of one element, and conversions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from offcut.core.dtypes import FLOATS, NUMBERS, UNSIGNED
from offcut.describe import functions
from offcut.describe.tensor import Tensor, compute
from offcut.describe.value import Value
from offcut.describe.value import cast as converted
from offcut.errors import DescribeError
from offcut.ops.elementwise.joining import number_of
from offcut.ops.given.naming import Option, named
from offcut.ops.given.operands import axis_letters, check_dtype, check_result, check_tensor, wider


def negative(x: Tensor, *, name: str | None = None) -> Tensor:
    """``-x`` by element, of any shape; integers wrap."""
    return of_each("negative", name, x, lambda a: -a, NUMBERS)


def absolute(x: Tensor, *, name: str | None = None) -> Tensor:
    """``|x|`` by element, of any shape; the least integer of a type stays."""
    return of_each("absolute", name, x, functions.absolute, NUMBERS)


def square(x: Tensor, *, name: str | None = None) -> Tensor:
    """``x * x`` by element, of any shape; integers wrap."""
    return of_each("square", name, x, lambda a: a * a, NUMBERS)


def reciprocal(x: Tensor, *, name: str | None = None) -> Tensor:
    """``1 / x`` by element of floats, of any shape; ±inf of ±0."""
    return of_each("reciprocal", name, x, lambda a: 1.0 / a, FLOATS)


def sqrt(x: Tensor, *, name: str | None = None) -> Tensor:
    """The square root by element of floats, correctly rounded; NaN below 0."""
    return of_each("sqrt", name, x, functions.sqrt, FLOATS)


def rsqrt(x: Tensor, *, name: str | None = None) -> Tensor:
    """``1 / sqrt(x)`` by element of floats, both rounded; ±inf of ±0, NaN below."""
    return of_each("rsqrt", name, x, lambda a: 1.0 / functions.sqrt(a), FLOATS)


def exp(x: Tensor, *, name: str | None = None) -> Tensor:
    """``e**x`` by element of floats, within 2 ULP (float32)."""
    return of_each("exp", name, x, functions.exp, FLOATS)


def log(x: Tensor, *, name: str | None = None) -> Tensor:
    """The natural logarithm by element of floats, within 1 ULP (float32); -inf of 0, NaN below."""
    return of_each("log", name, x, functions.log, FLOATS)


def log1p(x: Tensor, *, name: str | None = None) -> Tensor:
    """``log(1 + x)`` by element of floats, exact near 0, too; -inf of -1, NaN below."""
    return of_each("log1p", name, x, functions.log1p, FLOATS)


def sin(x: Tensor, *, name: str | None = None) -> Tensor:
    """The sine by element of floats, in radians, within 1 ULP (float32) of all that is finite."""
    return of_each("sin", name, x, functions.sin, FLOATS)


def cos(x: Tensor, *, name: str | None = None) -> Tensor:
    """The cosine by element of floats, in radians, within 1 ULP (float32) of all that is finite."""
    return of_each("cos", name, x, functions.cos, FLOATS)


def floor(x: Tensor, *, name: str | None = None) -> Tensor:
    """The largest whole number that is at most `x`, by element of floats."""
    return of_each("floor", name, x, functions.floor, FLOATS)


def ceil(x: Tensor, *, name: str | None = None) -> Tensor:
    """The smallest whole number that is at least `x`, by element of floats."""
    return of_each("ceil", name, x, functions.ceil, FLOATS)


def round(x: Tensor, *, name: str | None = None) -> Tensor:
    """The whole number nearest to `x`, the even one of two, by element of floats."""
    return of_each("round", name, x, functions.round, FLOATS)


def sign(x: Tensor, *, name: str | None = None) -> Tensor:
    """-1 below 0, 1 above, else `x` itself, by element: 0, or NaN."""
    return of_each("sign", name, x, _sign, NUMBERS)


def _sign(x: Value) -> Value:
    above = functions.where(x > 0, 1, x)
    return above if x.dtype in UNSIGNED else functions.where(x < 0, -1, above)


def erf(x: Tensor, *, name: str | None = None) -> Tensor:
    """``2/sqrt(pi) * integral of exp(-t**2) from 0 to x`` by element of floats, within 2 ULP (float32)."""
    return of_each("erf", name, x, functions.erf, FLOATS)


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
    found = number_of("clip", label, end, x.dtype, x)
    if found != found:
        raise DescribeError(
            "clip", f"cannot take {label}={end!r}", at=repr(x), because="NaN is no end"
        )
    return found


def cast(x: Tensor, dtype: str, *, name: str | None = None) -> Tensor:
    """`x` converted to `dtype` by element, of any shape.

    Floats become integers toward zero, what is too far the nearest that there is, NaN 0; integers wrap; bool is
    whether an element is not 0.
    Raises DescribeError where `dtype` is no element type.
    """
    check_tensor("cast", "x", x)
    made = check_result("cast", dtype, x.dtype)
    name, axes = named("cast", name, [x], ("", made, None)), axis_letters(len(x.shape))
    return compute(x.shape, lambda *at: converted(x[at], made), name, axes)


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
    check_tensor(op, "x", x)
    check_dtype(op, "x", x, allowed)

    def at(*axes: Value) -> Value:
        inner = wider(x.dtype) if x.dtype in FLOATS else x.dtype
        return converted(of(converted(x[axes], inner)), x.dtype)

    return compute(x.shape, at, named(op, name, [x], *options), axis_letters(len(x.shape)))
