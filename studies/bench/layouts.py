"""Convolutions with the channels last, for `conv2d.toml`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import offcut as oc

_KERNELS: dict[tuple[object, ...], tuple[Any, oc.Kernel]] = {}


def channels_last(inputs: Mapping[str, Any], sizes: Mapping[str, int]) -> Callable[[], Any]:
    """Return a call on images whose channels are last in memory; what it gives has the axes of the operator.

    inputs  ``image`` (b, c, y, x) and ``weights`` (o, c, r, s)
    sizes   the stride among them; the padding is half of a window
    """
    image, weights, stride = inputs["image"], inputs["weights"], sizes["stride"]
    channels_last_image = np.ascontiguousarray(image.transpose(0, 2, 3, 1))
    kernel = _kernel(weights, stride)
    out = np.zeros_like(kernel(channels_last_image))
    return lambda: kernel(channels_last_image, out=out).transpose(0, 3, 1, 2)


def _kernel(weights: Any, stride: int) -> oc.Kernel:
    """Return the kernel of a layer, compiled once for every batch and image."""
    key = (*weights.shape, stride)
    if key not in _KERNELS or not np.array_equal(_KERNELS[key][0], weights):
        outputs, channels, *window = weights.shape
        b, h, w = (oc.dim(letter, min=1, max=2**16) for letter in "bhw")
        image = oc.placeholder((b, h, w, channels), name="image")
        held = oc.placeholder((*window, channels, outputs), name="weights")
        result = oc.ops.conv2d(image, held, None, stride, window[0] // 2, layout="NHWC", name="Y")
        constants = {"weights": np.ascontiguousarray(weights.transpose(2, 3, 1, 0))}
        kernel = oc.compile(result, [image, held], constants=constants, threads=1, records=False)
        _KERNELS[key] = weights, kernel
    return _KERNELS[key][1]
