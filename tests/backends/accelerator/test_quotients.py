"""Quotients, remainders and shifts on machines of queues: exact on the range of what is divided, or refused with it."""

from __future__ import annotations

import numpy as np
import pytest
from accelerators import bytes_of
from conftest import rejection, slow

import offcut as oc
from offcut import Tensor
from offcut.backends.accelerator.isa import AluOp
from offcut.backends.accelerator.lowering.arithmetic import exact_range, to_multiply_shift


@pytest.mark.parametrize("divisor", [1, 3, 7, 9, 49, 64, 100, 255, 1000])
def test_a_product_and_a_shift_divide_as_integers_do(divisor: int) -> None:
    most = min(exact_range(divisor), 2**31 - 1)
    for low, high in ((-128, 127), (0, 255), (-1152, 1143), (-most, most), (5, 6)):
        steps = to_multiply_shift(divisor, low, high)
        assert steps is not None
        x = np.unique(np.linspace(low, high, 5001, dtype=np.int64))
        word = x.copy()
        for op, other in steps:
            match op:
                case AluOp.ADD:
                    word = word + other
                case AluOp.MUL:
                    word = word * other
                case _:
                    word = word >> other
            assert np.abs(word).max() < 2**31
        np.testing.assert_array_equal(word, x // divisor)
    if divisor & divisor - 1:
        assert to_multiply_shift(divisor, -most - 1, most + 1) is None


@pytest.mark.every(2)
@pytest.mark.parametrize("machine", ["vta", "gemmini"])
def test_windows_are_averaged(machine: str) -> None:
    h = oc.dim("h", min=3, max=64)
    x = oc.placeholder((18, h, 9), "int8", name="X")
    r, s = oc.reduce_axis(3, name="r"), oc.reduce_axis(3, name="s")
    total = oc.compute(
        (18, h - 2, 7),
        lambda c, i, j: oc.sum(x[c, i + r, j + s].astype("int32"), axis=[r, s]),
        name="S",
    )
    mean = oc.compute(
        (18, h - 2, 7), lambda c, i, j: (total[c, i, j] // 9).astype("int8"), name="Y"
    )
    kernel = oc.compile(mean, inputs=[x], target=machine)
    for size in (3, 4, 17):
        given = bytes_of(np.random.default_rng(size), (18, size, 9))
        wide = np.lib.stride_tricks.sliding_window_view(given.astype(np.int64), (3, 3), (1, 2))
        np.testing.assert_array_equal(kernel(given), (wide.sum((3, 4)) // 9).astype(np.int8))


n = oc.dim("n", min=0, max=64)


def elements(dtype: str) -> Tensor:
    return oc.placeholder((n, 5), dtype, name="A")


@pytest.mark.every(2)
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_bytes_are_divided_and_wrap_as_their_type_does(dtype: str) -> None:
    a = elements(dtype)
    forms = {
        "quotient": lambda i, j: a[i, j] // 3,
        "remainder": lambda i, j: a[i, j] % 7,
        "sum": lambda i, j: a[i, j] + a[i, j],
        "product": lambda i, j: a[i, j] * 5 - 3,
        "magnitude": lambda i, j: oc.absolute(a[i, j]) // 3,
        "wide magnitude": lambda i, j: (oc.absolute(a[i, j].astype("int32")) % 7).astype(dtype),
    }
    every = np.resize(np.arange(-128, 128).astype(dtype), (52, 5))
    known = {
        "quotient": every // 3,
        "remainder": every % 7,
        "sum": every + every,
        "product": every * np.array(5, dtype) - np.array(3, dtype),
        "magnitude": np.abs(every) // 3,
        "wide magnitude": (np.abs(every.astype(np.int32)) % 7).astype(dtype),
    }
    for name, form in forms.items():
        kernel = oc.compile(oc.compute((n, 5), form, name="Y"), inputs=[a], target="vta")
        np.testing.assert_array_equal(kernel(every), known[name])


@pytest.mark.parametrize(("by", "dtype"), [(3, "uint8"), slow(3, "int8"), slow(40, "int8")])
def test_bytes_are_shifted_by_constants_to_both_sides(by: int, dtype: str) -> None:
    a = elements(dtype)
    made = oc.compute((n, 5), lambda i, j: (a[i, j] >> by) // 3 - (a[i, j] << by), name="Y")
    every = np.resize(np.arange(-128, 128).astype(dtype), (52, 5))
    exact = (every.astype(np.int64) // 2**by // 3 - every.astype(np.int64) * 2**by).astype(dtype)
    kernel = oc.compile(made, inputs=[a], target="vta")
    np.testing.assert_array_equal(kernel(every), exact)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_sums_are_shifted_by_words_that_are_not_below_0(dtype: str) -> None:
    a, b = elements("int32"), oc.placeholder((n, 5), dtype, name="B")
    shifted = oc.compute((n, 5), lambda i, j: a[i, j] >> b[i, j].astype("int32"), name="S")
    y = oc.compute(
        (n, 5), lambda i, j: oc.minimum(oc.maximum(shifted[i, j], -9), 99).astype("int8"), name="Y"
    )
    if dtype == "int8":
        with rejection("""\
TargetError: compile: cannot run a statement on vta
  at       S[i, j] = shr(A_acc[i, j], int32(B_acc[i, j]))
  because  B_acc is from -128 to 127, and by less than 0 its vector unit shifts to the left
  help     maximum of B_acc and 0 before"""):
            oc.compile(y, inputs=[a, b], target="vta")
        return
    rng = np.random.default_rng(0)
    given, by = rng.integers(-(2**31), 2**31, (17, 5)), rng.integers(0, 256, (17, 5))
    by[:12] %= 33
    exact = np.clip(given // 2 ** np.minimum(by, 40), -9, 99)
    kernel = oc.compile(y, inputs=[a, b], target="vta")
    np.testing.assert_array_equal(kernel(given.astype("int32"), by.astype("uint8")), exact)


def test_a_range_that_is_too_wide_is_refused_with_what_would_do() -> None:
    a = elements("int32")
    wide = oc.compute((n, 5), lambda i, j: (a[i, j] // 3).astype("int8"), name="Y")
    with rejection("""\
TargetError: compile: cannot run a statement on vta
  at       Y_1[i, j] = A_acc[i, j]//3
  because  A_acc is from -2147483648 to 2147483647, and a product in int32 and a shift divide by 3 from -24575 to 24575
  help     minimum and maximum of A_acc before
  help     a power of two"""):
        oc.compile(wide, inputs=[a], target="vta")
    narrow = oc.compute(
        (n, 5),
        lambda i, j: (oc.maximum(oc.minimum(a[i, j], 9000), -9000) // 300).astype("int8"),
        name="Y",
    )
    kernel = oc.compile(narrow, inputs=[a], target="vta")
    given = np.random.default_rng(0).integers(-(2**31), 2**31, (17, 5)).astype(np.int32)
    given[:9] //= 2**18
    np.testing.assert_array_equal(
        kernel(given), (np.clip(given, -9000, 9000) // 300).astype("int8")
    )
