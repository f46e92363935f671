"""Staged tiles of symbolic height are proved, body by body; planted faults are refused with the smallest size."""

from __future__ import annotations

import pytest
from staged import Staging

import offcut as oc
from offcut.core.program import Program

STAGED = Staging(("A",), (), ("S", "Y1", "Y2", "Y3"))


def dense(depth: int = 64, width: int = 64) -> oc.Tensor:
    """int8 rows times a matrix, requantised."""
    n, k = oc.dim("n", min=1, max=512), oc.reduce_axis(depth, name="k")
    A = oc.placeholder((n, depth), "int8", name="A")
    W = oc.placeholder((depth, width), "int8", name="W")
    S = oc.compute(
        (n, width),
        lambda i, j: oc.sum(oc.cast(A[i, k], "int32") * oc.cast(W[k, j], "int32"), axis=k),
        name="S",
    )
    Y1 = oc.compute((n, width), lambda i, j: S[i, j] // 64, name="Y1")
    Y2 = oc.compute((n, width), lambda i, j: oc.minimum(Y1[i, j], 127), name="Y2")
    Y3 = oc.compute((n, width), lambda i, j: oc.maximum(Y2[i, j], -128), name="Y3")
    return oc.compute((n, width), lambda i, j: oc.cast(Y3[i, j], "int8"), name="C")


def cut(tail: str) -> Program:
    return oc.partition(dense(), tile={"C.i": 16}, tail=tail).loops


def test_a_staged_balance_is_proved_beside_its_cut_and_beside_its_source() -> None:
    program = oc.partition(dense(), tile={"C.i": 16}, tail="balance")
    staged = STAGED.of(program.loops)
    oc.prove_equal(program.loops, staged)
    oc.prove_equal(program.source, staged)


def test_a_window_one_row_short_is_refused_at_the_smallest_size() -> None:
    text = str(STAGED.of(cut("balance")))
    short = text.replace("i_tile +: q, k in 0", "i_tile +: q - 1, k in 0")
    assert short != text
    with pytest.raises(oc.OffcutError, match="with n = 1, "):
        oc.prove_equal(cut("balance"), oc.parse(short))


def test_a_window_that_hides_what_is_left_in_an_array_is_refused() -> None:
    program = """program p
size n in 0:40
input A: float32[n]
local S: float32[n]
output B: float32[n]
for i in 0:n
  S[i] = A[i]
  %sB[i] = S[i]
"""
    source, broken = program % "", program % "alloc S[i +: 1]\n    "
    with pytest.raises(oc.OffcutError, match="with n = 1, "):
        oc.prove_equal(oc.parse(source), oc.parse(broken))
