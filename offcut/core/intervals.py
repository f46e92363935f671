"""Arithmetic of intervals of integers: the least and the greatest result of an index operation on all values of its operands."""

from __future__ import annotations

import operator
from collections.abc import Callable

Interval = tuple[int, int]
"""The least and the greatest value, inclusive."""


def combined(op: str, a: Interval, b: Interval) -> Interval:
    """Bounds of ``a op b``, with op one of ``+ - * // % min max``; a divisor is at least 1 where it is evaluated."""
    if op == "%":
        return 0, max(b[1] - 1, 0)
    if op == "//":
        b = max(b[0], 1), max(b[1], 1)
    ends = [_APPLIED[op](p, q) for p in a for q in b]
    return min(ends), max(ends)


_APPLIED: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "min": min,
    "max": max,
}
