"""Every refusal of `compile` and `partition` of what a loop program says, word for word."""

from __future__ import annotations

import pytest

import offcut as oc

HEAD = """\
program f
size n in 1:60
size m in 0:9
input A: int32[n]
output B: int32[n]
local L: int32[n]
"""

VALUES = {
    "a value that leaves its range inside a window": (
        """\
for i in 0:n
  alloc L[i +: 1]
    let q in 0:2 = i
      B[i] = int32(q)
""",
        """\
compile: cannot take the value q
  at       let q in 0:2 = i
  because  with n = 3, m = 0, it is not in 0:2
  help     a range that holds it at every size""",
    ),
    "a value that leaves its range in a tile": (
        """\
tile i in 0 +: n
  let q in 0:2 = i
    B[i] = int32(q)
""",
        """\
compile: cannot take the value q
  at       let q in 0:2 = i
  because  with n = 3, m = 0, it is not in 0:2
  help     a range that holds it at every size""",
    ),
    "a value that data keeps in its range": (
        """\
for i in 0:n
  if A[i] > int32(i)
    let q in 0:2 = i
      B[i] = int32(q)
""",
        """\
compile: cannot take the value q
  at       let q in 0:2 = i
  because  sets do not show that it is in 0:2, nor express all around it
  help     a range that holds it at every size""",
    ),
}


@pytest.mark.parametrize("what", VALUES)
def test_a_value_that_may_leave_its_range_is_refused(what: str) -> None:
    body, text = VALUES[what]
    with pytest.raises(oc.PartitionError) as refused:
        oc.compile(oc.parse(HEAD + body))
    assert str(refused.value) == text


def test_a_value_in_its_range_is_taken_wherever_it_stands() -> None:
    body = "tile i in 0 +: n\n  if A[i] > 0\n    let q in 0:2 = i % 2\n      B[i] = int32(q)\n"
    assert oc.compile(oc.parse(HEAD + body))
