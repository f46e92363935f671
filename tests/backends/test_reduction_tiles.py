"""Tiles of a reduction loop: whatever the strategy, its terms are added once, in their order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import offcut as oc
from offcut import Tensor

TILE = 5
DEPTHS = (0, 1, TILE - 1, TILE, TILE + 1, 3 * TILE + 5)
ASCENDING = ("cut", "guard", "mask", "pad", "ladder", "balance", "even", "residue", "version")
WIDE = {"float32": "float32", "float64": "float64", "int8": "int32", "bfloat16": "float32"}
n, m, depth = (oc.dim(name, max=64) for name in ("n", "m", "K"))


def described(dtype: str) -> Tensor:
    """A B, the terms in a type as wide as the sum."""
    A, B = oc.placeholder((n, depth), dtype, "A"), oc.placeholder((depth, m), dtype, "B")
    k, wide = oc.reduce_axis(depth, "k"), WIDE[dtype]
    return oc.compute(
        (n, m),
        lambda i, j: oc.sum(oc.cast(A[i, k], wide) * oc.cast(B[k, j], wide), axis=k),
        name="C",
    )


def written(dtype: str, start: str) -> oc.Program:
    """A B as loops, each element starting from `start`."""
    wide = WIDE[dtype]
    a, b = (one if wide == dtype else f"{wide}({one})" for one in ("A[i, k]", "B[k, j]"))
    return oc.parse(f"""\
program product
size n in 0:65
size m in 0:65
size K in 0:65
input A: {dtype}[n, K]
input B: {dtype}[K, m]
output C: {wide}[n, m]
for i in 0:n
  for j in 0:m
    C[i, j] = {start}
    for k in 0:K
      C[i, j] += {a} * {b}
""")


def operands(dtype: str, rows: int, terms: int, columns: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(terms)
    made = []
    for shape in ((rows, terms), (terms, columns)):
        if dtype == "int8":
            made.append(rng.integers(-128, 128, shape).astype(np.int8))
        else:
            kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
            made.append(rng.integers(-8, 9, shape).astype(kind))  # sums are exact
    return made[0], made[1]


def check(what: Any, dtype: str, start: float, tile: dict[str, int], tail: Any) -> None:
    """The cut program, interpreted and compiled, gives what numpy gives, to the bit."""
    made = oc.partition(what, tile=tile, tail=tail)
    assert {"disjoint", "covering", "ascending"} <= {t.name for t in made.prove().theorems}
    kernel = oc.compile(made.loops)
    for terms in DEPTHS:
        for rows, columns in ((1, 1), (5, 17)):
            a, b = operands(dtype, rows, terms, columns)
            wanted = (a.astype(WIDE[dtype]) @ b.astype(WIDE[dtype]) + start).astype(WIDE[dtype])
            poisoned = np.full_like(wanted, 77)
            assert np.array_equal(kernel(a, b, out=poisoned), wanted), (terms, rows, columns)
        assert np.array_equal(made.run({"A": a, "B": b}), wanted), terms


FORMS: dict[str, tuple[Callable[[str], Any], float]] = {
    "described": (described, 0.0),
    "text": (lambda dtype: written(dtype, "0.0" if "float" in WIDE[dtype] else "0"), 0.0),
    "text from three": (
        lambda dtype: written(dtype, "3.0" if "float" in WIDE[dtype] else "3"),
        3.0,
    ),
}
SLOW = pytest.mark.slow


@pytest.mark.every(8)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "dtype", [pytest.param(d, marks=() if d == "float32" else SLOW) for d in WIDE]
)
@pytest.mark.parametrize("tail", [*ASCENDING, pytest.param("mix", marks=SLOW)])
def test_terms_in_tiles_add_up_to_the_same(form: str, dtype: str, tail: str) -> None:
    make, start = FORMS[form]
    check(make(dtype), dtype, start, {"k": TILE}, tail)


@pytest.mark.parametrize("tail", ["even", "mix", *(pytest.param(t, marks=SLOW) for t in ASCENDING)])
def test_compile_takes_a_strategy_for_the_terms(tail: str) -> None:
    deep = oc.dim("deep", max=1000)
    A, B = oc.placeholder((n, deep), name="A"), oc.placeholder((deep, 20), name="B")
    k = oc.reduce_axis(deep, "k")
    C = oc.compute((n, 20), lambda i, j: oc.sum(A[i, k] * B[k, j], axis=k), name="C")
    whole, cut = oc.compile(C), oc.compile(C, strategy={"k": tail})
    for terms in (0, 1, 255, 256, 257, 773):
        rng = np.random.default_rng(terms)
        a = rng.standard_normal((5, terms), np.float32)
        b = rng.standard_normal((terms, 20), np.float32)
        assert cut(a, b).tobytes() == whole(a, b).tobytes(), terms
