"""Normalisation: layer, root mean square, group, and batch statistics at inference.

Normalisation of each sample by the statistics of its own groups of channels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from offcut.core.dtypes import FLOATS
from offcut.core.integers import whole
from offcut.describe.functions import exp, log, reduce_axis, sqrt
from offcut.describe.functions import max as max_over
from offcut.describe.functions import sum as sum_over
from offcut.describe.tensor import Tensor, compute
from offcut.describe.value import Value, cast
from offcut.errors import DescribeError
from offcut.ops.checks import (
    Option,
    axis_letters,
    axis_number,
    check_tensor,
    element,
    narrower,
    number,
    result_name,
    wider,
)
from offcut.ops.reductions.reduction import count_of


def layernorm(
    x: Tensor,
    gain: Tensor | None = None,
    bias: Tensor | None = None,
    epsilon: float = 1e-5,
    *,
    name: str | None = None,
) -> Tensor:
    """``(x - mean) / sqrt(variance + epsilon) * gain + bias`` along the last axis.

    x            (…, n) of floats
    gain, bias   (n,)
    epsilon      at least 0

    The variance is the mean of ``(x - mean)**2``: two passes, so that a large mean costs no digits.
    Of equal elements the mean is as far off as it is rounded, and so is the result, in units of ``sqrt(epsilon)``: 7.5e-5 of 3.3 in float32.
    bfloat16 and float16 are calculated in float32 and rounded once.

    Raises DescribeError where ranks, extents or element types do not fit.
    """
    epsilon = _check("layernorm", x, gain, bias, epsilon)
    total, rows, letters = wider(x.dtype), x.shape[:-1], axis_letters(len(x.shape))
    name = result_name("layernorm", name, [x], *_options(gain, bias), ("epsilon", epsilon, 1e-5))
    k, count = reduce_axis(x.shape[-1], "k"), count_of(x.shape[-1:], total)
    others = letters[:-1]
    sums = compute(rows, lambda *at: sum_over(element(x, (*at, k)), axis=k), f"{name}_sum", others)
    means = compute(rows, lambda *at: sums[at] / count, f"{name}_mean", others)

    def square(*at: Value) -> Value:
        apart = element(x, (*at, k)) - means[at]
        return sum_over(apart * apart, axis=k)

    squares = compute(rows, square, f"{name}_squares", others)
    scales = compute(
        rows, lambda *at: 1.0 / sqrt(squares[at] / count + epsilon), f"{name}_scale", others
    )

    def result(*at: Value) -> Value:
        row = at[:-1]
        value = (element(x, at) - means[row]) * scales[row]
        return cast(_affine(value, gain, bias, at[-1]), x.dtype)

    return compute(x.shape, result, name, letters)


def rmsnorm(
    x: Tensor,
    gain: Tensor | None = None,
    epsilon: float = 1e-6,
    *,
    name: str | None = None,
) -> Tensor:
    """``x / sqrt(mean of x**2 + epsilon) * gain`` along the last axis.

    x         (…, n) of floats
    gain      (n,)
    epsilon   at least 0

    bfloat16 and float16 are calculated in float32 and rounded once.

    Raises DescribeError where ranks, extents or element types do not fit.
    """
    epsilon = _check("rmsnorm", x, gain, None, epsilon)
    total, rows, letters = wider(x.dtype), x.shape[:-1], axis_letters(len(x.shape))
    name = result_name("rmsnorm", name, [x], ("", gain, None), ("epsilon", epsilon, 1e-6))
    k, count = reduce_axis(x.shape[-1], "k"), count_of(x.shape[-1:], total)

    def square(*at: Value) -> Value:
        value = element(x, (*at, k))
        return sum_over(value * value, axis=k)

    squares = compute(rows, square, f"{name}_squares", letters[:-1])
    scales = compute(
        rows, lambda *at: 1.0 / sqrt(squares[at] / count + epsilon), f"{name}_scale", letters[:-1]
    )

    def result(*at: Value) -> Value:
        return cast(_affine(element(x, at) * scales[at[:-1]], gain, None, at[-1]), x.dtype)

    return compute(x.shape, result, name, letters)


def batchnorm(
    x: Tensor,
    mean: Tensor,
    variance: Tensor,
    gain: Tensor | None = None,
    bias: Tensor | None = None,
    epsilon: float = 1e-5,
    axis: int = 1,
    *,
    name: str | None = None,
) -> Tensor:
    """``(x - mean) / sqrt(variance + epsilon) * gain + bias``, with given statistics by channel.

    x                            floats of any shape with `axis`
    mean, variance, gain, bias   (c,), the extent of `axis`
    epsilon                      at least 0
    axis                         of the channels: 1 of NCHW, -1 of NHWC

    bfloat16 and float16 are calculated in float32 and rounded once.

    Raises DescribeError where ranks, extents or element types do not fit.
    """
    op = "batchnorm"
    check_tensor(op, "x", x, least=1, dtypes=FLOATS)
    position = axis_number(op, x, axis)
    channels, total = x.shape[position], wider(x.dtype)
    statistics = [("mean", mean), ("variance", variance)]
    parameters = statistics + [(n, t) for n, t in (("gain", gain), ("bias", bias)) if t is not None]
    for label, tensor in parameters:
        check_parameter(op, label, tensor, channels, total)
    epsilon = check_epsilon(op, epsilon)
    options = (*_options(gain, bias), ("epsilon", epsilon, 1e-5), ("axis", position, 1))
    name = result_name(op, name, [x, mean, variance], *options)

    def scale(c: Value) -> Value:
        factor = 1.0 / sqrt(element(variance, (c,), total) + epsilon)
        return factor if gain is None else factor * element(gain, (c,), total)

    scales = compute((channels,), scale, f"{name}_scale")

    def result(*at: Value) -> Value:
        c = at[position]
        value = (element(x, at) - element(mean, (c,), total)) * scales[c]
        return cast(value if bias is None else value + element(bias, (c,), total), x.dtype)

    return compute(x.shape, result, name, axis_letters(len(x.shape)))


def _affine(value: Value, gain: Tensor | None, bias: Tensor | None, j: Value) -> Value:
    if gain is not None:
        value = value * element(gain, (j,), value.dtype)
    return value if bias is None else value + element(bias, (j,), value.dtype)


def _options(gain: Tensor | None, bias: Tensor | None) -> tuple[Option, Option]:
    return ("", gain, None), ("bias" if gain is None else "", bias, None)


def _check(op: str, x: Tensor, gain: Tensor | None, bias: Tensor | None, epsilon: Any) -> float:
    """`epsilon` as a float."""
    check_tensor(op, "x", x, least=1, dtypes=FLOATS)
    for label, tensor in (("gain", gain), ("bias", bias)):
        if tensor is not None:
            check_parameter(op, label, tensor, x.shape[-1], wider(x.dtype))
    return check_epsilon(op, epsilon)


def check_parameter(op: str, label: str, tensor: Tensor, extent: object, total: str) -> None:
    """Raises DescribeError where `tensor` is not of shape (extent,), of a type calculated in `total`."""
    check_tensor(op, label, tensor, 1, shape=(extent,), dtypes=narrower(total))


def check_epsilon(op: str, epsilon: Any) -> float:
    """`epsilon` as a float; raises DescribeError where it is no finite number of at least 0."""
    value = number(epsilon)
    if value is None or value < 0:
        raise DescribeError(
            op,
            f"cannot take epsilon={epsilon!r}",
            because="it is added to a variance: a finite number of at least 0",
            help=("epsilon=1e-5",),
        )
    return value


def softmax(x: Tensor, axis: int = -1, *, name: str | None = None) -> Tensor:
    """``exp(x - max) * (1 / sum of exp(x - max))``, with max and sum over `axis`.

    x      floats of any shape with at least one axis; the axis may be of any size, 0 too
    axis   negative ones count from the last

    bfloat16 and float16 are calculated in float32 and rounded once. A line with NaN or +inf, or of
    -inf alone, gives NaN, as the formula does.

    Raises DescribeError for integers, or where there is no such axis.
    """
    return _exponentials_of_shifted("softmax", x, axis, name)


def log_softmax(x: Tensor, axis: int = -1, *, name: str | None = None) -> Tensor:
    """``x - max - log(sum of exp(x - max))``, with max and sum over `axis`; otherwise as `softmax`.

    Raises DescribeError for integers, or where there is no such axis.
    """
    return _exponentials_of_shifted("log_softmax", x, axis, name)


def _exponentials_of_shifted(op: str, x: Tensor, axis: int, name: str | None) -> Tensor:
    check_tensor(op, "x", x, least=1, dtypes=FLOATS)
    rank, position = len(x.shape), axis_number(op, x, axis)
    name = result_name(op, name, [x], ("axis", position, rank - 1))
    letters, shape = axis_letters(rank), (*x.shape[:position], *x.shape[position + 1 :])
    others = letters[:position] + letters[position + 1 :]
    k = reduce_axis(x.shape[position], "k")

    def line(at: tuple[Value, ...]) -> tuple[Value, ...]:
        return (*at[:position], *at[position + 1 :])

    def along(at: tuple[Value, ...]) -> tuple[Value, ...]:
        return (*at[:position], k, *at[position:])

    greatest = compute(
        shape, lambda *at: max_over(element(x, along(at)), axis=k), f"{name}_max", others
    )

    def shifted(at: tuple[Value, ...]) -> Value:
        return element(x, at) - greatest[line(at)]

    if op == "log_softmax":
        total = compute(
            shape,
            lambda *at: sum_over(exp(shifted(along(at))), axis=k),
            f"{name}_sum",
            others,
        )
        logs = compute(shape, lambda *at: log(total[at]), f"{name}_log", others)
        return compute(
            x.shape, lambda *at: cast(shifted(at) - logs[line(at)], x.dtype), name, letters
        )
    powers = compute(x.shape, lambda *at: exp(shifted(at)), f"{name}_exp", letters)
    total = compute(shape, lambda *at: sum_over(powers[along(at)], axis=k), f"{name}_sum", others)
    share = compute(shape, lambda *at: 1.0 / total[at], f"{name}_share", others)
    return compute(x.shape, lambda *at: cast(powers[at] * share[line(at)], x.dtype), name, letters)


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
