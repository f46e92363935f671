"""`guard`: loops of the full extents of their tiles, as vectors, with the conditions inside; the bits of every other strategy."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from conftest import slow

import offcut as oc
from offcut.core import index as ix
from offcut.ir import Form, Tile, walk

Case = tuple[oc.Tensor, list[oc.Tensor], list[tuple[tuple[int, ...], ...]]]


def dense() -> Case:
    n, m = oc.dim("n", max=300), oc.dim("m", max=300)
    a, b = oc.placeholder((n, 24), name="A"), oc.placeholder((24, m), name="B")
    sizes = ((0, 3), (1, 1), (13, 63), (14, 64), (15, 65), (43, 197))
    return oc.ops.matmul(a, b), [a, b], [((rows, 24), (24, columns)) for rows, columns in sizes]


def convolution() -> Case:
    h, w = oc.dim("h", max=99), oc.dim("w", max=99)
    image, kernel = oc.placeholder((2, 3, h, w), name="X"), oc.placeholder((18, 3, 3, 3), name="W")
    shapes = [
        ((2, 3, rows, columns), (18, 3, 3, 3)) for rows, columns in ((1, 1), (3, 14), (5, 29))
    ]
    return oc.ops.conv2d(image, kernel, padding=1), [image, kernel], shapes


def softmax() -> Case:
    n, m = oc.dim("n", max=300), oc.dim("m", min=1, max=300)
    x = oc.placeholder((n, m), name="X")
    return (
        oc.ops.softmax(x),
        [x],
        [((rows, columns),) for rows, columns in ((1, 1), (3, 65), (9, 128))],
    )


def by_elements() -> Case:
    n, m = oc.dim("n", max=300), oc.dim("m", max=300)
    x = oc.placeholder((n, m), name="X")
    doubled = oc.compute((n, m), lambda i, j: x[i, j] * 2.0 + 1.0, name="Y")
    return (
        doubled,
        [x],
        [((rows, columns),) for rows, columns in ((0, 5), (1, 63), (7, 64), (5, 130))],
    )


def columns_of_rows() -> Case:
    n, m = oc.dim("n", max=300), oc.dim("m", max=300)
    a, b = oc.placeholder((n, 24), name="A"), oc.placeholder((m, 24), name="B")
    k = oc.reduce_axis(24, name="k")
    made = oc.compute((n, m), lambda i, j: oc.sum(a[i, k] * b[j, k], axis=k), name="C")
    return (
        made,
        [a, b],
        [((rows, 24), (columns, 24)) for rows, columns in ((1, 1), (15, 65), (30, 40))],
    )


CASES: Sequence[Callable[[], Case]] = (dense, convolution, softmax, by_elements, columns_of_rows)


@pytest.mark.every(2)
@pytest.mark.parametrize("case", CASES)
def test_guarded_tiles_give_the_bits_of_every_other_strategy(case: Callable[[], Case]) -> None:
    described, inputs, shapes = case()
    guard, auto = (oc.compile(described, inputs=inputs, strategy=s) for s in ("guard", "auto"))
    rng = np.random.default_rng(0)
    for one in shapes:
        arrays = [rng.standard_normal(shape, dtype=np.float32) for shape in one]
        np.testing.assert_array_equal(guard(*arrays), auto(*arrays))


def test_a_tile_is_loops_of_its_full_extents_around_one_condition() -> None:
    described, inputs, _ = dense()
    kernel = oc.compile(described, inputs=inputs, strategy="guard")
    (tile,) = (stmt for stmt in walk(kernel.loops.body) if isinstance(stmt, Tile))
    assert (tile.form, tile.microkernel) == (Form.GUARD, None)
    assert all(ix.literal_value(axis.extent) for axis in tile.axes)
    text = kernel.source("loops")
    assert re.search(r"where i < n and j < m  @body  @guard", text)
    assert " if " not in text
    assert "(n + " in text  # so many tiles as touch the rows: the last one, too, is a full one
    assert oc.parse(text) == kernel.loops


def test_the_columns_are_vectors_under_a_mask_and_each_row_asks_once() -> None:
    described, inputs, _ = dense()
    text = oc.compile(described, inputs=inputs, strategy="guard").source("llvm")
    loads = [line for line in text.splitlines() if "call" in line and "@llvm.masked.load" in line]
    assert loads
    assert all(re.search(r"<\d+ x i1>", line) for line in loads)
    fused = [line for line in text.splitlines() if "= call <" in line and "@llvm.fma" in line]
    assert fused or re.search(r"= fmul (\w+ )*<\d+ x float>", text), "of a host without fma"


def test_the_plan_says_why_no_microkernel_computes_guarded_tiles() -> None:
    described, inputs, _ = dense()
    plan = oc.compile(described, inputs=inputs, strategy="guard").plan(n=30, m=70)
    assert [piece.microkernel for piece in plan.pieces] == ["vector loops"]
    assert [piece.instances for piece in plan.pieces] == [30 * 70 * 24]
    assert "its loops ask a condition in each instance" in str(plan)


# Tiles of a reduction loop: whatever the strategy, its terms are added once, in their order.


TILE = 5
DEPTHS = (0, 1, TILE - 1, TILE, TILE + 1, 3 * TILE + 5)
ASCENDING = ("cut", "guard", "mask", "pad", "ladder", "balance", "even", "residue", "version")
WIDE = {"float32": "float32", "float64": "float64", "int8": "int32", "bfloat16": "float32"}
n, m = (oc.dim(name, max=64) for name in ("n", "m"))


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


def check(what: oc.Program, dtype: str, tile: dict[str, int], tail: str) -> None:
    """The cut program, interpreted and compiled, gives what numpy gives, to the bit."""
    made = oc.partition(what, tile=tile, tail=tail)
    assert {"disjoint", "covering", "ascending"} <= {t.name for t in made.prove().theorems}
    kernel = oc.compile(made.loops)
    for terms in DEPTHS:
        for rows, columns in ((1, 1), (5, 17)):
            a, b = operands(dtype, rows, terms, columns)
            wanted = (a.astype(WIDE[dtype]) @ b.astype(WIDE[dtype]) + 3).astype(WIDE[dtype])
            poisoned = np.full_like(wanted, 77)
            assert np.array_equal(kernel(a, b, out=poisoned), wanted), (terms, rows, columns)
        assert np.array_equal(made.run({"A": a, "B": b}), wanted), terms


@pytest.mark.every(3)
@pytest.mark.parametrize(("tail", "dtype"), [*zip(ASCENDING, 3 * [*WIDE], strict=False)])
def test_terms_in_tiles_add_up_to_the_same(tail: str, dtype: str) -> None:
    check(written(dtype, "3.0" if "float" in WIDE[dtype] else "3"), dtype, {"k": TILE}, tail)


@pytest.mark.parametrize("tail", ["even", slow("mix"), slow("pad")])
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
