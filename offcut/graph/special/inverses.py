"""Inverse trigonometric and hyperbolic functions, which hosts have and offcut has not, composed of ours.

They cancel near 0: narrower floats are calculated in float64, and float64 itself is not.
"""

from __future__ import annotations

import math

from offcut.graph.composed import Make
from offcut.graph.graph import Ref

TERMS = 11
"""Of the series of the arctangent: up to tan(pi/8) what is left out is less than 1e-10."""


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
    angle = make("add", make("multiply", near, series), start)
    return make("where", make("less", x, 0.0), make("negative", angle), angle)


def arctangent_of(make: Make, y: Ref, x: Ref) -> Ref:
    """The angle of the point (x, y), from -pi to pi; signs of zeros count."""
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
    """``sign(x) * log(|x| + sqrt(x**2 + 1))``."""
    size = make("absolute", x)
    root = make("sqrt", make("add", make("square", x), 1.0))
    return make("multiply", make("sign", x), make("log", make("add", size, root)))


def area_cosine(make: Make, x: Ref) -> Ref:
    """``log(x + sqrt(x**2 - 1))``."""
    root = make("sqrt", make("subtract", make("square", x), 1.0))
    return make("log", make("add", x, root))


def area_tangent(make: Make, x: Ref) -> Ref:
    """``log((1 + x) / (1 - x)) / 2``."""
    above, below = make("add", x, 1.0), make("subtract", 1.0, x)
    return make("multiply", make("log", make("divide", above, below)), 0.5)


def is_negative(make: Make, x: Ref) -> Ref:
    """Whether an element is below 0, or -0.0."""
    return make("logical_or", make("less", x, 0.0), make("less", make("reciprocal", x), 0.0))
