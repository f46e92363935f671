"""Operators by element and what stands around them: axes that are paired, bits and powers of integers, conditions.

The values of each function on all its operands are in `test_ops_grids`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from compiled import Array, build, floats
from conftest import rejection
from operators import EDGES, Operator, integers, specials, wide

import offcut as oc
from offcut import Tensor, ops
from tests.facade import DTYPES, FLOATS, INTEGERS, numpy_dtype

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
                np.testing.assert_array_equal(*wide(one, np.asarray(other)))
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
    for rows, columns in ((0, 3), (3, 17), (5, 65)):
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


def test_torch_gives_and_takes_conditions() -> None:
    torch = pytest.importorskip("torch", reason="the extra torch is not installed")
    x, c = oc.placeholder((n,), name="X"), oc.placeholder((n,), "bool", "C")
    kernel = build([ops.greater(x, 0.5), ops.where(c, x, 0.0)], inputs=[x, c])
    a, held = torch.from_numpy(floats("a", 33)), torch.from_numpy(drawn("m", "bool", 33))
    more, chosen = kernel(a, held)
    assert more.dtype == torch.bool
    assert torch.equal(more, a > 0.5)
    assert torch.equal(chosen, torch.where(held, a, 0.0))


def test_axes_are_paired_from_the_last_on_and_a_literal_one_is_repeated() -> None:
    n, m = oc.dim("n"), oc.dim("m")
    x = oc.placeholder((n, 1, m), name="X")
    y, z, s = (
        oc.placeholder((5, m), name="Y"),
        oc.placeholder((n, 5, 1), name="Z"),
        oc.placeholder((), name="S"),
    )
    made = [ops.add(x, y), ops.multiply(z, x), ops.subtract(s, y), ops.maximum(x, x)]
    assert [tensor.shape for tensor in made] == [(n, 5, m), (n, 5, m), (5, m), (n, 1, m)]
    run = ran(made, [x, y, z, s])
    for rows, columns in ((0, 3), (1, 1), (2, 17), (3, 64)):
        a, b = floats("x", rows, 1, columns), floats("y", 5, columns)
        c, d = floats("z", rows, 5, 1), floats("s")
        for found, exact in zip(run(a, b, c, d), (a + b, c * a, d - b, a), strict=True):
            np.testing.assert_array_equal(found, exact)


def test_expressions_take_python_s_operators_and_bits_index_a_table() -> None:
    n = oc.dim("n")
    codes, table = oc.placeholder((n,), "uint8", "Codes"), oc.placeholder((16,), "float32", "Table")
    low = oc.compute((n,), lambda i: table[oc.index(codes[i] & 15)], "low")
    high = oc.compute((n,), lambda i: table[oc.index(codes[i] >> 4)], "high")
    mixed = oc.compute((n,), lambda i: (~codes[i] ^ (codes[i] << 1)) | 1, "mixed")
    kernel = build([low, high, mixed], inputs=[codes, table])
    values = np.arange(16, dtype="float32")
    for size in EDGES:
        given = integers("codes", "uint8", size)
        found = kernel(given, values)
        np.testing.assert_array_equal(found[0], values[given & 15])
        np.testing.assert_array_equal(found[1], values[given >> 4])
        np.testing.assert_array_equal(found[2], (~given ^ (given << 1)) | 1)


@pytest.mark.every(6)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_a_literal_with_the_other_sign_stays_in_its_type(dtype: str) -> None:
    info = np.iinfo(dtype)
    x = oc.placeholder((oc.dim("n", 0, 9),), dtype, name="X")
    for value in (5, info.min, info.max):
        y = oc.compute(x.shape, lambda i, value=value: x[i] + (-oc.cast(value, dtype)), "Y")
        given = np.arange(3, dtype=dtype)
        wanted = (given - np.full(3, value, dtype)).astype(dtype)
        np.testing.assert_array_equal(oc.compile(y)(given), wanted)
        found = oc.parse(str(oc.partition(y).source)).run({"X": given})
        np.testing.assert_array_equal(found, wanted)


def exactly(base: int, exponent: int, dtype: str) -> int:
    """In as many bits as the type has; below 0 what is whole of the quotient."""
    info = np.iinfo(dtype)
    if exponent < 0:
        return {1: 1, -1: 1 - 2 * (exponent % 2)}.get(base, 0)
    return (pow(base, exponent, 2**info.bits) - info.min) % 2**info.bits + info.min


@pytest.mark.every(6)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_a_power_wraps_in_its_type(dtype: str) -> None:
    x, y = (oc.placeholder((oc.dim("n"), oc.dim("m")), dtype, name) for name in "XY")
    op = Operator(ops.integer_power(x, y), [x, y])
    every = np.meshgrid(specials(dtype), specials(dtype))
    for a, b in (
        every,
        *((integers("x", dtype, k, 3), integers("y", dtype, k, 3)) for k in (0, 1, 17)),
    ):
        pairs = zip(a.ravel().tolist(), b.ravel().tolist(), strict=True)
        exact = np.array([exactly(*pair, dtype) for pair in pairs], dtype).reshape(a.shape)
        op.check([np.ascontiguousarray(a), np.ascontiguousarray(b)], exact, interpreted=len(a) == 1)


def test_a_power_of_other_operands_is_refused() -> None:
    x, y = (
        oc.placeholder((oc.dim("n"),), "int32", "X"),
        oc.placeholder((oc.dim("m"),), "int32", "Y"),
    )
    with rejection(
        "DescribeError: integer_power: cannot pair X with Y\n  at       X: int32[n] and Y: int32[m]\n"
        "  because  they are of one shape"
    ):
        ops.integer_power(x, y)
