"""Sums of products whose operands and results lie in any order: right, and by a microkernel."""

from __future__ import annotations

from math import prod
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from compiled import poisoned

import offcut as oc
from offcut import ops

EXTENTS = {"k": 37, "n": 21, "b": 2, "l": 3}
ACCUMULATED = {"float32": "float32", "bfloat16": "float32", "int8": "int32"}
ORDERS = [
    *("mk,kn->mn", "km,kn->mn", "km,nk->mn", "mk,kn->nm", "km,kn->nm", "bkm,bkn->bmn"),
    *("mbk,kbn->bmn", "mkl,kln->mn", "mkl,nkl->mn", "lkm,nkl->nm"),
]
ROWS = (0, 1, 13, 14, 15, 16, 17, 53)


def described(order: str, dtype: str) -> tuple[oc.Tensor, list[oc.Tensor]]:
    """The contraction, and its operands A and B; m is symbolic."""
    operands, result = order.split("->")
    size = {**EXTENTS, "m": oc.dim("m", max=64)}
    given = [
        oc.placeholder([size[x] for x in letters], dtype, name)
        for name, letters in zip("AB", operands.split(","), strict=True)
    ]
    terms = {
        x: oc.reduce_axis(size[x], x) for x in dict.fromkeys(operands) if x not in f"{result},"
    }

    def element(*at: Any) -> Any:
        place = {**dict(zip(result, at, strict=True)), **terms}
        factors = [
            oc.cast(tensor[tuple(place[x] for x in letters)], ACCUMULATED[dtype])
            for tensor, letters in zip(given, operands.split(","), strict=True)
        ]
        return oc.sum(factors[0] * factors[1], axis=tuple(terms.values()))

    shape = tuple(size[x] for x in result)
    return oc.compute(shape, element, name="C", axes=tuple(result)), given


def drawn(dtype: str, shape: tuple[int, ...], seed: int) -> Any:
    rng = np.random.default_rng(seed)
    if dtype == "int8":
        return rng.integers(-128, 128, shape, np.int8)
    return rng.standard_normal(shape).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else "f")


@pytest.mark.every(10)
@pytest.mark.parametrize("dtype", ACCUMULATED)
@pytest.mark.parametrize("order", ORDERS)
def test_a_product_of_any_order_is_right(order: str, dtype: str) -> None:
    result, given = described(order, dtype)
    kernel = oc.compile(result, inputs=given)
    operands, out = order.split("->")
    for m in ROWS:
        size = {**EXTENTS, "m": m}
        arrays = [
            drawn(dtype, tuple(size[x] for x in letters), m + seed)
            for seed, letters in enumerate(operands.split(","))
        ]
        found = poisoned(kernel, tuple(size[x] for x in out), *arrays)
        exact = np.einsum(order, *(array.astype(np.float64) for array in arrays))
        if dtype == "int8":
            np.testing.assert_array_equal(found, exact.astype(np.int32))
            continue
        bound = np.einsum(order, *(np.abs(array.astype(np.float64)) for array in arrays))
        terms = prod(size[x] for x in set(operands) - {*out, ","})
        assert (np.abs(found - exact) <= (terms + 2) * 2.0**-23 * bound).all()


@pytest.mark.every(8)
@pytest.mark.parametrize("dtype", ["int8", "bfloat16"])
@pytest.mark.parametrize("order", ORDERS)
def test_a_product_of_any_order_runs_by_a_microkernel(order: str, dtype: str) -> None:
    result, given = described(order, dtype)
    pieces = oc.target("cpu", machine="sapphire-rapids").plan(result, given, m=53).pieces
    assert any(piece.microkernel for piece in pieces if piece.stage.startswith("C")), str(pieces)


@pytest.mark.every(8)
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize("padding", [0, 1])
def test_a_convolution_of_given_weights_runs_as_of_constant_ones(
    layout: str, dtype: str, padding: int
) -> None:
    b, h = oc.dim("b", max=4), oc.dim("h", min=3, max=20)
    first = layout == "NCHW"
    x = oc.placeholder((b, 6, h, 9) if first else (b, h, 9, 6), dtype, "X")
    w = oc.placeholder((18, 6, 3, 3) if first else (3, 3, 6, 18), dtype, "W")
    result = ops.conv2d(x, w, padding=padding, layout=layout)
    weights = drawn(dtype, (18, 6, 3, 3) if first else (3, 3, 6, 18), 1)
    given = oc.compile(result, inputs=[x, w])
    bound = oc.compile(result, inputs=[x, w], constants={"W": weights})
    for images, height in ((0, 3), (1, 3), (1, 14), (3, 17)):
        shape = (images, 6, height, 9) if first else (images, height, 9, 6)
        image = drawn(dtype, shape, height)
        assert np.asarray(given(image, weights)).tobytes() == np.asarray(bound(image)).tobytes()
