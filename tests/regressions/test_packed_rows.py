"""An operand in panels is no operand of rows: from one panel to the next is another step than inside."""

from __future__ import annotations

import numpy as np
import pytest

import offcut as oc
from offcut.backends.cpu.machine.isa import host
from offcut.backends.cpu.microkernels.available import families


@pytest.mark.parametrize("start", [0, 5])
def test_panels_that_no_microkernel_reads_are_read_as_vectors(start: int) -> None:
    kernel = next(f.microkernel for f in families(host()) if f.microkernel.name.startswith("fma_"))
    width = 2 * kernel.panel  # of a panel, which the microkernel does not read
    program = oc.parse(f"""
program p
size n in 0:60
size K in 0:60
input A: {kernel.computes.dtype}[5, K]
input B: {kernel.computes.dtype}[K, n]
output D: {kernel.computes.dtype}[5, n]
local P: {kernel.computes.dtype}[K, n] @panels(0, 1, {width})
for k in 0:K
  tile j in 0 +: n
    P[k, j] = B[k, j]
for i in 0:5
  for j in 0:min(n, {start})
    D[i, j] = 0
for u in 0:n//10 + 1
  tile i in 0 +: 5, j in {start} + 10*u +: min(10, n - {start} - 10*u)  @cover({kernel.name})
    D[i, j] = 0
    for k in 0:K
      D[i, j] += A[i, k] * P[k, j]
""")
    with pytest.raises(oc.PartitionError, match="is not packed as it reads it"):
        oc.compile(program)
    compiled = oc.compile(oc.parse(str(program).replace(f"  @cover({kernel.name})", "")))
    rng = np.random.default_rng(0)
    for n in (5, 17, 40, 50):
        A, B = (
            rng.integers(-3, 4, shape).astype(kernel.computes.dtype) for shape in ((5, 3), (3, n))
        )
        expected = A @ B
        expected[:, :start] = 0
        np.testing.assert_array_equal(compiled(A, B), expected)


@pytest.mark.isa("avx512f", "avx512bw", "avx512vl")
def test_rows_that_lie_side_by_side_in_a_panel_are_packed_a_few_at_a_time() -> None:
    program = oc.parse("""
program p
size n in 0:60
input B: int8[24, n]
output D: int32[n]
local P: int8[24, n] @panels(0, 1, 16, 4, 4)
for k_tile in 0:3
  for j_tile in 0:(n + 15)//16
    tile k in 8*k_tile +: 8, j in 16*j_tile +: 16 where j < n
      P[k, j] = B[k, j]
for j in 0:n
  D[j] = 0
  for k in 0:24
    D[j] += int32(P[k, j]) * int32(k + 1)
""")
    run = oc.compile(program)
    for n in (1, 16, 37):
        b = np.random.default_rng(n).integers(-9, 9, (24, n)).astype("int8")
        expected = (b.astype("int32") * np.arange(1, 25, dtype="int32")[:, None]).sum(axis=0)
        np.testing.assert_array_equal(run(b), expected)
