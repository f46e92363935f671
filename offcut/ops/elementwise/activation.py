"""Activations: functions of one element, as operators and as the ends of others."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from offcut.core.dtypes import FLOATS, NUMBERS
from offcut.describe.functions import absolute, erf, exp, log1p, maximum, minimum, tanh, where
from offcut.describe.tensor import Tensor, compute
from offcut.describe.value import Value, cast
from offcut.errors import DescribeError
from offcut.ops.checks import axis_letters, check_tensor, choice, finite, result_name, wider
from offcut.ops.elementwise.functions import of_each


def _relu(x: Value) -> Value:
    return maximum(x, 0.0 if x.dtype in FLOATS else 0)


def _relu6(x: Value) -> Value:
    return minimum(_relu(x), 6.0 if x.dtype in FLOATS else 6)


def _hardsigmoid(x: Value) -> Value:
    return _relu6(x + 3.0) * (1.0 / 6.0)


def _hardswish(x: Value) -> Value:
    return x * _hardsigmoid(x)


def _gelu(x: Value) -> Value:
    return 0.5 * x * (1.0 + erf(x * math.sqrt(0.5)))


def _gelu_tanh(x: Value) -> Value:
    return 0.5 * x * (1.0 + tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))))


def _silu(x: Value) -> Value:
    return x / (1.0 + exp(-x))


def _sigmoid(x: Value) -> Value:
    return 1.0 / (1.0 + exp(-x))


ACTIVATIONS: dict[str, Callable[[Value], Value]] = {
    "relu": _relu,
    "relu6": _relu6,
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "silu": _silu,
    "tanh": lambda x: tanh(x),
    "sigmoid": _sigmoid,
    "hardsigmoid": _hardsigmoid,
    "hardswish": _hardswish,
}
"""What ``activation=`` may name; each is a function of a value in the type it is calculated in."""

OF_INTEGERS = ("relu", "relu6")
"""Those that are functions of integers as well; they name their value once."""


def check_activation(op: str, activation: Any, dtype: str) -> None:
    """Raises DescribeError where there is no such activation, or not for elements of `dtype`."""
    if activation is None:
        return
    choice(op, "activation", activation, tuple(ACTIVATIONS))
    if activation not in OF_INTEGERS and dtype not in FLOATS:
        raise DescribeError(
            op,
            f"cannot take activation={activation!r} of {dtype}",
            because=f"{activation} is a function of floats",
            help=('activation="relu"', "dequantize(…) gives float32"),
        )


def apply_activation(value: Value, activation: str | None) -> Value:
    """Return `value` under an activation that was checked; None leaves it."""
    return value if activation is None else ACTIVATIONS[activation](value)


def _elementwise(op: str, x: Tensor, name: str | None) -> Tensor:
    check_tensor(op, "x", x, dtypes=NUMBERS if op in OF_INTEGERS else FLOATS)

    def at(*axes: Value) -> Value:
        inner = cast(x[axes], wider(x.dtype))
        return cast(apply_activation(inner, op), x.dtype)

    axes = axis_letters(len(x.shape))
    return compute(x.shape, at, result_name(op, name, [x]), axes)


def relu(x: Tensor, *, name: str | None = None) -> Tensor:
    """``max(x, 0)`` by element, of any shape and element type; NaN stays NaN, and -0.0 stays -0.0."""
    return _elementwise("relu", x, name)


def relu6(x: Tensor, *, name: str | None = None) -> Tensor:
    """``min(max(x, 0), 6)`` by element, of any shape and element type; NaN stays NaN, and -0.0 stays -0.0."""
    return _elementwise("relu6", x, name)


def hardsigmoid(x: Tensor, *, name: str | None = None) -> Tensor:
    """``min(max(x + 3, 0), 6) / 6`` by element, of any shape.

    16-bit floats are calculated in float32 and rounded once. Raises DescribeError for integers.
    """
    return _elementwise("hardsigmoid", x, name)


def hardswish(x: Tensor, *, name: str | None = None) -> Tensor:
    """``x * min(max(x + 3, 0), 6) / 6`` by element, of any shape; NaN of -inf.

    16-bit floats are calculated in float32 and rounded once. Raises DescribeError for integers.
    """
    return _elementwise("hardswish", x, name)


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


def softplus(x: Tensor, *, name: str | None = None) -> Tensor:
    """``log(1 + exp(x))`` by element, of any shape, within 2 ULP (float32).

    16-bit floats are calculated in float32 and rounded once. Raises DescribeError for integers.
    """
    return of_each("softplus", name, x, lambda a: maximum(a, 0) + log1p(exp(-absolute(a))), FLOATS)


def leaky_relu(x: Tensor, slope: float = 0.01, *, name: str | None = None) -> Tensor:
    """``x`` where it is above 0, else ``slope * x``, by element, of any shape.

    slope   a finite number

    16-bit floats are calculated in float32 and rounded once. Raises DescribeError for integers.
    """
    factor = finite("leaky_relu", "slope", slope)
    options = (("slope", factor, 0.01),)
    return of_each("leaky_relu", name, x, lambda a: where(a > 0, a, factor * a), FLOATS, *options)


def elu(x: Tensor, alpha: float = 1.0, *, name: str | None = None) -> Tensor:
    """``x`` where it is above 0, else ``alpha * (exp(x) - 1)``, by element, of any shape.

    alpha   a finite number

    Near 0 nothing cancels: ``exp(x) - 1`` is calculated as ``2 t / (1 - t)`` with ``t = tanh(x/2)``. 16-bit floats are
    calculated in float32 and rounded once. Raises DescribeError for integers.
    """
    factor = finite("elu", "alpha", alpha)

    def below(value: Value) -> Value:
        t = tanh(0.5 * value)
        return factor * (2.0 * t / (1.0 - t))

    options = (("alpha", factor, 1.0),)
    return of_each("elu", name, x, lambda a: where(a > 0, a, below(a)), FLOATS, *options)
