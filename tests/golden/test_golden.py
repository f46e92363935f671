"""Loop programs in source syntax, as they are emitted: a change of any is seen, and meant.

``pytest tests/golden --update-golden`` writes them, and removes those that no case makes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import offcut as oc
from offcut import Microkernel, Program, parse
from tests.facade import (
    Computation,
    Place,
    TileShape,
    computation,
    cut_described,
    cut_text,
    loops_of,
    panels,
    strategies,
)

HERE = Path(__file__).parent
n, m = oc.dim("n", min=1, max=4096), oc.dim("m", max=512)


def dense() -> Computation:
    """``relu(A @ W + b)``: a reduction and two stages that follow it."""
    A, W = oc.placeholder((n, 64), name="A"), oc.placeholder((64, 70), name="W")
    b, k = oc.placeholder((70,), name="b"), oc.reduce_axis(64, "k")
    S = oc.compute((n, 70), lambda i, j: oc.sum(A[i, k] * W[k, j], axis=k) + b[j], name="S")
    return computation(oc.compute((n, 70), lambda i, j: oc.maximum(S[i, j], 0.0), name="C"))


def batched() -> Computation:
    """``bij,bkj->bik`` with a symbolic depth."""
    A, B = oc.placeholder((3, n, m), name="A"), oc.placeholder((3, 10, m), name="B")
    j = oc.reduce_axis(m, "j")
    return computation(
        oc.compute((3, n, 10), lambda b, i, k: oc.sum(A[b, i, j] * B[b, k, j], axis=j), name="C")
    )


def softmax() -> Computation:
    """Three groups: the greatest of a row, the sum of exponentials, the quotient."""
    A = oc.placeholder((n, m), name="A")
    k, r = oc.reduce_axis(m, "k"), oc.reduce_axis(m, "r")
    top = oc.compute((n,), lambda i: oc.max(A[i, k], axis=k), name="top")
    bottom = oc.compute((n,), lambda i: oc.sum(oc.exp(A[i, r] - top[i]), axis=r), name="bottom")
    return computation(
        oc.compute((n, m), lambda i, j: oc.exp(A[i, j] - top[i]) / bottom[i], name="C")
    )


def odd() -> Computation:
    """An affine extent, and a choice by coordinate."""
    A = oc.placeholder((2 * n + 1,), name="A")
    return computation(
        oc.compute((2 * n + 1,), lambda i: oc.where(i >= 1, A[i - 1], 0.0) + A[i], name="C")
    )


def gemm() -> Microkernel:
    """Up to 14 rows by 32 columns."""
    k = oc.dim("k")
    X, Y = oc.placeholder((14, k), name="X"), oc.placeholder((k, 32), name="Y")
    d = oc.reduce_axis(k, "d")
    Z = oc.compute((14, 32), lambda r, c: oc.sum(X[r, d] * Y[d, c], axis=d), name="Z")
    tiles = tuple(TileShape((rows, 32), 14.0, 20.0) for rows in range(1, 15))
    return Microkernel(
        "gemm_14x32",
        Z,
        tiles,
        predicates=frozenset({"c"}),
        operands={"Y": Place(layout=panels(32))},
    )


CASES: dict[str, tuple[Callable[[], Computation], dict[str, int], dict[str, str]]] = {
    **{
        f"dense_{tail}": (dense, {"i": 14, "j": 32}, {"i": tail, "j": "mask"})
        for tail in strategies()
    },
    "dense_uncut": (dense, {}, {}),
    "dense_corner": (dense, {"i": 14, "j": 32, "k": 24}, {"i": "cut", "j": "ladder", "k": "pad"}),
    "dense_exact": (dense, {"j": 35, "k": 16}, {"j": "exact", "k": "exact"}),
    "batched_reduction": (batched, {"i": 4, "j": 8}, {"i": "shift", "j": "cut"}),
    "softmax_rows": (
        softmax,
        {"top.i": 4, "bottom.i": 4, "C.i": 4, "k": 16},
        {"top.i": "cut", "bottom.i": "mask", "C.i": "balance", "k": "mask"},
    ),
    "odd_pad": (odd, {"i": 8}, {"i": "pad"}),
}


def accelerator(rows: Any, columns: Any, depth: Any, tail: str | None = None) -> Program:
    """The listing of Chen et al., OSDI 2018: caches in two memories, an 8×8 instruction."""
    A, B = oc.placeholder((depth, rows), name="A"), oc.placeholder((depth, columns), name="B")
    k, r = oc.reduce_axis(depth, "k"), oc.reduce_axis(8, "r")
    C = oc.compute((rows, columns), lambda y, x: oc.sum(A[k, y] * B[k, x], axis=k), name="C")
    w, v = oc.placeholder((8, 8), name="w"), oc.placeholder((8, 8), name="x")
    block = oc.compute((8, 8), lambda i, j: oc.sum(w[r, i] * v[r, j], axis=r), name="block")
    three = ("gemm8x8", "fill_zero", "fused_gemm8x8_add")
    intrinsic = oc.decl_tensor_intrin(block, lambda i, o: tuple(map(oc.hardware_intrinsic, three)))
    s = oc.create_schedule(C)
    CL = s.cache_write(C, "acc_buffer")
    AL, BL = (s.cache_read(tensor, "inp_buffer", readers=[CL]) for tensor in (A, B))
    _, xo, _, _ = s[C].tile("y", "x", 8, 8, tail=tail)
    CL.compute_at(s[C], xo)
    ko, ki = CL.split("k", 8)
    CL.reorder(ko, "y", "x", ki)
    AL.compute_at(CL, ko)
    BL.compute_at(CL, ko)
    CL.tensorize("y", intrinsic)
    return s.lower()


SCHEDULES: dict[str, Callable[[], Program]] = {
    "schedule_paper": lambda: accelerator(1024, 1024, 1024),
    "schedule_ragged": lambda: accelerator(n, 30, m),
    "schedule_guarded": lambda: accelerator(n, 30, m, "guard"),
}


@cache
def emitted(name: str) -> Program:
    if name in SCHEDULES:
        return SCHEDULES[name]()
    described, tile, tail = CASES[name]
    return cut_described(described(), tile, tail, [gemm()])


@pytest.mark.parametrize("name", [*CASES, *SCHEDULES])
def test_a_loop_program_is_emitted_as_it_was(name: str, golden: Callable[[str, str], None]) -> None:
    golden(f"{name}.offcut", str(emitted(name)))


@pytest.mark.parametrize("name", CASES)
def test_a_described_tensor_and_its_text_are_cut_alike(name: str) -> None:
    described, tile, tail = CASES[name]
    text = parse(str(loops_of(described())))
    assert cut_text(text, tile, tail, [gemm()]) == emitted(name)


@pytest.mark.parametrize("name", [*CASES, *SCHEDULES])
def test_a_golden_file_is_read_back_into_the_program(name: str, updating: bool) -> None:
    if updating:
        pytest.skip("the files are being written")
    assert parse((HERE / f"{name}.offcut").read_text(encoding="utf-8")) == emitted(name)


def test_every_golden_file_belongs_to_a_case(updating: bool) -> None:
    orphans = [
        path for path in sorted(HERE.glob("*.offcut")) if path.stem not in {*CASES, *SCHEDULES}
    ]
    if updating:
        for path in orphans:
            path.unlink()
        orphans = []
    assert not orphans
