"""Tiles whose heights are bounded values are asked with each value, where sets do not tell otherwise."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import slow

import offcut as oc

ELIMINATION = """size n in 0:60
inout A: int32[n, n]
for k in 0:n
  for i in k + 1:n
    for j in k + 1:n
      A[i, j] -= A[i, k] * A[k, j]
"""


@pytest.mark.parametrize("tail", ["balance", slow("mix")])
@pytest.mark.parametrize("tile", [{"i": 3}, slow({"j": 3}), {"i": 3, "j": 2}], ids=str)
def test_rows_below_a_pivot_are_cut_into_tiles_of_nearly_one_height(
    tile: dict[str, int], tail: str
) -> None:
    kernel = oc.compile(oc.partition(oc.parse(ELIMINATION), tile=tile, tail=tail).loops)
    for n in (0, 1, 2, 3, 4, 11):
        a = np.random.default_rng(n).integers(-2, 3, (n, n)).astype("int32")
        wanted = a.copy()
        for k in range(n):
            wanted[k + 1 :, k + 1 :] -= np.outer(wanted[k + 1 :, k], wanted[k, k + 1 :])
        np.testing.assert_array_equal(kernel(a), wanted)
