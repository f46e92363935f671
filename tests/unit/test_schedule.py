"""Schedules by hand: the paper's listing, every primitive, every tail, at every edge size."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from conftest import edge_sizes

import offcut as oc
from offcut.partition import STRATEGIES
from offcut.schedule import HandSchedule
from tests.agree import agree, computed, exact_matmul, total

n, m, d = oc.dim("n", max=64), oc.dim("m", max=64), oc.dim("d", max=64)
TAILS = [one.name for one in STRATEGIES if one.name != "exact"]


def matmul(rows: Any, columns: Any, depth: Any) -> tuple[Any, Any, Any]:
    """``C = A^T B``, as in the paper."""
    A = oc.placeholder((depth, rows), "float32", name="A")
    B = oc.placeholder((depth, columns), "float32", name="B")
    k = oc.reduce_axis(depth, name="k")
    C = oc.compute((rows, columns), lambda y, x: oc.sum(A[k, y] * B[k, x], axis=k), name="C")
    return A, B, C


def gemm(t: int = 8, single: bool = False) -> Any:
    """The accelerator's instruction; `single`: it always starts from zero."""
    w, v = oc.placeholder((t, t), name="w"), oc.placeholder((t, t), name="x")
    r = oc.reduce_axis(t, name="r")
    block = oc.compute((t, t), lambda i, j: oc.sum(w[r, i] * v[r, j], axis=r), name="block")

    def lower(inputs: Any, outputs: Any) -> Any:
        ww, xx = (one.access_ptr("r") for one in inputs)
        zz = outputs[0].access_ptr("w")
        body = oc.hardware_intrinsic(f"gemm{t}x{t}", ww, xx, zz)
        if single:
            return body
        return (
            body,
            oc.hardware_intrinsic("fill_zero", zz),
            oc.hardware_intrinsic(f"fused_gemm{t}x{t}_add", ww, xx, zz),
        )

    return oc.decl_tensor_intrin(block, lower)


def listing(
    rows: Any, columns: Any, depth: Any, t: int = 8, tail: str | None = None
) -> HandSchedule:
    """The accelerator schedule of Chen et al., OSDI 2018."""
    A, B, C = matmul(rows, columns, depth)
    s = oc.create_schedule(C)
    CL = s.cache_write(C, "acc_buffer")
    AL, BL = (s.cache_read(tensor, "inp_buffer", readers=[CL]) for tensor in (A, B))
    _, xo, _, _ = s[C].tile("y", "x", t, t, tail=tail)
    s[CL].compute_at(s[C], xo)
    ko, ki = s[CL].split("k", t, tail=tail)
    s[CL].reorder(ko, "y", "x", ki)
    s[AL].compute_at(s[CL], ko)
    s[BL].compute_at(s[CL], ko)
    s[CL].tensorize("y", gemm(t))
    return s


def check_product(s: HandSchedule, *sizes: int) -> None:
    rng = np.random.default_rng(0)
    rows, columns, depth = sizes
    a, b = (rng.standard_normal((depth, width), dtype=np.float32) for width in (rows, columns))
    found = s.run({"A": a, "B": b})
    agree(found, exact_matmul(a.T, b))


@pytest.mark.slow
@pytest.mark.parametrize("tail", ["cut", None, "mask"])
def test_the_listing_holds_at_sizes_that_are_no_multiples(tail: str | None) -> None:
    s = listing(n, m, d, 4, tail)
    for sizes in ((0, 5, 1), (1, 5, 0), (5, 1, 5), (4, 4, 4), (17, 3, 17), (12, 17, 12)):
        check_product(s, *sizes)


def test_what_is_proved_of_a_schedule_is_listed() -> None:
    s = oc.create_schedule(matmul(n, m, 4)[2])
    CL = s.cache_write("C", "acc_buffer")
    s.cache_read("A", "inp_buffer", readers=[CL])
    certificate = str(s.prove())
    for line in ("AL = A  (cache_read(A))", "C = CL  (cache_write(C))", "data flow", "in bounds"):
        assert line in certificate


def doubled(*shape: Any) -> HandSchedule:
    """``C = 2 A``."""
    A = oc.placeholder(shape, name="A")
    C = oc.compute(shape, lambda *at: A[at] * 2.0, name="C", axes=tuple("ij"[: len(shape)]))
    return oc.create_schedule(C)


def check_doubled(s: HandSchedule, *more: int, sizes: Iterable[int] = edge_sizes(4)) -> None:
    rng = np.random.default_rng(0)
    for size in sizes:
        a = rng.standard_normal((size, *more), dtype=np.float32)
        np.testing.assert_array_equal(s.run({"A": a}), a * 2)


@pytest.mark.every(3)
@pytest.mark.parametrize("tail", TAILS)
def test_a_split_with_any_tail_runs_every_instance_of_a_sum_that_repeats_none_and_of_a_halo(
    tail: str,
) -> None:
    s = doubled(n)
    assert [loop.name for loop in s["C"].split("i", 4, tail)] == ["io", "ii"]
    check_doubled(s)
    for axis in ("y", "k") if tail != "shift" else ():
        s = oc.create_schedule(matmul(n, m, d)[2])
        s["C"].split(axis, 4, tail)
        for size in edge_sizes(4):
            check_product(s, size, 3, 17 - size)

    H, rng = oc.placeholder((n,), name="H"), np.random.default_rng(0)
    P = oc.compute((n,), lambda i: H[i] * 3.0, name="P")
    Q = oc.compute(
        (n,),
        lambda i: P[i] + oc.where(i >= 1, P[i - 1], 0.0) + oc.where(i < n - 1, P[i + 1], 0.0),
        name="Q",
    )
    s = oc.create_schedule(Q)
    s[P].compute_at(Q, s[Q].split("i", 4, tail)[0])

    def summed(h: Any) -> Any:
        expected = h * 3
        expected[1:] += 3 * h[:-1]
        expected[:-1] += 3 * h[1:]
        return expected

    for size in edge_sizes(4):
        h = rng.standard_normal(size, dtype=np.float32)
        agree(s.run({"H": h}), computed(summed, h))


def test_an_exact_split_has_no_tail_where_a_promise_says_so() -> None:
    A = oc.placeholder((n,), name="A")
    with oc.assume(n % 8 == 0):
        s = oc.create_schedule(oc.compute((n,), lambda i: A[i] * 2.0, name="C"))
        s["C"].split("i", 8, "exact")
        text = str(s.lower())
    assert text.endswith("for io in 0:n//8\n  for ii in 0:8\n    C[8*io + ii] = A[8*io + ii] * 2.0")


def test_a_loop_is_split_again_and_the_inner_one_too_and_two_are_fused() -> None:
    for first, second in (("cut", "guard"), ("balance", "shift"), ("shift", "cut")):
        s = doubled(n)
        outer, inner = s["C"].split("i", 6, first)
        s["C"].split(inner, 4, second)
        s["C"].split(outer, 2, "cut")
        check_doubled(s, sizes=(0, 1, 5, 6, 7, 18, 23))
    s = doubled(n, 6)
    s["C"].split(s["C"].fuse("i", "j"), 4)
    check_doubled(s, 6)


def test_the_inner_loop_of_a_split_may_be_outside() -> None:
    _, _, C = matmul(n, m, d)
    s = oc.create_schedule(C)
    s[C].split("k", 4)
    s[C].reorder("ki", "ko", "y", "x")
    text = str(s.lower())
    assert "if 4*ko + ki < d" in text
    check_product(s, 5, 6, 7)


def chain() -> tuple[Any, Any, Any, Any]:
    """Twice, then one more except at the border, then summed by row."""
    A = oc.placeholder((n, m), name="A")
    B = oc.compute((n, m), lambda i, j: A[i, j] * 2.0, name="B")
    D = oc.compute(
        (n, m), lambda i, j: oc.where((i >= 1) & (i < n - 1), B[i, j] + 1.0, 0.0), name="D"
    )
    r = oc.reduce_axis(m, "r")
    return A, B, D, oc.compute((n,), lambda i: oc.sum(D[i, r], axis=r), name="E")


def check_chain(s: HandSchedule) -> None:
    rng = np.random.default_rng(0)
    for rows, columns in [(0, 0), (0, 3), (1, 1), (2, 5), (5, 9), (9, 13)]:
        a = rng.standard_normal((rows, columns), dtype=np.float32)
        expected = a.astype("float64") * 2 + 1
        expected[:1] = expected[-1:] = 0
        agree(s.run({"A": a}), total(expected, 1))


def test_a_stage_is_computed_in_its_reader_everywhere() -> None:
    _, B, _, E = chain()
    s = oc.create_schedule(E)
    s[B].compute_inline()
    assert s.stages == ("D", "E")
    assert "A[i, j] * 2.0 + 1.0" in str(s.lower())
    assert "B[i, j] = A[i, j] * 2.0  (compute_inline(B))" in str(s.prove())
    check_chain(s)


@pytest.mark.parametrize("inner", [True, False])
def test_a_sum_is_factored_into_two(inner: bool) -> None:
    _, B, D, E = chain()
    s = oc.create_schedule(E)
    s[B].compute_inline()
    axis = s[E].split("r", 4)[inner]
    EF = s[E].rfactor(axis)
    s[EF].reorder("i", *(loop for loop in EF.loops if loop != "i"))
    s[EF].vectorize(axis.name) if inner else s[EF].parallel("i")
    s[D].compute_at(EF, "i")
    s[E].split("i", 3)
    check_chain(s)


def test_one_of_two_reduction_axes_is_factored_out() -> None:
    rng = np.random.default_rng(0)
    A = oc.placeholder((n, m), name="A")
    i, j = oc.reduce_axis(n, "i"), oc.reduce_axis(m, "j")
    C = oc.compute((), lambda: oc.max(A[i, j], axis=(i, j)), name="C")
    s = oc.create_schedule(C)
    CF = s[C].rfactor("i")
    s[CF].parallel("i")
    a = rng.standard_normal((5, 7), dtype=np.float32)
    assert s.run({"A": a}) == a.max()


def test_an_instruction_that_does_the_whole_sum_needs_no_start() -> None:
    _, _, C = matmul(16, 16, 8)
    for single in (True, False):
        s = oc.create_schedule(C)
        _, _, yi, _ = s[C].tile("y", "x", 8, 8)
        s[C].reorder("yi", "xi", "k").tensorize(yi, gemm(single=single))
        assert str(s.lower()).count("@cover(gemm8x8; ") == 1
        check_product(s, 16, 16, 8)


# Programs from text.

SEIDEL = """\
program seidel
size t in 0:10
size n in 3:40
inout A: float64[n, n]
for s in 0:t
  for i in 1:n - 1
    for j in 1:n - 1
      A[i, j] = (A[i - 1, j] + A[i, j - 1] + A[i, j] + A[i, j + 1] + A[i + 1, j]) / 5.0
"""
JACOBI = """\
program jacobi
size t in 0:10
size n in 3:40
inout A: float64[n]
local B: float64[n]
for s in 0:t
  for i in 1:n - 1
    B[i] = (A[i - 1] + A[i] + A[i + 1]) / 3.0
  for i in 1:n - 1
    A[i] = B[i]
"""


def same_as_text(text: str, s: HandSchedule, inputs: Any, **sizes: int) -> None:
    np.testing.assert_array_equal(s.run(inputs, **sizes), oc.parse(text).run(inputs, **sizes))


def test_programs_from_text_are_scheduled_by_the_buffers_that_they_write() -> None:
    """Two stages may share the loop over time."""
    rng, sizes = np.random.default_rng(0), (3, 5, 6, 7, 19)
    s = oc.create_schedule(oc.parse(SEIDEL))
    s["A"].split("i", 4)
    s["A"].split("j", 8, "mask")
    for size in sizes:
        same_as_text(SEIDEL, s, {"A": rng.standard_normal((size, size))}, t=3)
    s = oc.create_schedule(oc.parse(JACOBI))
    assert (s.stages, s["A"].loops, s["B"].loops) == (("B", "A"), ("s", "i_"), ("s", "i"))
    s["B"].vectorize(s["B"].split("i", 4)[1])
    s["A"].parallel(s["A"].split("i", 4, "shift")[0])
    for size in sizes:
        same_as_text(JACOBI, s, {"A": rng.standard_normal(size)}, t=3)


def test_several_nests_of_one_buffer_are_told_apart() -> None:
    text = "size n in 0:9\noutput C: int32[n]\nfor i in 0:n\n  C[i] = 1\nfor i in 0:n\n  C[i] += 2"
    s = oc.create_schedule(oc.parse(text))
    assert s.stages == ("C_0", "C_1")
    s["C_1"].split("i", 4)
    np.testing.assert_array_equal(s.run({}, n=6), np.full(6, 3))


@pytest.mark.parametrize("change", ["split yo", "parallel yo", "reorder yo xo"])
def test_loops_around_an_instruction_may_change_after_it(change: str) -> None:
    n = oc.dim("n", max=64)
    A, k = oc.placeholder((n, 8), name="A"), oc.reduce_axis(8, name="k")
    B = oc.placeholder((8, 8), name="B")
    C = oc.compute((n, 8), lambda y, x: oc.sum(A[y, k] * B[k, x], axis=k), name="C")
    w, v = oc.placeholder((4, 8), name="w"), oc.placeholder((8, 4), name="v")
    q, whole = oc.reduce_axis(8, name="q"), oc.hardware_intrinsic("gemm4")
    block = oc.compute((4, 4), lambda i, j: oc.sum(w[i, q] * v[q, j], axis=q), name="block")
    intrinsic = oc.decl_tensor_intrin(block, lambda inputs, outputs: whole)
    s = oc.create_schedule(C)
    s["C"].tile("y", "x", 4, 4)
    s["C"].tensorize("yi", intrinsic)
    op, *axes = change.split()
    {"split": lambda: s["C"].split(axes[0], 2), "parallel": lambda: s["C"].parallel(axes[0])}.get(
        op, lambda: s["C"].reorder(*axes)
    )()
    assert "@cover(gemm4; " in str(s.lower())
