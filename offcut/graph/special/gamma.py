"""The logarithm of the gamma function and its derivative, composed of ours: in float64, for narrower floats."""

from __future__ import annotations

import math

from offcut.graph.composed import Make
from offcut.graph.graph import Ref

_SERIES = (
    *(0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313),
    *(-176.61502916214059, 12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6),
    1.5056327351493116e-7,
)
"""Of Lanczos' formula, with g = 7. Source: P. Godfrey, A note on the computation of the convergent Lanczos complex gamma approximation, 2001."""
_TAIL = (691 / 32760, -1 / 132, 1 / 240, -1 / 252, 1 / 120, -1 / 12)
"""Of the asymptotic series of the derivative, by powers of ``1 / x**2``; from 8 on what is left out is less than 2e-14."""
_STEPS = 8


def log_gamma(make: Make, x: Ref) -> Ref:
    """``log |gamma(x)|``; inf at 0 and the negative whole numbers, 0.0 at 1 and 2.

    With ``z = x - 1`` and ``t = z + 7.5`` it is ``log(2*pi)/2 + (z + 1/2)*log(t) - t + log(c_0 + sum of c_i / (z + i))``, and of x below 1/2
    ``log(pi / |sin(pi*x)|)`` less that of ``1 - x``. Source: C. Lanczos, SIAM J. Numer. Anal. B 1, 1964.
    """
    low, own = _reflected(make, x)
    z = make("subtract", own, 1.0)
    total = make("add", make("multiply", z, 0.0), _SERIES[0])
    for place, factor in enumerate(_SERIES[1:], 1):
        total = make("add", total, make("divide", factor, make("add", z, float(place))))
    t = make("add", z, 7.5)
    power = make("subtract", make("multiply", make("add", z, 0.5), make("log", t)), t)
    value = make("add", make("add", power, make("log", total)), math.log(2 * math.pi) / 2)
    sine = make("absolute", make("sin", make("multiply", _rest(make, x), math.pi)))
    mirrored = make("subtract", make("log", make("divide", math.pi, sine)), value)
    value = make("where", low, mirrored, value)
    for root in (1.0, 2.0):
        value = make("where", make("equal", x, root), 0.0, value)
    return make("where", make("equal", make("absolute", x), math.inf), math.inf, value)


def digamma(make: Make, x: Ref) -> Ref:
    """Return the derivative of ``log gamma(x)``; NaN at the negative whole numbers, and at 0 inf of the other sign.

    From 8 on it is ``log(x) - 1/(2*x) - sum of B_2n / (2*n * x**(2*n))``, below that of ``x + 8`` less ``sum of 1 / (x + k)``, and of x
    below 1/2 that of ``1 - x`` less ``pi / tan(pi*x)``.
    """
    low, own = _reflected(make, x)
    gone = make("reciprocal", own)
    for step in range(1, _STEPS):
        gone = make("add", gone, make("reciprocal", make("add", own, float(step))))
    far = make("reciprocal", make("add", own, float(_STEPS)))
    square = make("square", far)
    series = make("multiply", square, _TAIL[0])
    for factor in _TAIL[1:]:
        series = make("multiply", make("add", series, factor), square)
    series = make("subtract", series, make("multiply", far, 0.5))
    value = make("subtract", make("subtract", series, make("log", far)), gone)
    rest = _rest(make, x)
    angle = make("multiply", rest, math.pi)
    slope = make("divide", make("multiply", make("cos", angle), math.pi), make("sin", angle))
    value = make("where", low, make("subtract", value, slope), value)
    whole = make("logical_and", make("equal", rest, 0.0), make("less", x, 0.0))
    return make("where", whole, math.nan, value)


def _reflected(make: Make, x: Ref) -> tuple[Ref, Ref]:
    """Return whether x is below 1/2, and ``1 - x`` there."""
    low = make("less", x, 0.5)
    return low, make("where", low, make("subtract", 1.0, x), x)


def _rest(make: Make, x: Ref) -> Ref:
    """What is left of x without the nearest whole number, 0 of the sign of x: the sine of pi times it differs in sign alone."""
    rest = make("subtract", x, make("round", x))
    return make("where", make("equal", rest, 0.0), make("multiply", x, 0.0), rest)
