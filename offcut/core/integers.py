"""Integers as users give them, Python's, numpy's and those of any other package, and floats as fractions of integers."""

from __future__ import annotations

import operator
from math import isfinite

import numpy as np


def whole(value: object) -> int | None:
    """`value` as an int where it is an integer, of whatever package; None for a bool and for all else.

    >>> whole(np.int64(3)), whole(True), whole(3.0)
    (3, None, None)
    """
    if isinstance(value, bool | np.bool_):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


MOST_PARTS = 1 << 12
"""The largest denominator of a fraction by which sizes are scaled: a size below 2³¹ in such parts is below 2⁴³, which float64 holds exactly."""


def binary_fraction(value: float) -> tuple[int, int] | None:
    """A float as an integer over a power of 2; None where that is above `MOST_PARTS`, or the float is not finite."""
    if not isfinite(value):
        return None
    over, under = value.as_integer_ratio()
    return (over, under) if under <= MOST_PARTS else None
