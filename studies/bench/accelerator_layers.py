"""Layers of int8 for `accelerator-layers.toml`; each function takes the number of rows or images first, and gives a result and its inputs."""

from __future__ import annotations

from typing import Any

import offcut as oc
from offcut import Tensor, ops

Described = tuple[Tensor, list[Tensor]]


def _array(name: str, *shape: Any) -> Tensor:
    return oc.placeholder(shape, "int8", name=name)


def _int8(total: Tensor, shift: int) -> Tensor:
    """Return sums, shifted, as int8."""
    return ops.requantize(total, shift, name="Y")


def _with_residual(sums: Tensor, residual: Tensor) -> Tensor:
    """Return sums, shifted, bounded below and added to a residual, as int8."""
    axes = [axis.name for axis in sums.definition.axes] if sums.definition else None
    total = oc.compute(
        sums.shape,
        lambda *at: oc.maximum(sums[at] // 16, 0) + residual[at].astype("int32"),
        axes=axes,
        name="T",
    )
    return _int8(total, 2)


def dense(n: Any, depth: int, columns: int, residual: bool = False) -> Described:
    """Return n rows by a weight."""
    a, w = _array("A", n, depth), _array("W", depth, columns)
    sums = ops.dense(a, w, name="S")
    if not residual:
        return _int8(sums, 6), [a, w]
    r = _array("R", n, columns)
    return _with_residual(sums, r), [a, w, r]


def convolution(
    n: Any,
    image: int,
    channels: int,
    results: int,
    kernel: int = 3,
    stride: int = 1,
    layout: str = "NHWC",
    groups: int = 1,
    residual: bool = False,
) -> Described:
    """Return a convolution over n square images, padded by half of its window."""
    last, inner, side = layout == "NHWC", channels // groups, -(-image // stride)
    x = _array("X", *((n, image, image, channels) if last else (n, channels, image, image)))
    window = (kernel, kernel)
    k = _array("K", *((*window, inner, results) if last else (results, inner, *window)))
    how: dict[str, Any] = {"stride": stride, "padding": kernel // 2, "layout": layout}
    sums = ops.conv2d(x, k, groups=groups, name="S", **how)
    if not residual:
        return _int8(sums, 9), [x, k]
    r = _array("R", *((n, side, side, results) if last else (n, results, side, side)))
    return _with_residual(sums, r), [x, k, r]


def pooling(n: Any, image: int, channels: int, kernel: int, stride: int) -> Described:
    """Return the greatest of windows, padded where they are of three."""
    x = _array("X", n, image, image, channels)
    padding = (kernel - 1) // 2
    return ops.max_pool2d(x, kernel, stride, padding, layout="NHWC", name="Y"), [x]


def row_maximum(n: Any, columns: int, name: str = "Y") -> Described:
    """Return the greatest of each row."""
    x, k = _array("X", n, columns), oc.reduce_axis(columns, name="k")
    return oc.compute((n,), lambda i: oc.max(x[i, k], axis=k), name=name), [x]


def less_maximum(n: Any, columns: int) -> Described:
    """Return rows less the greatest of each."""
    (largest, (x,)) = row_maximum(n, columns, name="M")
    less = oc.compute(
        x.shape, lambda i, j: x[i, j].astype("int32") - largest[i].astype("int32"), name="T"
    )
    return _int8(less, 1), [x]


def mean(n: Any, columns: int) -> Described:
    """Return the mean of two arrays, element by element."""
    x, z = _array("X", n, columns), _array("Z", n, columns)
    total = oc.compute(x.shape, lambda i, j: x[i, j].astype("int32") + z[i, j].astype("int32"))
    return _int8(total, 1), [x, z]
