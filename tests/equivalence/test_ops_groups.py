"""Statistics of groups of channels, and means of parts of images, against numpy and torch's formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from compiled import Array, floats
from operators import Operator, wide

import offcut as oc
from offcut import ops
from tests.agree import agree

b, c, h, w = (oc.dim(name, max=512) for name in "bchw")
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
    x = oc.placeholder((b, 6, h, w), name="X")
    gain, bias = oc.placeholder((6,), name="G"), oc.placeholder((6,), name="B")
    op = Operator(ops.groupnorm(x, groups, gain, bias), [x, gain, bias])
    for batch, size in [(0, (7, 8)), *((2, size) for size in SIZES)]:
        arrays = [1 + floats("a", batch, 6, *size), floats("g", 6), floats("b", 6)]
        exact = normalized(*wide(arrays[0]), groups, *wide(*arrays[1:]))
        op.check(arrays, exact, interpreted=size == (8, 1))


def test_channels_may_be_last_and_of_any_rank() -> None:
    x = oc.placeholder((b, w, 6), name="X")
    gain = oc.placeholder((6,), name="G")
    last = Operator(ops.groupnorm(x, 3, gain, axis=-1), [x, gain])
    flat = oc.placeholder((b, 6), name="F")
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
    x = oc.placeholder((b, c, h, w), dtype, "X")
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
        x = oc.placeholder((b, 3, *shape) if first else (b, *shape, 3), name="X")
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
    x = oc.placeholder((b, 3, h, w), name="X")
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
    x = oc.placeholder((b, 3, h, w), dtype, "X")
    op = Operator(ops.adaptive_avg_pool2d(x, 2), [x])
    a = floats("a", 2, 3, 9, 5, dtype=dtype)
    op.check([a], parted(*wide(a), (2, 2)))
    assert np.isnan(op.kernel(a[:, :, :0])).all()
