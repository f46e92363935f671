"""Functions and conversions by element, against numpy in float64 and against the interpreter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from compiled import Array, build, floats
from operators import EDGES, integers, specials, wide, within
from scipy import special

import offcut as oc
from offcut import Tensor, ops
from offcut.core.interpret.values import cast_values
from tests.facade import FLOATS, INTEGERS, numpy_dtype

Case = tuple[Callable[[Tensor], Tensor], Callable[[Array], Any], float]

FUNCTIONS: dict[str, Case] = {
    "exp": (ops.exp, np.exp, 2),
    "log": (ops.log, np.log, 2),
    "erf": (ops.erf, special.erf, 2),
    "log1p": (ops.log1p, np.log1p, 2),
    "sin": (ops.sin, np.sin, 2),
    "cos": (ops.cos, np.cos, 2),
    "floor": (ops.floor, np.floor, 0),
    "ceil": (ops.ceil, np.ceil, 0),
    "round": (ops.round, np.rint, 0),
    "sign": (ops.sign, np.sign, 0),
    "softplus": (ops.softplus, lambda x: np.logaddexp(0, x), 2.5),
    "x ** 2.5": (lambda x: ops.power(x, 2.5), lambda x: x**2.5, 2),
    "1.5 ** x": (lambda x: ops.power(1.5, x), lambda x: 1.5**x, 2),
    "leaky_relu": (ops.leaky_relu, lambda x: np.where(x > 0, x, 0.01 * x), 1.5),
    "leaky_relu 2": (lambda x: ops.leaky_relu(x, 2), lambda x: np.where(x > 0, x, 2 * x), 0.5),
    "elu": (ops.elu, lambda x: np.where(x > 0, x, np.expm1(x)), 6),
    "elu 0.5": (lambda x: ops.elu(x, 0.5), lambda x: np.where(x > 0, x, np.expm1(x) / 2), 6),
}


@pytest.mark.every(4)
@pytest.mark.parametrize("dtype", FLOATS)
def test_a_function_is_within_its_error_of_float64(dtype: str) -> None:
    x = oc.placeholder((oc.dim("n"),), dtype, "X")
    kernel = build([of(x) for of, _, _ in FUNCTIONS.values()], inputs=[x])
    for given in (*(floats("x", size, dtype=dtype) for size in EDGES), specials(dtype)):
        with np.errstate(all="ignore"):
            for (_, reference, ulps), found in zip(FUNCTIONS.values(), kernel(given), strict=True):
                assert found.dtype == numpy_dtype(dtype)
                exact = np.asarray(reference(given.astype("float64")))
                allowed = ulps if dtype in ("float32", "float64") else 0.51
                within(allowed, found, exact)


@pytest.mark.every(2)
@pytest.mark.parametrize("dtype", FLOATS)
def test_a_power_of_elements_is_c_s_for_special_values_too(dtype: str) -> None:
    x, y = (oc.placeholder((oc.dim("n"),), dtype, name) for name in ("X", "Y"))
    kernel = build(ops.power(x, y), inputs=[x, y])
    every = specials(dtype)
    pairs = [tuple(part.ravel() for part in np.meshgrid(every, every))]
    pairs += [(np.abs(floats("x", n, dtype=dtype)), floats("y", n, dtype=dtype)) for n in EDGES]
    for a, b in pairs:
        with np.errstate(all="ignore"):
            exact = np.power(*wide(a, b))
            found = np.asarray(kernel(a, b))
            within(1 if dtype in ("float32", "float64") else 0.51, found, exact)
            told = ~np.isnan(exact)
            np.testing.assert_array_equal(np.signbit(found)[told], np.signbit(exact)[told])
            if 0 < a.size <= 40:
                again = np.asarray(kernel.loops.run({"X": a, "Y": b}))
                within(1.01, again, exact)


def test_signs_are_of_integers_too() -> None:
    for dtype in INTEGERS:
        x = oc.placeholder((oc.dim("n"),), dtype, "X")
        kernel = build(ops.sign(x), inputs=[x])
        for given in (*(integers("x", dtype, size) for size in EDGES), specials(dtype)):
            np.testing.assert_array_equal(kernel(given), np.sign(given))


@pytest.mark.parametrize("dtype", FLOATS)
def test_hardswish_is_near_where_it_does_not_cancel(dtype: str) -> None:
    x = oc.placeholder((oc.dim("n"),), dtype, "X")
    kernel = build(ops.hardswish(x), inputs=[x])
    for given in (*(floats("x", size, dtype=dtype) for size in EDGES), specials(dtype)):
        exact = given.astype("float64")
        with np.errstate(all="ignore"):
            exact = exact * np.clip(exact + 3, 0, 6) / 6
        finite = np.where(np.isfinite(exact), exact, 0.0)
        found = np.asarray(kernel(given))
        np.testing.assert_array_equal(np.isnan(found), np.isnan(exact))
        within(4, found[finite == exact], exact[finite == exact])


@pytest.mark.every(8)
@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
def test_a_conversion_gives_what_the_interpreter_gives(dtype: str) -> None:
    x = oc.placeholder((oc.dim("n"),), dtype, "X")
    others = (*FLOATS, *INTEGERS)
    kernel = build([ops.cast(x, other) for other in others], inputs=[x])
    for size in (*EDGES, None):
        if size is None:
            given = specials(dtype)
        elif dtype in FLOATS:
            given = floats("x", size, dtype=dtype) * numpy_dtype(dtype).type(50)
        else:
            given = integers("x", dtype, size)
        with np.errstate(all="ignore"):
            for other, found in zip(others, kernel(given), strict=True):
                assert found.dtype == numpy_dtype(other)
                np.testing.assert_array_equal(*wide(found, cast_values(given, numpy_dtype(other))))
