"""Operands of one result: tensors whose shapes are joined as numpy does, and numbers that take their element type."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any, TypeAlias

import numpy as np

from offcut.core.dtypes import FLOATS, in_range
from offcut.core.integers import whole
from offcut.describe.tensor import Tensor, compute
from offcut.describe.value import Value
from offcut.describe.value import cast as converted
from offcut.errors import DescribeError
from offcut.ops.checks import (
    Option,
    axis_letters,
    check_dtype,
    is_one,
    of_operands,
    result_name,
    same_extent,
    unequal_error,
)

Operand: TypeAlias = Tensor | float
"""A tensor, or a number of Python's or numpy's."""


def pointwise(
    op: str,
    name: str | None,
    operands: Mapping[str, Any],
    of: Callable[..., Value],
    allowed: Sequence[str],
) -> Tensor:
    """``result[…] = of(one element of each operand)``, the operands on one shape and of one type.

    Raises DescribeError where they are not.
    """
    dtype, alike = check_operands(op, operands, allowed)
    shape = broadcast_shape(op, [one for one in alike.values() if isinstance(one, Tensor)])

    def at(*axes: Value) -> Value:
        return of(*(element_of(one, shape, axes, dtype) for one in alike.values()))

    result = compute(shape, at, name_of(op, name, alike), axis_letters(len(shape)))
    return of_operands(result, *alike.values())


def name_of(op: str, name: str | None, operands: Mapping[str, Operand], *options: Option) -> str:
    """`name`, else one made of the operator, its tensors, its numbers by their labels, and other options."""
    tensors = [one for one in operands.values() if isinstance(one, Tensor)]
    numbers = [(label, one, None) for label, one in operands.items() if not isinstance(one, Tensor)]
    return result_name(op, name, tensors, *numbers, *options)


def check_operands(
    op: str, operands: Mapping[str, Any], allowed: Sequence[str]
) -> tuple[str, dict[str, Operand]]:
    """The element type of the tensors among `operands`, one of `allowed`, and all with numbers as Python's.

    Raises DescribeError where none is a tensor, their types differ, or a number is none of that type.
    """
    tensors = {label: one for label, one in operands.items() if isinstance(one, Tensor)}
    if not tensors:
        text = " and ".join(f"{label} = {one!r}" for label, one in operands.items())
        raise DescribeError(
            op,
            f"cannot take {text}",
            because="none is a tensor",
            help=('placeholder((n, 768), "float32", name="A")', "compute(…)"),
        )
    (label, first), *rest = tensors.items()
    check_dtype(op, label, first, allowed)
    for _, other in rest:
        if other.dtype != first.dtype:
            raise DescribeError(
                op,
                f"cannot pair {first.dtype} with {other.dtype}",
                at=f"{first!r} and {other!r}",
                because="operands are of one element type",
                help=(f'cast({other.name}, "{first.dtype}")',),
            )
    return first.dtype, {
        label: one if isinstance(one, Tensor) else number_of(op, label, one, first.dtype, first)
        for label, one in operands.items()
    }


def number_of(op: str, label: str, value: Any, dtype: str, beside: Tensor | None = None) -> float:
    """`value` as a Python number of an element type, which is that of the tensor `beside`; a float rounds.

    Raises DescribeError where it is none, or the type does not hold it.
    """
    number: int | float | None = whole(value)
    if dtype == "bool":
        number = bool(value) if isinstance(value, bool | np.bool_) else None
    if dtype in FLOATS and isinstance(value, Real) and not isinstance(value, bool):
        number = _float(value)
    if number is None or not in_range(number, dtype):
        is_float_beside_integers = (
            isinstance(value, float) and beside is not None and dtype not in FLOATS
        )
        raise DescribeError(
            op,
            f"cannot take {label}={value!r}",
            at="" if beside is None else repr(beside),
            because=f"it is not a value of {dtype}"
            + ("" if beside is None else ", and a number takes the element type of the tensor"),
            help=(f'cast({beside.name}, "float32")',)
            if is_float_beside_integers and beside is not None
            else (),
        )
    return number


def _float(value: Real) -> float | None:
    try:
        return float(value)
    except OverflowError:
        return None


def broadcast_shape(op: str, tensors: Sequence[Tensor]) -> tuple[Any, ...]:
    """The shape of the results: axes are paired from the last on; a missing one or the literal 1 is repeated.

    Raises DescribeError where two extents differ otherwise.
    """
    rank = max(len(tensor.shape) for tensor in tensors)
    shape: list[Any] = []
    for back in range(rank, 0, -1):
        owners = [(one, len(one.shape) - back) for one in tensors if len(one.shape) >= back]
        long = [(one, axis) for one, axis in owners if not is_one(one.shape[axis])]
        tensor, axis = (long or owners)[0]
        for other, position in long[1:]:
            if not same_extent(tensor.shape[axis], other.shape[position]):
                raise unequal_error(
                    op,
                    f"cannot join the shapes of {tensor.name} and {other.name}",
                    (tensor.shape[axis], other.shape[position]),
                    at=f"{tensor!r} and {other!r}",
                    because=f"axis {axis} of {tensor.name} is {tensor.shape[axis]},"
                    f" axis {position} of {other.name} is {other.shape[position]}",
                    help=("extents that are equal, or the literal 1",),
                )
        shape.append(tensor.shape[axis])
    return tuple(shape)


def element_of(operand: Operand, shape: Sequence[Any], at: Sequence[Value], dtype: str) -> Value:
    """The element of an operand for the one at `at` of a result of `shape`."""
    if not isinstance(operand, Tensor):
        return converted(operand, dtype)
    missing = len(shape) - len(operand.shape)
    index = [
        0 if is_one(extent) and not is_one(whole_extent) else axis
        for extent, whole_extent, axis in zip(
            operand.shape, shape[missing:], at[missing:], strict=True
        )
    ]
    return operand[tuple(index)]
