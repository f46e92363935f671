"""A fault in what any pass gives is refused, with a witness; or it changes nothing that can be seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import product
from typing import Any

import numpy as np
import pytest
from corruptions import KINDS, OF_WINDOWS, corrupted

import offcut as oc
from offcut import parse
from offcut.ir import Kind, Program
from tests.facade import (
    CUT,
    Options,
    Parallel,
    Planned,
    alone,
    as_program,
    check_shared,
    dependences,
    described_host,
    forget_plans,
    hooked,
    instead,
    literal,
    numpy_dtype,
    parallel,
    passes_of_planning,
    plan_of,
    real,
    side_by_side,
    with_threads,
)

HOST = described_host()
CHUNK = HOST.machine.threads.chunk

PRODUCT = """program product
size n in 0:200
input A: float32[n, 20]
input B: float32[20, 40]
output C: float32[n, 40]
for i in 0:n
  for j in 0:40
    C[i, j] = 0.0
    for k in 0:20
      C[i, j] += A[i, k] * B[k, j]
"""
STENCIL = """program stencil
size n in 0:200
input X: float32[n]
output Y: float32[n]
for i in 0:n
  Y[i] = X[i]
  if i >= 1
    Y[i] += X[i - 1]
"""
GATHER = """program gather
size n in 1:200
input P: int32[n]
input X: float32[n]
output Y: float32[n]
output S: float32[1]
S[0] = 0.0
for i in 0:n
  Y[i] = X[index(P[i])]
for i in 0:n
  S[0] += Y[i]
"""
RECURRENCE = """program recurrence
size n in 0:200
input P: float32[2, n, 8]
input U: float32[8, 8]
output H: float32[n, 8]
local G: float32[n, 8]
private S: float32[n, 8]
for i in 0:n
  for j in 0:8
    H[i, j] = 0.0
for t in 0:2
  for i in 0:n
    for j in 0:8
      S[i, j] = 0.0
      for k in 0:8
        S[i, j] += H[i, k] * U[k, j]
      G[i, j] = P[t, i, j] + S[i, j]
  for i in 0:n
    for j in 0:8
      H[i, j] = G[i, j] * 0.5
"""
ROWS = """program rows
size n in 0:200
input X: float32[n, 20]
local M: float32[n]
local S: float32[n, 20]
output Y: float32[n, 20]
for i in 0:n
  M[i] = -inf
  for j in 0:20
    M[i] max= X[i, j]
for i in 0:n
  for j in 0:20
    S[i, j] = X[i, j] - M[i]
for i in 0:n
  for j in 0:20
    Y[i, j] = S[i, 19 - j] + S[i, j]
"""
PROGRAMS = {"product": PRODUCT, "stencil": STENCIL, "gather": GATHER, "recurrence": RECURRENCE}
SIZES = [1, 13, 14, 15, 47]  # a row, around a tile of 14 rows, and several with a rest


@dataclass(frozen=True)
class Pass:
    """A pass of the planner.

    runs_in   a program that it changes
    of, put   the loop program in its result, and the result with another one
    """

    runs_in: str
    of: Callable[[Any], Program] = lambda made: made.program
    put: Callable[[Any, Program], Any] = lambda made, program: replace(made, program=program)


def itself(made: Any) -> Any:
    return made


def the_program(_: Any, program: Program) -> Program:
    return program


def loops(made: Any) -> Program:
    return made.partition.loops


def with_loops(made: Any, program: Program) -> Any:
    return replace(made, partition=replace(made.partition, loops=program))


def first(made: Any) -> Program:
    return made[0]


def with_first(made: Any, program: Program) -> Any:
    return (program, *made[1:])


# By the hook at which it is.
PASSES = {
    "cut": Pass("product", loops, with_loops),
    "lanes of rows": Pass("gather", itself, the_program),
    "keep inside": Pass("gather", itself, the_program),
    "separate": Pass("stencil", first, with_first),
    "cut nests": Pass("recurrence"),
    "cover": Pass("stencil"),
    "vectorize": Pass("stencil"),
    "threads": Pass("stencil"),
}


def planned(text: str) -> Program:
    program = as_program(parse(text))
    forget_plans()
    strategy = CUT if text is PRODUCT else "auto"  # one way, where several compete else
    asked = Options(strategy)
    return plan_of(program, replace(HOST, threads=2), asked).program


def sample(mutants: Iterator[Program]) -> list[Program]:
    """A few of them: the first, one between, and the last."""
    found = list(mutants)
    return [*found[:1], *found[len(found) // 2 : -1][:1], *found[1:][-1:]]


@pytest.fixture(autouse=True)
def without_cache(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("OFFCUT_CACHE", "off")
    yield
    forget_plans()


SLOW = {
    ("cut nests", "repeated")
}  # it changes nothing: all that may take its place is planned and proved


@pytest.mark.every(8)
@pytest.mark.parametrize(
    ("step", "kind"),
    [
        pytest.param(*pair, marks=[pytest.mark.slow] * (pair in SLOW))
        for pair in product(PASSES, KINDS)
    ],
)
def test_a_fault_in_a_pass_is_refused(step: str, kind: str) -> None:
    assert_faults_refused(step, PROGRAMS[PASSES[step].runs_in], kind)


@pytest.mark.parametrize("kind", OF_WINDOWS)
@pytest.mark.parametrize("step", [pytest.param("cut", marks=pytest.mark.slow), "threads"])
def test_a_fault_in_the_windows_of_a_pass_is_refused(step: str, kind: str) -> None:
    assert_faults_refused(step, ROWS, kind)


@cache
def made_by(step: str, text: str) -> Any:
    """What a pass makes of a program, where nothing is at fault."""
    right = hooked(step)
    given: list[Any] = []

    def noted(*args: Any, **options: Any) -> Any:
        made = right(*args, **options)
        given.append(made)
        return made

    with instead(step, noted):
        planned(text)
    return given[-1]


def assert_faults_refused(step: str, text: str, kind: str) -> None:
    """A few faults of a kind, in what a pass makes of a program, are refused or change no value."""
    one, right = PASSES[step], made_by(step, text)
    for broken in sample(corrupted(one.of(right), kind)):
        made = one.put(right, broken)
        with instead(step, lambda *_, made=made, **__: made):
            left, why = planned_or_refused(text)
        if left is None:
            assert why
        else:
            assert_marks_hold(left)
            assert_same_values(parse(text), left)


def planned_or_refused(text: str) -> tuple[Program | None, str]:
    try:
        return planned(text), ""
    except oc.PartitionError as refused:
        return None, refused.because


def test_every_pass_is_in_the_table() -> None:
    # Names are bound before, raising is the first step that is proved, proving is what is tested.
    assert {*passes_of_planning()} - {"bind", "raise", "prove"} == set(PASSES)


TWO = """program two
size n in 0:4097
size m in 0:4097
input X: float32[n, m]
local S: float32[m]
output Y: float32[n, m]
for j in 0:m
  S[j] = 0.0
  for i in 0:n
    S[j] += X[i, j]
for i in 0:n
  for j in 0:m
    Y[i, j] = X[i, j] * S[m - 1 - j]
"""


def test_a_meeting_of_threads_that_is_missing_is_refused() -> None:
    made = parallel(planned(TWO), CHUNK, 2)
    check_shared(made, CHUNK, 2)
    lines = str(made.program).split("\n")
    barriers = [at for at, line in enumerate(lines) if line.strip() == "barrier thread"]
    assert barriers
    for at in barriers:
        without = parse("\n".join(lines[:at] + lines[at + 1 :]))
        with pytest.raises(oc.PartitionError, match="they must meet in between"):
            check_shared(replace(made, program=without), CHUNK, 2)
        twice = parse("\n".join(lines[: at + 1] + lines[at:]))
        with pytest.raises(oc.PartitionError, match="without it all is ordered, too"):
            check_shared(replace(made, program=twice), CHUNK, 2)


OWN = """program own
size n in 0:4097
input X: float32[n, 64]
local T: float32[n, 64]
output Y: float32[n, 64]
for i in 0:n
  alloc T[i +: 1, 0 +: 64]
    for j in 0:64
      T[i, j] = X[i, j] + 1.0
    for j in 0:64
      Y[i, j] = T[i, 63 - j]
"""


def test_an_array_of_each_thread_that_all_share_is_refused() -> None:
    made = parallel(parse(OWN), CHUNK, 2)
    assert made.own == {"T"}
    check_shared(made, CHUNK, 2)
    with pytest.raises(oc.PartitionError, match="each thread needs one of its own"):
        check_shared(replace(made, own=frozenset()), CHUNK, 2)
    with pytest.raises(oc.PartitionError, match="each thread has one of its own"):
        check_shared(replace(made, own=made.own | {"Y"}), CHUNK, 2)


def assert_marks_hold(program: Program) -> None:
    """No loop that threads share carries a dependence between elements that they share."""
    shared = {path for path, loop in side_by_side(program).items() if loop.unit == "thread"}
    carried = {one.path for one in dependences(program) if one.certain}
    assert not shared & carried, str(program)


def assert_same_values(source: Program, made: Program) -> None:
    """Both give the same, to the bit: the elements are small integers, so sums are exact in any order."""
    for n in SIZES:
        arrays, wanted = wanted_of(source, n)
        pairs = zip(wanted, several(made.run(arrays, n=n)), strict=True)
        assert all(np.array_equal(a, b) for a, b in pairs), f"n = {n}: {made}"


@lru_cache(maxsize=64)
def wanted_of(source: Program, n: int) -> tuple[dict[str, Any], tuple[Any, ...]]:
    """What a program is given, and what it gives of that."""
    random = np.random.default_rng(n)
    arrays = {}
    for buffer in (b for b in source.buffers if b.kind is Kind.INPUT):
        shape = [n if literal(extent) is None else literal(extent) for extent in buffer.shape]
        most = n if buffer.dtype == "int32" else 4
        values = random.integers(0, most, shape)
        arrays[buffer.name] = values.astype(numpy_dtype(buffer.dtype))
    return arrays, several(source.run(arrays, n=n))


def several(results: Any) -> tuple[Any, ...]:
    return results if isinstance(results, tuple) else (results,)


@pytest.mark.every(3)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_divided_of_a_plan_for_one_thread_is_proved(kind: str) -> None:
    whole = as_program(parse(STENCIL))
    made = Planned(
        whole,
        schedule=oc.Schedule(whole.name, ()),
        unnamed=oc.Schedule(whole.name, ()),
        seconds=real(0.0),
        shares=alone(whole),
    )
    for broken in sample(corrupted(whole, kind)):
        wrong = Parallel(broken, frozenset(), ("i",))
        with instead("threads", lambda *_, wrong=wrong: wrong):
            found = with_threads(made, replace(HOST, threads=2))
        if found.shares is wrong:  # the fault changes nothing
            assert_same_values(whole, broken)
        else:
            assert (found.program, found.shares.loops) == (whole, ())
            assert found.shares.open


def test_tiles_of_balance_that_threads_share_are_shown_to_be_apart_and_others_are_not() -> None:
    n, k = oc.dim("n", max=40), oc.reduce_axis(6, name="k")
    A, W = oc.placeholder((n, 6), name="A"), oc.placeholder((6, 20), name="W")
    C = oc.compute((n, 20), lambda i, j: oc.sum(A[i, k] * W[k, j], axis=k), name="C")
    kernel = oc.compile(C, inputs=[A, W], strategy={"i": "balance"}, threads=2)
    assert "@thread" in str(kernel.loops)
    proof = oc.prove_equal(oc.partition(C).source, kernel.loops, reassociate=True)
    shared = [one for one in proof.theorems if one.name == "parallel"]
    assert [one.of for one in shared] == ["loop i_tile", "loop i_tile"]
    one_apart = str(kernel.loops).replace("(q + 1) * i_tile +:", "q * i_tile +:")
    assert one_apart != str(kernel.loops)
    with pytest.raises(oc.PartitionError, match="cannot run loop i_tile as @thread"):
        oc.prove_equal(oc.parse(one_apart), oc.parse(one_apart))


@pytest.mark.parametrize("index", ["index(y[i])", "i*i"])
def test_an_access_that_sets_do_not_decide_is_not_said_to_be_inside(index: str) -> None:
    text = "size n in 1:33\ninput x: float32[n]\ninput y: int32[n]\noutput C: float32[n]\n"
    text += f"for i in 0:n\n  C[i] = x[{index}]"
    program = parse(text)
    for certificate in (oc.prove_equal(program, program), oc.partition(program).prove()):
        said = {one.statement for one in certificate.theorems if one.name == "in bounds"}
        assert said == {
            "every access lies in its buffer and its window, but for those that sets do not decide"
        }
