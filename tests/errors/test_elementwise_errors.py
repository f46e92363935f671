"""Every refusal of an operator by element, word for word."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from conftest import rejection

import offcut as oc
from offcut import ops

n, m = oc.dim("n", max=64), oc.dim("m", max=64)


def given(name: str, *shape: Any, dtype: str = "float32") -> Any:
    return oc.placeholder(shape, dtype, name)


A, B, Z = given("A", n, 24), given("B", m, 24), given("Z", n, 24, dtype="int32")
M = given("M", n, 24, dtype="bool")

REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "no tensor at all": (
        lambda: ops.add(1, 2.0),
        "add: cannot take x = 1 and y = 2.0\n"
        "  because  none is a tensor\n"
        '  help     placeholder((n, 768), "float32", name="A")\n'
        "  help     compute(…)",
    ),
    "extents that differ": (
        lambda: ops.multiply(A, B),
        "multiply: cannot join the shapes of A and B\n"
        "  at       A: float32[n, 24] and B: float32[m, 24]\n"
        "  because  axis 0 of A is n, axis 0 of B is m\n"
        "  help     extents that are equal, or the literal 1",
    ),
    "two element types": (
        lambda: ops.maximum(A, Z),
        "maximum: cannot pair float32 with int32\n"
        "  at       A: float32[n, 24] and Z: int32[n, 24]\n"
        "  because  operands are of one element type\n"
        '  help     cast(Z, "float32")',
    ),
    "a float beside integers": (
        lambda: ops.add(Z, 0.5),
        "add: cannot take y=0.5\n"
        "  at       Z: int32[n, 24]\n"
        "  because  it is not a value of int32, and a number takes the element type of the tensor\n"
        '  help     cast(Z, "float32")',
    ),
    "an integer that is too large": (
        lambda: ops.subtract(2**31, Z),
        "subtract: cannot take x=2147483648\n"
        "  at       Z: int32[n, 24]\n"
        "  because  it is not a value of int32, and a number takes the element type of the tensor",
    ),
    "a text": (
        lambda: ops.minimum(A, "1"),  # type: ignore[arg-type]
        "minimum: cannot take y='1'\n"
        "  at       A: float32[n, 24]\n"
        "  because  it is not a value of float32, and a number takes the element type of the tensor",
    ),
    "a quotient of integers": (
        lambda: ops.divide(Z, 2),
        "divide: cannot divide int32\n"
        "  at       Z: int32[n, 24]\n"
        "  because  the quotient of integers is a float\n"
        "  help     floor_divide(x, y)\n"
        '  help     cast(Z, "float32")',
    ),
    "a remainder by the integer 0": (
        lambda: ops.remainder(Z, 0),
        "remainder: cannot take y=0\n"
        "  at       Z: int32[n, 24]\n"
        "  because  there is no remainder by 0",
    ),
    "an exponent of integers below 0": (
        lambda: ops.power(Z, -1),
        "power: cannot take y=-1\n"
        "  at       Z: int32[n, 24]\n"
        "  because  the exponent of integers is a whole number from 0 to 64\n"
        '  help     cast(x, "float32") takes any exponent',
    ),
    "an exponent of integers that is an element": (
        lambda: ops.power(Z, Z),
        "power: cannot take y=Z: int32[n, 24]\n"
        "  at       Z: int32[n, 24]\n"
        "  because  the exponent of integers is a whole number from 0 to 64\n"
        '  help     cast(x, "float32") takes any exponent',
    ),
    "a power of integers in an expression": (
        lambda: oc.compute((n,), lambda i: oc.power(Z[i, 0], 0.5)),
        "compute: cannot take the power of Z[i, 0] and 0.5\n"
        "  because  the exponent of integers is a whole number from 0 to 64\n"
        '  help     cast(x, "float32") takes any exponent',
    ),
    "a power of a condition": (
        lambda: oc.compute((n,), lambda i: oc.power(M[i, 0], True)),
        "compute: cannot take the power of bool M[i, 0]\n"
        "  because  power is of elements that are numbers",
    ),
    "a power of two numbers": (
        lambda: oc.power(2.0, 3),
        "compute: cannot take the power of 2.0 and 3\n  because  neither is an expression",
    ),
    "a sine of integers": (
        lambda: oc.compute((n,), lambda i: oc.sin(Z[i, 0])),
        "compute: cannot take sin of int32 Z[i, 0]\n  because  sin is for float elements",
    ),
    "no end": (
        lambda: ops.clip(A),
        "clip: cannot do without low and high\n"
        "  at       A: float32[n, 24]\n"
        "  because  neither end is given",
    ),
    "an end that is NaN": (
        lambda: ops.clip(A, low=float("nan")),
        "clip: cannot take low=nan\n  at       A: float32[n, 24]\n  because  NaN is not an end",
    ),
    "a slope that is infinite": (
        lambda: ops.leaky_relu(A, float("inf")),
        "leaky_relu: cannot take slope=inf\n  because  slope is a finite number",
    ),
    "a square root of integers": (
        lambda: ops.sqrt(Z),
        "sqrt: cannot take x of int32\n"
        "  at       Z: int32[n, 24]\n"
        "  because  x is of float64, float32, float16, bfloat16",
    ),
    "an element type that is none": (
        lambda: ops.cast(A, "float8"),
        "cast: cannot give 'float8'\n"
        "  at       argument dtype\n"
        "  because  element types are float64, float32, float16, bfloat16, int64, int32, int16, int8, uint64, uint32, uint16, uint8, bool",
    ),
    "a sum of conditions": (
        lambda: ops.add(M, True),
        "add: cannot take x of bool\n"
        "  at       M: bool[n, 24]\n"
        "  because  x is of float64, float32, float16, bfloat16, int64, int32, int16, int8, uint64, uint32, uint16, uint8",
    ),
    "an integer beside conditions": (
        lambda: ops.logical_and(M, 1),
        "logical_and: cannot take y=1\n"
        "  at       M: bool[n, 24]\n"
        "  because  it is not a value of bool, and a number takes the element type of the tensor",
    ),
    "a choice by floats": (
        lambda: ops.where(A, A, A),
        "where: cannot take condition of float32\n"
        "  at       A: float32[n, 24]\n"
        "  because  condition is of bool",
    ),
    "a choice between numbers of no type": (
        lambda: ops.where(M, 1, 2.0),
        "where: cannot tell the element type of 1 and 2.0\n"
        "  because  neither is a tensor\n"
        '  help     dtype="float32"',
    ),
    "a choice between numbers that the type does not hold": (
        lambda: ops.where(M, 1.5, 2, "int32"),
        "where: cannot take x=1.5\n  because  it is not a value of int32",
    ),
    "a choice of another type": (
        lambda: ops.where(M, A, 0, "float16"),
        "where: cannot give 'float16'\n"
        "  because  it chooses between elements of float32\n"
        '  help     cast(…, "float16")',
    ),
    "an order of conditions": (
        lambda: oc.compute((n,), lambda i: M[i, 0] < M[i, 1]),
        "compute: cannot take M[i, 0] < M[i, 1]\n"
        "  because  conditions are equal or not, and have no order\n"
        "  help     a & b, a | b, ~a join conditions",
    ),
    "the larger of two conditions": (
        lambda: oc.compute((n,), lambda i: oc.maximum(M[i, 0], True)),
        "compute: cannot take maximum of M[i, 0] and true\n"
        "  because  they are conditions\n"
        "  help     a | b is the larger of two conditions, a & b the smaller",
    ),
    "a condition beside a number": (
        lambda: oc.compute((n,), lambda i: M[i, 0] == 1),
        "compute: cannot take bool == int\n"
        "  at       M[i, 0]\n"
        "  because  arithmetic is between equal element types\n"
        '  help     cast(x, "float32") converts, explicitly',
    ),
    "a negative condition": (
        lambda: oc.compute((n,), lambda i: -M[i, 0]),
        "compute: cannot take neg of bool M[i, 0]\n  because  neg is for float elements",
    ),
    "a divisor that may be anything": (
        lambda: oc.compute((n, 24), lambda i, j: Z[i, j] % Z[i, j]),
        "compute: cannot take Z[i, j] % Z[i, j]\n"
        "  because  // and % floor integers, by a positive constant\n"
        "  help     maximum(b, 1) of elements is positive, too",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refusal_says_what_was_refused_where_and_why(case: str) -> None:
    describe, text = REFUSED[case]
    with rejection(f"DescribeError: {text}"):
        describe()
