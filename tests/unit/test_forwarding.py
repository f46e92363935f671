"""Copies are forwarded: what they hold is read from where it came, where that is shown."""

from __future__ import annotations

import numpy as np
import pytest

import offcut as oc
from offcut.errors import PartitionError
from offcut.proof.normal_forms.copies import forward_copies
from offcut.proof.normal_forms.window_expansion import expand_windows

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
    "a copy with an axis of one element": HEAD
    + LOCAL.replace("[n + 2]", "[1, n + 2]")
    + COPY.replace("S[z]", "S[0, z]")
    + READS.replace("S[x + r]", "S[0, x + r]"),
    "a copy in a window": HEAD + LOCAL + "alloc S[0 +: n + 2]\n" + indented(COPY + READS),
}


@pytest.mark.parametrize("text", FORWARDED.values(), ids=FORWARDED)
def test_a_copy_is_read_from_where_it_came(text: str) -> None:
    source, emitted = oc.parse(SOURCE), oc.parse(text)
    assert [buffer.name for buffer in forward_copies(emitted).buffers] == ["X", "F", "Y"]
    oc.prove_equal(source, emitted)
    given = {"X": np.arange(1, 8, dtype="f"), "F": np.array([1, 10, 100], "f")}
    np.testing.assert_array_equal(emitted.run(given), source.run(given))
    np.testing.assert_array_equal(forward_copies(emitted).run(given), source.run(given))


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
    assert forward_copies(emitted) == emitted
    with pytest.raises(PartitionError):
        oc.prove_equal(oc.parse(SOURCE), emitted)
    other = oc.parse(HEAD + LOCAL + COPY.replace("X[z - 1]", "X[n - z]") + READS)
    assert forward_copies(other) != other
    with pytest.raises(PartitionError):
        oc.prove_equal(oc.parse(SOURCE), other)


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


def test_a_window_of_one_row_is_a_copy_of_that_row_alone() -> None:
    short = forward_copies(oc.parse(WINDOW))
    assert [buffer.name for buffer in short.buffers] == ["A", "B"]
    a = np.arange(45, dtype="f").reshape(5, 9)
    np.testing.assert_array_equal(short.run({"A": a}), (a + 1)[:, ::-1].T)
    other = oc.parse(WINDOW.replace("S[i, 8 - j]", "S[0, 8 - j]"))
    assert forward_copies(other) == other
    reads = "    for z in 0:{}\n      for j in 0:9\n        B[j, i] = S[i + z, 8 - j]\n"
    body = WINDOW[: WINDOW.index("    for j")]
    alike, apart = (oc.parse(body + reads.format(count)) for count in (1, 2))
    assert [buffer.name for buffer in forward_copies(alike).buffers] == ["A", "B"]
    oc.prove_equal(short, alike)
    assert forward_copies(apart) == apart


LANES = """program l
size n in 0:9
input A: float32[n, 9]
output B: float32[9, n]
local S: float32[9]
{head}
  for z in 0:9
    S[z] = A[i, z] + 1.0
  for j in 0:9
    B[j, i] = S[8 - j]
"""


def in_lanes(head: str) -> oc.Program:
    return oc.parse(LANES.format(head=head))


def window_of_lanes() -> oc.Program:
    """A window in a tile, which its lanes would share."""
    lines = LANES.format(head="tile i in 0 +: n").replace("[9]", "[n, 9]").splitlines()
    body = indented("\n".join(lines[6:])).replace("S[", "S[i, ")
    return oc.parse("\n".join([*lines[:6], "  alloc S[i +: 1, 0 +: 9]", body]))


MOVED = """program m
size n in 0:9
inout I: int32[n]
input A: float32[n, 9]
output B: float32[n, 9]
local S: float32[n, 9]
for i in 0:n
  alloc S[index(I[i]) +: 1, 0 +: 9]
    for z in 0:9
      S[index(I[i]), z] = A[i, z]
    I[i] = 0
    for j in 0:9
      B[i, j] = S[index(I[i]), j]
"""


FAR = """program f
size n in 0:9
input X: float32[n]
input I: int32[n]
output Y: float32[n]
{copy}for x in 0:n
  Y[x] = {read}
"""


def test_a_copy_may_be_read_at_a_place_that_memory_says_where_it_is_of_a_whole_array() -> None:
    place, copy = "index(I[x])", "local S: float32[n]\nfor z in 0:n\n  S[z] = X[z]\n"
    source = oc.parse(FAR.format(copy="", read=f"X[{place}]"))
    oc.prove_equal(source, oc.parse(FAR.format(copy=copy, read=f"S[{place}]")))
    longer = "local S: float32[n + 1]\nfor z in 0:n + 1\n  S[z] = X[min(z, n - 1)]\n"
    guarded = FAR.format(copy="", read=f"where({place} < n and {place} >= 0, X[{place}], 0.0)")
    for wanted, other in (
        (source, longer),
        (source, copy.replace("X[z]", "X[n - 1 - z]")),
        (source, copy.replace("0:n", "0:n - 1")),
        (oc.parse(guarded), copy.replace("X[z]", "where(z < n and z >= 0, X[z], 0.0)")),
    ):
        with pytest.raises(PartitionError):
            oc.prove_equal(wanted, oc.parse(FAR.format(copy=other, read=f"S[{place}]")))


def test_copies_of_copies_do_not_grow_without_end() -> None:
    stages = 30
    buffers = "".join(f"local S{q}: float32[{3 * stages + 9}]\n" for q in range(stages))
    text = f"program c\ninput X: float32[9]\noutput Y: float32[9]\n{buffers}"
    for q in range(stages):
        read = f"S{q - 1}" if q else "X"
        end = 9 - 2 if not q else 9
        text += f"for z in 0:{end}\n  S{q}[z] = {read}[z] + {read}[z + 1] + {read}[z + 2]\n"
    text += f"for z in 0:9\n  Y[z] = S{stages - 1}[z]\n"
    assert len(str(forward_copies(oc.parse(text)))) < 100 * len(text)


OTHER = """program o
size n in 0:9
input X: float32[n, 5]
output Y: float64[5, n]
local S: float64[5, n]
for b in 0:n
  S[0, b] = float64(X[b, 0])
for i in 0:5
  for j in 0:n
    Y[i, j] = S[4 - i, j]
"""
IN_TURN = in_lanes("for i in 0:n")
STAYS = {
    "a copy of what changes": (
        oc.parse(UPDATED),
        oc.parse(UPDATED.replace("S[n - 1 - i]", "X[n - 1 - i]")),
    ),
    "an array that lanes share": (in_lanes("tile i in 0 +: n"), IN_TURN),
    "an array that threads share": (in_lanes("for i in 0:n  @thread"), IN_TURN),
    "a window that lanes would share": (window_of_lanes(), IN_TURN),
    "a window whose place is read from memory": (oc.parse(MOVED), None),
    "the first column alone": (oc.parse(OTHER), None),
}


@pytest.mark.parametrize("what", STAYS)
def test_what_is_not_shown_to_hold_a_copy_stays(what: str) -> None:
    program, other = STAYS[what]
    assert expand_windows(forward_copies(program)) == program
    if other is not None:
        with pytest.raises(PartitionError):
            oc.prove_equal(
                *((program, other) if what == "a copy of what changes" else (other, program))
            )
    assert forward_copies(IN_TURN) != IN_TURN


BRANCHES = """program b
size n in 0:9
input X: float32[n]
output Y: float32[n]
local S: float32[n]
for i in 0:n
  Y[i] = 0.0
if n > 3
  for i in 0:n
    S[i] = X[i]
  for i in 0:n
    Y[i] = S[n - 1 - i]
else
  for i in 0:n
    S[i] = 2.0 * X[i]
  for i in 0:n
    Y[i] = S[i]
"""


def test_each_branch_of_a_condition_has_its_own_copy() -> None:
    program = oc.parse(BRANCHES)
    short = forward_copies(program)
    assert [buffer.name for buffer in short.buffers] == ["X", "Y"]
    for n in (0, 1, 3, 4, 8):
        given = {"X": np.arange(1, n + 1, dtype="f")}
        np.testing.assert_array_equal(short.run(given), program.run(given))


def laid(text: str, array: str) -> oc.Program:
    """Rows of 24 elements, doubled in an array of the program's own, and one more."""
    head = "program p\nsize n in 0:40\ninput X: float32[n, 24]\noutput Y: float32[n, 24]\n"
    return oc.parse(f"{head}local {array}\n{text}")


IN_ROWS = """for i in 0:n
  for o in 0:24
    T[i, o] = X[i, o] * 2.0
for i in 0:n
  for o in 0:24
    Y[i, o] = T[i, o] + 1.0
"""
IN_GROUPS = """for i in 0:n
  for g in 0:2
    for o in 0:12
      U[i, g, o] = X[i, 12*g + o] * 2.0
for i in 0:n
  for o in 0:24
    Y[i, o] = U[i, o // 12, o % 12] + 1.0
"""


def test_an_array_of_the_source_may_be_another_one_that_lies_otherwise_with_equal_elements() -> (
    None
):
    source = laid(IN_ROWS, "T: float32[n, 24]")
    emitted = laid(IN_GROUPS, "U: float32[n, 2, 12]")
    oc.prove_equal(source, emitted)
    oc.prove_equal(emitted, source)
    for other in ("X[i, 11*g + o] * 2.0", "X[i, 12*g + o] * 3.0"):
        wrong = laid(IN_GROUPS.replace("X[i, 12*g + o] * 2.0", other), "U: float32[n, 2, 12]")
        with pytest.raises(PartitionError):
            oc.prove_equal(source, wrong)


def test_an_array_of_the_source_that_is_read_outside_is_not_another_one() -> None:
    head = "program p\ninput X: float32[25]\noutput Y: float32[24]\n"
    there = "for o in 0:24\n  T[o] = X[o]\nfor o in 0:24\n  Y[o] = T[o + 1] * 2.0\n"
    source = oc.parse(f"{head}local T: float32[24]\n{there}")
    emitted = oc.parse(f"{head}for o in 0:24\n  Y[o] = X[o + 1] * 2.0\n")
    with pytest.raises(PartitionError):
        oc.prove_equal(source, emitted)
