"""Regions of an accelerator's memory belong to windows: two loops over windows of one buffer run as over windows of two."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from accelerators import bytes_of, clipped

import offcut as oc

HEAD = """\
program dense
size n in 0:{most}
input A: int8[n, 64]
input W: int8[64, 64]
output C: int8[n, 64]
local W_in: int8[64, 64] @scope(weights)
"""
WINDOWS = """\
local A_in{x}: int8[n, 64] @scope(inputs)
local S{x}: int32[n, 64] @scope(accumulators)
local Y1{x}: int32[n, 64] @scope(accumulators)
local Y2{x}: int32[n, 64] @scope(accumulators)
"""
WEIGHTS = """\
alloc W_in[0 +: 64, 0 +: 64]
  tile k in 0 +: 64, j in 0 +: 64
    W_in[k, j] = W[k, j]
"""
BODY = """\
  for i in {trips}
    alloc A_in{x}[{start} +: {rows}, 0 +: 64]
      tile r in {start} +: {rows}, k in 0 +: 64
        A_in{x}[r, k] = A[r, k]
      alloc S{x}[{start} +: {rows}, 0 +: 64]
        tile r in {start} +: {rows}, j in 0 +: 64
          S{x}[r, j] = 0
        tile r in {start} +: {rows}, j in 0 +: 64
          for k in 0:64
            S{x}[r, j] += int32(A_in{x}[r, k]) * int32(W_in[k, j])
        alloc Y1{x}[{start} +: {rows}, 0 +: 64]
          tile r in {start} +: {rows}, j in 0 +: 64
            Y1{x}[r, j] = S{x}[r, j] // 64
          alloc Y2{x}[{start} +: {rows}, 0 +: 64]
            tile r in {start} +: {rows}, j in 0 +: 64
              Y2{x}[r, j] = min(Y1{x}[r, j], 127)
            tile r in {start} +: {rows}, j in 0 +: 64
              C[r, j] = int8(max(Y2{x}[r, j], -128))
"""


def two_loops(rows: int, most: int, second: str = "") -> str:
    """Full tiles of so many rows, and what is left of them in a loop of its own: in buffers of the same names, or of others."""
    full = BODY.format(x="", trips=f"0:n//{rows}", start=f"{rows}*i", rows=rows)
    start, left = f"({rows}*(n//{rows}) + i)", f"n % {rows}"
    rest = BODY.format(x=second, trips=f"0:min(1, {left})", start=start, rows=left)
    windows = WINDOWS.format(x="") + (WINDOWS.format(x=second) if second else "")
    return HEAD.format(most=most) + windows + WEIGHTS + full + rest


def program(text: str, machine: str = "vta") -> oc.Program:
    """The text, in the memories of a machine."""
    if machine == "gemmini":
        text = text.replace("accumulators", "accumulator")
        text = text.replace("inputs", "scratchpad").replace("weights", "scratchpad")
    return oc.parse(text)


def check(kernel: Any, sizes: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    w = bytes_of(rng, (64, 64))
    for n in sizes:
        a = bytes_of(rng, (n, 64))
        expected = clipped(a.astype(np.int64) @ w.astype(np.int64), 6)
        np.testing.assert_array_equal(kernel(a, w), expected)
        assert not kernel.timeline(n=n).races


@pytest.mark.every(2)
@pytest.mark.parametrize("machine", ["vta", "gemmini"])
def test_windows_of_one_buffer_in_two_loops_run_as_those_of_two_buffers(machine: str) -> None:
    same = oc.compile(program(two_loops(16, 129), machine), target=machine)
    other = oc.compile(program(two_loops(16, 129, "_rest"), machine), target=machine)
    check(same, (0, 1, 15, 16, 17, 53))
    for n in (1, 16, 17, 33, 100, 128):
        assert same.timeline(n=n).cycles == other.timeline(n=n).cycles


def test_windows_of_one_buffer_take_turns_where_two_do_not_fit() -> None:
    kernel = oc.compile(program(two_loops(300, 701)), target="vta")
    check(kernel, (1, 299, 300, 301, 605))
    with pytest.raises(oc.TargetError, match="cannot keep the results"):
        oc.compile(program(two_loops(300, 701, "_rest")), target="vta")


OUTLIVES = """\
program outlives
input A: int32[{rows}, 16]
output C: int8[{rows}, 16]
output D: int8[{rows}, 16]
local S: int32[{rows}, 16] @scope(accumulators)
local X: int32[{rows}, 16] @scope(accumulators)
alloc X[0 +: {rows}, 0 +: 16]
  alloc S[0 +: {rows}, 0 +: 16]
    tile i in 0 +: {rows}, j in 0 +: 16
      S[i, j] = A[i, j]
    tile i in 0 +: {rows}, j in 0 +: 16
      X[i, j] = S[i, j] // 2
  alloc S[0 +: {rows}, 0 +: 16]
    tile i in 0 +: {rows}, j in 0 +: 16
      S[i, j] = 3
    tile i in 0 +: {rows}, j in 0 +: 16
      S[i, j] += X[i, j]
    tile i in 0 +: {rows}, j in 0 +: 16
      C[i, j] = int8(S[i, j])
  alloc S[0 +: {rows}, 0 +: 16]
    tile i in 0 +: {rows}, j in 0 +: 16
      S[i, j] = 5
    tile i in 0 +: {rows}, j in 0 +: 16
      S[i, j] += X[i, j]
    tile i in 0 +: {rows}, j in 0 +: 16
      D[i, j] = int8(S[i, j])
"""


@pytest.mark.parametrize("rows", [16, 900])
def test_a_window_that_outlives_the_one_below_it_is_not_written_over(rows: int) -> None:
    kernel = oc.compile(program(OUTLIVES.format(rows=rows)), target="vta")
    a = bytes_of(np.random.default_rng(1), (rows, 16)).astype(np.int32)
    for found, more in zip(kernel(a), (3, 5), strict=True):
        np.testing.assert_array_equal(found, (a // 2 + more).astype(np.int8))
    assert not kernel.timeline().races
