"""Operators by element and what stands around them: axes that are paired, orders of inputs, bits and powers of integers.

The values of each function on all its operands are in `test_ops_grids`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from compiled import Array, build, floats
from conftest import rejection
from operators import EDGES, Operator, integers, specials, wide

import offcut as oc
from offcut import Tensor, ops
from tests.facade import INTEGERS


def results(outputs: list[Tensor], inputs: list[Tensor]) -> Callable[..., list[Array]]:
    """All of them by one kernel; where they are few elements, as its loops say too."""
    kernel = build(outputs, inputs=inputs)

    def run(*arrays: Array) -> list[Array]:
        found = [np.asarray(one) for one in kernel(*arrays)]
        if 0 < arrays[0].size <= 40:
            named = {t.name: a for t, a in zip(inputs, arrays, strict=True)}
            for one, other in zip(found, kernel.loops.run(named), strict=True):
                np.testing.assert_array_equal(*wide(one, np.asarray(other)))
        return found

    return run


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
    run = results(made, [x, y, z, s])
    for rows, columns in ((0, 3), (1, 1), (2, 17), (3, 64)):
        a, b = floats("x", rows, 1, columns), floats("y", 5, columns)
        c, d = floats("z", rows, 5, 1), floats("s")
        for found, exact in zip(run(a, b, c, d), (a + b, c * a, d - b, a), strict=True):
            np.testing.assert_array_equal(found, exact)


def test_numbers_stand_on_either_side_and_shapes_are_joined() -> None:
    n = oc.dim("n")
    x, y = oc.placeholder((n, 3), "int32", "X"), oc.placeholder((3,), "int32", "Y")
    made = [
        ops.bitwise_and(x, y),
        ops.shift_left(1, y),
        ops.bitwise_or(x, 6),
        ops.shift_right(x, 2),
    ]
    kernel = build(made, inputs=[x, y])
    b = integers("b", "int32", 3) % 31
    for rows in (0, 1, 7):
        a = integers("a", "int32", rows, 3)
        for found, exact in zip(kernel(a, b), [a & b, 1 << b, a | 6, a >> 2], strict=True):
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


def test_conditions_differ_by_the_same_sign() -> None:
    n = oc.dim("n")
    x = oc.placeholder((n,), "int32", "X")
    made = oc.compute((n,), lambda i: oc.where((x[i] > 0) ^ (i >= 2), x[i], 0), "made")
    given = np.array([3, -1, 2, -5, 0], "int32")
    wanted = np.where((given > 0) ^ (np.arange(5) >= 2), given, 0)
    np.testing.assert_array_equal(build(made, inputs=[x])(given), wanted)


def test_bits_are_read_back_and_cut_as_any_operation() -> None:
    program = oc.parse("""
program hashed
size n in 0:200
input x: int32[n]
inout y: int32[n]
for i in 0:n
  y[i] += bitxor(bitand(x[i], 255), shr(shl(x[i], 3), 5))
""")
    assert oc.parse(str(program)) == program
    cut = oc.partition(program, tile={"i": 8}, tail={"i": "mask"})
    cut.prove()
    kernel = oc.compile(cut.loops)
    for size in (0, 1, 7, 8, 9, 29):
        x, y = integers("x", "int32", size), integers("y", "int32", size)
        wanted = y + ((x & 255) ^ ((x << 3) >> 5))
        np.testing.assert_array_equal(kernel(x, y.copy()), wanted)
        np.testing.assert_array_equal(cut.run({"x": x, "y": y}, n=size), wanted)


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
