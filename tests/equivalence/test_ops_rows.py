"""Normalisation and reductions over axes of any extent."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from compiled import Array, floats
from conftest import edge_sizes
from operators import Operator, integers, wide

import offcut as oc
from offcut import ops
from tests.agree import agree, computed

LENGTHS = edge_sizes(16)
FLOATS = ["float64", "float32", "float16", "bfloat16"]

b, m, n = (oc.dim(name, max=4096) for name in "bmn")


def layernorm(x: Array, gain: Any = 1.0, bias: Any = 0.0, epsilon: float = 1e-5) -> Array:
    apart = x - x.mean(-1, keepdims=True)
    return np.asarray(apart / np.sqrt((apart**2).mean(-1, keepdims=True) + epsilon) * gain + bias)


@pytest.mark.every(4)
@pytest.mark.parametrize("dtype", FLOATS)
def test_layernorm_is_right_at_every_edge_size(dtype: str) -> None:
    x = oc.placeholder((b, m, n), dtype, "X")
    kind = "float64" if dtype == "float64" else "float32"
    gain, bias = (oc.placeholder((n,), kind, name) for name in "GB")
    op = Operator(ops.layernorm(x, gain, bias, 1e-3), [x, gain, bias])
    for length, rows in product(LENGTHS[1:], (0, 1, 17)):
        a = floats("a", 2, rows, length, dtype=dtype)
        g, c = floats("g", length, dtype=kind), floats("c", length, dtype=kind)
        exact = layernorm(*wide(a, g, c), epsilon=1e-3)
        op.check([a, g, c], exact, interpreted=(length, rows) == (17, 1))


def test_layernorm_without_gain_and_of_rows_without_elements() -> None:
    x = oc.placeholder((m, n), name="X")
    op = Operator(ops.layernorm(x), [x])
    for shape in [(17, 53), (17, 1), (5, 0), (0, 5)]:
        a = floats("a", *shape)
        op.check([a], layernorm(*wide(a)) if shape[1] else a.astype("float64"))


def test_a_large_mean_costs_the_variance_no_digits() -> None:
    x = oc.placeholder((m, n), name="X")
    op = Operator(ops.layernorm(x), [x])
    a = 4096 + floats("a", 17, 53)
    agree(op.kernel(a), computed(layernorm, a))


@pytest.mark.every(4)
@pytest.mark.parametrize("dtype", FLOATS)
def test_rmsnorm_is_right_at_every_edge_size(dtype: str) -> None:
    x = oc.placeholder((m, n), dtype, "X")
    gain = oc.placeholder((n,), dtype, "G")
    op = Operator(ops.rmsnorm(x, gain), [x, gain])
    for length, rows in product(LENGTHS[1:], (0, 1, 17)):
        a, g = floats("a", rows, length, dtype=dtype), floats("g", length, dtype=dtype)
        av, gv = wide(a, g)
        exact = av / np.sqrt((av**2).mean(-1, keepdims=True) + 1e-6) * gv
        op.check([a, g], exact, interpreted=(length, rows) == (17, 1))


@pytest.mark.parametrize(("axis", "dtype"), [(1, "float32"), (-1, "float32"), (1, "bfloat16")])
def test_batchnorm_takes_the_statistics_of_its_channels(axis: int, dtype: str) -> None:
    channels = 6
    shape: list[Any] = [b, m, n]
    shape[axis] = channels
    x = oc.placeholder(shape, dtype, "X")
    given = [oc.placeholder((channels,), "float32", name) for name in ("M", "V", "G", "B")]
    op = Operator(ops.batchnorm(x, *given, axis=axis), [x, *given])
    mean, variance, gain, bias = (floats(name, channels) for name in "mvgb")
    variance = np.abs(variance)
    for rows, columns in product((0, 1, 17), (1, 53)):
        size = [rows, columns, columns]
        size[axis] = channels
        a = floats("a", *size, dtype=dtype)
        along = [1, 1, 1]
        along[axis] = channels
        av, mv, vv, gv, bv = wide(a, *(p for p in (mean, variance, gain, bias)))
        mv, vv, gv, bv = (p.reshape(along) for p in (mv, vv, gv, bv))
        exact = (av - mv) / np.sqrt(vv + 1e-5) * gv + bv
        op.check([a, mean, variance, gain, bias], exact, interpreted=(rows, columns) == (1, 1))


AXES: list[Any] = [None, 0, -1, (0, 2), (1, -3), ()]


@pytest.mark.every(5)
@pytest.mark.parametrize("axis", AXES, ids=str)
@pytest.mark.parametrize("which", ["sum", "mean", "max", "min"])
def test_a_reduction_is_right_over_any_axes(which: str, axis: Any) -> None:
    x = oc.placeholder((b, m, n), name="X")
    kept = axis in (-1, (0, 2))
    op = Operator(getattr(ops, which)(x, axis, kept), [x])
    for shape in [(1, 1, 1), (2, 17, 15), (3, 5, 53), (17, 16, 2)]:
        a = floats("a", *shape) / 8
        exact = np.asarray(getattr(np, which)(*wide(a), axis=axis, keepdims=kept))
        op.check([a], exact, interpreted=shape == (1, 1, 1))


@pytest.mark.every(5)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int8", "uint8", "int32"])
@pytest.mark.parametrize("which", ["sum", "mean", "max", "min"])
def test_a_reduction_of_any_type_is_accumulated_in_a_wider_one(which: str, dtype: str) -> None:
    x = oc.placeholder((m, n), dtype, "X")
    op = Operator(getattr(ops, which)(x, -1), [x])
    for shape in [(1, 1), (17, 15), (5, 53)]:
        if dtype in FLOATS:
            a = floats("a", *shape, dtype=dtype) / 8
            op.check([a], getattr(np, which)(*wide(a), axis=-1), interpreted=shape == (1, 1))
            continue
        a = integers("a", "int8" if dtype == "int32" else dtype, *shape).astype(dtype)
        exact = getattr(np, which)(a.astype("int64"), axis=-1)
        found = op.kernel(a)
        assert found.dtype == {"mean": "float32", "sum": "int32"}.get(which, dtype)
        agree(found, exact)


def test_a_reduction_over_nothing_is_neutral() -> None:
    x = oc.placeholder((m, n), name="X")
    empty = np.zeros((5, 0), "float32")
    for which, value in [("sum", 0.0), ("max", -np.inf), ("min", np.inf), ("mean", np.nan)]:
        op = Operator(getattr(ops, which)(x, 1), [x])
        np.testing.assert_array_equal(op.kernel(empty), np.full(5, value, "float32"))
