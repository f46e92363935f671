"""Options of a choice compute the same: proved, refused with the option's line, or said not to be told."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import rejection

import offcut as oc
from offcut.errors import PartitionError
from offcut.proof.option_equivalence import check_options

HEAD = """program q
size n in 0:400
size m in 0:400
input A: float32[n, m]
local S: float32[n]
output B: float32[n, m]
choose
  option rows costs float64(n)
    for i in 0:n
      for j in 0:m
        B[i, j] = A[i, j] * 2.0
  option other costs float64(m)
"""
SAME = {
    "columns": """    for j in 0:m
      for i in 0:n
        B[i, j] = A[i, j] * 2.0
""",
    "tiles": """    for i in 0:n
      for j_tile in 0:(m + 7)//8
        tile j in 8*j_tile +: 8 where j < m  @tail  @mask
          B[i, j] = A[i, j] * 2.0
""",
    "a window": """    for i in 0:n
      alloc S[i +: 1]
        for j in 0:m
          S[i] = A[i, j]
          B[i, j] = S[i] * 2.0
""",
}
OTHER = {
    "a value": (
        "    for j in 0:m\n      for i in 0:n\n        B[i, j] = A[i, j] * 3.0\n",
        "B[0, 0] = A[0, 0] * 3.0 (j = 0, i = 0) matches no statement of the source",
    ),
    "one row less": (
        "    for j in 0:m\n      for i in 1:n\n        B[i, j] = A[i, j] * 2.0\n",
        "B[0, 0] has no value: B[0, 0] = A[0, 0] * 2.0 (i = 0, j = 0) is not run",
    ),
}
SUMS = """program s
size n in 0:400
size m in 0:400
input A: float32[n, m]
output C: float32[n]
choose
  option up costs float64(n)
    for i in 0:n
      C[i] = 0.0
      for j in 0:m
        C[i] += A[i, j]
  option down costs float64(m)
    for i in 0:n
      C[i] = 0.0
      for j in 0:m
        C[i] += A[i, m - 1 - j]
"""
TWO_WIDTHS = HEAD.replace(
    "    for i in 0:n\n      for j in 0:m\n",
    "    for i in 0:n\n      for j_tile in 0:(m + 3)//4\n        tile j in 4*j_tile +: 4 where j < m\n  ",
)


@pytest.mark.parametrize("text", SAME.values(), ids=list(SAME))
def test_options_that_compute_the_same_are_proved(text: str) -> None:
    program = oc.parse(HEAD + text)
    assert check_options(program, "compile") == ""
    a = np.arange(12, dtype="float32").reshape(3, 4)
    assert np.array_equal(oc.compile(program)(a), 2 * a)


@pytest.mark.parametrize(("text", "because"), OTHER.values(), ids=list(OTHER))
@pytest.mark.parametrize("target", ["cpu", "interpret"])
def test_an_option_that_computes_something_else_is_refused_by_its_line(
    text: str, because: str, target: str
) -> None:
    with rejection(f"""\
PartitionError: compile: the options of a choice compute different things
  at       option other costs float64(m)
  because  with the first option as the source, with n = 1, m = 1, {because}
  help     options that compute the same, in other loops
  help     if, where the result differs"""):
        oc.compile(oc.parse(HEAD + text), target=target)


def test_options_that_add_in_another_order_are_refused_with_the_two_terms() -> None:
    with pytest.raises(PartitionError, match=r"n = 1, m = 2, .* runs before") as refused:
        oc.compile(oc.parse(SUMS))
    assert refused.value.at == "option down costs float64(m)"


def test_each_of_two_choices_is_proved_beside_each_option_of_the_other() -> None:
    second = SUMS[SUMS.index("choose") :].replace("A[i, m - 1 - j]", "A[i, j] * 2.0")
    both = HEAD.replace("output B", "output C: float32[n]\noutput B") + SAME["columns"] + second
    with pytest.raises(PartitionError) as refused:
        check_options(oc.parse(both), "compile")
    assert refused.value.at == "option down costs float64(m)"


def test_what_is_not_told_of_options_stands_in_the_plan() -> None:
    kernel = oc.compile(oc.parse(TWO_WIDTHS + SAME["tiles"]))
    (note,) = (one for one in kernel.plan(n=2, m=9).notes if "option" in one)
    assert note.startswith("it is not told that option other computes what the first one does: ")
    many = TWO_WIDTHS + "".join(
        f"  option number{k} costs float64(m)\n{SAME['tiles']}" for k in range(20)
    )
    assert "there are 22 combinations, and 16 are compared" in check_options(
        oc.parse(many), "compile"
    )


def test_of_options_that_a_cut_made_nothing_is_asked_whatever_they_are_said_to_cost() -> None:
    n = oc.dim("n", max=4096)
    k = oc.reduce_axis(768, name="k")
    A, W = oc.placeholder((n, 768), name="A"), oc.placeholder((768, 3072), name="W")
    C = oc.compute((n, 3072), lambda i, j: oc.sum(A[i, k] * W[k, j], axis=k), name="C")
    loops = oc.partition(C, tile={"i": 14, "j": 32}, tail={"i": "mix", "j": "mask"}).loops
    priced = oc.parse(str(loops).replace(" costs ", " costs 1.0 + "))
    for program in (loops, priced, oc.compile(C, inputs=[A, W]).loops):
        assert "choose" in str(program)
        assert not any("option" in note for note in oc.compile(program).plan(n=5).notes)


ANEW = "program p\nsize n in 0:40\ninput A: float32[n]\nlocal T: float32[n]\nlocal U: float32[n]\n"
ANEW += "output B: float32[n]\nfor i in 0:n\n"


@pytest.mark.parametrize(
    ("plain", "one", "other"),
    [
        ("B[i] = A[0]", ("T[i] = A[i]", "B[i] = T[0]"), ("U[i] = A[i]", "B[i] = U[0]")),
        ("B[i] = A[i]", ("B[i] = A[i]",), ("B[n - 1 - i] = A[n - 1 - i]",)),
    ],
    ids=["what lies in scratch", "from either end"],
)
def test_of_options_that_each_iteration_may_take_anew_nothing_is_told(
    plain: str, one: tuple[str, ...], other: tuple[str, ...]
) -> None:
    options = (("a", "float64(i)", one), ("b", "2.0", other))
    lines = ["  choose"]
    for label, cost, stores in options:
        lines += [f"    option {label} costs {cost}", *(f"      {store}" for store in stores)]
    program = oc.parse(ANEW + "\n".join(lines) + "\n")
    note = "it is not told that options compute the same: each iteration may take another one, by float64(i)"
    assert note in oc.compile(program).plan(n=5).notes
    with rejection(
        "PartitionError: prove: cannot tell whether the emitted program computes what the source does\n  at       p\n"
        "  because  each iteration may take another option, by float64(i), and a proof is of one throughout"
    ):
        oc.prove_equal(oc.parse(f"{ANEW}  {plain}\n"), program)
