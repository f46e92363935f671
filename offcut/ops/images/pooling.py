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
from offcut.errors import DescribeError
from offcut.ops.checks import (
    Option,
    check_dtype,
    check_tensor,
    element,
    flag,
    integers,
    result_name,
    wider,
)
from offcut.ops.data_movement.arrangement import MOST_ALONG
from offcut.ops.images.convolution import check_layout, window_names, within
from offcut.ops.images.window import Padding, Pair, Window, windows
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
    arguments = (window, stride, padding, dilation)
    shape, letters, window_axes, steps, last = _place_windows("max_pool2d", x, *arguments, layout)
    check_dtype("max_pool2d", "x", x, NUMBERS)
    name = result_name("max_pool2d", name, [x], *_options(*arguments, layout))

    def greatest(*at: Value) -> Value:
        value = _windows_of(
            x, window_axes, steps, at, last, x.dtype, reduction_start("max", x.dtype)
        )
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
    op, arguments = "max_pool2d_with_places", (window, stride, padding, dilation)
    shape, letters, window_axes, steps, last = _place_windows(op, x, *arguments, layout)
    check_dtype(op, "x", x, NUMBERS)
    name = result_name(op, name, [x], *_options(*arguments, layout))
    values, called = max_pool2d(x, *arguments, layout, name=name), f"{name}_places"
    most = int(reduction_start("min", "int64"))

    def first(*at: Value) -> Value:
        rows, columns = _positions(window_axes, steps, at, last)
        own = x[(at[0], rows, columns, at[-1]) if last else (*at[:2], rows, columns)]
        place = cast(rows, "int64") * cast(window_axes[1].extent, "int64") + cast(columns, "int64")
        result = where(own == values[at], place, most)
        if x.dtype in FLOATS:  # below all others, the last the lowest
            result = where(own != own, -1 - place, result)
        return min_over(within(window_axes, (rows, columns), result, most), axis=steps)

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
    arguments = (window, stride, padding, 1)
    shape, letters, window_axes, steps, last = _place_windows(op, x, *arguments, layout)
    check_dtype(op, "x", x, FLOATS)
    total = wider(x.dtype)
    padded = flag(op, "count_include_pad", count_include_pad)
    name = result_name(op, name, [x], *_options(*arguments, layout), ("inside", padded, True))

    def added(*at: Value) -> Value:
        return sum_over(_windows_of(x, window_axes, steps, at, last, total, 0.0), axis=steps)

    sums = compute(shape, added, f"{name}_sum", letters)

    def result(*at: Value) -> Value:
        if padded:
            return cast(sums[at] * (1.0 / math.prod(w.size for w in window_axes)), x.dtype)
        across = at[1:-1] if last else at[2:]
        counts = [cast(_count(w, i), total) for w, i in zip(window_axes, across, strict=True)]
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
    name = result_name(
        "global_avg_pool", name, [x], ("", layout, "NCHW"), ("kept", keepdims, False)
    )
    return mean(x, (1, 2) if last else (2, 3), keepdims, name=name)


def _options(
    window: Pair, stride: Pair | None, padding: Padding, dilation: Pair, layout: str
) -> tuple[Option, ...]:
    return (
        *(("", window, None), ("stride", stride, None), ("padding", padding, 0)),
        *(("dilation", dilation, 1), ("", layout, "NCHW")),
    )


def _place_windows(
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
    sizes = integers(op, "window", window, 2, 1)
    extents = x.shape[1:3] if last else x.shape[2:]
    window_axes = windows(
        op, extents, sizes, sizes if stride is None else stride, padding, dilation
    )
    places = tuple(one.results for one in window_axes)
    across, inside = window_names(2)
    shape = (x.shape[0], *places, x.shape[3]) if last else (*x.shape[:2], *places)
    letters = ("n", *across, "c") if last else ("n", "c", *across)
    steps = tuple(reduce_axis(size, word) for size, word in zip(sizes, inside, strict=True))
    return shape, letters, window_axes, steps, last


def _windows_of(
    x: Tensor,
    window_axes: tuple[Window, ...],
    steps: tuple[Value, ...],
    at: tuple[Value, ...],
    last: bool,
    dtype: str,
    outside: float,
) -> Value:
    positions = _positions(window_axes, steps, at, last)
    index = (at[0], *positions, at[-1]) if last else (*at[:2], *positions)
    return within(window_axes, positions, element(x, index, dtype), outside)


def _positions(
    window_axes: tuple[Window, ...], steps: tuple[Value, ...], at: tuple[Value, ...], last: bool
) -> tuple[Value, ...]:
    """Where an element of the window at `at` lies along the spatial axes."""
    across = at[1:-1] if last else at[2:]
    return tuple(w.at(i, r) for w, i, r in zip(window_axes, across, steps, strict=True))


def _count(window: Window, i: Value) -> Value:
    """Elements of the window at `i` that are not padding."""
    start = i * window.stride - window.before
    inside = minimum(start + window.size, window.extent) - maximum(start, 0)
    return maximum(inside, 0)


def adaptive_avg_pool2d(
    x: Tensor, size: Pair, layout: str = "NCHW", *, name: str | None = None
) -> Tensor:
    """The means of ``size`` windows along each spatial axis: place i averages the rows from
    ``i*h // size`` up to, and without, ``((i + 1)*h + size - 1) // size``.

    x      (n, c, h, w), or (n, h, w, c) with layout "NHWC", of floats; h and w symbolic or not
    size   places of the result: an int of at least 1, or one for each spatial axis; 150 at most along a symbolic one

    Windows overlap by one element where the extent is no multiple of `size`. Rows are added up
    first, then columns. bfloat16 and float16 are calculated in float32 and rounded once; NaN where
    there is no pixel.

    Raises DescribeError where the rank, the type or an argument does not fit.
    """
    windows = _Windows("adaptive_avg_pool2d", x, size, layout, name)
    total = wider(x.dtype)
    sums = windows.reduce_axes("sum", total)

    def mean(*at: Value) -> Value:
        each = zip(windows.spatial, windows.parts, strict=True)
        counts = [part.count(at[axis], total) for axis, part in each]
        return cast(sums[at] / (counts[0] * counts[1]), x.dtype)

    return compute(sums.shape, mean, windows.name, windows.letters)


def adaptive_max_pool2d(
    x: Tensor, size: Pair, layout: str = "NCHW", *, name: str | None = None
) -> Tensor:
    """The greatest of ``size`` windows along each spatial axis, which are those of `adaptive_avg_pool2d`.

    x      as for `adaptive_avg_pool2d`; the least number of its type where there is no pixel
    size   as for `adaptive_avg_pool2d`

    Raises DescribeError where the rank, the type or an argument does not fit.
    """
    return _Windows("adaptive_max_pool2d", x, size, layout, name).reduce_axes("max", x.dtype)


class _Windows:
    """The windows of an image, axis by axis."""

    def __init__(self, op: str, x: Tensor, size: Pair, layout: str, name: str | None) -> None:
        check_tensor(op, "x", x, 4, dtypes=FLOATS)
        last = check_layout(op, layout, LAYOUTS)
        sizes = integers(op, "size", size, 2, 1)
        _check_places(op, x, sizes, last)
        self.x = x
        self.name = result_name(op, name, [x], ("", sizes, None), ("", layout, "NCHW"))
        self.spatial = (1, 2) if last else (2, 3)
        self.letters = ("n", "y", "x", "c") if last else ("n", "c", "y", "x")
        each = zip(self.spatial, sizes, strict=True)
        self.parts = [_Parts(x.shape[axis], count) for axis, count in each]

    def reduce_axes(self, kind: str, total: str) -> Tensor:
        """The sum or the greatest of each, in the type `total`: rows first, then columns."""
        result, steps = self.x, window_names(2)[1]
        for axis, part, step in zip(self.spatial, self.parts, steps, strict=True):
            last = kind == "max" and axis == self.spatial[-1]
            name = self.name if last else f"{self.name}_{self.letters[axis]}"
            result = part.reduce_axes(kind, result, axis, name, self.letters, step, total)
        return result


def _check_places(op: str, x: Tensor, sizes: tuple[int, ...], last: bool) -> None:
    """Refuse more places along a symbolic axis than a result may be read in."""
    for axis, count in zip((1, 2) if last else (2, 3), sizes, strict=True):
        if count > MOST_ALONG and not x.shape[axis].is_Integer:
            raise DescribeError(
                op,
                f"cannot take size={count}",
                at=repr(x),
                because=f"{count} ranges of the symbolic extent {x.shape[axis]} are more than {MOST_ALONG}",
            )


class _Parts:
    """``count`` windows along an axis of `extent` elements.

    A product of a place and a symbolic extent is no affine index, so that each place then is a range
    of its own.
    """

    def __init__(self, extent: Any, count: int) -> None:
        self.extent, self.size = extent, count
        self.affine = bool(extent.is_Integer) or count == 1
        even = extent.is_Integer and extent % count == 0
        self.reach = extent // count if even or count == 1 else extent // count + 2

    def window(self, i: Any) -> tuple[Any, Any]:
        """Where the window of place `i` starts and ends."""
        return i * self.extent // self.size, ((i + 1) * self.extent + self.size - 1) // self.size

    def reduce_axes(
        self,
        kind: str,
        x: Tensor,
        axis: int,
        name: str,
        letters: tuple[str, ...],
        step: str,
        total: str,
    ) -> Tensor:
        """The sum or the greatest of the windows along `axis`."""
        r, over = reduce_axis(self.reach, step), sum_over if kind == "sum" else max_over
        nothing = reduction_start(kind, total)

        def part(at: tuple[Value, ...], i: Any) -> Value:
            start, end = self.window(i)
            value = element(x, (*at[:axis], start + r, *at[axis + 1 :]), total)
            return where(start + r < end, value, nothing)

        def term(*at: Value) -> Value:
            if self.size == 1:
                return over(element(x, (*at[:axis], r, *at[axis + 1 :]), total), axis=r)
            if self.affine:
                return over(part(at, at[axis]), axis=r)
            value = part(at, self.size - 1)
            for i in reversed(range(self.size - 1)):
                value = where(at[axis] < i + 1, part(at, i), value)
            return over(value, axis=r)

        shape = (*x.shape[:axis], self.size, *x.shape[axis + 1 :])
        return compute(shape, term, name, letters)

    def count(self, i: Value, total: str) -> Value:
        """Elements of the window of place `i`."""
        if self.affine:
            start, end = self.window(i)
            return cast(end - start, total)
        start, end = self.window(self.size - 1)
        value = cast(end - start, total)
        for place in reversed(range(self.size - 1)):
            start, end = self.window(place)
            value = where(i < place + 1, cast(end - start, total), value)
        return value
