"""Every refusal of a rewritten program, word for word, with its smallest witness."""

from __future__ import annotations

import pytest
from conftest import refusals, rejection

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
        "an assignment for an update",
        CUT,
        CUT.replace("+=", "="),
        "with n = 1, m = 2, C[0] = A[0, 0] * x[0] (io = 0, i = 0, k = 0) matches no statement of the "
        "source",
    ),
    (
        "a window too small",
        WINDOW,
        WINDOW.replace("L[i +: 1]", "L[i + 1 +: 1]"),
        "with n = 1, m = 0, L[0] = 0.0 (i = 0) touches L[0], outside L in the window [i + 1 +: 1]",
    ),
    (
        "what holds nothing is read",
        WINDOW,
        WINDOW.replace("    L[i] = 0.0\n", ""),
        "with n = 1, m = 0, C[0] has no value: C[0] = 0.0 (i = 0) is not run",
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
