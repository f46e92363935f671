"""A window that is opened again, elsewhere, or of other elements is refused with a witness; or no value changes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pytest
from corruptions import OF_WINDOWS, corrupted

import offcut as oc
from offcut import PartitionError, Program
from tests.facade import as_program, difference, planned, theorems

HEAD = """program p
size n in 0:40
size m in 0:20
input A: float32[n, m]
local S: float32[n, m]
local T: float32[n]
output B: float32[n, m]
"""
SUMS = """for i in 0:n
  T[i] = 0.0
  for j in 0:m
    S[i, j] = A[i, j] * 2.0
    T[i] += S[i, j]
for i in 0:n
  for j in 0:m
    B[i, j] = S[i, m - 1 - j] * T[i]
"""
IN_ROWS = """for i in 0:n
  alloc T[i +: 1]
    alloc S[i +: 1, 0 +: m]
      T[i] = 0.0
      for j in 0:m
        S[i, j] = A[i, j] * 2.0
        T[i] += S[i, j]
      for j in 0:m
        B[i, j] = S[i, m - 1 - j] * T[i]
"""
IN_BLOCKS = """for i_block in 0:(n + 3)//4
  alloc T[4*i_block +: 4]
    alloc S[4*i_block +: 4, 0 +: m]
      for i in 4*i_block:min(4*i_block + 4, n)
        T[i] = 0.0
        for j in 0:m
          S[i, j] = A[i, j] * 2.0
          T[i] += S[i, j]
      for i in 4*i_block:min(4*i_block + 4, n)
        for j in 0:m
          B[i, j] = S[i, m - 1 - j] * T[i]
"""
BY_CONDITION = """if n <= 3
  alloc T[0 +: n]
    for i in 0:n
      alloc S[i +: 1, 0 +: m]
        T[i] = 0.0
        for j in 0:m
          S[i, j] = A[i, j] * 2.0
          T[i] += S[i, j]
        for j in 0:m
          B[i, j] = S[i, m - 1 - j] * T[i]
else
""" + "".join(f"  {line}\n" for line in IN_BLOCKS.splitlines())
MIRRORED = """for j in 0:m
  for i in 0:n
    S[i, j] = A[i, j]
  for i in 0:n
    B[i, j] = S[n - 1 - i, j]
"""
IN_COLUMNS = """for j_tile in 0:(m + 7)//8
  alloc S[0 +: n, 8*j_tile +: 8]
    for i in 0:n
      tile j in 8*j_tile +: 8 where j < m  @tail  @mask
        S[i, j] = A[i, j]
    for i in 0:n
      tile j in 8*j_tile +: 8 where j < m  @tail  @mask
        B[i, j] = S[n - 1 - i, j]
"""
PAIRS = {
    "rows": (SUMS, IN_ROWS),
    "blocks": (SUMS, IN_BLOCKS),
    "under a condition": (SUMS, BY_CONDITION),
    "columns": (MIRRORED, IN_COLUMNS),
}
SLOW = ("under a condition", "columns")
SIZES = [(1, 1), (2, 3), (4, 1), (5, 4), (9, 8)]
SAMPLE = 4  # faults of a kind


def assert_refused(source: Program, faults: Iterator[Program]) -> None:
    """Each is refused, and where it gives other values, with sizes; or it gives the same values."""
    for broken in faults:
        refused = None
        try:
            theorems(source, broken)
        except PartitionError as error:
            refused = str(error)
        differs = any(difference(source, broken, {"n": n, "m": m}, free=True) for n, m in SIZES)
        assert refused or not differs, broken
        if refused and differs:
            assert "with n = " in refused or "its lanes would share it" in refused, broken


@pytest.mark.every(4)
@pytest.mark.parametrize("kind", OF_WINDOWS)
@pytest.mark.parametrize(
    "form", [pytest.param(form, marks=[pytest.mark.slow] * (form in SLOW)) for form in PAIRS]
)
def test_a_fault_in_a_window_is_refused_with_sizes(form: str, kind: str) -> None:
    source, emitted = (oc.parse(HEAD + text) for text in PAIRS[form])
    theorems(source, emitted)
    faults = list(corrupted(emitted, kind))
    assert_refused(source, iter(faults[:: max(1, len(faults) // SAMPLE)]))


@pytest.mark.slow
@pytest.mark.parametrize("form", PAIRS)
def test_two_faults_in_windows_are_refused_with_sizes(form: str) -> None:
    source, emitted = (oc.parse(HEAD + text) for text in PAIRS[form])
    for one in OF_WINDOWS:
        for broken in islice(corrupted(emitted, one), SAMPLE):
            for other in OF_WINDOWS:
                assert_refused(source, islice(corrupted(broken, other), 1, SAMPLE))


X = oc.placeholder((oc.dim("n", max=40), oc.dim("m", max=20)), name="X")


@pytest.mark.slow
@pytest.mark.parametrize("kind", OF_WINDOWS)
@pytest.mark.parametrize("operator", ["softmax", "layernorm", "log_softmax"])
def test_a_fault_in_a_window_of_a_plan_is_refused_with_sizes(operator: str, kind: str) -> None:
    described = as_program(oc.partition(getattr(oc.ops, operator)(X)).source)
    made = planned(described)
    assert "alloc" in str(made)
    assert_refused(described, corrupted(made, kind))
