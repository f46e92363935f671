"""Softmax and its logarithm along an axis."""

from __future__ import annotations

from offcut.core.dtypes import FLOATS
from offcut.describe.functions import exp, log, reduce_axis
from offcut.describe.functions import max as max_over
from offcut.describe.functions import sum as sum_over
from offcut.describe.tensor import Tensor, compute
from offcut.describe.value import Value, cast
from offcut.ops.given.naming import named
from offcut.ops.given.operands import (
    axis_letters,
    axis_number,
    check_tensor,
    element,
)


def softmax(x: Tensor, axis: int = -1, *, name: str | None = None) -> Tensor:
    """``exp(x - max) * (1 / sum of exp(x - max))``, with max and sum over `axis`.

    x      floats of any shape with at least one axis; the axis may be of any size, 0 too
    axis   negative ones count from the last

    bfloat16 and float16 are calculated in float32 and rounded once. A line with NaN or +inf, or of
    -inf alone, gives NaN, as the formula does.

    Raises DescribeError for integers, or where there is no such axis.
    """
    return _normalized("softmax", x, axis, name)


def log_softmax(x: Tensor, axis: int = -1, *, name: str | None = None) -> Tensor:
    """``x - max - log(sum of exp(x - max))``, with max and sum over `axis`; otherwise as `softmax`.

    Raises DescribeError for integers, or where there is no such axis.
    """
    return _normalized("log_softmax", x, axis, name)


def _normalized(op: str, x: Tensor, axis: int, name: str | None) -> Tensor:
    check_tensor(op, "x", x, least=1, dtypes=FLOATS)
    rank, position = len(x.shape), axis_number(op, x, axis)
    name = named(op, name, [x], ("axis", position, rank - 1))
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
