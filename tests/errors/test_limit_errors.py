"""What is said where isl does not answer in bounded work, word for word, and what goes on without it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import islpy as isl
import numpy as np
import pytest
from conftest import EQUAL, proved
from partition_cases import pattern

import offcut as oc

TEXT = """\
program smooth
size n in 0:{most}
input X: float32[n, n]
output Y: float32[n, n]
for i in 0:n
  for j in 0:n
    Y[i, j] = where(1 <= i and i < n - 1, X[i, j] * 2.0, X[j, i])
"""
IN_ORDER = """\
program gather
size n in 0:{most}
inout A: int32[n]
input S: int32[n]
for i in 0:n{mark}
  A[i] = A[i] + S[i]
"""

APART = """\
program apart
size n in 0:{most}
inout A: int32[2*n + 2]
input S: int32[n]
for i in 0:n{mark}
  A[2*i] = A[2*i + 1] + S[i]
"""


def program(text: str, most: int, mark: str = "") -> oc.Program:
    """A program that no test has asked before: `most` is its alone, so that nothing is known of it."""
    return oc.parse(text.format(most=most, mark=mark))


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], None]:
    def set_to(request: int, single_pass: int) -> None:
        monkeypatch.setattr("offcut.polyhedral.isl_budget.REQUEST", request)
        monkeypatch.setattr("offcut.polyhedral.isl_budget.PASS", single_pass)

    return set_to


def refused(call: Callable[[], Any]) -> str:
    with pytest.raises(oc.PartitionError) as error:
        call()
    return str(error.value)


def test_a_cut_that_takes_too_long_to_make_is_refused(little: Callable[[int, int], None]) -> None:
    source = program(TEXT, 101)
    little(500, 100)
    assert (
        refused(lambda: oc.partition(source, tile={"i": 4}))
        == """\
partition: cannot cut smooth so
  because  that question takes isl more than 500 operations
  help     fewer axes in tile=
  help     one tile by axis
  help     tail="cut\""""
    )


def test_a_proof_that_takes_too_long_is_refused(little: Callable[[int, int], None]) -> None:
    source, emitted = program(TEXT, 102), oc.partition(program(TEXT, 102), tile={"i": 5}).loops
    other = oc.parse(str(emitted).replace("smooth", "other"))
    little(500, 100)
    assert (
        refused(lambda: oc.prove_equal(source, other))
        == """\
prove: cannot tell whether the emitted program computes what the source does
  at       other
  because  that question takes isl more than 500 operations; runs at 12 small sizes, the last with n = 33, show no difference: it is not known to be wrong"""
    )


def test_what_is_wrong_has_a_witness_though_isl_gives_up(
    little: Callable[[int, int], None],
) -> None:
    source = program(TEXT, 112)
    other = oc.parse(str(source).replace("X[j, i]", "X[i, j]"))
    little(20, 10)
    assert (
        refused(lambda: oc.prove_equal(source, other))
        == """\
prove: the emitted program does not compute what the source does
  at       smooth
  because  with n = 2, Y[0, 1] has another value"""
    )


def test_of_a_program_without_sizes_one_run_is_told(little: Callable[[int, int], None]) -> None:
    source = oc.parse("""\
program fixed
input X: float32[13, 13]
output Y: float32[13, 13]
for i in 0:13
  for j in 0:13
    Y[i, j] = where(1 <= i and i < 12, X[i, j] * 2.0, X[j, i])
""")
    emitted = oc.partition(source, tile={"i": 5}).loops
    little(200, 100)
    assert (
        refused(lambda: oc.prove_equal(source, emitted))
        == """\
prove: cannot tell whether the emitted program computes what the source does
  at       fixed
  because  that question takes isl more than 200 operations; a run shows no difference: it is not known to be wrong"""
    )


def test_what_is_too_much_to_run_is_not_known_to_be_wrong(
    little: Callable[[int, int], None],
) -> None:
    large = TEXT.replace("n in 0:{most}", "n in 2000:{most}")
    source, emitted = program(large, 2113), oc.partition(program(large, 2113), tile={"i": 5}).loops
    little(500, 100)
    assert (
        refused(lambda: oc.prove_equal(source, oc.parse(str(emitted).replace("smooth", "other"))))
        == """\
prove: cannot tell whether the emitted program computes what the source does
  at       other
  because  that question takes isl more than 500 operations; it is too much to run: it is not known to be wrong"""
    )


def test_marks_that_take_too_long_to_check_are_refused(
    little: Callable[[int, int], None],
) -> None:
    marked = program(APART.replace("2*i + 1]", "n + i + 1]"), 103, "  @thread")
    little(200, 100)
    assert (
        refused(lambda: oc.prove_equal(marked, marked))
        == """\
partition: cannot run loops as they are marked
  because  that question takes isl more than 200 operations
  help     the loops without marks"""
    )


def test_a_schedule_that_takes_too_long_to_prove_is_refused(
    little: Callable[[int, int], None],
) -> None:
    schedule = oc.create_schedule(program(TEXT, 104))
    schedule["Y"].split("i", 4)
    little(500, 100)
    assert (
        refused(lambda: str(schedule))
        == """\
lower: cannot lower the schedule
  because  that question takes isl more than 500 operations
  help     fewer splits, or tail="cut\""""
    )


def test_conditions_that_isl_does_not_decide_stay(little: Callable[[int, int], None]) -> None:
    source = program(TEXT, 105)
    little(1_000_000, 400)
    cut = oc.partition(source)
    assert cut.loops == source
    assert cut.notes == ("loop i: keeps its conditions: isl takes too long to decide them",)


def test_a_program_compiles_whatever_isl_gives_up(little: Callable[[int, int], None]) -> None:
    little(500, 50)
    made = oc.compile(program(IN_ORDER, 106), threads=2)
    assert "loop i sequential: its dependences are not known" in made.plan(n=7).notes
    values = np.arange(7, dtype="int32")
    assert (made(values, values) == 2 * values).all()


def test_a_fault_of_isl_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: isl.UnionAccessInfo) -> None:
        raise isl.Error("affine expression involves some of the domain dimensions")

    source = program(IN_ORDER, 108)
    staged = "local T: int32[n]\nfor i in 0:n\n  T[n - 1 - i] = S[n - 1 - i]\n"
    staged += "for i in 0:n\n  A[i] = A[i] + T[i]\n"
    emitted = oc.parse(str(source).partition("for")[0] + staged)
    monkeypatch.setattr(isl.UnionAccessInfo, "compute_flow", fails)
    assert (
        refused(lambda: oc.prove_equal(source, emitted))
        == """\
prove: cannot tell whether the emitted program computes what the source does
  at       gather
  because  isl fails to answer that question; runs at 12 small sizes, the last with n = 33, show no difference: it is not known to be wrong"""
    )


def test_nothing_that_was_given_up_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    source = program(TEXT, 107)
    with monkeypatch.context() as patch:
        patch.setattr("offcut.polyhedral.isl_budget.REQUEST", 500)
        refused(lambda: oc.partition(source, tile={"i": 4}))
    assert proved(oc.partition(source, tile={"i": 4})) >= EQUAL


def test_a_cut_is_taken_or_refused_whatever_was_asked_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    band = pattern("j <= i + 6 and j >= i - 6")
    cuts = [{"i": "mask", "j": "cut"}, {"i": "cut", "j": "guard"}]
    monkeypatch.setattr("offcut.polyhedral.isl_budget.REQUEST", 200_000)  # the first takes less

    def is_taken(tail: dict[str, str]) -> bool:
        try:
            oc.partition(band, tile={"i": 4, "j": 4}, tail=tail, copies=8)
        except oc.PartitionError:
            return False
        return True

    assert [is_taken(tail) for tail in cuts] == [True, False]
    assert [is_taken(tail) for tail in reversed(cuts)] == [False, True]


def test_what_a_proof_found_is_no_answer_for_a_cut(little: Callable[[int, int], None]) -> None:
    source = program(TEXT, 114)
    emitted = oc.partition(source, tile={"i": 4}).loops
    oc.prove_equal(source, emitted)
    little(500, 100)
    assert refused(lambda: oc.partition(source, tile={"i": 4})).startswith("partition: cannot cut")
    assert refused(lambda: oc.prove_equal(source, emitted)).startswith("prove: cannot tell")


def test_a_cut_that_is_not_told_says_what_leaves_less_to_compare() -> None:
    band = pattern("j <= i + 6 and j >= i - 6 and (i - j) % 4 != 1")
    tile, tail = {"i": 8, "j": 8}, {"i": "cut", "j": "mask"}
    assert (
        refused(lambda: oc.partition(band, tile=tile, tail=tail, copies=8))
        == """\
partition: cannot cut i, j so
  at       pattern
  because  cannot tell whether the emitted program computes what the source does: that question takes isl more than 2,000,000 operations; runs at 12 small sizes, the last with n = 33, show no difference: it is not known to be wrong
  help     tile={"i": …} alone keeps the order of all instances
  help     copies=1 leaves every condition where it is: less to compare
  help     tail="cut" leaves less to compare"""
    )
    made = oc.partition(band, tile=tile, tail=tail)  # that, where nothing is said of copies
    assert made.loops == oc.partition(band, tile=tile, tail=tail, copies=1).loops
    assert "conditions stay where they are" in made.explain()
