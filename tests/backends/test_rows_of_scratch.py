"""Rows of what belongs to a call lie a line further apart where they would meet in one set of a cache."""

from __future__ import annotations

from dataclasses import replace

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


def row_bytes(kind: Kind, columns: int) -> int | None:
    """Bytes of a row of `columns` float32 on Zen 4, whose first cache has ways of 4096 bytes."""
    program = oc.parse(SOURCE.format(dtype="float32", one="1.0", zero="0.0"))
    lowering = Lowering(program, isa.host_for_machine(load_machine("zen4")).isa, (), ix.const(0), 1)
    buffer = replace(program.buffer("T"), kind=kind, shape=(ix.const(4), ix.const(columns)))
    return ix.literal_value(lowering.row_bytes(buffer))


def test_only_scratch_has_lines_between_its_rows() -> None:
    assert [row_bytes(Kind.LOCAL, n) for n in (512, 1023, 1024, 2048)] == [2048, 4092, 4160, 8256]
    assert row_bytes(Kind.CONSTANT, 1024) == 4096
