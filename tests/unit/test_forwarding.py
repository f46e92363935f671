"""Copies are forwarded: what they hold is read from where it came, where that is shown."""

from __future__ import annotations

import numpy as np
import pytest

import offcut as oc
from offcut.errors import PartitionError
from offcut.partition.forwarding import forwarded

HEAD = "program p\nsize n in 0:40\ninput X: float32[n]\ninput F: float32[3]\n"
SOURCE = f"""{HEAD}output Y: float32[n]
for x in 0:n
  Y[x] = 0.0
  for r in 0:3
    Y[x] += F[r] * where(x + r >= 1 and x + r - 1 < n, X[x + r - 1], 0.0)
"""
READS = """for x in 0:n
  Y[x] = 0.0
  for r in 0:3
    Y[x] += F[r] * S[x + r]
"""
COPY = """for z in 0:n + 2
  S[z] = where(z >= 1 and z - 1 < n, X[z - 1], 0.0)
"""
PIECES = """for z_tile in 0:(n + 2)//4
  tile z in 4*z_tile +: 4
    S[z] = where(z >= 1 and z - 1 < n, X[z - 1], 0.0)
tile z in 4*((n + 2)//4) +: (n + 2) % 4
  S[z] = where(z >= 1 and z - 1 < n, X[z - 1], 0.0)
"""
LOCAL = "output Y: float32[n]\nlocal S: float32[n + 2]\n"


def indented(text: str) -> str:
    return "".join(f"  {line}\n" for line in text.splitlines())


FORWARDED = {
    "a padded copy": HEAD + LOCAL + COPY + READS,
    "a copy in pieces": HEAD + LOCAL + PIECES + READS,
    "a copy of a copy": HEAD
    + LOCAL
    + "local T: float32[n]\nfor i in 0:n\n  T[i] = X[i]\n"
    + COPY.replace("X", "T")
    + READS,
    "a copy in a window": HEAD + LOCAL + "alloc S[0 +: n + 2]\n" + indented(COPY + READS),
}


@pytest.mark.parametrize("text", FORWARDED.values(), ids=FORWARDED)
def test_a_copy_is_read_from_where_it_came(text: str) -> None:
    source, emitted = oc.parse(SOURCE), oc.parse(text)
    assert [buffer.name for buffer in forwarded(emitted).buffers] == ["X", "F", "Y"]
    oc.prove_equal(source, emitted)
    given = {"X": np.arange(1, 8, dtype="f"), "F": np.array([1, 10, 100], "f")}
    np.testing.assert_array_equal(emitted.run(given), source.run(given))
    np.testing.assert_array_equal(forwarded(emitted).run(given), source.run(given))


KEPT = {
    "one element is not copied": COPY.replace("0:n + 2", "0:n + 1") + READS,
    "some elements are copied": COPY.replace("  S[z]", "  if z % 2 == 0\n    S[z]") + READS,
    "copied after it is read": READS + COPY,
    "stored again": COPY + "for z in 1:n + 1\n  S[z] = S[z] + 1.0\n" + READS,
    "stored again by a reader": COPY + READS + "  S[x] = 1.0\n",
}


@pytest.mark.parametrize("body", KEPT.values(), ids=KEPT)
def test_what_is_no_copy_stays_and_is_refused(body: str) -> None:
    emitted = oc.parse(HEAD + LOCAL + body)
    assert forwarded(emitted) == emitted
    with pytest.raises(PartitionError):
        oc.prove_equal(oc.parse(SOURCE), emitted)


def test_a_copy_of_other_elements_is_refused() -> None:
    emitted = oc.parse(HEAD + LOCAL + COPY.replace("X[z - 1]", "X[n - z]") + READS)
    assert forwarded(emitted) != emitted
    with pytest.raises(PartitionError):
        oc.prove_equal(oc.parse(SOURCE), emitted)


UPDATED = """program q
size n in 0:40
inout X: float32[n]
output Y: float32[n]
local S: float32[n]
for i in 0:n
  S[i] = X[i]
for i in 0:n
  X[i] = 2.0
for i in 0:n
  Y[i] = S[n - 1 - i]
"""


def test_a_copy_of_what_changes_stays() -> None:
    program = oc.parse(UPDATED)
    assert forwarded(program) == program
    changed = oc.parse(UPDATED.replace("S[n - 1 - i]", "X[n - 1 - i]"))
    with pytest.raises(PartitionError):
        oc.prove_equal(program, changed)


WINDOW = """program w
size n in 0:40
input A: float32[n, 9]
output B: float32[9, n]
local S: float32[n, 9]
for i in 0:n
  alloc S[i +: 1, 0 +: 9]
    tile j in 0 +: 16 where j < 9
      S[i, j] = A[i, j] + 1.0
    for j in 0:9
      B[j, i] = S[i, 8 - j]
"""


def test_a_copy_that_both_programs_have_stays() -> None:
    copied = oc.parse(HEAD + LOCAL + COPY + READS)
    assert forwarded(copied, kept=["S"]) == copied
    oc.prove_equal(copied, oc.parse(HEAD + LOCAL + PIECES + READS))


def test_a_window_of_one_row_is_a_copy_of_that_row_alone() -> None:
    short = forwarded(oc.parse(WINDOW))
    assert [buffer.name for buffer in short.buffers] == ["A", "B"]
    a = np.arange(45, dtype="f").reshape(5, 9)
    np.testing.assert_array_equal(short.run({"A": a}), (a + 1)[:, ::-1].T)
    other = oc.parse(WINDOW.replace("S[i, 8 - j]", "S[0, 8 - j]"))
    assert forwarded(other) == other
