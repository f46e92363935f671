"""Images of another size: the nearest element, or between the two or four nearest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

from offcut.core.dtypes import FLOATS
from offcut.core.integers import MOST_PARTS, simple_fraction
from offcut.core.sizes import size_expr
from offcut.describe.functions import floor, index, maximum, minimum, where
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
    same_extent,
    several,
    wider,
)
from offcut.ops.images.convolution import SPATIAL, check_layout
from offcut.ops.naming import result_name

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
