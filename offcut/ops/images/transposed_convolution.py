"""Transposed convolutions: every element of an image spread over a window of the result.

Where a window of k elements moves by s, the element i of the result is met by the rows r of the window with
``i + p - r`` a multiple of s: those that leave the same remainder f as ``i + p`` does. With r = f + t*s and
``i + p = a*s + f`` the sum is

    sum over t of x[a - t] * w[f + t*s]

a convolution of stride 1 over t for each phase f, in which nothing is multiplied that another phase needs. The first
``k mod s`` phases have one t more than the others. The phases are computed as tensors with axes a and f, one for each
number of t, and the result reads them at ``(i + p) // s`` and ``(i + p) mod s``; their channels come last in any layout,
so that the sums are those of products by rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from itertools import product
from operator import and_
from typing import Any

from offcut.core.dtypes import FLOATS
from offcut.describe.functions import reduce_axis, where
from offcut.describe.functions import sum as sum_over
from offcut.describe.tensor import Tensor, compute
from offcut.describe.value import Value, cast
from offcut.ops.checks import check_result, element, integers, result_name, wider
from offcut.ops.images.convolution import (
    check_channels,
    check_operands,
    group_count,
    window_names,
)
from offcut.ops.images.window import Padding, Pair, paddings
from offcut.ops.products.matmul import epilogue


def conv_transpose2d(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    stride: Pair = 1,
    padding: Padding = 0,
    output_padding: Pair = 0,
    dilation: Pair = 1,
    groups: int = 1,
    layout: str = "NCHW",
    activation: str | None = None,
    residual: Tensor | None = None,
    dtype: str | None = None,
    *,
    name: str | None = None,
) -> Tensor:
    """``activation(y + bias) + residual``, where y adds up what each element of x spreads.

    With padding p, stride s and dilation d, element by element::

        y[n, o, i*s + r*d - p, j*s + q*d - p] += x[n, c, i, j] * w[c, o, r, q]

    x                (n, c, h, w), or (n, h, w, c) with layout "NHWC"; n, h and w symbolic or not
    w                (c, o/groups, kh, kw), or (kh, kw, c, o/groups) with layout "NHWC"; kh and kw are
                     ints; of the type of `x`, or int8 where `x` is uint8
    bias             (o,)
    stride           an int, or one for each spatial axis, at least 1; dilation likewise
    padding          left out of the result: an int, one for each spatial axis, or (before, after) for
                     each
    output_padding   more rows and columns after the last: an int, or one for each spatial axis
    groups           divides c, which is an int then; each group of input channels gives the next
                     output channels
    activation       as in `dense`
    residual         of the result's shape, added after the activation
    dtype            of the result; None: that of `x`, int32 for int8 and uint8

    The result has ``(h - 1)*s + (kh - 1)*d + 1 - before - after + output_padding`` rows; sizes at which
    that is negative are refused when the program is compiled. Sums are accumulated as in `dense`.

    Raises DescribeError where ranks, extents or element types do not fit, or there is no such layout or
    activation.
    """
    options = (stride, padding, output_padding, dilation, groups)
    ends = (bias, activation, residual, dtype)
    return _transpose_convolution(
        "conv_transpose2d", ("NCHW", "NHWC"), x, w, options, layout, ends, name
    )


def conv_transpose3d(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    stride: Pair = 1,
    padding: Padding = 0,
    output_padding: Pair = 0,
    dilation: Pair = 1,
    groups: int = 1,
    layout: str = "NCDHW",
    activation: str | None = None,
    residual: Tensor | None = None,
    dtype: str | None = None,
    *,
    name: str | None = None,
) -> Tensor:
    """`conv_transpose2d` with three spatial axes.

    x        (n, c, d, h, w), or (n, d, h, w, c) with layout "NDHWC"
    w        (c, o/groups, kd, kh, kw), or (kd, kh, kw, c, o/groups) with layout "NDHWC"

    Raises DescribeError as `conv_transpose2d` does.
    """
    options = (stride, padding, output_padding, dilation, groups)
    ends = (bias, activation, residual, dtype)
    return _transpose_convolution(
        "conv_transpose3d", ("NCDHW", "NDHWC"), x, w, options, layout, ends, name
    )


def _transpose_convolution(
    op: str,
    layouts: tuple[str, str],
    x: Tensor,
    w: Tensor,
    options: tuple[Any, Any, Any, Any, Any],
    layout: str,
    ends: tuple[Tensor | None, str | None, Tensor | None, str | None],
    name: str | None,
) -> Tensor:
    stride, padding, output_padding, dilation, groups = options
    bias, activation, residual, dtype = ends
    last, extents, sizes = check_operands(op, layouts, layout, x, w)
    axes, channels = len(sizes), x.shape[-1 if last else 1]
    inner, outer = (w.shape[-2], w.shape[-1]) if last else (w.shape[0], w.shape[1])
    check_channels(op, x, w, inner, 1, channels)
    count = group_count(op, x, w, groups, input=channels)
    arguments = zip(
        extents,
        sizes,
        integers(op, "stride", stride, axes, 1),
        integers(op, "dilation", dilation, axes, 1),
        paddings(op, padding, axes),
        integers(op, "output_padding", output_padding, axes, 0),
        strict=True,
    )
    phases = tuple(_Phases(*one) for one in arguments)
    places = tuple(one.results for one in phases)
    filters = outer * count
    shape = (x.shape[0], *places, filters) if last else (x.shape[0], filters, *places)
    total = wider(x.dtype)
    result = check_result(op, dtype, total if total == "int32" else x.dtype)
    end = epilogue(op, shape, total, result, bias, -1 if last else 1, activation, residual)
    words = (
        *(("stride", stride, 1), ("padding", padding, 0), ("more", output_padding, 0)),
        *(("dilation", dilation, 1), ("groups", groups, 1), ("", layout, layouts[0])),
        *(*end.options, ("", dtype, None)),
    )
    name = result_name(op, name, [x, w], *words)
    spread = _Spread(x, w, phases, last, count, total, f"{name}_phases")
    across = window_names(axes)[0]
    letters = ("n", *across, "o") if last else ("n", "o", *across)
    return end.after(compute(shape, spread.at, end.name_of_total(name), letters), name)


@dataclass(frozen=True, slots=True)
class _Phases:
    """A spatial axis of `extent` elements, each spread over a window."""

    extent: Any
    window: int
    stride: int
    dilation: int
    padding: tuple[int, int]
    more: int

    @property
    def results(self) -> Any:
        """Elements of the result."""
        reach = (self.window - 1) * self.dilation + 1
        return (self.extent - 1) * self.stride + reach - sum(self.padding) + self.more

    @property
    def size(self) -> int:
        """Of the window with its holes, where there are phases to them."""
        holes = self.stride > 1
        return (self.window - 1) * self.dilation + 1 if holes else self.window

    @property
    def parts(self) -> tuple[tuple[int, int, int], ...]:
        """Phases with equally many terms: the first, how many, and their terms."""
        terms, longer = divmod(self.size, self.stride)
        both = ((0, longer, terms + 1), (longer, self.stride - longer, terms))
        return tuple(part for part in both if part[1])

    @property
    def places(self) -> Any:
        """Elements of a phase."""
        return (self.results - 1 + self.padding[0]) // self.stride - self.first + 1

    @property
    def first(self) -> int:
        """The element of x that term 0 of the first place reads."""
        return self.padding[0] // self.stride

    def position(self, a: Value, t: Value) -> Value:
        """The element of x that term t of place a reads."""
        place: Value = a + self.first - t * (self.dilation if self.stride == 1 else 1)
        return place

    def row(self, phase: Value | int, t: Value) -> tuple[Any, Any]:
        """The row of the window for term t, and the row of the window with its holes."""
        row = phase + t * self.stride
        return (row if self.stride == 1 or self.dilation == 1 else row // self.dilation), row


class _Spread:
    """The sums of `x` times `w`, by phases."""

    def __init__(
        self,
        x: Tensor,
        w: Tensor,
        phases: tuple[_Phases, ...],
        last: bool,
        groups: int,
        total: str,
        name: str,
    ) -> None:
        self.x, self.w, self.phases, self.last = x, w, phases, last
        self.groups, self.total = groups, total
        self.parts = {
            part: self._tensor(part, f"{name}_{'_'.join(str(one[0]) for one in part)}")
            for part in product(*(one.parts for one in phases))
            if all(terms for _, _, terms in part)
        }

    def at(self, *at: Value) -> Value:
        """The sum at a place of the result."""
        n, o = at[0], at[-1 if self.last else 1]
        places, remainders = [], []
        for one, i in zip(self.phases, at[1:-1] if self.last else at[2:], strict=True):
            places.append((i + one.padding[0]) // one.stride - one.first)
            remainders.append((i + one.padding[0]) % one.stride)

        def read(part: tuple[tuple[int, int, int], ...]) -> Value:
            if part not in self.parts:
                return cast(0, self.total)
            own = [f - one[0] for f, one in zip(remainders, part, strict=True) if one[1] > 1]
            return self.parts[part][(n, *places, *own, o)]

        def nested_choice(part: tuple[tuple[int, int, int], ...]) -> Value:
            if len(part) == len(self.phases):
                return read(part)
            *first, final = self.phases[len(part)].parts
            value = nested_choice((*part, final))
            for one in first:
                inside = remainders[len(part)] < one[0] + one[1]
                value = where(inside, nested_choice((*part, one)), value)
            return value

        return nested_choice(())

    def _tensor(self, part: tuple[tuple[int, int, int], ...], name: str) -> Tensor:
        x, w, last = self.x, self.w, self.last
        inner, outer = w.shape[-2 if last else 0], w.shape[-1 if last else 1]
        axes = len(self.phases)
        across, inside = window_names(axes)
        c = reduce_axis(inner // self.groups, "c")
        steps = tuple(
            reduce_axis(terms, word) for (_, _, terms), word in zip(part, inside, strict=True)
        )
        wide = [n for n, one in enumerate(part) if one[1] > 1]
        extents = [part[n][1] for n in wide]
        places = [one.places for one in self.phases]
        filters = outer * self.groups

        def term(*at: Value) -> Value:
            n, spatial, o = at[0], at[1 : axes + 1], at[-1]
            own = dict(zip(wide, at[axes + 1 : -1], strict=True))
            positions, rows, conditions = [], [], []
            for axis, (one, a, t) in enumerate(zip(self.phases, spatial, steps, strict=True)):
                position = one.position(a, t)
                row, holed = one.row(part[axis][0] + own.get(axis, 0), t)
                positions.append(position)
                rows.append(row)
                conditions += [position >= 0, position < one.extent]
                if one.stride > 1 and one.dilation > 1:
                    conditions.append(holed % one.dilation == 0)
            channel, filter_ = c, o
            if self.groups > 1:
                channel = o // outer * (inner // self.groups) + c
                filter_ = o % outer
            pixel = element(
                x, (n, *positions, channel) if last else (n, channel, *positions), self.total
            )
            weight = (*rows, channel, filter_) if last else (channel, filter_, *rows)
            pixel = where(reduce(and_, conditions), pixel, 0.0 if self.total in FLOATS else 0)
            return sum_over(pixel * element(w, weight, self.total), axis=(c, *steps))

        letters = ("n", *across, *(f"{across[n]}f" for n in wide), "o")
        shape = (x.shape[0], *places, *extents, filters)
        return compute(shape, term, name, letters)
