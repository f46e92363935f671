"""Sums of products of bytes that stand for numbers, from sums of products of the bytes.

In int32, whose sums wrap around in any order::

    sum over k of (q[i, k] - z[i]) * (w[k, j] - u[j])
        = sum over k of q[i, k] * w[k, j]  -  z[i] * sum over k of w[k, j]  -  u[j] * sum over k of q[i, k]  +  K * z[i] * u[j]

A uint8 operand that should be signed is taken less 128, which is its highest bit flipped, and its zero point with it. Padding stands for
0, and is the zero point itself; so a window holds as many elements everywhere, and what is taken from each sum is the zero point times the
sum of a filter.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from offcut.core import index as ix
from offcut.graph.builder import Builder
from offcut.graph.call_conditions import of_size
from offcut.graph.graph import Argument, Node, Ref, Value

BYTES = ("int8", "uint8")
PRODUCTS = {"conv1d": 1, "conv2d": 2, "conv3d": 3, "dense": 0, "matmul": 0}
"""Sums of products, with the axes of their windows."""

Parameter = int | float | Ref
"""A scale or a zero point: a number, or a value of shape () or (channels,)."""


@dataclass(frozen=True)
class Quantized:
    """What stands for ``(integers - zero) * scale``.

    scale  None: 1, of integers that stay integers
    axis   that parameters of several places run along
    nodes  the nodes that compute it, where nothing better is known
    """

    integers: Ref
    zero: Parameter
    scale: Parameter | None
    axis: int
    nodes: tuple[Node, ...]

    def is_like(self, other: Quantized) -> bool:
        """Return whether both have the same scale, zero point and axis."""
        mine, theirs = ((one.zero, one.scale, one.axis) for one in (self, other))
        return mine == theirs


class ByteProducts:
    """Products of bytes in a graph that is built."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder

    def op(self, op: str, *arguments: Any, **options: Any) -> Ref:
        """Add an operator; return its result."""
        result: Ref = self.builder.node(op, *arguments, **options)
        return result

    def value(self, ref: Ref) -> Value:
        """Return the declaration of a value of the graph: its shape and element type."""
        return self.builder.values[ref.name]

    def numbers(self, ref: Ref) -> list[int] | None:
        """Return the extents of a value; None where one is symbolic."""
        values = [ix.literal_value(extent) for extent in self.builder.shape(ref)]
        numbers = [extent for extent in values if extent is not None]
        return numbers if len(numbers) == len(values) else None

    def along(self, parameter: Parameter, rank: int, axis: int) -> Parameter:
        """Return a parameter of shape (channels,) as it broadcasts along `axis` against an array of `rank` axes; others as they are."""
        if not isinstance(parameter, Ref) or len(self.builder.shape(parameter)) != 1:
            return parameter
        (count,) = self.builder.shape(parameter)
        return self.op("reshape", parameter, tuple(count if n == axis else 1 for n in range(rank)))

    def is_one(self, parameter: Parameter | None) -> bool:
        """Return whether a parameter is a scalar."""
        return not isinstance(parameter, Ref) or not self.builder.shape(parameter)

    def is_zero(self, zero: Parameter) -> bool:
        """Return whether a zero point is known to be 0."""
        return self.builder.is_zero(zero) if isinstance(zero, Ref) else zero == 0

    def to_signed(self, operand: Quantized) -> Quantized:
        """Return an operand of int8: unsigned bytes less 128, and their zero point with them."""
        if self.value(operand.integers).dtype == "int8":
            return operand
        wide = self.op("subtract", self.op("cast", operand.integers, "int32"), 128)
        zero = operand.zero
        less = self.op("subtract", zero, 128) if isinstance(zero, Ref) else int(zero) - 128
        return replace(operand, integers=self.op("cast", wide, "int8"), zero=less)

    def less(self, bias: Ref | None, amount: Ref) -> Ref:
        """Return a bias, 0 where there is none, less an amount."""
        return self.op("negative", amount) if bias is None else self.op("subtract", bias, amount)

    def matrices(
        self, op: str, a: Quantized, b: Quantized, bias: Ref | None, options: dict[str, Any]
    ) -> Ref | None:
        """Return the sums of a product of matrices; None where a zero point is neither for all nor for each row of a, or each column of b."""
        rank = len(self.builder.shape(a.integers))
        if not self.is_one(a.zero) and a.axis != rank - 2:
            return None
        b, lines, more = self.to_signed(b), bool(options.get("transpose_w")), None
        row, rows = self.along(a.zero, rank, rank - 2), not self.is_zero(a.zero)
        op = "dense" if len(self.builder.shape(b.integers)) == 2 else op
        if rows:
            sums = self.op("sum", b.integers, axis=(-1 if lines else -2,), keepdims=not lines)
            more = self.op("multiply", sums, row)
            if isinstance(row, int) and op == "dense":
                columns = self.builder.shape(more)[-1]
                bias, more = self.less(bias, self.op("reshape", more, (columns,))), None
        total = self.op(op, a.integers, b.integers, **options, **({"bias": bias} if bias else {}))
        if more is not None:
            total = self.op("subtract", total, more)
        if not self.is_zero(b.zero):
            sums = self.op("sum", a.integers, axis=(-1,), keepdims=True)
            if rows:
                depth = self.builder.shape(a.integers)[-1]
                count = of_size(self.op, depth, "int32", tuple(self.builder.sizes.values()))
                sums = self.op("subtract", sums, self.op("multiply", count, row))
            total = self.op("subtract", total, self.op("multiply", sums, b.zero))
        return total

    def convolution(
        self, op: str, a: Quantized, b: Quantized, bias: Ref | None, options: dict[str, Any]
    ) -> Ref | None:
        """Return the sums of a convolution; None where zero points of the image differ between channels, or one of weights is in groups of several results."""
        axes, padding = PRODUCTS[op], _pairs(options.get("padding", 0), PRODUCTS[op])
        groups, filters = options.get("groups", 1), self.numbers(b.integers)
        if not self.is_one(a.zero) or padding is None or filters is None:
            return None
        b = self.to_signed(b)
        apart = not self.is_zero(b.zero)
        if apart and groups not in (1, filters[0]):
            return None
        shifts = not self.is_zero(a.zero)
        if shifts:
            sums = self.op("sum", b.integers, axis=tuple(range(1, axes + 2)))
            bias = self.less(bias, self.op("multiply", sums, a.zero))
        x = a.integers
        if any(map(any, padding)):
            before, after = ((0, 0, *ends) for ends in zip(*padding, strict=True))
            value = a.zero
            if isinstance(value, Ref):
                value = self.op("cast", value, self.value(x).dtype)
            x = self.op("pad", x, before, after, value=value)
        plain = {**options, "padding": ((0, 0),) * axes}
        total = self.of_lines(op, x, b.integers, {**plain, **({"bias": bias} if bias else {})})
        if not apart:
            return total
        array = np.ones((groups, *filters[1:]), np.int8)
        sums = self.of_lines(op, x, self.builder.constant(self.builder.fresh("ones"), array), plain)
        if shifts:
            shift, count = a.zero, prod(filters[1:])
            shift = self.op("multiply", shift, count) if isinstance(shift, Ref) else count * shift
            sums = self.op("subtract", sums, shift)
        return self.op(
            "subtract", total, self.op("multiply", sums, self.along(b.zero, axes + 2, 1))
        )

    def of_lines(self, op: str, x: Ref, w: Ref, options: dict[str, Any]) -> Ref:
        """Return a convolution in which the elements of a window along the last axis are terms of one sum, with their channels all in a line.

        Channels lie side by side in memory, so windows are a view. A step takes several bytes: short sums would end before they pay for what
        comes before and after them.
        """
        axes, channels = PRODUCTS[op], ix.literal_value(self.builder.shape(x)[1])
        filters = self.numbers(w)
        step, apart = (_each(options.get(name, 1), axes) for name in ("stride", "dilation"))
        alone = options.get("groups", 1) == 1 and apart[-1] == 1
        if not alone or channels is None or filters is None or filters[-1] == 1:
            return self.op(op, x, w, **options)
        width = filters[-1]
        order, inverse = (0, *range(2, axes + 2), 1), (0, axes + 1, *range(1, axes + 1))
        by_channel = self.op("transpose", self.op("transpose", x, axes=order), axes=inverse)
        windows = self.op("sliding_windows", by_channel, axes + 1, width, step=step[-1])
        transposed = self.op("transpose", windows, axes=(0, *range(2, axes + 3), 1))
        lead = self.builder.shape(transposed)[: axes + 1]
        image = self.op("reshape", transposed, (*lead, channels * width))
        lines = self.op("transpose", w, axes=(0, axes + 1, 1, *range(2, axes + 1)))
        lines = self.op("reshape", lines, (filters[0], channels * width, *filters[2:-1], 1))
        image = self.op("transpose", image, axes=inverse)
        return self.op(op, image, lines, **{**options, "stride": (*step[:-1], 1)})


def _each(option: Argument, axes: int) -> tuple[Any, ...]:
    """Return an option of a window, for each of its axes."""
    return option if isinstance(option, tuple) else (option,) * axes


def _pairs(padding: Argument, axes: int) -> tuple[tuple[int, int], ...] | None:
    """Return the padding before and after each axis; None for a padding by name."""
    if isinstance(padding, str):
        return None
    ends = [(one, one) if isinstance(one, int) else one for one in _each(padding, axes)]
    return tuple(ends) if len(ends) == axes else None
