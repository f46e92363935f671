"""Convolutions, pooling, and images in other sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from offcut.core import index as ix
from offcut.core.expr import Expr
from offcut.graph import Ref
from offcut.plugins.torch.left import Left
from offcut.plugins.torch.table import takes
from offcut.plugins.torch.translation import Translation, plain

_FORWARD = {1: "conv1d", 2: "conv2d", 3: "conv3d"}


@takes("convolution", "_convolution")
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
    groups: int,
    *_: Any,
) -> Any:
    axes = t.rank(w) - 2
    if t.rank(x) != axes + 2:
        raise Left("it is without a batch")
    each = {
        "stride": _spread(stride, axes),
        "padding": padding if isinstance(padding, str) else _spread(padding, axes),
        "dilation": _spread(dilation, axes),
    }
    if not transposed:
        return t.node(_FORWARD[axes], x, w, bias=bias, groups=groups, **each)
    if axes != 2:
        raise Left(f"it is transposed, with {axes} spatial axes")
    ends = {"output_padding": _spread(output_padding, axes), "groups": groups}
    return t.node("conv_transpose2d", x, w, bias=bias, **each, **ends)


@takes(*(f"conv{n}d{end}" for n in (1, 2, 3) for end in ("", ".padding")))
def forward(
    t: Translation,
    x: Ref,
    w: Ref,
    bias: Ref | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    if padding == "valid":
        padding = 0
    if padding == "same" and any(n != 1 for n in _spread(stride, t.rank(w) - 2)):
        raise Left("it is padded to the same size, with a stride")
    return convolution(t, x, w, bias, stride, padding, dilation, False, 0, groups)


@takes("conv_transpose1d", "conv_transpose2d.input", "conv_transpose3d.input")
def backward(
    t: Translation,
    x: Ref,
    w: Ref,
    bias: Ref | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Any:
    return convolution(t, x, w, bias, stride, padding, dilation, True, output_padding, groups)


@takes("max_pool2d_with_indices")
def max_pool_indices(t: Translation, x: Ref, *given: Any) -> Any:
    return max_pool(t, x, *given), None


@takes("max_pool2d")
def max_pool(
    t: Translation,
    x: Ref,
    window: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil: bool = False,
) -> Any:
    if t.rank(x) != 4:
        raise Left("it is without a batch")
    each = _windows(t, x, window, stride, padding, dilation, ceil)
    return t.node("max_pool2d", x, _spread(window, 2), dilation=_spread(dilation, 2), **each)


@takes("avg_pool2d")
def avg_pool(
    t: Translation,
    x: Ref,
    window: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil: bool = False,
    count_include_pad: bool = True,
    divisor: int | None = None,
) -> Any:
    if t.rank(x) != 4 or divisor is not None:
        raise Left("it is without a batch, or has a divisor")
    if ceil and any(_spread(padding, 2)) and count_include_pad:
        raise Left("windows beyond the padding count less")
    each = _windows(t, x, window, stride, padding, 1, ceil)
    inside = count_include_pad and not ceil
    return t.node("avg_pool2d", x, _spread(window, 2), count_include_pad=inside, **each)


@takes("adaptive_avg_pool2d", "_adaptive_avg_pool2d")
def adaptive(t: Translation, x: Ref, size: Sequence[Any]) -> Any:
    if t.rank(x) != 4:
        raise Left("it is without a batch")
    if list(size) == [1, 1]:
        return t.node("mean", x, axis=(2, 3), keepdims=True)
    return t.node("adaptive_avg_pool2d", x, tuple(size))


@takes("upsample_nearest2d.vec", "upsample_nearest1d.vec")
def nearest(t: Translation, x: Ref, size: Any, scales: Any) -> Any:
    return _interpolated(t, x, "nearest", False, size, scales)


@takes("upsample_bilinear2d.vec", "upsample_linear1d.vec")
def linear(t: Translation, x: Ref, size: Any, align: bool, scales: Any) -> Any:
    return _interpolated(t, x, "linear", align, size, scales)


@takes("pixel_shuffle")
def pixel_shuffle(t: Translation, x: Ref, factor: int) -> Any:
    *rows, c, h, w = t.shape(x)
    inner = plain(c)
    if not isinstance(inner, int):
        raise Left("its channels are symbolic")
    rank = len(rows)
    apart = t.reshape(x, (*rows, inner // factor**2, factor, factor, h, w))
    order = (*range(rank), rank, rank + 3, rank + 1, rank + 4, rank + 2)
    return t.reshape(
        t.transpose(apart, order),
        (*rows, inner // factor**2, ix.mul(h, factor), ix.mul(w, factor)),
    )


@takes("upsample_nearest2d")
def nearest_default(t: Translation, x: Ref, size: Any, *scales: Any) -> Any:
    return _interpolated(t, x, "nearest", False, size, _given(scales))


@takes("upsample_bilinear2d")
def linear_default(t: Translation, x: Ref, size: Any, align: bool, *scales: Any) -> Any:
    return _interpolated(t, x, "linear", align, size, _given(scales))


def _given(scales: tuple[Any, ...]) -> Any:
    return scales if scales and all(one is not None for one in scales) else None


def _interpolated(t: Translation, x: Ref, mode: str, align: bool, size: Any, scales: Any) -> Any:
    given = {"mode": mode, "align_corners": align or None}
    if scales is None:
        return t.node("interpolate", x, size=tuple(size), **given)
    if any(scale != int(scale) for scale in scales):
        raise Left(f"it is scaled by {list(scales)}")
    return t.node("interpolate", x, scale=tuple(int(scale) for scale in scales), **given)


def _windows(
    t: Translation, x: Ref, window: Any, stride: Any, padding: Any, dilation: Any, ceil: bool
) -> dict[str, Any]:
    """Stride and padding; results are rounded up by padding after the end."""
    sizes, pads, steps = _spread(window, 2), _spread(padding, 2), _spread(dilation, 2)
    strides = _spread(stride, 2) if stride not in ((), []) else sizes
    if not ceil:
        return {"stride": strides, "padding": pads}
    after: list[tuple[int, int]] = []
    for axis in range(2):
        extent = plain(t.shape(x)[2 + axis])
        if isinstance(extent, Expr) and not isinstance(extent, int):
            raise Left("its results are rounded up at a symbolic size")
        reach = steps[axis] * (sizes[axis] - 1) + 1
        results = plain(t.extents[2 + axis])
        assert isinstance(results, int)
        wanted = (results - 1) * strides[axis] + reach - extent - pads[axis]
        after.append((pads[axis], max(wanted, 0)))
    return {"stride": strides, "padding": tuple(after)}


def _spread(given: Any, axes: int) -> tuple[int, ...]:
    """One int for each axis."""
    each = tuple(given) if isinstance(given, tuple | list) else (given,)
    return each * axes if len(each) == 1 else each
