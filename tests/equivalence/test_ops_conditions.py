"""Conditions as elements: comparisons, what joins them, choices and masks, against numpy and the interpreter."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from compiled import Array, build, floats
from operators import EDGES, integers

import offcut as oc
from offcut import Tensor, ops
from tests.facade import DTYPES, FLOATS, numpy_dtype

n, m = oc.dim("n"), oc.dim("m")


def drawn(seed: object, dtype: str, *shape: int) -> Array:
    """Of few different values, so that some are equal."""
    if dtype in FLOATS:
        return (floats(seed, *shape, dtype="float32") * 2).round().astype(numpy_dtype(dtype))
    values = integers(seed, "uint8", *shape) % 4
    return values.astype(dtype) if dtype != "bool" else values > 1


def ran(outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> Callable[..., list[Array]]:
    """All of them by one kernel, which reads back and whose loops give the same."""
    kernel = build(outputs, inputs=inputs)
    assert oc.parse(str(kernel.loops)) == kernel.loops

    def run(*arrays: Array) -> list[Array]:
        found = [np.asarray(one) for one in kernel(*arrays)]
        if 0 < arrays[0].size <= 40:
            named = {t.name: a for t, a in zip(inputs, arrays, strict=True)}
            for one, other in zip(found, kernel.loops.run(named), strict=True):
                np.testing.assert_array_equal(one, np.asarray(other))
        return found

    return run


@pytest.mark.every(8)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_choice_gives_what_numpy_gives(dtype: str) -> None:
    c = oc.placeholder((n, 1), "bool", "C")
    x, y = oc.placeholder((n, m), dtype, "X"), oc.placeholder((m,), dtype, "Y")
    one = True if dtype == "bool" else 3
    run = ran(
        [ops.where(c, x, y), ops.where(c, one, y), ops.where(c, x, one), ops.cast(c, dtype)],
        [c, x, y],
    )
    for rows, columns in ((0, 3), (1, 1), (3, 17), (5, 65)):
        condition, a, b = (
            drawn("c", "bool", rows, 1),
            drawn("x", dtype, rows, columns),
            drawn("y", dtype, columns),
        )
        wanted = numpy_dtype(dtype).type(one)
        exact = [
            np.where(condition, a, b),
            np.broadcast_to(np.where(condition, wanted, b), a.shape),
            np.where(condition, a, wanted),
            condition.astype(numpy_dtype(dtype)),
        ]
        for found, expected in zip(run(condition, a, b), exact, strict=True):
            assert found.dtype == numpy_dtype(dtype)
            np.testing.assert_array_equal(found, expected)


def test_a_choice_between_numbers_is_of_the_type_that_is_asked_for() -> None:
    c = oc.placeholder((n,), "bool", "C")
    run = ran([ops.where(c, 0.0, float("-inf"), "float16"), ops.where(c, 1, 2, "int64")], [c])
    for size in EDGES:
        condition = drawn("c", "bool", size)
        first, second = run(condition)
        assert (first.dtype, second.dtype) == (np.float16, np.int64)
        np.testing.assert_array_equal(first, np.where(condition, 0.0, -np.inf))
        np.testing.assert_array_equal(second, np.where(condition, 1, 2))


def test_any_and_all_and_how_many_hold() -> None:
    x = oc.placeholder((n, m), "bool", "X")
    run = ran([ops.max(x, 1), ops.min(x, 0), ops.sum(x), ops.mean(x, 1), ops.transpose(x)], [x])
    for shape in ((1, 1), (3, 17), (17, 64), (65, 3)):
        a = drawn("x", "bool", *shape)
        for found, exact in zip(run(a), (a.any(1), a.all(0), a.sum(), a.mean(1), a.T), strict=True):
            np.testing.assert_array_equal(found, exact.astype(found.dtype))


PROGRAM = """\
program p
size n in 0:100
input A: float32[n]
input M: bool[n]
inout R: float32[n]
output F: bool[n]
output G: bool[n]
for i in 0:n
  F[i] = true
  if M[i] and A[i] > 0.0
    R[i] = A[i]
  else
    F[i] = not M[i] or bool(A[i])
  G[i] = where(i >= 1, M[max(i - 1, 0)], false) != true"""


def test_a_program_branches_on_elements_that_are_conditions() -> None:
    program = oc.parse(PROGRAM)
    assert str(program) == PROGRAM
    kernel = oc.compile(program)
    for size in EDGES[:-1]:
        a, held, r = drawn("a", "float32", size), drawn("m", "bool", size), floats("r", size)
        expected = program.run({"A": a, "M": held, "R": r.copy()})
        for found, wanted in zip(kernel(a, held, r.copy()), expected, strict=True):
            np.testing.assert_array_equal(np.asarray(found), np.asarray(wanted))


def test_what_is_converted_to_a_condition_is_whether_it_is_not_0() -> None:
    program = oc.parse("""
        program p
        size n in 0:100
        input A: int32[n]
        output B: bool[n]
        output D: float32[n]
        for i in 0:n
          B[i] = bool(where(i >= 0, 2, 0)) and bool(i) and bool(A[i])
          D[i] = float32(bool(2.5)) + float32(bool(index(0))) + float32(bool(A[i] * 2))
    """)
    kernel = oc.compile(program)
    for size in EDGES[:-1]:
        a = integers("a", "int8", size).astype("int32") % 2
        both, total = kernel(a)
        np.testing.assert_array_equal(both, (a != 0) & (np.arange(size) > 0))
        np.testing.assert_array_equal(total, 1.0 + (a != 0))


def test_torch_gives_and_takes_conditions() -> None:
    torch = pytest.importorskip("torch", reason="the extra torch is not installed")
    x, c = oc.placeholder((n,), name="X"), oc.placeholder((n,), "bool", "C")
    kernel = build([ops.greater(x, 0.5), ops.where(c, x, 0.0)], inputs=[x, c])
    a, held = torch.from_numpy(floats("a", 33)), torch.from_numpy(drawn("m", "bool", 33))
    more, chosen = kernel(a, held)
    assert more.dtype == torch.bool
    assert torch.equal(more, a > 0.5)
    assert torch.equal(chosen, torch.where(held, a, 0.0))
