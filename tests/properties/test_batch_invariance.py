"""An element of a result has the same bits whatever the other sizes, the strategy and the packing."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
from compiled import Array, build, contraction, floats, same_bits
from hypothesis import given, settings
from hypothesis import strategies as st

import offcut as oc
from offcut import Kernel, Tensor

ROWS, DEPTH, COLUMNS = 64, 37, 85
W, BIAS = floats("w", DEPTH, COLUMNS), floats("bias", COLUMNS)
X = floats("x", ROWS, DEPTH)
sizes = st.integers(0, ROWS)


def dense(n: int | None) -> tuple[Tensor, list[Tensor]]:
    """gelu(x W + bias); `n` columns, or a symbolic number of them."""
    what = contraction("mk,kn->mn", {"k": DEPTH} | ({} if n is None else {"n": n}), name="H")
    m, columns = what.result.shape
    H, B = what.result, oc.placeholder((columns,), name="bias")
    G = oc.compute((m, columns), lambda i, j: H[i, j] + B[j], name="G")
    Y = oc.compute(
        (m, columns),
        lambda i, j: 0.5 * G[i, j] * (1.0 + oc.erf(G[i, j] * math.sqrt(0.5))),
        name="Y",
    )
    return Y, [*what.inputs, B]


@pytest.fixture(scope="module")
def packed() -> dict[str, Kernel]:
    output, inputs = dense(COLUMNS)
    constants = {"B": W, "bias": BIAS}
    return {
        s: build(output, inputs=inputs, constants=constants, strategy=s)
        for s in ("auto", "shift", "pad", "guard")
    }


@pytest.fixture(scope="module")
def plain() -> dict[str, Kernel]:
    output, inputs = dense(None)
    return {s: build(output, inputs=inputs, strategy=s) for s in ("ladder", "balance", "mask")}


@pytest.fixture(scope="module")
def whole(packed: dict[str, Kernel]) -> Array:
    result: Array = packed["auto"](X)
    return result


def test_every_row_alone_is_that_row_of_the_batch(
    packed: dict[str, Kernel], plain: dict[str, Kernel], whole: Array
) -> None:
    for row in range(ROWS):
        alone = slice(row, row + 1)
        for name, kernel in packed.items():
            assert same_bits(kernel(X[alone]), whole[alone]), name
        for name, kernel in plain.items():
            assert same_bits(kernel(X[alone], W, BIAS), whole[alone]), name


@settings(max_examples=60, deadline=None, derandomize=True)
@given(first=sizes, last=sizes)
def test_any_slice_of_the_batch_is_that_slice_of_the_result(
    packed: dict[str, Kernel], whole: Array, first: int, last: int
) -> None:
    for name, kernel in packed.items():
        assert same_bits(kernel(X[first:last]), whole[first:last]), name


@settings(max_examples=60, deadline=None, derandomize=True)
@given(first=st.integers(0, COLUMNS), last=st.integers(0, COLUMNS), rows=sizes)
def test_any_columns_are_those_columns_of_the_result(
    plain: dict[str, Kernel], whole: Array, first: int, last: int, rows: int
) -> None:
    for name, kernel in plain.items():
        part = kernel(X[:rows], W[:, first:last], BIAS[first:last])
        assert same_bits(part, whole[:rows, first:last]), name


def programs() -> Iterator[tuple[str, Tensor, Tensor]]:
    m, n = oc.dim("m", max=4096), oc.dim("n", max=4096)
    A = oc.placeholder((m, n), name="A")
    r, s = oc.reduce_axis(n, "r"), oc.reduce_axis(n, "s")
    top = oc.compute((m,), lambda i: oc.max(A[i, r], axis=r), name="top")
    e = oc.compute((m, n), lambda i, j: oc.exp(A[i, j] - top[i]), name="e")
    total = oc.compute((m,), lambda i: oc.sum(e[i, s], axis=s), name="total")
    yield "softmax", oc.compute((m, n), lambda i, j: e[i, j] / total[i], name="Z"), A
    yield "sum", oc.compute((m,), lambda i: oc.sum(A[i, r] * A[i, r], axis=r), name="Z"), A


@pytest.mark.parametrize(("name", "output", "A"), list(programs()), ids=["softmax", "sum"])
def test_a_row_of_a_program_does_not_depend_on_the_others(
    name: str, output: Tensor, A: Tensor
) -> None:
    kernels = {s: build(output, inputs=[A], strategy=s) for s in ("auto", "shift", "pad")}
    x = floats(name, 40, 53)
    whole = kernels["auto"](x)
    for strategy, kernel in kernels.items():
        for row in range(40):
            assert same_bits(kernel(x[row : row + 1]), whole[row : row + 1]), strategy


def test_a_batch_does_not_depend_on_the_others() -> None:
    what = contraction("bmk,bkn->bmn")
    kernel = build(what.result, inputs=what.inputs, strategy="shift")
    a, b = floats("a", 4, 17, 21), floats("b", 4, 21, 33)
    whole = kernel(a, b)
    for batch in range(4):
        one = slice(batch, batch + 1)
        assert same_bits(kernel(a[one], b[one]), whole[one])


def test_an_infinite_row_leaves_the_other_rows_as_they_are(
    packed: dict[str, Kernel], whole: Array
) -> None:
    x = X.copy()
    x[13], x[ROWS - 1] = np.nan, np.inf
    others = np.delete(np.arange(ROWS), [13, ROWS - 1])
    for name, kernel in packed.items():
        assert same_bits(kernel(x)[others], whole[others]), name


def test_a_condition_in_a_sum_gives_the_bits_that_it_gives_outside_of_the_loop() -> None:
    """``auto`` ends the sum over k at i + 1; a named strategy asks at each term."""
    n = oc.dim("n", max=100)
    L, B = oc.placeholder((n, n), name="L"), oc.placeholder((n, 20), name="B")
    k = oc.reduce_axis(n, name="k")
    triangle = oc.compute(
        (n, 20),
        lambda i, j: oc.sum(oc.where(k <= i, L[i, k] * B[k, j], 0.0), axis=k),
        name="C",
    )
    apart, asked = (oc.compile(triangle, [L, B], strategy=s) for s in ("auto", "mask"))
    assert ["where(" in str(made.loops) for made in (apart, asked)] == [False, True]
    left, right = floats("left", 29, 29), floats("right", 29, 20)
    assert same_bits(apart(left, right), asked(left, right))
