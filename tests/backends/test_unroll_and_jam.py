"""Iterations of a loop around tiles that are jammed: what they read alike is loaded once, and nothing else changes."""

from __future__ import annotations

import re

import numpy as np
import pytest
from compiled import Array, floats

import offcut as oc
from tests.agree import agree, computed

WINDOW = """\
program window
size n in 0:100
size m in 0:100
input X: float32[n, m]
input W: float32[3, m]
private S: float32[n, m]
output Y: float32[n, m]
for j in 0:n
  for c in 0:m
    Y[j, c] = 0.0
for j in 1:n - 1
  for c in 0:m
    S[j, c] = 0.0
    for r in 0:3
      S[j, c] += X[j + r - 1, c] * W[r, c]
    Y[j, c] = S[j, c] + {more}"""


def window(more: str = "1.0") -> oc.Kernel:
    return oc.compile(oc.parse(WINDOW.format(more=more)))


def products(kernel: oc.Kernel) -> int:
    """In the text of a kernel: five times as many where four rows are jammed."""
    return len(re.findall(r"call <\d+ x float> @llvm.fma", kernel.source("llvm")))


@pytest.mark.isa("avx512f")
@pytest.mark.parametrize("m", [1, 15, 16, 40, 64, 99])
def test_windows_of_any_number_of_rows_are_the_sums_in_their_order(m: int) -> None:
    kernel = window()
    assert products(kernel) == 5 * products(window("Y[j - 1, c]"))
    for n in (0, 1, 2, 3, 5, 6, 7, 13):
        x, w = floats("x", n, m), floats("w", 3, m)
        wanted = np.zeros((n, m), np.float32)
        for j in range(1, n - 1):
            for r in range(3):  # the products are added without rounding, as the kernel does
                exact = wanted[j].astype(np.float64) + x[j + r - 1].astype(np.float64) * w[r]
                wanted[j] = exact.astype(np.float32)
            wanted[j] += 1
        np.testing.assert_array_equal(kernel(x, w), wanted)


@pytest.mark.isa("avx512f")
def test_rows_that_read_what_others_write_run_in_turn() -> None:
    kernel = window("Y[j - 1, c]")
    x, w = floats("x", 9, 40), floats("w", 3, 40)

    def sums(x: Array, w: Array) -> Array:
        wanted = np.zeros((9, 40))
        for j in range(1, 8):
            wanted[j] = sum(x[j + r - 1] * w[r] for r in range(3)) + wanted[j - 1]
        return wanted

    agree(kernel(x, w), computed(sums, x, w))
