"""Arithmetic by element, of every element type, against numpy in float64 and against the interpreter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from compiled import Array, build, floats
from operators import EDGES, integers, specials, wide, within

import offcut as oc
from offcut import Tensor, ops
from tests.facade import FLOATS, INTEGERS, UNSIGNED, numpy_dtype

Reference = Callable[..., Any]

OF_TWO: dict[Callable[..., Tensor], Reference] = {
    ops.add: np.add,
    ops.subtract: np.subtract,
    ops.multiply: np.multiply,
    ops.maximum: np.maximum,
    ops.minimum: np.minimum,
    ops.remainder: np.remainder,
    ops.divide: np.true_divide,
    ops.floor_divide: np.floor_divide,
}
OF_ONE: dict[str, tuple[Callable[[Tensor], Tensor], Reference, float]] = {
    "negative": (ops.negative, np.negative, 0),
    "absolute": (ops.absolute, np.abs, 0),
    "square": (ops.square, np.square, 0.5),
    "clip": (lambda x: ops.clip(x, 2, 50), lambda x: np.clip(x, 2, 50), 0.5),
    "clip below": (lambda x: ops.clip(x, low=3), lambda x: np.maximum(x, 3), 0.5),
    "clip above": (lambda x: ops.clip(x, high=3), lambda x: np.minimum(x, 3), 0.5),
    "relu6": (ops.relu6, lambda x: np.minimum(np.maximum(x, 0), 6), 0),
    "x ** 0": (lambda x: ops.power(x, 0), lambda x: x**0, 0),
    "x ** 1": (lambda x: ops.power(x, 1), lambda x: x, 0),
    "x ** 3": (lambda x: ops.power(x, 3), lambda x: x**3, 2),
    "3 + x": (lambda x: ops.add(3, x), lambda x: x + 3, 0.5),
    "3 - x": (lambda x: ops.subtract(3, x), lambda x: 3 - x, 0.5),
    "x - 3": (lambda x: ops.subtract(x, 3), lambda x: x - 3, 0.5),
    "x % 3": (lambda x: ops.remainder(x, 3), lambda x: x % 3, 0.5),
}
OF_FLOATS: dict[str, tuple[Callable[[Tensor], Tensor], Reference, float]] = {
    "reciprocal": (ops.reciprocal, lambda x: 1 / x, 0.5),
    "sqrt": (ops.sqrt, np.sqrt, 0.5),
    "rsqrt": (ops.rsqrt, lambda x: 1 / np.sqrt(x), 1.5),
    "x ** 4": (lambda x: ops.power(x, 4), lambda x: x**4, 2),
    "x ** -1": (lambda x: ops.power(x, -1), lambda x: 1 / x, 0.5),
    "x ** -2": (lambda x: ops.power(x, -2), lambda x: (1 / x) ** 2, 2),
    "x ** 0.5": (lambda x: ops.power(x, 0.5), np.sqrt, 0.5),
    "1 / x": (lambda x: ops.divide(1, x), lambda x: 1 / x, 0.5),
    "x % -2.5": (lambda x: ops.remainder(x, -2.5), lambda x: x % -2.5, 0.5),
    "hardsigmoid": (ops.hardsigmoid, lambda x: np.clip(x + 3, 0, 6) / 6, 2),
}


def exactly(of: Reference, *arrays: Array) -> Array:
    """In float64 of floats; of integers in their own type, which wraps."""
    given = arrays if arrays[0].dtype.name in INTEGERS else wide(*arrays)
    with np.errstate(all="ignore"):
        return np.asarray(of(*given))


def results(outputs: list[Tensor], inputs: list[Tensor]) -> Callable[..., list[Array]]:
    """All of them by one kernel; where they are few elements, as its loops say too."""
    kernel = build(outputs, inputs=inputs)

    def run(*arrays: Array) -> list[Array]:
        found = [np.asarray(one) for one in kernel(*arrays)]
        if 0 < arrays[0].size <= 40:
            named = {t.name: a for t, a in zip(inputs, arrays, strict=True)}
            for one, other in zip(found, kernel.loops.run(named), strict=True):
                np.testing.assert_array_equal(*wide(one, np.asarray(other)))
        return found

    return run


def drawn(seed: object, dtype: str, *shape: int) -> Array:
    return floats(seed, *shape, dtype=dtype) if dtype in FLOATS else integers(seed, dtype, *shape)


@pytest.mark.every(3)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_a_number_divides_as_a_tensor_of_it_does(dtype: str) -> None:
    x = oc.placeholder((oc.dim("n"),), dtype, "X")
    numbers = [1, 3, 49, *([-3] if dtype not in UNSIGNED else [])]
    run = results([ops.floor_divide(x, number) for number in numbers], [x])
    for a in (specials(dtype), drawn("x", dtype, 17)):
        for number, found in zip(numbers, run(a), strict=True):
            np.testing.assert_array_equal(found, a // np.array(number, dtype))


@pytest.mark.every(8)
@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
def test_two_operands_give_what_numpy_gives(dtype: str) -> None:
    n = oc.dim("n")
    x, y = (oc.placeholder((n,), dtype, name) for name in ("X", "Y"))
    other = ops.floor_divide if dtype in FLOATS else ops.divide
    chosen = [op for op in OF_TWO if op is not other]
    run = results([op(x, y) for op in chosen], [x, y])
    pairs = [(drawn("x", dtype, size), drawn("y", dtype, size)) for size in EDGES]
    every = specials(dtype)
    pairs.append(tuple(part.ravel() for part in np.meshgrid(every, every)))  # type: ignore[arg-type]
    for one, other in pairs:
        for op, found in zip(chosen, run(one, other), strict=True):
            assert found.dtype == numpy_dtype(dtype)
            within(0.5, found, exactly(OF_TWO[op], one, other))


@pytest.mark.every(6)
@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
def test_one_operand_gives_what_numpy_gives(dtype: str) -> None:
    x = oc.placeholder((oc.dim("n"),), dtype, "X")
    cases = {**OF_ONE, **(OF_FLOATS if dtype in FLOATS else {})}
    run = results([of(x) for of, _, _ in cases.values()], [x])
    for given in (*(drawn("x", dtype, size) for size in EDGES), specials(dtype)):
        for (_, reference, ulps), found in zip(cases.values(), run(given), strict=True):
            assert found.dtype == numpy_dtype(dtype)
            rounding = 0.5 if dtype in ("float16", "bfloat16") else 0.0
            within(max(ulps, rounding) + 1e-3, found, exactly(reference, given))


def test_axes_are_paired_from_the_last_on_and_a_literal_one_is_repeated() -> None:
    n, m = oc.dim("n"), oc.dim("m")
    x = oc.placeholder((n, 1, m), name="X")
    y, z, s = (
        oc.placeholder((5, m), name="Y"),
        oc.placeholder((n, 5, 1), name="Z"),
        oc.placeholder((), name="S"),
    )
    made = [ops.add(x, y), ops.multiply(z, x), ops.subtract(s, y), ops.maximum(x, x)]
    assert [tensor.shape for tensor in made] == [(n, 5, m), (n, 5, m), (5, m), (n, 1, m)]
    run = results(made, [x, y, z, s])
    for rows, columns in ((0, 3), (1, 1), (2, 17), (3, 64)):
        a, b = floats("x", rows, 1, columns), floats("y", 5, columns)
        c, d = floats("z", rows, 5, 1), floats("s")
        for found, exact in zip(run(a, b, c, d), (a + b, c * a, d - b, a), strict=True):
            np.testing.assert_array_equal(found, exact)


def test_a_power_of_integers_wraps() -> None:
    x = oc.placeholder((oc.dim("n"),), "int32", "X")
    run = results([ops.power(x, 2), ops.power(x, 31), ops.power(x, 64)], [x])
    given = integers("power", "int32", 33)
    with np.errstate(over="ignore"):
        for found, exponent in zip(run(given), (2, 31, 64), strict=True):
            np.testing.assert_array_equal(found, given**exponent)


@pytest.mark.parametrize(
    ("op", "reference"),
    [
        (ops.floor_divide, np.floor_divide),
        (ops.remainder, np.remainder),
        (ops.subtract, np.subtract),
    ],
)
def test_operands_are_inputs_in_their_order_where_nobody_gives_one(
    op: Callable[..., Tensor], reference: Reference
) -> None:
    n = oc.dim("n", max=64)
    kernel = oc.compile(op(*(oc.placeholder((n,), "int32", name=name) for name in "JI")))
    x, y = np.array([7, 9], "int32"), np.array([2, 4], "int32")
    np.testing.assert_array_equal(kernel(x, y), reference(x, y))
