"""Groups of lanes that read one member, ``4*(j//4) + r``: a vector is loaded for all, nothing past the last, nothing where lanes are off."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from compiled import Array
from guarded import before_a_wall, behind_a_wall

import offcut as oc
from tests.facade import numpy_dtype

TYPES = ["float32", "float64", "bfloat16", "float16", "int8", "int32", "int64"]
GROUPS = [2, 4, 8]
EXTENTS = [8, 16, 24, 40, 64, 72, 136]

SUMS = """program sums
size n in 1:100
size m in 1:100
input A: {dtype}[{rows}]
input W: {dtype}[n, {group}, {width}]
output B: {dtype}[n, {width}]
for i in 0:n
  for j in 0:{width}
    B[i, j] = {zero}
    for r in 0:{terms}
      B[i, j] += {term}
"""


def kernel_of(
    width: int,
    group: int,
    terms: int | None = None,
    *,
    dtype: str = "float32",
    rows: str = "n, {width}",
    term: str = "A[i, {group}*(j//{group}) + r] - W[i, r, j]",
) -> oc.Kernel:
    """A kernel of `SUMS`."""
    known = {"dtype": dtype, "width": width, "group": group, "terms": terms or group}
    zero = "0" if "int" in dtype else "0.0"
    known_rows = rows.startswith("m, ")
    parts = {"rows": rows.format(**known), "term": term.format(**known), "zero": zero}
    text = SUMS.format(**known, **parts)
    return oc.compile(oc.parse(text if known_rows else text.replace("size m in 1:100\n", "")))


def expected(a: Array, w: Array, group: int, terms: int) -> Array:
    j = np.arange(a.shape[1])
    wide = "float64" if a.dtype.kind not in "iu" else a.dtype
    parts = (
        a.astype(wide)[:, group * (j // group) + r] - w.astype(wide)[: len(a), r]
        for r in range(terms)
    )
    return np.asarray(sum(parts)).astype(a.dtype)


def drawn(seed: int, dtype: str, *shape: int) -> Array:
    made: Array = np.random.default_rng(seed).integers(-4, 5, shape).astype(numpy_dtype(dtype))
    return made


@pytest.mark.every(8)
@pytest.mark.parametrize(
    ("dtype", "group"), [*((dtype, 4) for dtype in TYPES), ("float32", 2), ("float32", 8)]
)
def test_each_member_of_a_group_is_read(dtype: str, group: int) -> None:
    for width in EXTENTS:
        a, w = drawn(width, dtype, 3, width), drawn(1, dtype, 3, group, width)
        found = kernel_of(width, group, dtype=dtype)(a, w)
        np.testing.assert_array_equal(found, expected(a, w, group, group))


@pytest.mark.every(6)
@pytest.mark.parametrize("wall", [before_a_wall, behind_a_wall])
@pytest.mark.parametrize("group", GROUPS)
def test_rows_that_are_not_asked_for_are_not_touched(
    wall: Callable[[Array], Array], group: int
) -> None:
    term = "where(i < m, A[i, {group}*(j//{group}) + r] - W[i, r, j], 0.0)"
    for width in EXTENTS:
        kernel = kernel_of(width, group, rows="m, {width}", term=term)
        for n, m in ((1, 1), (5, 3), (6, 5)):
            a, w = drawn(n, "float32", m, width), drawn(m, "float32", n, group, width)
            found = kernel(wall(a), w, n=n)
            np.testing.assert_array_equal(found[:m], expected(a, w, group, group))
            assert not found[m:].any()


@pytest.mark.every(4)
@pytest.mark.parametrize("group", GROUPS)
def test_a_member_that_no_term_reads_is_not_touched(group: int) -> None:
    term = "A[{width}*i + {group}*(j//{group}) + r] - W[i, r, j]"
    for width in EXTENTS:
        kernel = kernel_of(width, group, group - 1, rows="n*{width} - 1", term=term)
        for n in (1, 4):
            a, w = drawn(n, "float32", n, width), drawn(2, "float32", n, group, width)
            found = kernel(before_a_wall(a.reshape(-1)[:-1].copy()), w)
            np.testing.assert_array_equal(found, expected(a, w, group, group - 1))


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


@pytest.mark.parametrize("row", ["r", "i + r", "i + 3 - r"])
def test_an_iterator_that_says_the_row_too_is_that_of_each_member(row: str) -> None:
    term = f"A[{row}, {{group}}*(j//{{group}}) + r] - W[i, r, j]"
    kernel = kernel_of(64, 4, rows="n + 3, {width}", term=term)
    for n in (1, 5):
        a, w = drawn(n, "float32", n + 3, 64), drawn(1, "float32", n, 4, 64)
        i, r, j = np.ogrid[:n, :4, :64]
        rows = {"r": r, "i + r": i + r, "i + 3 - r": i + 3 - r}[row]
        read = a[rows, 4 * (j // 4) + r]
        np.testing.assert_array_equal(kernel(a, w), (read - w).sum(axis=1))


@pytest.mark.every(2)
@pytest.mark.parametrize("channels", [4, 1])
def test_bits_of_narrow_groups_are_those_of_every_strategy(channels: int) -> None:
    n, h = oc.dim("n", 0, 16), oc.dim("h", 1, 40)
    x, w = oc.placeholder((n, h, h, 16), name="x"), oc.placeholder((3, 3, channels, 16), name="w")
    y = oc.ops.conv2d(x, w, padding=1, groups=16 // channels, layout="NHWC")
    random = np.random.default_rng(0)
    given = [random.standard_normal(s, np.float32) for s in ((2, 9, 9, 16), (3, 3, channels, 16))]
    wanted = oc.compile(y, inputs=[x, w])(*given)
    for strategy in ("mask", "ladder"):
        found = oc.compile(y, inputs=[x, w], strategy=strategy)(*given)
        np.testing.assert_array_equal(found, wanted)


def test_groups_are_no_gathers() -> None:
    source = kernel_of(64, 4).source("llvm")
    assert "gather" not in source
    for member in range(4):
        spread = ", ".join(f"i32 {4 * (lane // 4) + member}" for lane in range(8))
        assert f"<{spread}, " in source.partition("shufflevector")[2]
