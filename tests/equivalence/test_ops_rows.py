"""Normalisation and reductions over axes of any extent, of groups of channels, and means of parts of images."""

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


batch_size, c, h, w = (oc.dim(name, max=512) for name in "bchw")
SIZES = [(1, 1), (1, 7), (8, 1), (7, 8), (9, 24), (29, 5)]


def normalized(x: Array, groups: int, gain: Array, bias: Array) -> Array:
    """The formula in float64, channels first."""
    if not x.size:
        return x
    apart = x.reshape(x.shape[0], groups, -1)
    apart = (apart - apart.mean(-1, keepdims=True)) / np.sqrt(apart.var(-1, keepdims=True) + 1e-5)
    shape = (-1, *[1] * (x.ndim - 2))
    return np.asarray(apart.reshape(x.shape) * gain.reshape(shape) + bias.reshape(shape))


@pytest.mark.every(4)
@pytest.mark.parametrize("groups", [1, 2, 6])
def test_each_group_of_channels_has_statistics_of_its_own(groups: int) -> None:
    x = oc.placeholder((batch_size, 6, h, w), name="X")
    gain, bias = oc.placeholder((6,), name="G"), oc.placeholder((6,), name="B")
    op = Operator(ops.groupnorm(x, groups, gain, bias), [x, gain, bias])
    for batch, size in [(0, (7, 8)), *((2, size) for size in SIZES)]:
        arrays = [1 + floats("a", batch, 6, *size), floats("g", 6), floats("b", 6)]
        exact = normalized(*wide(arrays[0]), groups, *wide(*arrays[1:]))
        op.check(arrays, exact, interpreted=size == (8, 1))


def test_channels_may_be_last_and_of_any_rank() -> None:
    x = oc.placeholder((batch_size, w, 6), name="X")
    gain = oc.placeholder((6,), name="G")
    last = Operator(ops.groupnorm(x, 3, gain, axis=-1), [x, gain])
    flat = oc.placeholder((batch_size, 6), name="F")
    alone = Operator(ops.groupnorm(flat, 2), [flat])
    zeros, ones = np.zeros(6), np.ones(6)
    for size in (1, 15, 17):
        a, g = floats("a", 2, size, 6), floats("g", 6)
        exact = normalized(a.transpose(0, 2, 1).astype("f8"), 3, g.astype("f8"), zeros)
        last.check([a, g], exact.transpose(0, 2, 1), interpreted=size == 1)
        a = floats("a", size, 6)
        alone.check([a], normalized(a.astype("f8"), 2, ones, zeros), interpreted=size == 1)


@pytest.mark.every(4)
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
def test_each_channel_is_normalized_alone(dtype: str) -> None:
    x = oc.placeholder((batch_size, c, h, w), dtype, "X")
    op = Operator(ops.instancenorm(x), [x])
    for channels, size in [(0, (7, 8)), (1, (1, 7)), (3, (9, 24)), (17, (29, 5))]:
        a = floats("a", 2, channels, *size, dtype=dtype)
        exact = normalized(*wide(a), channels, np.ones(channels), np.zeros(channels))
        op.check([a], exact, interpreted=channels == 1)


def parted(x: Array, places: tuple[int, int], over: Any = np.mean) -> Array:
    """The means of the windows, or what else is over them, channels first."""
    made = np.zeros((*x.shape[:2], *places))
    for i, j in np.ndindex(*places):
        ends = [
            (at * n // count, -(-(at + 1) * n // count))
            for at, n, count in zip((i, j), x.shape[2:], places, strict=True)
        ]
        (top, bottom), (left, right) = ends
        made[:, :, i, j] = over(x[:, :, top:bottom, left:right], axis=(2, 3))
    return made


@pytest.mark.every(8)
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("places", [1, (2, 3), (7, 1)], ids=str)
def test_an_image_is_averaged_in_parts(places: Any, layout: str) -> None:
    first = layout == "NCHW"
    pair = (places, places) if isinstance(places, int) else places
    for shape in [(h, w), (9, w), (8, 6)]:
        x = oc.placeholder((batch_size, 3, *shape) if first else (batch_size, *shape, 3), name="X")
        op = Operator(ops.adaptive_avg_pool2d(x, places, layout), [x])
        for size in SIZES:
            own = tuple(
                given if isinstance(given, int) else s for given, s in zip(shape, size, strict=True)
            )
            a = floats("a", 2, 3, *own)
            exact = parted(a.astype("f8"), pair)
            given = a if first else np.ascontiguousarray(np.moveaxis(a, 1, -1))
            op.check([given], exact if first else np.moveaxis(exact, 1, -1), size == (8, 1))


@pytest.mark.parametrize("places", [(2, 3), (1, 1)], ids=str)
def test_the_greatest_of_each_part_of_an_image_is_found(places: tuple[int, int]) -> None:
    x = oc.placeholder((batch_size, 3, h, w), name="X")
    op = Operator(ops.adaptive_max_pool2d(x, places), [x])
    for size in SIZES:
        a = floats("a", 2, 3, *size)
        op.check([a], parted(a, places, np.max), interpreted=size == (8, 1))


@pytest.mark.every(4)
@pytest.mark.parametrize("extent", [1, 2, 3, 5])
@pytest.mark.parametrize("places", [1, 2, 3, 7])
def test_parts_of_an_extent_that_is_known_are_those_of_any(extent: int, places: int) -> None:
    x = oc.placeholder((1, 1, extent, 3), name="X")
    a = floats("a", 1, 1, extent, 3)
    for of, over in ((ops.adaptive_avg_pool2d, np.mean), (ops.adaptive_max_pool2d, np.max)):
        found = oc.compile(of(x, (places, 2)), inputs=[x], target="interpret")(a)
        wanted = parted(a.astype("f8"), (places, 2), over)
        agree(found, wanted, terms=np.abs(a).max(), units=2 + a.size)


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_parts_of_other_floats_are_rounded_once(dtype: str) -> None:
    x = oc.placeholder((batch_size, 3, h, w), dtype, "X")
    op = Operator(ops.adaptive_avg_pool2d(x, 2), [x])
    a = floats("a", 2, 3, 9, 5, dtype=dtype)
    op.check([a], parted(*wide(a), (2, 2)))
    assert np.isnan(op.kernel(a[:, :, :0])).all()
