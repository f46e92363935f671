"""Elements moved, joined, looked up, and turned into small integers and back."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest
from compiled import floats
from conftest import edge_sizes
from operators import Operator, integers

import offcut as oc
from offcut import ops
from tests.facade import INTEGERS, numpy_dtype

LENGTHS = edge_sizes(16)
b, m, n = (oc.dim(name, max=4096) for name in "bmn")


@pytest.mark.every(4)
@pytest.mark.parametrize("axes", [None, (-1, 0, 1), *permutations(range(3))], ids=str)
def test_axes_are_put_in_any_order(axes: Any) -> None:
    x = oc.placeholder((b, m, n), name="X")
    op = Operator(ops.transpose(x, axes), [x])
    for shape in [(0, 5, 3), (1, 1, 1), (2, 17, 15), (17, 3, 53)]:
        a = floats("a", *shape)
        op.check([a], a.transpose(axes), interpreted=shape == (2, 17, 15))


@pytest.mark.every(6)
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_tensors_are_joined_along_any_axis(axis: int, dtype: str) -> None:
    shapes: list[list[Any]] = [[b, b, b] for _ in range(3)]
    for shape, extent in zip(shapes, (m, 3, n), strict=True):
        shape[axis] = extent
    tensors = [oc.placeholder(s, dtype, name) for s, name in zip(shapes, "XYZ", strict=True)]
    op = Operator(ops.concat(tensors, axis), tensors)
    for first, second in [(0, 0), (1, 0), (17, 15), (2, 53)]:
        arrays = []
        for extent in (first, 3, second):
            shape = [4, 4, 4]
            shape[axis] = extent
            arrays.append(
                floats(extent, *shape) if dtype == "float32" else integers(extent, dtype, *shape)
            )
        exact = np.concatenate(arrays, axis)
        op.check(arrays, exact, interpreted=first == 1)


def test_one_tensor_joined_is_itself() -> None:
    x = oc.placeholder((m,), name="X")
    a = floats("a", 17)
    Operator(ops.concat([x]), [x]).check([a], a)


def test_heads_are_split_and_merged() -> None:
    x = oc.placeholder((b, m, 12), name="X")
    heads = ops.transpose(ops.split_axis(x, -1, 4), (0, 2, 1, 3), name="H")
    back = ops.merge_axes(ops.transpose(heads, (0, 2, 1, 3)), -2)
    apart, together = Operator(heads, [x]), Operator(back, [x])
    for length in LENGTHS:
        a = floats("a", 2, length, 12)
        apart.check([a], a.reshape(2, length, 3, 4).transpose(0, 2, 1, 3), interpreted=length == 1)
        together.check([a], a, interpreted=length == 1)


def test_a_symbolic_axis_is_split_where_it_is_a_multiple() -> None:
    even = oc.dim("even", max=64, multiple_of=4)
    x = oc.placeholder((3 * even + 2,), name="X")
    op = Operator(ops.split_axis(x, 0, 2), [x])
    for size in (0, 4, 12):
        a = floats("a", 3 * size + 2)
        op.check([a], a.reshape(-1, 2))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_an_embedding_is_rows_of_the_table(dtype: str) -> None:
    table, ids = oc.placeholder((n, 19), dtype, "T"), oc.placeholder((b, m), "int32", "I")
    op = Operator(ops.embedding(table, ids), [table, ids])
    rows = floats("t", 7, 19).astype(numpy_dtype(dtype))
    for length in LENGTHS:
        numbers = integers("i", "uint8", 2, length).astype("int32") % 7
        found = op.kernel(rows, numbers)
        assert found.dtype == rows.dtype
        np.testing.assert_array_equal(found, rows[numbers])


@pytest.mark.every(6)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_an_element_of_any_integer_type_is_an_index(dtype: str) -> None:
    table, ids = oc.placeholder((n, m), name="T"), oc.placeholder((b,), dtype, "I")

    def row(i: Any, j: Any) -> Any:
        here = oc.index(ids[i])
        return oc.where(here < n, table[here, j], -1.0) + table[oc.index(ids[i + 1 - 1]) % 7, j]

    op = Operator(oc.compute((b, m), row, name="Y"), [table, ids])
    rows, numbers = floats("t", 7, 19), np.array([3, 0, 7, 6, 101], dtype)
    chosen = np.where((numbers < 7)[:, None], rows[numbers % 7], -1.0)
    op.check([rows, numbers], chosen.astype("float64") + rows[numbers % 7], interpreted=True)


def test_logarithms_are_those_of_the_elements() -> None:
    x = oc.placeholder((n,), name="X")
    op = Operator(oc.compute((n,), lambda i: oc.log(x[i]), name="Y"), [x])
    a = np.concatenate([np.abs(floats("a", 53)), np.array([0, 1, np.inf, 1e-40], "float32")])
    with np.errstate(divide="ignore"):
        op.check([a], np.log(a.astype("float64")), interpreted=True)
    assert np.isnan(op.kernel(np.array([-1, np.nan], "float32"))).all()


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("by_column", [False, True])
def test_quantizing_rounds_to_even_and_saturates(by_column: bool, dtype: str) -> None:
    x = oc.placeholder((m, n), name="X")
    scale, zero = oc.placeholder((n,), name="S"), oc.placeholder((n,), "int32", "Z")
    given = [x, scale, zero] if by_column else [x]
    output = ops.quantize(x, scale, zero, dtype) if by_column else ops.quantize(x, 0.5, 3, dtype)
    op, info = Operator(output, given), np.iinfo(dtype)
    for shape in [(0, 5), (1, 1), (17, 15), (3, 53)]:
        a = (integers("a", "int8", *shape) / np.float32(4)).astype("float32")
        a.flat[::7] *= 1e6
        s = np.full(shape[1], 0.25, "float32") if by_column else np.float32(0.5)
        z = np.arange(shape[1], dtype="int32") if by_column else 3
        exact = np.clip(np.rint(a / s).astype("float64") + z, info.min, info.max).astype(dtype)
        op.check([a, *([s, z] if by_column else [])], exact, interpreted=shape == (17, 15))


def test_nan_is_quantized_to_the_least_and_infinity_to_the_ends() -> None:
    x = oc.placeholder((n,), name="X")
    op = Operator(ops.quantize(x, 0.1, -5), [x])
    a = np.array([np.nan, np.inf, -np.inf, 0.0], "float32")
    op.check([a], np.array([-128, 127, -128, -5], "int8"), interpreted=True)


@pytest.mark.parametrize(
    ("shift", "dtype", "low"), [(0, "int8", None), (6, "int8", 0), (30, "uint8", 3)]
)
def test_requantizing_floors_and_saturates(shift: int, dtype: str, low: int | None) -> None:
    x, info = oc.placeholder((m, n), "int32", "X"), np.iinfo(dtype)
    op = Operator(ops.requantize(x, shift, dtype, low), [x])
    for shape in [(0, 5), (1, 1), (17, 15), (3, 53)]:
        a = integers("a", "int32", *shape)
        a.flat[::5] = (-(2**31), 2**31 - 1, -1)[shape[0] % 3]
        exact = (a.astype("int64") // 2**shift).clip(info.min if low is None else low, info.max)
        op.check([a], exact.astype(dtype), interpreted=shape == (17, 15))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32"])
def test_a_residual_is_added_behind_the_shift(dtype: str) -> None:
    x, r = oc.placeholder((m, n), "int32", "X"), oc.placeholder((m, n), dtype, "R")
    op = Operator(ops.requantize(x, 24, low=0, residual=r), [x, r])
    for shape in [(0, 5), (1, 1), (17, 15)]:
        a, b = integers("a", "int32", *shape), integers("b", dtype, *shape) // 4
        exact = (a.astype("int64") // 2**24 + b).clip(0, 127).astype("int8")
        op.check([a, b], exact, interpreted=shape == (17, 15))


@pytest.mark.every(3)
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32"])
@pytest.mark.parametrize("axis", [0, 1])
def test_dequantizing_is_affine_along_an_axis(axis: int, dtype: str) -> None:
    x = oc.placeholder((m, n), dtype, "X")
    extent = (m, n)[axis]
    scale, zero = oc.placeholder((extent,), name="S"), oc.placeholder((extent,), "int32", "Z")
    op = Operator(ops.dequantize(x, scale, zero, axis=axis), [x, scale, zero])
    for shape in [(0, 5), (1, 1), (17, 15), (3, 53)]:
        a = integers("a", "uint8" if dtype == "uint8" else "int8", *shape).astype(dtype)
        s, z = floats("s", shape[axis]), np.arange(shape[axis], dtype="int32")
        along = (-1, 1) if axis == 0 else (1, -1)
        exact = (a.astype("float64") - z.reshape(along)) * s.reshape(along)
        op.check([a, s, z], exact, interpreted=shape == (1, 1))
