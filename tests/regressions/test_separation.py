"""Programs whose conditions were separated, compared or lowered wrongly, and what they are now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import offcut as oc
from offcut.core.program import Choose, Program, walk
from offcut.partition import separate
from offcut.proof import equivalence
from offcut.proof.by_instances.pairing import UNDECIDED
from offcut.proof.by_structure.places import NotStructural
from offcut.proof.by_structure.structure import check_structure
from offcut.proof.equivalence import check_equal
from tests.facade import forget_proofs


def program(file: str) -> Program:
    """The program in that file beside this one."""
    return oc.parse(Path(__file__).with_name(f"{file}.offcut").read_text())


def same_values(cut: Program, source: Program, inputs: dict[str, Any], **sizes: int) -> bool:
    """Whether the interpreter gets one result from both."""
    return np.array_equal(cut.run(inputs, **sizes), source.run(inputs, **sizes))


@pytest.mark.parametrize("file", ["separated_wrongly_1", "separated_wrongly_2"])
def test_loops_that_start_below_zero_are_proved_side_by_side(file: str) -> None:
    source = program(file)
    cut = oc.partition(source)
    for n, m in ((0, 0), (1, 4), (6, 0), (9, 2)):
        given = {"G": np.arange(n, dtype=np.int32)}
        assert same_values(cut.loops, source, given, n=n, m=m)


def test_a_select_by_an_index_and_by_data_is_cut() -> None:
    source = program("clamped_and_data")
    cut = oc.partition(source, tile={"i": 4})
    for n in (1, 2, 3, 8, 13):
        given = {"A": np.arange(n, dtype=np.int32) % 3 - 1}
        assert same_values(cut.loops, source, given)


SELECT = """\
program f
size n in 1:4097
input A: int32[n]
output B: int32[n]
for i in 0:n
  B[i] = where({condition}, A[max(0, i - 1)], A[min(n - 1, i + 1)] * 2)
"""
HALVES = """\
program f
size n in 1:4097
input A: int32[n]
output B: int32[n]
for i in 0:n//2
  B[2*i + 1] = {odd}
for i in 0:(n + 1)//2
  B[2*i] = {even}
"""


@pytest.mark.parametrize(
    ("condition", "odd", "even"),
    [
        (
            "i % 2 == 0 and A[i] > 0",
            "A[min(n - 1, 2*i + 2)] * 2",
            "where(A[2*i] > 0, A[max(0, 2*i - 1)], A[min(n - 1, 2*i + 1)] * 2)",
        ),
        (
            "i % 2 == 0 or A[i] > 0",
            "where(A[2*i + 1] > 0, A[2*i], A[min(n - 1, 2*i + 2)] * 2)",
            "A[max(0, 2*i - 1)]",
        ),
    ],
)
def test_conditions_that_a_loop_decides_are_left_out_of_those_that_data_decides(
    condition: str, odd: str, even: str
) -> None:
    source = oc.parse(SELECT.format(condition=condition))
    assert check_equal(source, oc.parse(HALVES.format(odd=odd, even=even)))
    with pytest.raises(oc.PartitionError, match="matches no statement of the source"):
        check_equal(source, oc.parse(HALVES.format(odd=even, even=odd)))


def test_an_instance_that_is_not_found_is_not_said_to_be_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = program("separated_wrongly_1")
    emitted = oc.partition(source).loops
    monkeypatch.setattr(equivalence, "is_same_shape", lambda *_: False)
    forget_proofs()
    with pytest.raises(oc.PartitionError) as refused:
        check_equal(source, emitted)
    assert refused.value.refused == UNDECIDED
    assert refused.value.because == (
        "the proof does not see through G[k4] = 1: with n = 8, m = 0, runs show no difference"
    )


def test_options_whose_costs_depend_on_a_loop_are_compared_in_it() -> None:
    source = program("contraction_601")
    cut = oc.partition(source, tile={"j": 2}, tail="mix").loops
    assert any(isinstance(stmt, Choose) for stmt in walk(cut.body))
    random = np.random.default_rng(0)
    for m, n, k in ((0, 1, 2), (5, 4, 3), (9, 7, 5)):
        given = {
            "T": random.integers(-4, 5, (m, k)).astype("float64"),
            "C": random.integers(-4, 5, (k, n)).astype("float64"),
            "R": random.integers(-4, 5, n).astype("float64"),
        }
        out = np.zeros((m, n))
        oc.compile(cut)(*given.values(), out=out)
        rows = slice(0, max(0, m - 2))
        wanted = source.run(given)
        for i in range(m)[rows]:
            assert np.array_equal(out[i, min(i, n) :], wanted[i, min(i, n) :])


def test_values_inside_of_tiles_are_read_with_the_axes_of_the_tiles() -> None:
    source = program("contraction_410")
    tails = {"j2": "mix", "i": "version"}
    kernel = oc.compile(oc.partition(source, tile={"j2": (1, 1), "i": 14}, tail=tails).loops)
    random = np.random.default_rng(0)
    for m, n in ((0, 0), (3, 5), (17, 9)):
        t = random.integers(-4, 5, (m, 1)).astype("float32")
        c = random.integers(-4, 5, (1, n)).astype("float32")
        found, wanted = kernel(t, c, K=0), source.run({"T": t, "C": c}, K=0)
        for i in range(m):
            assert np.array_equal(found[i, min(i, n) :], wanted[i, min(i, n) :])


@pytest.mark.parametrize("file", ["index_i_minus_i", "index_j_minus_j"])
def test_an_index_that_mentions_no_loop_once_it_is_folded_is_of_no_loop(file: str) -> None:
    source = program(file)
    assert oc.partition(source).explain()
    kernel = oc.compile(source)
    for n, m in ((1, 1), (2, 5), (7, 7)):
        shape = (n,) if file == "index_i_minus_i" else (n, m)
        given = np.arange(n * m, dtype=np.int32)[: np.prod(shape)].reshape(shape)
        wanted = source.run({source.buffers[0].name: given}, n=n, m=m)
        assert np.array_equal(kernel(given.copy(), n=n, m=m), wanted)


STEPS = """\
program f
size n in 1:40
size m in 1:40
input X: int32[400]
inout G: int32[400]
for i in 0:m
  for j in 0:n
    G[i] = X[{index}] + int32(i)
"""


def test_a_loop_in_steps_that_is_cut_again_is_proved() -> None:
    head = "program f\nsize n in 1:40\ninput X: int32[n]\ninout G: int32[n]\n"
    source = oc.parse(f"{head}for i in 0:n\n  G[0] = X[i//2]\n")
    emitted = f"""\
{head}for i_2 in 0:min(3, n//2)
  G[0] = X[i_2]
  G[0] = X[i_2]
for i_2 in 3:n//2
  G[0] = X[i_2]
  G[0] = X[i_2]
for i in 2*(n//2):n
  G[0] = X[i//2]
"""
    check_structure(source, oc.parse(emitted))
    with pytest.raises(NotStructural):
        check_structure(source, oc.parse(emitted.replace("in 3:n//2", "in 4:n//2")))


def test_what_steps_do_not_decide_is_not_cut_into_steps_again() -> None:
    source = oc.parse(
        STEPS.format(index="0").replace("G[i] =", "if max(j, i - 30)//2 > 0\n      G[i] =")
    )
    assert len(str(oc.partition(source).loops).splitlines()) < 40


ENDLESS = """\
program p
size n in 0:60
size m in 0:60
input I: uint8[n]
input T: int32[m + 4, m]
output O: int32[n]
for i in 0:n
  if m > 0
    let q in 1:10 = m//((m + 8)//9)
      for t in 0:(m + 8)//9 + q * ((m + 8)//9) - m
        for j in (q + 1) * (m - q * ((m + 8)//9)) + q * t:(q + 1) * (m - q * ((m + 8)//9)) + q * t + q
          if index(I[i]) < m + 4 and 0 <= j and j < m
            O[i] max= T[index(I[i]), j]
"""


def test_a_loop_is_not_cut_without_end_where_its_parts_run_nothing() -> None:
    source = oc.parse(ENDLESS)
    cut = separate(source, 16)
    assert any("cut at too many places" in note.text for note in cut.notes)
    for m in (0, 1, 9, 13):
        table = np.arange((m + 4) * m, dtype=np.int32).reshape(m + 4, m)
        given = {"I": np.arange(9, dtype=np.uint8) % 5, "T": table}
        assert same_values(cut.program, source, given)
