"""Rows of what belongs to a call lie a line further apart where they would meet in one set of a cache."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import offcut as oc
from offcut.backends.cpu.lowering.lower import Lowering
from offcut.backends.cpu.machine import isa
from offcut.core import index as ix
from offcut.ir import Kind
from tests.facade import load_machine

SOURCE = """
program sums
size h in 1:9
size n in 1:2049
size m in 1:2049
input A: {dtype}[h, n, m]
output R: {dtype}[h, n]
local T: {dtype}[h, n, m]
for g in 0:h
  for i in 0:n
    for j in 0:m
      T[g, i, j] = A[g, i, j] + {one}
for g in 0:h
  for i in 0:n
    R[g, i] = {zero}
    for j in 0:m
      R[g, i] += T[g, i, j] * A[g, n - 1 - i, j]
"""


@pytest.mark.every(4)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_values_do_not_depend_on_how_far_rows_lie_apart(dtype: str) -> None:
    whole = dtype == "int32"
    text = SOURCE.format(dtype=dtype, one="1" if whole else "1.0", zero="0" if whole else "0.0")
    kernel = oc.compile(oc.parse(text))
    draw = np.random.default_rng(0)
    for h, n, m in ((1, 1, 1024), (3, 5, 512), (2, 3, 2048), (2, 7, 1023), (1, 4, 1025)):
        a = draw.integers(-3, 4, (h, n, m)).astype(dtype)
        wanted = ((a + 1) * a[:, ::-1]).sum(-1).astype(dtype)
        np.testing.assert_array_equal(kernel(a), wanted)


def row_bytes(kind: Kind, columns: int) -> int | None:
    """Bytes of a row of `columns` float32 on Zen 4, whose first cache has ways of 4096 bytes."""
    program = oc.parse(SOURCE.format(dtype="float32", one="1.0", zero="0.0"))
    lowering = Lowering(program, isa.host_for_machine(load_machine("zen4")).isa, (), ix.const(0), 1)
    buffer = replace(program.buffer("T"), kind=kind, shape=(ix.const(4), ix.const(columns)))
    return ix.literal_value(lowering.row_bytes(buffer))


def test_only_scratch_has_lines_between_its_rows() -> None:
    assert [row_bytes(Kind.LOCAL, n) for n in (512, 1023, 1024, 2048)] == [2048, 4092, 4160, 8256]
    assert row_bytes(Kind.CONSTANT, 1024) == 4096
