"""Windows of local arrays: there is memory for them alone, and each iteration has its own where it is all."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import rejection

import offcut as oc
from offcut.errors import PartitionError

HEAD = """program w
size n in 0:100
input X: float64[n]
output Y: float64[n]
local S: float64[n]
"""
TWICE = "for i in 0:n\n  Y[i] = X[i] * 2.0\n"


@pytest.mark.parametrize(
    ("body", "because"),
    [
        (
            "alloc S[0 +: 2]\n  for z in 0:n\n    S[z] = X[z]\n  for i in 0:n\n    Y[i] = S[i] * 2.0\n",
            "with n = 3, z = 2, element [2], counted from where the window starts, lies outside of it",
        ),
        (
            "alloc S[1 +: n]\n  for z in 0:n\n    S[z] = X[z]\n  for i in 0:n\n    Y[i] = S[i] * 2.0\n",
            "with n = 1, z = 0, element [-1], counted from where the window starts, lies outside of it",
        ),
        (
            "alloc S[0 +: n]\n  for i in 0:n\n    S[i] = X[i]\nfor i in 0:n\n  Y[i] = S[i] * 2.0\n",
            "S is accessed outside of it, too",
        ),
        (
            "for i in 0:n\n  alloc S[i +: i]\n    S[i] = X[i]\n    Y[i] = S[i] * 2.0\n",
            "nothing shows that all that is accessed of S lies in a window of it",
        ),
    ],
    ids=["longer than its window", "before its window", "after its window", "a length of its own"],
)
def test_what_leaves_a_window_is_not_compiled(body: str, because: str) -> None:
    with rejection(
        "PartitionError: compile: cannot compile w\n"
        "  at       alloc S\n"
        f"  because  {because}\n"
        "  help     a larger window, or S without alloc, which holds all of it"
    ):
        oc.compile(oc.parse(HEAD + body))


def test_what_stays_in_a_window_is_compiled() -> None:
    body = "for i in 0:n\n  alloc S[i +: 1]\n    S[i] = X[i]\n    Y[i] = S[i] * 2.0\n"
    x = np.arange(9.0)
    np.testing.assert_array_equal(oc.compile(oc.parse(HEAD + body))(x), 2 * x)


def test_a_window_that_nobody_touches_is_nothing() -> None:
    body = "for i in 0:n\n  alloc S[i +: 1]\n    Y[i] = X[i] * 2.0\n"
    oc.prove_equal(oc.parse(HEAD + TWICE), oc.parse(HEAD + body))


SHARED = """program s
size n in 0:900000
input X: float64[n]
output Y: float64[n]
local S: float64[1]
for i in 0:n  @thread
  S[0] = X[i]
  Y[i] = S[0] * 2.0
  if n > 900000
    alloc S[0 +: 1]
      S[0] = 3.0
"""


def test_a_window_elsewhere_makes_no_array_an_iteration_s_own() -> None:
    source = oc.parse("\n".join(SHARED.splitlines()[:4]) + "\n" + TWICE)
    with pytest.raises(PartitionError):
        oc.prove_equal(source, oc.parse(SHARED))
    with pytest.raises(PartitionError):
        oc.compile(oc.parse(SHARED), threads=2)


PRODUCT = """size n in 0:200
input A: float32[n, n]
input B: float32[n, n]
output C: float32[n, n]
for i in 0:n
  for j in 0:n
    C[i, j] = 0.0
    for k in 0:n
      C[i, j] += A[i, k] * B[k, j]
"""


@pytest.mark.parametrize(("tile", "rows"), [(3, "ladder"), (2, "mix")])
def test_a_tile_that_never_has_a_row_is_no_code(tile: int, rows: str) -> None:
    cut = oc.partition(oc.parse(PRODUCT), tile={"i": tile, "j": tile}, tail={"i": rows, "j": "mix"})
    kernel = oc.compile(cut.loops)
    for n in (0, 1, tile, 3 * tile + 1):
        a = np.arange(n * n, dtype="f").reshape(n, n)
        np.testing.assert_array_equal(kernel(a, a), a @ a)
