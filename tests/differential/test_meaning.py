"""The interpreter of the net against values worked out by hand."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from .meaning import TooLong, Undefined, Wrong, holds, run, value_of
from .reading import read


def results(text: str, sizes: dict[str, int] | None = None, **given: Any) -> list[Any]:
    """What a program leaves in its results, as lists."""
    arrays = {name: np.asarray(value) for name, value in given.items()}
    return [found.tolist() for found, _ in run(read(text), arrays, sizes or {}).values()]


def one(value: str, dtype: str = "int32", **given: Any) -> Any:
    """The value of an expression over rank-0 buffers."""
    declared = "".join(f"input {n}: {v.dtype}[]\n" for n, v in given.items())
    (found,) = results(f"{declared}output O: {dtype}[]\nO[] = {value}\n", **given)
    return found


def test_statements_run_in_the_order_of_the_text() -> None:
    text = """
size n in 0:9
inout A: int32[n]
output B: int32[n]
for i in 1:n:2
  A[i] += A[i - 1]
  if A[i] > 3
    B[i] = 1
  else
    B[i] = 2
  B[i - 1] = A[i]
  A[i - 1] max= 7
"""
    a = np.array([1, 2, 3, 4], np.int32)
    assert results(text, {"n": 4}, A=a) == [[7, 3, 7, 7], [3, 2, 7, 1]]
    assert a.tolist() == [1, 2, 3, 4]


def test_integers_wrap_in_their_own_type() -> None:
    x = np.int8(127)
    assert one("x[] + 1", "int8", x=x) == -128
    assert one("int32(x[]) + 1", "int32", x=x) == 128
    assert one("-x[]", "uint8", x=np.uint8(1)) == 255
    assert one("x[] * x[]", "int32", x=np.int32(65536)) == 0
    assert one("int8(x[])", "int8", x=np.int32(200)) == -56
    assert one("-128", "int8") == -128


def test_quotients_and_remainders_floor() -> None:
    x = np.int32(-7)
    assert one("x[] // 2", x=x) == -4
    assert one("x[] % 3", x=x) == 2
    assert value_of("(n - 9)//2 + (n - 9) % 4", {"n": 2}) == -4 + 1


def test_floats_are_rounded_after_each_operation() -> None:
    third = np.float32(1) / np.float32(3)
    assert one("x[] / 3", "float32", x=np.float32(1)) == float(third)
    assert one("x[] + 1 - x[]", "float32", x=np.float32(2**24)) == 0.0
    assert one("x[] + 1", "bfloat16", x=np.asarray(256, ml_dtypes.bfloat16)) == 256
    assert one("float64(x[]) + 1", "float64", x=np.float32(2**24)) == 2**24 + 1


def test_a_literal_takes_the_type_of_what_it_meets() -> None:
    assert one("0.1 + x[]", "float32", x=np.float32(0)) == float(np.float32(0.1))
    assert one("where(x[] > 2, 1, -1)", "int8", x=np.float64(2.5)) == 1
    assert one("where(1 < 2, float64(3), nan)", "float64") == 3.0
    assert one("[1.5, -inf][1]", "float64") == -np.inf


def test_where_reads_one_branch_and_conditions_read_all() -> None:
    text = "size n in 0:9\ninput A: int32[n]\noutput B: int32[n]\nfor i in 0:n\n  B[i] = {}\n"
    a = np.array([5, 6], np.int32)
    assert results(text.format("where(i > 0, A[i - 1], 0)"), {"n": 2}, A=a) == [[0, 5]]
    with pytest.raises(Wrong):
        results(text.format("where(i > 0 and A[i - 1] > 0, 1, 0)"), {"n": 2}, A=a)


def test_nan_is_kept_by_max_and_min_and_falls_through_comparisons() -> None:
    x = np.float32(np.nan)
    assert np.isnan(one("max(x[], 1)", "float32", x=x))
    assert np.isnan(one("min(1, x[])", "float32", x=x))
    assert one("where(x[] < 1, 1, 2)", x=x) == 2
    assert one("where(x[] != x[], 1, 2)", x=x) == 1


def test_what_is_not_written_is_not_known() -> None:
    text = "size n in 0:9\noutput B: int32[n]\nfor i in 1:n\n  B[i] = int32(i)\n"
    ((values, known),) = run(read(text), {}, {"n": 3}).values()
    assert values.tolist() == [0, 1, 2]
    assert known.tolist() == [False, True, True]


@pytest.mark.parametrize(
    "value",
    ["B[0]", "A[0] // (A[0] - A[0])", "int32(float32(A[0]) / 0)", "int8(float32(A[0]) * 1000)"],
)
def test_what_has_no_meaning_is_undefined(value: str) -> None:
    dtype = "int8" if value.startswith("int8") else "int32"
    text = f"inout A: int32[1]\nlocal B: int32[1]\noutput O: {dtype}[1]\nO[0] = {value}\n"
    with pytest.raises(Undefined):
        results(text, A=np.array([3], np.int32))


def test_a_program_that_is_none_is_told() -> None:
    with pytest.raises(Wrong, match="int32, not float32"):
        results("input A: int32[1]\noutput B: float32[1]\nB[0] = A[0]", A=np.zeros(1, np.int32))
    with pytest.raises(Wrong, match="index"):
        results("output B: int32[1]\nB[1] = 2")
    with pytest.raises(Wrong, match="index"):
        results("output B: int32[1]\nB[0 - 1] = 2")
    with pytest.raises(TooLong):
        results("output B: int32[1]\nfor i in 0:99999\n  B[0] = 2")


def test_facts_are_read_as_written() -> None:
    assert holds("0 <= n < m and n % 2 == 0", {"n": 4, "m": 5})
    assert not holds("not n < m or n == 3", {"n": 4, "m": 5})
