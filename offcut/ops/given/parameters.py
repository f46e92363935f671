"""Scales and zero points: numbers, or tensors that hold one or one for each channel."""

from __future__ import annotations

from typing import Any

import numpy as np

from offcut.core.integers import whole
from offcut.describe.tensor import Tensor
from offcut.describe.value import Value, cast
from offcut.errors import DescribeError
from offcut.ops.given.arguments import number
from offcut.ops.given.operands import check_dtype, check_shape, check_tensor

INT32 = np.iinfo("int32")
FLOAT32 = np.finfo("float32")


def scale_of(
    op: str, label: str, value: Any, channels: Any | None, *, positive: bool = False
) -> float | Tensor:
    """`value` as a finite float, or a tensor of float32 of shape () or (channels,).

    channels   an extent; None: shape () alone
    positive   whether a number must be above 0, also once it is rounded to float32

    Raises DescribeError for anything else.
    """
    if isinstance(value, Tensor):
        return _tensor(op, label, value, "float32", channels)
    scale_value = number(value)
    least = float(FLOAT32.smallest_subnormal) if positive else -float(FLOAT32.max)
    if scale_value is None or not least <= scale_value <= float(FLOAT32.max):
        raise DescribeError(
            op,
            f"cannot take {label}={value!r}",
            because=f"{label} is a finite {'number above 0' if positive else 'number'}"
            " or a tensor of float32",
        )
    return scale_value


def zero_of(op: str, label: str, value: Any, channels: Any | None) -> int | Tensor:
    """`value` as an int, or a tensor of int32 of shape () or (channels,).

    Raises DescribeError for anything else, and for an int that int32 does not hold.
    """
    if isinstance(value, Tensor):
        return _tensor(op, label, value, "int32", channels)
    zero_point = whole(value)
    if zero_point is None or not INT32.min <= zero_point <= INT32.max:
        raise DescribeError(
            op,
            f"cannot take {label}={value!r}",
            because=f"{label} is an int that int32 holds or a tensor of int32",
        )
    return zero_point


def parameter(value: float | Tensor, dtype: str, channel: tuple[Value, ...]) -> Value:
    """A scale or a zero point as `dtype`; `channel` is the index of those that have an axis."""
    if not isinstance(value, Tensor):
        return cast(value, dtype)
    return value[channel if value.shape else ()]


def _tensor(op: str, label: str, value: Tensor, dtype: str, channels: Any | None) -> Tensor:
    check_dtype(op, label, value, (dtype,))
    check_tensor(op, label, value, *((0,) if channels is None else (0, 1)))
    if value.shape:
        check_shape(op, label, value, (channels,))
    return value
