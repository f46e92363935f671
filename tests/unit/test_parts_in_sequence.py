"""Programs whose parts meet in whole arrays are compared part by part; what does not meet so is compared as a whole."""

from __future__ import annotations

import numpy as np
import pytest

import offcut as oc
from offcut.errors import PartitionError
from offcut.proof.normal_forms.parts_in_sequence import changed_part, parts_in_sequence
from tests.facade import check_equal

HEAD = """program p
size n in 0:100
input A: float32[n]
local S: float32[n]
local T: float32[n]
output Y: float32[n]
"""
FIRST = """for i in 0:n
  S[i] = A[i] * 2.0
"""
SECOND = """for i in 0:n
  T[i] = S[n - 1 - i] + 1.0
"""
THIRD = """for i in 0:n
  Y[i] = T[i] * S[i]
"""
SHIFTED = """for i_tile in 0:n//8
  tile i in 8*i_tile +: 8
    S[i] = A[i] * 2.0
if n >= 8 and n % 8 != 0
  tile i in n - 8 +: 8
    S[i] = A[i] * 2.0
if n < 8
  for i in 0:n
    S[i] = A[i] * 2.0
"""
SOURCE = oc.parse(HEAD + FIRST + SECOND + THIRD)


def shifted(*others: str) -> oc.Program:
    """Return the program whose first part is in tiles, of which the last moves back, as its statements there are one."""
    return oc.parse(
        HEAD
        + "for b in 0:1\n"
        + "".join(f"  {s}\n" for s in SHIFTED.splitlines())
        + "".join(others)
    )


def test_parts_begin_where_both_programs_meet_in_the_same_arrays() -> None:
    pairs = parts_in_sequence(SOURCE, shifted(SECOND, THIRD))
    assert [[b.name for b in one.results] for one, _ in pairs] == [["S"], ["T"], ["Y"]]
    kinds = [{b.name: b.kind.value for b in one.buffers} for one, _ in pairs]
    assert kinds[1] == {"S": "input", "T": "output"}
    assert kinds[2] == {"S": "input", "T": "input", "Y": "output"}
    assert all(one.buffers == other.buffers for one, other in pairs)


@pytest.mark.parametrize(
    "other", [SECOND.replace("1.0", "2.0"), SECOND.replace("n - 1 - i", "i"), ""]
)
def test_a_part_that_computes_something_else_is_refused_with_sizes(other: str) -> None:
    body = other or SECOND.replace("0:n", "1:n")
    with pytest.raises(PartitionError, match=r"with n = [12]"):
        check_equal(SOURCE, shifted(body, THIRD))


UPDATE = """for i in 0:n
  if A[i] > 0.0
    S[i] = S[i] + A[i]
"""


def test_an_array_that_is_stored_again_is_an_input_and_a_result_of_the_second_part() -> None:
    head = "program p\nsize n in 0:100\ninput A: float32[n]\noutput S: float32[n]\n"

    def whole(first: str, second: str) -> oc.Program:
        return oc.parse(head + first + second)

    one_by_one = whole(FIRST, UPDATE)
    wrapped = "for b in 0:1\n" + "".join(f"  {line}\n" for line in SHIFTED.splitlines())
    emitted = whole(wrapped, UPDATE)
    pairs = parts_in_sequence(one_by_one, emitted)
    kinds = [{b.name: b.kind.value for b in one.buffers} for one, _ in pairs]
    assert kinds == [{"A": "input", "S": "output"}, {"A": "input", "S": "inout"}]
    assert check_equal(one_by_one, emitted)
    for wrong in (UPDATE.replace("+", "-"), UPDATE.replace("> 0.0", "> 1.0"), FIRST, ""):
        with pytest.raises(PartitionError, match=r"n = [12]"):
            check_equal(one_by_one, whole(wrapped, wrong))


def test_an_array_that_the_first_part_only_reads_and_the_second_one_stores_meets_nothing() -> None:
    head = HEAD.replace("input A", "inout A")
    source = oc.parse(head + FIRST + "for i in 0:n\n  A[i] = 1.0\n")
    assert parts_in_sequence(source, source) == []


def test_an_array_of_windows_meets_nothing() -> None:
    windowed = "for i in 0:n\n  alloc S[i +: 1]\n    S[i] = A[i]\n    Y[i] = S[i]\n"
    source = oc.parse(HEAD + windowed + "for i in 0:n\n  T[i] = Y[i]\n")
    emitted = oc.parse(HEAD + windowed + "for i in 0:n\n  T[i] = S[i]\n")
    assert parts_in_sequence(source, emitted) == []


def test_elements_that_nobody_reads_may_differ() -> None:
    """The parts differ there, and the whole does not."""
    reader = "for i in 0:n//2\n  Y[i] = S[i]\nfor i in n//2:n\n  Y[i] = 0.0\n"
    source = oc.parse(HEAD + FIRST + reader)
    emitted = oc.parse(HEAD + FIRST.replace("0:n", "0:n//2") + reader)
    assert check_equal(source, emitted)


@pytest.mark.slow
def test_attention_whose_last_tiles_overlap_is_proved_and_right_on_a_grid() -> None:
    n = oc.dim("n", min=1, max=1024)
    q, k, v = (oc.placeholder((1, n, 64), "float16", name=name) for name in "qkv")
    target = oc.target("cuda", machine="h200", device="emulated")
    kernel = oc.compile(
        oc.ops.attention(q, k, v), inputs=[q, k, v], target=target, strategy="shift"
    )
    for length in (1, 63, 64, 65, 197):
        rng = np.random.default_rng(length)
        arrays = [rng.standard_normal((1, length, 64)).astype(np.float16) for _ in range(3)]
        a, b, c = (array[0].astype(np.float64) for array in arrays)
        weights = np.exp(a @ b.T / 8 - (a @ b.T / 8).max(axis=1, keepdims=True))
        exact = weights / weights.sum(axis=1, keepdims=True) @ c
        # of float16: each weight and result is rounded once, sums are float32
        bound = 2.0**-9 * (weights / weights.sum(axis=1, keepdims=True) @ np.abs(c)) + 2.0**-10
        assert (np.abs(kernel(*arrays)[0].astype(np.float64) - exact) <= bound).all()


CHANGED = SECOND.replace("for i in 0:n\n  T[i]", "tile i in 0 +: n\n  T[i]")


def test_what_differs_of_two_programs_is_compared_without_what_both_run() -> None:
    part = changed_part(SOURCE, oc.parse(HEAD + FIRST + CHANGED + THIRD))
    assert part is not None
    kinds = [{b.name: b.kind.value for b in one.buffers} for one in part]
    assert kinds == [{"S": "input", "T": "output"}] * 2
    assert check_equal(*part)


def test_a_statement_is_left_out_where_it_may_stand_elsewhere() -> None:
    other = "for j in 0:n\n  Y[j] = A[j]\n"
    head = HEAD + "output Z: float32[n]\n"
    read = "for i in 0:n\n  Z[i] = S[i]\n"
    part = changed_part(
        oc.parse(head + FIRST + other + read),
        oc.parse(head + other + FIRST + read.replace("Z[i] = S", "Z[i] = 1.0*S")),
    )
    assert part is not None
    assert [len(one.body) for one in part] == [1, 1]


@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        ("for j in 0:n\n  T[j] = A[j]\n", "stores what is passed"),
        ("for j in 0:n\n  Y[j] = T[j]\n", "reads what is passed"),
    ],
)
def test_a_statement_stays_where_it_must_not_pass_another(statement: str, kind: str) -> None:
    head, read = HEAD + "output Z: float32[n]\n", "for i in 0:n\n  Z[i] = T[i]\n"
    source = oc.parse(head + FIRST + "for i in 0:n\n  T[i] = 0.0\n" + SECOND + statement + read)
    emitted = oc.parse(head + FIRST + "for i in 0:n\n  T[i] = 0.0\n" + statement + SECOND + read)
    part = changed_part(source, emitted)
    assert part is not None, kind
    assert len(part[0].body) == len(part[1].body) >= 2
    with pytest.raises(PartitionError, match="with n = 1"):
        check_equal(source, emitted)


def test_an_array_that_holds_something_before_is_an_argument_of_the_part() -> None:
    more = "for i in 0:n\n  S[i] += A[i]\n"
    source, emitted = (
        oc.parse(HEAD + FIRST + one + THIRD.replace("T[i] * ", ""))
        for one in (more, more.replace("for i in 0:n", "tile i in 0 +: n"))
    )
    part = changed_part(source, emitted)
    assert part is not None
    assert [b.kind.value for b in part[0].buffers if b.name == "S"] == ["inout"]
    assert check_equal(source, emitted)


def test_a_window_of_an_array_that_both_see_has_no_part() -> None:
    windowed = "for i in 0:n\n  alloc S[i +: 1]\n    S[i] = A[i]\n    Y[i] = S[i]\n"
    source = oc.parse(HEAD + FIRST + windowed)
    assert (
        changed_part(
            source, oc.parse(HEAD + FIRST + windowed.replace("Y[i] = S[i]", "Y[i] = 1.0*S[i]"))
        )
        is None
    )
