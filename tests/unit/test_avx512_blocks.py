"""Row blocks in assembly: read one instruction at a time, and beside those that LLVM makes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest

from offcut.backends.cpu.machine import isa, jit
from offcut.backends.cpu.microkernels import avx512_blocks, bf16_dots, fma
from offcut.backends.cpu.microkernels.avx512_blocks import FMA, Block
from offcut.backends.cpu.microkernels.family import Variant
from tests.facade import load_machine
from tests.x86 import Machine

ZEN4 = isa.host_for_machine(load_machine("zen4"))
VARIANTS = [
    Variant(unit, panels, even, turns)
    for unit, panels, even in product((True, False), repeat=3)
    for turns in (0, 1, 2)
]
SHAPES = [(1, 1), (1, 6), (1, 12), (2, 4), (2, 10), (4, 4), (6, 3), (9, 3), (11, 1), (14, 2)]


def called(
    run: Callable[[list[Any], list[int]], Any],
    dtype: str,
    variant: Variant,
    shape: tuple[int, int],
    *,
    depth: int,
    last: int,
    accumulate: int,
) -> tuple[Any, Any]:
    """What `run` makes of C, and what it has to: small integers, two loops around the terms."""
    lanes, (rows, vectors) = ZEN4.isa.lanes(dtype), shape
    counts = (2, 3)[: variant.turns]
    columns = (vectors - 1) * lanes + last
    draw = np.random.default_rng([rows, vectors, depth])
    unit = 1 if variant.unit_depth else 3
    a = draw.integers(-3, 4, (rows, 200)).astype(dtype)
    b = draw.integers(-3, 4, (vectors, 40 + 32, lanes)).astype(dtype)
    flat, step = (b.reshape(-1), lanes) if variant.panels else (b.reshape(-1), vectors * lanes + 1)
    c = draw.integers(-3, 4, (rows, columns + 2)).astype(dtype)
    wanted = c.astype("float64")
    if not accumulate:
        wanted[:, :columns] = 0
    for turn in np.ndindex(*counts):
        over = dict(zip(("outer", "inner"), turn, strict=False))
        moved_a = 7 * over.get("outer", 0) + 2 * over.get("inner", 0)
        moved_b = lanes * (2 * over.get("outer", 0) + over.get("inner", 0))
        for k, j in np.ndindex(depth, columns):
            start = j // lanes * 72 * lanes + j % lanes if variant.panels else j
            wanted[:, j] += a[:, moved_a + unit * k] * float(flat[start + moved_b + step * k])
    size = np.dtype(dtype).itemsize
    strides = [a.strides[0], unit * size, 72 * lanes * size, step * size, c.strides[0]]
    turns = [
        (count, away * size, lanes * over * size)
        for count, away, over in zip(counts, (7, 2), (2, 1), strict=False)
    ]
    numbers = [*strides, depth, last, int(accumulate), 64, *np.ravel(turns).astype(int).tolist()]
    return run([a, b, c], numbers), wanted


def read(block: Block) -> Callable[[list[Any], list[int]], Any]:
    """A block as it is read one instruction at a time."""

    def run(arrays: list[Any], numbers: list[int]) -> Any:
        machine = Machine()
        a, b, c = map(machine.place, arrays)
        a_row, a_step, b_panel, b_step, c_row, depth, last, accumulate, step, *turns = numbers
        head = [a, a_row, a_step, b, b_panel, b_step, c, c_row, depth, last, accumulate, b, step]
        machine.call(list(block.lines()), [*head, *turns])
        return machine.array(c, arrays[2])

    return run


def native(text: str, name: str, variant: Variant) -> Callable[[list[Any], list[int]], Any]:
    """A function of LLVM IR as this machine runs it."""
    code = jit.load([jit.object_code(text, isa.host(), passes=False)], isa.host())
    kinds = [
        ctypes.c_void_p if kind == "ptr" else ctypes.c_int64
        for kind in variant.parameters.split(", ")
    ]
    function = ctypes.CFUNCTYPE(None, *kinds)(code.address(name))

    def run(arrays: list[Any], numbers: list[int]) -> Any:
        a, b, c = (arrays[0], arrays[1], arrays[2].copy())
        a_row, a_step, b_panel, b_step, c_row, depth, last, accumulate, step, *turns = numbers
        at = [array.ctypes.data for array in (a, b, c)]
        head = [at[0], a_row, a_step, at[1], b_panel, b_step, at[2], c_row, depth, last, accumulate]
        function(*head, at[1], step, *turns)
        assert code is not None
        return c

    return run


@pytest.mark.every(4)
@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.suffix)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_block_computes_its_product_and_touches_nothing_else(
    dtype: str, variant: Variant
) -> None:
    drawn = VARIANTS.index(variant) % 3
    for place, shape in enumerate(SHAPES[drawn::3]):
        block = Block("block", ZEN4.isa, FMA[dtype], variant, *shape)
        depth = (0, 4, 8)[place % 3] if variant.even else (0, 1, 3, 7)[place % 4]
        last = (1, ZEN4.isa.lanes(dtype), 5)[place % 3]
        run = read(block)
        found, wanted = called(
            run, dtype, variant, shape, depth=depth, last=last, accumulate=place % 2
        )
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("variant", [VARIANTS[0], VARIANTS[7], VARIANTS[14]], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_columns_that_half_a_vector_holds_take_half_of_it(dtype: str, variant: Variant) -> None:
    half = ZEN4.isa.lanes(dtype) // 2
    for rows in (1, 3, 14):
        block = Block("block", ZEN4.isa, FMA[dtype], variant, rows, 1)
        for last in (1, half - 1, half, half + 1):
            found, wanted = called(
                read(block), dtype, variant, (rows, 1), depth=8, last=last, accumulate=last % 2
            )
            np.testing.assert_array_equal(found, wanted)
    assert any("ymm" in line for line in block.lines())
    wide = Block("block", ZEN4.isa, FMA[dtype], variant, 3, 2)
    assert not any("ymm" in line for line in wide.lines())


@pytest.mark.every(4)
@pytest.mark.isa("avx512f", "avx512vl", "avx512bw", "avx512dq")
@pytest.mark.parametrize("variant", VARIANTS[::2], ids=lambda variant: variant.suffix)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_block_has_the_bits_of_llvms(dtype: str, variant: Variant) -> None:
    own = isa.host().isa
    name, shapes = fma.symbol(own, dtype, variant, 9, 3), [(9, 3)]
    llvm, assembled = (
        native(make(own, dtype, variant, shapes), name, variant)
        for make in (fma.emit_llvm, fma.emit_assembly)
    )
    for depth, last, accumulate in ((4, 1, True), (12, 8, False)):
        sizes = {"depth": depth, "last": last, "accumulate": accumulate}
        one, wanted = called(llvm, dtype, variant, (9, 3), **sizes)
        other, _ = called(assembled, dtype, variant, (9, 3), **sizes)
        np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(one, wanted)


@pytest.mark.parametrize("depth", [0, 1, 2, 9, 16])
@pytest.mark.parametrize("shape", [(1, 2), (6, 3), (14, 2)])
def test_pairs_of_bfloat16_are_multiplied_and_an_odd_one_by_itself(
    shape: tuple[int, int], depth: int
) -> None:
    rows, vectors = shape
    (text,) = [bf16_dots.assemble(ZEN4.isa, bf16_dots.PANELS, [shape])]
    assert text.count("vdpbf16ps") >= rows * vectors
    draw = np.random.default_rng(depth)
    a = draw.integers(-3, 4, (rows, 40)).astype("float32")
    b = draw.integers(-3, 4, (40, 16 * vectors)).astype("float32")
    b[depth:] = 0
    halves = [(one.view(np.uint32) >> 16).astype(np.uint16) for one in (a, b)]
    panels = halves[1].reshape(20, 2, vectors, 16).transpose(2, 0, 3, 1).copy()
    c = np.full((rows, 16 * vectors), np.nan, "float32")
    machine = Machine()
    at = [machine.place(array) for array in (halves[0], panels, c)]
    arithmetic = bf16_dots.PAIRS
    block = Block("block", ZEN4.isa, arithmetic, bf16_dots.PANELS, rows, vectors)
    head = [at[0], 80, 2, at[1], panels.strides[0], 64, at[2], c.strides[0], depth, 16, 0]
    machine.call(list(block.lines()), [*head, at[1], 64])
    wanted = a[:, :depth] @ b[:depth]
    np.testing.assert_array_equal(machine.array(at[2], c), wanted)


@pytest.mark.parametrize("name", ["cascade-lake", "sapphire-rapids", "zen4", "zen5"])
def test_every_machine_of_ours_with_avx512_takes_them(name: str) -> None:
    if not llvm.get_process_triple().startswith("x86_64"):
        pytest.skip("this process has no assembler of x86-64")
    assert avx512_blocks.are_for(isa.host_for_machine(load_machine(name)))


@pytest.mark.parametrize("variant", VARIANTS[:6], ids=lambda variant: variant.suffix)
def test_every_shape_is_code_for_its_machine(variant: Variant) -> None:
    if not avx512_blocks.are_for(ZEN4):
        pytest.skip("this process has no assembler of x86-64")
    widths = fma.widths(ZEN4.isa, in_place=True)
    shapes = [(rows, width) for rows, options in widths.items() for width in options]
    text = fma.emit_assembly(ZEN4.isa, "float64", variant, shapes)
    assert jit.text_bytes(jit.object_code(text, ZEN4, passes=False)) > 64 * len(shapes)


@pytest.mark.parametrize("measured", [1.0, 4.0])
def test_what_is_predicted_of_a_machine_that_is_described_does_not_depend_on_the_one_that_predicts(
    measured: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates = bf16_dots.instruction_rates
    monkeypatch.setattr(rates, "cached_measurement", lambda *_: (measured,))
    bf16_dots.issue.cache_clear()
    unstated = isa.host_for_machine(load_machine("sapphire-rapids"))

    for name in ("zen4", "zen5"):
        described = isa.host_for_machine(load_machine(name))
        assert bf16_dots.issue(described) == 1.0, "64 in a cycle, where two vectors are multiplied"
        assert len(list(bf16_dots.families(described))) == 1
    assert bf16_dots.issue(replace(ZEN4, here=True)) == measured
    bf16_dots.issue.cache_clear()
    assert list(bf16_dots.families(unstated)) == [], "its description has no such unit"
    assert len(list(bf16_dots.families(replace(unstated, here=True)))) == 1
