"""Dense layers, products of matrices and activations, at edge sizes and of every element type."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
from compiled import BLOCK, Array, floats
from conftest import edge_sizes, slow
from operators import Operator, integers, wide
from scipy import special

import offcut as oc
from offcut import ops
from tests.agree import agree
from tests.facade import numpy_dtype

ROWS = edge_sizes(BLOCK)
COLUMNS = [0, 1, 17, 53]
DEPTH = 19

m, n, k, b, h = (oc.dim(name, max=4096) for name in "mnkbh")

EXACT: dict[str | None, Any] = {
    None: lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: 0.5 * x * (1 + special.erf(x * math.sqrt(0.5))),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x * special.expit(x),
    "tanh": np.tanh,
    "sigmoid": special.expit,
}


@pytest.mark.every(4)
@pytest.mark.parametrize("activation", [None, slow("relu"), "gelu", slow("silu")], ids=str)
def test_a_dense_layer_is_right_at_every_edge_size(activation: str | None) -> None:
    x, w = oc.placeholder((m, DEPTH), name="X"), oc.placeholder((DEPTH, n), name="W")
    bias, residual = oc.placeholder((n,), name="B"), oc.placeholder((m, n), name="R")
    inputs = [x, w, bias, residual]
    layer = Operator(ops.dense(x, w, bias, activation, residual), inputs)
    for rows, columns in product(ROWS, COLUMNS):
        shapes = {"X": (rows, DEPTH), "W": (DEPTH, columns), "B": (columns,), "R": (rows, columns)}
        arrays = [floats(name, *shape) / 2 for name, shape in shapes.items()]
        xs, ws, bs, rs = wide(*arrays)
        exact = EXACT[activation](xs @ ws + bs) + rs
        layer.check(arrays, exact, interpreted=(rows, columns) == (15, 17))


@pytest.mark.every(4)
@pytest.mark.parametrize(
    ("left", "right"), [("int8", "int8"), ("uint8", "int8"), ("uint8", "uint8")]
)
def test_small_integers_are_summed_exactly(left: str, right: str) -> None:
    x, w = oc.placeholder((m, k), left, "X"), oc.placeholder((k, n), right, "W")
    layer = Operator(ops.dense(x, w), [x, w])
    for rows, depth, columns in [(0, 3, 5), (1, 0, 5), (1, 65, 17), (15, 64, 33), (47, 31, 16)]:
        a, v = integers("a", left, rows, depth), integers("v", right, depth, columns)
        exact = a.astype("int64") @ v.astype("int64")
        layer.check([a, v], exact.astype("int32"), interpreted=rows == 1)


def test_the_result_may_have_another_type() -> None:
    x, w = oc.placeholder((m, k), "bfloat16", "X"), oc.placeholder((k, n), "bfloat16", "W")
    layer = Operator(ops.dense(x, w, dtype="float32"), [x, w])
    a, v = floats("a", 15, 33, dtype="bfloat16"), floats("v", 33, 17, dtype="bfloat16")
    av, vv = wide(a, v)
    assert layer.check([a, v], av @ vv).dtype == np.float32


@pytest.mark.every(2)
@pytest.mark.parametrize(
    ("unsigned", "by_column"),
    [(True, False), (False, True), slow(True, True), slow(False, False)],
)
def test_a_quantized_layer_is_scaled_and_shifted(unsigned: bool, by_column: bool) -> None:
    kind = "uint8" if unsigned else "int8"
    x, w = oc.placeholder((m, k), kind, "X"), oc.placeholder((k, n), "int8", "W")
    bias, residual = oc.placeholder((n,), name="B"), oc.placeholder((m, n), name="R")
    scales = oc.placeholder((n,), name="S")
    zeros = oc.placeholder((n,), "int32", "Z")
    inputs = [x, w, bias, residual, *([scales, zeros] if by_column else [])]
    output = ops.dense_quantized(
        x,
        w,
        0.02,
        scales if by_column else 0.01,
        bias,
        "gelu",
        residual,
        x_zero=131 if unsigned else -3,
        w_zero=zeros if by_column else 0,
    )
    layer = Operator(output, inputs)
    for rows, depth, columns in [(0, 3, 5), (1, 65, 17), (15, 64, 33), (47, 31, 16)]:
        a, v = integers("a", kind, rows, depth), integers("v", "int8", depth, columns)
        c, r = floats("c", columns), floats("r", rows, columns)
        s = np.abs(floats("s", columns)) / 50 if by_column else 0.01
        z = integers("z", "int8", columns).astype("int32") if by_column else 0
        sums = (a.astype("int64") - (131 if unsigned else -3)) @ (v.astype("int64") - z)
        exact = EXACT["gelu"](sums * (np.float64(0.02) * s) + c) + r
        arrays = [a, v, c, r, *([s, z] if by_column else [])]
        found = layer.kernel(*arrays)
        agree(
            found, exact, terms=np.abs(sums * (0.02 * np.abs(s))) + np.abs(c) + np.abs(r), units=16
        )


@pytest.mark.every(4)
@pytest.mark.parametrize(
    ("ta", "tb"), [(False, True), (True, False), slow(False, False), slow(True, True)]
)
def test_a_product_in_batches_takes_either_operand_transposed(ta: bool, tb: bool) -> None:
    x = oc.placeholder((b, h, k, m) if ta else (b, h, m, k), name="X")
    y = oc.placeholder((b, h, n, k) if tb else (b, h, k, n), name="Y")
    op = Operator(ops.matmul(x, y, ta, tb), [x, y])
    for rows, depth, columns in [(0, 3, 5), (1, 7, 17), (15, 64, 33), (29, 5, 53)]:
        a, v = floats("a", 2, 3, rows, depth), floats("v", 2, 3, depth, columns)
        given = [np.swapaxes(a, 2, 3).copy() if ta else a, np.swapaxes(v, 2, 3).copy() if tb else v]
        exact = np.matmul(*wide(a, v))
        op.check(given, exact, interpreted=rows == 1)


@pytest.mark.every(5)
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((b, h), ()),
        slow((), (b, h)),
        ((b, 1), (h,)),
        slow((h,), (b, 1)),
        slow((b, h), (b, h)),
        ((1,), (1,)),
    ],
    ids=str,
)
def test_leading_axes_are_shared_or_repeated_as_in_numpy(
    first: tuple[Any, ...], second: tuple[Any, ...]
) -> None:
    x, y = oc.placeholder((*first, m, 9), name="X"), oc.placeholder((*second, 9, n), name="Y")
    op = Operator(ops.matmul(x, y), [x, y])
    numbers = {b: 2, h: 3}

    def shape(leading: tuple[Any, ...]) -> tuple[int, ...]:
        return tuple(numbers.get(size, size) for size in leading)

    a, v = floats("a", *shape(first), 15, 9), floats("v", *shape(second), 9, 17)
    op.check([a, v], np.matmul(*wide(a, v)), interpreted=True)


@pytest.mark.every(2)
@pytest.mark.parametrize("dtype", ["int8", "bfloat16", slow("float16")])
def test_products_of_small_types_are_accumulated_in_wider_ones(dtype: str) -> None:
    x, y = oc.placeholder((b, m, k), dtype, "X"), oc.placeholder((b, n, k), dtype, "Y")
    op = Operator(ops.matmul(x, y, transpose_b=True), [x, y])
    for rows, depth, columns in [(1, 65, 17), (15, 32, 33)]:
        if dtype == "int8":
            a, v = integers("a", dtype, 3, rows, depth), integers("v", dtype, 3, columns, depth)
            exact: Array = np.einsum("bik,bjk->bij", a.astype("int64"), v.astype("int64"))
        else:
            a = floats("a", 3, rows, depth, dtype=dtype)
            v = floats("v", 3, columns, depth, dtype=dtype)
            exact = np.einsum("bik,bjk->bij", *wide(a, v))
        op.check([a, v], exact)


@pytest.mark.every(2)
@pytest.mark.parametrize("dtype", [slow("float32"), "bfloat16", "int8"])
def test_a_product_of_matrices_has_bias_activation_and_residual(dtype: str) -> None:
    rows, columns = oc.dim("rows", max=512), oc.dim("columns", max=512)
    x, y = oc.placeholder((2, rows, 24), dtype, "X"), oc.placeholder((24, columns), dtype, "Y")
    other = "int32" if dtype == "int8" else dtype
    bias = oc.placeholder((columns,), other, "B")
    residual = oc.placeholder((2, rows, columns), other, "R")
    result = ops.matmul(x, y, bias=bias, activation="relu", residual=residual)
    op = Operator(result, [x, y, bias, residual])
    for shape in [(0, 17), (1, 1), (15, 17), (17, 53)]:
        if dtype == "int8":
            a, f = integers("a", dtype, 2, shape[0], 24), integers("f", dtype, 24, shape[1])
            c, r = (
                integers(s, "int8", *e).astype("int32")
                for s, e in [("c", shape[1:]), ("r", (2, *shape))]
            )
            inner = [one.astype("int64") for one in (a, f, c, r)]
        else:
            a, f = floats("a", 2, shape[0], 24, dtype=dtype), floats("f", 24, shape[1], dtype=dtype)
            c, r = floats("c", shape[1], dtype=dtype), floats("r", 2, *shape, dtype=dtype)
            inner = wide(a, f, c, r)
        exact = np.maximum(inner[0] @ inner[1] + inner[2], 0) + inner[3]
        if dtype == "int8":
            exact = exact.astype("int32")
        op.check([a, f, c, r], exact, interpreted=shape == (1, 1))


# Products of groups of rows against numpy in float64.


s = oc.dim("s", max=4096)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_each_row_is_multiplied_by_the_matrix_of_its_group(dtype: str) -> None:
    x, w = oc.placeholder((s, 20), dtype, "X"), oc.placeholder((4, 20, 33), dtype, "W")
    ends = oc.placeholder((4,), "int32", "E")
    op = Operator(ops.grouped_matmul(x, w, ends), [x, w, ends])
    b = floats("w", 4, 20, 33).astype(numpy_dtype(dtype))
    for rows, last in ([0, 0, 0, 0], 0), ([0, 1, 1, 1], 1), ([2, 2, 9, 17], 17), ([0, 5, 6, 7], 13):
        a = floats("x", last, 20).astype(numpy_dtype(dtype))
        exact = np.zeros((last, 33))
        for group, (begin, end) in enumerate(zip([0, *rows[:-1]], rows, strict=True)):
            exact[begin:end] = a[begin:end].astype("f8") @ b[group].astype("f8")
        op.check([a, b, np.array(rows, "int32")], exact, interpreted=last == 1)
