"""The network in plain numpy: integers alone, one layer after the other.

Products are summed in float64, which is exact: a sum of 4,608 products of bytes is below 2**53 by far.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from examples.images.network import Block, Layer, Weights

Array = NDArray[Any]


def scores(weights: Weights, images: Array) -> Array:
    """Scores of classes, int32, of images (batch, h, w, 3) of int8."""
    x = clipped(convolved(images, weights.stem) >> weights.stem.shift, 0)
    x = pooled(x)
    for block in weights.blocks:
        x = residual(x, block)
    mean = x.astype(np.int64).sum(axis=(1, 2)) // (x.shape[1] * x.shape[2])
    head = weights.head
    found: Array = mean @ head.weights.astype(np.int64) + head.bias
    return found.astype(np.int32)


def residual(x: Array, block: Block) -> Array:
    """Two convolutions, and the shortcut added to what the second gives."""
    inner = clipped(convolved(x, block.one) >> block.one.shift, 0)
    beside = x
    if block.short is not None:
        beside = clipped(convolved(x, block.short) >> block.short.shift, -128)
    return clipped((convolved(inner, block.two) >> block.two.shift) + beside, 0)


def convolved(x: Array, layer: Layer) -> Array:
    """Sums of products over windows, with zeros around the image, and the bias; int64."""
    window, stride = layer.weights.shape[0], layer.stride
    n, h, w, c = x.shape
    edge = window // 2
    rows = (h + 2 * edge - window) // stride + 1
    columns = (w + 2 * edge - window) // stride + 1
    padded = np.zeros((n, h + 2 * edge, w + 2 * edge, c))
    padded[:, edge : edge + h, edge : edge + w] = x
    total = np.zeros((n, rows, columns, layer.weights.shape[-1]))
    for r in range(window):
        for s in range(window):
            down = slice(r, r + stride * (rows - 1) + 1, stride)
            across = slice(s, s + stride * (columns - 1) + 1, stride)
            total += padded[:, down, across] @ layer.weights[r, s].astype(np.float64)
    sums: Array = total.astype(np.int64) + layer.bias
    return sums


def pooled(x: Array) -> Array:
    """The greatest of windows of 3×3, two apart, one pixel beyond the edge."""
    n, h, w, c = x.shape
    rows, columns = (h - 1) // 2 + 1, (w - 1) // 2 + 1
    padded = np.full((n, h + 2, w + 2, c), -128, x.dtype)
    padded[:, 1 : h + 1, 1 : w + 1] = x
    found = np.full((n, rows, columns, c), -128, x.dtype)
    for r in range(3):
        for s in range(3):
            part = padded[:, r : r + 2 * rows - 1 : 2, s : s + 2 * columns - 1 : 2]
            found = np.maximum(found, part)
    return found


def clipped(x: Array, low: int) -> Array:
    """As int8."""
    return x.clip(low, 127).astype(np.int8)
