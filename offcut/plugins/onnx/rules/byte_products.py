"""Sums of products of bytes that stand for numbers behind a zero point: the operands stay bytes, which integer units multiply.

In int32, whose sums wrap around in any order::

    sum over k of (a[i, k] - s[i]) * (b[k, j] - t[j])
        = sum over k of a[i, k] * b[k, j]  -  s[i] * sum over k of b[k, j]  -  t[j] * sum over k of a[i, k]  +  K * s[i] * t[j]

A uint8 operand that should be signed is taken less 128, which is its highest bit flipped, and its zero point with it.
"""

from __future__ import annotations

import numpy as np

from offcut.plugins.onnx.making.context import Context
from offcut.plugins.onnx.making.operands import Known, Operand, known
from offcut.plugins.onnx.rules.elementwise import scalar
from offcut.plugins.onnx.rules.reductions import reduced

BYTES = ("int8", "uint8")


def byte_matmul(
    g: Context, a: Operand, a_zero: Operand | None, b: Operand, b_zero: Operand | None
) -> Operand | None:
    """Return ``(a - a_zero) @ (b - b_zero)`` in int32; None where an operand is no matrix of bytes, or a zero point is neither for all
    nor for each row of a, or each column of b.
    """
    if g.dtype(a) not in BYTES or g.dtype(b) not in BYTES or g.rank(a) < 2 or g.rank(b) < 2:
        return None
    points = [zero_point(g, a_zero, g.shape(a)[-2]), zero_point(g, b_zero, g.shape(b)[-1])]
    if None in points:
        return None
    row_zero, column_zero = (point for point in points if point is not None)
    if g.dtype(b) == "uint8":
        b, column_zero = signed_bytes(g, b), scalar(g, "subtract", column_zero, 128)
    op = "dense" if g.rank(b) == 2 and g.rank(a) > 2 else "matmul"
    total: Operand = g.op(op, a, b)
    if g.rank(row_zero):
        row_zero = g.reshape(row_zero, (*g.shape(row_zero), 1))
    if not is_zero_point(row_zero):
        sums = reduced(g, "sum", g.cast(b, "int32"), [g.rank(b) - 2], True)
        total = g.binary("subtract", total, g.binary("multiply", row_zero, sums))
    if not is_zero_point(column_zero):
        sums = reduced(g, "sum", g.cast(a, "int32"), [g.rank(a) - 1], True)
        if not is_zero_point(row_zero):
            depth = g.cast(known(g.shape(a)[-1]), "int32")
            sums = g.binary("subtract", sums, g.binary("multiply", row_zero, depth))
        total = g.binary("subtract", total, g.binary("multiply", column_zero, sums))
    return total


def zero_point(g: Context, zero: Operand | None, count: object) -> Operand | None:
    """Return a zero point in int32, for all or for each of `count`; None where it is another."""
    if zero is None:
        return Known(np.zeros((), np.int32), "int32")
    if isinstance(zero, Known):
        array = zero.array.astype(np.int32)
        if (array == array.reshape(-1)[:1]).all() and array.size:
            return Known(array.reshape(-1)[0], "int32")
    if g.rank(zero) == 0 or g.shape(zero) == (1,):
        return g.reshape(g.cast(zero, "int32"), ())
    return g.cast(zero, "int32") if g.rank(zero) == 1 and g.shape(zero)[0] == count else None


def is_zero_point(point: Operand) -> bool:
    """Return whether a zero point is known to be 0."""
    return isinstance(point, Known) and not point.array.any()


def signed_bytes(g: Context, x: Operand) -> Operand:
    """Return bytes less 128, as int8."""
    if isinstance(x, Known):
        return Known((x.array ^ np.uint8(128)).view(np.int8), "int8")
    return g.cast(scalar(g, "subtract", g.cast(x, "int32"), 128), "int8")
