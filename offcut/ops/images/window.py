"""Windows over spatial axes: extent, stride, padding and dilation; taken apart, and put back and added up.

Windows apart, as a convolution gathers them, and put back and added up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Any, TypeAlias

from offcut.core.sizes import quotient, size_expr
from offcut.describe.functions import reduce_axis, where
from offcut.describe.functions import sum as sum_over
from offcut.describe.tensor import Tensor, compute
from offcut.describe.value import Value, cast
from offcut.errors import DescribeError
from offcut.ops.checks import (
    axis_letters,
    check_tensor,
    element,
    integers,
    result_name,
    several,
    wider,
)

Pair: TypeAlias = int | Sequence[int]
Padding: TypeAlias = int | str | Sequence[int | Sequence[int]]


@dataclass(frozen=True, slots=True)
class Window:
    """``result[i] reads x[i*stride + r*dilation - before]`` for ``0 <= r < size``, along one axis.

    extent          of the axis of x, an expression in sizes
    before, after   elements of padding; `before` may be an expression in sizes
    """

    extent: Any
    size: int
    stride: int
    dilation: int
    before: Any
    after: Any

    @property
    def reach(self) -> int:
        """Elements from the first that is read to the last."""
        return (self.size - 1) * self.dilation + 1

    @property
    def results(self) -> Any:
        """How many places the window has."""
        return quotient(self.extent + self.before + self.after - self.reach, self.stride) + 1

    def at(self, i: Value, r: Value) -> Value:
        """Where the window at `i` reads its element `r`."""
        place: Value = i * self.stride + r * self.dilation - self.before
        return place

    def inside(self, position: Value) -> list[Value]:
        """The conditions under which `position` is not padding."""
        below = [] if self.before == 0 else [position >= 0]
        return below if self.after == 0 else [*below, position < self.extent]


def windows(
    op: str,
    extents: Sequence[Any],
    sizes: Sequence[int],
    stride: Pair,
    padding: Padding,
    dilation: Pair = 1,
) -> tuple[Window, ...]:
    """A window along each axis, checked.

    padding   elements before and after: an int, one for each axis, (before, after) for each axis, or
              "same": as many results as ``ceil(extent / stride)``, the odd element after

    Raises DescribeError where an argument is no such thing, or no place for the window is left.
    """
    axes = len(extents)
    strides, dilations = (
        integers(op, "stride", stride, axes, 1),
        integers(op, "dilation", dilation, axes, 1),
    )
    result = []
    for n, (extent, size) in enumerate(zip(extents, sizes, strict=True)):
        reach = (size - 1) * dilations[n] + 1
        before, after = (
            _same(op, extent, reach, strides[n])
            if isinstance(padding, str) and padding == "same"
            else paddings(op, padding, axes)[n]
        )
        window = Window(extent, size, strides[n], dilations[n], before, after)
        if window.results.is_Integer and window.results < 0:
            raise DescribeError(
                op,
                f"cannot place a window of {reach}",
                at=f"spatial axis {n} of {extent} elements, padding ({before}, {after})",
                because=f"it is longer than the {extent + before + after} elements",
                help=("a larger padding",),
            )
        result.append(window)
    return tuple(result)


def paddings(op: str, padding: Any, axes: int) -> tuple[tuple[int, int], ...]:
    """Elements before and after each spatial axis; raises DescribeError where `padding` gives none."""
    each = several(padding)
    if each is not None and any(several(n) is not None for n in each):
        if len(each) == axes:
            both = [integers(op, "padding", n, 2, 0) for n in each]
            return tuple((before, after) for before, after in both)
    elif not isinstance(padding, str):
        return tuple((n, n) for n in integers(op, "padding", padding, axes, 0))
    raise DescribeError(
        op,
        f"cannot take padding={padding!r}",
        because='padding is "same", an int, one for each spatial axis, or (before, after) for each',
        help=("padding=1", 'padding="same"'),
    )


def _same(op: str, extent: Any, reach: int, stride: int) -> tuple[Any, Any]:
    """Padding with ``ceil(extent / stride)`` results, the odd element after."""
    if stride == 1:
        return (reach - 1) // 2, reach // 2
    places = (extent + stride - 1) // stride
    total = (places - 1) * stride + reach - extent
    if total.is_Integer:
        whole = max(int(total), 0)
        return whole // 2, whole - whole // 2
    if reach < stride:
        if reach <= 2:
            return 0, reach - 1
        raise DescribeError(
            op,
            'cannot take padding="same"',
            at=f"a spatial axis of {extent} elements",
            because=f"a stride of {stride} beyond a window of {reach} wants no affine padding",
            help=("padding=((before, after), …)",),
        )
    return total // 2, total - total // 2


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
