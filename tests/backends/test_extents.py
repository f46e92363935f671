"""Extents of arguments with quotients in them: what a call checks, allocates and says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import rejection

import offcut as oc
from tests.agree import agree, computed, of_program
from tests.compiled import floats, poisoned

EVEN: dict[str, Any] = {
    "2*(n//2)": lambda n: 2 * (n // 2),
    "2*((n - 1)//2) + 3": lambda n: 2 * ((n - 1) // 2) + 3,
    "n - n % 3": lambda n: n - n % 3,
    "3*(n//2//2) + n//5": lambda n: 3 * (n // 2 // 2) + n // 5,
    "(2*(n//2) + 5)//3": lambda n: (2 * (n // 2) + 5) // 3,
}


@pytest.mark.parametrize("extent", EVEN)
def test_a_result_is_as_long_as_the_expression_says(extent: str) -> None:
    size = oc.dim("n", min=1, max=99)
    A = oc.placeholder((size,), name="A")
    B = oc.compute((EVEN[extent](size),), lambda i: oc.cast(i, "float32") + A[0], name="B")
    kernel = oc.compile(B, inputs=[A])
    for n in (1, 2, 3, 4, 7, 30, 99):
        a = floats("extents", n)
        length = EVEN[extent](n)
        exact = np.arange(length, dtype="float32") + a[0]
        np.testing.assert_array_equal(kernel(a), exact)
        np.testing.assert_array_equal(poisoned(kernel, (length,), a), exact)


@pytest.mark.every(2)
@pytest.mark.parametrize("extent", EVEN)
def test_an_operand_is_held_to_the_expression(extent: str) -> None:
    size = oc.dim("n", min=1, max=99)
    A, X = (oc.placeholder((e,), name=name) for name, e in (("A", size), ("X", EVEN[extent](size))))
    C = oc.compute((EVEN[extent](size),), lambda i: X[i] * 2.0 + A[0], name="C")
    kernel = oc.compile(C, inputs=[A, X])
    for n in (1, 2, 7, 30):
        a, x = floats("a", n), floats("x", EVEN[extent](n))
        agree(kernel(a, x), computed(lambda a, x: x * 2 + a[0], a, x))
        with pytest.raises(oc.CallError, match="X disagrees on n"):
            kernel(a, floats("x", EVEN[extent](n) + 1))


def test_an_operand_alone_does_not_say_what_is_divided() -> None:
    size = oc.dim("n", min=2, max=99)
    X = oc.placeholder((2 * (size // 2),), name="X")
    kernel = oc.compile(oc.compute((2 * (size // 2),), lambda i: X[i] + 1.0, name="Y"), inputs=[X])
    np.testing.assert_array_equal(kernel(np.zeros(6, "float32"), n=7), np.ones(6, "float32"))
    with rejection("""\
CallError: Y: X disagrees on n
  at       X
  because  axis 0 of X is 6, but 2*(n//2) = 4 with n = 5 by the keyword"""):
        kernel(np.zeros(6, "float32"), n=5)


@pytest.mark.slow
def test_phases_of_a_transposed_convolution_behind_a_strided_one_are_one_kernel() -> None:
    h = oc.dim("h", min=4, max=64)
    x = oc.placeholder((1, 3, h, 8), name="x")
    w, v = oc.placeholder((4, 3, 3, 3), name="w"), oc.placeholder((4, 2, 2, 2), name="v")
    down = oc.ops.conv2d(x, w, stride=2, padding=1, name="down")
    up = oc.ops.conv_transpose2d(down, v, stride=2, name="up")
    kernel = oc.compile(up, inputs=[x, w, v])
    for rows in (4, 5, 9):
        given = [floats("u", 1, 3, rows, 8), floats("w", 4, 3, 3, 3), floats("v", 4, 2, 2, 2)]
        named = dict(zip("xwv", given, strict=True))
        agree(kernel(*given), of_program(kernel.loops, named))
