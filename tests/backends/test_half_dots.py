"""Sums of products of bfloat16 two at once: the functions, whole kernels, and when they are taken.

The code runs on any machine: its instruction is spelt out in other ones. What needs the instruction
itself is skipped where the processor lacks it.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest
from compiled import Array, in_child, needs_fork, same_bits
from conftest import edge_sizes, slow
from guarded import LANES, Case, callable_of, case, run_tile
from half_dot import emulated, on_emulated

import offcut as oc
from offcut.backends.cpu.machine import instruction_rates, isa
from offcut.backends.cpu.microkernels import available, bf16_dots, fma
from offcut.backends.cpu.microkernels.family import TILES, Variant
from offcut.core.dtypes import numpy_dtype
from offcut.costmodel import load
from tests.agree import agree, exact_matmul

PANELS = Variant(unit_depth=True, panels=True)
NAME = "dot_bfloat16_avx512"
AVX512 = isa.host_for_machine(load("sapphire-rapids")).isa
ROWS = tuple(fma.widths(AVX512))
TARGET = "+avx512f,+avx512bw,+avx512vl,+avx512dq,+avx512bf16"
avx512 = pytest.mark.isa(*sorted(isa.AVX512_FEATURES))


@cache
def function(rows: int, vectors: int, real: bool) -> Callable[..., None]:
    text = bf16_dots.tiles(AVX512, PANELS, [(rows, vectors)])
    symbol = bf16_dots.symbol(AVX512, PANELS, rows, vectors)
    return callable_of(text if real else emulated(text), symbol, TILES)


def sweep(rows: int, real: bool) -> None:
    functions = {v: function(rows, v, real) for v in fma.widths(AVX512)[rows]}
    for depth in (*range(12), 31, 32, 33, 70, 257):
        for vectors, run in functions.items():
            for accumulate in (False, True):
                columns = LANES * vectors - (3 * depth + accumulate) % LANES
                what = case("bfloat16", rows, depth, columns, accumulate)
                found = run_tile(run, what, bf16_dots.TERMS)
                what.check(found)
                part = Case(what.a[-1:], what.b[:, :5], what.c[-1:, :5], accumulate)
                alone = run_tile(function(1, 1, real), part, bf16_dots.TERMS)
                assert same_bits(alone, found[-1:, :5])


@needs_fork
@pytest.mark.every(10)
@pytest.mark.parametrize("rows", ROWS)
def test_the_code_computes_the_product_and_touches_nothing_else(rows: int) -> None:
    assert in_child(lambda: sweep(rows, real=False)) == 0


@needs_fork
@pytest.mark.every(5)
@pytest.mark.isa(*sorted(bf16_dots.FEATURES))
@pytest.mark.parametrize("rows", ROWS)
def test_the_instruction_computes_the_product_and_touches_nothing_else(rows: int) -> None:
    assert in_child(lambda: sweep(rows, real=True)) == 0


@pytest.mark.parametrize(
    "real",
    [False, pytest.param(True, marks=pytest.mark.isa(*sorted(bf16_dots.FEATURES)))],
)
def test_denormals_count_as_zero_and_what_is_not_finite_stays_where_it_is(real: bool) -> None:
    small, half = 2.0**-127, 2.0**-64
    a = np.zeros((3, 4), numpy_dtype("bfloat16"))
    b = np.zeros((4, 3), numpy_dtype("bfloat16"))
    a[0], a[1], a[2] = (small, 0, 0, 1), (half, 0, half, 0), (0, np.inf, 1, 0)
    b[:, 0], b[:, 1], b[:, 2] = (1, 1, 1, 0), (half, 0, -half, 3), (1, 2, np.nan, 0)
    what = Case(a, b, np.full((3, 3), small, np.float32), accumulate=True)

    found = run_tile(function(3, 1, real), what, bf16_dots.TERMS)

    assert found[:2, :2].tolist() == [[0, 3], [2 * half, 0]]
    assert np.isnan(found[:, 2]).tolist() == [True] * 3
    assert found[2, :2].tolist()[0] == np.inf
    assert np.isnan(found[2, 1])  # inf * 0


def test_the_code_keeps_its_accumulators_in_registers() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple("x86_64-unknown-linux-gnu")
    machine = target.create_target_machine(features=TARGET, opt=1, jit=True)
    for rows, options in fma.widths(AVX512).items():
        module = llvm.parse_assembly(bf16_dots.tiles(AVX512, PANELS, [(rows, options[0])]))
        module.verify()
        lines = machine.emit_assembly(module).splitlines()
        assert not [line for line in lines if "%zmm" in line and line.endswith("(%rsp)")]
        unrolled = (
            AVX512.machine.tiles.unroll
            if rows * options[0] <= 8
            else AVX512.machine.tiles.unroll // 2
        )
        code = Counter(line.split()[0] for line in lines if line.strip())
        assert code["vdpbf16ps"] == rows * options[0] * (unrolled + 2)


def product(depth: int, columns: int, turned: bool = False) -> tuple[list[oc.Tensor], oc.Tensor]:
    n = oc.dim("n", max=200)
    a = oc.placeholder((n, depth), "bfloat16", name="A")
    shape = (columns, depth) if turned else (depth, columns)
    b = oc.placeholder(shape, "bfloat16", name="B")
    k = oc.reduce_axis(depth, name="k")

    def term(i: Any, j: Any) -> Any:
        right = b[j, k] if turned else b[k, j]
        return oc.sum(oc.cast(a[i, k], "float32") * oc.cast(right, "float32"), axis=k)

    return [a, b], oc.compute((n, columns), term, name="C")


def values(seed: int, *shape: int) -> Array:
    whole = np.random.default_rng(seed).integers(-100, 100, shape)
    return (whole / 64).astype(numpy_dtype("bfloat16"))


def named(kernel: oc.Kernel, **sizes: int) -> set[str]:
    return {piece.microkernel for piece in kernel.plan(**sizes).pieces} - {"vector loops"}


def check_every_size(kernel: oc.Kernel, b: Array, *given: Array) -> None:
    whole = values(1, 101, b.shape[0])
    for rows in edge_sizes(14):
        out = np.full((rows, b.shape[1]), 77, np.float32)
        kernel(whole[:rows], *given, out=out)
        agree(out, exact_matmul(whole[:rows], b))


@avx512
@pytest.mark.every(8)
@pytest.mark.parametrize("how", ["constant", "at the call", "at the call, turned"])
@pytest.mark.parametrize("depth", [slow(1), 2, 31, slow(64), 71])
def test_a_product_runs_on_it_at_every_size(depth: int, how: str) -> None:
    with on_emulated():
        inputs, c = product(depth, 70, turned=how.endswith("turned"))
        b = values(0, depth, 70)
        constant = how == "constant"
        kernel = oc.compile(c, inputs=inputs, constants={"B": b} if constant else None)
        laid = np.ascontiguousarray(b.T) if how.endswith("turned") else b
        check_every_size(kernel, b, *([] if constant else [laid]))
        assert named(kernel, n=33) == {NAME}


@avx512
@pytest.mark.every(10)
@pytest.mark.parametrize("strategy", ["ladder", "balance", "shift", "pad", "mask", "cut", "guard"])
def test_every_strategy_gives_the_same_bits(strategy: str) -> None:
    b, a = values(0, 71, 40), values(1, 101, 71)
    with on_emulated():
        inputs, c = product(71, 40)
        whole = oc.compile(c, inputs=inputs, constants={"B": b})(a)
        kernel = oc.compile(c, inputs=inputs, constants={"B": b}, strategy=strategy)
        for rows in (0, 1, 13, 15, 47, 101):
            found = kernel(a[:rows])
            if strategy in ("cut", "guard"):  # whose single rows are loops
                agree(found, exact_matmul(a[:rows], b))
            else:
                assert same_bits(found, whole[:rows])


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A host of the instruction and no tensor unit, which it issues as often as a multiply–add."""
    monkeypatch.setenv("OFFCUT_HIDE_FEATURES", "amx-tile")
    monkeypatch.setenv("OFFCUT_CACHE", "off")
    monkeypatch.setattr(bf16_dots, "issue", lambda _: 1.0)
    available.families.cache_clear()
    yield
    available.families.cache_clear()


@pytest.mark.every(2)
@pytest.mark.usefixtures("alone")
@pytest.mark.isa(*sorted(bf16_dots.FEATURES))
@pytest.mark.parametrize("threads", [1, 2])
def test_on_the_instruction_itself_bits_depend_on_no_size_and_no_thread(threads: int) -> None:
    b, a = values(0, 257, 150), values(1, 101, 257)
    inputs, c = product(257, 150)
    kernel = oc.compile(c, inputs=inputs, constants={"B": b}, threads=threads)
    packed = oc.compile(c, inputs=inputs)
    assert named(kernel, n=33) == named(packed, n=33) == {NAME}
    check_every_size(kernel, b)
    whole = kernel(a)
    assert same_bits(packed(a, b), whole)
    for rows in edge_sizes(14):
        assert same_bits(kernel(a[:rows]), whole[:rows])


TEXT = """program product
size n in 0:201
input A: bfloat16[n, 70]
input B: bfloat16[70, 48]
output C: float32[n, 48]
local P: bfloat16[70, 48] @panels(0, 1, 16, 2, 2)
for p in 0:70
  for q in 0:48
    P[p, q] = B[p, q]
for i in 0:n
  for j in 0:48
    C[i, j] = 0
    for k in 0:70
      C[i, j] += float32(A[i, k]) * float32(P[k, j])
"""


@avx512
def test_where_terms_are_to_be_added_in_their_order_it_is_refused_and_the_plan_says_so() -> None:
    b = values(0, 70, 48)
    with on_emulated():
        cut = oc.partition(oc.parse(TEXT), tile={"i": 8, "j": 16}, tail="mask")
        ordered = oc.compile(cut.loops, reassociate=False)
        inputs, c = product(70, 48)
        described = oc.compile(c, inputs=inputs, constants={"B": b}, reassociate=False)
    (note,) = (note for note in ordered.plan(n=9).notes if NAME in note)
    assert note == (
        f"tile i, j: {NAME} does not run it: it adds the terms of an element in an order of its own"
    )
    assert named(described, n=9) == {"fma_bfloat16_avx512"}
    check_every_size(ordered, b, b)


@avx512
@pytest.mark.parametrize(("issue", "taken"), [(1.0, NAME), (4.0, "fma_bfloat16_avx512")])
def test_it_is_taken_where_it_is_the_fastest(issue: float, taken: str) -> None:
    inputs, c = product(768, 96)
    b = values(0, 768, 96)
    with on_emulated(issue):
        kernel = oc.compile(c, inputs=inputs, constants={"B": b})
    assert named(kernel, n=64) == {taken}


@pytest.mark.isa(*sorted(bf16_dots.FEATURES))
def test_what_it_costs_is_measured_once_for_a_processor(
    monkeypatch: pytest.MonkeyPatch, tmp_path: os.PathLike[str]
) -> None:
    monkeypatch.setenv("OFFCUT_CACHE", os.fspath(tmp_path))
    bf16_dots.issue.cache_clear()
    first = bf16_dots.issue(isa.host())
    assert first in (1.0, 2.0, 4.0, 8.0)
    bf16_dots.issue.cache_clear()
    monkeypatch.setattr(instruction_rates, "cycles", lambda *_: pytest.fail("it is kept"))
    assert bf16_dots.issue(isa.host()) == first
    bf16_dots.issue.cache_clear()


def test_a_machine_without_the_instruction_believes_what_is_declared() -> None:
    assert (
        instruction_rates.cached_measurement(
            ("none",), {"no such feature"}, lambda: pytest.fail("not here")
        )
        is None
    )
    assert bf16_dots.microkernel(AVX512).cycles == fma.microkernel(AVX512, "float32").cycles / 2
