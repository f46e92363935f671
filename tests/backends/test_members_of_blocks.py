"""Lanes that read in blocks, ``4*(j//4) + r``: a vector is loaded for all members, nothing past the last, nothing where lanes are off."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from compiled import Array
from guarded import before_a_wall, behind_a_wall

import offcut as oc
from offcut.core.dtypes import numpy_dtype

TYPES = ["float32", "float64", "bfloat16", "float16", "int8", "int32", "int64"]
BLOCKS = [2, 4, 8]
EXTENTS = [8, 16, 24, 40, 64, 72, 136]

SUMS = """program sums
size n in 1:100
size m in 1:100
input A: {dtype}[{rows}]
input W: {dtype}[n, {block}, {width}]
output B: {dtype}[n, {width}]
for i in 0:n
  for j in 0:{width}
    B[i, j] = {zero}
    for r in 0:{terms}
      B[i, j] += {term}
"""


def compiled(
    width: int,
    block: int,
    terms: int | None = None,
    *,
    dtype: str = "float32",
    rows: str = "n, {width}",
    term: str = "A[i, {block}*(j//{block}) + r] - W[i, r, j]",
) -> oc.Kernel:
    """A kernel of `SUMS`."""
    known = {"dtype": dtype, "width": width, "block": block, "terms": terms or block}
    zero = "0" if "int" in dtype else "0.0"
    parts = {"rows": rows.format(**known), "term": term.format(**known), "zero": zero}
    text = SUMS.format(**known, **parts)
    return oc.compile(oc.parse(text if "m" in rows else text.replace("size m in 1:100\n", "")))


def expected(a: Array, w: Array, block: int, terms: int) -> Array:
    j = np.arange(a.shape[1])
    wide = "float64" if a.dtype.kind not in "iu" else a.dtype
    parts = (
        a.astype(wide)[:, block * (j // block) + r] - w.astype(wide)[: len(a), r]
        for r in range(terms)
    )
    return np.asarray(sum(parts)).astype(a.dtype)


def drawn(seed: int, dtype: str, *shape: int) -> Array:
    made: Array = np.random.default_rng(seed).integers(-4, 5, shape).astype(numpy_dtype(dtype))
    return made


@pytest.mark.parametrize(
    ("dtype", "block"), [*((dtype, 4) for dtype in TYPES), ("float32", 2), ("float32", 8)]
)
def test_each_member_of_a_block_is_read(dtype: str, block: int) -> None:
    for width in EXTENTS:
        a, w = drawn(width, dtype, 3, width), drawn(1, dtype, 3, block, width)
        found = compiled(width, block, dtype=dtype)(a, w)
        np.testing.assert_array_equal(found, expected(a, w, block, block))


@pytest.mark.parametrize("wall", [before_a_wall, behind_a_wall])
@pytest.mark.parametrize("block", BLOCKS)
def test_rows_that_are_not_asked_for_are_not_touched(
    wall: Callable[[Array], Array], block: int
) -> None:
    term = "where(i < m, A[i, {block}*(j//{block}) + r] - W[i, r, j], 0.0)"
    for width in EXTENTS:
        kernel = compiled(width, block, rows="m, {width}", term=term)
        for n, m in ((1, 1), (5, 3), (6, 5)):
            a, w = drawn(n, "float32", m, width), drawn(m, "float32", n, block, width)
            found = kernel(wall(a), w, n=n)
            np.testing.assert_array_equal(found[:m], expected(a, w, block, block))
            assert not found[m:].any()


@pytest.mark.parametrize("block", BLOCKS)
def test_a_member_that_no_term_reads_is_not_touched(block: int) -> None:
    term = "A[{width}*i + {block}*(j//{block}) + r] - W[i, r, j]"
    for width in EXTENTS:
        kernel = compiled(width, block, block - 1, rows="n*{width} - 1", term=term)
        for n in (1, 4):
            a, w = drawn(n, "float32", n, width), drawn(2, "float32", n, block, width)
            found = kernel(before_a_wall(a.reshape(-1)[:-1].copy()), w)
            np.testing.assert_array_equal(found, expected(a, w, block, block - 1))


def test_a_member_that_a_condition_leaves_out_is_not_touched() -> None:
    text = """program left
size n in 1:1000
input A: float32[n, 61]
output B: float32[n, 64]
for i in 0:n
  for j in 0:64
    B[i, j] = 0.0
    for r in 0:4
      if r < 1
        B[i, j] += A[i, 4*(j//4) + r]
"""
    kernel = oc.compile(oc.parse(text))
    for n in (1, 3):
        a = before_a_wall(drawn(n, "float32", n, 61))
        np.testing.assert_array_equal(kernel(a), a[:, 4 * (np.arange(64) // 4)])


def test_blocks_are_no_gathers() -> None:
    source = compiled(64, 4).source("llvm")
    assert "gather" not in source
    assert source.count("shufflevector") >= 4
