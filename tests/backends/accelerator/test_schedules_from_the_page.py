"""Schedules that a user writes for machines of queues after reading one page: each tail at sizes around tiles, against numpy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from accelerators import Array, bytes_of, clipped, requantised
from conftest import slow

import offcut as oc
from offcut import Kernel, Schedule, Tensor
from offcut.schedule import Choose, with_strategy_options
from tests.facade import evaluate

TILE = 8
SIZES = (1, TILE - 1, TILE, TILE + 1, 3 * TILE + 5)
TAILS = ("ladder", "balance", "pad", "cut", "shift")
MEMORIES = {
    "vta": {"inputs": "inputs", "weights": "weights", "accumulators": "accumulators"},
    "gemmini": {"inputs": "scratchpad", "weights": "scratchpad", "accumulators": "accumulator"},
}
Made = tuple[list[Tensor], Tensor, Callable[..., Array]]


def wide(array: Array) -> Array:
    return array.astype(np.int64)


def sums(a: Tensor, w: Tensor) -> Tensor:
    k = oc.reduce_axis(20, name="k")
    return oc.compute(
        (a.shape[0], 24),
        lambda i, j: oc.sum(a[i, k].astype("int32") * w[k, j].astype("int32"), axis=k),
        name="S",
    )


def dense() -> tuple[Tensor, Tensor]:
    n = oc.dim("n", min=1, max=64)
    return oc.placeholder((n, 20), "int8", name="A"), oc.placeholder((20, 24), "int8", name="W")


def with_bias() -> Made:
    a, w = dense()
    b, total = oc.placeholder((24,), "int32", name="B"), sums(a, w)
    added = oc.compute(total.shape, lambda i, j: total[i, j] + b[j], name="T")
    expected = lambda a, w, b: clipped(wide(a) @ wide(w) + b, 6)  # noqa: E731
    return [a, w, b], requantised(added, 6), expected


def with_windows_in_turn() -> Made:
    a, w = dense()
    return [a, w], requantised(sums(a, w), 6), lambda a, w: clipped(wide(a) @ wide(w), 6)


def residual() -> Made:
    a, w = dense()
    r, total = oc.placeholder((a.shape[0], 24), "int8", name="R"), sums(a, w)
    added = oc.compute(
        total.shape, lambda i, j: total[i, j] // 64 + r[i, j].astype("int32"), name="T"
    )
    expected = lambda a, w, r: clipped((wide(a) @ wide(w) >> 6) + r, 0)  # noqa: E731
    return [a, w, r], requantised(added, 0), expected


def convolution() -> Made:
    """Rows of six pixels of 20 channels, windows of 3×3, a border of zeros around them."""
    n = oc.dim("n", min=1, max=64)
    x = oc.placeholder((n, 6, 20), "int8", name="X")
    k = oc.placeholder((3, 3, 20, 24), "int8", name="K")
    r, s, c = (
        oc.reduce_axis(extent, name=name) for name, extent in (("r", 3), ("s", 3), ("c", 20))
    )

    def terms(y: oc.Expr, v: oc.Expr, o: oc.Expr) -> oc.Expr:
        inside = (y + r >= 1) & (y + r < n + 1) & (v + s >= 1) & (v + s < 7)
        pixel = oc.where(inside, x[y + r - 1, v + s - 1, c], 0)
        return oc.sum(pixel.astype("int32") * k[r, s, c, o].astype("int32"), axis=(r, s, c))

    total = oc.compute((n, 6, 24), terms, name="S", axes=["y", "v", "o"])

    def expected(x: Array, k: Array) -> Array:
        ends = np.pad(wide(x), ((1, 1), (1, 1), (0, 0)))
        parts = (
            ends[r : r + len(x), s : s + 6] @ wide(k)[r, s] for r in range(3) for s in range(3)
        )
        return clipped(sum(parts), 9)

    return [x, k], requantised(total, 9), expected


def pooling() -> Made:
    """The greatest of three neighbouring rows."""
    n, r = oc.dim("n", min=1, max=64), oc.reduce_axis(3, name="r")
    x = oc.placeholder((n + 2, 5, 24), "int8", name="X")
    most = oc.compute(
        (n, 5, 24), lambda y, v, c: oc.max(x[y + r, v, c], axis=r), name="Y", axes=["y", "v", "c"]
    )
    return [x], most, lambda x: np.max([x[r : len(x) - 2 + r] for r in range(3)], axis=0)


# What turns sums into bytes, an operation at a time: shift, minimum, maximum, and what is stored.
NARROWED = """\
stage value {value}//64 for Y as Y_1(i, j) in {accumulators}
stage value min(Y_1[i, j], 127) for Y as Y_2(i, j) in {accumulators}
stage value max(Y_2[i, j], -128) for Y as Y_3(i, j) in {accumulators}
"""
RUN = """\
cover Y_1 at i alu_divide(j=j)
cover Y_2 at i alu_min(j=j)
cover Y_3 at i alu_max(j=j)
cover Y at i_in store_outputs
"""

SCHEDULES: dict[str, tuple[Callable[[], Made], str]] = {
    "dense with bias": (
        with_bias,
        """\
schedule Y
stage read A for S as A_in in {inputs}
stage read W for S as W_in in {weights}
stage read B for T as B_acc in {accumulators}
"""
        + NARROWED.replace("{value}", "T[i, j]")
        + """\
split Y.i {tail} 8 as i_tile i_in
order Y i_tile i_in j
at Y_3 Y.i_tile in {accumulators}
at Y_2 Y.i_tile in {accumulators}
at Y_1 Y.i_tile in {accumulators}
at T Y.i_tile in {accumulators}
at S Y.i_tile in {accumulators}
at A_in Y.i_tile
at B_acc Y
at W_in Y
cover S at i gemm_1x16x16(j=j, p=k)
cover T at i alu_add(j=j)
"""
        + RUN,
    ),
    "dense in windows in turn": (
        with_windows_in_turn,
        """\
schedule Y
stage read A for S as A_in in {inputs}
stage read W for S as W_in in {weights}
"""
        + NARROWED.replace("{value}", "S[i, j]")
        + """\
split Y.i {tail} 8 as i_tile i_in
split Y.j guard 16 as j_tile j_in
order Y j_tile i_tile i_in j_in
at Y_3 Y.i_tile in {accumulators} depth 2
at Y_2 Y.i_tile in {accumulators} depth 2
at Y_1 Y.i_tile in {accumulators} depth 2
at S Y.i_tile in {accumulators} depth 2
at A_in Y.i_tile depth 2
at W_in Y.j_tile depth 2
cover S at i gemm_1x16x16(j=j, p=k)
"""
        + RUN,
    ),
    "residual": (
        residual,
        """\
schedule Y
stage read A for S as A_in in {inputs}
stage read W for S as W_in in {weights}
stage read R for T as R_acc in {accumulators}
stage value S[i, j]//64 for T as T_1(i, j) in {accumulators}
stage value min(T[i, j], 127) for Y as Y_2(i, j) in {accumulators}
stage value max(Y_2[i, j], -128) for Y as Y_3(i, j) in {accumulators}
split Y.i {tail} 8 as i_tile i_in
order Y i_tile i_in j
at Y_3 Y.i_tile in {accumulators}
at Y_2 Y.i_tile in {accumulators}
at T Y.i_tile in {accumulators}
at T_1 Y.i_tile in {accumulators}
at S Y.i_tile in {accumulators}
at A_in Y.i_tile
at R_acc Y.i_tile
at W_in Y
cover S at i gemm_1x16x16(j=j, p=k)
cover T_1 at i alu_divide(j=j)
cover T at i alu_add(j=j)
cover Y_2 at i alu_min(j=j)
cover Y_3 at i alu_max(j=j)
cover Y at i_in store_outputs
""",
    ),
    "convolution": (
        convolution,
        """\
schedule Y
stage value where(u >= 1 and u < n + 1 and w >= 1 and w < 7, X[u - 1, w - 1, c], 0) for S \
as X_in(u = y + r, w = v + s, c) in {inputs}
stage read K for S as K_in in {weights}
stage value S[y, v, o]//512 for Y as Y_1(y, v, o) in {accumulators}
stage value min(Y_1[y, v, o], 127) for Y as Y_2(y, v, o) in {accumulators}
stage value max(Y_2[y, v, o], -128) for Y as Y_3(y, v, o) in {accumulators}
split Y.y {tail} 8 as y_tile y_in
order Y y_tile y_in v o
at Y_3 Y.y_tile in {accumulators}
at Y_2 Y.y_tile in {accumulators}
at Y_1 Y.y_tile in {accumulators}
at S Y.y_tile in {accumulators}
at X_in Y.y_tile
at K_in Y
cover S at y gemm_1x16x16(j=o, p=c)
cover Y_1 at y alu_divide(j=o)
cover Y_2 at y alu_min(j=o)
cover Y_3 at y alu_max(j=o)
cover Y at y_in store_outputs
""",
    ),
    "pooling": (
        pooling,
        """\
schedule Y
stage write Y as Y_acc in {accumulators}
stage read X for Y_acc as X_acc in {accumulators}
split Y.y {tail} 8 as y_tile y_in
order Y y_tile y_in v c
at Y_acc Y.y_tile in {accumulators} depth 2
at X_acc Y.y_tile depth 2
cover Y_acc at y alu_max(j=c)
cover Y at y_in store_outputs
""",
    ),
}
FAST = [*zip(SCHEDULES, TAILS, ("vta", "gemmini", "vta", "gemmini", "vta"), strict=True)]
FEW = [
    *zip(SCHEDULES, reversed(TAILS), ("gemmini", "vta", "gemmini", "vta", "gemmini"), strict=True)
]
"""Each schedule and each tail twice, once for each machine."""


@pytest.mark.parametrize(
    ("name", "tail", "machine"),
    [*FAST, *(slow(*one) for one in FEW)],
)
def test_a_schedule_of_the_page_runs_at_every_size(name: str, tail: str, machine: str) -> None:
    made, text = SCHEDULES[name]
    inputs, result, expected = made()
    schedule = oc.Schedule.parse(text.format(tail=tail, **MEMORIES[machine]))
    kernel = oc.compile(result, inputs=inputs, schedule=schedule, target=machine)
    assert kernel.schedule == schedule
    check(kernel, expected)


def check(kernel: Kernel, expected: Callable[..., Array]) -> None:
    for n in SIZES:
        rng = np.random.default_rng(n)
        arrays = []
        for one in kernel.signature.inputs:
            shape = [int(evaluate(extent, {"n": n})) for extent in one.shape]
            arrays.append(bytes_of(rng, tuple(shape)).astype(one.dtype))
        np.testing.assert_array_equal(kernel(*arrays), expected(*arrays))
        run = kernel.timeline(n=n)
        assert not run.races
        assert not run.unwritten
        assert not any(run.left.values())


@pytest.mark.slow
def test_a_strategy_that_chooses_is_a_choice_among_whole_nests() -> None:
    made, text = SCHEDULES["dense in windows in turn"]
    inputs, result, expected = made()
    schedule = oc.Schedule.parse(text.format(tail="mix", **MEMORIES["vta"]))
    (choice,) = with_strategy_options(schedule).steps
    assert isinstance(choice, Choose)
    assert [option.label for option in choice.options] == ["ladder", "balance", "even"]
    for option in choice.options:
        alone = str(Schedule(schedule.name, option.steps))
        assert alone == str(schedule).replace(" mix ", f" {option.label} ")
        assert with_strategy_options(Schedule(schedule.name, option.steps)).steps == option.steps
    kernel = oc.compile(result, inputs=inputs, schedule=schedule, target="vta")
    assert kernel.schedule == schedule
    check(kernel, expected)
