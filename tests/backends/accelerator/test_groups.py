"""Grouped convolutions on machines of queues: each group is a product, its indices taken apart and joined by the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from accelerators import bytes_of, clipped, requantised
from conftest import slow

import offcut as oc
from offcut import Tensor, ops
from tests.agree import nearly

Array = npt.NDArray[Any]
GROUPS = 2


def described(layout: str, stride: int = 1, bias: bool = False) -> tuple[list[Tensor], Tensor]:
    """Images of 5×7 pixels, two groups of 20 channels to 12, a word and a part of one."""
    n = oc.dim("n", min=0, max=8)
    last = layout == "NHWC"
    x = oc.placeholder((n, 5, 7, 40) if last else (n, 40, 5, 7), "int8", name="X")
    k = oc.placeholder((3, 3, 20, 24) if last else (24, 20, 3, 3), "int8", name="K")
    b = oc.placeholder((24,), "int32", name="B")
    total = ops.conv2d(
        x, k, stride=stride, padding=1, groups=GROUPS, layout=layout, bias=b if bias else None
    )
    return [x, k, *([b] if bias else [])], requantised(total, 9)


def summed(x: Array, k: Array, stride: int) -> Array:
    """The convolution of images (n, c, h, w) by (o, c of a group, 3, 3), in int64."""
    n, c, h, w = x.shape
    o, inner, *_ = k.shape
    wide = np.pad(x.astype(np.int64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    found = np.zeros((n, o, -(-h // stride), -(-w // stride)), np.int64)
    for one in range(o):
        own = one // (o // GROUPS) * inner
        for y in range(found.shape[2]):
            for at in range(found.shape[3]):
                view = wide[
                    :, own : own + inner, y * stride : y * stride + 3, at * stride : at * stride + 3
                ]
                found[:, one, y, at] = (view * k[one]).sum((1, 2, 3))
    assert c == GROUPS * inner
    return found


@pytest.mark.parametrize(
    ("layout", "stride"),
    [("NHWC", 1), slow("NCHW", 2)],
)
def test_groups_are_those_of_integers_at_every_batch(layout: str, stride: int) -> None:
    inputs, result = described(layout, stride)
    kernel = oc.compile(result, inputs=inputs, target="vta")
    assert "gemm_1x16x16; j=o, p=c;" in str(kernel.loops)
    rng = np.random.default_rng(0)
    for n in (0, 1, 3):
        x, k = bytes_of(rng, (n, 40, 5, 7)), bytes_of(rng, (24, 20, 3, 3))
        right = clipped(summed(x, k, stride), 9)
        if layout == "NHWC":
            right = right.transpose(0, 2, 3, 1)
            x, k = (
                np.ascontiguousarray(one)
                for one in (x.transpose(0, 2, 3, 1), k.transpose(2, 3, 1, 0))
            )
        np.testing.assert_array_equal(kernel(x, k), right)
        run = kernel.timeline(n=n)
        assert not run.races
        assert kernel.cost(n=n).cycles == nearly(run.cycles, rel=0.01)


@pytest.mark.slow
def test_another_machine_runs_groups() -> None:
    inputs, result = described("NCHW")
    kernel = oc.compile(result, inputs=inputs, target="gemmini")
    rng = np.random.default_rng(1)
    x, k = bytes_of(rng, (2, 40, 5, 7)), bytes_of(rng, (24, 20, 3, 3))
    np.testing.assert_array_equal(kernel(x, k), clipped(summed(x, k, 1), 9))


def test_a_residual_whose_axes_have_other_names_stands_behind_groups() -> None:
    n = oc.dim("n", min=0, max=2)
    x, r = (oc.placeholder((n, c, 3), "int8", name=name) for c, name in ((4, "X"), (6, "R")))
    k = oc.placeholder((6, 2), "int8", name="K")
    sums = oc.compute(
        (n, 2, 3, 3),
        lambda i, g, o, p: oc.sum(
            x[i, 2 * g + (c := oc.reduce_axis(2, "c")), p].astype("int32")
            * k[3 * g + o, c].astype("int32"),
            axis=c,
        ),
        name="S",
    )
    added = oc.compute(
        (n, 6, 3),
        lambda n, c, q: oc.maximum(sums[n, c // 3, c % 3, q] // 16, 0) + r[n, c, q].astype("int32"),
        axes=("n", "c", "q"),
        name="T",
    )
    kernel = oc.compile(requantised(added, 2), inputs=[x, k, r], target="vta")
    assert "T_groups" in str(kernel.loops)
    rng = np.random.default_rng(4)
    for many in (0, 1, 2):
        image, weights, other = (bytes_of(rng, s) for s in ((many, 4, 3), (6, 2), (many, 6, 3)))
        taken = image.astype(np.int64).reshape(many, 2, 2, 3)
        total = np.einsum("igcp,goc->igop", taken, weights.astype(np.int64).reshape(2, 3, 2))
        right = np.maximum(total.reshape(many, 6, 3) // 16, 0) + other
        np.testing.assert_array_equal(kernel(image, weights, other), clipped(right, 2))


@pytest.mark.parametrize(("layout", "channels"), [("NCHW", 3), slow("NHWC", 24)])
def test_a_group_may_be_one_channel(layout: str, channels: int) -> None:
    n, last = oc.dim("n", min=0, max=8), layout == "NHWC"
    shape = (n, 5, 7, channels) if last else (n, channels, 5, 7)
    x = oc.placeholder(shape, "int8", name="X")
    k = oc.placeholder((3, 3, 1, channels) if last else (channels, 1, 3, 3), "int8", name="K")
    total = ops.conv2d(x, k, padding=1, groups=channels, layout=layout)
    kernel = oc.compile(requantised(total, 5), inputs=[x, k], target="vta")
    assert "gemm_1x16x16; j=n_;" in str(kernel.loops)  # no other axis moves one factor alone
    rng = np.random.default_rng(5)
    for many in (0, 1, 5):
        image, weights = bytes_of(rng, (many, channels, 5, 7)), bytes_of(rng, (channels, 1, 3, 3))
        right = clipped(depthwise(image, weights), 5)
        if last:
            right, image = (a.transpose(0, 2, 3, 1) for a in (right, image))
            weights = weights.transpose(2, 3, 1, 0)
        given = np.ascontiguousarray(image), np.ascontiguousarray(weights)
        np.testing.assert_array_equal(kernel(*given), right)
        assert not kernel.timeline(n=many).races


def depthwise(x: Array, k: Array) -> Array:
    """The convolution of each channel of images (n, c, h, w) by its own of (c, 1, 3, 3), padded by 1, in int64."""
    wide = np.pad(x.astype(np.int64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    views = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), axis=(2, 3))
    return np.einsum("nchwrs,crs->nchw", views, k[:, 0].astype(np.int64))


@pytest.mark.slow
def test_a_group_is_a_product_of_its_own_and_fills_the_unit() -> None:
    n = oc.dim("n", min=1, max=8)
    x = oc.placeholder((n, 14, 14, 128), "int8", name="X")
    k = oc.placeholder((3, 3, 64, 128), "int8", name="K")
    total = ops.conv2d(x, k, padding=1, groups=GROUPS, layout="NHWC")
    kernel = oc.compile(requantised(total, 9), inputs=[x, k], target="vta")
    assert kernel.timeline(n=4).utilisation > 0.75


# Copies on machines of queues: by the chip, by the host, of rows that lie far apart; constants of any size.


SIZES = (0, 1, 15, 16, 17, 53)


@pytest.mark.every(4)
@pytest.mark.parametrize(("machine", "turned"), [("vta", False), ("vta", True), ("gemmini", True)])
def test_what_is_copied_or_turned_alone_is_stored_as_it_is(machine: str, turned: bool) -> None:
    n = oc.dim("n", min=0, max=64)
    a = oc.placeholder((n, 21), "int8", name="A")
    shape = (21, n) if turned else (n, 21)
    result = oc.compute(shape, lambda i, j: a[j, i] if turned else a[i, j], name="Y")
    kernel = oc.compile(result, inputs=[a], target=machine)
    rng = np.random.default_rng(0)
    for size in SIZES:
        given = bytes_of(rng, (size, 21))
        expected = given.T if turned else given
        np.testing.assert_array_equal(
            kernel(given, out=np.full(expected.shape, 77, np.int8)), expected
        )


BY_HOST = """\
program laid
size n in 0:65
input A: int8[n, 16]
input B: int8[n, 16]
output Y: int8[n, 32]
local T: int8[n, 32]
local C: int8[n, 32] @scope(accumulators)
for i in 0:n
  for j in 0:16
    T[i, j] = A[i, j]
for i in 0:n
  for j in 0:16
    T[i, j + 16] = where(j >= 4, B[i, j], 7)
alloc C[0 +: n, 0 +: 32]
  tile i in 0 +: n, j in 0 +: 32
    C[i, j] = T[i, j]
  tile i in 0 +: n, j in 0 +: 32
    Y[i, j] = int8(C[i, j])
"""


def test_an_array_that_the_host_fills_twice_keeps_what_was_there() -> None:
    kernel = oc.compile(oc.parse(BY_HOST), target="vta")
    rng = np.random.default_rng(1)
    for size in SIZES:
        a, b = bytes_of(rng, (size, 16)), bytes_of(rng, (size, 16))
        expected = np.concatenate([a, np.where(np.arange(16) >= 4, b, 7)], axis=1)
        np.testing.assert_array_equal(kernel(a, b), expected)


FAR = """\
program far
input A: int8[3, 70000, 16]
output Y: int8[4, 4, 16]
local C: int8[4, 4, 16] @scope(accumulators)
alloc C[0 +: 4, 0 +: 4, 0 +: 16]
  tile i in 0 +: 4, j in 0 +: 4, k in 0 +: 16
    C[i, j, k] = where(i - 1 >= 0 and j - 1 >= 0, A[i - 1, j - 1, k], 0)
  tile i in 0 +: 4, j in 0 +: 4, k in 0 +: 16
    Y[i, j, k] = int8(C[i, j, k])
"""


def test_padded_rows_farther_apart_than_a_field_says_are_loaded_one_by_one() -> None:
    kernel = oc.compile(oc.parse(FAR), target="vta")
    a = bytes_of(np.random.default_rng(2), (3, 70000, 16))
    expected = np.pad(a[:, :3], ((1, 0), (1, 0), (0, 0)))
    np.testing.assert_array_equal(kernel(a), expected)
    assert not kernel.timeline().races


@pytest.mark.every(4)
@pytest.mark.parametrize("value", [2**30, 2**31 - 1, -(2**31), -(2**15) - 1])
def test_a_constant_of_any_size_is_added_and_compared(value: int) -> None:
    n = oc.dim("n", min=0, max=64)
    a = oc.placeholder((n, 5), "int32", name="A")
    result = oc.compute(
        (n, 5), lambda i, j: (oc.minimum(a[i, j], value) // 2**24 + value).astype("int8"), name="Y"
    )
    rng = np.random.default_rng(3)
    given = rng.integers(-(2**31), 2**31, (17, 5)).astype(np.int32)
    expected = (np.minimum(given.astype(np.int64), value) >> 24) + value
    kernel = oc.compile(result, inputs=[a], target="gemmini" if value > 0 else "vta")
    np.testing.assert_array_equal(kernel(given), expected.astype(np.int8))
