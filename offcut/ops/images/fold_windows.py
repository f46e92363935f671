"""Windows apart, as a convolution gathers them, and put back and added up."""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import Any

from offcut.core.sizes import size_expr
from offcut.describe.functions import reduce_axis, where
from offcut.describe.functions import sum as sum_over
from offcut.describe.tensor import Tensor, compute
from offcut.describe.value import Value, cast
from offcut.errors import DescribeError
from offcut.ops.checks import axis_letters, check_tensor, element, integers, several, wider
from offcut.ops.images.window import Padding, Pair, paddings, windows
from offcut.ops.naming import result_name


def unfold(
    x: Tensor,
    window: Pair,
    stride: Pair = 1,
    padding: Padding = 0,
    dilation: Pair = 1,
    *,
    name: str | None = None,
) -> Tensor:
    """Return the elements of each window (n, c, kh, kw, h, w) of an image (n, c, …), of one to three spatial axes.

    With padding p, stride s and dilation d: ``y[n, c, r, q, i, j] = x[n, c, i*s + r*d - p, j*s + q*d - p]``, 0 outside.

    x          of any element type
    window     its extents: an int, or one for each spatial axis
    stride     an int, or one for each spatial axis, at least 1; dilation likewise
    padding    as in `conv2d`

    Torch: `unfold`. Raises DescribeError where the rank or an argument does not fit.
    """
    op = "unfold"
    check_tensor(op, "x", x, 3, 4, 5)
    axes = len(x.shape) - 2
    sizes = integers(op, "window", window, axes, 1)
    window_axes = windows(op, x.shape[2:], sizes, stride, padding, dilation)
    words = (("stride", stride, 1), ("padding", padding, 0), ("dilation", dilation, 1))
    name = result_name(op, name, [x], ("", sizes, None), *words)
    nothing = cast(0, x.dtype)

    def read(*at: Value) -> Value:
        inside, places = list[Value](), list[Value]()
        for n, one in enumerate(window_axes):
            places.append(one.at(at[2 + axes + n], at[2 + n]))
            inside += one.inside(places[-1])
        element = x[(at[0], at[1], *places)]
        return where(reduce(and_, inside), element, nothing) if inside else element

    shape = (*x.shape[:2], *sizes, *(one.results for one in window_axes))
    return compute(shape, read, name, axis_letters(len(shape)))


def fold(
    x: Tensor,
    size: Any,
    stride: Pair = 1,
    padding: Padding = 0,
    dilation: Pair = 1,
    *,
    name: str | None = None,
) -> Tensor:
    """The image (n, c, \\*size) to which each element of each window is added at its place; of one to three spatial axes.

    With padding p, stride s and dilation d, element by element::

        y[n, c, i*s + r*d - p, j*s + q*d - p] += x[n, c, r, q, i, j]

    x          (n, c, kh, kw, h, w): element (r, q) of the window at place (i, j); with one or three spatial axes likewise
    size       the spatial extents of the image, ints or expressions in sizes
    stride     an int, or one for each spatial axis, at least 1; dilation likewise
    padding    left out of the image: an int, one for each, or (before, after) for each; what windows put outside of the
               image is left out

    bfloat16 and float16 are accumulated in float32 and rounded once; integers of 8 and 16 bits and bool give int32. Torch: `fold`, ONNX: `Col2Im`.

    Raises DescribeError where the rank or an argument does not fit.
    """
    op = "fold"
    extents = several(size)
    if extents is None or not 1 <= len(extents) <= 3:
        raise DescribeError(
            op,
            f"cannot take size={size!r}",
            because="there are one to three spatial axes",
            help=("size=(h, w)",),
        )
    axes = len(extents)
    check_tensor(op, "x", x, 2 + 2 * axes)
    image = tuple(size_expr(one, op) for one in extents)
    steps = integers(op, "stride", stride, axes, 1)
    wide, edges = integers(op, "dilation", dilation, axes, 1), paddings(op, padding, axes)
    words = (("stride", stride, 1), ("padding", padding, 0), ("dilation", dilation, 1))
    name = result_name(op, name, [x], ("", size, None), *words)
    total = "int32" if x.dtype == "bool" else wider(x.dtype)
    inner, counts = x.shape[2 : 2 + axes], x.shape[2 + axes :]
    window = tuple(reduce_axis(n, word) for n, word in zip(inner, "rqp"[:axes], strict=True))
    nothing = cast(0, total)

    def added(*at: Value) -> Value:
        inside, places = list[Value](), list[Value]()
        for n in range(axes):
            over = at[2 + n] + edges[n][0] - window[n] * wide[n]
            place = over // steps[n]
            is_inside = (over >= 0) & (place < counts[n])
            inside.append(is_inside & (over % steps[n] < 1) if steps[n] > 1 else is_inside)
            places.append(place)
        read = element(x, (at[0], at[1], *window, *places), total)
        return sum_over(where(reduce(and_, inside), read, nothing), axis=window)

    result = x.dtype if total == "float32" else total
    shape, letters = (x.shape[0], x.shape[1], *image), "ncijl"[: 2 + axes]
    if result == total:
        return compute(shape, added, name, letters)
    sums = compute(shape, added, f"{name}_sum", letters)
    return compute(shape, lambda *at: cast(sums[at], result), name, letters)
