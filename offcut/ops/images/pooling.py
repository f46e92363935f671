"""Pooling: the greatest or the mean of windows, or of whole images."""

from __future__ import annotations

import math
from functools import reduce
from operator import mul
from typing import Any

from offcut.core.dtypes import FLOATS, NUMBERS, reduction_start
from offcut.describe.functions import max as max_over
from offcut.describe.functions import maximum, minimum, reduce_axis, where
from offcut.describe.functions import min as min_over
from offcut.describe.functions import sum as sum_over
from offcut.describe.tensor import Tensor, compute
from offcut.describe.value import Value, cast
from offcut.ops.given.arguments import flag
from offcut.ops.given.naming import Option, named
from offcut.ops.given.operands import check_dtype, check_floats, check_tensor, element, wider
from offcut.ops.images.convolution import check_layout, window_names, within
from offcut.ops.images.window import Padding, Pair, Window, pair, windows
from offcut.ops.reductions.reduction import mean

LAYOUTS = ("NCHW", "NHWC")


def max_pool2d(
    x: Tensor,
    window: Pair,
    stride: Pair | None = None,
    padding: Padding = 0,
    dilation: Pair = 1,
    layout: str = "NCHW",
    *,
    name: str | None = None,
) -> Tensor:
    """The greatest element of each window; padding takes no part.

    x          (n, c, h, w), or (n, h, w, c) with layout "NHWC", of floats or integers
    window     its extents: an int, or one for each spatial axis
    stride     as in `conv2d`; None: `window`, so that windows do not overlap
    padding    as in `conv2d`; a window of padding alone gives the least value of the type
    dilation   as in `conv2d`

    Raises DescribeError where ranks or arguments do not fit.
    """
    geometry = (window, stride, padding, dilation)
    shape, letters, placed, steps, last = _placed("max_pool2d", x, *geometry, layout)
    check_dtype("max_pool2d", "x", x, NUMBERS)
    name = named("max_pool2d", name, [x], *_options(*geometry, layout))

    def greatest(*at: Value) -> Value:
        value = _read(x, placed, steps, at, last, x.dtype, reduction_start("max", x.dtype))
        return max_over(value, axis=steps)

    return compute(shape, greatest, name, letters)


def max_pool2d_with_places(
    x: Tensor,
    window: Pair,
    stride: Pair | None = None,
    padding: Padding = 0,
    dilation: Pair = 1,
    layout: str = "NCHW",
    *,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:
    """What `max_pool2d` gives, and where in its image each of these elements is: ``row * columns + column``, of int64.

    Arguments are those of `max_pool2d`. Of equal elements the place is that of the first, of NaN the last, as in torch; a window of padding alone
    has the greatest place of the type.

    The places are called ``{name}_places``. Raises DescribeError as `max_pool2d` does.
    """
    op, geometry = "max_pool2d_with_places", (window, stride, padding, dilation)
    shape, letters, placed, steps, last = _placed(op, x, *geometry, layout)
    check_dtype(op, "x", x, NUMBERS)
    name = named(op, name, [x], *_options(*geometry, layout))
    values, called = max_pool2d(x, *geometry, layout, name=name), f"{name}_places"
    most = int(reduction_start("min", "int64"))

    def first(*at: Value) -> Value:
        rows, columns = _positions(placed, steps, at, last)
        own = x[(at[0], rows, columns, at[-1]) if last else (*at[:2], rows, columns)]
        place = cast(rows, "int64") * cast(placed[1].extent, "int64") + cast(columns, "int64")
        first_place = where(own == values[at], place, most)
        if x.dtype in FLOATS:  # below all others, the last the lowest
            first_place = where(own != own, -1 - place, first_place)
        return min_over(within(placed, (rows, columns), first_place, most), axis=steps)

    if x.dtype not in FLOATS:
        return values, compute(shape, first, called, letters)
    least = compute(shape, first, f"{name}_least", letters)

    def place(*at: Value) -> Value:
        return where(least[at] < 0, -1 - least[at], least[at])

    return values, compute(shape, place, called, letters)


def avg_pool2d(
    x: Tensor,
    window: Pair,
    stride: Pair | None = None,
    padding: Padding = 0,
    count_include_pad: bool = True,
    layout: str = "NCHW",
    *,
    name: str | None = None,
) -> Tensor:
    """The mean of each window.

    x                   (n, c, h, w), or (n, h, w, c) with layout "NHWC", of floats
    window              its extents: an int, or one for each spatial axis
    stride              as in `conv2d`; None: `window`
    padding             as in `conv2d`
    count_include_pad   whether padding counts as zeros; else it takes no part, and a window of
                        padding alone gives NaN

    bfloat16 and float16 are calculated in float32 and rounded once.

    Raises DescribeError where ranks or arguments do not fit.
    """
    op = "avg_pool2d"
    geometry = (window, stride, padding, 1)
    shape, letters, placed, steps, last = _placed(op, x, *geometry, layout)
    check_floats(op, "x", x)
    total = wider(x.dtype)
    padded = flag(op, "count_include_pad", count_include_pad)
    name = named(op, name, [x], *_options(*geometry, layout), ("inside", padded, True))

    def added(*at: Value) -> Value:
        return sum_over(_read(x, placed, steps, at, last, total, 0.0), axis=steps)

    sums = compute(shape, added, f"{name}_sum", letters)

    def result(*at: Value) -> Value:
        if padded:
            return cast(sums[at] * (1.0 / math.prod(w.size for w in placed)), x.dtype)
        across = at[1:-1] if last else at[2:]
        counts = [cast(_count(w, i), total) for w, i in zip(placed, across, strict=True)]
        return cast(sums[at] / reduce(mul, counts), x.dtype)

    return compute(shape, result, name, letters)


def global_avg_pool(
    x: Tensor, layout: str = "NCHW", keepdims: bool = False, *, name: str | None = None
) -> Tensor:
    """The mean over the spatial axes: (n, c), or of rank 4 with extents of 1 with `keepdims`.

    x   (n, c, h, w), or (n, h, w, c) with layout "NHWC"; NaN where there is no pixel

    Raises DescribeError where the rank or the layout does not fit.
    """
    check_tensor("global_avg_pool", "x", x, 4)
    last = check_layout("global_avg_pool", layout, LAYOUTS)
    keepdims = flag("global_avg_pool", "keepdims", keepdims)
    name = named("global_avg_pool", name, [x], ("", layout, "NCHW"), ("kept", keepdims, False))
    return mean(x, (1, 2) if last else (2, 3), keepdims, name=name)


def _options(
    window: Pair, stride: Pair | None, padding: Padding, dilation: Pair, layout: str
) -> tuple[Option, ...]:
    return (
        *(("", window, None), ("stride", stride, None), ("padding", padding, 0)),
        *(("dilation", dilation, 1), ("", layout, "NCHW")),
    )


def _placed(
    op: str,
    x: Tensor,
    window: Pair,
    stride: Pair | None,
    padding: Padding,
    dilation: Pair,
    layout: str,
) -> tuple[tuple[Any, ...], tuple[str, ...], tuple[Window, ...], tuple[Value, ...], bool]:
    """Shape and axis names of the result, the windows, their axes, and whether channels are last."""
    check_tensor(op, "x", x, 4)
    last = check_layout(op, layout, LAYOUTS)
    sizes = pair(op, "window", window, 2, 1)
    extents = x.shape[1:3] if last else x.shape[2:]
    placed = windows(op, extents, sizes, sizes if stride is None else stride, padding, dilation)
    places = tuple(one.results for one in placed)
    across, inside = window_names(2)
    shape = (x.shape[0], *places, x.shape[3]) if last else (*x.shape[:2], *places)
    letters = ("n", *across, "c") if last else ("n", "c", *across)
    steps = tuple(reduce_axis(size, word) for size, word in zip(sizes, inside, strict=True))
    return shape, letters, placed, steps, last


def _read(
    x: Tensor,
    placed: tuple[Window, ...],
    steps: tuple[Value, ...],
    at: tuple[Value, ...],
    last: bool,
    dtype: str,
    outside: float,
) -> Value:
    positions = _positions(placed, steps, at, last)
    index = (at[0], *positions, at[-1]) if last else (*at[:2], *positions)
    return within(placed, positions, element(x, index, dtype), outside)


def _positions(
    placed: tuple[Window, ...], steps: tuple[Value, ...], at: tuple[Value, ...], last: bool
) -> tuple[Value, ...]:
    """Where an element of the window at `at` lies along the spatial axes."""
    across = at[1:-1] if last else at[2:]
    return tuple(w.at(i, r) for w, i, r in zip(placed, across, steps, strict=True))


def _count(window: Window, i: Value) -> Value:
    """Elements of the window at `i` that are not padding."""
    start = i * window.stride - window.before
    inside = minimum(start + window.size, window.extent) - maximum(start, 0)
    return maximum(inside, 0)
