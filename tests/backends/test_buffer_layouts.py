"""Any layout of a buffer that offcut lays out: results as without it, by loops, by lanes and by microkernels."""

from __future__ import annotations

import numpy as np
import pytest

import offcut as oc

FIXED = [
    "digits(at: 1%64 0)",
    "digits(at: 1%64 0) multiple(0: 2) swizzle(3, 4, 8)",
    "digits(block: 1//16%4, at: 1%16 0) multiple(0: 3)",
]
"""Of as many columns as there are in a row of the programs below, 64."""
ANY = [
    "rows",
    "order(1, 0)",
    "panels(16)",
    "panels(1, 0, 4, 2, 6)",
    "words(0: 2, 1: 4)",
    "words(1: 3)",
    "digits(far: 0//4, near: 0%4 1)",
    "digits(block: 1//8, at: 1%8 0) multiple(0: 3)",
    "order(1, 0) multiple(0: 16, 1: 8) swizzle(2, 4, 6)",
    "rows multiple(1: 16) swizzle(1, 3, 5)",
]
PROGRAM = """
size n in 1:40
size c in {columns}
input A: {dtype}[n, c]
constant W: {dtype}[{rows}, 64] @{layout}
output C: {dtype}[n, c]
output D: {dtype}[{rows}, 64]
local T: {dtype}[n, {extent}] @{layout}
tile i in 0 +: n, j in 0 +: {extent}
  T[i, j] = A[i, j] + {dtype}(1)
for i in 0:n
  tile j in 0 +: {extent}
    C[i, j] = T[i, j]
  for j in 0:{extent}
    C[i, j] += T[n - 1 - i, {extent} - 1 - j]
for j in 0:64
  tile i in 0 +: {rows}
    D[i, j] = W[i, j]
"""


@pytest.mark.every(4)
@pytest.mark.parametrize(
    ("layout", "dtype"),
    [
        *((layout, "int8") for layout in (*ANY, *FIXED)),
        ("panels(1, 0, 4, 2, 6)", "float64"),
        (ANY[-2], "float32"),
    ],
)
def test_a_buffer_may_lie_in_any_way(layout: str, dtype: str) -> None:
    fixed = layout in FIXED
    rows = 12
    text = PROGRAM.format(
        layout=layout,
        dtype=dtype,
        rows=rows,
        columns="64:65" if fixed else "1:70",
        extent="64" if fixed else "c",
    )
    program = oc.parse(text)
    assert oc.parse(str(program)) == program
    rng = np.random.default_rng(3)
    W = rng.integers(-50, 50, (rows, 64)).astype(dtype)
    kernel = oc.compile(program, constants={"W": W})
    for n, c in [(1, 64), (3, 64), (17, 64), *([] if fixed else [(1, 1), (4, 3), (16, 31)])]:
        A = rng.integers(-50, 50, (n, c)).astype(dtype)
        C, D = kernel(A)
        whole = A + np.ones((), dtype)
        np.testing.assert_array_equal(C, whole + whole[::-1, ::-1])
        np.testing.assert_array_equal(D, W)


def test_a_window_lies_as_it_says() -> None:
    text = """
size n in 0:30
input A: float32[n, 32]
output C: float32[n, 32]
local T: float32[n, 32]
for i in 0:n // 4
  alloc T[4*i +: 4, 0 +: 32] layout order(0, 1) swizzle(3, 4, 7)
    tile r in 4*i +: 4, j in 0 +: 32
      T[r, j] = A[r, j]
    tile r in 4*i +: 4, j in 0 +: 32
      C[r, j] = T[8*i + 3 - r, 31 - j]
tile r in 4*(n // 4) +: n - 4*(n // 4), j in 0 +: 32
  C[r, j] = 0
"""
    program = oc.parse(text)
    assert "layout order(0, 1) swizzle(3, 4, 7)" in str(program)
    assert oc.parse(str(program)) == program
    kernel = oc.compile(program)
    A = np.random.default_rng(1).standard_normal((11, 32)).astype("f")
    expected = np.zeros_like(A)
    expected[:8] = A[:8].reshape(2, 4, 32)[:, ::-1, ::-1].reshape(8, 32)
    np.testing.assert_array_equal(kernel(A), expected)
    np.testing.assert_array_equal(program.run({"A": A}), expected)
