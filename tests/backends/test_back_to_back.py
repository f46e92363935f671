"""Elements that lanes read or write from the last one to the first: a vector is turned around, and no lane that is off touches memory."""

from __future__ import annotations

import numpy as np
import pytest
from guarded import behind_a_wall

import offcut as oc
from tests.facade import numpy_dtype

TYPES = ["float32", "float64", "bfloat16", "float16", "int8", "int32", "int64", "bool"]
SIZES = [0, 1, 3, 15, 16, 17, 31, 32, 33, 63, 64, 65, 130]

BOTH_WAYS = """program both_ways
size n in 0:5000
input A: float32[n]
output B: float32[n]
output D: float32[n]
for i in 0:n
  B[n - 1 - i] = A[i] * 2.0
for i in 0:n
  D[i] = where(i < 3, 0.0, A[n - 1 - i] + A[i])
"""


@pytest.mark.every(3)
@pytest.mark.parametrize("dtype", TYPES)
def test_a_flipped_array_is_read_backwards(dtype: str) -> None:
    n, m = oc.dim("n", min=0), oc.dim("m", min=0)
    X = oc.placeholder((n, m), dtype, name="X")
    flipped = oc.compile(oc.ops.flip(X, 1), inputs=[X])
    for count in SIZES:
        x = np.arange(3 * count).reshape(3, count).astype(numpy_dtype(dtype))
        np.testing.assert_array_equal(flipped(x), x[:, ::-1])


def test_reads_and_writes_backwards_stay_inside() -> None:
    kernel = oc.compile(oc.parse(BOTH_WAYS))
    for count in SIZES:
        a = behind_a_wall(np.random.default_rng(count).standard_normal(count, np.float32))
        b, d = (behind_a_wall(np.full(count, np.nan, np.float32)) for _ in range(2))
        kernel(a, out=(b, d))
        np.testing.assert_array_equal(b, (a * 2)[::-1])
        wanted = a[::-1] + a
        wanted[:3] = 0
        np.testing.assert_array_equal(d, wanted)


def test_lanes_read_whole_vectors_backwards() -> None:
    kernel = oc.compile(oc.parse(BOTH_WAYS))
    text = kernel.source("llvm")
    assert "gather" not in text
    assert "scatter" not in text
