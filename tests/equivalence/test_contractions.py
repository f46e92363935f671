"""Contractions of any axis order against numpy in float64, at edge sizes, by every strategy."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import numpy as np
import pytest
from compiled import (
    BLOCK,
    STRATEGIES,
    Array,
    Contraction,
    agreed,
    build,
    contraction,
    floats,
    poisoned,
    same_bits,
)
from conftest import edge_sizes, slow

import offcut as oc
from offcut import Kernel
from tests.agree import agree, exact_matmul

ROWS = edge_sizes(BLOCK)
COLUMNS = [0, 1, 15, 16, 17, 53, 80]
DEPTHS = [0, 1, 5, 37]


def arrays_at(what: Contraction, sizes: Mapping[str, int]) -> list[Array]:
    left = what.spec.split("->")[0]
    return [
        floats(number, *(sizes[letter] for letter in letters))
        for number, letters in enumerate(left.split(","))
    ]


def shape_at(what: Contraction, sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(sizes[letter] for letter in what.spec.split("->")[1])


def checked(what: Contraction, kernels: Mapping[str, Kernel], sizes: Mapping[str, int]) -> Array:
    arrays, shape = arrays_at(what, sizes), shape_at(what, sizes)
    result = agreed({name: poisoned(kernel, shape, *arrays) for name, kernel in kernels.items()})
    what.check(result, arrays)
    return result


@pytest.mark.parametrize("spec", ["mk,kn->mn", slow("km,nk->mn")])
def test_every_strategy_gives_the_same_bits_at_every_edge_size(spec: str) -> None:
    what = contraction(spec)
    kernels = {s: build(what.result, inputs=what.inputs, strategy=s) for s in STRATEGIES}
    for m, n, k in product(ROWS, COLUMNS, DEPTHS):
        checked(what, kernels, {"m": m, "n": n, "k": k})


@pytest.mark.every(4)
@pytest.mark.parametrize(
    ("spec", "k", "n"),
    [
        ("mk,kn->mn", 37, 53),
        ("mk,nk->mn", 1, 16),
        slow("mk,kn->mn", 1, 16),
        slow("mk,nk->mn", 37, 53),
    ],
)
def test_a_packed_constant_changes_no_bit(spec: str, k: int, n: int) -> None:
    what = contraction(spec, {"k": k, "n": n})
    w = arrays_at(what, {"m": 1, "k": k, "n": n})[1]
    packed = {
        s: build(what.result, inputs=what.inputs, constants={"B": w}, strategy=s)
        for s in STRATEGIES
    }
    plain = build(what.result, inputs=what.inputs, strategy="ladder")
    for m in ROWS:
        x = floats("x", *({"m": m, "k": k}[letter] for letter in spec.split(",")[0]))
        result = agreed({s: poisoned(kernel, (m, n), x) for s, kernel in packed.items()})
        what.check(result, [x, w])
        assert same_bits(result, plain(x, w))


@pytest.mark.every(8)
@pytest.mark.parametrize(
    ("spec", "strategies"),
    [
        ("bmk,bkn->bmn", ("auto", "shift")),
        slow("bij,bkj->bik", ("auto", "mask")),
        ("bmk,kn->bmn", ("ladder", "balance")),
        slow("mbk,bkn->nbm", ("ladder", "pad")),
        slow("abmk,bakn->abmn", ("ladder", "cut")),
        ("mk,kn->nm", ("ladder", "shift", "guard")),
        slow("km,kn->nm", ("balance", "ladder")),
        ("mkl,lkn->mn", ("ladder", "pad")),
        ("mk,k->m", STRATEGIES),
        ("k,kn->n", ("auto", "mask", "shift", "guard")),
        ("km,k->m", ("auto", "pad")),
        ("k,k->", ("auto", "cut")),
        ("mk,mk->m", ("auto", "balance")),
        ("m,n->mn", ("auto", "shift")),
        ("mk->m", ("auto", "ladder")),
        ("km->m", ("auto", "shift")),
        ("mk->", ("auto",)),
        ("mk,kn,m->mn", ("ladder", "shift")),
        ("mn,mn->mn", ("auto", "pad")),
        ("mk,kn->m", ("ladder", "cut")),
    ],
)
def test_any_order_of_axes_is_right_at_every_edge_size(
    spec: str, strategies: tuple[str, ...]
) -> None:
    what = contraction(spec)
    kernels = {s: build(what.result, inputs=what.inputs, strategy=s) for s in strategies}
    letters = sorted(set(spec) - set(",->"))
    edges = {"m": ROWS, "i": ROWS, "n": [0, 1, 16, 33], "k": [0, 1, 19], "j": [0, 1, 19]}
    edges |= {"b": [0, 1, 3], "a": [2], "l": [0, 1, 3]}
    for values in product(*(edges[letter] for letter in letters)):
        checked(what, kernels, dict(zip(letters, values, strict=True)))


@pytest.mark.every(4)
@pytest.mark.parametrize("letter", ["m", "n", "k"])
def test_a_constant_extent_is_right_whatever_it_is(letter: str) -> None:
    for extent in (1, 13, 17):
        what = contraction("mk,kn->mn", {letter: extent})
        kernels = {s: build(what.result, inputs=what.inputs, strategy=s) for s in ("mask", "shift")}
        for size in (0, 1, 15, 40):
            checked(what, kernels, {"m": size, "n": size, "k": size} | {letter: extent})


def test_the_first_operand_may_be_the_constant() -> None:
    what = contraction("mk,kn->mn", {"m": 29, "k": 37})
    a = floats("a", 29, 37)
    kernels = {
        s: build(what.result, inputs=what.inputs, constants={"A": a}, strategy=s)
        for s in ("auto", "guard", "shift")
    }
    for n in COLUMNS:
        b = floats("b", 37, n)
        what.check(agreed({s: poisoned(f, (29, n), b) for s, f in kernels.items()}), [a, b])


def test_both_operands_may_be_constant() -> None:
    what = contraction("mk,kn->mn", {"m": 5, "k": 7, "n": 19})
    a, b = floats("a", 5, 7), floats("b", 7, 19)
    kernel = build(what.result, inputs=what.inputs, constants={"A": a, "B": b})
    what.check(kernel(), [a, b])


def test_a_batch_of_constants_is_packed_each_for_itself() -> None:
    what = contraction("bmk,bkn->bmn", {"b": 3, "k": 21, "n": 35})
    b = floats("b", 3, 21, 35)
    kernels = {
        s: build(what.result, inputs=what.inputs, constants={"B": b}, strategy=s)
        for s in ("auto", "cut", "shift")
    }
    for m in ROWS:
        a = floats("a", 3, m, 21)
        what.check(agreed({s: poisoned(f, (3, m, 35), a) for s, f in kernels.items()}), [a, b])


AXES = [
    {"m": "shift", "n": "mask"},
    {"m": "balance", "n": "cut"},
    {"m": "pad", "n": "ladder", "k": "cut"},
    {"m": "cut", "n": "shift", "k": "mask"},
    {"m": "mask", "n": "pad", "k": "pad"},
    {"m": "guard", "n": "balance", "k": "guard"},
    {"n": "shift"},
    {"k": "cut"},
    {},
]


@pytest.mark.every(8)
@pytest.mark.parametrize("axes", AXES, ids=lambda axes: "-".join(axes.values()) or "none")
def test_a_strategy_by_axis_changes_no_bit(axes: dict[str, str]) -> None:
    what = contraction("mk,kn->mn", {"k": 300})
    asked = build(what.result, inputs=what.inputs, strategy=axes)
    plain = build(what.result, inputs=what.inputs, strategy="ladder")
    for m, n in product(ROWS, COLUMNS):
        checked(what, {"asked": asked, "ladder": plain}, {"m": m, "n": n, "k": 300})


def test_exact_runs_full_tiles_where_the_sizes_are_multiples() -> None:
    m = oc.dim("m", max=4096, multiple_of=6)
    A, B = oc.placeholder((m, 9), name="A"), oc.placeholder((9, 32), name="B")
    k = oc.reduce_axis(9, "k")
    C = oc.compute((m, 32), lambda i, j: oc.sum(A[i, k] * B[k, j], axis=k), name="C")
    kernel = build(C, inputs=[A, B], strategy={"i": "exact"})
    plain = build(C, inputs=[A, B])
    b = floats("b", 9, 32)
    for rows in (0, 6, 12, 42):
        a = floats("a", rows, 9)
        assert same_bits(poisoned(kernel, (rows, 32), a, b), plain(a, b))
        agree(plain(a, b), exact_matmul(a, b))


def test_sizes_in_formulas_are_right_at_every_edge_size() -> None:
    m, n = oc.dim("m", max=400), oc.dim("n", max=400)
    A = oc.placeholder((2 * m + 1, n // 2), name="A")
    B = oc.placeholder((n // 2, 3 * m), name="B")
    D = oc.placeholder((n,), name="D")
    k = oc.reduce_axis(n // 2, "k")
    C = oc.compute(
        (2 * m + 1, 3 * m), lambda i, j: oc.sum(A[i, k] * B[k, j] * D[2 * k], axis=k), name="C"
    )
    kernels = {s: build(C, inputs=[A, B, D], strategy=s) for s in ("ladder", "shift", "cut")}
    for rows, depth in product((0, 1, 6, 7, 21), (0, 1, 2, 9, 40)):
        a, b = floats("a", 2 * rows + 1, depth // 2), floats("b", depth // 2, 3 * rows)
        d = floats("d", depth)
        shape = (2 * rows + 1, 3 * rows)
        found = agreed({s: poisoned(f, shape, a, b, d) for s, f in kernels.items()})
        exact = exact_matmul(a, d[: 2 * (depth // 2) : 2], b, spec="ik,k,kj->ij")
        agree(found, exact)


@pytest.mark.every(4)
@pytest.mark.parametrize("strategy", ["auto", "pad", "shift", "mask", "guard"])
def test_infinity_and_nan_stay_in_their_row_and_column(strategy: str) -> None:
    what = contraction("mk,kn->mn", {"k": 37, "n": 53})
    b = floats("b", 37, 53)
    b[36, 52], b[:, 7] = np.inf, np.nan
    packed = build(what.result, inputs=what.inputs, constants={"B": b}, strategy=strategy)
    plain = build(what.result, inputs=what.inputs, strategy=strategy)
    for m in (1, 13, 15, 29):
        a = floats("a", m, 37)
        a[m - 1, 3], a[0, 36] = -np.inf, 0.0
        with np.errstate(invalid="ignore"):
            exact = a.astype("float64") @ b.astype("float64")
        for result in (poisoned(packed, (m, 53), a), poisoned(plain, (m, 53), a, b)):
            np.testing.assert_array_equal(np.isnan(result), np.isnan(exact))
            np.testing.assert_array_equal(np.isposinf(result), np.isposinf(exact))
            np.testing.assert_array_equal(np.isneginf(result), np.isneginf(exact))


@pytest.mark.slow
def test_large_sizes_cross_every_cache_group() -> None:
    what = contraction("mk,kn->mn")
    kernels = {s: build(what.result, inputs=what.inputs, strategy=s) for s in ("auto", "cut")}
    for m, n, k in ((129, 3000, 771), (511, 1025, 1000), (1, 4096, 4096), (2000, 17, 3)):
        checked(what, kernels, {"m": m, "n": n, "k": k})
