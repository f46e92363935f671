"""Rows of a padded tile are copied once for all columns, and again wherever they are others."""

from __future__ import annotations

import offcut as oc
from tests.agree import agree, exact_matmul
from tests.compiled import floats

SIZES = (1, 13, 15, 29)


def test_an_array_that_changes_between_calls_is_copied_again() -> None:
    n = oc.dim("n", max=64)
    A, W = oc.placeholder((n, 24), name="A"), oc.placeholder((24, 80), name="W")
    w = floats("w", 24, 80)
    kernel = oc.compile(oc.ops.matmul(A, W), inputs=[A, W], constants={"W": w}, strategy="pad")
    assert "llvm.memcpy" in kernel.source("llvm")
    for rows in SIZES:
        x = floats("x", rows, 24)
        agree(kernel(x), exact_matmul(x, w))
        x *= -2.0
        agree(kernel(x), exact_matmul(x, w))


def test_rows_that_the_call_computes_are_copied_for_each_tile() -> None:
    n = oc.dim("n", max=64)
    X, V = oc.placeholder((n, 24), name="X"), oc.placeholder((24, 24), name="V")
    W = oc.placeholder((24, 80), name="W")
    made = oc.ops.matmul(oc.ops.matmul(X, V), W)
    v, w = floats("v", 24, 24), floats("w", 24, 80)
    kernel = oc.compile(made, inputs=[X, V, W], constants={"V": v, "W": w}, strategy="pad")
    for rows in SIZES:
        x = floats("x", rows, 24)
        agree(kernel(x), exact_matmul(x, v, w, spec="ik,kl,lj->ij"))
