"""A private array that one loop fills and another reads lies in memory: registers hold a tile's own values."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import edge_sizes

import offcut as oc

KEPT = """\
program kept
size n in 0:100
input A: float32[n]
private P: float32[n]
output B: float32[n]
for i in 0:n
  P[i] = A[i]
for j in 0:n
  B[j] = P[j] + 1.0
"""


@pytest.mark.parametrize("tail", ["", "mask", "cut", "balance"])
def test_it_outlives_its_loop(tail: str) -> None:
    cut = oc.partition(oc.parse(KEPT), {"j": 8}, tail).loops if tail else oc.parse(KEPT)
    kernel = oc.compile(cut)
    for n in edge_sizes(8):
        a = np.arange(n, dtype="float32")
        assert np.array_equal(kernel(a, out=np.full(n, np.nan, "float32")), a + 1)
