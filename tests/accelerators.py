"""Programs for machines of queues, with their results in numpy: integers of any size, then cut to int8."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

import offcut as oc
from offcut import Tensor

Array = npt.NDArray[Any]


def bytes_of(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """All values of int8, the least among them."""
    return rng.integers(-128, 128, shape).astype(np.int8)


def dense(depth: int, columns: int, shift: int = 6, most: int = 64) -> tuple[list[Tensor], Tensor]:
    """``clip((A @ W) >> shift)``."""
    n = oc.dim("n", min=0, max=most)
    a = oc.placeholder((n, depth), "int8", name="A")
    w = oc.placeholder((depth, columns), "int8", name="W")
    k = oc.reduce_axis(depth, name="k")
    total = oc.compute(
        (n, columns),
        lambda i, j: oc.sum(a[i, k].astype("int32") * w[k, j].astype("int32"), axis=k),
        name="S",
    )
    return [a, w], requantised(total, shift)


def convolution(most: int = 8) -> tuple[list[Tensor], Tensor]:
    """A layer of images of 6×6, whose channels fill no word."""
    n = oc.dim("n", min=0, max=most)
    x = oc.placeholder((n, 20, 6, 6), "int8", name="X")
    k = oc.placeholder((24, 20, 3, 3), "int8", name="K")
    return [x, k], requantised(oc.ops.conv2d(x, k, padding=1), 9)


def pooling(most: int = 8) -> tuple[list[Tensor], Tensor]:
    """The greatest of windows of 3×3, every second, of images of 7×7."""
    n = oc.dim("n", min=0, max=most)
    x = oc.placeholder((n, 7, 7, 24), "int8", name="X")
    return [x], oc.ops.max_pool2d(x, 3, 2, 1, layout="NHWC", name="Y")


def residual(depth: int, columns: int, most: int = 64) -> tuple[list[Tensor], Tensor]:
    """``clip(((A @ W) >> 6) + R)``."""
    (a, w), _ = dense(depth, columns, most=most)
    r = oc.placeholder((a.shape[0], columns), "int8", name="R")
    sums = oc.ops.dense(a, w, name="S")
    total = oc.compute(
        sums.shape, lambda i, j: sums[i, j] // 64 + r[i, j].astype("int32"), name="T"
    )
    return [a, w, r], requantised(total, 0)


def requantised(total: Tensor, shift: int) -> Tensor:
    """``clip(total >> shift)`` as int8."""

    def shifted(*ix: Any) -> Any:
        return total[ix] // 2**shift if shift else total[ix]

    return oc.compute(
        total.shape,
        lambda *ix: oc.maximum(oc.minimum(shifted(*ix), 127), -128).astype("int8"),
        axes=[axis.name for axis in total.definition.axes] if total.definition else None,
        name="Y",
    )


def clipped(wide: Array, shift: int) -> Array:
    """The same of an array."""
    return np.clip(wide >> shift, -128, 127).astype(np.int8)


def convolved(x: Array, k: Array, stride: int, padding: int) -> Array:
    """A convolution of NCHW by windows, in int64."""
    n, _, h, w = x.shape
    o, _, rows, columns = k.shape
    wide = np.zeros((*x.shape[:2], h + 2 * padding, w + 2 * padding), np.int64)
    wide[:, :, padding : padding + h, padding : padding + w] = x
    high = max((h + 2 * padding - rows) // stride + 1, 0)
    across = max((w + 2 * padding - columns) // stride + 1, 0)
    found = np.zeros((n, o, high, across), np.int64)
    for r in range(rows):
        for s in range(columns):
            part = wide[:, :, r:, s:][:, :, ::stride, ::stride][:, :, :high, :across]
            found += np.einsum("nchw,oc->nohw", part, k[:, :, r, s].astype(np.int64))
    return found
