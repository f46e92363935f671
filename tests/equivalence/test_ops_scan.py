"""Sums, products and extremes up to each element, against numpy."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from compiled import floats
from conftest import edge_sizes
from operators import Operator, integers

import offcut as oc
from offcut import ops
from offcut.ops.loop_programs.accumulating import FEW
from offcut.ops.reductions.scan import BLOCK
from tests.agree import agree
from tests.facade import numpy_dtype

b, m, n = oc.dim("b", max=64), oc.dim("m", max=64), oc.dim("n", max=10_000)


@pytest.mark.every(3)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_each_element_has_the_sum_of_those_up_to_it(axis: int) -> None:
    shape: list[Any] = [b, b, m]
    shape[axis] = n
    x = oc.placeholder(shape, name="X")
    op = Operator(ops.cumsum(x, axis), [x])
    for length in [*edge_sizes(16), *edge_sizes(BLOCK)[2:], BLOCK * BLOCK + 1]:
        own = [2, 2, 3]
        own[axis] = length
        a = integers("a", "int8", *own).astype("float32")  # whose sums float32 holds
        op.check([a], np.cumsum(a.astype("f8"), axis), interpreted=length == 17)


@pytest.mark.every(8)
@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "float16", "int8", "int32", "int64"])
def test_sums_of_other_types_are_wider(dtype: str) -> None:
    x = oc.placeholder((n,), dtype, "X")
    op = Operator(ops.cumsum(x, 0), [x])
    for length in (0, 1, 17, 199):
        if dtype.startswith("int"):
            a = integers("a", "int8", length).astype(dtype)
            exact = np.cumsum(a, dtype="int32" if dtype == "int8" else dtype)
        else:
            a = floats("a", length).astype(numpy_dtype(dtype))
            exact = np.cumsum(a.astype("f8"))
        op.check([a], exact, interpreted=length == 17)


def test_an_extent_of_any_size_is_a_few_rounds() -> None:
    length = oc.dim("length")
    x = oc.placeholder((length,), "int32", "X")
    op = Operator(ops.cumsum(x, 0), [x])
    a = integers("a", "int8", 300_000).astype("int32")
    np.testing.assert_array_equal(op.kernel(a), np.cumsum(a, dtype="int32"))


def test_an_infinity_is_seen_by_those_after_it_alone() -> None:
    x = oc.placeholder((n,), name="X")
    op = Operator(ops.cumsum(x, 0), [x])
    a = np.ones(200, "float32")
    a[70], a[150] = np.inf, np.nan
    op.check([a], np.cumsum(a.astype("f8")))


def test_conditions_that_hold_are_counted() -> None:
    x = oc.placeholder((n,), "bool", "X")
    op = Operator(ops.cumsum(x, 0), [x])
    a = integers("a", "uint8", 199) < 99
    op.check([a], np.cumsum(a, dtype="int32"), interpreted=True)


@pytest.mark.every(8)
@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("op", ["cummax", "cummin"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32"])
def test_each_element_has_the_extreme_of_those_up_to_it(op: str, dtype: str, axis: int) -> None:
    x = oc.placeholder((n, m) if axis == 0 else (m, n), dtype, "X")
    kernel = Operator(getattr(ops, op)(x, axis), [x])
    over = np.maximum if op == "cummax" else np.minimum
    for length in (0, 1, 17, 199):
        a = integers("a", "int8", *((length, 3) if axis == 0 else (3, length)))
        given = a.astype(numpy_dtype(dtype))
        if length == 199 and dtype != "int32":
            given[1, 1] = np.nan
        exact = over.accumulate(given.astype("f8" if dtype != "int32" else dtype), axis)
        kernel.check([given], exact, interpreted=length == 17)


def test_each_element_has_the_product_of_those_up_to_it() -> None:
    x = oc.placeholder((n,), "float64", "X")
    op = Operator(ops.cumprod(x, 0), [x])
    for length in (0, 1, 17, 199):
        a = floats("a", length).astype("f8") + 1.5
        agree(op.kernel(a), np.cumprod(a), units=length)


@pytest.mark.every(4)
@pytest.mark.parametrize("shape", [(b, n), (n, m), (b, n, m), (n, b, 3), (b, m, n)], ids=str)
def test_a_loop_program_adds_each_element_once(shape: tuple[Any, ...]) -> None:
    x, axis = oc.placeholder(shape, name="X"), shape.index(n)
    op = Operator(ops.accumulated(x, axis), [x])
    for rows, length, behind in product((1, 8, 11), (0, 1, 17), (1, FEW, 19)):
        sizes = {b: rows, n: length, m: behind}
        a = floats("a", *(sizes.get(extent, 3) for extent in shape))
        op.check([a], np.cumsum(a.astype("f8"), axis), interpreted=rows == behind == FEW)


@pytest.mark.every(4)
@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "int8", "int64"])
@pytest.mark.parametrize("reduction", ["mul", "max", "min"])
def test_a_loop_program_joins_elements_of_any_type(dtype: str, reduction: str) -> None:
    x = oc.placeholder((n, m), dtype, "X")
    op = Operator(ops.accumulated(x, 0, reduction), [x])
    over = {"mul": np.multiply, "max": np.maximum, "min": np.minimum}[reduction]
    for behind in (3, 17):
        a = (integers("a", "int8", 7, behind) % 5).astype(numpy_dtype(dtype))
        wide = a.astype("f8" if dtype in ("float64", "bfloat16") else "int64")
        op.check([a], over.accumulate(wide, 0), interpreted=True)


@pytest.mark.every(6)
@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
@pytest.mark.parametrize("shape", [(b, n), (n, 19)], ids=str)
def test_a_loop_program_joins_logarithms_of_sums(shape: tuple[Any, ...], dtype: str) -> None:
    x, axis = oc.placeholder(shape, dtype, "X"), shape.index(n)
    op = Operator(ops.accumulated(x, axis, "logaddexp"), [x])
    for rows, length in product((1, 11), (0, 1, 17)):
        sizes = {b: rows, n: length}
        a = floats("a", *(sizes.get(extent, 19) for extent in shape), dtype=dtype) * 90
        lines = np.moveaxis(a, axis, 0)
        for place, value in enumerate((-np.inf, -np.inf, 3.0, np.inf, np.inf)):
            lines[place::7, place % lines.shape[1]] = value
        lines[9:, -1] = np.nan
        with np.errstate(all="ignore"):
            exact = np.logaddexp.accumulate(a.astype("f8"), axis)
        op.check([a], exact, interpreted=length == 17)


@pytest.mark.every(3)
@pytest.mark.parametrize("shape", [(n,), (9, n), (n, 9)], ids=str)
@pytest.mark.parametrize("reduction", ["max", "min"])
def test_the_place_of_an_extreme_is_that_of_the_last(reduction: str, shape: Any) -> None:
    x, axis = oc.placeholder(shape, name="X"), shape.index(n)
    op = Operator(ops.accumulated(x, axis, reduction, places=True), [x])
    a = (integers("a", "int8", *(17 if extent is n else 9 for extent in shape)) % 5).astype("f4")
    np.moveaxis(a, axis, 0)[[11, 14], ...] = np.nan
    over = np.maximum if reduction == "max" else np.minimum
    values = over.accumulate(a, axis)
    count = np.moveaxis(np.broadcast_to(np.arange(17), np.moveaxis(a, axis, -1).shape), -1, axis)
    here = (a == values) | np.isnan(a)
    places = np.maximum.accumulate(np.where(here, count, 0), axis)
    found = op.kernel(a)
    np.testing.assert_array_equal(found[0], values)
    np.testing.assert_array_equal(found[1], places)
    assert [one.dtype for one in found] == [np.float32, np.int64]
