"""Kernels on machines of queues: the bits of integers, at sizes around words and tiles."""

from __future__ import annotations

import numpy as np
import pytest
from accelerators import bytes_of, clipped, convolved, dense, pooling, requantised, residual

import offcut as oc

MACHINES = ("vta", "vta-osdi18", "gemmini")


@pytest.mark.parametrize("machine", MACHINES)
def test_products_are_those_of_integers_at_every_size(machine: str) -> None:
    inputs, result = dense(70, 45)
    rng = np.random.default_rng(0)
    w = bytes_of(rng, (70, 45))
    kernel = oc.compile(result, inputs=inputs, constants={"W": w}, target=machine)
    for n in (0, 1, 15, 16, 17, 48, 53):
        a = bytes_of(rng, (n, 70))
        out = np.full((n, 45), -128, np.int8)
        assert kernel(a, out=out) is out
        np.testing.assert_array_equal(out, clipped(a.astype(np.int64) @ w.astype(np.int64), 6))


@pytest.mark.parametrize(("kernel", "stride", "padding"), [(3, 1, 1), (3, 2, 1), (1, 2, 0)])
def test_convolutions_are_those_of_integers_at_odd_sizes(
    kernel: int, stride: int, padding: int
) -> None:
    n, h, w = (oc.dim(name, min=0, max=64) for name in "nhw")
    x = oc.placeholder((n, 40, h, w), "int8", name="X")
    k = oc.placeholder((24, 40, kernel, kernel), "int8", name="K")
    total = oc.ops.conv2d(x, k, stride=stride, padding=padding)
    rng = np.random.default_rng(1)
    weights = bytes_of(rng, (24, 40, kernel, kernel))
    run = oc.compile(requantised(total, 9), inputs=[x, k], constants={"K": weights}, target="vta")
    for shape in ((1, 1, 1), (1, 5, 7), (2, 17, 15), (1, 33, 47), (0, 5, 7)):
        image = bytes_of(rng, (shape[0], 40, *shape[1:]))
        wide = convolved(image, weights, stride, padding)
        np.testing.assert_array_equal(run(image), clipped(wide, 9))


COLUMNS = """\
schedule Y
nest S
  way chip
    cover gemm_1x16x16 columns i depth k
    loops j i
    virtual j 2
    split j ladder 16
    split i pad 32
"""


def test_a_schedule_says_which_axis_words_run_along() -> None:
    inputs, result = dense(70, 45)
    schedule = oc.Schedule.parse(COLUMNS)
    kernel = oc.compile(result, inputs=inputs, target="vta", schedule=schedule)
    assert kernel.schedule == schedule
    rng = np.random.default_rng(2)
    for n in (0, 1, 16, 17, 33):
        a, w = bytes_of(rng, (n, 70)), bytes_of(rng, (70, 45))
        wide = a.astype(np.int64) @ w.astype(np.int64)
        np.testing.assert_array_equal(kernel(a, w), clipped(wide, 6))


def test_images_of_an_open_batch_are_pooled_in_words_of_channels() -> None:
    inputs, result = pooling()
    kernel = oc.compile(result, inputs=inputs, target="vta")
    assert kernel.timeline(n=1).cycles < kernel.timeline(n=8).cycles / 5


@pytest.mark.parametrize(("least", "fewer"), [(1, False), (16, True)])
def test_images_that_fill_words_are_pooled_in_words_of_images(least: int, fewer: bool) -> None:
    n = oc.dim("n", min=least, max=64)
    x = oc.placeholder((n, 7, 7, 24), "int8", name="X")
    result = oc.ops.max_pool2d(x, 3, 2, 1, layout="NHWC", name="Y")
    kernel = oc.compile(result, inputs=[x], target="vta")
    assert (kernel.timeline(n=64).cycles < 100_000) == fewer
    image = bytes_of(np.random.default_rng(3), (17, 7, 7, 24))
    ends = np.full((17, 9, 9, 24), -128, np.int8)
    ends[:, 1:8, 1:8] = image
    views = [ends[:, r : r + 8 : 2, c : c + 8 : 2][:, :4, :4] for r in range(3) for c in range(3)]
    np.testing.assert_array_equal(kernel(image), np.max(views, axis=0))


def test_a_plan_says_what_was_decided_and_it_is_done_again() -> None:
    inputs, result = dense(70, 45)
    kernel = oc.compile(result, inputs=inputs, target="vta")
    schedule = oc.Schedule.parse(str(kernel.schedule))
    assert schedule == kernel.schedule
    again = oc.compile(result, inputs=inputs, target="vta", schedule=schedule)
    assert again.loops == kernel.loops
    run = kernel.timeline(n=29)
    assert run.cycles > 0
    assert 0 < run.utilisation <= 1
    assert "accumulators" in kernel.source("listing")


@pytest.mark.parametrize("machine", ["vta", "vta-osdi18"])
def test_nothing_races_and_no_token_is_left(machine: str) -> None:
    inputs, result = dense(70, 45)
    kernel = oc.compile(result, inputs=inputs, target=machine)
    for n in (0, 1, 29, 64):
        run = kernel.timeline(n=n)
        assert not run.races
        assert not run.unwritten
        assert not any(run.left.values())


def test_a_listing_at_a_size_names_its_arrays() -> None:
    inputs, result = residual(20, 20)
    kernel = oc.compile(result, inputs=inputs, target="vta")
    assert (
        kernel.source("listing", n=3)
        == """\
   0  load                                 weights[0:4] = W[0:4]
   1  load     tell compute                inputs[0:6] = A[0:6]
   2  compute                              accumulators[6:12] = R[0:6]
   3  compute                              micro-ops[0:4] = dram[0:4]
   4  compute                              accumulators[0:6] = 0  of micro-ops[0:1], 6 times by 1 0 0
   5  compute  wait load                   accumulators[0:6] += inputs[0:6] · weights[0:4]  of micro-ops[1:3], 3 times by 2 2 0, 2 times by 1 0 1
   6  compute                              accumulators[0:6] >>= 6  of micro-ops[0:1], 6 times by 1 0 0
   7  compute                              accumulators[0:6] += accumulators[6:12]  of micro-ops[3:4], 6 times by 1 1 0
   8  compute                              accumulators[0:6] min= 127  of micro-ops[0:1], 6 times by 1 0 0
   9  compute  tell store                  accumulators[0:6] max= -128  of micro-ops[0:1], 6 times by 1 0 0
  10  store    wait compute; tell compute  Y[0:6] = int8(accumulators[0:6])
  11  compute  wait store                  finish"""
    )
    with pytest.raises(oc.CallError) as missing:
        kernel.source("listing", m=3)
    assert (
        str(missing.value)
        == """\
source: cannot source without n
  because  the sizes of Y are n
  help     source(n=…)"""
    )
    with pytest.raises(oc.DescribeError) as same:
        kernel.source("loops", n=3)
    assert (
        str(same.value)
        == """\
source: cannot show 'loops' at sizes
  because  vta has one for every size
  help     source("loops")"""
    )
