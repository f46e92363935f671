"""Windows over spatial axes: extent, stride, padding and dilation of convolutions and pooling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from offcut.core.sizes import quotient
from offcut.describe.value import Value
from offcut.errors import DescribeError
from offcut.ops.checks import integers, several

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
