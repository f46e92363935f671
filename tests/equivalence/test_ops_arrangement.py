"""Elements moved, joined, looked up, padded, repeated and counted, and turned into small integers and back."""

from __future__ import annotations

from itertools import permutations, product
from typing import Any

import numpy as np
import pytest
from compiled import Array, floats
from conftest import edge_sizes
from operators import Operator, integers

import offcut as oc
from offcut import ops
from offcut.core.dtypes import INDEX_DTYPES
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


def elements(dtype: str, *shape: int) -> Array:
    if dtype in INTEGERS:
        return integers("a", dtype, *shape)
    return floats("a", *shape, dtype=dtype)


@pytest.mark.parametrize(
    ("before", "after", "value"),
    [((1, 2), (0, 3), 0.0), ((0, 0), (0, 0), 1.0), ((2, -1), (-2, 1), -np.inf)],
)
def test_a_value_is_put_around_and_elements_left_out(before: Any, after: Any, value: float) -> None:
    least = 2 if -2 in after else 0
    x = oc.placeholder((oc.dim("m", min=least, max=4096), oc.dim("n", min=1, max=99)), name="X")
    op = Operator(ops.pad(x, before, after, value), [x])
    for rows, columns in [*product(LENGTHS, (1, 17)), *product((2, 17), LENGTHS)]:
        if rows < least or columns < 1:
            continue
        a = floats("a", rows, columns)
        widths = [(max(p, 0), max(q, 0)) for p, q in zip(before, after, strict=True)]
        cut = tuple(
            slice(max(-p, 0), size + w[0] + w[1] - max(-q, 0))
            for p, q, size, w in zip(before, after, a.shape, widths, strict=True)
        )
        exact = np.pad(a, widths, constant_values=value)[cut]
        op.check([a], exact, interpreted=(rows, columns) == (17, 1))


def test_a_value_of_the_call_is_put_around() -> None:
    x, value = oc.placeholder((n, 5), "uint8", name="X"), oc.placeholder((), "uint8", name="V")
    op = Operator(ops.pad(x, (1, 0), (2, 3), value), [x, value])
    for rows in (0, 1, 17):
        a, around = integers("a", "uint8", rows, 5), np.array(rows + 7, "uint8")
        exact = np.pad(a, ((1, 2), (0, 3)), constant_values=around)
        op.check([a, around], exact, interpreted=rows == 1)


@pytest.mark.parametrize("mode", ["edge", "reflect"])
def test_the_edge_is_repeated_or_mirrored(mode: str) -> None:
    high, across = oc.dim("h", min=4, max=512), oc.dim("w", min=3, max=512)
    x = oc.placeholder((b, high, across), name="X")
    before, after = (0, 3, 1), (0, 2, 2)
    op = Operator(ops.pad(x, before, after, mode=mode), [x])
    for rows, columns in [(4, 3), (16, 17), (53, 15)]:
        a = floats("a", 2, rows, columns)
        exact = np.pad(a, list(zip(before, after, strict=True)), mode=mode)  # type: ignore[call-overload]
        op.check([a], exact, interpreted=rows == 4)


def test_what_is_mirrored_has_to_be_there() -> None:
    x = oc.placeholder((n,), name="X")
    with pytest.raises(oc.PartitionError, match=r"n = 0"):
        oc.compile(ops.pad(x, 1, 1, mode="edge"), inputs=[x])


@pytest.mark.every(4)
@pytest.mark.parametrize("dtype", ["bfloat16", "float64", "int8", "int32"])
def test_elements_of_any_type_are_moved(dtype: str) -> None:
    x = oc.placeholder((m, n), dtype, "X")
    moved = {
        "pad": (ops.pad(x, 1, (0, 2), 3), lambda a: np.pad(a, ((1, 0), (1, 2)), constant_values=3)),
        "flip": (ops.flip(x), lambda a: a[::-1, ::-1]),
        "repeat": (ops.repeat(x, (2, 3)), lambda a: np.tile(a, (2, 3))),
    }
    for rows, columns in [(0, 5), (1, 1), (17, 15)]:
        a = elements(dtype, rows, columns)
        for result, exact in moved.values():
            Operator(result, [x]).check([a], exact(a), interpreted=rows == 1)


@pytest.mark.parametrize("axes", [None, 0, -1, (0, 2)])
def test_axes_are_reversed(axes: Any) -> None:
    x = oc.placeholder((b, m, n), name="X")
    op = Operator(ops.flip(x, axes), [x])
    for length in LENGTHS:
        a = floats("a", 2, 3, length)
        op.check([a], np.flip(a, axes), interpreted=length == 17)


@pytest.mark.every(4)
@pytest.mark.parametrize("counts", [(1, 1), (2, 1), (0, 3), (3, 4)])
def test_a_tensor_is_repeated_along_axes(counts: tuple[int, int]) -> None:
    for shape in [(m, n), (3, n), (m, 1)]:
        x = oc.placeholder(shape, name="X")
        op = Operator(ops.repeat(x, counts), [x])
        for length in LENGTHS:
            a = floats("a", 3, 1 if shape[1] == 1 else length)
            op.check([a], np.tile(a, counts), interpreted=length == 1)


@pytest.mark.parametrize("dtype", ["int64", "float32", "bfloat16"])
def test_places_are_counted(dtype: str) -> None:
    kernel = oc.compile(ops.iota(2 * n + 1, dtype), inputs=[])
    for length in LENGTHS:
        found = kernel(n=length)
        assert found.dtype == numpy_dtype(dtype)
        np.testing.assert_array_equal(found, np.arange(2 * length + 1).astype(numpy_dtype(dtype)))


@pytest.mark.every(3)
@pytest.mark.parametrize("dtype", INDEX_DTYPES)
def test_an_integer_is_one_of_several(dtype: str) -> None:
    ids = oc.placeholder((b, m), dtype, "I")
    op = Operator(ops.one_hot(ids, n, "int32" if dtype == "int8" else "float32"), [ids])
    for length, depth in [*product(LENGTHS, (0, 7)), (17, 300)]:
        a = integers("a", "uint8", 2, length).astype(dtype)
        a.flat[::5] = integers("b", dtype, a.flat[::5].size)
        exact = (a.astype("int64")[..., None] == np.arange(depth)).astype(
            "int32" if dtype == "int8" else "float32"
        )
        kernel = op.kernel
        np.testing.assert_array_equal(kernel(a, n=depth), exact)
