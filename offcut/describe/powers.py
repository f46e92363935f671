"""Powers of elements: by products where the exponent is a small whole number, else by the function."""

from __future__ import annotations

from typing import Any

from offcut.core.dtypes import FLOATS
from offcut.core.expr import Binary
from offcut.describe.functions import sqrt
from offcut.describe.value import Value, cast, check_no_tensor, combine, pair
from offcut.errors import DescribeError

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
        return sqrt(value)
    if exponent < 0:
        return _product(1.0 / value, -exponent)
    if exponent == 0:
        return cast(1, value.dtype)
    if exponent == 1:
        return value
    half = _product(value, exponent // 2)
    square = half * half
    return square * value if exponent % 2 else square
