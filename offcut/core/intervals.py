"""Arithmetic of intervals: the least and the greatest result of an index operation on all values of its operands.

Ends are integers, or infinite where nothing bounds a value.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any, TypeVar

Interval = tuple[int, int]
"""The least and the greatest value, inclusive."""

_End = TypeVar("_End", int, float)


def combined(op: str, a: tuple[_End, _End], b: tuple[_End, _End]) -> tuple[_End, _End]:
    """Bounds of ``a op b``, with op one of ``+ - * // % min max``; a divisor is at least 1 where it is evaluated."""
    ends: list[Any]
    match op:
        case "+":
            ends = [a[0] + b[0], a[1] + b[1]]
        case "-":
            ends = [a[0] - b[1], a[1] - b[0]]
        case "%":
            ends = [0, max(b[1] - 1, 0)]
        case "//":
            ends = [_divided(p, max(q, 1)) for p in a for q in b]
        case _:
            ends = [_APPLIED[op](p, q) for p in a for q in b]
    return min(ends), max(ends)


def _multiplied(p: float, q: float) -> float:
    return 0 if 0 in (p, q) else p * q


def _divided(p: float, q: float) -> float:
    return p if p in (-inf, inf) else p // q


_APPLIED: dict[str, Callable[..., Any]] = {
    "*": _multiplied,
    "min": min,
    "max": max,
}
