"""Activations: functions of one element, as operators and as the ends of others."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from offcut.core.dtypes import FLOATS
from offcut.describe.functions import erf, exp, maximum
from offcut.describe.functions import tanh as tanh_of
from offcut.describe.tensor import Tensor, compute
from offcut.describe.value import Value, cast
from offcut.errors import DescribeError
from offcut.ops.arguments import is_one_of
from offcut.ops.naming import named
from offcut.ops.operands import axis_letters, check_floats, check_tensor, wider


def _relu(x: Value) -> Value:
    return maximum(x, 0.0 if x.dtype in FLOATS else 0)


def _gelu(x: Value) -> Value:
    return 0.5 * x * (1.0 + erf(x * math.sqrt(0.5)))


def _gelu_tanh(x: Value) -> Value:
    return 0.5 * x * (1.0 + tanh_of(math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))))


def _silu(x: Value) -> Value:
    return x / (1.0 + exp(-x))


def _sigmoid(x: Value) -> Value:
    return 1.0 / (1.0 + exp(-x))


ACTIVATIONS: dict[str, Callable[[Value], Value]] = {
    "relu": _relu,
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "silu": _silu,
    "tanh": tanh_of,
    "sigmoid": _sigmoid,
}
"""What ``activation=`` may name; each is a function of a value in the type it is calculated in."""


def check_activation(op: str, activation: Any, dtype: str) -> None:
    """Raises DescribeError where there is no such activation, or not for elements of `dtype`."""
    if activation is None:
        return
    if not is_one_of(activation, tuple(ACTIVATIONS)):
        raise DescribeError(
            op,
            f"cannot take activation={activation!r}",
            because=f"activations are {', '.join(ACTIVATIONS)}",
        )
    if activation != "relu" and dtype not in FLOATS:
        raise DescribeError(
            op,
            f"cannot take activation={activation!r} of {dtype}",
            because=f"{activation} is a function of floats",
            help=('activation="relu"', "dequantize(…) gives float32"),
        )


def activated(value: Value, activation: str | None) -> Value:
    """`value` under an activation that was checked; None leaves it."""
    return value if activation is None else ACTIVATIONS[activation](value)


def _elementwise(op: str, x: Tensor, name: str | None) -> Tensor:
    check_tensor(op, "x", x)
    if op != "relu":
        check_floats(op, "x", x)

    def at(*axes: Value) -> Value:
        inner = cast(x[axes], wider(x.dtype))
        return cast(activated(inner, op), x.dtype)

    axes = axis_letters(len(x.shape))
    return compute(x.shape, at, named(op, name, [x]), axes)


def relu(x: Tensor, *, name: str | None = None) -> Tensor:
    """``max(x, 0)`` by element, of any shape and element type; NaN stays NaN."""
    return _elementwise("relu", x, name)


def gelu(x: Tensor, *, name: str | None = None) -> Tensor:
    """``x / 2 * (1 + erf(x / sqrt(2)))`` by element, of any shape.

    16-bit floats are calculated in float32 and rounded once. Raises DescribeError for integers.
    """
    return _elementwise("gelu", x, name)


def gelu_tanh(x: Tensor, *, name: str | None = None) -> Tensor:
    """``x / 2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 * x**3)))`` by element, of any shape.

    16-bit floats are calculated in float32 and rounded once. Raises DescribeError for integers.
    """
    return _elementwise("gelu_tanh", x, name)


def silu(x: Tensor, *, name: str | None = None) -> Tensor:
    """``x / (1 + exp(-x))`` by element, of any shape; also called swish.

    16-bit floats are calculated in float32 and rounded once. Raises DescribeError for integers.
    """
    return _elementwise("silu", x, name)


def sigmoid(x: Tensor, *, name: str | None = None) -> Tensor:
    """``1 / (1 + exp(-x))`` by element, of any shape.

    16-bit floats are calculated in float32 and rounded once. Raises DescribeError for integers.
    """
    return _elementwise("sigmoid", x, name)


def tanh(x: Tensor, *, name: str | None = None) -> Tensor:
    """The hyperbolic tangent by element, of any shape.

    16-bit floats are calculated in float32 and rounded once. Raises DescribeError for integers.
    """
    return _elementwise("tanh", x, name)
