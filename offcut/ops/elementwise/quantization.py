"""From floats to small integers and back; from sums of products of small integers to small integers."""

from __future__ import annotations

from typing import Any

from offcut.core.dtypes import numpy_dtype
from offcut.describe.functions import maximum, minimum, where
from offcut.describe.functions import round as nearest
from offcut.describe.tensor import Tensor, compute
from offcut.describe.value import Value, cast
from offcut.errors import DescribeError
from offcut.ops.checks import (
    axis_letters,
    axis_number,
    check_float_result,
    check_tensor,
    element,
    integer,
    is_one_of,
    narrower,
    of_operands,
    parameter,
    result_name,
    scale_of,
    zero_of,
)

FAR = 65536.0
"""Further from 0 than integers of 8 bits are apart: what is beyond is an end of them."""

MOST_SHIFT = 30
"""``2**30`` is the largest power of two that is an int32."""


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
    scale   a finite float above 0, or float32 of shape () or (c,)
    zero    an int, or int32 of shape () or (c,)
    dtype   int8 or uint8
    axis    of `x`, that scales and zero points of shape (c,) run along

    NaN gives the least, as in onnxruntime.

    Raises DescribeError where ranks, extents or element types do not fit.
    """
    check_tensor("quantize", "x", x, dtypes=("float32", "float16", "bfloat16"))
    if not is_one_of(dtype, ("int8", "uint8")):
        raise DescribeError("quantize", f"cannot give {dtype!r}", because="it gives int8 or uint8")
    position, channels = _channels("quantize", x, axis)
    scale = scale_of("quantize", "scale", scale, channels, positive=True)
    zero = zero_of("quantize", "zero", zero, channels)
    options = (("", dtype, None), ("axis", position, max(len(x.shape) - 1, 0)))
    name = result_name("quantize", name, [x], ("", scale, None), ("zero", zero, 0), *options)
    letters, info = axis_letters(len(x.shape)), numpy_dtype(dtype)
    lowest, highest = _range(info)

    def scaled(*at: Value) -> Value:
        return cast(x[at], "float32") / parameter(scale, "float32", at[position : position + 1])

    ratio = compute(x.shape, scaled, f"{name}_scaled", letters)

    def result(*at: Value) -> Value:
        near = minimum(where(ratio[at] > -FAR, ratio[at], -FAR), FAR)
        shifted = cast(nearest(near), "int32") + parameter(
            zero, "int32", at[position : position + 1]
        )
        return cast(minimum(maximum(shifted, lowest), highest), dtype)

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
    scale   a finite float, or float32 of shape () or (c,)
    zero    an int, or int32 of shape () or (c,)
    dtype   of the result: floats
    axis    of `x`, that scales and zero points of shape (c,) run along

    Raises DescribeError where ranks, extents or element types do not fit.
    """
    check_tensor("dequantize", "x", x, dtypes=("int8", "uint8", "int32"))
    check_float_result("dequantize", dtype)
    position, channels = _channels("dequantize", x, axis)
    scale = scale_of("dequantize", "scale", scale, channels)
    zero = zero_of("dequantize", "zero", zero, channels)
    options = (("", dtype, "float32"), ("axis", position, max(len(x.shape) - 1, 0)))
    name = result_name("dequantize", name, [x], ("", scale, None), ("zero", zero, 0), *options)

    def result(*at: Value) -> Value:
        apart = cast(x[at], "int32") - parameter(zero, "int32", at[position : position + 1])
        return cast(
            cast(apart, "float32") * parameter(scale, "float32", at[position : position + 1]), dtype
        )

    dequantized = compute(x.shape, result, name, axis_letters(len(x.shape)))
    return of_operands(dequantized, x, scale, zero)


def requantize(
    x: Tensor,
    shift: int,
    dtype: str = "int8",
    low: int | None = None,
    residual: Tensor | None = None,
    *,
    name: str | None = None,
) -> Tensor:
    """``clip(x // 2**shift + residual)``: sums of products as small integers again, without a float.

    x         int32 of any shape; ``2**(shift - 1)`` in the bias of its sums rounds to the nearest
    shift     0 … 30; the quotient is floored, as a shift to the right is
    dtype     int8 or uint8
    low       of the results; None: the least value of `dtype`; 0: the activation relu
    residual  int8, uint8 or int32, of the shape of `x`

    Raises DescribeError where an argument is none of these.
    """
    op = "requantize"
    check_tensor(op, "x", x, dtypes=("int32",))
    if not is_one_of(dtype, ("int8", "uint8")):
        raise DescribeError(op, f"cannot give {dtype!r}", because="it gives int8 or uint8")
    lowest, highest = _range(numpy_dtype(dtype))
    bits = integer(op, "shift", shift, 0, MOST_SHIFT)
    least = lowest if low is None else integer(op, "low", low, lowest, highest)
    if residual is not None:
        check_tensor(op, "residual", residual, shape=x.shape, dtypes=narrower("int32"))
    options = (("", bits, None), ("", dtype, "int8"), ("low", least, lowest))
    name = result_name(op, name, [x], *options, ("", residual, None))

    def result(*at: Value) -> Value:
        total = x[at] // 2**bits if bits else x[at]
        if residual is not None:
            total = total + element(residual, at, "int32")
        return cast(minimum(maximum(total, least), highest), dtype)

    return compute(x.shape, result, name, axis_letters(len(x.shape)))


def _range(dtype: Any) -> tuple[int, int]:
    bits = 8 * int(dtype.itemsize)
    return (0, 2**bits - 1) if dtype.kind == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _channels(op: str, x: Tensor, axis: Any) -> tuple[int, Any | None]:
    """The axis that parameters run along, and its extent; None where `x` has no axis."""
    if not x.shape:
        return 0, None
    position = axis_number(op, x, axis)
    return position, x.shape[position]
