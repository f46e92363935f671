"""What is predicted of a call is one number, whoever is asked: its plan, its cost, the formulas, a search that has not cut it yet."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from conftest import slow

import offcut as oc
from offcut import Cost, PartitionError
from offcut.core.expr import Binary, Cast, Compare, Const, Expr, Lookup, Select, Var, real
from offcut.costmodel import Formulas
from offcut.costmodel.arrays import Formulas as Evaluated
from offcut.partition.strategies.catalog import parse_strategy
from offcut.schedule import ANY_LANES, ANY_THREADS
from offcut.tuning.schedule_prices import ClosedForm, nest_prices
from tests import spaces
from tests.agree import nearly
from tests.facade import Problem, evaluate, proved_plan, requested, stand_ins, strategies

n = oc.dim("n", min=1, max=1024)
SIZES = (1, 2, 13, 14, 15, 43, 100, 300)


def dense() -> tuple[Any, list[Any], list[str]]:
    a, w = oc.placeholder((n, 256), name="A"), oc.placeholder((256, 320), name="W")
    return oc.ops.matmul(a, w), [a, w], ["W"]


def rows(of: Any) -> tuple[Any, list[Any], list[str]]:
    x = oc.placeholder((n, 512), name="X")
    return of(x), [x], []


PROGRAMS = {
    "dense": dense,
    "softmax": lambda: rows(oc.ops.softmax),
    "layernorm": lambda: rows(oc.ops.layernorm),
}


def agree(program: str, machine: str, strategy: Any) -> None:
    output, inputs, constants = PROGRAMS[program]()
    target = oc.target("cpu", machine=machine)
    request = requested(output, inputs, stand_ins(constants, output, inputs, "plan"), "plan")
    options = target.options("compile", strategy=strategy)
    planned = proved_plan(target, request, options)
    formulas = target.predict_cost(planned, request, options)
    assert isinstance(formulas, Formulas)
    formula = formulas.seconds
    for size in SIZES:
        plan = target.describe_plan(planned, request, options, {"n": size})
        cost = target.predict_cost(planned, request, options, {"n": size})
        assert isinstance(cost, Cost)
        assert plan.seconds == nearly(cost.seconds, rel=1e-9)
        found = float(formula.subs(dict.fromkeys(formula.free_symbols, size)))
        assert found == nearly(cost.seconds, rel=0.05), size
        executed = sum(piece.flop for piece in cost.pieces)
        assert executed <= 1.02 * cost.peak * cost.seconds, size


@pytest.mark.every(12)
@pytest.mark.parametrize("strategy", ["auto", *strategies()])
def test_plan_cost_and_formulas_of_a_product_say_one_number(strategy: str) -> None:
    agree("dense", "zen4", strategy if strategy == "auto" else parse_strategy(strategy, at=""))


@pytest.mark.parametrize(
    ("program", "machine"),
    [
        ("softmax", "zen4"),
        *(
            slow(*one)
            for one in (
                *(("dense", "cascade-lake"), ("dense", "neoverse-n1"), ("softmax", "avx2")),
                *(("layernorm", "zen5"), ("layernorm", "zen4"), ("softmax", "neoverse-n1")),
            )
        ),
    ],
)
def test_plan_cost_and_formulas_of_a_program_say_one_number(program: str, machine: str) -> None:
    agree(program, machine, "auto")


@pytest.mark.parametrize("queues", ["vta", slow("gemmini")])
def test_of_a_machine_of_queues_too(queues: str) -> None:
    k = oc.reduce_axis(64, name="k")
    a, w = oc.placeholder((n, 64), "int8", name="A"), oc.placeholder((64, 64), "int8", name="W")
    total = oc.compute(
        (n, 64),
        lambda i, j: oc.sum(oc.cast(a[i, k], "int32") * oc.cast(w[k, j], "int32"), axis=k),
        name="S",
    )
    made = oc.compute(
        (n, 64),
        lambda i, j: oc.cast(oc.maximum(oc.minimum(total[i, j] // 64, 127), -128), "int8"),
        name="C",
    )
    weights = np.ones((64, 64), "int8")
    kernel = oc.compile(made, inputs=[a, w], constants={"W": weights}, target=queues)
    formula = kernel.cost().seconds
    for size in (1, 7, 16, 100):
        plan, cost = kernel.plan(n=size), kernel.cost(n=size)
        assert plan.seconds == nearly(cost.seconds)
        found = float(formula.subs(dict.fromkeys(formula.free_symbols, size)))
        assert found == nearly(cost.seconds, rel=0.05)


@pytest.mark.parametrize(
    ("program", "off"),
    [
        ("dense", 0.03),
        slow("turned", 0.03),
        slow("unpacked", 0.03),
        slow("elementwise", 0.03),
        slow("softmax", 0.05),
    ],
)
def test_a_search_is_told_what_the_schedule_costs_once_it_is_cut(program: str, off: float) -> None:
    """Of schedules at random, by the recursion over the loops that they make."""
    request, options, target = spaces.problem(program, "zen4")
    options = replace(options, threads=1)
    space, rng = spaces.space(program, 3, "zen4"), Random(7)
    (size,) = dict(request.users.sizes)
    vectors = tuple(({size: value}, 1.0) for value in (1, 13, 43, 500))
    problem, computation = Problem(request, options, target, vectors), space.computation
    assert computation is not None
    price, nests = ClosedForm(problem, computation), nest_prices(problem, computation)
    compared = 0
    while compared < 4:
        schedule = space.sample(rng)
        lanes = all(ANY_LANES in one.steps for one in (space.first, schedule))
        if ANY_THREADS in schedule.steps or lanes != (ANY_LANES in space.first.steps):
            continue
        try:
            told = price(schedule).values()
            asked = replace(options, schedule=schedule)
            planned = proved_plan(target, request, asked)
        except PartitionError:
            continue
        compared += 1
        for call, (seconds, (at, _)) in enumerate(zip(told, vectors, strict=True)):
            cost = target.predict_cost(planned, request, asked, at)
            assert isinstance(cost, Cost)
            assert seconds == nearly(cost.seconds, rel=off), (str(schedule), at)
            taken = [min(ways, key=lambda way: way.own[call]) for ways in nests.nests(schedule)]
            flop = sum(part.flop[call] for way in taken for part in way.parts)
            assert flop == sum(piece.flop for piece in cost.pieces), (str(schedule), at)


# Threads

JACOBI = """program jacobi
size n in 2:4097
input A: float32[n, n]
output B: float32[n, n]
for i in 1:n - 1
  for j in 1:n - 1
    B[i, j] = 0.25 * (A[i, j - 1] + A[i - 1, j] + A[i, j + 1] + A[i + 1, j])
"""
TRIANGLE = """program triangle
size n in 1:2049
inout x: float64[n]
input L: float64[n, n]
for i in 0:n
  for j in 0:i
    x[i] += -1.0 * L[i, j] * x[j]
  x[i] = x[i] / L[i, i]
"""


@pytest.mark.parametrize("text", [JACOBI, TRIANGLE], ids=["jacobi", "triangle"])
def test_the_number_of_threads_goes_by_the_cycles_that_are_counted(text: str) -> None:
    target = oc.target("cpu", machine="zen4")
    request = requested(oc.parse(text), None, {}, "plan")
    options = target.options("compile", threads=2)
    planned: Any = proved_plan(target, request, options)
    for size in (2, 10, 65, 300, 1000):
        cost = target.predict_cost(planned, request, options, {"n": size})
        assert isinstance(cost, Cost)
        computing = sum(piece.resources["compute"] for piece in cost.pieces) / cost.hertz
        assert evaluate(planned.seconds, {"n": size}) == nearly(computing, rel=0.01, abs=1e-10)


# The choice in a call


def test_a_plan_says_how_far_the_prices_are_off_and_what_that_may_cost() -> None:
    """Of a product whose columns' operand is not known before a call: it is read as it lies, or packed."""
    a, w = oc.placeholder((n, 96), name="A"), oc.placeholder((96, 1280), name="W")
    kernel = oc.compile(oc.ops.matmul(a, w), inputs=[a, w])
    (said,) = (line for line in str(kernel.plan(n=1)).splitlines() if "chooses by prices" in line)
    within, regret = (float(part.strip("%")) / 100 for part in said.split() if part.endswith("%"))
    assert within > 0
    for size in (1, 29, 200, 1024):
        considered = kernel.plan(n=size).considered
        (taken,) = (one.seconds for one in considered if one.chosen)
        least = min(one.seconds for one in considered)
        assert taken <= (1.01 + regret) * least, size
    x = oc.placeholder((n, 64), name="X")
    assert "chooses by prices" not in str(oc.compile(oc.ops.softmax(x), inputs=[x]).plan(n=3))


# Expressions over arrays


def test_expressions_over_arrays_are_those_at_each_place() -> None:
    x, y = Var("x"), Var("y")
    table = Lookup((0.5, 1.5, 4.0), Binary("%", x, Const(3, "index")))
    less = Binary("min", x, y)
    exprs: list[Expr] = [
        Binary("+", Binary("*", real(less), table), real(2.0)),
        Select(Compare("<", x, y), Binary("//", x, Const(4, "index")), less),
        Cast(Binary("max", Binary("-", x, y), Const(0, "index")), "float64"),
    ]
    values = {"x": np.arange(12.0), "y": np.full(12, 5.0)}
    for expr, found in zip(exprs, Evaluated(exprs)(values), strict=True):
        wanted = [evaluate(expr, {"x": at, "y": 5}) for at in range(12)]
        assert np.broadcast_to(found, 12) == nearly(wanted)
