"""Microkernels on bytes and on tile registers, against numpy, between guard pages.

The tensor unit's code runs on any machine: its instructions are replaced by calls of `TileUnit`,
which does in numpy what they do, and checks what they demand of the configuration.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from itertools import product
from operator import mul
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest
from compiled import Array, in_child, needs_fork, same_bits
from guarded import LANES, Case, callable_of, case, covered, guarded_rows, panels, run_tile
from tile_unit import UNIT, on_tile_unit

import offcut as oc
from offcut.backends.cpu.machine import isa, jit
from offcut.backends.cpu.microkernels import amx, fma, madd, vnni
from offcut.backends.cpu.microkernels.family import TILES, WIDE_PARAMETERS, Variant
from offcut.core.dtypes import ITEM_BYTES
from offcut.describe.computation import computation
from offcut.partition import Match, all_matches
from tests.facade import load_machine

pytestmark = needs_fork  # a read beyond a guard page ends the child, not the tests

HOST = isa.host()
MACHINE = load_machine("sapphire-rapids")
AVX512 = isa.host_for_machine(MACHINE).isa
AVX2 = isa.host_for_machine(load_machine("avx2")).isa
KINDS = ("bfloat16", "int8", "uint8")
ROWS, COLUMNS = (1, 15, 16, 17, 31, 32), (1, 15, 16, 17, 32, 33, 48, 63, 70)
DEPTHS = (0, 1, 2, 31, 32, 33, 64, 70, 100)
LONG = [
    (32, 1000, 130),
    (17, 1664, 33),
    (9, 2500, 128),
    (8, 3100, 129),
    (31, 768, 144),
    (16, 40, 128),
]
PANELS = Variant(unit_depth=True, panels=True)
AMX_TARGET = "+amx-tile,+amx-bf16,+amx-int8,+avx512f,+avx512bw,+avx512vl,+avx512dq"


def run_amx(function: Callable[..., None], kind: str, what: Case, aligned: bool = False) -> Array:
    """The result of one call; what is around the operands is not touched.

    aligned  A's rows share a few sets of the cache
    """
    (rows, depth), columns = what.a.shape, what.b.shape[1]
    gap = -what.a.shape[1] * ITEM_BYTES[kind] % 2048 if aligned else 6 * ITEM_BYTES[kind]
    a, a_row, _ = guarded_rows(what.a, gap, 0xFF)
    b, b_panel = panels(what.b, amx.interleave(kind), amx.multiple(kind))
    c, c_row, result = guarded_rows(what.c, 12, 0xAB)
    function(
        a.address,
        a_row,
        rows,
        b.address,
        b_panel,
        c.address,
        c_row,
        depth,
        columns,
        what.accumulate,
    )
    assert np.all(np.delete(c.bytes, covered(rows, columns * 4, c_row)) == 0xAB)
    return result


@cache
def emulated(kind: str) -> Callable[..., None]:
    text = on_tile_unit(amx.text(kind))
    return callable_of(text, amx.symbol(kind), WIDE_PARAMETERS)


@cache
def byte_dots(dtype: str, rows: int, vectors: int) -> Callable[..., None]:
    text = vnni.tiles(AVX512, dtype, PANELS, [(rows, vectors)])
    return callable_of(text, vnni.symbol(AVX512, dtype, PANELS, rows, vectors), TILES)


def all_cases() -> Iterator[tuple[int, int, int, bool]]:
    return product(ROWS, DEPTHS, COLUMNS, (False, True))


@pytest.mark.every(5)
@pytest.mark.parametrize("kind", KINDS)
def test_the_tile_code_computes_the_product_and_touches_nothing_else(kind: str) -> None:
    function = emulated(kind)

    def sweep() -> None:
        for sizes in all_cases():
            what = case(kind, *sizes)
            what.check(run_amx(function, kind, what))
            assert not UNIT.faults, (sizes, UNIT.faults)
            assert not UNIT.rows.any(), "the tiles are released"

    assert in_child(sweep) == 0


@pytest.mark.every(5)
@pytest.mark.parametrize("kind", KINDS)
def test_a_depth_of_several_chunks_is_right_with_copied_rows_or_without(kind: str) -> None:
    function = emulated(kind)

    def sweep() -> None:
        for sizes in LONG:
            for accumulate in (False, True):
                what = case(kind, *sizes, accumulate)
                found = run_amx(function, kind, what)
                what.check(found)
                assert same_bits(run_amx(function, kind, what, aligned=True), found)
                assert not UNIT.faults, (sizes, UNIT.faults)

    assert in_child(sweep) == 0


@pytest.mark.every(2)
@pytest.mark.parametrize("kind", KINDS)
def test_tiles_are_as_wide_as_there_are_panels(kind: str) -> None:
    function, steps = emulated(kind), -(-100 // amx.multiple(kind))

    def count() -> None:
        for rows, columns in product(ROWS, COLUMNS):
            before = UNIT.multiplied
            run_amx(function, kind, case(kind, rows, 100, columns, False))
            halves = 1 if rows <= 16 else 2
            assert UNIT.multiplied - before == halves * -(-columns // 16) * steps

    assert in_child(count) == 0


def test_a_tile_is_configured_to_the_rows_that_there_are() -> None:
    function = emulated("int8")
    seen = []
    for rows in (1, 16, 17, 32):
        run_amx(function, "int8", case("int8", rows, 64, 40, False))
        seen.append((rows, UNIT.configured.tolist()))
    assert seen == [
        (1, [1, 1, 1, 1, 1, 16, 16, 16]),
        (16, [16] * 8),
        (17, [9, 9, 8, 8, 9, 8, 16, 16]),
        (32, [16] * 8),
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_the_tile_code_holds_its_instructions_and_no_spill(kind: str) -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple("x86_64-unknown-linux-gnu")
    machine = target.create_target_machine(features=AMX_TARGET, opt=1, jit=True)
    module = llvm.parse_assembly(amx.text(kind))
    module.verify()
    code = Counter(
        line.split()[0] for line in machine.emit_assembly(module).splitlines() if line.strip()
    )
    shapes = [(2, 2), (2, 1), (1, 4), (1, 3), (1, 2), (1, 1)]
    of_c, of_a, of_b = (
        sum(f(h, p) for h, p in shapes) for f in (mul, lambda h, _: h, lambda _, p: p)
    )
    multiply = {"bfloat16": "tdpbf16ps", "int8": "tdpbssd", "uint8": "tdpbusd"}[kind]
    assert {
        name: count for name, count in code.items() if name.startswith(("tile", "ldtile", "tdp"))
    } == {
        "ldtilecfg": 1,
        "tilerelease": 1,
        "tilezero": of_c,
        "tilestored": of_c,
        "tileloadd": of_c + 2 * of_a,
        "tileloaddt1": 2 * of_b,
        multiply: 2 * of_c,
    }
    assert machine.emit_object(module)


@pytest.mark.every(5)
@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=pytest.mark.isa(*sorted(amx.FEATURES[kind]))) for kind in KINDS],
)
def test_the_tensor_unit_agrees_with_numpy_and_with_itself(kind: str) -> None:
    if not amx.is_amx_permitted():
        pytest.skip("the system does not grant tile registers to this process")
    function = callable_of(amx.text(kind), amx.symbol(kind), WIDE_PARAMETERS)

    def sweep() -> None:
        for sizes in (*all_cases(), *((*sizes, False) for sizes in LONG)):
            what = case(kind, *sizes)
            found = run_amx(function, kind, what)
            what.check(found)
            assert same_bits(run_amx(function, kind, what, aligned=True), found)
            row, column = (sizes[0] - 1) // 2, (sizes[2] - 1) // 2
            a, b, c = what.a[row : row + 1], what.b[:, column:], what.c[row : row + 1, column:]
            part = run_amx(function, kind, Case(a, b, c, what.accumulate))
            assert same_bits(part, found[row : row + 1, column:])

    assert in_child(sweep) == 0


@pytest.mark.every(10)
@pytest.mark.isa(*sorted(vnni.FEATURES))
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("rows", fma.widths(AVX512))
def test_byte_dots_compute_the_product_and_touch_nothing_else(dtype: str, rows: int) -> None:
    functions = {v: byte_dots(dtype, rows, v) for v in fma.widths(AVX512)[rows]}

    def sweep() -> None:
        for depth in range(71):
            for vectors, function in functions.items():
                for accumulate in (False, True):
                    columns = LANES * vectors - (3 * depth + accumulate) % LANES
                    what = case(dtype, rows, depth, columns, accumulate)
                    what.check(run_tile(function, what, vnni.TERMS))
        for depth in (127, 128, 129, 1000):
            what = case(dtype, rows, depth, LANES, True, seed=1)
            what.check(run_tile(functions[1], what, vnni.TERMS))

    assert in_child(sweep) == 0


WITHOUT = [
    *(
        pytest.param(
            madd,
            one,
            dtype,
            marks=pytest.mark.isa(*sorted(one.features)),
            id=f"{one.name}, {dtype}",
        )
        for one in (AVX2, AVX512)
        for dtype in ("int8", "uint8")
    ),
    pytest.param(vnni, AVX2, "uint8", marks=pytest.mark.isa("avx512vnni"), id="AVX-VNNI, uint8"),
]
"""Dots of bytes without AVX512-VNNI; a processor with that runs what is for AVX-VNNI, too."""


def widths_of(kind: Any, own: isa.Isa) -> dict[int, tuple[int, ...]]:
    widths: dict[int, tuple[int, ...]] = (madd if kind is madd else fma).widths(own)
    return widths


@pytest.mark.every(5)
@pytest.mark.parametrize(("kind", "own", "dtype"), WITHOUT)
def test_pairs_of_bytes_compute_the_product_and_touch_nothing_else(
    kind: Any, own: isa.Isa, dtype: str
) -> None:
    lanes, widths = own.lanes("int32"), widths_of(kind, own)
    for rows in (1, 2, 4, max(widths)):
        functions = {
            v: callable_of(
                kind.tiles(own, dtype, PANELS, [(rows, v)]),
                kind.symbol(own, dtype, PANELS, rows, v),
                TILES,
            )
            for v in {1, widths[rows][0]}
        }

        def sweep(functions: Any = functions, rows: int = rows) -> None:
            for depth in (*range(14), 31, 32, 33, 70, 1000):
                for vectors, function in functions.items():
                    for accumulate in (False, True):
                        columns = lanes * vectors - (3 * depth + accumulate) % lanes
                        what = case(dtype, rows, depth, columns, accumulate)
                        what.check(run_tile(function, what, kind.TERMS, lanes))

        assert in_child(sweep) == 0


@pytest.mark.parametrize(("kind", "own", "dtype"), WITHOUT)
def test_all_pairs_of_ends_of_bytes_are_summed_exactly(kind: Any, own: isa.Isa, dtype: str) -> None:
    ends = {"int8": (-128, -127, -1, 0, 127), "uint8": (0, 1, 127, 128, 255)}
    terms = np.array([*product(*[ends[dtype]] * 2, *[ends["int8"]] * 2)])
    lanes = own.lanes("int32")
    function = callable_of(
        kind.tiles(own, dtype, PANELS, [(1, 1)]), kind.symbol(own, dtype, PANELS, 1, 1), TILES
    )
    for first in range(0, len(terms), lanes):
        part = terms[first : first + lanes]
        for a in np.unique(part[:, :2], axis=0):
            b = part[:, 2:].T
            for order in (slice(None), slice(None, None, -1)):
                left = np.tile(a[order], 2)[None].astype(dtype)
                right = np.tile(b[order], (2, 1)).astype("int8")
                what = Case(left, right, np.zeros((1, right.shape[1]), "int32"), False)
                what.check(run_tile(function, what, kind.TERMS, lanes))


@pytest.mark.parametrize(("kind", "own", "dtype"), WITHOUT)
def test_pairs_of_bytes_keep_their_accumulators_in_registers(
    kind: Any, own: isa.Isa, dtype: str
) -> None:
    hidden = {name for name in HOST.features if own.name == "avx2" and name.startswith("avx512")}
    host = replace(HOST, features=HOST.features - hidden)  # which has 16 registers, on any machine
    for rows, options in widths_of(kind, own).items():
        text = kind.tiles(own, dtype, PANELS, [(rows, options[0])])
        for block in jit.assembly(text, host, passes=False).split("\n.L"):
            lines = block.splitlines()
            products = sum("vpmaddwd" in x or "vpdpbusd" in x for x in lines)
            stored = [x for x in lines if "mm" in x.split("(")[0] and x.endswith("(%rsp)")]
            if products:  # several steps in a row: a few halves of B
                assert len(stored) * 4 <= products, rows


@pytest.mark.isa(*sorted(vnni.FEATURES))
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_byte_dots_keep_their_accumulators_in_registers(dtype: str) -> None:
    for rows, options in fma.widths(AVX512).items():
        text = vnni.tiles(AVX512, dtype, PANELS, [(rows, options[0])])
        lines = jit.assembly(text, HOST, passes=False).splitlines()
        assert not [line for line in lines if "%zmm" in line and line.endswith("(%rsp)")]
        unrolled = MACHINE.tiles.unroll if rows * options[0] <= 8 else MACHINE.tiles.unroll // 2
        steps = rows * options[0] * (unrolled + 2)
        assert sum("vpdpbusd" in line for line in lines) == steps + rows * (dtype == "int8")


def test_what_a_microkernel_declares_is_found_in_a_product_of_its_types() -> None:
    m, n, k = (oc.dim(name, max=99) for name in "mnk")
    q = oc.reduce_axis(k, "q")
    kernels = [
        *(amx.microkernel(kind, MACHINE.tile_unit) for kind in KINDS),
        *(vnni.microkernel(AVX512, dtype) for dtype in ("int8", "uint8")),
    ]
    for left, right in (("bfloat16",) * 2, ("int8",) * 2, ("uint8", "int8")):
        wide = "float32" if left == "bfloat16" else "int32"
        L, R = oc.placeholder((m, k), left, name="L"), oc.placeholder((k, n), right, name="R")
        product_of = oc.compute(
            (m, n),
            lambda i, j, L=L, R=R, wide=wide: oc.sum(
                oc.cast(L[i, q], wide) * oc.cast(R[q, j], wide), axis=q
            ),
            axes=("i", "j"),
        )
        stage = computation([product_of]).groups[0][0]
        found: dict[str, Match] = {}
        for match in all_matches(stage, kernels):
            found.setdefault(match.microkernel.name, match)
        dots = [] if left == "bfloat16" else [f"vnni_{left}_avx512"]
        assert list(found) == [f"amx_{left}", *dots]
        for match in found.values():
            assert (match.rows, match.columns, match.depth) == ("i", "j", "q")
            assert match.operand("A").buffer == "L"
            assert match.microkernel.interleave * ITEM_BYTES[left] == 4
            assert match.microkernel.multiple % match.microkernel.interleave == 0


def test_few_rows_cost_less_and_reuse_of_tiles_pays() -> None:
    def cycles(rows: int, panels: int) -> float:
        return amx.step_cycles(rows, panels, MACHINE.tile_unit)

    assert cycles(4, 4) < cycles(16, 4)
    assert cycles(17, 2) < cycles(32, 2) == 64
    assert cycles(32, 2) / (32 * 2) < cycles(16, 4) / (16 * 4)
    kernel = amx.microkernel("int8", MACHINE.tile_unit)
    assert kernel.max_rows == 32
    assert [kernel.columns_for(rows) for rows in (1, 16, 17, 32)] == [64, 64, 32, 32]
    assert (
        kernel.tile(32, 32).cycles * 2
        == amx.microkernel("bfloat16", MACHINE.tile_unit).tile(32, 32).cycles
    )


def test_permission_is_asked_once() -> None:
    assert isinstance(amx.is_amx_permitted(), bool)
    assert amx.is_amx_permitted.cache_info().misses == 1
