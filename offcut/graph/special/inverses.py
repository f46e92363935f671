"""Inverse trigonometric and hyperbolic functions, which hosts have and offcut has not, composed of ours.

They lose digits: narrower floats are calculated in float64, and float64 itself is not.
"""

from __future__ import annotations

import math

from offcut.graph.composed import Make
from offcut.graph.graph import Ref

TERMS = 11
"""Of the series of the arctangent: up to tan(pi/8) what is left out is less than 1e-10."""
_LARGE, _SMALL = 2.0**28, 2.0**-28
"""Beyond which ``x**2 + 1`` is ``x**2``, and below which ``1 + x**2`` is 1, in float64."""


def arctangent(make: Make, x: Ref) -> Ref:
    """Of x, ``(x - 1) / (x + 1)`` or ``-1 / x``, whichever is small, by its series."""
    size = make("absolute", x)
    far, middle = (make("greater", size, math.sqrt(2) + one) for one in (1, -1))
    quotient = make("divide", make("subtract", size, 1.0), make("add", size, 1.0))
    beyond = make("negative", make("reciprocal", size))
    near = make("where", far, beyond, make("where", middle, quotient, size))
    nothing = make("multiply", size, 0.0)
    start = make("where", far, math.pi / 2, make("where", middle, math.pi / 4, nothing))
    square = make("square", near)
    last, *terms = [(-1) ** n / (2 * n + 1) for n in reversed(range(TERMS))]
    series = make("add", make("multiply", square, last), terms[0])
    for term in terms[1:]:
        series = make("add", make("multiply", series, square), term)
    return odd(make, x, make("add", make("multiply", near, series), start))


def arctangent_of(make: Make, y: Ref, x: Ref) -> Ref:
    """Return the angle of the point (x, y), from -pi to pi; signs of zeros count."""
    high, wide = make("absolute", y), make("absolute", x)
    less, more = make("minimum", high, wide), make("maximum", high, wide)
    share = make("where", make("equal", less, math.inf), 1.0, make("divide", less, more))
    angle = arctangent(make, make("where", make("equal", more, 0.0), more, share))
    steep = make("greater", high, wide)
    angle = make("where", steep, make("subtract", math.pi / 2, angle), angle)
    angle = make("where", is_negative(make, x), make("subtract", math.pi, angle), angle)
    return make("where", is_negative(make, y), make("negative", angle), angle)


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
    found = make(
        "where", make("greater", size, _LARGE), _log_of_twice(make, size), _log1p(make, size, more)
    )
    return odd(make, x, found)


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
