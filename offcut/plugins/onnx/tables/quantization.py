"""Small integers that stand for floats."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from offcut.graph import Ref
from offcut.graph.sizes.extent_values import arithmetic
from offcut.plugins.onnx.images.windows import emit_convolution, window_sizes, windows_of
from offcut.plugins.onnx.importer.context import Context
from offcut.plugins.onnx.importer.operands import (
    Call,
    KnownArray,
    Operand,
    Results,
    UnsupportedNode,
    dtype_of,
    format_values,
)
from offcut.plugins.onnx.rules.elementwise import Operator, number, scalar
from offcut.plugins.onnx.rules.products import BYTES, emit_matmul, without_zero

RANGES = {"int8": (-128, 127), "uint8": (0, 255), "int16": (-32768, 32767), "uint16": (0, 65535)}


def _along(g: Context, parameter: Operand, x: Operand, axis: int) -> Operand:
    """Return a parameter for all of `x`, or for each place of an axis, so that it is broadcast."""
    if g.rank(parameter) == 0 or g.shape(parameter) == g.shape(x):
        return parameter
    if g.rank(parameter) > 1:
        raise UnsupportedNode(
            "scales of several axes", "one for all, or one for each place of an axis"
        )
    count = g.shape(parameter)[0]
    if count == 1:
        return g.reshape(parameter, [])
    place = g.axis(x, axis)
    return g.reshape(parameter, [count if n == place else 1 for n in range(g.rank(x))])


def _scale_and_zero_point(
    g: Context, x: Operand, scale: Operand, zero: Operand | None, axis: int
) -> tuple[Any, Any, dict[str, int]] | None:
    """Return scale, zero point and options as operators of `offcut.ops` take them; None where they are for blocks or in other types."""
    parameters: list[Any] = []
    for one, dtype in (
        (scale, "float32"),
        (KnownArray(np.zeros((), np.int32), "int32") if zero is None else zero, "int32"),
    ):
        if g.rank(one) > 1 or (dtype == "float32" and g.dtype(one) != dtype):
            return None
        wide = g.cast(one, dtype)
        if (
            isinstance(wide, KnownArray)
            and wide.array.size
            and (wide.array == wide.array.flat[0]).all()
        ):
            parameters.append(wide.array.flat[0].item())
        elif g.rank(wide) == 0 or g.shape(wide) == (1,):
            parameters.append(g.ref(g.reshape(wide, ())))
        elif g.rank(x) and g.shape(wide) == (g.shape(x)[g.axis(x, axis)],):
            parameters.append(g.ref(wide))
        else:
            return None
    if isinstance(parameters[0], float) and not np.isfinite(parameters[0]):
        return None
    several = any(isinstance(one, Ref) and g.rank(one) for one in parameters)
    return parameters[0], parameters[1], {"axis": g.axis(x, axis)} if several else {}


def _parameters(g: Context, call: Call) -> tuple[Operand, Operand | None]:
    """Return the scale and the zero point."""
    zero = call.input(2)
    return _per_block(g, call, call[1]), None if zero is None else _per_block(g, call, zero)


def _per_block(g: Context, call: Call, parameter: Operand) -> Operand:
    """Return a parameter for each element: where it is one for each block of an axis, each of them that often."""
    block = call.get("block_size", 0)
    if not block:
        return parameter
    axis = g.axis(parameter, call.get("axis", 1))
    blocks, whole = g.shape(parameter), g.shape(call[0])[axis]
    if not g.same(arithmetic("*", blocks[axis], block), whole):
        raise UnsupportedNode(
            f"{format_values(whole)} elements in blocks of {block}", "whole blocks"
        )
    before, after = blocks[: axis + 1], blocks[axis + 1 :]
    apart = g.broadcast(g.reshape(parameter, (*before, 1, *after)), (*before, block, *after))
    return g.reshape(apart, g.shape(call[0]))


def emit_quantize(
    g: Context, x: Operand, scale: Operand, zero: Operand | None, dtype: str, axis: int
) -> Operand:
    """``clip(round(x / scale) + zero)``, ties to the even integer."""
    if dtype not in RANGES:
        raise UnsupportedNode(f"it gives {dtype}", ", ".join(RANGES))
    parameters = (
        _scale_and_zero_point(g, x, scale, zero, axis)
        if dtype in BYTES and g.dtype(x) == "float32"
        else None
    )
    if parameters is not None and not (isinstance(parameters[0], float) and parameters[0] <= 0):
        return g.op("quantize", x, *parameters[:2], dtype=dtype, **parameters[2])
    scale = g.cast(_along(g, scale, x, axis), g.dtype(x))
    result: Operand = g.op("round", g.binary("divide", x, scale))
    if zero is not None and not (isinstance(zero, KnownArray) and not zero.array.any()):
        result = g.binary("add", result, g.cast(_along(g, zero, x, axis), g.dtype(x)))
    low, high = RANGES[dtype]
    return g.cast(g.op("clip", result, low=float(low), high=float(high)), dtype)


def _quantize(g: Context, call: Call) -> Results:
    x, (scale, zero) = call[0], _parameters(g, call)
    call.overlook("saturate")
    code = call.get("output_dtype", 0)
    dtype = g.dtype(zero) if zero is not None else dtype_of(code) if code else "uint8"
    if not g.is_float(x):
        x = g.cast(x, "float32")
    return emit_quantize(g, x, scale, zero, dtype, call.get("axis", 1))


def emit_dequantize(
    g: Context, x: Operand, scale: Operand, zero: Operand | None, axis: int
) -> Operand:
    """``(x - zero) * scale``."""
    parameters = (
        _scale_and_zero_point(g, x, scale, zero, axis) if g.dtype(x) in (*BYTES, "int32") else None
    )
    if parameters is not None:
        return g.op("dequantize", x, *parameters[:2], **parameters[2])
    apart = without_zero(g, x, zero, axis)
    return g.binary("multiply", g.cast(apart, g.dtype(scale)), _along(g, scale, x, axis))


def _dequantize(g: Context, call: Call) -> Results:
    scale, zero = _parameters(g, call)
    result = emit_dequantize(g, call[0], scale, zero, call.get("axis", 1))
    code = call.get("output_dtype", 0)
    return g.cast(result, dtype_of(code)) if code else result


def quantize_dynamically(g: Context, x: Operand) -> tuple[Operand, Operand, Operand]:
    """Return floats as uint8 by their least and their greatest element, the scale and the zero point."""
    low = g.binary("minimum", g.op("min", x), number(g, x, 0.0))
    high = g.binary("maximum", g.op("max", x), number(g, x, 0.0))
    spread = g.binary("subtract", high, low)
    some = scalar(g, "greater", spread, 0.0)
    scale = g.op("where", some, scalar(g, "divide", spread, 255.0), 1.0)
    start = g.binary("divide", g.op("negative", low), scale)
    zero = g.cast(g.op("round", g.op("clip", start, low=0.0, high=255.0)), "uint8")
    return emit_quantize(g, x, scale, zero, "uint8", 0), scale, zero


def _matmul(g: Context, call: Call) -> Results:
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = (call[n] for n in range(8))
    real = emit_matmul(
        g, emit_dequantize(g, a, a_scale, a_zero, -2), emit_dequantize(g, b, b_scale, b_zero, -1)
    )
    return emit_quantize(g, real, y_scale, y_zero, g.dtype(y_zero), g.rank(real) - 1)


def _conv_integer(g: Context, call: Call) -> Results:
    x, w = without_zero(g, call[0], call.input(2)), without_zero(g, call[1], call.input(3), 0)
    windows = windows_of(g, call, x, window_sizes(g, w))
    return emit_convolution(g, x, w, None, windows, call.get("group", 1))


def _conv(g: Context, call: Call) -> Results:
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero = (call[n] for n in range(8))
    bias = call.input(8)
    if bias is not None:
        bias = emit_dequantize(g, bias, scale_of_sums(g, x_scale, w_scale), None, 0)
    x, w = emit_dequantize(g, x, x_scale, x_zero, 1), emit_dequantize(g, w, w_scale, w_zero, 0)
    windows = windows_of(g, call, x, window_sizes(g, w))
    real = emit_convolution(g, x, w, bias, windows, call.get("group", 1))
    return emit_quantize(g, real, y_scale, y_zero, g.dtype(y_zero), 1)


def scale_of_sums(g: Context, one: Operand, other: Operand) -> Operand:
    """Return what sums of products are in units of, the product of two scales."""
    if g.rank(one) and g.shape(one) != (1,):
        raise UnsupportedNode(
            "a scale for each row", "one for all, or one for each column or channel"
        )
    one = g.reshape(one, ())
    if isinstance(one, KnownArray) and isinstance(other, KnownArray):
        return KnownArray(one.array * other.array, "float32")
    return g.binary("multiply", other, one)


QUANTIZATION: Mapping[str, Operator] = {
    "ConvInteger": _conv_integer,
    "DequantizeLinear": _dequantize,
    "DynamicQuantizeLinear": lambda g, call: quantize_dynamically(g, call[0]),
    "QLinearConv": _conv,
    "QLinearMatMul": _matmul,
    "QuantizeLinear": _quantize,
}
