"""Convolutions over one, two or three spatial axes, channels first or last."""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import Any

from offcut.describe.functions import reduce_axis, where
from offcut.describe.functions import sum as sum_over
from offcut.describe.tensor import Tensor, compute
from offcut.describe.value import Value
from offcut.errors import DescribeError
from offcut.ops.checks import (
    check_result,
    check_tensor,
    choice,
    element,
    integer,
    pair_error,
    result_name,
    same_extent,
    unequal_error,
    wider,
)
from offcut.ops.images.window import Padding, Pair, Window, windows
from offcut.ops.products.matmul import epilogue

NARROW = 8
"""Channels of a group up to which lanes run along all groups: as a product, each would fill half of a wide vector at most. No machine is
asked: with the way goes the order of the terms, and a description means the same bits on all of them.
"""
SPATIAL = {"NCDHW": 3, "NDHWC": 3, "NCHW": 2, "NHWC": 2, "NCW": 1, "NWC": 1}


def conv2d(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    stride: Pair = 1,
    padding: Padding = 0,
    dilation: Pair = 1,
    groups: int = 1,
    layout: str = "NCHW",
    activation: str | None = None,
    residual: Tensor | None = None,
    dtype: str | None = None,
    *,
    name: str | None = None,
) -> Tensor:
    """``activation(convolution of x with w + bias) + residual``, correlated as in all such libraries.

    With padding p, stride s and dilation d, and all outside of `x` being 0::

        result[n, o, i, j] = sum over c, r, q of
            x[n, c, i*s + r*d - p, j*s + q*d - p] * w[o, c, r, q]

    x            (n, c, h, w), or (n, h, w, c) with layout "NHWC"; n, h and w symbolic or not
    w            (o, c/groups, kh, kw), or (kh, kw, c/groups, o) with layout "NHWC"; kh and kw are
                 ints; of the type of `x`, or int8 where `x` is uint8
    bias         (o,)
    stride       an int, or one for each spatial axis, at least 1; dilation likewise
    padding      an int, one for each spatial axis, (before, after) for each, or "same":
                 ``ceil(h / stride)`` results, the odd element of padding after
    groups       divides c and o, which are ints then; output channels ``o // (o_count / groups)``
                 see the input channels of their group; ``groups=c`` is a depthwise convolution
    activation   as in `dense`
    residual     of the result's shape, added after the activation
    dtype        of the result; None: that of `x`, int32 for int8 and uint8

    The result has ``(h + before + after - (kh - 1)*d - 1) // s + 1`` rows; sizes at which that is
    negative are refused when the program is compiled. Sums are accumulated as in `dense`. Products with
    what lies outside of `x` are left out where `w` is a constant of finite numbers, which changes no value.

    Raises DescribeError where ranks, extents or element types do not fit, groups do not divide the
    channels, or there is no such layout or activation.
    """
    options = (stride, padding, dilation, groups)
    ends = (bias, activation, residual, dtype)
    return _convolution("conv2d", ("NCHW", "NHWC"), x, w, options, layout, ends, name)


def conv1d(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    stride: Pair = 1,
    padding: Padding = 0,
    dilation: Pair = 1,
    groups: int = 1,
    layout: str = "NCW",
    activation: str | None = None,
    residual: Tensor | None = None,
    dtype: str | None = None,
    *,
    name: str | None = None,
) -> Tensor:
    """`conv2d` with one spatial axis.

    x        (n, c, w), or (n, w, c) with layout "NWC"
    w        (o, c/groups, kw), or (kw, c/groups, o) with layout "NWC"

    Raises DescribeError as `conv2d` does.
    """
    options = (stride, padding, dilation, groups)
    ends = (bias, activation, residual, dtype)
    return _convolution("conv1d", ("NCW", "NWC"), x, w, options, layout, ends, name)


def conv3d(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    stride: Pair = 1,
    padding: Padding = 0,
    dilation: Pair = 1,
    groups: int = 1,
    layout: str = "NCDHW",
    activation: str | None = None,
    residual: Tensor | None = None,
    dtype: str | None = None,
    *,
    name: str | None = None,
) -> Tensor:
    """`conv2d` with three spatial axes.

    x        (n, c, d, h, w), or (n, d, h, w, c) with layout "NDHWC"
    w        (o, c/groups, kd, kh, kw), or (kd, kh, kw, c/groups, o) with layout "NDHWC"

    Raises DescribeError as `conv2d` does.
    """
    options = (stride, padding, dilation, groups)
    ends = (bias, activation, residual, dtype)
    return _convolution("conv3d", ("NCDHW", "NDHWC"), x, w, options, layout, ends, name)


def check_layout(op: str, layout: Any, allowed: tuple[str, ...]) -> bool:
    """Whether channels come last.

    Raises DescribeError where `layout` is none of `allowed`.
    """
    return choice(op, "layout", layout, allowed)[-1] == "C"


def window_names(axes: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names for spatial axes of the result, and of the window."""
    return (("z", "y", "x")[3 - axes :], ("q", "r", "s")[3 - axes :])


def _convolution(
    op: str,
    layouts: tuple[str, ...],
    x: Tensor,
    w: Tensor,
    options: tuple[Any, Any, Any, Any],
    layout: str,
    ends: tuple[Any, Any, Any, Any],
    name: str | None,
) -> Tensor:
    (stride, padding, dilation, groups), (bias, activation, residual, dtype) = options, ends
    last, extents, sizes = check_operands(op, layouts, layout, x, w)
    channels = x.shape[-1 if last else 1]
    inner, outer = (w.shape[-2], w.shape[-1]) if last else (w.shape[1], w.shape[0])
    groups = group_count(op, x, w, groups, inner, input=channels, output=outer)
    check_channels(op, x, w, inner, groups, channels)
    window_axes = windows(op, extents, sizes, stride, padding, dilation)
    places = tuple(window.results for window in window_axes)
    shape = (x.shape[0], *places, outer) if last else (x.shape[0], outer, *places)
    total = wider(x.dtype)
    result = check_result(op, dtype, total if total == "int32" else x.dtype)
    end = epilogue(op, shape, total, result, bias, -1 if last else 1, activation, residual)
    words = (
        *(("stride", stride, 1), ("padding", padding, 0), ("dilation", dilation, 1)),
        *(("groups", groups, 1), ("", layout, layouts[0]), *end.options, ("", dtype, None)),
    )
    name = result_name(op, name, [x, w], *words)

    across, inside = window_names(len(sizes))
    steps = tuple(reduce_axis(size, word) for size, word in zip(sizes, inside, strict=True))
    c, each = reduce_axis(inner, "c"), outer // groups
    narrow = last and 1 < inner == each <= NARROW and groups > 1
    letters = ("n", *across, "o") if last else ("n", "o", *across)

    def apart(at: tuple[Value, ...]) -> tuple[Value, tuple[Value, ...], Value]:
        """Image, place and channel of an element of the result."""
        return (at[0], at[1:-1], at[-1]) if last else (at[0], at[2:], at[1])

    def term(n: Value, place: tuple[Value, ...], channel: Value, o: Value) -> Value:
        positions = _positions(window_axes, place, steps)
        read = (n, *positions, channel) if last else (n, channel, *positions)
        weight = (*steps, c, o) if last else (o, c, *steps)
        pixel = within(window_axes, positions, element(x, read), 0.0 if total != "int32" else 0)
        # as terms that padding makes zero are left out, the last axis of a window first
        order = (*reversed(steps), c) if narrow else (c, *steps)
        return sum_over(pixel * element(w, weight), axis=order)

    if groups == 1 or inner == 1 or narrow:

        def alone(*at: Value) -> Value:
            n, place, o = apart(at)
            return term(n, place, c if groups == 1 else o // each * inner + c, o)

        return end.after(compute(shape, alone, end.name_of_total(name), letters), name)

    # with an axis of their own, groups are products, in which the channels that are read do not depend on those that result
    def grouped(n: Value, *at: Value) -> Value:
        g, o = at[-2:] if last else at[:2]
        return term(n, at[:-2] if last else at[2:], g * inner + c, g * each + o)

    def element_of_sum(*at: Value) -> Value:
        n, place, o = apart(at)
        own = (o // each, o % each)
        return products[(n, *place, *own) if last else (n, *own, *place)]

    if last:
        parted, axis_names = (x.shape[0], *places, groups, each), ("n", *across, "g", "o")
    else:
        parted, axis_names = (x.shape[0], groups, each, *places), ("n", "g", "o", *across)
    products = compute(parted, grouped, f"{name}_groups", axis_names)
    return end.after(compute(shape, element_of_sum, end.name_of_total(name), letters), name)


def _positions(
    window_axes: tuple[Window, ...], at: tuple[Value, ...], steps: tuple[Value, ...]
) -> tuple[Value, ...]:
    return tuple(w.at(i, r) for w, i, r in zip(window_axes, at, steps, strict=True))


def within(
    window_axes: tuple[Window, ...], positions: tuple[Value, ...], value: Value, other: float
) -> Value:
    """`value` where the positions are not padding, else `other`."""
    conditions = [
        condition
        for window, position in zip(window_axes, positions, strict=True)
        for condition in window.inside(position)
    ]
    if not conditions:
        return value
    return where(reduce(and_, conditions), value, other)


def check_operands(
    op: str, layouts: tuple[str, ...], layout: Any, x: Tensor, w: Tensor
) -> tuple[bool, tuple[Any, ...], tuple[int, ...]]:
    """Return whether channels come last, the spatial extents of `x`, and those of the window `w`.

    Raises DescribeError where ranks or element types do not fit, `layout` is none of `layouts`, or an extent of the window is no int of at
    least 1.
    """
    last, rank = check_layout(op, layout, layouts), len(layout)
    check_tensor(op, "x", x, rank)
    check_tensor(op, "w", w, rank, dtypes=(x.dtype, "int8") if x.dtype == "uint8" else (x.dtype,))
    window = w.shape[:-2] if last else w.shape[2:]
    for extent in window:
        if not (extent.is_Integer and extent >= 1):
            raise DescribeError(
                op,
                f"cannot take a window of {extent}",
                at=repr(w),
                because="the spatial extents of w are ints, at least 1",
            )
    return last, x.shape[1:-1] if last else x.shape[2:], tuple(map(int, window))


def group_count(
    op: str, x: Tensor, w: Tensor, value: Any, inner: Any = None, **channels: Any
) -> int:
    """Return `value` as a number of groups.

    inner     input channels of a group, as `w` has them; None where `w` does not say how many groups there are
    channels  the extents that it divides: of the ``input``, of the ``output``

    Raises DescribeError for anything but an int of at least 1 that divides them.
    """
    groups = integer(op, "groups", value, 1)
    for label, extent in channels.items():
        if groups > 1 and (not extent.is_Integer or extent % groups):
            raise unequal_error(
                op,
                f"cannot take groups={groups}",
                *([] if inner is None else [(channels["input"], groups * inner)]),
                at=f"{x!r} and {w!r}",
                because=f"{groups} does not divide the {extent} {label} channels",
            )
    return groups


def check_channels(op: str, x: Tensor, w: Tensor, inner: Any, groups: int, channels: Any) -> None:
    """Raises DescribeError where the `inner` channels of `w` are not those of a group of the `channels` of `x`."""
    own = channels if groups == 1 else channels // groups
    if not same_extent(own, inner):
        because = f"x has {channels} channels, and w {inner}"
        if groups > 1:
            because = f"{channels} channels in {groups} groups are {own} each, and w has {inner}"
        raise pair_error(op, x, w, because, equal=[(channels, groups * inner)])
