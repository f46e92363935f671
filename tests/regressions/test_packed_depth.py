"""What a program packs by itself holds zeros below its last row only where the program stores them."""

from __future__ import annotations

import numpy as np
import pytest
from tile_unit import emulated, skip_unless_tiles_are_stored

import offcut as oc
from offcut.core.dtypes import numpy_dtype
from offcut.core.program import Tile, walk

PROGRAM = """
program p
size n in 0:60
size K in 0:60
input A: bfloat16[5, K]
input B: bfloat16[K, n]
output D: float32[5, n]
local P: bfloat16[DEPTH, n] @panels(0, 1, 16, 2, 32)
for k in 0:DEPTH
  tile j in 0 +: n
    P[k, j] = VALUE
tile i in 0 +: 5, j in 0 +: n  @cover(amx_bfloat16)
  D[i, j] = 0
  for k in 0:K
    D[i, j] += float32(A[i, k]) * float32(P[k, j])
"""
ZEROS = ("32*((K + 31)//32)", "where(k < K, B[k, j], 0)")


@pytest.mark.parametrize(("depth", "value", "covered"), [("K", "B[k, j]", False), (*ZEROS, True)])
def test_a_sum_over_panels_is_a_microkernels_where_they_end_in_zeros(
    depth: str, value: str, covered: bool
) -> None:
    skip_unless_tiles_are_stored()
    program = oc.parse(PROGRAM.replace("DEPTH", depth).replace("VALUE", value))
    rng = np.random.default_rng(0)
    with emulated():
        if not covered:
            with pytest.raises(oc.PartitionError, match="is not packed as it reads it"):
                oc.compile(program)
            program = oc.parse(str(program).replace("  @cover(amx_bfloat16)", ""))
        kernel = oc.compile(program)
        named = any(isinstance(one, Tile) and one.microkernel for one in walk(kernel.loops.body))
        assert named == covered
        for depth_now in (1, 5, 32, 33):
            A, B = (
                rng.integers(-3, 4, shape).astype(numpy_dtype("bfloat16"))
                for shape in ((5, depth_now), (depth_now, 19))
            )
            expected = A.astype("float32") @ B.astype("float32")
            np.testing.assert_array_equal(kernel(A, B), expected)
