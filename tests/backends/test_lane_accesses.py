"""Elements that lanes read and write otherwise than side by side: backwards, a few apart, one for several lanes, in two parts.

Whole vectors are loaded and rearranged; nothing past the first and the last element is touched, and nothing where lanes are off.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import pytest
from compiled import Array
from guarded import walled

import offcut as oc
from tests.facade import numpy_dtype

TYPES = ("float32", "float64", "bfloat16", "float16", "int8", "int32", "int64", "bool")
SIZES = (1, 3, 15, 16, 17, 31, 32, 33, 63, 64, 65, 130)
WALLS = (walled, partial(walled, at_end=False))


class Access(NamedTuple):
    """A copy of elements that do not lie side by side.

    text       the program from A to B over the size n, with elements of {dtype}
    extent     of n, the elements of A
    read       of A and n, the result
    gathered   element by element: no vector holds what lanes share
    """

    text: str
    extent: Callable[[int], int]
    read: Callable[[Array, int], Array]
    gathered: bool = False


def copy(result: str, extent: str, target: str, source: str) -> str:
    """The text of a program that copies an element in each iteration of i."""
    return f"""program copied
size n in 1:5000
input A: {{dtype}}[{extent}]
output B: {{dtype}}[{result}]
for i in 0:{result}
  B[{target}] = A[{source}]
"""


def apart(step: int, start: int) -> Access:
    """Every few elements, up to the last one that is read."""
    spare = step - 1 - start
    text = copy("n", f"{step}*n - {spare}", "i", f"{step}*i + {start}")
    return Access(text, lambda n: step * n - spare, lambda a, n: a[start::step], step > 4)


def shared(share: int, moved: int = 0) -> Access:
    """Elements that some lanes share, the first of them maybe by fewer."""
    text = copy(f"{share}*n - {moved}", "n", "i", f"(i + {moved})//{share}")
    return Access(
        text, lambda n: n, lambda a, n: np.repeat(a, share)[moved:], share % 2 == 1 or moved > 0
    )


ACCESSES = {
    "read backwards": Access(
        copy("n", "n", "i", "n - 1 - i"), lambda n: n, lambda a, n: a[::-1]
    ),
    "written backwards": Access(
        copy("n", "n", "n - 1 - i", "i"), lambda n: n, lambda a, n: a[::-1]
    ),
    **{f"each of {step} from {at}": apart(step, at) for step, at in [(2, 0), (2, 1), (3, 0), (4, 2), (5, 4)]},
    **{f"shared by {share}": shared(share) for share in (2, 3, 4, 16, 32)},
    "shared by 2 from the second on": shared(2, 1),
}  # fmt: skip


def drawn(seed: int, dtype: str, *shape: int) -> Array:
    """Small whole numbers."""
    made: Array = np.random.default_rng(seed).integers(-4, 5, shape).astype(numpy_dtype(dtype))
    return made


@pytest.mark.every(2)
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        (name, dtype)
        for k, name in enumerate(ACCESSES)
        for dtype in (TYPES[k % 8], TYPES[(k + 3) % 8])
    ],
)
def test_elements_are_right_and_what_lies_beside_them_is_not_touched(name: str, dtype: str) -> None:
    access = ACCESSES[name]
    kernel = oc.compile(oc.parse(access.text.format(dtype=dtype)))
    for n in SIZES:
        a = drawn(n, dtype, access.extent(n))
        wanted = access.read(a, n)
        for wall in WALLS:
            out = wall(np.zeros(wanted.shape, wanted.dtype))
            kernel(wall(a), n=n, out=out)
            np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize("name", ACCESSES)
def test_whole_vectors_are_loaded(name: str) -> None:
    text = oc.compile(oc.parse(ACCESSES[name].text.format(dtype="float32"))).source("llvm")
    assert ("gather" in text) == ACCESSES[name].gathered
    assert "scatter" not in text


def test_lanes_that_are_off_read_nothing() -> None:
    text = """program off
size n in 1:5000
input A: float32[2*n]
output B: float32[n]
output D: float32[n]
for i in 0:n
  B[i] = where(i < 3, 0.0, A[n - 1 - i] + A[i])
for i in 0:n
  D[i] = where(B[i] > 0.0, A[2*i + 1], -1.0)
"""
    kernel = oc.compile(oc.parse(text))
    for n in SIZES:
        a = drawn(n, "float32", 2 * n)
        b, d = kernel(walled(a, at_end=False))
        wanted = a[:n][::-1] + a[:n]
        wanted[:3] = 0
        np.testing.assert_array_equal(b, wanted)
        np.testing.assert_array_equal(d, np.where(wanted > 0, a[1::2], np.float32(-1)))


# Groups of lanes that read one member, ``4*(j//4) + r``.

GROUPS = (2, 4, 8)
WIDTHS = (8, 16, 24, 40, 64, 72, 136)
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


def sums(
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
    parts = {"rows": rows.format(**known), "term": term.format(**known), "zero": zero}
    text = SUMS.format(**known, **parts)
    if not rows.startswith("m, "):
        text = text.replace("size m in 1:100\n", "")
    return oc.compile(oc.parse(text))


def members(a: Array, w: Array, group: int, terms: int) -> Array:
    """What `SUMS` says."""
    j = np.arange(a.shape[1])
    wide = "float64" if a.dtype.kind not in "iu" else a.dtype
    parts = (
        a.astype(wide)[:, group * (j // group) + r] - w.astype(wide)[: len(a), r]
        for r in range(terms)
    )
    return np.asarray(sum(parts)).astype(a.dtype)


@pytest.mark.every(8)
@pytest.mark.parametrize(
    ("dtype", "group"), [*((dtype, 4) for dtype in TYPES[:-1]), ("float32", 2), ("float32", 8)]
)
def test_each_member_of_a_group_is_read(dtype: str, group: int) -> None:
    for width in WIDTHS:
        a, w = drawn(width, dtype, 3, width), drawn(1, dtype, 3, group, width)
        found = sums(width, group, dtype=dtype)(a, w)
        np.testing.assert_array_equal(found, members(a, w, group, group))


@pytest.mark.every(6)
@pytest.mark.parametrize("wall", WALLS)
@pytest.mark.parametrize("group", GROUPS)
def test_rows_that_are_not_asked_for_are_not_touched(
    wall: Callable[[Array], Array], group: int
) -> None:
    term = "where(i < m, A[i, {group}*(j//{group}) + r] - W[i, r, j], 0.0)"
    for width in WIDTHS:
        kernel = sums(width, group, rows="m, {width}", term=term)
        for n, m in ((1, 1), (5, 3), (6, 5)):
            a, w = drawn(n, "float32", m, width), drawn(m, "float32", n, group, width)
            found = kernel(wall(a), w, n=n)
            np.testing.assert_array_equal(found[:m], members(a, w, group, group))
            assert not found[m:].any()


@pytest.mark.every(4)
@pytest.mark.parametrize("group", GROUPS)
def test_a_member_that_no_term_reads_is_not_touched(group: int) -> None:
    term = "A[{width}*i + {group}*(j//{group}) + r] - W[i, r, j]"
    for width in WIDTHS:
        kernel = sums(width, group, group - 1, rows="n*{width} - 1", term=term)
        for n in (1, 4):
            a, w = drawn(n, "float32", n, width), drawn(2, "float32", n, group, width)
            found = kernel(walled(a.reshape(-1)[:-1].copy()), w)
            np.testing.assert_array_equal(found, members(a, w, group, group - 1))


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
        a = walled(drawn(n, "float32", n, 61))
        np.testing.assert_array_equal(kernel(a), a[:, 4 * (np.arange(64) // 4)])


@pytest.mark.parametrize("row", ["r", "i + r", "i + 3 - r"])
def test_an_iterator_that_says_the_row_too_is_that_of_each_member(row: str) -> None:
    term = f"A[{row}, {{group}}*(j//{{group}}) + r] - W[i, r, j]"
    kernel = sums(64, 4, rows="n + 3, {width}", term=term)
    for n in (1, 5):
        a, w = drawn(n, "float32", n + 3, 64), drawn(1, "float32", n, 4, 64)
        i, r, j = np.ogrid[:n, :4, :64]
        rows = {"r": r, "i + r": i + r, "i + 3 - r": i + 3 - r}[row]
        read = a[rows, 4 * (j // 4) + r]
        np.testing.assert_array_equal(kernel(a, w), (read - w).sum(axis=1))


def test_groups_are_no_gathers() -> None:
    source = sums(64, 4).source("llvm")
    assert "gather" not in source
    for member in range(4):
        spread = ", ".join(f"i32 {4 * (lane // 4) + member}" for lane in range(8))
        assert f"<{spread}, " in source.partition("shufflevector")[2]


# Axes in two parts, ``j // d`` and ``j % d``: where lanes lie in one block of d, they are a vector as any other.


def test_a_load_of_a_constant_may_leave_the_loops_around_it_and_no_other() -> None:
    n = oc.dim("n", max=64)
    X = oc.placeholder((n, 5, 40), "float32", name="X")
    W = oc.placeholder((5,), "float32", name="W")
    Y = oc.compute((n, 5, 40), lambda i, c, j: X[i, c, j] * W[c], "Y")
    w = np.arange(5, dtype=np.float32)
    fixed = oc.compile(Y, inputs=[X, W], constants={"W": w})
    assert "!invariant.load" in fixed.source("llvm")
    assert "!invariant.load" not in oc.compile(Y, inputs=[X, W]).source("llvm")
    x = np.ones((3, 5, 40), np.float32)
    assert (fixed(x) == w[:, None]).all()
    assert (fixed.with_constants({"W": w + 1})(x) == w[:, None] + 1).all()


PAIRS = """program pairs
size n in 0:5000
input A: {dtype}[n, {beside}]
output B: {dtype}[n]
for i in 0:n
  B[i] = A[i, 1]
"""


@pytest.mark.parametrize(("dtype", "beside"), [("float32", 2), ("int8", 3), ("float64", 4)])
def test_a_column_of_rows_is_read_at_any_stride(dtype: str, beside: int) -> None:
    kernel = oc.compile(oc.parse(PAIRS.format(dtype=dtype, beside=beside)))
    for n in SIZES:
        a = drawn(n, dtype, n, 2 * beside)[:, :beside]
        for one in (a, walled(np.ascontiguousarray(a))):
            np.testing.assert_array_equal(kernel(one), a[:, 1])


@pytest.mark.isa("avx512f")
def test_a_column_of_rows_of_two_is_picked_out_of_vectors() -> None:
    text = oc.compile(oc.parse(PAIRS.format(dtype="float32", beside=2))).source("llvm")
    assert "icmp eq i64" in text
    assert "masked.gather" in text
    assert re.search(r"shufflevector <16 x float> %\w+, <16 x float> %\w+, <16 x i32>", text)


NAMED = """program named
size h in 1:5000
size w in 1:5000
size n in 0:5000
input A: float32[h, w]
input P: int32[n]
input Q: int32[n]
output B: float32[n]
for i in 0:n
  B[i] = where(P[i] < 1000, A[max(min(index(P[i]) + 1, h - 1), 0), max(min(index(Q[i]) - 2, w - 1), 0)], 2.0)
"""


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize(("h", "w"), [(1, 1), (3, 40), (70, 5)])
def test_places_of_32_bits_are_those_of_64(h: int, w: int, backwards: bool) -> None:
    kernel = oc.compile(oc.parse(NAMED))
    whole = drawn(h, "float32", h, w)
    a = whole[::-1, ::-1] if backwards else whole
    ends = np.iinfo(np.int32)
    for n in SIZES:
        p, q = (
            np.random.default_rng(n + seed).integers(-9, 80, n).astype(np.int32) for seed in (0, 1)
        )
        p[: n // 3], q[n // 2 :] = ends.min, ends.min
        p[n // 3 : n // 2], q[: n // 4] = ends.max, ends.max
        rows = np.clip(p.astype(np.int64) + 1, 0, h - 1)
        columns = np.clip(q.astype(np.int64) - 2, 0, w - 1)
        np.testing.assert_array_equal(kernel(a, p, q), np.where(p < 1000, a[rows, columns], 2.0))


@pytest.mark.parametrize("stride", [2**30, 2**31, 2**33, 2**62])
def test_places_too_far_for_32_bits_are_read_by_64(stride: int) -> None:
    kernel = oc.compile(oc.parse(NAMED))
    row = drawn(0, "float32", 1, 50)
    far = np.lib.stride_tricks.as_strided(row, (1, 50), (stride, 4))
    p = np.full(33, 7, np.int32)
    q = np.arange(33, dtype=np.int32)
    wanted = row[0, np.clip(q - 2, 0, 49)]
    np.testing.assert_array_equal(kernel(far, p, q), wanted)
    np.testing.assert_array_equal(kernel(row, p, q), wanted)
