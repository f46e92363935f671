"""Attention and softmax at every edge size, masked, causal, and of every type of floats."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from compiled import Array, floats
from conftest import edge_sizes, slow
from operators import Operator, near, wide
from scipy import special

import offcut as oc
from offcut import ops
from tests.agree import agree
from tests.facade import numpy_dtype

LENGTHS = edge_sizes(16)
WIDTH = 8

b, h, m, n = (oc.dim(name, max=4096) for name in "bhmn")


def operands(dtype: str = "float32", leading: tuple[Any, ...] = (b, h)) -> list[Any]:
    return [
        oc.placeholder((*leading, length, WIDTH), dtype, name)
        for name, length in (("Q", m), ("K", n), ("V", n))
    ]


def values(queries: int, keys: int, dtype: str = "float32", *leading: int) -> list[Array]:
    return [
        floats(name, *leading, length, WIDTH, dtype=dtype)
        for name, length in (("q", queries), ("k", keys), ("v", keys))
    ]


def attended(arrays: list[Array], added: Any = 0.0, scale: float = WIDTH**-0.5) -> Array:
    """The formula in float64; of a row that attends to nothing, zeros."""
    q, k, v = wide(*arrays)
    scores = scale * np.einsum("...id,...jd->...ij", q, k) + added
    greatest = np.max(scores, axis=-1, keepdims=True, initial=-1e300)
    weights = np.exp(scores - greatest)
    total = np.maximum(weights.sum(-1, keepdims=True), 1)
    return np.asarray(np.einsum("...ij,...jd->...id", weights / total, v))


def test_attention_is_right_for_any_number_of_queries_and_keys() -> None:
    inputs = operands()
    op = Operator(ops.attention(*inputs), inputs)
    for queries, keys in [*product(LENGTHS, (0, 1, 17, 53)), *product((1, 17), LENGTHS)]:
        arrays = values(queries, keys, "float32", 2, 3)
        op.check(arrays, attended(arrays), interpreted=(queries, keys) == (1, 17))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bfloat16", slow("float64"), slow("float16")])
def test_attention_of_other_floats_keeps_scores_in_float32_or_wider(dtype: str) -> None:
    inputs = operands(dtype)
    op = Operator(ops.attention(*inputs), inputs)
    for queries, keys in [(1, 1), (15, 17), (17, 53)]:
        arrays = values(queries, keys, dtype, 2, 3)
        exact = attended(arrays)
        if dtype == "float64":
            op.check(arrays, exact, interpreted=queries == 1)
        else:  # the weights are rounded, each to half a unit, before the values are mixed
            found = op.kernel(*arrays)
            assert found.dtype == numpy_dtype(dtype)
            agree(
                found, exact, terms=np.abs(wide(arrays[2])[0]).max(initial=0.0), units=1, sums=dtype
            )


MASKS = {
    "of the keys": (b, 1, 1, n),
    "of the scores": (m, n),
    "of everything": (b, h, m, n),
    "of one key for all": (n,),
}


@pytest.mark.parametrize(
    ("which", "dtype"),
    [
        slow("of the keys", "uint8"),
        *(slow(which, "float32") for which in MASKS),
        slow("of the scores", "bfloat16"),
    ],
)
def test_a_mask_is_added_or_chooses(which: str, dtype: str) -> None:
    shape = MASKS[which]
    inputs = [*operands(), oc.placeholder(shape, dtype, "M")]
    op = Operator(ops.attention(*inputs), inputs)
    for queries, keys in [(1, 1), (15, 17), (17, 53)]:
        arrays = values(queries, keys, "float32", 2, 3)
        sizes = {b: 2, h: 3, m: queries, n: keys}
        own = tuple(sizes.get(size, size) for size in shape)
        generator = np.random.default_rng(keys)
        chosen = generator.random(own) < 0.6
        mask = chosen.astype("uint8")
        if dtype != "uint8":
            mask = np.where(chosen, generator.standard_normal(own), -np.inf).astype(
                numpy_dtype(dtype)
            )
        added = mask.astype("float64") if dtype != "uint8" else np.where(chosen, 0.0, -np.inf)
        op.check([*arrays, mask], attended(arrays, added), interpreted=keys == 1)


@pytest.mark.parametrize("dtype", ["uint8", slow("float32")])
def test_what_a_mask_leaves_out_reaches_no_query(dtype: str) -> None:
    inputs = [*operands(leading=(b,)), oc.placeholder((m, n), dtype, "M")]
    op = Operator(ops.attention(*inputs, causal=dtype != "uint8", past=8), inputs)
    arrays = values(15, 17, "float32", 2)
    chosen = np.random.default_rng(5).random((15, 17)) < 0.6
    chosen[3] = False
    arrays[1][:, 9] = np.nan
    arrays[2][:, 4, 3] = np.nan
    arrays[2][1, 6] = -np.inf
    mask = chosen.astype("uint8") if dtype == "uint8" else np.where(chosen, 0, -np.inf)
    if dtype != "uint8":
        chosen &= np.arange(17) <= np.arange(15)[:, None] + 8
    q, k, v = wide(*arrays)
    exact = np.zeros((2, 15, WIDTH))
    for head, row in product(range(2), range(15)):
        own = chosen[row]
        if own.any():
            scores = q[head, row] @ k[head, own].T / WIDTH**0.5
            weights = np.exp(scores - scores.max())
            exact[head, row] = weights / weights.sum() @ v[head, own]
    assert 0 < np.isfinite(exact).sum() < exact.size
    op.check([*arrays, mask.astype(dtype)], exact, interpreted=dtype == "uint8")


def test_nan_in_one_query_stays_in_its_row() -> None:
    inputs = operands()
    op = Operator(ops.attention(*inputs), inputs)
    arrays = values(15, 17, "float32", 2, 3)
    arrays[0][1, 2, 14, 3] = np.nan
    found = op.kernel(*arrays)
    assert np.isnan(found[1, 2, 14]).all()
    assert np.isnan(found).sum() == WIDTH


@pytest.mark.slow
def test_values_may_have_a_width_and_scores_a_scale_of_their_own() -> None:
    q, k, _ = operands()
    v = oc.placeholder((b, h, n, 5), name="V")
    op = Operator(ops.attention(q, k, v, scale=0.25), [q, k, v])
    arrays = values(15, 17, "float32", 2, 3)
    arrays[2] = arrays[2][..., :5].copy()
    op.check(arrays, attended(arrays, scale=0.25))


SOFTMAX = {"softmax": special.softmax, "log_softmax": special.log_softmax}


@pytest.mark.every(4)
@pytest.mark.parametrize("axis", [-1, 0, 1])
@pytest.mark.parametrize("which", SOFTMAX)
def test_softmax_is_right_along_any_axis_of_any_length(which: str, axis: int) -> None:
    x = oc.placeholder((b, m, n), name="X")
    op = Operator(getattr(ops, which)(x, axis), [x])
    for length, other in [*product(LENGTHS, (1, 17)), (17, 0)]:
        shape = [2, other, other]
        shape[axis] = length
        a = 5 * floats("a", *shape)
        exact = SOFTMAX[which](*wide(a), axis=axis) if a.size else a.astype("float64")
        op.check([a], exact, interpreted=(length, other) == (17, 1))


@pytest.mark.every(8)
@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
@pytest.mark.parametrize("which", SOFTMAX)
def test_softmax_of_other_floats_is_rounded_once(which: str, dtype: str) -> None:
    x = oc.placeholder((m, n), dtype, "X")
    op = Operator(getattr(ops, which)(x), [x])
    for shape in [(1, 1), (3, 17), (17, 53)]:
        a = 3 * floats("a", *shape, dtype=dtype)
        op.check([a], SOFTMAX[which](*wide(a), axis=-1), interpreted=shape == (1, 1))


def test_large_and_infinite_elements_do_as_the_formula_says() -> None:
    x = oc.placeholder((m, n), name="X")
    op = Operator(ops.softmax(x), [x])
    a = np.zeros((4, 19), "float32")
    a[0], a[1, 3], a[2], a[3, 5] = 1e30, -np.inf, -np.inf, np.nan
    found = op.kernel(a)
    near(found[0], np.full(19, 1 / 19))
    assert found[1, 3] == 0
    assert np.isnan(found[2:]).all()


@pytest.mark.parametrize("dtype", ["float32", slow("bfloat16")])
def test_heads_of_queries_share_keys_and_look_at_those_before(dtype: str) -> None:
    q = oc.placeholder((b, 6, m, WIDTH), dtype, "Q")
    k, v = (oc.placeholder((b, 2, m + n, WIDTH), dtype, name) for name in "KV")
    mask = oc.placeholder((m, 1), "float32", "M")
    op = Operator(ops.attention(q, k, v, mask, causal=True, past=n), [q, k, v, mask])
    for queries, past in [*product(LENGTHS, (0, 17)), (1, 53), (17, 1)]:
        arrays = [
            floats("q", 2, 6, queries, WIDTH, dtype=dtype),
            *(floats(s, 2, 2, queries + past, WIDTH, dtype=dtype) for s in "kv"),
        ]
        seen = np.arange(queries + past) <= np.arange(queries)[:, None] + past
        added = floats("m", queries, 1)
        spread = [arrays[0], *(np.repeat(one, 3, axis=1) for one in arrays[1:])]
        exact = attended(spread, np.where(seen, added, -np.inf))
        if dtype == "float32":
            op.check([*arrays, added], exact, interpreted=(queries, past) == (1, 17))
        else:
            found = op.kernel(*arrays, added)
            agree(
                found, exact, terms=np.abs(wide(arrays[2])[0]).max(initial=0.0), units=1, sums=dtype
            )
