"""Layers for studies of several targets: over float32, bfloat16 and int8, each for any number of rows or images."""

from functools import partial
from typing import Any

import offcut as oc

SHIFT = 8
"""Bits by which sums of int8 are shifted."""

Described = tuple[oc.Tensor, list[oc.Tensor]]


def dense_int8(n: Any, k: int, m: int) -> Described:
    """Return (n, k) by (k, m) in int8, requantized."""
    a, w = oc.placeholder((n, k), "int8", name="A"), oc.placeholder((k, m), "int8", name="W")
    return oc.ops.requantize(oc.ops.dense(a, w, name="S"), SHIFT, name="Y"), [a, w]


def dense_float(kind: str, n: Any, k: int, m: int) -> Described:
    """Return (n, k) by (k, m) of a kind of float, summed in float32."""
    a, w = oc.placeholder((n, k), kind, name="A"), oc.placeholder((k, m), kind, name="W")
    p = oc.reduce_axis(k, name="p")
    return oc.compute(
        (n, m),
        lambda i, j: oc.sum(a[i, p].astype("float32") * w[p, j].astype("float32"), axis=p),
        name="Y",
    ), [a, w]


def convolution(kind: str, n: Any) -> Described:
    """Return a convolution of 3×3 over an image of n rows of 14 with 64 channels."""
    x = oc.placeholder((1, n, 14, 64), kind, name="X")
    w = oc.placeholder((3, 3, 64, 64), kind, name="W")
    sums = oc.ops.conv2d(x, w, padding=1, layout="NHWC", name="S")
    return (oc.ops.requantize(sums, SHIFT, name="Y") if kind == "int8" else sums), [x, w]


def attention(kind: str, n: Any) -> Described:
    """Return attention of one head of 64 over n queries and keys."""
    q, k, v = (oc.placeholder((1, n, 64), kind, name=name) for name in ("Q", "K", "V"))
    return oc.ops.attention(q, k, v), [q, k, v]


def residual_layer(h: int, c: int, o: int, window: int, stride: int, b: Any) -> Described:
    """Return a convolution of ResNet-18 over b images of (h, h, c) to o channels in int8, requantized."""
    x = oc.placeholder((b, h, h, c), "int8", name="X")
    w = oc.placeholder((window, window, c, o), "int8", name="W")
    sums = oc.ops.conv2d(x, w, stride=stride, padding=window // 2, layout="NHWC", name="S")
    return oc.ops.requantize(sums, SHIFT, name="Y"), [x, w]


dense_float32, dense_bfloat16 = partial(dense_float, "float32"), partial(dense_float, "bfloat16")
convolution_float32, convolution_int8 = (partial(convolution, kind) for kind in ("float32", "int8"))
convolution_bfloat16 = partial(convolution, "bfloat16")
attention_float32, attention_bfloat16 = (
    partial(attention, kind) for kind in ("float32", "bfloat16")
)

# Source: the layers of the OSDI 2018 paper on TVM; C1, of 3 channels, stays on the CPU.
c2 = partial(residual_layer, 56, 64, 64, 3, 1)
c3 = partial(residual_layer, 56, 64, 128, 3, 2)
c4 = partial(residual_layer, 56, 64, 128, 1, 2)
c5 = partial(residual_layer, 28, 128, 128, 3, 1)
c6 = partial(residual_layer, 28, 128, 256, 3, 2)
c7 = partial(residual_layer, 28, 128, 256, 1, 2)
c8 = partial(residual_layer, 14, 256, 256, 3, 1)
c9 = partial(residual_layer, 14, 256, 512, 3, 2)
c10 = partial(residual_layer, 14, 256, 512, 1, 2)
c11 = partial(residual_layer, 7, 512, 512, 3, 1)
