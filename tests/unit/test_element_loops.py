"""Loops by hand are read as the coordinates that they run; a private array as one for all instances, where no instance sees another's."""

from __future__ import annotations

import numpy as np
import pytest

import offcut as oc
from offcut.errors import PartitionError
from offcut.proof.normal_forms.element_loops import name_loops_like
from offcut.proof.normal_forms.window_expansion import share_private_arrays

HEAD = "program p\nsize n in 1:40\ninput A: float32[n, 6]\n"
SOURCE = oc.parse(f"""{HEAD}output C: float32[n]
for i in 0:n
  C[i] = 0.0
  for k in 0:6
    C[i] += A[i, k]
""")
SPLIT = f"""{HEAD}output C: float32[n]
for t in 0:n//4
  for x in 0:4
    for z in 4*t + x:4*t + x + 1
      C[z] = 0.0
      for y in 0:6
        C[z] += A[z, y]
if n % 4 > 0
  for x in 0:4
    if 4*(n//4) + x < n
      C[4*(n//4) + x] = 0.0
      for k in 0:6
        C[4*(n//4) + x] += A[4*(n//4) + x, k]
"""


def test_loops_count_as_the_coordinates_that_they_run() -> None:
    emitted = oc.parse(SPLIT)
    _, named = name_loops_like(SOURCE, emitted)
    assert "for i in 4*t:4*t + 4" in str(named)
    assert "for k in 0:6" in str(named)
    assert "tile i in 4*(n//4) +: 4 where i < n" in str(named)
    oc.prove_equal(SOURCE, emitted)
    array = np.arange(42, dtype="f").reshape(7, 6)
    for program in (emitted, named):
        np.testing.assert_array_equal(program.run({"A": array}), SOURCE.run({"A": array}))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("0:4\n    for", "0:3\n    for"),
        ("4*t + x:4*t + x + 1", "4*t + 1:4*t + 2"),
        (" + x < n", " + x < n - 1"),
    ],
)
def test_loops_over_other_coordinates_are_refused(old: str, new: str) -> None:
    assert old in SPLIT
    with pytest.raises(PartitionError, match="with n = "):
        oc.prove_equal(SOURCE, oc.parse(SPLIT.replace(old, new)))


def test_a_name_that_is_taken_is_not_given_twice() -> None:
    text = SPLIT.replace("for t in 0:n//4", "for i in 0:n//4").replace("4*t", "4*i")
    _, named = name_loops_like(SOURCE, oc.parse(text))
    assert "for x in 0:4\n    C[4*i + x]" in str(named)
    oc.prove_equal(SOURCE, oc.parse(text))


LOCAL = """local S: float32[n]
output C: float32[n]
for i in 0:n
  S[i] = A[i, 0]
for i in 0:n
  C[i] = S[i] + S[i]
"""
PRIVATE = (
    LOCAL.replace("local", "private")
    .replace("for i in 0:n\n  S", "tile i in 0 +: n\n  S")
    .replace("for i in 0:n\n", "")
)


def test_a_private_array_of_one_element_by_instance_is_one_array() -> None:
    source, emitted = oc.parse(HEAD + LOCAL), oc.parse(HEAD + PRIVATE)
    assert "local S" in str(share_private_arrays(emitted, source))
    oc.prove_equal(source, emitted)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("  S[i] = A[i, 0]\n", "  S[i] += A[i, 0]\n"),
        ("S[i] + S[i]", "S[i] + S[n - 1 - i]"),
        ("  S[i] = A[i, 0]\n  C", "  if i < n\n    S[i] = A[i, 0]\n  C"),
        ("tile", "for"),
    ],
)
def test_what_an_instance_may_see_of_others_stays_private(old: str, new: str) -> None:
    assert old in PRIVATE
    text = PRIVATE.replace(old, new).replace("0 +: n", "0:n" if new == "for" else "0 +: n")
    emitted = oc.parse(HEAD + text)
    assert share_private_arrays(emitted, oc.parse(HEAD + LOCAL)) == emitted
