"""Powers: by products where the exponent is a small whole number."""

from __future__ import annotations

from typing import Any

from offcut.core.dtypes import FLOATS, NUMBERS
from offcut.describe.functions import sqrt
from offcut.describe.tensor import Tensor, compute
from offcut.describe.value import Value, cast
from offcut.errors import DescribeError
from offcut.ops.elementwise.joining import checked, name_of
from offcut.ops.operands import axis_letters, wider

PRODUCTS = 4
"""The largest exponent of floats that is calculated by products: by these few they are as exact as the function."""
LARGEST = 64
"""The largest exponent of integers."""


def power(x: Tensor, y: float, *, name: str | None = None) -> Tensor:
    """``x ** y`` by element.

    x   of any shape; 16-bit floats are calculated in float32 and rounded once, integers wrap
    y   of floats, a whole number from -4 to 4 or 0.5, which is the square root; of integers, a whole number
        from 0 to 64

    Raises DescribeError for any other exponent.
    """
    dtype, operands = checked("power", {"x": x, "y": y}, NUMBERS)
    exponent: Any = operands["y"]
    floats = dtype in FLOATS
    by_products = isinstance(exponent, int | float) and (
        exponent in (0.5, *range(-PRODUCTS, PRODUCTS + 1)) if floats else 0 <= exponent <= LARGEST
    )
    if not by_products or not isinstance(x, Tensor):
        raise DescribeError(
            "power",
            f"cannot take y={y!r}",
            at=repr(x),
            because=f"y is a whole number from {-PRODUCTS} to {PRODUCTS}, or 0.5"
            if floats
            else f"the exponent of integers is a whole number from 0 to {LARGEST}",
        )

    def at(*axes: Value) -> Value:
        value = cast(x[axes], wider(dtype) if floats else dtype)
        return cast(_power(value, exponent), dtype)

    name = name_of("power", name, operands)
    return compute(x.shape, at, name, axis_letters(len(x.shape)))


def _power(value: Value, exponent: float) -> Value:
    if exponent == 0.5:
        return sqrt(value)
    if exponent < 0:
        return _power(1.0 / value, -exponent)
    if exponent == 0:
        return cast(1, value.dtype)
    half = _power(value, exponent // 2) if exponent >= 2 else None
    if half is None:
        return value
    square = half * half
    return square * value if exponent % 2 else square
