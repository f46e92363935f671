"""What statements without a microkernel are predicted to take: conversions, what is computed once, chains, waits."""

from __future__ import annotations

from collections.abc import Mapping
from math import log

import numpy as np
import pytest

import offcut as oc
from offcut import Cost, Program, Schedule
from offcut.costmodel import Inside, Machine, StatementPrices
from offcut.costmodel.nests import standing
from offcut.ir import Expr, For, Store
from offcut.ir import walk as statements
from offcut.tuning.problem import make_problem
from offcut.tuning.schedule_prices import ClosedForm, loop_prices, planned_costs
from tests.agree import nearly
from tests.facade import Problem, load_machine, processor, requested
from tests.spaces import space_of

LANES = Inside("j")


def machine() -> Machine:
    return processor(load_machine("cascade-lake"))


def prices() -> StatementPrices:
    return StatementPrices(machine(), 16)


def stored(value: str, kind: str = "bfloat16", before: str = "=") -> Store:
    """``B[i, j] = value`` for bfloat16 A, M and float32 F."""
    text = f"""\
program p
size n in 1:65
input A: bfloat16[n, n]
input M: bfloat16[n]
input F: float32[n, n]
output B: {kind}[n, n]
for i in 0:n
  for j in 0:n
    B[i, j] {before} {value}
"""
    (found,) = (s for s in statements(oc.parse(text).body) if isinstance(s, Store))
    return found


def value_of(text: str, kind: str = "bfloat16") -> float:
    value: Expr = stored(text, kind).value
    return prices().value(value, LANES)


@pytest.mark.parametrize(
    ("text", "kind", "operations", "widened", "rounded"),
    [
        ("A[i, j]", "bfloat16", 0, 0, 0),  # a copy is no conversion
        ("A[i, j] * A[i, j]", "bfloat16", 1, 1, 1),  # what is widened stays so
        ("A[i, j] * A[i, j] + A[i, j]", "bfloat16", 2, 2, 2),
        ("float32(A[i, j]) * F[i, j]", "float32", 1, 1, 0),
        ("bfloat16(float32(A[i, j]) * F[i, j])", "bfloat16", 1, 1, 1),
        ("bfloat16(F[i, j])", "bfloat16", 0, 0, 1),
        ("bfloat16(2.0) * A[i, j]", "bfloat16", 1, 1, 1),  # a literal is wide already
    ],
)
def test_floats_of_16_bits_are_widened_before_an_operation_and_rounded_after_it(
    text: str, kind: str, operations: int, widened: int, rounded: int
) -> None:
    arrays = {array for array in "AF" if f"{array}[i, j]" in text}  # what is read is kept
    vector, loads = machine().vector, len(arrays) * machine().loops.vector_cycles
    by_hand = operations * vector.other + widened * vector.from_bfloat16
    assert value_of(text, kind) == nearly(loads + by_hand + rounded * vector.to_bfloat16)


def test_what_is_the_same_for_all_lanes_or_occurs_again_is_computed_once() -> None:
    moving = value_of("F[i, j] * float32(M[j])", "float32")
    read_widened = machine().loops.vector_cycles + machine().vector.from_bfloat16
    assert value_of("F[i, j] * (F[i, i] / (F[i, i] + 2.0))", "float32") == nearly(
        moving - read_widened
    )
    once = value_of("F[i, j] - float32(M[i])", "float32")
    twice = value_of("(F[i, j] - float32(M[i])) * (F[i, j] - float32(M[i]))", "float32")
    assert twice == nearly(once + machine().vector.other)
    value = stored("F[i, j] * F[i, i]", "float32").value
    written = Inside("j", "", frozenset("F"))
    assert prices().value(value, written) > prices().value(value, LANES)


def test_a_maximum_of_floats_is_a_longer_chain_than_a_sum() -> None:
    def chain(reducer: str, value: str, kind: str) -> float:
        text = f"size n in 1:65\ninput A: {kind}[n]\ninout S: {kind}[1]\nfor i in 0:n\n  S[0] {reducer} {value}\n"
        (loop,) = (s for s in statements(oc.parse(f"program p\n{text}").body) if isinstance(s, For))
        return prices().chain(loop)

    assert chain("+=", "A[i]", "float32") == machine().core.latency_cycles
    assert chain("max=", "A[i]", "float32") == machine().loops.extreme_cycles
    assert chain("max=", "A[i]", "int32") == machine().core.latency_cycles


def test_nests_that_share_a_loop_wait_for_each_other_once_a_block() -> None:
    """A wait is part of what a nest computes: of S, which L2 binds, it is hidden; of S_exp and S_sum it is not."""
    n = oc.dim("n", min=1, max=4096)
    x = oc.placeholder((n, 300), name="x")
    target = oc.target("cpu", machine="cascade-lake")
    options = target.options("tune")
    request = requested(oc.ops.softmax(x, name="S"), [x], {}, "tune")
    computation = space_of(request, options, target, 1).computation
    price = ClosedForm(Problem(request, options, target, (({"n": 64}, 1.0),), 0), computation)
    parts = "".join(
        f"  nest {stage}\n    way loops\n" for stage in ("S_max", "S_exp", "S_sum", "S")
    )
    one, four = (
        price(Schedule.parse(f"schedule S\ntogether i{by}\n{parts}mark rows\n"))[(("n", 64),)]
        for by in ("", " by 4 in 2310")
    )
    waits = machine().loops.wait_cycles / machine().hertz
    assert one - four == nearly(2 * (64 - 16) * waits)


def test_vectors_that_lie_in_two_lines_start_twice() -> None:
    """Of a statement that computes little the loads bind: two start in a cycle here, of a whole line each."""

    def started(value: str, first: int = 0) -> float:
        return prices().start_cost(stored(value, "float32"), Inside("j", "j", first=first))

    assert started("F[i, j]") == 1.0, "the store"
    assert started("F[i, j] + F[i + 1, j] + F[i + 2, j] + F[i + 3, j]") == 2.0
    assert started("F[i, j + 1] + F[i, j + 2] + F[i + 1, j + 3]") == 3.0
    assert started("F[i, j + 16] + F[i, j + 32]") == 1.0
    assert started("F[i, j]", first=1) == 2.0
    assert started("F[i, 0] + F[i, j]") == 1.0, "an element that stays is no load in the loop"
    assert prices().start_cost(stored("A[i, j + 1] + A[i, j + 2]"), LANES) == 1.5, (
        "half a line each"
    )
    assert prices().start_cost(stored("F[i, j]", "float32"), Inside(None, "j")) == 0.0


# Schedules of loops as they stand are priced without being cut, near what the program that they make is counted to
# take.


STENCIL = """\
program jacobi
size m in 2:8193
size n in 2:8193
input A: float32[m, n]
output B: float32[m, n]
for i in 1:m - 1
  for j in 1:n - 1
    B[i, j] = 0.2 * (A[i, j] + A[i, j - 1] + A[i, j + 1] + A[i + 1, j] + A[i - 1, j])
"""

TWO = """\
program two
size n in 1:8193
input A: float32[n, 64]
output B: float32[n, 64]
output C: float32[n]
for i in 0:n
  for j in 0:64
    B[i, j] = A[i, j] * 2.0
for i in 0:n
  C[i] = A[i, 0] + 1.0
"""

SIZES = {"m": [253], "n": [100, 1003]}


def problem_of(text: str, sizes: Mapping[str, list[int]]) -> Problem:
    target = oc.target("cpu", machine="zen4")
    options = target.options("tune", threads=1)
    return make_problem("tune", oc.parse(text), None, (), sizes, target, options)


def schedule(program: str, *cuts: str) -> Schedule:
    return Schedule.parse("\n".join((f"schedule {program}", *(f"cut {one}" for one in cuts))))


CUTS = (
    ("i pad 8", "j pad 16"),
    ("i cut 4", "j mask 32"),
    ("i ladder 32", "j residue 2"),
    ("i version 8",),
    ("j pad 32",),
)


def test_prices_are_near_those_of_the_loops_that_are_cut_and_in_their_order() -> None:
    problem = problem_of(STENCIL, SIZES)
    prices = loop_prices(problem)
    assert prices is not None

    found = []
    for cuts in CUTS:
        one = schedule("jacobi", *cuts)
        quick = prices(one)
        assert quick is not None
        costs = planned_costs(problem, one)
        found.append((quick, np.array([c.seconds for c in costs if isinstance(c, Cost)])))

    for quick, counted in found:
        assert np.abs(np.log(quick / counted)).max() < log(1.4)
    for quick, counted in found:
        for other, its in found:
            assert (quick < other)[counted * 1.5 < its].all()


@pytest.mark.parametrize(
    ("name", "cuts", "is_priced"),
    [
        ("jacobi", (), False),
        ("jacobi", ("i pad 32 8", "j pad 16"), False),  # in several levels
        ("two", ("i pad 8",), False),  # a name of two loops: the cut refuses it
        ("two", ("B.i pad 8",), False),  # its other nest is not cut
        ("two", ("B.i pad 8", "C.i pad 16"), True),
    ],
)
def test_a_schedule_of_another_form_is_left_to_counting(
    name: str, cuts: tuple[str, ...], is_priced: bool
) -> None:
    text, sizes = (STENCIL, SIZES) if name == "jacobi" else (TWO, {"n": [50]})
    prices = loop_prices(problem_of(text, sizes))
    assert prices is not None
    assert (prices(schedule(name, *cuts)) is not None) == is_priced


FORMS = {
    "a sum": "for i in 0:n\n  C[i] += A[i, 0]",
    "a condition": "for i in 0:n\n  C[i] = where(i < 9, A[i, 0], 0.0)",
    "bounds that move": "for i in 0:n\n  for j in 0:i\n    B[i, j] = A[i, j]",
    "in place": "for i in 1:n\n  C[i] = C[i - 1]",
    "written elsewhere": "for i in 0:n // 2\n  C[2 * i] = A[i, 0]",
    "two statements": "for i in 0:n\n  C[i] = A[i, 0]\n  B[i, 0] = A[i, 1]",
    "one array twice": "for i in 0:n\n  C[i] = A[i, 0]\nfor k in 0:n\n  C[k] = A[k, 1]",
}


@pytest.mark.parametrize("form", FORMS)
def test_other_forms_have_no_such_price(form: str) -> None:
    head = TWO.partition("for")[0].replace("output C", "inout C").replace("n, 64", "n, 8192")
    program = oc.parse(head + FORMS[form] + "\n")

    assert isinstance(program, Program)
    assert standing(program) is None
