"""What brings two programs nearer to each other before they are compared: windows gone, loops joined."""

from __future__ import annotations

import pytest

import offcut as oc
from offcut.errors import PartitionError
from offcut.proof.normal_forms.loop_fusion import fuse_loops_like, fuse_ranges
from offcut.proof.normal_forms.window_expansion import expand_windows

HEAD = """program p
size n in 0:40
input A: float32[n, 9]
output B: float32[n, 9]
"""
ROWS = """local S: float32[n, 9]
for i in 0:n
  alloc S[{window}]
    for j in 0:9
      S[i, j] = exp(A[i, j])
    for j in 0:9
      B[i, j] = S[{read}, 8 - j]
"""
ONE_ROW = "i +: 1, 0 +: 9"


def rows(window: str = ONE_ROW, read: str = "i") -> oc.Program:
    return oc.parse(HEAD + ROWS.format(window=window, read=read))


@pytest.mark.parametrize(
    ("window", "read"),
    [
        ("0 +: n, 0 +: 9", "max(i - 1, 0)"),
        ("i +: 1, 0 +: 9", "max(i - 1, 0)"),
        ("0 +: 1, 0 +: 9", "i"),
    ],
    ids=["all rows in each iteration", "the row before", "the first row"],
)
def test_a_window_stays_where_an_iteration_may_see_another_one_s(window: str, read: str) -> None:
    program = rows(window, read)
    assert expand_windows(program) == program


TWO = """local S: float32[n, 9]
for i in 0:n
  for j in 0:9
    S[i, j] = exp(A[i, j])
for i in 0:n
  for j in 0:9
    B[i, j] = S[{read}, 8 - j]
"""
ONE = TWO.replace("for i in 0:n\n  for j in 0:9\n    B", "  for j in 0:9\n    B")


def test_loops_of_other_names_are_joined() -> None:
    two = TWO.replace(
        "for i in 0:n\n  for j in 0:9\n    B[i, j]", "for k in 0:n\n  for j in 0:9\n    B[k, j]"
    )
    assert two != TWO
    one, renamed = (oc.parse(HEAD + text.format(read=r)) for text, r in ((ONE, "i"), (two, "k")))
    assert fuse_loops_like(one, renamed) == one
    oc.prove_equal(renamed, one)
    taken = oc.parse(
        HEAD
        + two.replace("for j in 0:9\n    B[k, j]", "for i in 0:9\n    B[k, i]")
        .format(read="k")
        .replace("8 - j", "8 - i")
    )
    assert fuse_loops_like(one, taken) == taken


@pytest.mark.parametrize("read", ["n - 1 - i", "min(i + 1, n - 1)"])
def test_loops_that_meet_in_other_rows_are_not_joined(read: str) -> None:
    two, one = (oc.parse(HEAD + text.format(read=read)) for text in (TWO, ONE))
    assert fuse_loops_like(one, two) == two
    with pytest.raises(PartitionError):
        oc.prove_equal(two, one)


RANGES = """program r
size n in 0:9
input A: float32[9]
output B: float32[9]
for i in 0:n
  B[i] = A[i]
for i in 0:{end}
  B[i] = A[i] + 1.0
"""


def test_loops_of_other_ranges_are_not_joined() -> None:
    two = oc.parse(RANGES.format(end="n - 1"))
    assert fuse_loops_like(oc.parse(RANGES.format(end="n")), two) == two


BLOCKS = """local S: float32[n, 9]
if n <= 20
  for i_block in 0:(n + 3)//4
    alloc S[4*i_block +: 4, 0 +: 9]
      for i in 4*i_block:min(4*i_block + 4, n)
        for j in 0:9
          S[i, j] = exp(A[i, j])
      for i in 4*i_block:min(4*i_block + 4, n)
        for j in 0:9
          B[i, j] = S[{read}, 8 - j]
else
  for i in 0:n
    alloc S[i +: 1, 0 +: 9]
      for j in 0:9
        S[i, j] = exp(A[i, j])
      for j in 0:9
        B[i, j] = S[i, 8 - j]
"""


def test_blocks_that_read_a_row_of_another_iteration_are_not_those_rows() -> None:
    read = "4*(i//4)"
    blocks = oc.parse(HEAD + BLOCKS.format(read=read))
    assert str(fuse_ranges(blocks)).count("for i in 4*i_block") == 2
    with pytest.raises(PartitionError, match="with n = 2, "):
        oc.prove_equal(oc.parse(HEAD + TWO.format(read="i")), blocks)


def test_a_window_of_which_another_block_reads_a_row_stays() -> None:
    blocks = oc.parse(HEAD + BLOCKS.format(read="max(i - 1, 0)"))
    assert "alloc" in str(expand_windows(blocks))


DOUBLED = """program d
size n in 0:40
input A: float32[n]
local S: float32[n]
output B: float32[n]
"""
ALL = """for i in 0:n
  S[i] = A[i]{twice}
for i in 0:n
  B[i] = S[i] + 1.0
"""
AGAIN = {
    "in turn": """for i in 0:n
  alloc S[i +: 1]
    S[i] = A[i]{twice}
  alloc S[i +: 1]
    B[i] = S[i] + 1.0
""",
    "one inside of the other": """for i in 0:n
  alloc S[i +: 1]
    S[i] = A[i]{twice}
    alloc S[i +: 1]
      B[i] = S[i] + 1.0
""",
    "of all, one inside of the other": """alloc S[0 +: n]
  for i in 0:n
    S[i] = A[i]{twice}
  alloc S[0 +: n]
    for i in 0:n
      B[i] = S[i] + 1.0
""",
    "read outside of the inner one": """for i in 0:n
  alloc S[i +: 1]
    alloc S[i +: 1]
      S[i] = A[i]{twice}
    B[i] = S[i] + 1.0
""",
    "under a condition": """for i in 0:n
  alloc S[i +: 1]
    S[i] = A[i]{twice}
  if i >= 0
    alloc S[i +: 1]
      B[i] = S[i] + 1.0
""",
    "of a block": """for i_block in 0:(n + 3)//4
  alloc S[4*i_block +: 4]
    for i in 4*i_block:min(4*i_block + 4, n)
      S[i] = A[i]{twice}
  alloc S[4*i_block +: 4]
    for i in 4*i_block:min(4*i_block + 4, n)
      B[i] = S[i] + 1.0
""",
    "in loops of their own": """for i in 0:n
  alloc S[i +: 1]
    S[i] = A[i]{twice}
for i in 0:n
  alloc S[i +: 1]
    B[i] = S[i] + 1.0
""",
}


@pytest.mark.every(4)
@pytest.mark.parametrize("twice", [" * 2.0", ""], ids=["computed", "copied"])
@pytest.mark.parametrize("text", AGAIN.values(), ids=list(AGAIN))
def test_a_window_that_is_opened_again_holds_nothing_of_before(text: str, twice: str) -> None:
    source, emitted = (oc.parse(DOUBLED + one.format(twice=twice)) for one in (ALL, text))
    with pytest.raises(PartitionError, match=r"with n = 1, .* reads S\[0\] of nothing"):
        oc.prove_equal(source, emitted)


def test_windows_in_turn_that_share_no_element_are_parts_of_one_array() -> None:
    halves = """for t in 0:n//4
  alloc S[4*t +: 4]
    for i in 4*t:4*t + 4
      S[i] = A[i] * 2.0
    for i in 4*t:4*t + 4
      B[i] = S[i] + 1.0
alloc S[4*(n//4) +: n % 4]
  for i in 4*(n//4):n
    S[i] = A[i] * 2.0
  for i in 4*(n//4):n
    B[i] = S[i] + 1.0
"""
    emitted = oc.parse(DOUBLED + halves)
    assert "alloc" not in str(expand_windows(emitted))


def test_a_window_in_a_tile_stays_where_nothing_touches_it_either() -> None:
    tile = """tile i in 0 +: n
  alloc S[i +: 1]
    B[i] = A[i] + 1.0
"""
    emitted = oc.parse(DOUBLED + tile)
    assert expand_windows(emitted) == emitted
    with pytest.raises(PartitionError, match="its lanes would share it"):
        oc.prove_equal(oc.parse(DOUBLED + "for i in 0:n\n  B[i] = A[i] + 1.0\n"), emitted)
