"""Numbers by which sizes are scaled."""

from __future__ import annotations

from math import isfinite

MOST_PARTS = 1 << 12
"""The largest denominator of a fraction by which sizes are scaled: a size below 2³¹ in such parts is below 2⁴³, which float64 holds exactly."""


def binary_fraction(value: float) -> tuple[int, int] | None:
    """A float as an integer over a power of 2; None where that is above `MOST_PARTS`, or the float is not finite."""
    if not isfinite(value):
        return None
    over, under = value.as_integer_ratio()
    return (over, under) if under <= MOST_PARTS else None
