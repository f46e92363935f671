"""Loops over terms end where conditions on these do, and elements that nobody reads are not computed."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import slow

import offcut as oc
from offcut.errors import PartitionError
from offcut.proof import check_equal
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
SIZES = [(0, 0), (1, 0), (3, 1), (4, 0), (5, 2), (7, 0), (8, 3), (9, 0), (12, 5), (17, 0), (29, 4)]


def in_order(mask: str) -> oc.Program:
    """The program, each row of S stored before it is read."""
    text = WHOLE.replace("MASK", MASKS[mask])
    head, scores, sums, rest = (
        text[: text.index("for i_tile")],
        text[text.index("for i_tile in 0:s//4") : text.index("for i_tile in 0:(s + 3)//4")],
        text[text.index("for i_tile in 0:(s + 3)//4") : text.index("for i in 4*(s//4)")],
        text[text.index("for i in 4*(s//4)") :],
    )
    return oc.parse(head + scores + rest + sums)


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


def test_terms_are_those_of_the_mask_and_a_nan_beyond_it_is_not_read() -> None:
    narrow = narrow_terms(without_unread_elements(in_order("causal")))
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
