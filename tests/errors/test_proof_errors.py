"""Every refusal of a rewritten program, word for word, with its smallest witness, and what is said where isl gives up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import islpy as isl
import numpy as np
import pytest
from conftest import EQUAL, proved, refusals, rejection
from partition_cases import pattern

import offcut as oc
from offcut import parse
from offcut.errors import PartitionError
from tests.facade import check_equal

HEAD = """program mm
size n in 0:100
size m in 0:100
input A: float64[n, m]
input x: float64[m]
local L: float64[n]
output C: float64[n]
"""
PLAIN = """for i in 0:n
  C[i] = 0.0
  for k in 0:m
    C[i] += A[i, k] * x[k]
"""
CUT = """for io in 0:(n + 3)//4
  for i in 4*io:min(4*io + 4, n)
    C[i] = 0.0
    for k in 0:m
      C[i] += A[i, k] * x[k]
"""
TURNED = PLAIN.replace("[i, k] * x[k]", "[i, m - 1 - k] * x[m - 1 - k]")
WINDOW = """for i in 0:n
  alloc L[i +: 1]
    L[i] = 0.0
    for k in 0:m
      L[i] += A[i, k] * x[k]
    C[i] = L[i]
"""

GRAM = """program gram
size n in 0:4097
input x: float32[n]
inout C: float32[n, n]
for i in 0:n
  for j in 0:n
    if j <= i
      C[i, j] += x[i] * x[j]
"""

CASES = [
    (
        "an update is dropped",
        CUT,
        CUT.replace("for k in 0:m", "for k in 0:m - 1"),
        "with n = 1, m = 1, C[0] is left by C[0] = 0.0 (i = 0), not by "
        "C[0] += A[0, 0] * x[0] (i = 0, k = 0)",
    ),
    (
        "updates meet in another order",
        CUT,
        CUT.replace("A[i, k] * x[k]", "A[i, m - 1 - k] * x[m - 1 - k]"),
        "with n = 1, m = 2, C[0] += A[0, 1] * x[1] (i = 0, k = 1) runs before "
        "C[0] += A[0, 0] * x[0] (i = 0, k = 0)",
    ),
    (
        "an element is read at another place",
        CUT,
        CUT.replace("x[k]", "x[m - 1 - k]"),
        "with n = 1, m = 2, C[0] += A[0, 0] * x[0] (i = 0, k = 0) reads x[1] of the initial x[1], "
        "not of the initial x[0]",
    ),
    (
        "a tile is dropped",
        CUT,
        CUT.replace("(n + 3)//4", "n//4"),
        "with n = 1, m = 0, C[0] has no value: C[0] = 0.0 (i = 0) is not run",
    ),
    (
        "more is run than there is",
        CUT,
        CUT.replace("min(4*io + 4, n)", "4*io + 4"),
        "with n = 1, m = 0, C[1] = 0.0 (io = 0, i = 1) is not an instance of the source",
    ),
    (
        "another operator",
        CUT,
        CUT.replace("* x[k]", "+ x[k]"),
        "with n = 1, m = 1, C[0] += A[0, 0] + x[0] (io = 0, i = 0, k = 0) matches no statement of the "
        "source",
    ),
    (
        "a window too small",
        WINDOW,
        WINDOW.replace("L[i +: 1]", "L[i + 1 +: 1]"),
        "with n = 1, m = 0, L[0] = 0.0 (i = 0) touches L[0], outside L in the window [i + 1 +: 1]",
    ),
    (
        "lanes that are not independent",
        CUT,
        """tile i in 0 +: n, k in 0 +: m
  C[i] = 0.0
  C[i] += A[i, k] * x[k]
""",
        "with n = 1, m = 2, C[0] = 0.0 (i = 0, k = 0) and C[0] = 0.0 (i = 0, k = 1) are lanes of "
        "one tile and touch one element of C",
    ),
]


@pytest.mark.parametrize(("name", "right", "wrong", "because"), CASES, ids=lambda v: "")
def test_a_wrong_program_is_refused_with_the_smallest_witness(
    name: str, right: str, wrong: str, because: str
) -> None:
    plain = parse(HEAD + PLAIN)
    assert check_equal(plain, parse(HEAD + right))
    with rejection(f"""\
PartitionError: prove: the emitted program does not compute what the source does
  at       mm
  because  {because}"""):
        check_equal(plain, parse(HEAD + wrong))


def test_a_sum_in_another_order_is_accepted_where_that_is_promised() -> None:
    plain = parse(HEAD + PLAIN)
    turned = parse(HEAD + CUT.replace("A[i, k] * x[k]", "A[i, m - 1 - k] * x[m - 1 - k]"))
    assert check_equal(plain, turned, reassociate=True)
    twice = parse(HEAD + CUT.replace("0:m", "0:2*m").replace("k]", "k//2]"))
    with pytest.raises(PartitionError, match="has twice"):
        check_equal(plain, twice, reassociate=True)


def test_sizes_are_named_as_the_user_names_them() -> None:
    plain = parse(HEAD + PLAIN)
    wrong = parse(HEAD + CUT.replace("(n + 3)//4", "n//4"))
    with pytest.raises(PartitionError) as error:
        check_equal(plain, wrong, users={"n": "rows", "m": "terms"})
    assert error.value.because.startswith("with rows = 1, terms = 0, ")


FILL = """program fill
{}
output y: float32[n]
for i in 0:n
  y[i] = 1.0
"""


def test_other_buffers_are_refused() -> None:
    plain = parse(HEAD + PLAIN)
    with pytest.raises(PartitionError) as error:
        check_equal(plain, parse((HEAD + PLAIN).replace("x: float64[m]", "x: float64[n]")))
    assert error.value.because == "input x is not declared as in the source"
    with pytest.raises(PartitionError) as error:
        check_equal(parse((HEAD + PLAIN).replace("x", "y")), plain)
    assert error.value.because == "input y is not declared as in the source"


OF_OTHER_SIZES = refusals(
    r"""
given "size n in 0:100", "size n in 3:50 multiple_of 2", "it has size n in 3:50 multiple_of 2, the source size n in 0:100"
size n in 0:100

given "size n in 0:100\nsize m in 0:9", "size n in 0:100", "it has no size m, which the source has"
size m in 0:9

given "size n in 0:100", "size n in 0:100\nsize m in 0:9", "the source has no size m"
size m in 0:9, in both

given "size n in 0:100\nsize m in 0:9", "size m in 0:9\nsize n in 0:100", "it has the sizes m, n in that order, the source n, m"
sizes in the same order

given "size n in 0:100\nassume n >= 3", "size n in 0:100", "the source has `assume n >= 3`, which it has not"
assume n >= 3

given "size n in 0:100", "size n in 0:100\nassume n >= 3", "it has `assume n >= 3`, which the source has not"
assume n >= 3, in both
""",
    {},
)


@pytest.mark.parametrize("what", OF_OTHER_SIZES)
def test_what_is_promised_of_other_sizes_is_said(what: str) -> None:
    ours, theirs, because, help = OF_OTHER_SIZES[what]
    before, after = (oc.parse(FILL.format(promised)) for promised in (ours, theirs))
    with rejection(
        "PartitionError: prove: the emitted program does not compute what the source does\n"
        f"  at       fill\n  because  {because}\n  help     {help}"
    ):
        oc.prove_equal(before, after)


def test_promises_may_stand_in_another_order() -> None:
    one, other = (
        FILL.format(f"size n in 0:100\nassume {first}\nassume {second}")
        for first, second in (("n >= 3", "n % 4 == 0"), ("n % 4 == 0", "n >= 3"))
    )
    assert oc.prove_equal(oc.parse(one), oc.parse(other)).theorems


@pytest.mark.parametrize("op", ["prove_equal", "partition", "compile"])
def test_of_promises_that_no_size_meets_nothing_is_proved(op: str) -> None:
    program = oc.parse(FILL.format("size n in 0:10\nsize k in 0:9\nassume n >= 30"))
    calls = {
        "prove_equal": lambda: oc.prove_equal(program, program),
        "partition": lambda: oc.partition(program, tile={"i": 4}),
        "compile": lambda: oc.compile(program),
    }
    with rejection(
        f"PartitionError: {op}: cannot promise this of the sizes\n  at       fill\n"
        "  because  no values meet all of it: size n in 0:10, assume n >= 30\n"
        "  help     leave one of them out"
    ):
        calls[op]()


def test_a_source_out_of_bounds_is_refused() -> None:
    wrong = parse(HEAD + PLAIN.replace("x[k]", "x[k + 1]"))
    with pytest.raises(PartitionError) as error:
        check_equal(wrong, wrong)
    assert error.value.because == (
        "the source: with n = 1, m = 1, C[0] += A[0, 0] * x[1] (i = 0, k = 0) touches x[1], "
        "outside x of shape (m)"
    )


def test_what_is_equal_in_another_order_of_terms_says_so() -> None:
    source, emitted = (parse(HEAD + text) for text in (PLAIN, TURNED))
    with rejection("""\
PartitionError: prove: the emitted program does not compute what the source does
  at       mm
  because  with n = 1, m = 2, C[0] += A[0, 1] * x[1] (i = 0, k = 1) runs before C[0] += A[0, 0] * x[0] (i = 0, k = 0)
  help     reassociate=True: the terms of a sum in any order"""):
        oc.prove_equal(source, emitted)
    oc.prove_equal(source, emitted, reassociate=True)


def test_what_differs_in_any_order_of_terms_is_told_nothing_of_order() -> None:
    source, emitted = (parse(HEAD + text) for text in (PLAIN, TURNED.replace("0:m", "1:m")))
    with pytest.raises(PartitionError) as refused:
        oc.prove_equal(source, emitted)
    assert refused.value.help == ()


@pytest.mark.parametrize("op", ["prove_equal", "compile", "tune"])
def test_reassociate_is_true_or_false(op: str) -> None:
    program = parse(HEAD + PLAIN)
    given = {"prove_equal": (program, program), "compile": (program,), "tune": (program,)}[op]
    with rejection(f"""\
DescribeError: {op}: cannot take reassociate=3
  because  it is neither True nor False
  help     reassociate=True: the terms of a sum in any order"""):
        getattr(oc, op)(*given, reassociate=3)


def test_a_cut_program_that_is_given_first_is_told_the_order() -> None:
    source = parse(GRAM)
    tiles, tails = {"i": 8, "j": 8}, {"i": "ladder", "j": "cut"}
    emitted = oc.partition(source, tile=tiles, tail=tails).loops
    with pytest.raises(PartitionError) as refused:
        oc.prove_equal(emitted, source)
    assert refused.value.help == ("prove_equal(emitted, source) is proved: plain loops come first",)
    assert str(refused.value).startswith("prove: cannot tell whether")


COPY = """program copy
size n in 0:513
input A: float32[n]
local S: float32[n]
output B: float32[n]
"""
TILES = """for i in 0:tiles
    for r in 16*i:16*i + 16
      S[r] = A[r]
      B[r] = S[r]
  for r in 16*tiles:n
    S[r] = A[r]
    B[r] = S[r]
"""
STAGED_TILES = """for i in 0:tiles
    alloc S[16*i +: 16]
      for r in 16*i:16*i + 16
        S[r] = A[r]
      for r in 16*i:16*i + 16
        B[r] = S[r]
  for r in 16*tiles:n
    S[r] = A[r]
    B[r] = S[r]
"""


@pytest.mark.parametrize(("bounds", "n"), [("0:15", 240), ("0:32", 512), ("1:33", 0)])
def test_a_derived_size_that_leaves_its_range_is_refused_with_a_size(bounds: str, n: int) -> None:
    head = f"{COPY}let tiles in {bounds} = n//16\n  "
    with rejection(f"""\
PartitionError: prove: the value of tiles is not in {bounds}
  because  with n = {n}, n//16 leaves it"""):
        oc.prove_equal(parse(head + TILES), parse(head + STAGED_TILES))


SMOOTH = """\
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
    source = program(SMOOTH, 101)
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
    source, emitted = program(SMOOTH, 102), oc.partition(program(SMOOTH, 102), tile={"i": 5}).loops
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
    source = program(SMOOTH, 112)
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
    large = SMOOTH.replace("n in 0:{most}", "n in 2000:{most}")
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
    schedule = oc.create_schedule(program(SMOOTH, 104))
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
    source = program(SMOOTH, 105)
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
    source = program(SMOOTH, 107)
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
    source = program(SMOOTH, 114)
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
