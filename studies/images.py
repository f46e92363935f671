"""Layers over images in int8, for `accelerator_sizes.toml`, `order.toml` and `order_drawn.toml`."""

from typing import Any

import offcut as oc

SHIFT = 8
"""Bits by which sums are shifted."""

Described = tuple[oc.Tensor, list[oc.Tensor]]


def convolution(b: Any, h: Any, w: Any, c: int, o: int, window: int, stride: int) -> Described:
    """Return a convolution of b images of (h, w, c) to o channels, requantized; half of the window is padding."""
    x = oc.placeholder((b, h, w, c), "int8", name="X")
    weights = oc.placeholder((window, window, c, o), "int8", name="W")
    sums = oc.ops.conv2d(x, weights, stride=stride, padding=window // 2, layout="NHWC", name="S")
    return oc.ops.requantize(sums, SHIFT, name="Y"), [x, weights]


def pooling(n: Any) -> Described:
    """Return the greatest of 3×3 windows, every second one, of an image of n rows of 14 with 64 channels."""
    x = oc.placeholder((1, n, 14, 64), "int8", name="X")
    return oc.ops.max_pool2d(x, 3, 2, 1, layout="NHWC", name="Y"), [x]
