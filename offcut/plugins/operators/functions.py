"""Functions of one element, and arithmetic, that hosts have and offcut has not, composed of ours.

Arithmetic that no operator of ours has: integer quotients rounded towards 0, determinants of small matrices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from offcut.core.dtypes import UNSIGNED
from offcut.graph.call_conditions import Make
from offcut.graph.graph import Ref
from offcut.graph.sizes.extent_values import plain
from offcut.plugins.operators.translator import Translator

Formula: TypeAlias = Callable[[Make, Ref], Ref]

_LARGE, _SMALL = 2.0**28, 2.0**-28
"""Beyond which ``x**2 + 1`` is ``x**2``, and below which ``1 + x**2`` is 1, in float64."""


def arctangent(make: Make, x: Ref) -> Ref:
    """Return the angle of the point (1, x)."""
    return make("atan2", x, 1.0)


def tangent(make: Make, x: Ref) -> Ref:
    """Return the sine over the cosine."""
    return make("divide", make("sin", x), make("cos", x))


def exponential_less_one(make: Make, x: Ref) -> Ref:
    """``2 * tanh(x/2) / (1 - tanh(x/2))`` where x is small, for which ``exp(x) - 1`` loses its digits."""
    half = make("tanh", make("multiply", x, 0.5))
    small = make("divide", make("multiply", half, 2.0), make("subtract", 1.0, half))
    large = make("subtract", make("exp", x), 1.0)
    return make("where", make("less", make("absolute", x), 1.0), small, large)


def hyperbolic_cosine(make: Make, x: Ref) -> Ref:
    """``(h**2 + h**-2) / 2`` of ``h = exp(|x|/2)``, which is finite wherever the result is."""
    return make("add", *_halves_of_exponentials(make, make("absolute", x)))


def hyperbolic_sine(make: Make, x: Ref) -> Ref:
    """``(h**2 - h**-2) / 2`` of ``h = exp(|x|/2)``; ``2*t / (1 - t**2)`` of ``t = tanh(|x|/2)`` where x is small, with the sign of x."""
    size = make("absolute", x)
    half = make("tanh", make("multiply", size, 0.5))
    small = make("divide", make("multiply", half, 2.0), make("subtract", 1.0, make("square", half)))
    large = make("subtract", *_halves_of_exponentials(make, size))
    return odd(make, x, make("where", make("less", size, 1.0), small, large))


def _halves_of_exponentials(make: Make, x: Ref) -> tuple[Ref, Ref]:
    """Return ``exp(x) / 2`` and ``exp(-x) / 2``."""
    root = make("exp", make("multiply", x, 0.5))
    above = make("multiply", make("multiply", root, 0.5), root)
    return above, make("divide", make("divide", 0.5, root), root)


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
    magnitude = make(
        "where", make("greater", size, _LARGE), _log_of_twice(make, size), _log1p(make, size, more)
    )
    return odd(make, x, magnitude)


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
    low, own = _reflection(make, x)
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
    low, own = _reflection(make, x)
    gone = make("reciprocal", own)
    for step in range(1, _STEPS):
        gone = make("add", gone, make("reciprocal", make("add", own, float(step))))
    far = make("reciprocal", make("add", own, float(_STEPS)))
    square = make("square", far)
    series = make("multiply", square, _TAIL[0])
    for factor in _TAIL[1:]:
        series = make("multiply", make("add", series, factor), square)
    series = make("subtract", series, make("multiply", far, 0.5))
    result = make("subtract", make("subtract", series, make("log", far)), gone)
    rest = _rest(make, x)
    angle = make("multiply", rest, math.pi)
    slope = make("divide", make("multiply", make("cos", angle), math.pi), make("sin", angle))
    result = make("where", low, make("subtract", result, slope), result)
    whole = make("logical_and", make("equal", rest, 0.0), make("less", x, 0.0))
    return make("where", whole, math.nan, result)


def _reflection(make: Make, x: Ref) -> tuple[Ref, Ref]:
    """Return whether x is below 1/2, and ``1 - x`` there."""
    low = make("less", x, 0.5)
    return low, make("where", low, make("subtract", 1.0, x), x)


def _rest(make: Make, x: Ref) -> Ref:
    """What is left of x without the nearest whole number, 0 of the sign of x: the sine of pi times it differs in sign alone."""
    rest = make("subtract", x, make("round", x))
    return make("where", make("equal", rest, 0.0), make("multiply", x, 0.0), rest)


_CHEBYSHEV = (
    *(-1.3026537197817094, 6.4196979235649026e-1, 1.9476473204185836e-2, -9.561514786808631e-3),
    *(-9.46595344482036e-4, 3.66839497852761e-4, 4.2523324806907e-5, -2.0278578112534e-5),
    *(-1.624290004647e-6, 1.303655835580e-6, 1.5626441722e-8, -8.5238095915e-8),
    *(6.529054439e-9, 5.059343495e-9),
)
"""Of Chebyshev polynomials: what is left out is 1.2e-9 of the result. Source: Numerical Recipes, third edition, 6.2.2."""


def complementary_error(make: Make, x: Ref) -> Ref:
    """The complementary error function, of which the digits of small results are kept: ``t * exp(P(t) - x**2)``, and 2 less that below 0."""
    t, series = _rational_term(make, x)
    result = make("multiply", t, make("exp", make("subtract", series, make("square", x))))
    return make("where", make("less", x, 0.0), make("subtract", 2.0, result), result)


def scaled_complementary_error(make: Make, x: Ref) -> Ref:
    """It times ``exp(x**2)``: ``t * exp(P(t))``, and ``2 * exp(x**2)`` less that below 0."""
    t, series = _rational_term(make, x)
    result = make("multiply", t, make("exp", series))
    whole = make("multiply", make("exp", make("square", x)), 2.0)
    return make("where", make("less", x, 0.0), make("subtract", whole, result), result)


def _rational_term(make: Make, x: Ref) -> tuple[Ref, Ref]:
    """``t = 2 / (2 + |x|)``, and P(t)."""
    t = make("divide", 2.0, make("add", make("absolute", x), 2.0))
    twice = make("subtract", make("multiply", t, 4.0), 2.0)
    one, other = make("multiply", t, 0.0), make("multiply", t, 0.0)
    for factor in _CHEBYSHEV[:0:-1]:
        step = make("subtract", make("multiply", twice, one), other)
        one, other = make("add", step, factor), one
    half = make("multiply", make("add", make("multiply", twice, one), _CHEBYSHEV[0]), 0.5)
    return t, make("subtract", half, other)


OF_ANY_FLOAT: Mapping[tuple[str, str], Formula] = {
    ("atan", "Atan"): arctangent,
    ("cosh", "Cosh"): hyperbolic_cosine,
    ("expm1", ""): exponential_less_one,
    ("sinh", "Sinh"): hyperbolic_sine,
    ("tan", "Tan"): tangent,
}
"""By the names of torch and ONNX, "" where there is none: those that keep their digits."""

IN_DOUBLE: Mapping[tuple[str, str], Formula] = {
    ("acos", "Acos"): arccosine,
    ("acosh", "Acosh"): area_cosine,
    ("asin", "Asin"): arcsine,
    ("asinh", "Asinh"): area_sine,
    ("atanh", "Atanh"): area_tangent,
    ("digamma", ""): digamma,
    ("erfc", ""): complementary_error,
    ("lgamma", ""): log_gamma,
    ("special_erfcx", ""): scaled_complementary_error,
}
"""Those that lose digits: narrower floats are calculated in float64, and float64 itself is not."""


MAX_DETERMINANT_ROWS = 4
"""Maximum number of rows: 4 rows are 24 products of 4 elements, 5 rows would be 120 of 5."""


def truncated_quotient(t: Translator, a: Any, b: Any) -> Any:
    """Return ``a / b`` of integers, rounded towards 0: one more than rounded down, where that is below 0 and something is left."""
    floored = t.node("floor_divide", a, b)
    if t.dtype(a) in UNSIGNED:
        return floored
    is_rounded = t.node("not_equal", t.node("multiply", floored, b), a)
    is_below = t.node("logical_and", t.node("less", floored, 0), is_rounded)
    return t.node("where", is_below, t.node("add", floored, 1), floored)


def determinants(t: Translator, x: Any) -> Any | None:
    """Return the determinants of floats along the last two axes, along the first row; in float64, as they cancel. None for matrices that are not
    of 1 to `MAX_DETERMINANT_ROWS` rows.
    """
    rank, order = t.rank(x), plain(t.shape(x)[-1])
    if not isinstance(order, int) or not 1 <= order <= MAX_DETERMINANT_ROWS:
        return None
    outer, wide = t.shape(x)[:-2], t.cast(x, "float64")
    rows = [t.slice(wide, rank - 2, n, n + 1) for n in range(order)]
    elements = [
        [t.reshape(t.slice(row, rank - 1, n, n + 1), outer) for n in range(order)] for row in rows
    ]

    def below(row: int, columns: tuple[int, ...]) -> Any:
        """Of the rows from `row` on, in some columns."""
        if len(columns) == 1:
            return elements[row][columns[0]]
        total = None
        for n, column in enumerate(columns):
            rest = below(row + 1, columns[:n] + columns[n + 1 :])
            term = t.node("multiply", elements[row][column], rest)
            total = term if total is None else t.node("subtract" if n % 2 else "add", total, term)
        return total

    return t.cast(below(0, tuple(range(order))), t.dtype(x))
