"""Instructions of other units: matched to tiles of a partition, run by the interpreter through their
layouts, and not lowered by the CPU, which says so.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from compiled import Array
from issued import issued, laid, taken

import offcut as oc
from offcut import Microkernel, Program
from offcut.backends.accelerator.microkernels import gemm, words
from offcut.backends.gpu import instructions
from offcut.describe.intrinsic import declare
from offcut.describe.tile_shapes import Place, TileShape
from offcut.ir import Tile, walk
from offcut.partition import checked_request
from offcut.schedule import cut_program
from tests.facade import check_equal, numpy_dtype, real

WARP = """program product
size n in 0:100
input A: {dtype}[n, {depth}]
input B: {dtype}[{depth}, 40]
output C: float32[n, 40]
for i in 0:n
  for j in 0:40
    C[i, j] = 0
    for k in 0:{depth}
      C[i, j] += float32(A[i, k]) * float32(B[k, j])
"""
BYTES = """program shifted
size n in 0:100
input A: int8[n, 64]
input B: int8[48, 64]
local C: int32[n, 48]
output D: int32[n, 48]
for i in 0:n
  for j in 0:48
    C[i, j] = 0
    for k in 0:64
      C[i, j] += int32(A[i, k]) * int32(B[j, k])
for y in 0:n
  for x in 0:48
    D[y, x] = C[y, x] // 256
"""
PAIRS = [pytest.param(kernel, id=kernel.name) for kernel in instructions.MMA]


def cut_by(text: str, tile: dict[str, int], *kernels: Microkernel) -> Program:
    """The loops of a cut before any target was asked, with the microkernels that match its tiles."""
    request = checked_request(tile, "cut")
    source = oc.parse(text)
    made = cut_program(source, request, kernels, lambda runs, _: real(0.0), copies=4)
    assert check_equal(source, made.loops, reassociate=True)
    return made.loops


def named(program: Program) -> list[str | None]:
    return [stmt.microkernel for stmt in walk(program.body) if isinstance(stmt, Tile)]


@pytest.mark.parametrize("kernel", PAIRS)
def test_a_tile_of_its_shape_is_a_warps_and_a_smaller_one_is_not(kernel: Microkernel) -> None:
    text = WARP.format(dtype=kernel.name.rpartition("_")[2], depth=64)

    assert named(cut_by(text, {"i": 16, "j": 8}, kernel)) == [kernel.name, None]  # the tail
    assert named(cut_by(text, {"i": 16, "j": 8, "k": 32}, kernel)) == [kernel.name, None]
    assert named(cut_by(text, {"i": 8, "j": 8}, kernel)) == [None, None]
    assert named(cut_by(text, {"i": 16, "j": 16}, kernel)) == [None] * 4
    assert named(cut_by(text, {"i": 16, "j": 8, "k": 24}, kernel))[0] is None


def blocks(shape: tuple[int, ...], of: tuple[int, ...]) -> Iterator[tuple[slice, ...]]:
    for at in np.ndindex(*(extent // step for extent, step in zip(shape, of, strict=True))):
        yield tuple(slice(a * s, (a + 1) * s) for a, s in zip(at, of, strict=True))


@pytest.mark.parametrize("kernel", PAIRS)
def test_what_a_warp_does_to_its_lanes_is_what_the_tile_says(kernel: Microkernel) -> None:
    dtype = kernel.name.rpartition("_")[2]
    random = np.random.default_rng(0)
    a, b = (random.integers(-8, 9, s).astype(numpy_dtype(dtype)) / 4 for s in ((48, 64), (64, 40)))
    program = cut_by(WARP.format(dtype=dtype, depth=64), {"i": 16, "j": 8}, kernel)
    c = np.zeros((48, 40), np.float32)

    for rows, columns in blocks(c.shape, (16, 8)):
        held = laid(kernel, "C", c[rows, columns])
        assert held.shape == (32, 4)
        for (depth,) in blocks((64,), (16,)):
            fragments = {
                "A": laid(kernel, "A", a[rows, depth]),
                "B": laid(kernel, "B", b[depth, columns]),
            }
            assert fragments["A"].shape == (32, 8)
            held = issued(kernel, fragments, held)
        c[rows, columns] = taken(kernel, "C", held)

    np.testing.assert_array_equal(c, program.run({"A": a, "B": b}))
    np.testing.assert_array_equal(c, a.astype(np.float64) @ b.astype(np.float64))


def shifting(bits: int) -> Microkernel:
    a = oc.placeholder((1, 16), "int32", name="A")
    made = oc.compute((1, 16), lambda i, j: a[i, j] // 2**bits, name="C")
    held = Place(layout=words((0, 1), (1, 16)))
    tiles = (TileShape((1, 16), 1.0, 0.0),)
    operands = {"A": held, "C": held}
    return Microkernel(f"alu_shift_{bits}", made, tiles, operands=operands, unit="vector unit")


UNITS = (declare(gemm(1, 16, 16)), declare(shifting(8)))


def test_a_tile_of_bytes_is_the_matrix_units_and_the_shift_behind_it_the_vector_units() -> None:
    tile = {"i": 1, "j": 16, "y": 1, "x": 16}

    assert named(cut_by(BYTES, tile, *UNITS)) == ["gemm_1x16x16", "alu_shift_8"]
    assert named(cut_by(BYTES, tile, UNITS[0], shifting(7))) == ["gemm_1x16x16", None]
    assert named(cut_by(BYTES, {**tile, "x": 8}, *UNITS)) == ["gemm_1x16x16", None]
    assert named(cut_by(BYTES.replace("0:64", "0:63"), tile, *UNITS)) == [None, "alu_shift_8"]


def test_what_the_units_do_to_words_is_what_the_tiles_say() -> None:
    random = np.random.default_rng(0)
    a, b = (random.integers(-128, 128, s).astype(np.int8) for s in ((5, 64), (48, 64)))
    inputs, weights = words((0, 1), (1, 16)).arrange(a), words((0, 16), (1, 16)).arrange(b)
    results = np.zeros(words((0, 1), (1, 16)).extents((5, 48)), np.int32)
    assert (inputs.shape, weights.shape) == ((5, 4, 16), (3, 4, 256))

    for row, block in np.ndindex(5, 3):
        at = slice(row, row + 1), slice(block, block + 1)
        held = results[at]
        for k in range(4):
            operands = {"A": inputs[at[0], k : k + 1], "B": weights[at[1], k : k + 1]}
            held = issued(UNITS[0], operands, held)
        results[at] = issued(UNITS[1], {"A": held})

    found: Array = words((0, 1), (1, 16)).restore(results, (5, 48))
    program = cut_by(BYTES, {"i": 1, "j": 16, "y": 1, "x": 16}, *UNITS)
    np.testing.assert_array_equal(found, program.run({"A": a, "B": b}))
    np.testing.assert_array_equal(found, (a.astype(np.int64) @ b.T.astype(np.int64)) >> 8)


WHY = {
    "mma_m16n8k16_bfloat16": "it runs on a warp, and the CPU has none",
    "gemm_1x16x16": "it runs on a matrix unit, and the CPU has none",
    "alu_shift_8": "it runs on a vector unit, and the CPU has none",
}


def test_a_partition_for_the_cpu_says_which_it_would_be_and_why_it_is_not() -> None:
    made = oc.partition(
        oc.parse(WARP.format(dtype="bfloat16", depth=64)),
        tile={"i": 16, "j": 8},
        microkernels=instructions.MMA,
    )
    bytes_made = oc.partition(
        oc.parse(BYTES), tile={"i": 1, "j": 16, "y": 1, "x": 16}, microkernels=UNITS
    )

    notes = [*made.notes, *bytes_made.notes]
    for name, why in WHY.items():
        (note,) = (note for note in notes if f"{name} does not run it" in note)
        assert note.partition(": ")[2] == f"{name} does not run it: {why}"
    left = [note for note in notes if "does not cover it" in note]
    tail = "tile i, j: mma_m16n8k16_bfloat16 does not cover it: extents: i is 1 long, and mma_m16n8k16_bfloat16 takes 16"
    assert [
        note for note in left if note != tail
    ] == [  # where the CPU's own run no tile, the tail's is said
        "tile i, j: mma_m16n8k16_float16 does not cover it: term: float32(A[i, k]) * float32(B[k, j]) is not what it sums",
        "tile y, x: gemm_1x16x16 does not cover it: term: it has no sum",
        "tile i, j: alu_shift_8 does not cover it: term: 0 is not what it computes",
    ]
    assert {p.microkernel for p in (*made.pieces, *bytes_made.pieces)} & set(WHY) == set()


def test_a_kernel_whose_text_names_one_runs_without_it_and_its_plan_says_why() -> None:
    program = cut_by(BYTES, {"i": 1, "j": 16, "y": 1, "x": 16}, *UNITS)
    assert named(oc.parse(str(program))) == ["gemm_1x16x16", "alu_shift_8"]
    kernel = oc.compile(program)

    plan = kernel.plan(n=5)
    for name in ("gemm_1x16x16", "alu_shift_8"):
        (note,) = (note for note in plan.notes if name in note)
        assert note.endswith(f": {name} does not run it: {WHY[name]}")
    random = np.random.default_rng(0)
    a, b = (random.integers(-128, 128, s).astype(np.int8) for s in ((5, 64), (48, 64)))
    np.testing.assert_array_equal(kernel(a, b), (a.astype(np.int64) @ b.T.astype(np.int64)) >> 8)
