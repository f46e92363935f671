"""Attention whose loops end where its mask does: values at every edge, what is not read, bits, and predicted time."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from compiled import Array, floats
from conftest import slow
from operators import wide

import offcut as oc
from offcut import ops
from tests.agree import agree
from tests.facade import numpy_dtype

WIDTH = 16
s, t = (oc.dim(name, max=2048) for name in "st")
LENGTHS = [
    (0, 5),
    (5, 0),
    (1, 1),
    (1, 17),
    (13, 13),
    (14, 14),
    (15, 15),
    (42, 42),
    (47, 47),
    (13, 53),
    (53, 13),
    (3, 200),
]
"""Queries and keys: 0, 1, t - 1, t, t + 1, 3t, 3t + 5 of tiles of 14 rows, and more of one than of the other."""


def described(
    queries: Any, keys: Any, dtype: str, width: int = WIDTH, **mask: Any
) -> tuple[oc.Tensor, list[oc.Tensor]]:
    shapes = {"q": queries, "k": keys, "v": keys}
    inputs = [oc.placeholder((n, width), dtype, name=name) for name, n in shapes.items()]
    return ops.attention(*inputs, name="y", **mask), inputs


def values(queries: int, keys: int, dtype: str = "float32") -> list[Array]:
    lengths = {"q": queries, "k": keys, "v": keys}
    return [floats(name, n, WIDTH, dtype=dtype) for name, n in lengths.items()]


def seen(queries: int, keys: int, causal: bool, window: int | None, past: int) -> Array:
    i, j = np.arange(queries)[:, None] + past, np.arange(keys)
    near = np.ones((queries, keys), bool) if window is None else j > i - window
    if causal:
        return near & (j <= i)
    return near if window is None else near & (j < i + window)


def attended(arrays: list[Array], mask: Array) -> tuple[Array, Array]:
    """The formula in float64, of the keys that are seen alone, and the terms of each element; zeros of a row that sees none."""
    q, k, v = wide(*arrays)
    scores = np.where(mask, q @ k.T / np.sqrt(WIDTH), -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True, initial=-1e300))
    weights /= np.maximum(weights.sum(-1, keepdims=True), 1)
    return weights @ v, weights @ np.abs(v)


CASES = [
    (True, None, 0, "float32"),
    slow(False, 7, 0, "float32"),
    slow(True, 7, 0, "float32"),
    slow(True, 1, 0, "float32"),
    slow(True, 4000, 0, "float32"),
    slow(True, None, "t - s", "float32"),
    slow(True, 9, "t - s", "float32"),
    slow(True, None, -5, "float32"),
    slow(True, None, 0, "bfloat16"),
    slow(False, 7, 0, "bfloat16"),
]


@pytest.mark.parametrize(("causal", "window", "past", "dtype"), CASES)
def test_a_mask_leaves_the_keys_that_it_says_at_every_edge(
    causal: bool, window: int | None, past: Any, dtype: str
) -> None:
    y, inputs = described(
        s, t, dtype, causal=causal, window=window, past=t - s if past == "t - s" else past
    )
    kernel = oc.compile(y, inputs=inputs)
    for queries, keys in LENGTHS:
        arrays = values(queries, keys, dtype)
        before = keys - queries if past == "t - s" else past
        exact, terms = attended(arrays, seen(queries, keys, causal, window, before))
        found = kernel(*arrays)
        assert found.dtype == numpy_dtype(dtype)
        agree(found, exact, terms=terms + 1e-6, units=64 if dtype == "float32" else 4, sums=dtype)


@pytest.mark.parametrize("dtype", ["float32", slow("bfloat16")])
def test_a_value_that_is_not_finite_does_not_reach_who_does_not_see_its_key(dtype: str) -> None:
    y, inputs = described(s, s, dtype, causal=True, window=20)
    kernel = oc.compile(y, inputs=inputs)
    for bad in (0, 17, 46):
        arrays = values(47, 47, dtype)
        arrays[2][bad, 3] = np.nan if bad else np.inf
        arrays[1][46] = np.nan  # a key is not read either
        found = wide(kernel(*arrays))[0]
        mask = seen(47, 47, True, 20, 0)
        reached = np.zeros((47, WIDTH), bool)
        reached[:, 3] = mask[:, bad]
        reached[46] = True
        np.testing.assert_array_equal(np.isfinite(found), ~reached)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_row_has_the_same_bits_among_any_number_of_queries(dtype: str) -> None:
    y, inputs = described(s, t, dtype, causal=True, window=30, past=3)
    kernel = oc.compile(y, inputs=inputs)
    q, k, v = values(60, 64, dtype)
    whole = kernel(q, k, v)
    for rows in (1, 13, 14, 15, 29, 42, 47):
        np.testing.assert_array_equal(kernel(q[:rows], k, v), whole[:rows])


@pytest.mark.slow
def test_the_plan_and_the_cost_are_of_the_loops_that_are_left() -> None:
    machine = oc.target("cpu", machine="cascade-lake")
    plans = {}
    for name, mask in (
        ("all", {}),
        ("causal", {"causal": True}),
        ("window", {"causal": True, "window": 32}),
    ):
        y, inputs = described(s, s, "float32", 64, **mask)
        kernel = oc.compile(y, inputs=inputs, target=machine)
        plans[name] = kernel.plan(s=1024)
        covered = {
            piece.stage for piece in plans[name].pieces if piece.microkernel != "vector loops"
        }
        assert covered == {"y_product", "y_mix"}
    assert plans["causal"].seconds < 0.6 * plans["all"].seconds
    assert plans["window"].seconds < 0.2 * plans["all"].seconds


BY_HAND = """program y
size s in 0:2049
input q: float32[s, 16]
input k: float32[s, 16]
input v: float32[s, 16]
local scores: float32[s, s]
local greatest: float32[s]
local weights: float32[s, s]
local total: float32[s]
output y: float32[s, 16]
for i in 0:s
  for j in max(0, i - 8):i + 1
    scores[i, j] = 0.0
    for d in 0:16
      scores[i, j] += q[i, d] * k[j, d]
for i in 0:s
  greatest[i] = -inf
  for t in max(0, i - 8):i + 1
    greatest[i] max= scores[i, t] * 0.25
for i in 0:s
  for j in 0:s
    if j > i - 9 and j <= i
      weights[i, j] = exp(scores[i, j] * 0.25 - greatest[i])
for i in 0:s
  total[i] = 0.0
  for t in max(0, i - 8):i + 1
    total[i] += weights[i, t]
for i in 0:s
  for e in 0:16
    y[i, e] = 0.0
    for t in 0:s
      if t > i - 9 and t <= i
        y[i, e] += weights[i, t] * v[t, e]
for i in 0:s
  for e in 0:16
    y[i, e] = y[i, e] / total[i]
"""


@pytest.mark.slow
@pytest.mark.parametrize("term", ["t", "j"])  # also where terms are called as keys are
def test_a_band_written_as_loops_is_cut_for_microkernels_as_well(term: str) -> None:
    program = oc.parse(re.sub(r"\bt\b", term, BY_HAND))
    kernel = oc.compile(program, target=oc.target("cpu", machine="cascade-lake"))
    covered = {one.stage for one in kernel.plan(s=100).pieces if one.microkernel != "vector loops"}
    assert covered == {"scores", "y"}
    kernel = oc.compile(program)
    for n in (0, 1, 8, 9, 14, 15, 47):
        arrays = values(n, n)
        exact, terms = attended(arrays, seen(n, n, True, 9, 0))
        agree(kernel(*arrays), exact, terms=terms + 1e-6, units=64, sums="float32")


ROW_BY_ROW = """program y
size s in 0:2049
input q: float32[s, 16]
input k: float32[s, 16]
input v: float32[s, 16]
local scores: float32[s]
local total: float32[1]
output y: float32[s, 16]
for i in 0:s
  for j in 0:s
    scores[j] = 0.0
    for d in 0:16
      scores[j] += q[i, d] * k[j, d]
  total[0] = 0.0
  for j in 0:s
    scores[j] = exp(scores[j] * 0.25)
    total[0] += scores[j]
  for e in 0:16
    y[i, e] = 0.0
    for j in 0:s
      y[i, e] += scores[j] * v[j, e]
    y[i, e] = y[i, e] / total[0]
"""
NOT_WHOLE = "it is not a sequence of whole arrays, each from those before"
BESIDE_A_PRODUCT = """program y
size s in 0:2049
input a: float32[s, 64]
input b: float32[64, 64]
local c: float32[s, 64]
inout y: float32[s]
for i in 0:s
  for j in 0:64
    c[i, j] = 0.0
    for k in 0:64
      c[i, j] += a[i, k] * b[k, j]
for i in 1:s
  y[i] = y[i - 1] + c[i, 0]
"""


def test_a_plan_of_loops_says_why_they_are_not_cut_as_attention_is() -> None:
    kernel = oc.compile(oc.parse(ROW_BY_ROW))
    assert f"no sum runs by a microkernel: {NOT_WHOLE}" in str(kernel.plan(s=40))
    for n in (1, 5, 47):
        arrays = values(n, n)
        exact, terms = attended(arrays, np.ones((n, n), bool))
        agree(kernel(*arrays), exact, terms=terms + 1e-6, units=64, sums="float32")
    beside = oc.compile(oc.parse(BESIDE_A_PRODUCT)).plan(s=40)
    assert f"nests are cut one by one: {NOT_WHOLE}" in str(beside)
