"""What is left of the error function, composed of ours: in float64, for narrower floats."""

from __future__ import annotations

from offcut.graph.composed import Make
from offcut.graph.graph import Ref

_SERIES = (
    *(-1.3026537197817094, 6.4196979235649026e-1, 1.9476473204185836e-2, -9.561514786808631e-3),
    *(-9.46595344482036e-4, 3.66839497852761e-4, 4.2523324806907e-5, -2.0278578112534e-5),
    *(-1.624290004647e-6, 1.303655835580e-6, 1.5626441722e-8, -8.5238095915e-8),
    *(6.529054439e-9, 5.059343495e-9),
)
"""Of Chebyshev polynomials: what is left out is 1.2e-9 of the result. Source: Numerical Recipes, third edition, 6.2.2."""


def complementary_error(make: Make, x: Ref) -> Ref:
    """The complementary error function, of which the digits of small results are kept: ``t * exp(P(t) - x**2)``, and 2 less that below 0."""
    t, series = _approximated(make, x)
    value = make("multiply", t, make("exp", make("subtract", series, make("square", x))))
    return make("where", make("less", x, 0.0), make("subtract", 2.0, value), value)


def scaled_complementary_error(make: Make, x: Ref) -> Ref:
    """It times ``exp(x**2)``: ``t * exp(P(t))``, and ``2 * exp(x**2)`` less that below 0."""
    t, series = _approximated(make, x)
    value = make("multiply", t, make("exp", series))
    whole = make("multiply", make("exp", make("square", x)), 2.0)
    return make("where", make("less", x, 0.0), make("subtract", whole, value), value)


def _approximated(make: Make, x: Ref) -> tuple[Ref, Ref]:
    """``t = 2 / (2 + |x|)``, and P(t)."""
    t = make("divide", 2.0, make("add", make("absolute", x), 2.0))
    twice = make("subtract", make("multiply", t, 4.0), 2.0)
    one, other = make("multiply", t, 0.0), make("multiply", t, 0.0)
    for factor in _SERIES[:0:-1]:
        step = make("subtract", make("multiply", twice, one), other)
        one, other = make("add", step, factor), one
    half = make("multiply", make("add", make("multiply", twice, one), _SERIES[0]), 0.5)
    return t, make("subtract", half, other)
