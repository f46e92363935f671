"""A product that is laid out otherwise first, and copied after, is the product: of results and of what others read."""

from __future__ import annotations

import pytest

import offcut as oc
from offcut.errors import PartitionError

HEAD = """program p
size m in 0:30
size n in 0:30
input A: float32[m + 2, 3]
input B: float32[n, 3]
local T: float32[m, n]
output Y: float32[n*2, m]
"""
SOURCE = f"""{HEAD}for i in 0:m
  for j in 0:n
    T[i, j] = 0.0
    for k in 0:3
      T[i, j] += where(i + k >= 1, A[i + k - 1, k], 0.0) * B[j, k]
for j in 0:n*2
  for i in 0:m
    Y[j, i] = T[i, j//2]
"""
TURNED = f"""{HEAD}local S: float32[m + 3, 3]
local U: float32[n, m]
for z in 0:m + 3
  for k in 0:3
    S[z, k] = where(z >= 1, A[z - 1, k], 0.0)
for j in 0:n
  for i in 0:m
    U[j, i] = 0.0
    for k in 0:3
      U[j, i] += S[i + k, k] * B[j, k]
for i in 0:m
  for j in 0:n
    T[i, j] = U[j, i]
for j in 0:n*2
  for i in 0:m
    Y[j, i] = T[i, j//2]
"""


WRONG = {
    "one row is not copied": (
        "for i in 0:m\n  for j in 0:n\n    T[i",
        "for i in 1:m\n  for j in 0:n\n    T[i",
    ),
    "another column is read": ("T[i, j] = U[j, i]", "T[i, j] = U[n - 1 - j, i]"),
    "it is read before it is copied": (
        "for i in 0:m\n  for j in 0:n\n    T[i, j] = U[j, i]\n",
        "for i in 0:m\n  for j in 0:n\n    T[i, j] = T[i, j] + U[j, i]\n",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_copy_that_is_not_whole_is_refused(case: str) -> None:
    old, new = WRONG[case]
    assert old in TURNED
    with pytest.raises(PartitionError):
        oc.prove_equal(oc.parse(SOURCE), oc.parse(TURNED.replace(old, new)))
