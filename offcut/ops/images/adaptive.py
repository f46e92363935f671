"""The mean or the greatest of windows that cut an image into a given number of parts."""

from __future__ import annotations

from typing import Any

from offcut.core.dtypes import reduction_start
from offcut.describe.functions import max as max_over
from offcut.describe.functions import reduce_axis, where
from offcut.describe.functions import sum as sum_over
from offcut.describe.tensor import Tensor, compute
from offcut.describe.value import Value, cast
from offcut.errors import DescribeError
from offcut.ops.given.naming import named
from offcut.ops.given.operands import check_floats, check_tensor, element, wider
from offcut.ops.images.convolution import check_layout, window_names
from offcut.ops.images.window import Pair, pair
from offcut.ops.rearranging.copies import MOST_ALONG

LAYOUTS = ("NCHW", "NHWC")


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
    sums = windows.joined("sum", total)

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
    return _Windows("adaptive_max_pool2d", x, size, layout, name).joined("max", x.dtype)


class _Windows:
    """The windows of an image, axis by axis."""

    def __init__(self, op: str, x: Tensor, size: Pair, layout: str, name: str | None) -> None:
        check_tensor(op, "x", x, 4)
        check_floats(op, "x", x)
        last = check_layout(op, layout, LAYOUTS)
        sizes = pair(op, "size", size, 2, 1)
        _check_places(op, x, sizes, last)
        self.x = x
        self.name = named(op, name, [x], ("", sizes, None), ("", layout, "NCHW"))
        self.spatial = (1, 2) if last else (2, 3)
        self.letters = ("n", "y", "x", "c") if last else ("n", "c", "y", "x")
        each = zip(self.spatial, sizes, strict=True)
        self.parts = [_Parts(x.shape[axis], count) for axis, count in each]

    def joined(self, kind: str, total: str) -> Tensor:
        """The sum or the greatest of each, in the type `total`: rows first, then columns."""
        partial_, steps = self.x, window_names(2)[1]
        for axis, part, step in zip(self.spatial, self.parts, steps, strict=True):
            last = kind == "max" and axis == self.spatial[-1]
            name = self.name if last else f"{self.name}_{self.letters[axis]}"
            partial_ = part.joined(kind, partial_, axis, name, self.letters, step, total)
        return partial_


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

    def joined(
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
