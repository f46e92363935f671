"""Arithmetic, comparisons and choices of operands of one shape, or of shapes that numpy would join.

Comparisons, what joins conditions, and choices by them.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import eq, ge, gt, le, lt, ne
from typing import Any

import numpy as np

from offcut.core.dtypes import DTYPES, FLOATS, INTEGERS, NUMBERS, UNSIGNED, numpy_dtype
from offcut.core.integers import whole
from offcut.describe import functions
from offcut.describe.functions import LARGEST
from offcut.describe.tensor import Tensor, compute
from offcut.describe.value import Value, cast
from offcut.errors import DescribeError
from offcut.ops.checks import axis_letters, check_result, check_tensor, wider
from offcut.ops.elementwise.broadcasting import (
    Operand,
    broadcast_shape,
    check_operands,
    element_of,
    name_of,
    number_of,
    pointwise,
)
from offcut.ops.elementwise.functions import of_each


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
                help=("floor_divide(x, y)", f'cast({one.name}, "float32")'),
            )
    return pointwise("divide", name, {"x": x, "y": y}, lambda a, b: a / b, FLOATS)


def floor_divide(x: Operand, y: Operand, *, name: str | None = None) -> Tensor:
    """``floor(x / y)`` by element of integers, as Python's ``//``; operands as in `add`. A quotient by 0 is 0.

    Raises DescribeError for floats, too.
    """
    known = whole(y)
    of = _quotient if known is None or known < 1 else (lambda a, _: a // known)
    return pointwise("floor_divide", name, {"x": x, "y": y}, of, INTEGERS)


def _quotient(x: Value, y: Value) -> Value:
    divisor, rest = _divisor_and_remainder(x, y)
    down = x // divisor
    if x.dtype not in UNSIGNED:
        least = _least(x)
        beyond = functions.where(x > 0, -1, functions.where(x == least, cast(1, x.dtype), 0))
        up = -functions.where(rest != 0, down + 1, down)
        down = functions.where(y == least, beyond, functions.where(y < 0, up, down))
    return functions.where(y == 0, 0, down)


def _divisor_and_remainder(x: Value, y: Value) -> tuple[Value, Value]:
    """The size of `y`, at least 1, and what is left of `x`, at least 0, where it is taken away."""
    divisor = functions.maximum(y if x.dtype in UNSIGNED else functions.absolute(y), 1)
    return divisor, x % divisor


def _least(x: Value) -> int:
    """The integer whose negative the type of `x` does not hold."""
    return int(np.iinfo(numpy_dtype(x.dtype)).min)


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
    _, rest = _divisor_and_remainder(x, y)
    if x.dtype in UNSIGNED:
        return rest
    least = _least(x)
    beyond = functions.where(x > 0, x + y, functions.where(x == least, 0, x))
    signed = functions.where((y < 0) & (rest != 0), rest + y, rest)
    return functions.where(y == least, beyond, signed)


def bitwise_and(x: Operand, y: Operand, *, name: str | None = None) -> Tensor:
    """The bits that are set in both, by element of integers; operands as in `add`."""
    return pointwise("bitwise_and", name, {"x": x, "y": y}, lambda a, b: a & b, INTEGERS)


def bitwise_or(x: Operand, y: Operand, *, name: str | None = None) -> Tensor:
    """The bits that are set in one, by element of integers; operands as in `add`."""
    return pointwise("bitwise_or", name, {"x": x, "y": y}, lambda a, b: a | b, INTEGERS)


def bitwise_xor(x: Operand, y: Operand, *, name: str | None = None) -> Tensor:
    """The bits that are set in just one, by element of integers; operands as in `add`."""
    return pointwise("bitwise_xor", name, {"x": x, "y": y}, lambda a, b: a ^ b, INTEGERS)


def bitwise_not(x: Tensor, *, name: str | None = None) -> Tensor:
    """The bits that are not set, by element of integers, of any shape."""
    return of_each("bitwise_not", name, x, lambda a: ~a, INTEGERS)


def shift_left(x: Operand, y: Operand, *, name: str | None = None) -> Tensor:
    """``x << y`` by element of integers: the lowest `y` bits are 0, and the highest are lost.

    x, y   as in `add`. By the width or more, or by less than 0, it is 0
    """
    return pointwise("shift_left", name, {"x": x, "y": y}, lambda a, b: a << b, INTEGERS)


def shift_right(x: Operand, y: Operand, *, name: str | None = None) -> Tensor:
    """``x >> y`` by element of integers, ``floor(x / 2**y)``; bits of the sign come in from the left.

    x, y   as in `add`. By the width or more, or by less than 0, it is 0, and -1 where x is below 0
    """
    return pointwise("shift_right", name, {"x": x, "y": y}, lambda a, b: a >> b, INTEGERS)


def power(x: Operand, y: Operand, *, name: str | None = None) -> Tensor:
    """``x ** y`` by element, within 2 ULP (float32); NaN where x is below 0 and y is not whole.

    x, y   as in `add`. A number `y` that is whole, from -2 to 4, is calculated by products, and 0.5 is the square root;
           16-bit floats are calculated in float32 and rounded once. Integers wrap, and `y` is a whole number
           from 0 to 64 then

    Raises DescribeError where extents or element types do not fit.
    """
    dtype, operands = check_operands("power", {"x": x, "y": y}, NUMBERS)
    base, exponent = operands["x"], operands["y"]
    if dtype not in FLOATS and (
        isinstance(exponent, Tensor) or not isinstance(base, Tensor) or not 0 <= exponent <= LARGEST
    ):
        raise DescribeError(
            "power",
            f"cannot take y={y!r}",
            at=repr(base if isinstance(base, Tensor) else exponent),
            because=f"the exponent of integers is a whole number from 0 to {LARGEST}",
            help=('cast(x, "float32") takes any exponent',),
        )
    shape = broadcast_shape("power", [one for one in operands.values() if isinstance(one, Tensor)])
    inner = wider(dtype) if dtype in FLOATS else dtype

    def at(*axes: Value) -> Value:
        first = cast(element_of(base, shape, axes, dtype), inner)
        if not isinstance(exponent, Tensor):
            return cast(functions.power(first, exponent), dtype)
        second = cast(element_of(exponent, shape, axes, dtype), inner)
        return cast(functions.power(first, second), dtype)

    return compute(shape, at, name_of("power", name, operands), axis_letters(len(shape)))


def equal(x: Operand, y: Operand, *, name: str | None = None) -> Tensor:
    """``x == y`` by element, of bool; NaN equals nothing. Operands as in `add`, also of bool."""
    return pointwise("equal", name, {"x": x, "y": y}, eq, DTYPES)


def not_equal(x: Operand, y: Operand, *, name: str | None = None) -> Tensor:
    """``x != y`` by element, of bool; NaN differs from all. Operands as in `add`, also of bool."""
    return pointwise("not_equal", name, {"x": x, "y": y}, ne, DTYPES)


def less(x: Operand, y: Operand, *, name: str | None = None) -> Tensor:
    """``x < y`` by element, of bool; False where either is NaN. Operands as in `add`."""
    return pointwise("less", name, {"x": x, "y": y}, lt, NUMBERS)


def less_equal(x: Operand, y: Operand, *, name: str | None = None) -> Tensor:
    """``x <= y`` by element, of bool; False where either is NaN. Operands as in `add`."""
    return pointwise("less_equal", name, {"x": x, "y": y}, le, NUMBERS)


def greater(x: Operand, y: Operand, *, name: str | None = None) -> Tensor:
    """``x > y`` by element, of bool; False where either is NaN. Operands as in `add`."""
    return pointwise("greater", name, {"x": x, "y": y}, gt, NUMBERS)


def greater_equal(x: Operand, y: Operand, *, name: str | None = None) -> Tensor:
    """``x >= y`` by element, of bool; False where either is NaN. Operands as in `add`."""
    return pointwise("greater_equal", name, {"x": x, "y": y}, ge, NUMBERS)


def logical_and(x: Operand, y: Operand, *, name: str | None = None) -> Tensor:
    """Whether both hold, by element, of bool; numbers hold where they are not 0. Operands as in `add`."""
    return _logical("logical_and", name, {"x": x, "y": y}, lambda a, b: a & b)


def logical_or(x: Operand, y: Operand, *, name: str | None = None) -> Tensor:
    """Whether one holds, by element, of bool; numbers hold where they are not 0. Operands as in `add`."""
    return _logical("logical_or", name, {"x": x, "y": y}, lambda a, b: a | b)


def logical_xor(x: Operand, y: Operand, *, name: str | None = None) -> Tensor:
    """Whether just one holds, by element, of bool; numbers hold where they are not 0. Operands as in `add`."""
    return _logical("logical_xor", name, {"x": x, "y": y}, ne)


def logical_not(x: Tensor, *, name: str | None = None) -> Tensor:
    """Whether it does not hold, by element, of bool; numbers hold where they are not 0."""
    return _logical("logical_not", name, {"x": x}, lambda a: ~a)


def _logical(
    op: str, name: str | None, operands: dict[str, Any], of: Callable[..., Value]
) -> Tensor:
    def truth(*values: Value) -> Value:
        return of(*(cast(value, "bool") for value in values))

    return pointwise(op, name, operands, truth, DTYPES)


def where(
    condition: Tensor,
    x: Operand,
    y: Operand,
    dtype: str | None = None,
    *,
    name: str | None = None,
) -> Tensor:
    """`x` where the condition holds, else `y`, by element; only what is chosen is read.

    condition   of bool
    x, y        tensors of one element type, or numbers; axes of all three are joined as in `add`
    dtype       the element type where both are numbers

    Raises DescribeError where extents or element types do not fit, or nothing says the element type.
    """
    check_tensor("where", "condition", condition, dtypes=("bool",))
    options: list[tuple[str, Any, Any]] = []
    if isinstance(x, Tensor) or isinstance(y, Tensor):
        common, operands = check_operands("where", {"x": x, "y": y}, DTYPES)
        if dtype not in (None, common):
            raise DescribeError(
                "where",
                f"cannot give {dtype!r}",
                because=f"it chooses between elements of {common}",
                help=(f'cast(…, "{dtype}")',),
            )
    else:
        if dtype is None:
            raise DescribeError(
                "where",
                f"cannot tell the element type of {x!r} and {y!r}",
                because="neither is a tensor",
                help=('dtype="float32"',),
            )
        common = check_result("where", dtype, dtype)
        operands = {
            label: number_of("where", label, one, common) for label, one in (("x", x), ("y", y))
        }
        options.append(("", common, None))
    tensors = [one for one in (condition, *operands.values()) if isinstance(one, Tensor)]
    shape = broadcast_shape("where", tensors)

    def at(*axes: Value) -> Value:
        holds = element_of(condition, shape, axes, "bool")
        first, second = (element_of(one, shape, axes, common) for one in operands.values())
        return functions.where(holds, first, second)

    result_name = name_of("where", name, {"condition": condition, **operands}, *options)
    return compute(shape, at, result_name, axis_letters(len(shape)))
