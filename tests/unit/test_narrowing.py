"""Loops over terms end where conditions on these do, and elements that nobody reads are not computed."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import slow

import offcut as oc
from offcut.errors import PartitionError
from offcut.proof import check_equal
from offcut.proof.normal_forms.iterations import bodies
from offcut.proof.normal_forms.loop_fusion import separate_launches
from offcut.proof.normal_forms.narrowed_blocks import without_unread_blocks
from offcut.proof.normal_forms.narrowing import narrow_terms, without_unread_elements

WHOLE = """program p
size s in 0:60
size past in 0:20
input Q: float32[s, 3]
input V: float32[s, 5]
local S: float32[s, s]
output Y: float32[s, 5]
for i_tile in 0:s//4
  for j_tile in 0:s//8
    tile i in 4*i_tile +: 4, j in 8*j_tile +: 8  @cover(any)
      S[i, j] = 0.0
      for d in 0:3
        S[i, j] += Q[i, d] * Q[j, d]
  tile i in 4*i_tile +: 4, j in 8*(s//8) +: s % 8
    S[i, j] = 0.0
    for d in 0:3
      S[i, j] += Q[i, d] * Q[j, d]
for i_tile in 0:(s + 3)//4
  tile i in 4*i_tile +: min(4, s - 4*i_tile), e in 0 +: 5
    Y[i, e] = 0.0
    for t in 0:s
      Y[i, e] += where(MASK, S[i, t] * V[t, e], -0.0)
for i in 4*(s//4):s
  tile j in 0 +: s
    S[i, j] = 0.0
    for d in 0:3
      S[i, j] += Q[i, d] * Q[j, d]
"""
MASKS = {
    "causal": "t <= i + past",
    "window": "t > i + past - 3 and t <= i + past",
    "both ways": "t > i - 2 and t < i + 2",
    "the keys before": "t < i - past",
}
SIZES = [(0, 0), (1, 0), (3, 1), (4, 0), (5, 2), (8, 3), (9, 0), (12, 5), (29, 4)]


def in_order(mask: str) -> oc.Program:
    """The program, each row of S stored before it is read."""
    text = WHOLE.replace("MASK", MASKS[mask])
    sums, rest = text.index("for i_tile in 0:(s + 3)//4"), text.index("for i in 4*(s//4)")
    return oc.parse(text[:sums] + text[rest:] + text[sums:rest])


def inputs(s: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(s)
    return {"Q": rng.random((s, 3), np.float32), "V": rng.random((s, 5), np.float32)}


@pytest.mark.parametrize("mask", MASKS)
def test_narrowed_loops_give_the_same_bits(mask: str) -> None:
    whole = in_order(mask)
    read = without_unread_elements(whole)
    narrow = narrow_terms(read)
    assert read != whole
    assert narrow != read
    assert oc.parse(str(narrow)) == narrow
    for s, past in SIZES:
        wanted = whole.run(inputs(s), s=s, past=past)
        for one in (read, narrow):
            np.testing.assert_array_equal(one.run(inputs(s), s=s, past=past), wanted)
    if mask == "causal":  # a NaN beyond the mask is not read
        given = inputs(29)
        given["V"][20:] = np.nan
        found = narrow.run(given, s=29, past=0)
        assert np.isfinite(found[:20]).all()
        assert np.isnan(found[20:]).all()


@pytest.mark.parametrize("mask", ["causal", slow("window")])
def test_narrowed_terms_are_proved_and_one_term_less_is_refused(mask: str) -> None:
    read = without_unread_elements(in_order(mask))
    narrow = narrow_terms(read)
    check_equal(read, narrow, inside=True)
    planted = str(narrow).replace(":min(s, i + past + 1)\n", ":min(s, i + past)\n", 1)
    assert planted != str(narrow)
    with pytest.raises(PartitionError):
        check_equal(read, oc.parse(planted), inside=True)


GRID = """program g
size s in 0:60
input Q: float32[s, 3]
local S: float32[s, s]
local E: float32[s, s]
output Y: float32[s]
for b in 0:(s + 3)//4  @block
  for c in 0:(s + 7)//8  @block
    tile i in 4*b +: min(4, s - 4*b), j in 8*c +: min(8, s - 8*c)
      S[i, j] = 0.0
      for d in 0:3
        S[i, j] += Q[i, d] * Q[j, d]
for b in 0:(s + 1)//2  @block
  for w in 0:2  @warp
    if 2*b + w < s
      for j in 0:s  @lane
        E[2*b + w, j] = S[2*b + w, j] + 1.0
for b in 0:(s + 1)//2  @block
  for w in 0:2  @warp
    if 2*b + w < s
      Y[2*b + w] = 0.0
      for t in 0:s
        Y[2*b + w] += where(t <= 2*b + w, E[2*b + w, t], -0.0)
"""
"""Scores in blocks, what lanes make of each, and its sum over the terms of a mask."""


def test_blocks_and_elements_of_lanes_that_no_read_asks_for_are_none() -> None:
    whole = oc.parse(GRID)
    narrow = without_unread_blocks(whole)
    assert "\n    if 4*b + min(4, s - 4*b) - 8*c - 1 >= 0\n" in str(narrow)
    assert "        if 2*b + w - j >= 0\n          E[" in str(narrow)
    assert str(narrow).count(">= 0") == 2
    check_equal(whole, narrow, inside=True)
    for s in (0, 1, 3, 4, 5, 8, 17, 29):
        given = {"Q": inputs(s)["Q"]}
        np.testing.assert_array_equal(narrow.run(given, s=s), whole.run(given, s=s))
    asked = oc.parse(GRID.replace("where(t <= 2*b + w, E[2*b + w, t], -0.0)", "E[2*b + w, t]"))
    assert without_unread_blocks(asked) is asked


@pytest.mark.slow
def test_a_block_that_some_read_asks_for_is_not_left_out() -> None:
    planted = str(without_unread_blocks(oc.parse(GRID))).replace("8*c - 1 >=", "8*c - 2 >=")
    with pytest.raises(PartitionError):
        check_equal(oc.parse(GRID), oc.parse(planted), inside=True)


WINDOWS = """program w
size n in 0:60
input X: float32[n]
local A: float32[n]
local B: float32[n]
local S: float32[n]
output Y: float32[n]
for b in 0:(n + 3)//4  @block
  alloc A[4*b +: min(4, n - 4*b)]
    tile i in 4*b +: min(4, n - 4*b)
      A[i] = X[i]
    tile i in 4*b +: min(4, n - 4*b)
      S[i] = A[i] + 1.0
for b in 0:(n + 3)//4  @block
  alloc B[4*b +: min(4, n - 4*b)]
    tile i in 4*b +: min(4, n - 4*b)
      B[i] = S[i]
    tile i in 4*b +: min(4, n - 4*b)
      Y[i] = B[i]
  if b < 1
    X_
"""
"""Two launches whose loops over blocks have one name, and windows of their own."""


def test_windows_of_launches_whose_loops_have_one_name_are_each_their_own() -> None:
    later = "tile i in 0 +: min(1, n)\n      Y[i] = S[i]"
    whole = oc.parse(WINDOWS.replace("X_", later))
    parts = separate_launches(whole)
    assert len(parts.body) == 3
    check_equal(whole, parts, inside=True)


STAGED = """program s
size n in 0:600
input X: float32[n, n]
local S: float32[n, n]
output Y: float32[n, n]
for b in 0:2  @block
  for c in 0:n//128  @block
    tile i in 0 +: n, j in 128*c +: 128
      S[i, j] = 0.0
    tile i in 0 +: n, j in 128*c +: 128
      for k in 0:n
        S[i, j] += X[i, k] * X[j, k]
    tile i in 0 +: n, j in 128*c +: 128
      Y[i, j] = S[i, j]
  tile i in 0 +: n, j in 128*(n//128) +: n - 128*(n//128)
    S[i, j] = 0.0
  tile i in 0 +: n, j in 128*(n//128) +: n - 128*(n//128)
    for k in 0:n
      S[i, j] += X[i, k] * X[j, k]
  tile i in 0 +: n, j in 128*(n//128) +: n - 128*(n//128)
    Y[i, j] = S[i, j]
"""
"""Sums that are copied out by each tile: in a loop, and in what is left behind it."""


def unstaged() -> oc.Program:
    """Return `STAGED` with its sums in the array that they are copied to."""
    text = STAGED.replace("local S: float32[n, n]\n", "")
    for where in ("128*c +: 128", "128*(n//128) +: n - 128*(n//128)"):
        for indent in ("    ", "  "):
            copy = f"{indent}tile i in 0 +: n, j in {where}\n{indent}  Y[i, j] = S[i, j]"
            text = text.replace(copy, "")
    return oc.parse(text.replace("S[i, j]", "Y[i, j]"))


def test_a_loop_with_copies_and_what_follows_it_with_copies_are_compared_apart() -> None:
    pairs = bodies(unstaged(), oc.parse(STAGED))
    assert pairs is not None
    assert len(pairs) == 2
    check_equal(unstaged(), oc.parse(STAGED), inside=True)


@pytest.mark.slow
def test_a_copy_of_another_element_is_refused() -> None:
    planted = STAGED.replace("Y[i, j] = S[i, j]\n  tile", "Y[i, j] = S[j, i]\n  tile")
    assert planted != STAGED
    with pytest.raises(PartitionError):
        check_equal(unstaged(), oc.parse(planted), inside=True)
