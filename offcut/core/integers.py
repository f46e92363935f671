"""Integers as users give them, Python's, numpy's and those of any other package, and floats as fractions of integers."""

from __future__ import annotations

import operator
from fractions import Fraction
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


def simple_fraction(value: float) -> Fraction | None:
    """Return the fraction with a denominator of at most `MOST_PARTS` that a float stands for, a float32 as well as a float64; None if it stands
    for none above 0.

    >>> simple_fraction(1.7), simple_fraction(float(np.float32(1.7))), simple_fraction(np.pi)
    (Fraction(17, 10), Fraction(17, 10), None)
    """
    if not isfinite(value):
        return None
    near = Fraction(value).limit_denominator(MOST_PARTS)
    single = float(np.float32(value)) == value
    exact = float(near) == value or (single and float(np.float32(float(near))) == value)
    return near if near > 0 and exact else None
