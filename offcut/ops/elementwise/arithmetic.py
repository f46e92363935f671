"""Arithmetic of two operands, of one shape or shapes that numpy would join."""

from __future__ import annotations

import numpy as np

from offcut.core.dtypes import FLOATS, NUMBERS, numpy_dtype
from offcut.describe import functions
from offcut.describe.tensor import Tensor
from offcut.describe.value import Value
from offcut.errors import DescribeError
from offcut.ops.elementwise.joining import Operand, pointwise


def add(x: Operand, y: Operand, *, name: str | None = None) -> Tensor:
    """``x + y`` by element.

    x, y   tensors of one element type, or one of them a number. Axes are paired from the last on;
           a missing one, or one of the literal extent 1, is repeated

    Integers wrap. Raises DescribeError where extents or element types do not fit.
    """
    return pointwise("add", name, {"x": x, "y": y}, lambda a, b: a + b, NUMBERS)


def subtract(x: Operand, y: Operand, *, name: str | None = None) -> Tensor:
    """``x - y`` by element; operands as in `add`. Integers wrap."""
    return pointwise("subtract", name, {"x": x, "y": y}, lambda a, b: a - b, NUMBERS)


def multiply(x: Operand, y: Operand, *, name: str | None = None) -> Tensor:
    """``x * y`` by element; operands as in `add`. Integers wrap."""
    return pointwise("multiply", name, {"x": x, "y": y}, lambda a, b: a * b, NUMBERS)


def divide(x: Operand, y: Operand, *, name: str | None = None) -> Tensor:
    """``x / y`` by element of floats; operands as in `add`. A division by 0 gives inf or NaN.

    Raises DescribeError for integers, too.
    """
    for one in (x, y):
        if isinstance(one, Tensor) and one.dtype not in FLOATS:
            raise DescribeError(
                "divide",
                f"cannot divide {one.dtype}",
                at=repr(one),
                because="the quotient of integers is a float",
                help=(f'cast({one.name}, "float32")',),
            )
    return pointwise("divide", name, {"x": x, "y": y}, lambda a, b: a / b, FLOATS)


def maximum(x: Operand, y: Operand, *, name: str | None = None) -> Tensor:
    """The larger of two, by element; NaN where either is NaN. Operands as in `add`."""
    return pointwise("maximum", name, {"x": x, "y": y}, functions.maximum, NUMBERS)


def minimum(x: Operand, y: Operand, *, name: str | None = None) -> Tensor:
    """The smaller of two, by element; NaN where either is NaN. Operands as in `add`."""
    return pointwise("minimum", name, {"x": x, "y": y}, functions.minimum, NUMBERS)


def remainder(x: Operand, y: Operand, *, name: str | None = None) -> Tensor:
    """``x - y * floor(x / y)`` by element, exactly: 0, or of the sign of `y`, as Python's ``%``.

    x, y   as in `add`; the remainder by 0 is NaN of floats and 0 of integers

    Raises DescribeError where extents or element types do not fit, or `y` is the integer 0.
    """
    if isinstance(x, Tensor) and x.dtype not in FLOATS and not isinstance(y, Tensor) and y == 0:
        raise DescribeError(
            "remainder", "cannot take y=0", at=repr(x), because="there is no remainder by 0"
        )
    return pointwise("remainder", name, {"x": x, "y": y}, _remainder, NUMBERS)


def _remainder(x: Value, y: Value) -> Value:
    if x.dtype in FLOATS:
        return x % y
    divisor = y if x.dtype == "uint8" else functions.absolute(y)
    rest = x % functions.maximum(divisor, 1)
    if x.dtype == "uint8":
        return rest
    least = int(np.iinfo(numpy_dtype(x.dtype)).min)  # the one whose negative the type does not hold
    beyond = functions.where(x > 0, x + y, functions.where(x == least, 0, x))
    signed = functions.where((y < 0) & (rest != 0), rest + y, rest)
    return functions.where(y == least, beyond, signed)
