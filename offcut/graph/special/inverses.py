"""Inverse trigonometric and hyperbolic functions, which hosts have and offcut has not, composed of ours.

All but the arctangent lose digits: narrower floats are calculated in float64, and float64 itself is not.
"""

from __future__ import annotations

import math

from offcut.graph.composed import Make
from offcut.graph.graph import Ref

_LARGE, _SMALL = 2.0**28, 2.0**-28
"""Beyond which ``x**2 + 1`` is ``x**2``, and below which ``1 + x**2`` is 1, in float64."""


def arctangent(make: Make, x: Ref) -> Ref:
    """Return the angle of the point (1, x)."""
    return make("atan2", x, 1.0)


def arcsine(make: Make, x: Ref) -> Ref:
    """``atan(x / sqrt((1 - x) * (1 + x)))``."""
    above, below = make("add", x, 1.0), make("subtract", 1.0, x)
    return arctangent(make, make("divide", x, make("sqrt", make("multiply", above, below))))


def arccosine(make: Make, x: Ref) -> Ref:
    """``2 * atan(sqrt((1 - x) / (1 + x)))``."""
    above, below = make("add", x, 1.0), make("subtract", 1.0, x)
    return make("multiply", arctangent(make, make("sqrt", make("divide", below, above))), 2.0)


def area_sine(make: Make, x: Ref) -> Ref:
    """``sign(x) * log1p(|x| + x**2 / (1 + sqrt(x**2 + 1)))``."""
    size = make("absolute", x)
    root = make("sqrt", make("add", make("square", size), 1.0))
    more = make("multiply", size, make("divide", size, make("add", root, 1.0)))
    value = make(
        "where", make("greater", size, _LARGE), _log_of_twice(make, size), _log1p(make, size, more)
    )
    return odd(make, x, value)


def area_cosine(make: Make, x: Ref) -> Ref:
    """``log1p(t + sqrt(t) * sqrt(t + 2))`` of ``t = x - 1``: NaN below 1."""
    above = make("subtract", x, 1.0)
    root = make("multiply", make("sqrt", above), make("sqrt", make("add", above, 2.0)))
    near = _log1p(make, above, root)
    return make("where", make("greater", x, _LARGE), _log_of_twice(make, x), near)


def area_tangent(make: Make, x: Ref) -> Ref:
    """``sign(x) * log1p(2 * |x| / (1 - |x|)) / 2``."""
    size = make("absolute", x)
    share = make("divide", size, make("subtract", 1.0, size))
    return odd(make, x, make("multiply", _log1p(make, share, share), 0.5))


def _log1p(make: Make, x: Ref, y: Ref) -> Ref:
    return make("log1p", make("add", x, y))


def _log_of_twice(make: Make, x: Ref) -> Ref:
    return make("add", make("log", x), math.log(2))


def odd(make: Make, x: Ref, value: Ref) -> Ref:
    """Return `value`, which is of x without its sign, with it; x itself where that is all that is left of ``x + c * x**3``, zeros with their sign."""
    signed = make("where", make("less", x, 0.0), make("negative", value), value)
    return make("where", make("less", make("absolute", x), _SMALL), x, signed)


def is_negative(make: Make, x: Ref) -> Ref:
    """Return whether an element is below 0, or -0.0."""
    return make("logical_or", make("less", x, 0.0), make("less", make("reciprocal", x), 0.0))
