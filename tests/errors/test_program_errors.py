"""Every refusal of `compile` and `partition` of what a loop program says, word for word."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import refusals, rejection

import offcut as oc

HEAD = """\
program f
size n in 1:60
size m in 0:9
input A: int32[n]
output B: int32[n]
local L: int32[n]
"""

DIVISORS = refusals(
    r"""
a loop that starts at 0
given 'for i in 0:n\n  B[i] = int32(3//i)\n'
cannot divide by i
  at       B[i] = int32(3//i)
  because  with n = 1, m = 0, i = 0, it is 0
  help     max(i, 1)
  help     an if, or where(…), around the division

a difference that is negative, in a bound
given 'for i in 0:n % (1 - 3)\n  B[i] = 1\n'
cannot divide by 1 - 3
  at       for i in 0:n % (1 - 3)
  because  with n = 1, m = 0, it is -2
  help     max(1 - 3, 1)
  help     an if, or where(…), around the division

a size that may be 0, as a value
given 'for i in 0:n\n  B[i] = A[i] // int32(m)\n'
cannot divide by int32(m)
  at       B[i] = A[i]//int32(m)
  because  with n = 1, m = 0, i = 0, it is 0
  help     max(int32(m), 1)
  help     an if, or where(…), around the division

an element
given 'for i in 0:n\n  B[i] = 3 // A[i]\n'
cannot divide by A[i]
  at       B[i] = 3//A[i]
  because  nothing shows that it is positive wherever it divides
  help     max(A[i], 1)
  help     an if, or where(…), around the division

a size in a loop that does not run where it is 0, which no set says
given 'for i in 0:n*m\n  B[0] = int32(i % m)\n'
cannot divide by m
  at       B[0] = int32(i % m)
  because  nothing shows that it is positive wherever it divides
  help     max(m, 1)
  help     an if, or where(…), around the division""",
    globals(),
)


@pytest.mark.parametrize("what", DIVISORS)
def test_a_divisor_that_may_be_zero_or_negative_is_refused(what: str) -> None:
    body, text = DIVISORS[what]
    program = oc.parse(HEAD + body)
    for op, call in (("partition", oc.partition), ("compile", oc.compile)):
        with rejection(f"PartitionError: {op}: {text}"):
            call(program)


@pytest.mark.parametrize(
    "value",
    [
        "int32(5//(i + 1))",
        "where(i > 0, int32(5 // i), 7)",
        "int32(i // max(m, 1))",
        "A[i] // max(A[i], 1)",
        "int32(i // ((m + 1)*(i + 1)))",
        "A[i] // int32(n)",
    ],
)
def test_a_divisor_that_is_positive_is_taken(value: str) -> None:
    program = oc.parse(f"{HEAD}for i in 0:n\n  B[i] = {value}\n")
    given = np.arange(-2, 5, dtype=np.int32)
    wanted = program.run({"A": given}, m=0)
    assert np.array_equal(oc.compile(program)(given, m=0), wanted)
    assert np.array_equal(oc.partition(program).run({"A": given}, m=0), wanted)


def test_a_program_that_divides_by_zero_stops_with_where_it_does() -> None:
    program = oc.parse(HEAD + "for i in 0:n\n  B[i] = A[i] // int32(m)\n")
    with rejection("""\
CallError: run: cannot run f: // by 0, which is not positive
  at       B[i] = A[i]//int32(m)
  because  it runs at m = 0, n = 2, i = 0"""):
        program.run({"A": np.ones(2, np.int32)}, m=0)


VALUES = refusals(
    r"""
a value that leaves its range inside a window
given "for i in 0:n\n  alloc L[i +: 1]\n    let q in 0:2 = i\n      B[i] = int32(q)\n"
compile: cannot take the value q
  at       let q in 0:2 = i
  because  with n = 3, m = 0, it is not in 0:2
  help     a range that holds it at every size

a value that leaves its range in a tile
given "tile i in 0 +: n\n  let q in 0:2 = i\n    B[i] = int32(q)\n"
compile: cannot take the value q
  at       let q in 0:2 = i
  because  with n = 3, m = 0, it is not in 0:2
  help     a range that holds it at every size

a value that data keeps in its range
given "for i in 0:n\n  if A[i] > int32(i)\n    let q in 0:2 = i\n      B[i] = int32(q)\n"
compile: cannot take the value q
  at       let q in 0:2 = i
  because  sets do not show that it is in 0:2, nor express all around it
  help     a range that holds it at every size
""",
    {},
)


@pytest.mark.parametrize("what", VALUES)
def test_a_value_that_may_leave_its_range_is_refused(what: str) -> None:
    body, text = VALUES[what]
    with rejection(f"PartitionError: {text}"):
        oc.compile(oc.parse(HEAD + body))


def test_a_value_in_its_range_is_taken_wherever_it_stands() -> None:
    body = "tile i in 0 +: n\n  if A[i] > 0\n    let q in 0:2 = i % 2\n      B[i] = int32(q)\n"
    assert oc.compile(oc.parse(HEAD + body))


@pytest.mark.parametrize(("op", "call"), [("compile", oc.compile), ("partition", oc.partition)])
def test_floats_are_floored_by_the_interpreter_alone(op: str, call: Any) -> None:
    program = oc.parse("program p\ninput A: float32[4]\noutput C: float32[4]\nC[0] = A[0] // 2\n")
    with rejection(
        f"PartitionError: {op}: cannot take A[0]//2\n"
        "  at       C[0] = A[0]//2\n"
        "  because  // floors integers, and these are float32\n"
        "  help     / divides floats"
    ):
        call(program)
