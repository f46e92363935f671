"""Convolutions of bytes that stand for numbers behind a zero point: the operands stay bytes, which integer units multiply.

Padding stands for 0, and is the zero point itself; so a window holds as many elements everywhere, and what is taken from each sum is the zero
point times the sum of a filter.
"""

from __future__ import annotations

import numpy as np

from offcut.plugins.onnx.images.windows import Windows, convolved
from offcut.plugins.onnx.making.context import Context
from offcut.plugins.onnx.making.operands import Known, Operand
from offcut.plugins.onnx.rules.byte_products import BYTES, signed_bytes, zero_point


def byte_convolution(
    g: Context,
    image: tuple[Operand, Operand | None],
    weights: tuple[Operand, Operand | None],
    bias: Operand | None,
    placed: Windows,
    groups: int,
) -> Operand | None:
    """Return the convolution of an image by weights in int32, each with its zero point; None where an operand is no bytes, the zero point of the
    image is not known, weights, which are signed here, have one that is not 0, or each channel is summed by itself: there, no unit
    multiplies bytes, and zero points that are taken away before need no padded copy.
    """
    (x, x_zero), (w, w_zero) = image, weights
    if g.dtype(x) not in BYTES or g.dtype(w) not in BYTES or not isinstance(w, Known):
        return None
    if w.array.shape[1] == 1:
        return None
    start = zero_point(g, x_zero, None)
    weight_zero = np.asarray(0 if w_zero is None else getattr(w_zero, "array", 1), np.int32)
    if g.dtype(w) == "uint8":
        w, weight_zero = signed_bytes(g, w), weight_zero - 128
    if not isinstance(start, Known) or weight_zero.any():
        return None
    first = int(start.array)
    if g.dtype(x) == "uint8" and all(size == 1 for size in placed.sizes):
        x, first = signed_bytes(g, x), first - 128
    assert isinstance(w, Known)
    if first and any(any(pair) for pair in placed.padding):
        before, after = (0, 0, *placed.before), (0, 0, *placed.after)
        x = g.op("pad", x, before, after, value=first)
        zeros = (0,) * len(placed.sizes)
        placed = Windows(placed.sizes, placed.strides, placed.dilations, zeros, zeros)
    total = convolved(g, x, w, bias, placed, groups)
    if first:
        sums = w.array.astype(np.int32).sum(axis=tuple(range(1, w.array.ndim)))
        apart = (first * sums).reshape(-1, *[1] * len(placed.sizes))
        total = g.binary("subtract", total, Known(apart.astype(np.int32), "int32"))
    return total
