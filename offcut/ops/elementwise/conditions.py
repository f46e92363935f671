"""Comparisons, what joins conditions, and choices by them."""

from __future__ import annotations

from collections.abc import Callable
from operator import eq, ge, gt, le, lt, ne
from typing import Any

from offcut.core.dtypes import DTYPES, NUMBERS
from offcut.describe import functions
from offcut.describe.tensor import Tensor, compute
from offcut.describe.value import Value, cast
from offcut.errors import DescribeError
from offcut.ops.checks import axis_letters, check_result, check_tensor
from offcut.ops.elementwise.broadcasting import (
    Operand,
    broadcast_shape,
    check_operands,
    element_of,
    name_of,
    number_of,
    pointwise,
)


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
