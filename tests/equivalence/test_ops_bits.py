"""Operations on bits, of every integer type, against Python's integers, numpy and the interpreter."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import Array, build
from operators import EDGES, integers, specials

import offcut as oc
from offcut import ops
from tests.facade import INTEGERS, numpy_dtype

OF_TWO = {
    ops.bitwise_and: np.bitwise_and,
    ops.bitwise_or: np.bitwise_or,
    ops.bitwise_xor: np.bitwise_xor,
    ops.shift_left: np.left_shift,
    ops.shift_right: np.right_shift,
}


def pairs(dtype: str) -> list[tuple[Array, Array]]:
    """All pairs of special values and of shifts around the width, and values of every count of vectors."""
    bits = numpy_dtype(dtype).itemsize * 8
    info = np.iinfo(dtype)
    shifts = [bits - 1, bits, bits + 1, 2 * bits, *([-1, -bits] if info.min else [])]
    second = np.concatenate([specials(dtype), np.array(shifts, dtype)])
    every = tuple(part.ravel() for part in np.meshgrid(specials(dtype), second))
    return [every, *((integers("x", dtype, n), integers("y", dtype, n) % 9) for n in EDGES)]


@pytest.mark.every(8)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_bits_are_numpy_s_and_the_interpreter_s(dtype: str) -> None:
    x, y = (oc.placeholder((oc.dim("n"),), dtype, name) for name in "XY")
    kernel = build([*(of(x, y) for of in OF_TWO), ops.bitwise_not(x)], inputs=[x, y])
    for a, b in pairs(dtype):
        found = [np.asarray(one) for one in kernel(a, b)]
        wanted = [*(reference(a, b) for reference in OF_TWO.values()), ~a]
        again = kernel.loops.run({"X": a, "Y": b}) if 0 < len(a) <= 300 else wanted
        for one, other, exact in zip(found, again, wanted, strict=True):
            assert one.dtype == exact.dtype
            np.testing.assert_array_equal(one, exact)
            np.testing.assert_array_equal(other, exact)


@pytest.mark.every(3)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_a_shift_is_python_s_where_it_is_within_the_width_and_else_leaves_no_bit(
    dtype: str,
) -> None:
    x, y = (oc.placeholder((oc.dim("n"),), dtype, name) for name in "XY")
    kernel = build([ops.shift_left(x, y), ops.shift_right(x, y)], inputs=[x, y])
    a, b = pairs(dtype)[0]
    bits = numpy_dtype(dtype).itemsize * 8
    up, down = kernel(a, b)
    for value, shift, left, right in zip(*(one.tolist() for one in (a, b, up, down)), strict=True):
        inside = 0 <= shift < bits
        assert right == (value >> shift if inside else -(value < 0))
        assert (left - (value << shift if inside else 0)) % 2**bits == 0


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
