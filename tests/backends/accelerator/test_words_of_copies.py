"""Copies on machines of queues: by the chip, by the host, of rows that lie far apart; constants of any size."""

from __future__ import annotations

import numpy as np
import pytest
from accelerators import bytes_of

import offcut as oc

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
