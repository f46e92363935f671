"""Programs of several computations, of other element types and of other access patterns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pytest
from compiled import Array, agreed, build, floats, poisoned, same_bits
from scipy import special

import offcut as oc
from offcut import Tensor
from tests.agree import agree, computed
from tests.facade import numpy_dtype

m, n = oc.dim("m", max=4096), oc.dim("n", max=4096)
X, Y = oc.placeholder((m, n), name="X"), oc.placeholder((m, n), name="Y")
G, B = oc.placeholder((n,), name="G"), oc.placeholder((n,), name="B")
W = oc.placeholder((n, 24), name="W")
r, s = oc.reduce_axis(n, "r"), oc.reduce_axis(n, "s")
ROWS, COLUMNS = [0, 1, 13, 15], [1, 7, 16, 17, 65]


def rowwise(fn: Callable[[Any], Any], name: str) -> Tensor:
    return oc.compute((m,), fn, name=name)


def pointwise(fn: Callable[[Any, Any], Any], name: str = "Z") -> Tensor:
    return oc.compute((m, n), fn, name=name)


@dataclass(frozen=True)
class Case:
    """A program over X and what else it reads, and the same in numpy, in float64."""

    output: Tensor
    inputs: tuple[Tensor, ...]
    reference: Callable[..., Any]


def softmax() -> Tensor:
    top = rowwise(lambda i: oc.max(X[i, r], axis=r), "top")
    e = pointwise(lambda i, j: oc.exp(X[i, j] - top[i]), "e")
    total = rowwise(lambda i: oc.sum(e[i, s], axis=s), "total")
    return pointwise(lambda i, j: e[i, j] / total[i], "soft")


def layernorm() -> Tensor:
    count = oc.cast(n, "float32")
    mean = rowwise(lambda i: oc.sum(X[i, r], axis=r) / count, "mean")
    centred = pointwise(lambda i, j: X[i, j] - mean[i], "centred")
    spread = rowwise(lambda i: oc.sum(centred[i, s] * centred[i, s], axis=s) / count, "spread")
    return pointwise(lambda i, j: centred[i, j] / oc.sqrt(spread[i] + 1e-5) * G[j] + B[j])


def normalised(x: Array, g: Array, b: Array) -> Array:
    centred = x - x.mean(axis=1, keepdims=True)
    result: Array = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5) * g + b
    return result


def shaped(shape: tuple[Any, ...], fn: Callable[..., Any]) -> Tensor:
    return oc.compute(shape, fn, name="Z")


relu = pointwise(lambda i, j: oc.maximum(X[i, j] + B[j], 0.0), "relu")
soft = softmax()
hidden = oc.compute(
    (m, 24), lambda i, c: oc.maximum(oc.sum(X[i, r] * W[r, c], axis=r), 0.0), name="hidden"
)
t = oc.reduce_axis(24, "t")
rows_of = oc.reduce_axis(m, "q")

CASES = {
    "softmax": Case(soft, (X,), lambda x: special.softmax(x, axis=1)),
    "layer norm": Case(layernorm(), (X, G, B), normalised),
    "mean": Case(
        rowwise(lambda i: oc.sum(X[i, r], axis=r) / oc.cast(n, "float32"), "Z"),
        (X,),
        lambda x: x.mean(axis=1),
    ),
    "mean of columns": Case(
        shaped((n,), lambda j: oc.sum(X[rows_of, j], axis=rows_of)), (X,), lambda x: x.sum(axis=0)
    ),
    "a producer before a contraction": Case(
        shaped((m, 24), lambda i, c: oc.sum(relu[i, r] * W[r, c], axis=r)),
        (X, B, W),
        lambda x, b, w: np.maximum(x + b, 0) @ w,
    ),
    "softmax before a contraction": Case(
        shaped((m, 24), lambda i, c: oc.sum(soft[i, r] * W[r, c], axis=r)),
        (X, W),
        lambda x, w: special.softmax(x, axis=1) @ w,
    ),
    "two contractions in a row": Case(
        pointwise(lambda i, j: oc.sum(hidden[i, t] * W[j, t], axis=t)),
        (X, W),
        lambda x, w: np.maximum(x @ w, 0) @ w.T,
    ),
    "transposed": Case(shaped((n, m), lambda j, i: X[i, j] * 2.0), (X,), lambda x: x.T * 2),
    "a border": Case(
        pointwise(lambda i, j: oc.where((i >= 1) & (j >= 1), X[i - 1, j - 1], 0.0)),
        (X,),
        lambda x: np.pad(x, ((1, 0), (1, 0)))[:-1, :-1],
    ),
    "three neighbours inside two borders": Case(
        pointwise(
            lambda i, j: (
                X[i, j] + oc.where(j >= 1, X[i, j - 1], 0.0) + oc.where(j + 1 < n, X[i, j + 1], 0.0)
            )
        ),
        (X,),
        lambda x: x + np.pad(x, ((0, 0), (1, 0)))[:, :-1] + np.pad(x, ((0, 0), (0, 1)))[:, 1:],
    ),
    "reversed": Case(
        pointwise(lambda i, j: X[m - 1 - i, n - 1 - j]), (X,), lambda x: x[::-1, ::-1]
    ),
    "every second column": Case(
        shaped((m, n // 2), lambda i, j: X[i, 2 * j]),
        (X,),
        lambda x: x[:, : 2 * (x.shape[1] // 2) : 2],
    ),
    "repeated columns": Case(
        shaped((m, 3 * n), lambda i, j: X[i, j // 3]), (X,), lambda x: x.repeat(3, axis=1)
    ),
    "a lower triangle": Case(
        pointwise(lambda i, j: oc.where(j <= i, X[i, j], 0.0)), (X,), lambda x: np.tril(x)
    ),
    "an axis of one": Case(
        shaped((m, 1, n), lambda i, o, j: X[i, j] + G[j]), (X, G), lambda x, g: (x + g)[:, None]
    ),
    "a total": Case(
        shaped((), lambda: oc.sum(X[rows_of, r], axis=(rows_of, r))), (X,), lambda x: x.sum()
    ),
    "a greatest element": Case(
        shaped((), lambda: oc.max(X[rows_of, r], axis=(rows_of, r))),
        (X,),
        lambda x: x.max(initial=-np.inf),
    ),
    "a least product": Case(
        rowwise(lambda i: oc.min(X[i, r] * G[r], axis=r), "Z"),
        (X, G),
        lambda x, g: (x * g).min(axis=1, initial=np.inf),
    ),
    "an expression before and after a sum": Case(
        rowwise(lambda i: oc.sqrt(oc.sum(oc.exp(X[i, r]) * G[r] * G[r], axis=r)), "Z"),
        (X, G),
        lambda x, g: np.sqrt((np.exp(x) * g * g).sum(axis=1)),
    ),
}


@pytest.mark.every(5)
@pytest.mark.parametrize(
    ("name", "strategies"),
    [
        ("softmax", ("auto", "shift", "pad", "guard", "cut")),
        ("layer norm", ("auto", "shift", "mask")),
        ("mean", ("auto", "balance")),
        ("mean of columns", ("auto", "shift")),
        ("a producer before a contraction", ("auto", "shift")),
        ("softmax before a contraction", ("shift",)),
        ("two contractions in a row", ("ladder", "shift")),
        ("transposed", ("auto", "shift")),
        ("a border", ("auto", "shift", "pad", "cut", "guard")),
        ("three neighbours inside two borders", ("auto", "shift")),
        ("reversed", ("auto", "pad")),
        ("every second column", ("auto", "cut")),
        ("repeated columns", ("auto",)),
        ("a lower triangle", ("auto", "balance")),
        ("an axis of one", ("auto", "shift")),
        ("a total", ("auto", "cut")),
        ("a greatest element", ("auto", "shift")),
        ("a least product", ("auto", "pad")),
        ("an expression before and after a sum", ("auto", "mask")),
    ],
)
def test_a_program_is_right_at_every_edge_size(name: str, strategies: tuple[str, ...]) -> None:
    case = CASES[name]
    kernels = {s: build(case.output, inputs=case.inputs, strategy=s) for s in strategies}
    for rows, columns in product(ROWS, COLUMNS):
        sizes = {"m": rows, "n": columns}
        arrays = [
            floats(each.name, *(sizes.get(str(size), 24) for size in each.shape))
            for each in case.inputs
        ]
        exact = computed(case.reference, *arrays)
        found = agreed({s: poisoned(f, exact.value.shape, *arrays) for s, f in kernels.items()})
        agree(found, exact)


def test_several_results_come_as_a_tuple_and_into_a_tuple() -> None:
    total = rowwise(lambda i: oc.sum(X[i, r], axis=r), "total")
    mean = rowwise(lambda i: total[i] / oc.cast(n, "float32"), "mean")
    shifted = pointwise(lambda i, j: X[i, j] - mean[i])
    kernel = build((shifted, mean), inputs=[X])
    for rows, columns in product(ROWS, COLUMNS):
        x = floats("x", rows, columns)
        outs = np.full((rows, columns), np.nan, "float32"), np.full(rows, np.nan, "float32")
        assert kernel(x, out=outs) is outs
        mean_of = computed(lambda x: x.mean(axis=1), x)
        agree(outs[1], mean_of)
        agree(outs[0], computed(lambda x: x - x.mean(axis=1)[:, None], x))
        for one, other in zip(kernel(x), outs, strict=True):
            np.testing.assert_array_equal(one, other)


def test_a_result_without_axes_is_an_array_without_axes() -> None:
    total = oc.compute((), lambda: oc.sum(X[rows_of, r], axis=(rows_of, r)), name="total")
    result = build(total, inputs=[X])(np.ones((3, 5), "float32"))
    assert isinstance(result, np.ndarray)
    assert result.shape == ()
    assert result.item() == 15.0


def test_an_input_without_axes_is_read() -> None:
    scale = oc.placeholder((), name="scale")
    kernel = build(pointwise(lambda i, j: X[i, j] * scale[()]), inputs=[X, scale])
    x = floats("x", 5, 17)
    np.testing.assert_array_equal(kernel(x, np.array(2.5, "float32")), x * np.float32(2.5))


def test_a_size_that_no_shape_has_goes_by_keyword() -> None:
    kernel = build(shaped((m, n), lambda i, j: B[j] + oc.cast(i, "float32")), inputs=[B])
    b = floats("b", 21)
    for rows in (0, 1, 9):
        found = poisoned(kernel, (rows, 21), b, m=rows)
        np.testing.assert_array_equal(found, b + np.arange(rows, dtype="float32")[:, None])


def test_a_program_without_inputs_fills_its_result() -> None:
    kernel = build(shaped((m, n), lambda i, j: oc.cast(3 * i - j, "int32")), inputs=[])
    for rows, columns in product((0, 1, 9), (1, 17, 40)):
        found = poisoned(kernel, (rows, columns), m=rows, n=columns)
        np.testing.assert_array_equal(found, 3 * np.arange(rows)[:, None] - np.arange(columns))


@pytest.mark.every(4)
@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_a_contraction_of_other_floats_is_right(dtype: str) -> None:
    k = oc.dim("k", max=4096)
    q = oc.reduce_axis(k, "q")
    wide = "float64" if dtype == "float64" else "float32"
    L, R = oc.placeholder((m, k), dtype, name="L"), oc.placeholder((k, n), dtype, name="R")
    H = pointwise(lambda i, j: oc.sum(oc.cast(L[i, q], wide) * oc.cast(R[q, j], wide), q), "H")
    Z = pointwise(lambda i, j: oc.cast(H[i, j], dtype))
    kernels = {s: build(Z, inputs=[L, R], strategy=s) for s in ("ladder", "shift", "pad", "guard")}
    step = {"float64": 2.0**-52, "float16": 2.0**-10, "bfloat16": 2.0**-7}[dtype]
    for rows, columns, depth in product((0, 1, 13, 15), (1, 8, 17), (0, 1, 21)):
        left = floats("l", rows, depth, dtype=dtype)
        right = floats("r", depth, columns, dtype=dtype)
        found = agreed({s: poisoned(f, (rows, columns), left, right) for s, f in kernels.items()})
        assert found.dtype == numpy_dtype(dtype)
        terms = left.astype("float64"), right.astype("float64")
        accumulated = np.finfo(wide).eps * (depth + 2) * (np.abs(terms[0]) @ np.abs(terms[1]))
        exact = terms[0] @ terms[1]
        assert np.all(np.abs(found.astype("float64") - exact) <= accumulated + step * abs(exact))


@pytest.mark.every(8)
@pytest.mark.parametrize("dtype", ["int8", "uint8", "uint16", "int32", "uint32", "int64"])
def test_a_contraction_of_integers_is_exact(dtype: str) -> None:
    k = oc.dim("k", max=4096)
    q = oc.reduce_axis(k, "q")
    wide = "int64" if dtype in ("int64", "uint32") else "int32"
    L, R = oc.placeholder((m, k), dtype, name="L"), oc.placeholder((k, n), dtype, name="R")
    Z = pointwise(lambda i, j: oc.sum(oc.cast(L[i, q], wide) * oc.cast(R[q, j], wide), q))
    kernels = {s: build(Z, inputs=[L, R], strategy=s) for s in ("auto", "shift", "pad")}
    generator = np.random.default_rng(5)
    info = np.iinfo(dtype)
    lo, hi = max(info.min, -(2**15)), min(info.max, 2**15)
    for rows, columns, depth in product((0, 1, 13), (1, 17), (0, 1, 40)):
        left = generator.integers(lo, hi, (rows, depth), endpoint=True).astype(dtype)
        right = generator.integers(lo, hi, (depth, columns), endpoint=True).astype(dtype)
        found = agreed({s: poisoned(f, (rows, columns), left, right) for s, f in kernels.items()})
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(found, left.astype(wide) @ right.astype(wide))


def test_coordinates_are_computed_with_before_they_are_converted() -> None:
    kernel = build(
        (
            pointwise(lambda i, j: oc.cast(oc.absolute(i - j), "float32"), "distance"),
            pointwise(lambda i, j: oc.cast(oc.where(i < 1, i, j), "float32"), "chosen"),
        ),
        inputs=[],
    )
    for rows, columns in ((1, 1), (3, 5), (5, 17), (15, 16)):
        i, j = np.indices((rows, columns))
        distance, chosen = kernel(m=rows, n=columns)
        np.testing.assert_array_equal(distance, abs(i - j))
        np.testing.assert_array_equal(chosen, np.where(i < 1, i, j))


def test_a_condition_denied_twice_holds() -> None:
    kernel = build(
        (
            pointwise(lambda i, j: oc.where(~(~(i > 0)), X[i - 1, j], 0.0), "above"),
            pointwise(lambda i, j: oc.where(~((i < 1) | ~(j > 0)), X[i - 1, j - 1], 0.0), "corner"),
        ),
        inputs=[X],
    )
    for rows, columns in ((1, 1), (3, 5), (14, 17)):
        x = floats("x", rows, columns)
        above, corner = kernel(x)
        np.testing.assert_array_equal(above, np.pad(x, ((1, 0), (0, 0)))[:-1])
        np.testing.assert_array_equal(corner, np.pad(x, ((1, 0), (1, 0)))[:-1, :-1])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_float64_is_rounded_once(dtype: str) -> None:
    D = oc.placeholder((n,), "float64", name="D")
    kernel = build(oc.compute((n,), lambda i: oc.cast(D[i], dtype), name="Z"), inputs=[D])
    generator = np.random.default_rng(9)
    near = 1 + 2.0 ** -np.arange(7, 14) + 2.0**-40  # just above halfway, for some
    edges = [1e300, -1e300, np.inf, -np.inf, 65504, 65520, 65519.99, 6e-8, 3e-8, 2.9e-8, 0.0, -0.0]
    spread = generator.standard_normal(200) * 10.0 ** generator.integers(-9, 5, 200)
    x = np.concatenate([near, -near, edges, spread])
    exact = x
    if dtype == "bfloat16":  # ml_dtypes rounds by way of float32, twice: 8 bits of each first
        fraction, exponent = np.frexp(x)
        exact = np.ldexp(np.rint(fraction * 256), exponent - 8)
    with np.errstate(over="ignore", under="ignore"):
        expected = exact.astype(numpy_dtype(dtype))
    assert same_bits(kernel(x), expected)


def test_both_zeros_are_kept_in_one_program() -> None:
    kernel = build(
        pointwise(lambda i, j: oc.where(X[i, j] > 0.0, 0.0, oc.cast(-0.0, "float32"))), inputs=[X]
    )
    x = floats("x", 5, 33)
    np.testing.assert_array_equal(np.signbit(kernel(x)), ~(x > 0))
