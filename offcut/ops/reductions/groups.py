"""Normalisation of each sample by the statistics of its own groups of channels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from offcut.core.dtypes import FLOATS
from offcut.core.integers import whole
from offcut.describe.functions import reduce_axis, sqrt
from offcut.describe.functions import sum as sum_over
from offcut.describe.tensor import Tensor, compute
from offcut.describe.value import Value, cast
from offcut.errors import DescribeError
from offcut.ops.checks import (
    axis_letters,
    axis_number,
    check_tensor,
    element,
    wider,
)
from offcut.ops.naming import Option, result_name
from offcut.ops.reductions.normalization import check_epsilon, check_parameter
from offcut.ops.reductions.reduction import count_of


def groupnorm(
    x: Tensor,
    groups: int,
    gain: Tensor | None = None,
    bias: Tensor | None = None,
    epsilon: float = 1e-5,
    axis: int = 1,
    *,
    name: str | None = None,
) -> Tensor:
    """``(x - mean) / sqrt(variance + epsilon) * gain + bias``, by sample and group of channels.

    x            (n, c, …) of floats; samples are axis 0
    groups       an int that divides c, which is an int; mean and variance are those of c / groups
                 neighbouring channels, and all that comes with them
    gain, bias   (c,)
    epsilon      at least 0
    axis         of the channels: 1 of NCHW, -1 of NHWC

    The variance is the mean of ``(x - mean)**2``: two passes, so that a large mean costs no digits.
    bfloat16 and float16 are calculated in float32 and rounded once.

    Raises DescribeError where ranks, extents or element types do not fit, or groups do not divide c.
    """
    channels = _channels("groupnorm", x, axis)
    count, extent = whole(groups), x.shape[channels]
    if count is None or count < 1 or not extent.is_Integer or extent % count:
        raise DescribeError(
            "groupnorm",
            f"cannot take groups={groups!r}",
            at=repr(x),
            because=f"it is not an int above 0 that divides the {extent} channels",
        )
    options = (("", count, None), ("axis", channels, 1))
    return _normalize("groupnorm", x, channels, count, gain, bias, epsilon, options, name)


def instancenorm(
    x: Tensor,
    gain: Tensor | None = None,
    bias: Tensor | None = None,
    epsilon: float = 1e-5,
    axis: int = 1,
    *,
    name: str | None = None,
) -> Tensor:
    """`groupnorm` in which each channel is a group of its own; c may be symbolic.

    x, gain, bias, epsilon, axis   as in `groupnorm`

    Raises DescribeError where ranks, extents or element types do not fit.
    """
    channels = _channels("instancenorm", x, axis)
    options = (("axis", channels, 1),)
    return _normalize("instancenorm", x, channels, None, gain, bias, epsilon, options, name)


def _channels(op: str, x: Tensor, axis: Any) -> int:
    check_tensor(op, "x", x, least=2, dtypes=FLOATS)
    position = axis_number(op, x, axis)
    if position == 0:
        raise DescribeError(
            op, f"cannot take axis={axis!r}", at=repr(x), because="samples are axis 0"
        )
    return position


def _normalize(
    op: str,
    x: Tensor,
    channels: int,
    groups: int | None,
    gain: Tensor | None,
    bias: Tensor | None,
    epsilon: Any,
    options: tuple[Option, ...],
    name: str | None,
) -> Tensor:
    rank, total, extent = len(x.shape), wider(x.dtype), x.shape[channels]
    for label, tensor in (("gain", gain), ("bias", bias)):
        if tensor is not None:
            check_parameter(op, label, tensor, extent, total)
    epsilon = check_epsilon(op, epsilon)
    affine_options = (("", gain, None), ("bias" if gain is None else "", bias, None))
    name = result_name(op, name, [x], *options, *affine_options, ("epsilon", epsilon, 1e-5))
    inner = 1 if groups is None else int(extent) // groups
    rows = (x.shape[0], extent if groups is None else groups)
    pixels = {n: reduce_axis(x.shape[n], f"r{n}") for n in range(1, rank) if n != channels}
    counted = [x.shape[n] for n in pixels]
    count = count_of([*counted, extent // groups] if groups and inner > 1 else counted, total)

    def group(c: Value) -> Value:
        return c if inner == 1 else c // inner

    def member(b: Value, c: Value) -> Value:
        at = {**pixels, 0: b, channels: c}
        return element(x, [at[n] for n in range(rank)])

    def added(label: str, term: Callable[[Value, Value], Value]) -> Tensor:
        """Of each group: of its channels first, so that those that lie side by side are added side by side."""

        def channel(b: Value, c: Value) -> Value:
            return sum_over(term(b, c), axis=tuple(pixels.values())) if pixels else term(b, c)

        if inner == 1:
            return compute(rows, channel, f"{name}_{label}")
        parts = compute((x.shape[0], extent), channel, f"{name}_{label}_channels")
        r = reduce_axis(inner, f"r{channels}")
        return compute(
            rows, lambda b, g: sum_over(parts[b, g * inner + r], axis=r), f"{name}_{label}"
        )

    sums = added("sum", member)
    means = compute(rows, lambda b, g: sums[b, g] / count, f"{name}_mean")

    def square(b: Value, c: Value) -> Value:
        apart = member(b, c) - means[b, group(c)]
        return apart * apart

    squares = added("squares", square)
    scales = compute(
        rows, lambda b, g: 1.0 / sqrt(squares[b, g] / count + epsilon), f"{name}_scale"
    )

    def result(*at: Value) -> Value:
        c = at[channels]
        own = (at[0], group(c))
        value = (element(x, at) - means[own]) * scales[own]
        if gain is not None:
            value = value * element(gain, (c,), total)
        return cast(value if bias is None else value + element(bias, (c,), total), x.dtype)

    return compute(x.shape, result, name, axis_letters(rank))
