"""Functions that hosts have and offcut composes, in float64 by the interpreter, against scipy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special

from offcut.plugins.operators import functions as special
from tests.agree import agree
from tests.facade import Builder, Ref, compile_graph, interpret_graph

FORMULAS: dict[str, tuple[Callable[..., Ref], Callable[[Any], Any]]] = {
    "the rest of the error function": (special.complementary_error, scipy.special.erfc),
    "the same times exp(x**2)": (special.scaled_complementary_error, scipy.special.erfcx),
    "the logarithm of gamma": (special.log_gamma, scipy.special.gammaln),
    "its derivative": (special.digamma, scipy.special.digamma),
}
ANY = [0.0, -0.0, 0.5, 1e-30, 25.0, 1e5, np.inf, np.nan, -1.0, -2.0, -7.0]


@pytest.mark.parametrize("name", FORMULAS)
def test_a_formula_is_more_exact_than_float32_is_told_apart(name: str) -> None:
    formula, exactly = FORMULAS[name]
    builder = Builder("one")
    x = builder.input("x", "float64", (builder.size("n"),))
    builder.output(formula(builder.node, x))
    rng = np.random.default_rng(0)
    between = np.arange(-9, 9) + rng.uniform(0.1, 0.9, 18)
    near = np.repeat([1.0, 2.0, 1.4616321449683622], 40) + rng.uniform(-1e-5, 1e-5, 120)
    given = np.concatenate([rng.uniform(0, 25, 500), rng.uniform(0, 3, 500), between, near, ANY])
    with np.errstate(all="ignore"):
        (found,) = interpret_graph(builder.bound, {"x": given}).values()
        exact = exactly(given)
    zeros = 1e-5 if "gamma" in name or "derivative" in name else 0  # they cancel about them
    agree(found, exact, terms=zeros, units=2.0**24)  # what the formulas leave


@pytest.mark.every(2)
@pytest.mark.parametrize(
    ("formula", "exactly"),
    [
        (special.area_sine, np.arcsinh),
        (special.area_cosine, np.arccosh),
        (special.area_tangent, np.arctanh),
        (special.exponential_less_one, np.expm1),
        (special.hyperbolic_cosine, np.cosh),
        (special.hyperbolic_sine, np.sinh),
    ],
)
def test_functions_hold_their_digits_near_0_and_1_and_where_squares_or_powers_overflow(
    formula: Callable[..., Ref], exactly: Callable[[Any], Any]
) -> None:
    builder = Builder("one")
    x = builder.input("x", "float64", (builder.size("n"),))
    builder.output(formula(builder.node, x))
    sizes = [0.0, 5e-324, 1e-310, 1e-200, 1e-9, 1e-3, 0.5, 1 - 1e-12, 1.0, 1 + 1e-12, 2.5]
    sizes += [
        709.5,
        710.4,
        711.0,
        2.0**28,
        2.0**28 + 1,
        1e200,
        np.finfo("float64").max,
        np.inf,
        np.nan,
    ]
    given = np.concatenate([sizes, np.negative(sizes)])
    with np.errstate(all="ignore"):
        exact = exactly(given)
        (found,) = interpret_graph(builder.bound, {"x": given}).values()
    (ran,) = compile_graph(builder.bound)({"x": given}).values()
    for one in (found, ran):
        agree(one, exact, units=45)
        told = exact == 0
        assert np.array_equal(np.signbit(one[told]), np.signbit(exact[told]))
