"""Convolutions, pooling, and images in other sizes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import torch

from offcut.core import index as ix
from offcut.core.dtypes import numpy_dtype
from offcut.core.integers import MOST_PARTS
from offcut.graph import Ref
from offcut.graph.sizes.extent_values import plain, product
from offcut.plugins.operators.windows import Windows, crop_windows, pool, transposed_convolution
from offcut.plugins.torch.rule_table import Unsupported, register_rule
from offcut.plugins.torch.translation import Translation

_FORWARD = {1: "conv1d", 2: "conv2d", 3: "conv3d"}


@register_rule("convolution", "_convolution")
def convolution(
    t: Translation,
    x: Ref,
    w: Ref,
    bias: Ref | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: Any,
    *_: Any,
) -> Any:
    if not isinstance(groups, int):
        raise Unsupported("how many groups it has is a size")
    axes = t.rank(w) - 2
    if t.rank(x) != axes + 2:
        batch = t.reshape(x, (1, *t.shape(x)))
        ends = (stride, padding, dilation, transposed, output_padding, groups)
        return without_batch(t, convolution(t, batch, w, bias, *ends))
    if transposed:  # torch refuses images that nothing is left of
        _left_over(t, x, w, stride, padding, dilation, output_padding)
    each: dict[str, Any] = {
        "stride": spread(stride, axes),
        "padding": padding if isinstance(padding, str) else spread(padding, axes),
        "dilation": spread(dilation, axes),
    }
    if not transposed:
        if not isinstance(padding, str):  # torch refuses images that a window does not fit
            _fitting(t, x, w, each)
        return t.node(_FORWARD[axes], x, w, bias=bias, groups=groups, **each)
    each["output_padding"] = spread(output_padding, axes)
    return transposed_convolution(t, x, w, bias=bias, groups=groups, **each)


def _fitting(t: Translation, x: Ref, w: Ref, each: Mapping[str, Any]) -> None:
    """Take it that images are as large as the window, padding counted."""
    for n, (whole, taps) in enumerate(zip(t.shape(x)[2:], t.shape(w)[2:], strict=True)):
        window = ix.literal_value(taps)
        if window is not None:
            t.require_at_least(
                whole, (window - 1) * each["dilation"][n] + 1 - 2 * each["padding"][n]
            )


def _left_over(t: Translation, x: Ref, w: Ref, *each: Any) -> None:
    """Take it that a transposed convolution gives one element at least along each axis.

    each  stride, padding, dilation and output padding
    """
    by_axis = zip(*(spread(one, t.rank(w) - 2) for one in each), strict=True)
    for whole, taps, one in zip(t.shape(x)[2:], t.shape(w)[2:], by_axis, strict=True):
        window, (stride, padding, dilation, more) = ix.literal_value(taps), one
        if window is not None and all(isinstance(number, int) for number in one):
            t.require_at_least(whole, 1 - ((window - 1) * dilation + more - 2 * padding) // stride)


def without_batch(t: Translation, x: Ref) -> Ref:
    """The one result of a batch of one."""
    return t.reshape(x, t.shape(x)[1:])


@register_rule("max_pool2d", op="max_pool2d", axes=2)
@register_rule("max_pool2d_with_indices", op="max_pool2d_with_places", axes=2)
@register_rule("max_pool3d", op="max_pool2d", axes=3)
def max_pool(
    t: Translation,
    x: Ref,
    window: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil: bool = False,
    *,
    op: str,
    axes: int,
) -> Any:
    results = _pool(t, op, x, axes, (window, stride, padding, dilation), ceil)
    return results if len(results) > 1 else results[0]


@register_rule("max_pool3d_with_indices")
def max_pool_of_volumes(t: Translation, *arguments: Any) -> Any:
    return max_pool(t, *arguments, op="max_pool2d", axes=3), None


@register_rule("avg_pool2d", axes=2)
@register_rule("avg_pool3d", axes=3)
def average_pool(
    t: Translation,
    x: Ref,
    window: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil: bool = False,
    count_include_pad: bool = True,
    divisor: int | None = None,
    *,
    axes: int,
) -> Any:
    if divisor is not None and ceil:
        raise Unsupported("it has a divisor, and rounds the number of its windows up")
    if divisor is not None:  # of all elements of a window, those of the padding are 0
        mean = average_pool(t, x, window, stride, padding, axes=axes)
        return t.node("multiply", mean, math.prod(spread(window, axes)) / divisor)
    if ceil and any(spread(padding, axes)) and count_include_pad:
        raise Unsupported("windows beyond the padding count less")
    inside = count_include_pad and not ceil
    windows = window, stride, padding, 1
    (result,) = _pool(t, "avg_pool2d", x, axes, windows, ceil, count_include_pad=inside)
    return result


def _pool(
    t: Translation,
    op: str,
    x: Ref,
    axes: int,
    windows_by_axis: tuple[Any, Any, Any, Any],
    ceil: bool,
    **options: Any,
) -> tuple[Ref, ...]:
    """The results of an operator on windows; where their number is rounded up, one more is padded for, and left out where torch has none.

    A window that would begin behind the image is none; where a stride and the padding are more than a window such ones occur at some
    sizes, and what ``torch.export`` says of extents is of its example's alone: these stay with torch.

    axes             spatial ones
    windows_by_axis  extents of the window, strides, padding and dilations, as torch gives them
    options          further ones of the operator
    """
    sizes, stride, pads, holes = (spread(one, axes) for one in windows_by_axis)
    windows = Windows(sizes, stride or sizes, holes, pads, pads)
    if ceil:
        after = (pad + by - 1 for pad, by in zip(pads, windows.strides, strict=True))
        windows = replace(windows, after=tuple(after))
        each = zip(windows.strides, pads, windows.reach, strict=True)
        if any(by + pad > reach for by, pad, reach in each):
            raise Unsupported("its last window begins behind the image at some sizes")
    batch = x if t.rank(x) == axes + 2 else t.reshape(x, (1, *t.shape(x)))
    for n, whole in enumerate(t.shape(batch)[2:]):  # torch refuses images of no window
        t.require_at_least(whole, windows.reach[n] - windows.before[n] - windows.after[n])
    results = pool(t, batch, windows, op, **options)
    if ceil:
        results = tuple(crop_windows(t, one, [*map(plain, t.extents[-axes:])]) for one in results)
    return results if batch is x else tuple(without_batch(t, one) for one in results)


@register_rule(
    *("adaptive_avg_pool2d", "_adaptive_avg_pool2d", "adaptive_avg_pool3d", "_adaptive_avg_pool3d"),
    op="adaptive_avg_pool2d",
    reduction="mean",
)
def adaptive_pool(t: Translation, x: Ref, size: Sequence[Any], *, op: str, reduction: str) -> Any:
    """So many windows along each of two axes, or of three."""
    if all(one == 1 for one in size):
        return t.node(reduction, x, axis=tuple(range(-len(size), 0)), keepdims=True)
    if t.rank(x) == len(size) + 1:
        batch = t.reshape(x, (1, *t.shape(x)))
        result = adaptive_pool(t, batch, size, op=op, reduction=reduction)
        return without_batch(t, result)
    if len(size) == 2:
        return t.node(op, x, tuple(size))
    n, c, depth, *image = t.shape(x)
    within = t.node(op, t.reshape(x, (n, product((c, depth)), *image)), tuple(size[1:]))
    pixels = product(size[1:])
    lines = t.node(op, t.reshape(within, (n, c, depth, pixels)), (size[0], pixels))
    return t.reshape(lines, (n, c, *size))


@register_rule("adaptive_max_pool2d", "adaptive_max_pool3d")
def adaptive_max_pool(t: Translation, x: Ref, size: Sequence[Any]) -> Any:
    return adaptive_pool(t, x, size, op="adaptive_max_pool2d", reduction="max"), None


def resize(t: Translation, x: Ref, size: Any, *options: Any, mode: str) -> Any:
    """Resize: options are whether ends are aligned, but for nearest neighbors, then scales, in a list or one by one."""
    align = mode != "nearest" and options[0]
    scales = options[mode != "nearest" :]
    if len(scales) == 1:
        return _interpolate(t, x, mode, align, size, scales[0])
    return _interpolate(t, x, mode, align, size, None if None in scales or not scales else scales)


for _name, _mode in (
    *(("nearest2d", "nearest"), ("nearest1d.vec", "nearest"), ("bilinear2d", "linear")),
    *(("linear1d.vec", "linear"), ("bicubic2d", "cubic")),
):
    _upsampling = {f"upsample_{_name}", f"upsample_{_name.partition('.')[0]}.vec"}
    register_rule(*_upsampling, mode=_mode)(resize)


@register_rule("grid_sampler", "grid_sampler_2d")
def grid_sampler(t: Translation, x: Ref, grid: Ref, mode: int, padding: int, corners: bool) -> Any:
    if mode > 1 or t.rank(x) != 4:
        raise Unsupported("places between four elements along an axis, or in volumes")
    for extent in t.shape(x)[2:]:
        t.require_at_least(extent, 1)
    options = {
        "mode": ("linear", "nearest")[mode],
        "padding": ("zeros", "border", "reflection")[padding],
        "align_corners": corners,
    }
    grid = t.with_shape(grid, (t.shape(x)[0], *t.shape(grid)[1:]))
    return t.node("grid_sample", t.as_result(x), t.as_result(grid), **options)


@register_rule("_upsample_bilinear2d_aa", rounds_each=True, name="_upsample_bilinear2d_aa")
@register_rule("_upsample_bicubic2d_aa", rounds_each=True, name="_upsample_bicubic2d_aa")
def resize_antialiased(
    t: Translation, x: Ref, size: Sequence[Any], align: bool, *scales: Any, name: str
) -> Any:
    """Along axes of known extents it is linear: what torch makes of each element alone is a column of a matrix."""
    wholes = [plain(one) for one in t.shape(x)[-2:]]
    if not all(isinstance(one, int) for one in (*wholes, *size)):
        raise Unsupported("it is smoothed, and an extent is not known")
    dtype, rows = t.dtype(x), t.shape(x)[:-2]
    factors = scales or (None, None)
    matrices = []
    for whole, count, factor in zip(wholes, size, factors, strict=True):
        basis = torch.eye(whole, dtype=torch.float64)[None, None]
        columns = getattr(torch.ops.aten, name)(basis, (count, whole), align, factor, None)
        matrix = columns[0, 0].numpy().astype(numpy_dtype(dtype))
        matrices.append(t.builder.constant(t.builder.fresh("matrix"), matrix))
    images = t.reshape(x, (product(rows), *wholes))
    result = t.node("matmul", t.node("matmul", matrices[0], images), matrices[1], transpose_b=True)
    return t.reshape(result, (*rows, *size))


def _interpolate(t: Translation, x: Ref, mode: str, align: bool, size: Any, scales: Any) -> Any:
    options = {"mode": mode, "align_corners": align or None}
    if scales is None:
        return t.node("interpolate", x, size=tuple(size), **options)
    if not all(_as_torch_places(scale, mode) for scale in scales):
        raise Unsupported(f"it is scaled by {list(scales)}")
    return t.node("interpolate", x, scale=tuple(scales), **options)


def _as_torch_places(scale: float, mode: str) -> bool:
    """Whether the exact places of a scale are those of torch, which calculates in float32.

    Floored, they are where the step of float32 is no less than that of the fraction.
    """
    exact = Fraction(scale)
    step = Fraction(float(np.float32(1 / scale)))
    return exact.denominator <= MOST_PARTS and (mode != "nearest" or step >= 1 / exact)


def spread(value: Any, axes: int) -> tuple[int, ...]:
    """One int for each axis."""
    each = tuple(value) if isinstance(value, tuple | list) else (value,)
    return each * axes if len(each) == 1 else each
