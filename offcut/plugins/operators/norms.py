"""Sums and norms of lines: logarithms of sums of exponentials, norms along several last axes as one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from offcut.graph.sizes.numbers import product
from offcut.plugins.operators.translator import Translator


def log_sum_exp(t: Translator, x: Any, axes: Sequence[int], keepdims: bool) -> Any:
    """Return ``log(sum of exp(x))`` of floats along some axes, counted from the first; -inf of none."""
    greatest = t.node("max", x, axis=tuple(axes), keepdims=True)
    is_infinite = t.node("equal", t.node("absolute", greatest), math.inf)
    shift = t.node("where", is_infinite, 0.0, greatest)  # inf - inf is NaN
    powers = t.node("exp", t.node("subtract", x, shift))
    total = t.node("log", t.node("sum", powers, axis=tuple(axes), keepdims=True))
    result = t.node("add", total, shift)
    shape = [one for axis, one in enumerate(t.shape(x)) if axis not in axes]
    return result if keepdims else t.reshape(result, shape)


def norm_of_last_axes(
    t: Translator, op: str, x: Any, count: int, parameters: Mapping[str, Any], epsilon: float
) -> Any:
    """Return a norm of ours along the last axes, as one.

    op          layernorm or rmsnorm
    count       of the axes
    parameters  gain and bias, of the extents of these axes; those that are None are left out
    """
    shape = t.shape(x)
    width = product(shape[len(shape) - count :])
    flat_parameters = {
        name: t.reshape(one, (width,)) for name, one in parameters.items() if one is not None
    }
    lines = t.reshape(x, (*shape[: len(shape) - count], width))
    return t.reshape(t.node(op, lines, epsilon=epsilon, **flat_parameters), shape)
