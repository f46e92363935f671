"""Schedules of loops as they stand are priced without being cut, near what the program that they make is counted to take."""

from __future__ import annotations

from collections.abc import Mapping
from math import log

import numpy as np
import pytest

import offcut as oc
from offcut import Cost, Program, Schedule
from offcut.costmodel.nests import standing
from offcut.tuning.problem import make_problem
from offcut.tuning.schedule_prices import loop_prices, planned_costs
from tests.facade import Problem

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


def test_a_schedule_that_cuts_no_loop_or_in_several_levels_is_left_to_counting() -> None:
    prices = loop_prices(problem_of(STENCIL, SIZES))

    assert prices is not None
    assert prices(schedule("jacobi")) is None
    assert prices(schedule("jacobi", "i pad 32 8", "j pad 16")) is None


def test_a_name_of_two_loops_is_left_to_the_cut_that_refuses_it() -> None:
    prices = loop_prices(problem_of(TWO, {"n": [50]}))

    assert prices is not None
    assert prices(schedule("two", "i pad 8")) is None
    assert prices(schedule("two", "B.i pad 8")) is None, "its other nest is not cut"
    assert prices(schedule("two", "B.i pad 8", "C.i pad 16")) is not None


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
