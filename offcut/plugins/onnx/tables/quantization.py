"""Small integers that stand for floats."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from offcut.graph.sizes.numbers import arithmetic
from offcut.plugins.onnx.images.byte_windows import byte_convolution
from offcut.plugins.onnx.images.windows import convolved, window_sizes, windows_of
from offcut.plugins.onnx.making.context import Context
from offcut.plugins.onnx.making.dtypes import dtype_of
from offcut.plugins.onnx.making.operands import Call, Known, Operand, Refused, Results, said
from offcut.plugins.onnx.rules.elementwise import Operator, number, scalar
from offcut.plugins.onnx.rules.products import integer_matmul, without_zero

RANGES = {"int8": (-128, 127), "uint8": (0, 255), "int16": (-32768, 32767), "uint16": (0, 65535)}


def _along(g: Context, parameter: Operand, x: Operand, axis: int) -> Operand:
    """Return a parameter for all of `x`, or for each place of an axis, so that it is broadcast."""
    if g.rank(parameter) == 0 or g.shape(parameter) == g.shape(x):
        return parameter
    if g.rank(parameter) > 1:
        raise Refused("scales of several axes", "one for all, or one for each place of an axis")
    count = g.shape(parameter)[0]
    if count == 1:
        return g.reshape(parameter, [])
    place = g.axis(x, axis)
    return g.reshape(parameter, [count if n == place else 1 for n in range(g.rank(x))])


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
        raise Refused(f"{said(whole)} elements in blocks of {block}", "whole blocks")
    before, after = blocks[: axis + 1], blocks[axis + 1 :]
    apart = g.broadcast(g.reshape(parameter, (*before, 1, *after)), (*before, block, *after))
    return g.reshape(apart, g.shape(call[0]))


def quantized(
    g: Context, x: Operand, scale: Operand, zero: Operand | None, dtype: str, axis: int
) -> Operand:
    """``clip(round(x / scale) + zero)``, ties to the even integer."""
    if dtype not in RANGES:
        raise Refused(f"it gives {dtype}", ", ".join(RANGES))
    scale = g.cast(_along(g, scale, x, axis), g.dtype(x))
    made: Operand = g.op("round", g.binary("divide", x, scale))
    if zero is not None and not (isinstance(zero, Known) and not zero.array.any()):
        made = g.binary("add", made, g.cast(_along(g, zero, x, axis), g.dtype(x)))
    low, high = RANGES[dtype]
    return g.cast(g.op("clip", made, low=float(low), high=float(high)), dtype)


def _quantize(g: Context, call: Call) -> Results:
    x, (scale, zero) = call[0], _parameters(g, call)
    call.overlook("saturate")
    code = call.get("output_dtype", 0)
    dtype = g.dtype(zero) if zero is not None else dtype_of(code) if code else "uint8"
    if not g.is_float(x):
        x = g.cast(x, "float32")
    return quantized(g, x, scale, zero, dtype, call.get("axis", 1))


def dequantized(g: Context, x: Operand, scale: Operand, zero: Operand | None, axis: int) -> Operand:
    """``(x - zero) * scale``."""
    apart = without_zero(g, x, zero, axis)
    return g.binary("multiply", g.cast(apart, g.dtype(scale)), _along(g, scale, x, axis))


def _dequantize(g: Context, call: Call) -> Results:
    scale, zero = _parameters(g, call)
    made = dequantized(g, call[0], scale, zero, call.get("axis", 1))
    code = call.get("output_dtype", 0)
    return g.cast(made, dtype_of(code)) if code else made


def dynamically(g: Context, call: Call) -> Results:
    """To uint8 by the least and the greatest element, and what they were."""
    x = call[0]
    low = g.binary("minimum", g.op("min", x), number(g, x, 0.0))
    high = g.binary("maximum", g.op("max", x), number(g, x, 0.0))
    spread = g.binary("subtract", high, low)
    some = scalar(g, "greater", spread, 0.0)
    scale = g.op("where", some, scalar(g, "divide", spread, 255.0), 1.0)
    start = g.binary("divide", g.op("negative", low), scale)
    zero = g.cast(g.op("round", g.op("clip", start, low=0.0, high=255.0)), "uint8")
    return quantized(g, x, scale, zero, "uint8", 0), scale, zero


def _matmul(g: Context, call: Call) -> Results:
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = (call[n] for n in range(8))
    total = g.cast(integer_matmul(g, a, a_zero, b, b_zero), "float32")
    ratio = ratio_of(g, a_scale, b_scale, y_scale)
    return quantized(g, total, ratio, y_zero, g.dtype(y_zero), g.rank(total) - 1)


def _integer_convolution(
    g: Context,
    call: Call,
    image: tuple[Operand, Operand | None],
    weights: tuple[Operand, Operand | None],
    bias: Operand | None,
) -> Operand:
    """Return the convolution of a node in int32, zero points taken away.

    image, weights  each with its zero point
    """
    placed, groups = (
        windows_of(g, call, image[0], window_sizes(g, weights[0])),
        call.get("group", 1),
    )
    total = byte_convolution(g, image, weights, bias, placed, groups)
    if total is not None:
        return total
    x, w = without_zero(g, *image), without_zero(g, *weights, 0)
    return convolved(g, x, w, bias, placed, groups)


def _conv_integer(g: Context, call: Call) -> Results:
    image, weights = (call[0], call.input(2)), (call[1], call.input(3))
    return _integer_convolution(g, call, image, weights, None)


def _conv(g: Context, call: Call) -> Results:
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero = (call[n] for n in range(8))
    total = _integer_convolution(g, call, (x, x_zero), (w, w_zero), call.input(8))
    ratio = ratio_of(g, x_scale, w_scale, y_scale)
    return quantized(g, g.cast(total, "float32"), ratio, y_zero, g.dtype(y_zero), 1)


def ratio_of(g: Context, one: Operand, other: Operand, result: Operand) -> Operand:
    """What a sum of products is divided by, in units of the result."""
    if any(g.rank(each) and g.shape(each) != (1,) for each in (one, result)):
        raise Refused("a scale for each row", "one for all, or one for each column or channel")
    parts: list[Any] = [g.cast(each, "float32") for each in (one, other, result)]
    if all(isinstance(each, Known) for each in parts):
        first, second, last = (each.array.astype(np.float64) for each in parts)
        found = np.asarray(last.reshape(()) / (first.reshape(()) * second), np.float32)
        return Known(found, "float32")
    first, last = (g.reshape(each, []) for each in (parts[0], parts[2]))
    return g.binary("divide", last, g.binary("multiply", first, parts[1]))


QUANTIZATION: Mapping[str, Operator] = {
    "ConvInteger": _conv_integer,
    "DequantizeLinear": _dequantize,
    "DynamicQuantizeLinear": dynamically,
    "QLinearConv": _conv,
    "QLinearMatMul": _matmul,
    "QuantizeLinear": _quantize,
}
