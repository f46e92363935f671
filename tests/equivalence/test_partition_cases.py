"""The nests of `partition_cases`: what they mean, that they are cut right, and how the result looks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import EQUAL, proved
from partition_cases import CASES, Array, Case, Sizes, measured
from polybench import unsolved

import offcut as oc
from offcut.ir import Kind
from tests.facade import evaluate

AT = [(name, sizes) for name, case in CASES.items() for sizes in case.sizes]


def inputs(program: oc.Program, sizes: Sizes) -> dict[str, Array]:
    """Random whole numbers for each input."""
    random = np.random.default_rng(7)
    return {
        buffer.name: random.integers(
            -99, 99, tuple(int(evaluate(extent, sizes)) for extent in buffer.shape), "int32"
        )
        for buffer in program.buffers
        if buffer.kind is Kind.INPUT
    }


def same(found: Any, expected: Array) -> None:
    """Every element is the reference's; several results stand side by side there."""
    np.testing.assert_array_equal(np.stack(found) if isinstance(found, tuple) else found, expected)


@pytest.mark.every(4)
@pytest.mark.parametrize(("name", "sizes"), AT, ids=str)
def test_a_nest_means_what_numpy_computes(name: str, sizes: Sizes) -> None:
    program, given = CASES[name].program, inputs(CASES[name].program, sizes)
    same(program.run(given, **sizes), CASES[name].expected(given, sizes))


def partitioned(case: Case) -> Any:
    return oc.partition(case.program, tile=dict(case.tile), tail=case.tail)


@pytest.mark.every(4)
@pytest.mark.parametrize("name", CASES)
def test_a_cut_nest_computes_the_same(name: str) -> None:
    case = CASES[name]
    cut = partitioned(case)
    assert proved(cut) >= EQUAL
    assert oc.parse(str(cut)) == cut.loops
    for sizes in case.sizes:
        given = inputs(case.program, sizes)
        same(cut.run(given, **sizes), case.expected(given, sizes))


@pytest.mark.every(10)
@pytest.mark.parametrize("name", CASES)
def test_conditions_leave_the_loops_within_a_budget_of_copies(name: str) -> None:
    case = CASES[name]
    cut = partitioned(case)
    found = measured(cut.loops)
    assert found.conditions <= case.shape.conditions
    assert found.copies <= case.shape.copies
    assert case.because in cut.explain()


@pytest.mark.every(5)
@pytest.mark.parametrize("name", CASES)
def test_a_compiled_nest_computes_the_same(name: str) -> None:
    case = CASES[name]
    kernel = oc.compile(case.program)
    for sizes in case.sizes:
        given = inputs(case.program, sizes)
        same(kernel(*given.values(), **unsolved(case.program, sizes)), case.expected(given, sizes))


def test_a_nest_as_written_shows_its_conditions() -> None:
    shapes = {name: measured(CASES[name].program) for name in ("basic", "triangle", "parity")}
    assert [(s.copies, s.conditions) for s in shapes.values()] == [(1, 1), (2, 2), (1, 1)]
