"""Arithmetic that no operator of ours has: integer quotients rounded towards 0, determinants of small matrices."""

from __future__ import annotations

from typing import Any

from offcut.core.dtypes import UNSIGNED
from offcut.graph.sizes.numbers import plain
from offcut.plugins.operators.translator import Translator

MAX_DETERMINANT_ROWS = 4
"""Maximum number of rows: 4 rows are 24 products of 4 elements, 5 rows would be 120 of 5."""


def truncated_quotient(t: Translator, a: Any, b: Any) -> Any:
    """Return ``a / b`` of integers, rounded towards 0: one more than rounded down, where that is below 0 and something is left."""
    floored = t.node("floor_divide", a, b)
    if t.dtype(a) in UNSIGNED:
        return floored
    is_rounded = t.node("not_equal", t.node("multiply", floored, b), a)
    is_below = t.node("logical_and", t.node("less", floored, 0), is_rounded)
    return t.node("where", is_below, t.node("add", floored, 1), floored)


def determinants(t: Translator, x: Any) -> Any | None:
    """Return the determinants of floats along the last two axes, along the first row; in float64, as they cancel. None for matrices that are not
    of 1 to `MAX_DETERMINANT_ROWS` rows.
    """
    rank, order = t.rank(x), plain(t.shape(x)[-1])
    if not isinstance(order, int) or not 1 <= order <= MAX_DETERMINANT_ROWS:
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
