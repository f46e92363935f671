"""Images read at places between their elements, which an array names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from offcut.describe.functions import absolute, floor, index, maximum, minimum, round, where
from offcut.describe.tensor import Tensor, compute
from offcut.describe.value import Value, cast
from offcut.ops.checks import (
    check_dtype,
    check_tensor,
    choice,
    flag,
    of_operands,
    same_extent,
    unequal_error,
)
from offcut.ops.naming import result_name

MODES, PADDINGS = ("linear", "nearest"), ("zeros", "border", "reflection")
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
    for label, value, choices in (("mode", mode, MODES), ("padding", padding, PADDINGS)):
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
