"""Statements, their times, and the last write before a read."""

from __future__ import annotations

import islpy as isl
import pytest

from offcut import Program, parse
from offcut.errors import PartitionError
from offcut.ir import Load
from offcut.polyhedral.extract_statements import extract_statements
from offcut.polyhedral.program_sets import ProgramSets, Statement
from offcut.polyhedral.time_relations import last_writes, time_depth, time_text

HEAD = """size n in 0:10
inout A: int32[n]
local L: int32[n]
"""


def read(text: str) -> tuple[ProgramSets, Program, list[Statement]]:
    program = parse(HEAD + text)
    flows = ProgramSets(program.sizes, program.assumptions, {})
    program = flows.prepare(program)
    return flows, program, extract_statements(flows, program, "S")


def test_a_bounded_value_is_a_union_over_its_literals() -> None:
    flows, _, found = read(
        "if n > 0\n  let q in 1:3 = (n + 7)//8\n    for i in 0:q\n      A[i] = int32(q)"
    )
    assert len(found) == 2
    assert flows.smallest(found[1].domain) == ((9,), (0,))


def test_a_bounded_value_that_leaves_its_range_is_refused() -> None:
    with pytest.raises(PartitionError) as error:
        read("let q in 1:3 = n\n  for i in 0:q\n    A[i] = int32(q)")
    assert error.value.refused == "the value of q is not in 1:3"
    assert error.value.because == "with n = 0, n leaves it"


def test_a_condition_that_isl_does_not_decide_is_a_predicate() -> None:
    _, _, (one,) = read("for i in 0:n\n  if i < 3 and i * i < n\n    A[i] = int32(1)")
    assert len(one.predicates) == 1


def test_a_bound_that_is_not_quasi_affine_is_refused() -> None:
    with pytest.raises(PartitionError) as error:
        read("for i in 0:n * n\n  A[0] = int32(1)")
    assert error.value.refused == "cannot read the bound n * n as a set"


def test_the_last_write_before_a_read_is_the_one_before() -> None:
    flows, _, (one,) = read("for i in 1:n\n  A[i] = A[i - 1]")
    write = flows.access(one, "A", one.store.index)
    load = one.store.value
    assert isinstance(load, Load)
    reads = flows.access(one, "A", load.index)
    assert write is not None
    assert reads is not None
    depth = time_depth([one])
    texts = [time_text("R", one, depth, 0), time_text(one.name, one, depth, 1)]
    times = isl.UnionMap(f"{flows.space.parameters}{{ {'; '.join(texts)} }}")
    last, initial = last_writes([reads.set_tuple_name(isl.dim_type.in_, "R")], [write], times)
    expected = isl.UnionMap("[p0] -> { R[x0] -> S0[x0 - 1] : 2 <= x0 < p0 and p0 < 10 }")
    assert last.is_equal(expected)
    assert initial.is_equal(isl.UnionMap("[p0] -> { R[1] -> m_A[0] : 2 <= p0 < 10 }"))
