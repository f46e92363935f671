"""A bound that is read from memory may be another one when it is read again: it shows nothing of a window."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import rejection

import offcut as oc

CHANGED = """
program p
size n in 1:1000
inout p: int32[1]
local L: float32[2000]
output A: float32[1]
alloc L[0 +: n]
  for i in 0:n - index(p[0])
    p[0] = int32(1000)
    for j in 0:index(p[0])
      L[i + j] = 1.0
      A[0] = L[i + j]
"""
COUNTED = """
program p
size n in 1:100
input p: int32[1]
local L: float32[n]
output A: float32[1]
alloc L[0 +: index(p[0])]
  for j in 0:index(p[0])
    L[j] = 1.0
    A[0] = L[j]
"""


@pytest.mark.parametrize("text", [CHANGED, COUNTED], ids=["changed", "counted"])
def test_a_window_of_what_memory_says_is_not_seen_to_hold_its_accesses(text: str) -> None:
    with rejection(
        "PartitionError: compile: cannot compile p\n  at       alloc L\n"
        "  because  nothing shows that all that is accessed of L lies in a window of it\n"
        "  help     a larger window, or L without alloc, which holds all of it"
    ):
        oc.compile(oc.parse(text))


def test_without_a_window_such_bounds_are_checked_at_the_call() -> None:
    kernel = oc.compile(oc.parse(CHANGED.replace("alloc L[0 +: n]", "if 0 < n")))
    assert kernel(np.array([900], "int32"), n=901)[1].tolist() == [1.0]


@pytest.mark.parametrize("causal", [False, True])
def test_attention_to_no_key_at_all_gives_zeros(causal: bool) -> None:
    s = oc.dim("s", max=8)
    shapes = {"Q": (1, s, 7), "K": (1, 0, 7), "V": (1, 0, 2)}
    q, k, v = (oc.placeholder(shape, name=name) for name, shape in shapes.items())
    kernel = oc.compile(oc.ops.attention(q, k, v, causal=causal), inputs=[q, k, v])
    found = kernel(*(np.ones(shape, "float32") for shape in ((1, 3, 7), (1, 0, 7), (1, 0, 2))))
    np.testing.assert_array_equal(found, np.zeros((1, 3, 2)))


READ = """program p
size n in 0:200
size m in 0:200
input p: int64[n]
input x: int8[n]
inout c: int8[n]
for i in 1:n - 1
  for j in 0:m
    for k in 0:index(p[i])
      c[k] += where(k <= j, x[i], x[k])
"""


@pytest.mark.every(5)
@pytest.mark.parametrize("tile", [{}, {"j": 8}, {"i": 8}])
def test_where_an_answer_changes_is_not_read_from_memory(tile: dict[str, int]) -> None:
    program = oc.parse(READ)
    with pytest.raises(oc.PartitionError, match="cannot read the bound"):
        oc.partition(program, tile=tile, copies=4)
    kept = oc.partition(program, tile=tile)  # the condition stays where it is
    p, x, c = np.array([4, 2, 7, 0, 3, 6, 9, 9, 1]), np.arange(9, dtype=np.int8), np.zeros(9, "i1")
    given = {"p": p, "x": x, "c": c}
    np.testing.assert_array_equal(kept.loops.run(given, m=10), program.run(given, m=10))
    oc.compile(program)


def test_what_is_asked_before_is_known_in_either_form() -> None:
    """An index is read only where a condition holds, in a loop that is asked first."""
    kernel = oc.compile(
        oc.parse(
            "program p\nsize n in 0:200\ninput p: int64[n]\ninput x: float32[n]\ninout c: float32[n]\n"
            "for i in 0:n\n  for k in 0:index(p[i])\n    c[k] += where(i != 3, 1.0, x[index(p[k])])\n"
        )
    )
    p, x, c = np.array([1, 2, 0, 3, 1]), np.arange(5, dtype=np.float32), np.zeros(5, np.float32)
    wanted = c.copy()
    for i in range(5):
        for k in range(p[i]):
            wanted[k] += 1.0 if i != 3 else x[p[k]]
    np.testing.assert_array_equal(kernel(p, x, c), wanted)
