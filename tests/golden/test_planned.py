"""Whole programs as the CPU's planner makes them, for one machine: a change of any is seen, and meant.

``pytest tests/golden --update-golden`` writes them, and removes those that no case makes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from conftest import EQUAL

import offcut as oc
from offcut import Schedule, Tensor, ops, parse
from tests.facade import (
    Planned,
    as_program,
    computation,
    loops_of,
    plan_of,
    plan_of_described,
    theorems,
)

HERE = Path(__file__).parent / "planned"
b, n, m = (oc.dim(name, max=4096) for name in "bnm")


def given(name: str, *shape: object, dtype: str = "float32") -> Tensor:
    return oc.placeholder(shape, dtype, name)


def attended() -> Tensor:
    return ops.attention(given("Q", b, n, 64), given("K", b, m, 64), given("V", b, m, 64))


def dense() -> Tensor:
    weights = given("W", 768, 3072)
    return ops.dense(given("A", n, 768), weights, given("bias", 3072), activation="gelu")


def bytes_product() -> Tensor:
    return ops.matmul(given("A", n, 256, dtype="int8"), given("B", 256, 512, dtype="int8"))


CASES: dict[str, Callable[[], Tensor]] = {
    "attention": attended,
    "batched_product": lambda: ops.matmul(given("A", b, n, 64), given("B", b, 64, m)),
    "conv2d": lambda: ops.conv2d(given("X", b, 32, n, n), given("F", 32, 32, 3, 3), padding="same"),
    "dense": dense,
    "int8_product": bytes_product,
    "layernorm": lambda: ops.layernorm(given("X", n, 768)),
    "softmax": lambda: ops.softmax(given("X", n, m)),
}


@cache
def planned(name: str) -> Planned:
    """How a case is planned, on a machine that is described."""
    return plan_of_described(computation(CASES[name]()))


@pytest.mark.parametrize("name", CASES)
def test_a_program_is_planned_as_it_was_and_read_back(
    name: str, golden: Callable[[str, str], None]
) -> None:
    made = planned(name)
    golden(f"planned/{name}.offcut", str(made.program))
    golden(f"planned/{name}.schedule", f"{made.schedule}")
    assert parse(str(made.program)) == made.program
    assert Schedule.parse(str(made.schedule)) == made.schedule


@pytest.mark.parametrize("name", CASES)
def test_a_described_tensor_and_its_text_are_planned_alike(name: str) -> None:
    text = parse(str(loops_of(computation(CASES[name]()))))
    assert plan_of(as_program(text)).program == planned(name).program


SCALED = """program scaled
size m in 0:4097
size n in 0:4097
size p in 0:4097
inout C: float64[m, n]
input A: float64[m, p]
input B: float64[p, n]
for i in 0:m
  for j in 0:n
    C[i, j] = 1.2 * C[i, j]
  for k in 0:p
    for j in 0:n
      C[i, j] {update}
"""


@pytest.mark.parametrize("update", ["+= 1.5 * A[i, k] * B[k, j]", "-= A[i, k] * B[k, j]"])
def test_a_product_with_a_computed_factor_is_planned(update: str) -> None:
    text = parse(SCALED.format(update=update))
    made = plan_of(as_program(text)).applied
    assert made is not None
    pieces = made.partition.pieces
    assert any(piece.microkernel == "fma_float64_avx512" for piece in pieces)


@pytest.mark.every(4)
@pytest.mark.parametrize("name", CASES)
def test_a_planned_program_computes_what_was_described(name: str) -> None:
    described = loops_of(computation(CASES[name]()))
    assert theorems(described, planned(name).program) == EQUAL


def test_every_golden_file_belongs_to_a_case(updating: bool) -> None:
    orphans = [path for path in sorted(HERE.glob("*.*")) if path.stem not in CASES]
    if updating:
        for path in orphans:
            path.unlink()
        orphans = []
    assert not orphans
