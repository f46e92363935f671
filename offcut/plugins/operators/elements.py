"""Functions of elements and of lines: quotients of integers towards 0, logarithms of sums of exponentials, norms along several axes as one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from offcut.core.dtypes import UNSIGNED
from offcut.graph.sizes.numbers import plain, product
from offcut.plugins.operators.translator import Translator


def quotient_towards_zero(t: Translator, a: Any, b: Any) -> Any:
    """Return ``a / b`` of integers, rounded towards 0: one more than rounded down, where that is below 0 and something is left."""
    floored = t.node("floor_divide", a, b)
    if t.dtype(a) in UNSIGNED:
        return floored
    is_rounded = t.node("not_equal", t.node("multiply", floored, b), a)
    is_below = t.node("logical_and", t.node("less", floored, 0), is_rounded)
    return t.node("where", is_below, t.node("add", floored, 1), floored)


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
    given = {name: t.reshape(one, (width,)) for name, one in parameters.items() if one is not None}
    lines = t.reshape(x, (*shape[: len(shape) - count], width))
    return t.reshape(t.node(op, lines, epsilon=epsilon, **given), shape)


MOST_ROWS = 4
"""Of a determinant: 24 products of 4 elements, and five times as many with each row more."""


def determinants(t: Translator, x: Any) -> Any | None:
    """Return the determinants of floats along the last two axes, along the first row; in float64, as they cancel. None for matrices that are not
    of 1 to `MOST_ROWS` rows.
    """
    rank, order = t.rank(x), plain(t.shape(x)[-1])
    if not isinstance(order, int) or not 1 <= order <= MOST_ROWS:
        return None
    outer, wide = t.shape(x)[:-2], t.cast(x, "float64")
    rows = [t.slice(wide, rank - 2, n, n + 1) for n in range(order)]
    elements = [
        [t.reshape(t.slice(row, rank - 1, n, n + 1), outer) for n in range(order)] for row in rows
    ]

    def below(row: int, columns: tuple[int, ...]) -> Any:
        """Of the rows from `row` on, in some columns."""
        if len(columns) == 1:
            return elements[row][columns[0]]
        total = None
        for n, column in enumerate(columns):
            rest = below(row + 1, columns[:n] + columns[n + 1 :])
            term = t.node("multiply", elements[row][column], rest)
            total = term if total is None else t.node("subtract" if n % 2 else "add", total, term)
        return total

    return t.cast(below(0, tuple(range(order))), t.dtype(x))
