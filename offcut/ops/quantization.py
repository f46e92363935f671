"""From floats to small integers and back."""

from __future__ import annotations

from typing import Any

from offcut.core.dtypes import numpy_dtype
from offcut.core.tensor import Tensor, Value, cast, compute, maximum, minimum, where
from offcut.errors import DescribeError
from offcut.ops.operands import (
    axis_letters,
    axis_number,
    check_dtype,
    check_shape,
    check_tensor,
    named,
)

ROUND = 1.5 * 2.0**23
"""Added to a float32 below 2**22 and taken away again, it leaves the nearest integer, ties to even."""


def quantize(
    x: Tensor,
    scale: float | Tensor,
    zero: int | Tensor = 0,
    dtype: str = "int8",
    axis: int = -1,
    *,
    name: str | None = None,
) -> Tensor:
    """``clip(round(x / scale) + zero)``: ties go to the even integer, what is too far to the ends.

    x       floats of any shape, calculated in float32
    scale   a float above 0, or float32 of shape () or (c,)
    zero    an int, or int32 of shape () or (c,)
    dtype   int8 or uint8
    axis    of `x`, that scales and zero points of shape (c,) run along

    NaN gives `zero`.

    Raises DescribeError where ranks, extents or element types do not fit.
    """
    check_tensor("quantize", "x", x)
    check_dtype("quantize", "x", x, ("float32", "float16", "bfloat16"))
    if dtype not in ("int8", "uint8"):
        raise DescribeError("quantize", f"cannot give {dtype!r}", because="it gives int8 or uint8")
    position = _check_parameters("quantize", x, scale, zero, axis)
    given = [t for t in (scale, zero) if isinstance(t, Tensor)]
    name = named("quantize", name, [x, *given], *(() if given else (scale,)), dtype)
    letters, info = axis_letters(len(x.shape)), numpy_dtype(dtype)
    lowest, highest = _range(info)

    def scaled(*at: Value) -> Value:
        value = cast(x[at], "float32") / _parameter(scale, "float32", at, position)
        near = minimum(maximum(value, -65536.0), 65536.0)
        return where(value == value, near, 0.0)

    near = compute(x.shape, scaled, f"{name}_scaled", letters)

    def result(*at: Value) -> Value:
        whole = cast((near[at] + ROUND) - ROUND, "int32")
        moved = whole + _parameter(zero, "int32", at, position)
        return cast(minimum(maximum(moved, lowest), highest), dtype)

    return compute(x.shape, result, name, letters)


def dequantize(
    x: Tensor,
    scale: float | Tensor,
    zero: int | Tensor = 0,
    dtype: str = "float32",
    axis: int = -1,
    *,
    name: str | None = None,
) -> Tensor:
    """``(x - zero) * scale``, calculated in float32.

    x       int8, uint8 or int32 of any shape; differences fit int32
    scale   a float, or float32 of shape () or (c,)
    zero    an int, or int32 of shape () or (c,)
    dtype   of the result: floats
    axis    of `x`, that scales and zero points of shape (c,) run along

    Raises DescribeError where ranks, extents or element types do not fit.
    """
    check_tensor("dequantize", "x", x)
    check_dtype("dequantize", "x", x, ("int8", "uint8", "int32"))
    if dtype not in ("float32", "float16", "bfloat16", "float64"):
        raise DescribeError("dequantize", f"cannot give {dtype!r}", because="it gives floats")
    position = _check_parameters("dequantize", x, scale, zero, axis)
    given = [t for t in (scale, zero) if isinstance(t, Tensor)]
    name = named("dequantize", name, [x, *given], *(() if given else (scale,)))

    def result(*at: Value) -> Value:
        apart = cast(x[at], "int32") - _parameter(zero, "int32", at, position)
        return cast(cast(apart, "float32") * _parameter(scale, "float32", at, position), dtype)

    return compute(x.shape, result, name, axis_letters(len(x.shape)))


def _range(dtype: Any) -> tuple[int, int]:
    bits = 8 * int(dtype.itemsize)
    return (0, 2**bits - 1) if dtype.kind == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _parameter(value: float | Tensor, dtype: str, at: tuple[Value, ...], position: int) -> Value:
    if not isinstance(value, Tensor):
        return cast(value, dtype)
    return value[(at[position],) if value.shape else ()]


def _check_parameters(op: str, x: Tensor, scale: Any, zero: Any, axis: int) -> int:
    """The axis that parameters run along."""
    for label, value, dtype, kinds in (
        ("scale", scale, "float32", (int, float)),
        ("zero", zero, "int32", (int,)),
    ):
        if isinstance(value, kinds) and not isinstance(value, bool):
            continue
        if not isinstance(value, Tensor):
            raise DescribeError(
                op,
                f"cannot take {label}={value!r}",
                because=f"{label} is a number or a tensor of {dtype}",
            )
        check_tensor(op, label, value, 0, 1)
        check_dtype(op, label, value, (dtype,))
        if value.shape:
            check_shape(op, label, value, (x.shape[axis_number(op, x, axis)],))
    return axis_number(op, x, axis) if x.shape else 0
