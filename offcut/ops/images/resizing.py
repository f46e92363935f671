"""Images of another size, and images read at places between their elements, which an array names.

Images read at places between their elements, which an array names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

from offcut.core.dtypes import FLOATS
from offcut.core.integers import MOST_PARTS, simple_fraction
from offcut.core.sizes import size_expr
from offcut.describe.functions import absolute, floor, index, maximum, minimum, round, where
from offcut.describe.tensor import Tensor, compute
from offcut.describe.value import Value, cast
from offcut.errors import DescribeError
from offcut.ops.checks import (
    axis_letters,
    check_dtype,
    check_tensor,
    choice,
    element,
    flag,
    number,
    of_operands,
    result_name,
    same_extent,
    several,
    unequal_error,
    wider,
)
from offcut.ops.images.convolution import SPATIAL, check_layout

MODES = ("nearest", "linear", "cubic")
CUBIC = -0.75
"""The constant of the cubic kernel of Keys, as torch and ONNX have it."""


def interpolate(
    x: Tensor,
    size: Any = None,
    scale: Any = None,
    mode: str = "nearest",
    align_corners: bool = False,
    layout: str | None = None,
    *,
    name: str | None = None,
) -> Tensor:
    """`x` with its spatial axes stretched or shrunk to `size`, or by `scale`.

    x               (n, c, …) with one to three spatial axes, or (n, …, c) with a layout such as "NHWC";
                    floats for modes "linear" and "cubic"
    size            extents of the result: an int or an expression in sizes, or one for each axis
    scale           instead of it: a number above 0, or one for each axis, a fraction with a denominator
                    of 4096 at most; the result has ``floor(h * scale)`` rows
    mode            "nearest": place i is the element ``floor(i / scale)``, exactly;
                    "linear": between the elements around ``(i + 1/2) / scale - 1/2``, the first and the
                    last going on outwards; along one axis after the other;
                    "cubic": between the four around, by the kernel of Keys (1981)
    align_corners   of modes "linear" and "cubic": between those around ``i * (h - 1) / (size - 1)``, so that the
                    first and the last keep their places
    layout          None: channels are axis 1

    Where `size` is given, scale is size / h. Places that are affine in i, those of a scale or of extents
    that are all ints, are indices as they are; others are computed first, of float64. bfloat16 and
    float16 are calculated in float32 and rounded once.

    Raises DescribeError where the rank, the type or an argument does not fit.
    """
    op = "interpolate"
    check_tensor(op, "x", x, 3, 4, 5)
    axes = len(x.shape) - 2
    layouts = tuple(word for word, count in SPATIAL.items() if count == axes)
    last = layout is not None and check_layout(op, layout, layouts)
    choice(op, "mode", mode, MODES)
    if mode != "nearest":
        check_dtype(op, "x", x, FLOATS)
    corners = flag(op, "align_corners", align_corners) and mode != "nearest"
    spatial = range(1, axes + 1) if last else range(2, axes + 2)
    stretched = _resize_axes(op, [x.shape[n] for n in spatial], size, scale)
    words = (
        *(("", size, None), ("scale", scale, None), ("", mode, "nearest")),
        *(("corners", corners, False), ("", layouts[last] if last else None, None)),
    )
    name, letters = result_name(op, name, [x], *words), axis_letters(len(x.shape))
    if mode == "nearest":
        shape = list(x.shape)
        for n, one in zip(spatial, stretched, strict=True):
            shape[n] = one.places
        nearest = {
            n: one.nearest(f"{name}_places_{letters[n]}")
            for n, one in zip(spatial, stretched, strict=True)
        }

        def transposed(*at: Value) -> Value:
            return x[tuple(nearest[n](i) if n in nearest else i for n, i in enumerate(at))]

        return compute(shape, transposed, name, letters)
    total, resized = wider(x.dtype), x
    order = [*zip(spatial, stretched, strict=True)]
    if mode == "cubic":  # elements that lie anywhere are read of the smaller image
        order.reverse()
    for n, one in order:
        final = n == order[-1][0] and total == x.dtype
        between = one.cubic if mode == "cubic" else one.between
        resized = between(resized, n, corners, total, name if final else f"{name}_{letters[n]}")
    if total == x.dtype:
        return resized
    return compute(resized.shape, lambda *at: cast(resized[at], x.dtype), name, letters)


@dataclass(frozen=True, slots=True)
class _Stretched:
    """An axis of `extent` elements that becomes one of `places`.

    scale   places for each element, as a fraction of ints or of sizes
    """

    extent: Any
    places: Any
    scale: tuple[Any, Any]

    @property
    def affine(self) -> bool:
        """Whether the scale is a ratio of ints."""
        return all(bool(part.is_Integer) for part in self.scale)

    def nearest(self, name: str) -> Callable[[Value], Value]:
        """The element for each place."""
        if same_extent(self.extent, self.places):
            return lambda i: i
        if self.affine:
            many, of = map(int, self.scale)
            return lambda i: i * of // many

        def place(i: Value) -> Value:
            many, of = (cast(part, "float64") for part in self.scale)
            return cast(cast(i, "float64") * of / many, "int32")

        places = compute((self.places,), place, name)
        return lambda i: index(places[i])

    def between(self, x: Tensor, axis: int, corners: bool, total: str, name: str) -> Tensor:
        """`x`, each place along `axis` between the two elements around it."""
        letters = axis_letters(len(x.shape))
        shape = (*x.shape[:axis], self.places, *x.shape[axis + 1 :])

        def read(at: tuple[Value, ...], place: Any) -> Value:
            return element(x, (*at[:axis], place, *at[axis + 1 :]), total)

        if same_extent(self.extent, self.places):
            return compute(shape, lambda *at: read(at, at[axis]), name, letters)
        if self.affine and (not corners or self.extent.is_Integer):
            return compute(shape, lambda *at: self._affine(at, axis, corners, read), name, letters)
        before, share = self._tables(corners, total, name)

        def mixed(*at: Value) -> Value:
            i = at[axis]
            first = index(before[i])
            second = minimum(first + 1, self.extent - 1)
            return read(at, first) * (1.0 - share[i]) + read(at, second) * share[i]

        return compute(shape, mixed, name, letters)

    def cubic(self, x: Tensor, axis: int, corners: bool, total: str, name: str) -> Tensor:
        """`x`, each place along `axis` between the four elements around it; beyond the ends the first and the last go on.

        Places and weights are tables, one of each for each of the four.
        """
        letters = axis_letters(len(x.shape))
        shape = (*x.shape[:axis], self.places, *x.shape[axis + 1 :])

        def read(at: tuple[Value, ...], place: Any) -> Value:
            return element(x, (*at[:axis], place, *at[axis + 1 :]), total)

        if same_extent(self.extent, self.places):
            return compute(shape, lambda *at: read(at, at[axis]), name, letters)

        def place(i: Value, step: int) -> Value:
            meant = cast(floor(self._position(i, corners)), "int32") + step
            return maximum(minimum(meant, cast(self.extent - 1, "int32")), 0)

        def weight(i: Value, step: int) -> Value:
            position = self._position(i, corners)
            share = position - floor(position)
            away = share - step if step < 1 else step - share
            if step in (0, 1):
                value = ((CUBIC + 2) * away - (CUBIC + 3)) * away * away + 1.0
            else:
                value = ((CUBIC * away - 5 * CUBIC) * away + 8 * CUBIC) * away - 4 * CUBIC
            return cast(value, total)

        tables = [
            tuple(
                compute((self.places,), partial(table, step=step), f"{name}_{label}_{n}", "i")
                for label, table in (("place", place), ("weight", weight))
            )
            for n, step in enumerate((-1, 0, 1, 2))
        ]

        def mixed(*at: Value) -> Value:
            i = at[axis]
            terms = [read(at, index(there[i])) * share[i] for there, share in tables]
            return terms[0] + terms[1] + terms[2] + terms[3]

        return compute(shape, mixed, name, letters)

    def _position(self, i: Value, corners: bool) -> Value:
        """Where a place lies among the elements, in float64."""
        own = cast(i, "float64")
        if corners:
            over, under = cast(self.extent, "float64") - 1.0, cast(self.places, "float64") - 1.0
            return own * over / maximum(under, 1.0)
        many, of = (cast(part, "float64") for part in self.scale)
        return ((2.0 * own + 1.0) * of - many) / (2.0 * many)

    def _affine(
        self,
        at: tuple[Value, ...],
        axis: int,
        corners: bool,
        read: Callable[[tuple[Value, ...], Any], Value],
    ) -> Value:
        i, end = at[axis], self.extent - 1
        if corners:
            over, under = i * int(end), max(int(self.places) - 1, 1)
        else:
            many, of = map(int, self.scale)
            over, under = (2 * i + 1) * of - many, 2 * many
        first = read(at, over // under)
        share = cast(over % under, first.dtype) * (1.0 / under)
        mixed = first * (1.0 - share) + read(at, over // under + 1) * share
        inner = where(over < end * under, mixed, read(at, end))
        return inner if corners else where(over < 0, read(at, 0), inner)

    def _tables(self, corners: bool, total: str, name: str) -> tuple[Tensor, Tensor]:
        """The element before each place, and the share of the one after it."""

        def position(i: Value) -> Value:
            exact = self._position(i, corners)
            return minimum(maximum(exact, 0.0), cast(self.extent, "float64") - 1.0)

        before = compute((self.places,), lambda i: cast(position(i), "int32"), f"{name}_before")
        share = compute(
            (self.places,),
            lambda i: cast(position(i) - cast(before[i], "float64"), total),
            f"{name}_share",
        )
        return before, share


def _resize_axes(op: str, extents: list[Any], size: Any, scale: Any) -> list[_Stretched]:
    if (size is None) == (scale is None):
        raise DescribeError(
            op,
            "cannot tell the size of the result",
            because="either size or scale is given",
            help=("scale=2", "size=(64, 48)"),
        )
    requested = scale if size is None else size
    each = several(requested)
    parts = (requested,) * len(extents) if each is None else each
    if len(parts) != len(extents):
        raise DescribeError(
            op,
            f"cannot take {'scale' if size is None else 'size'}={requested!r}",
            because=f"there are {len(extents)} spatial axes",
        )
    stretched = []
    for extent, part in zip(extents, parts, strict=True):
        if size is None:
            ratio = _ratio(op, part)
            over, under = size_expr(ratio.numerator, op), size_expr(ratio.denominator, op)
            places = extent * over // under
            stretched.append(_Stretched(extent, places, (over, under)))
        else:
            places = size_expr(part, op)
            stretched.append(_Stretched(extent, places, (places, extent)))
    return stretched


def _ratio(op: str, scale: Any) -> Fraction:
    known = number(scale)
    near = None if known is None else simple_fraction(known)
    if near is None:
        raise DescribeError(
            op,
            f"cannot take scale={scale!r}",
            because=f"a scale is a fraction above 0 with a denominator of at most {MOST_PARTS}",
            help=("size=(…), an expression in sizes",),
        )
    return near


SAMPLING_MODES, PADDINGS = ("linear", "nearest"), ("zeros", "border", "reflection")
_FAR = 2.0**24
"""Beyond which a place in float32 is none of an image."""


def grid_sample(
    x: Tensor,
    grid: Tensor,
    mode: str = "linear",
    padding: str = "zeros",
    align_corners: bool = False,
    *,
    name: str | None = None,
) -> Tensor:
    """Return ``result[n, c, i, j]``: channel c of image n at the place that ``grid[n, i, j]`` names, (along w, along h).

    x               images (n, c, h, w) of float32 or float64
    grid            (n, i, j, 2) of the same type: -1 and 1 are the ends of an axis
    mode            "linear": between the four elements around; "nearest": the one that is nearest, of two the even one
    padding         what is beyond an image: "zeros"; "border", its nearest element; "reflection", its mirror image
    align_corners   whether its ends are the middles of its first and its last element, not their outer edges

    A place that is no number is beyond the image. Torch: `grid_sample`. Raises DescribeError where shapes, types or options do not fit.
    """
    op = "grid_sample"
    check_tensor(op, "x", x, 4)
    check_tensor(op, "grid", grid, 4)
    for label, tensor in (("x", x), ("grid", grid)):
        check_dtype(op, label, tensor, ("float32", "float64"))
    if grid.dtype != x.dtype or not (same_extent(grid.shape[0], x.shape[0]) and grid.shape[3] == 2):
        raise unequal_error(
            op,
            f"cannot read {x!r} at {grid!r}",
            (x.shape[0], grid.shape[0]),
            (grid.shape[3], 2),
            at="",
            because="a grid is (n, i, j, 2), of the batch and the type of the images",
        )
    for label, value, choices in (("mode", mode, SAMPLING_MODES), ("padding", padding, PADDINGS)):
        choice(op, label, value, choices)
    corners = flag(op, "align_corners", align_corners)
    words = (("", mode, "linear"), ("", padding, "zeros"), ("corners", corners, False))
    name = result_name(op, name, [x, grid], *words)
    shape = grid.shape[:3]
    axes = [
        _Axis(grid, 1 - n, x.shape[2 + n], mode, padding, corners, f"{name}_{letter}", shape)
        for n, letter in enumerate("hw")
    ]

    def sampled(n: Value, c: Value, i: Value, j: Value) -> Value:
        def read(rows: _Tap, columns: _Tap) -> Value:
            (row, in_rows), (column, in_columns) = (one(n, i, j) for one in (rows, columns))
            element = x[n, c, row, column]
            if padding != "zeros":
                return element
            return where(minimum(in_rows, in_columns) > 0, element, cast(0, x.dtype))

        lines = [
            _interpolate(
                [read(rows, columns) for columns in axes[1].taps], axes[1].share, (n, i, j)
            )
            for rows in axes[0].taps
        ]
        return _interpolate(lines, axes[0].share, (n, i, j))

    result = compute((*x.shape[:2], *grid.shape[1:3]), sampled, name, "ncij")
    return of_operands(result, x, grid)


_Tap = Callable[[Value, Value, Value], tuple[Value, Value]]
"""From a place of the result to an element of an axis, which is in the axis, and 1 where the one that is meant is, else 0."""


def _interpolate(values: list[Value], share: Tensor | None, at: tuple[Value, ...]) -> Value:
    """Return what lies between two values, or the one."""
    if share is None:
        return values[0]
    return values[0] * (1.0 - share[at]) + values[1] * share[at]


class _Axis:
    """What is read along one axis.

    taps   the element, or the two around a place
    share  of the second; None: there is one
    """

    def __init__(
        self,
        grid: Tensor,
        number: int,
        extent: Any,
        mode: str,
        padding: str,
        corners: bool,
        name: str,
        shape: tuple[Any, ...],
    ) -> None:
        def along(n: Value, i: Value, j: Value) -> Value:
            size, own = cast(extent, grid.dtype), grid[n, i, j, number] + 1.0
            return own * (size - 1.0) * 0.5 if corners else (own * size - 1.0) * 0.5

        centers = compute(shape, along, f"{name}_center", "nij")

        def place(n: Value, i: Value, j: Value) -> Value:
            size, center = cast(extent, grid.dtype), centers[n, i, j]
            if padding == "reflection":
                center = _mirror(center, size, corners)
            if padding != "zeros":
                return minimum(maximum(center, 0.0), size - 1.0)
            inside = (center > -_FAR) & (center < _FAR)
            return where(inside, center, -_FAR)

        places = compute(shape, place, f"{name}_place", "nij")
        whole = round if mode == "nearest" else floor
        first = compute(shape, lambda *at: cast(whole(places[at]), "int32"), f"{name}_first", "nij")
        self.share = None
        if mode == "linear":
            self.share = compute(
                shape, lambda *at: places[at] - floor(places[at]), f"{name}_share", "nij"
            )

        def tap(step: int) -> _Tap:
            def within(*at: Value) -> Value:
                meant = first[at] + step
                return where((meant >= 0) & (meant < cast(extent, "int32")), cast(1, "int32"), 0)

            inside = compute(shape, within, f"{name}_inside_{step}", "nij")

            def element(*at: Value) -> tuple[Value, Value]:
                meant = index(first[at]) + step
                return maximum(minimum(meant, extent - 1), 0), inside[at]

            return element

        self.taps = [tap(step) for step in range(2 if mode == "linear" else 1)]


def _mirror(place: Value, size: Value, corners: bool) -> Value:
    """Return a place mirrored about the ends of an axis until it is between them."""
    low, span = (0.0, size - 1.0) if corners else (-0.5, size)
    away = absolute(place - low)
    turns = floor(away / maximum(span, 1.0))
    distance = away - turns * span
    even = floor(turns * 0.5) * 2.0 == turns
    return where(span > 0.0, where(even, distance, span - distance) + low, 0.0)
