"""Programs at which code generation once ended the process, or found no value; each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from conftest import edge_sizes, rejection
from tile_unit import emulated, skip_unless_tiles_are_stored

import offcut as oc
import offcut.core.program as ir
from offcut import ops
from offcut.backends.cpu.machine.isa import host
from offcut.backends.cpu.microkernels.available import families
from offcut.core.program import Tile, walk
from offcut.errors import PartitionError
from tests.facade import numpy_dtype

HEAD = "size n in 0:60\nsize m in 0:60\n"
PROGRAMS = {
    "a choice inside a loop, priced for threads": (
        "inout S: int32[n + m + 8]\nfor i in n:1\n  for j in 0:i + 1\n    S[j] = 1\n",
        "tile={'j': 1}, tail='mix'",
        2,
    ),
    "rows of a maximum in tiles of two, on threads": (
        "input X: int32[n, m]\noutput V: int32[n]\n"
        "for i in 0:n\n  for j in 0:m\n    V[i] max= X[i, j]\n",
        "tile={'j': 2}, tail='mix'",
        2,
    ),
    "rows of a sum in tiles of nearly one height": (
        "input A: float32[n, m]\noutput S: float32[n]\n"
        "for i in 0:n\n  S[i] = 0\n  for j in 0:m\n    S[i] += A[i, j]\n",
        "tile={'j': 7}, tail='balance'",
        1,
    ),
}


@pytest.mark.every(4)
@pytest.mark.parametrize("what", PROGRAMS)
def test_code_is_generated(what: str) -> None:
    body, cut, threads = PROGRAMS[what]
    program = f"program p\n{HEAD}{body}"
    text = f"oc.compile(oc.partition(oc.parse({program!r}), {cut}).loops, threads={threads})"
    done = subprocess.run(
        [sys.executable, "-c", f"import offcut as oc; {text}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_a_private_buffer_of_a_tile_around_tiles_has_memory() -> None:
    program = oc.parse("""
program p
size n in 0:60
input X: float32[n]
private P: float32[n]
output Z: float32[n]
tile x in 0 +: n
  P[x] = 0.0
  tile s in 0 +: 1
    P[x] += X[x]
  Z[x] = P[x]
""")
    x = np.arange(5, dtype=np.float32)
    np.testing.assert_array_equal(oc.compile(program)(x), x)


@pytest.mark.parametrize("tail", ["balance", "even", "version", "mix"])
def test_a_cut_program_takes_a_constant_of_no_element(tail: str) -> None:
    program = oc.parse("""
program p
size n in 0:60
constant A: float32[n]
output Z: float32[n]
for i in 0:n
  Z[i] = A[i]
""")
    cut = oc.partition(program, tile={"i": 8}, tail=tail)
    for n in (0, 1, 9):
        a = np.arange(n, dtype=np.float32)
        np.testing.assert_array_equal(oc.compile(cut.loops, constants={"A": a})(), a)


def test_the_copies_of_many_statements_are_bounded_together() -> None:
    stores = "".join(f"    B[i, j] += where(j < {k}, A[i, j], 1.0)\n" for k in range(1, 13))
    program = oc.parse(
        "program p\nsize n in 0:60\ninput A: float32[n, n]\ninout B: float32[n, n]\n"
        f"for i in 0:n\n  for j in 0:n\n{stores}"
    )
    assert sum(isinstance(stmt, ir.Store) for stmt in ir.walk(oc.compile(program).loops.body)) <= 75


@pytest.mark.parametrize(
    ("extent", "read", "legal"), [(1, "+= X[i, q + r]", True), (8, "= X[i, r]", False)]
)
def test_a_tile_within_a_tile_of_two_axes_is_judged_by_its_own(
    extent: int, read: str, legal: bool
) -> None:
    program = oc.parse(f"""
program p
size n in 0:60
input X: float32[n, 8]
inout O: float32[n, n]
tile i in 0 +: n, j in 0 +: n
  for q in 0:8
    tile r in 0 +: {extent}
      O[i, j] {read}
""")
    if not legal:
        with pytest.raises(oc.PartitionError, match="instances need each other"):
            oc.compile(program)
        return
    x = np.arange(24, dtype=np.float32).reshape(3, 8)
    found = oc.compile(program)(x, np.zeros((3, 3), np.float32))
    np.testing.assert_array_equal(found, np.repeat(x.sum(axis=1), 3).reshape(3, 3))


def test_code_that_is_left_without_loop_passes_computes_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = oc.parse("""
program p
size n in 0:60
input X: float32[n, n]
inout O: float32[n]
for i in 0:n
  for j in 0:i
    O[i] += exp(X[i, j]) / 3.0
""")
    x = np.random.default_rng(0).standard_normal((19, 19), np.float32)
    start = np.ones(19, np.float32)
    expected = oc.compile(program)(x, start)
    monkeypatch.setattr("offcut.backends.cpu.machine.jit._MOST_LINES", 0)
    monkeypatch.setenv("OFFCUT_CACHE", "off")
    np.testing.assert_array_equal(oc.compile(program)(x, start), expected)


# A vector of which one lane is stored writes that element alone: nothing behind the array.


Array = np.ndarray[Any, Any]
GUARD = 64


def inside_guards(shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[Array, Array]:
    """Return bytes, all of them 0xA5, and the array that lies in their middle."""
    size = int(np.prod(shape)) * dtype.itemsize
    around = np.full(size + 2 * GUARD, 0xA5, np.uint8)
    return around, around[GUARD : GUARD + size].view(dtype).reshape(shape)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int8", "int32"])
@pytest.mark.parametrize("rows", [1, 3, 17])
def test_nothing_behind_a_result_is_written(dtype: str, rows: int) -> None:
    x = oc.placeholder((rows, oc.dim("n", min=0, max=99)), dtype, name="x")
    kernel = oc.compile(ops.transpose(x, (1, 0)), inputs=[x])
    for n in (0, 1, 15, 16, 17, 48, 53):
        array = np.arange(rows * n).reshape(rows, n).astype(numpy_dtype(dtype))
        around, result = inside_guards((n, rows), array.dtype)
        kernel(array, out=result)
        np.testing.assert_array_equal(result, array.T)
        assert (around[:GUARD] == 0xA5).all()
        assert (around[-GUARD:] == 0xA5).all()


@pytest.mark.parametrize("columns", [1, 9, 17, 33])
@pytest.mark.parametrize(("wide", "narrow"), [("int32", "int8"), ("float32", "bfloat16")])
def test_nothing_behind_what_is_converted_is_written(wide: str, narrow: str, columns: int) -> None:
    n = oc.dim("n", min=0, max=99)
    x = oc.placeholder((n, columns), wide, name="x")
    y = oc.compute((n, columns), lambda i, j: (x[i, j] + 1).astype(narrow), name="y")
    kernel = oc.compile(y, inputs=[x], strategy={"j": "mask"})
    for rows in (0, 1, 5, 17):
        array = (np.arange(rows * columns).reshape(rows, columns) % 99).astype(wide)
        around, result = inside_guards((rows, columns), np.dtype(numpy_dtype(narrow)))
        kernel(array, out=result)
        np.testing.assert_array_equal(result.astype(wide), array + 1)
        assert (around[:GUARD] == 0xA5).all()
        assert (around[-GUARD:] == 0xA5).all()


# An operand in panels is no operand of rows: from one panel to the next is another step than inside.


@pytest.mark.parametrize("start", [0, 5])
def test_panels_that_no_microkernel_reads_are_read_as_vectors(start: int) -> None:
    kernel = next(f.microkernel for f in families(host()) if f.microkernel.name.startswith("fma_"))
    width = 2 * kernel.panel  # of a panel, which the microkernel does not read
    program = oc.parse(f"""
program p
size n in 0:60
size K in 0:60
input A: {kernel.computes.dtype}[5, K]
input B: {kernel.computes.dtype}[K, n]
output D: {kernel.computes.dtype}[5, n]
local P: {kernel.computes.dtype}[K, n] @panels(0, 1, {width})
for k in 0:K
  tile j in 0 +: n
    P[k, j] = B[k, j]
for i in 0:5
  for j in 0:min(n, {start})
    D[i, j] = 0
for u in 0:n//10 + 1
  tile i in 0 +: 5, j in {start} + 10*u +: min(10, n - {start} - 10*u)  @cover({kernel.name})
    D[i, j] = 0
    for k in 0:K
      D[i, j] += A[i, k] * P[k, j]
""")
    with pytest.raises(oc.PartitionError, match="is not packed as it reads it"):
        oc.compile(program)
    compiled = oc.compile(oc.parse(str(program).replace(f"  @cover({kernel.name})", "")))
    rng = np.random.default_rng(0)
    for n in (5, 17, 40, 50):
        A, B = (
            rng.integers(-3, 4, shape).astype(kernel.computes.dtype) for shape in ((5, 3), (3, n))
        )
        expected = A @ B
        expected[:, :start] = 0
        np.testing.assert_array_equal(compiled(A, B), expected)


@pytest.mark.isa("avx512f", "avx512bw", "avx512vl")
def test_rows_that_lie_side_by_side_in_a_panel_are_packed_a_few_at_a_time() -> None:
    program = oc.parse("""
program p
size n in 0:60
input B: int8[24, n]
output D: int32[n]
local P: int8[24, n] @panels(0, 1, 16, 4, 4)
for k_tile in 0:3
  for j_tile in 0:(n + 15)//16
    tile k in 8*k_tile +: 8, j in 16*j_tile +: 16 where j < n
      P[k, j] = B[k, j]
for j in 0:n
  D[j] = 0
  for k in 0:24
    D[j] += int32(P[k, j]) * int32(k + 1)
""")
    run = oc.compile(program)
    for n in (1, 16, 37):
        b = np.random.default_rng(n).integers(-9, 9, (24, n)).astype("int8")
        expected = (b.astype("int32") * np.arange(1, 25, dtype="int32")[:, None]).sum(axis=0)
        np.testing.assert_array_equal(run(b), expected)


# What a program packs by itself holds zeros below its last row only where the program stores them.


PROGRAM = """
program p
size n in 0:60
size K in 0:60
input A: bfloat16[5, K]
input B: bfloat16[K, n]
output D: float32[5, n]
local P: bfloat16[DEPTH, n] @panels(0, 1, 16, 2, 32)
for k in 0:DEPTH
  tile j in 0 +: n
    P[k, j] = VALUE
tile i in 0 +: 5, j in 0 +: n  @cover(amx_bfloat16)
  D[i, j] = 0
  for k in 0:K
    D[i, j] += float32(A[i, k]) * float32(P[k, j])
"""
ZEROS = ("32*((K + 31)//32)", "where(k < K, B[k, j], 0)")


@pytest.mark.parametrize(("depth", "value", "covered"), [("K", "B[k, j]", False), (*ZEROS, True)])
def test_a_sum_over_panels_is_a_microkernels_where_they_end_in_zeros(
    depth: str, value: str, covered: bool
) -> None:
    skip_unless_tiles_are_stored()
    program = oc.parse(PROGRAM.replace("DEPTH", depth).replace("VALUE", value))
    rng = np.random.default_rng(0)
    with emulated():
        if not covered:
            with pytest.raises(oc.PartitionError, match="is not packed as it reads it"):
                oc.compile(program)
            program = oc.parse(str(program).replace("  @cover(amx_bfloat16)", ""))
        kernel = oc.compile(program)
        named = any(isinstance(one, Tile) and one.microkernel for one in walk(kernel.loops.body))
        assert named == covered
        for depth_now in (1, 5, 32, 33):
            A, B = (
                rng.integers(-3, 4, shape).astype(numpy_dtype("bfloat16"))
                for shape in ((5, depth_now), (depth_now, 19))
            )
            expected = A.astype("float32") @ B.astype("float32")
            np.testing.assert_array_equal(kernel(A, B), expected)


# A private array that one loop fills and another reads lies in memory: registers hold a tile's own values.


KEPT = """\
program kept
size n in 0:100
input A: float32[n]
private P: float32[n]
output B: float32[n]
for i in 0:n
  P[i] = A[i]
for j in 0:n
  B[j] = P[j] + 1.0
"""


@pytest.mark.parametrize("tail", ["", "mask", "cut", "balance"])
def test_it_outlives_its_loop(tail: str) -> None:
    cut = oc.partition(oc.parse(KEPT), {"j": 8}, tail).loops if tail else oc.parse(KEPT)
    kernel = oc.compile(cut)
    for n in edge_sizes(8):
        a = np.arange(n, dtype="float32")
        assert np.array_equal(kernel(a, out=np.full(n, np.nan, "float32")), a + 1)


# Windows of local arrays: there is memory for them alone, and each iteration has its own where it is all.


WINDOWED = """program w
size n in 0:100
input X: float64[n]
output Y: float64[n]
local S: float64[n]
"""
TWICE = "for i in 0:n\n  Y[i] = X[i] * 2.0\n"


@pytest.mark.parametrize(
    ("body", "because"),
    [
        (
            "alloc S[0 +: 2]\n  for z in 0:n\n    S[z] = X[z]\n  for i in 0:n\n    Y[i] = S[i] * 2.0\n",
            "with n = 3, z = 2, element [2], counted from where the window starts, lies outside of it",
        ),
        (
            "alloc S[1 +: n]\n  for z in 0:n\n    S[z] = X[z]\n  for i in 0:n\n    Y[i] = S[i] * 2.0\n",
            "with n = 1, z = 0, element [-1], counted from where the window starts, lies outside of it",
        ),
        (
            "alloc S[0 +: n]\n  for i in 0:n\n    S[i] = X[i]\nfor i in 0:n\n  Y[i] = S[i] * 2.0\n",
            "S is accessed outside of it, too",
        ),
        (
            "for i in 0:n\n  alloc S[i +: i]\n    S[i] = X[i]\n    Y[i] = S[i] * 2.0\n",
            "nothing shows that all that is accessed of S lies in a window of it",
        ),
    ],
    ids=["longer than its window", "before its window", "after its window", "a length of its own"],
)
def test_what_leaves_a_window_is_not_compiled(body: str, because: str) -> None:
    with rejection(
        "PartitionError: compile: cannot compile w\n"
        "  at       alloc S\n"
        f"  because  {because}\n"
        "  help     a larger window, or S without alloc, which holds all of it"
    ):
        oc.compile(oc.parse(WINDOWED + body))


def test_what_stays_in_a_window_is_compiled() -> None:
    body = "for i in 0:n\n  alloc S[i +: 1]\n    S[i] = X[i]\n    Y[i] = S[i] * 2.0\n"
    x = np.arange(9.0)
    np.testing.assert_array_equal(oc.compile(oc.parse(WINDOWED + body))(x), 2 * x)


def test_a_window_that_nobody_touches_is_nothing() -> None:
    body = "for i in 0:n\n  alloc S[i +: 1]\n    Y[i] = X[i] * 2.0\n"
    oc.prove_equal(oc.parse(WINDOWED + TWICE), oc.parse(WINDOWED + body))


SHARED = """program s
size n in 0:900000
input X: float64[n]
output Y: float64[n]
local S: float64[1]
for i in 0:n  @thread
  S[0] = X[i]
  Y[i] = S[0] * 2.0
  if n > 900000
    alloc S[0 +: 1]
      S[0] = 3.0
"""


def test_a_window_elsewhere_makes_no_array_an_iteration_s_own() -> None:
    source = oc.parse("\n".join(SHARED.splitlines()[:4]) + "\n" + TWICE)
    with pytest.raises(PartitionError):
        oc.prove_equal(source, oc.parse(SHARED))
    with pytest.raises(PartitionError):
        oc.compile(oc.parse(SHARED), threads=2)


PRODUCT = """size n in 0:200
input A: float32[n, n]
input B: float32[n, n]
output C: float32[n, n]
for i in 0:n
  for j in 0:n
    C[i, j] = 0.0
    for k in 0:n
      C[i, j] += A[i, k] * B[k, j]
"""


@pytest.mark.parametrize(("tile", "rows"), [(3, "ladder"), (2, "mix")])
def test_a_tile_that_never_has_a_row_is_no_code(tile: int, rows: str) -> None:
    cut = oc.partition(oc.parse(PRODUCT), tile={"i": tile, "j": tile}, tail={"i": rows, "j": "mix"})
    kernel = oc.compile(cut.loops)
    for n in (0, 1, tile, 3 * tile + 1):
        a = np.arange(n * n, dtype="f").reshape(n, n)
        np.testing.assert_array_equal(kernel(a, a), a @ a)


COLUMNS = """program columns
size m in 0:200
size n in 0:4097 multiple_of 8
size K in 1:60
output D: float64[n, m]
input T: float64[K, m]
input C: float64[K, n]
for j in 0:n
  for i in 0:m
    D[j, i] = -3
    for k in 0:K
      D[j, i] += T[k, i] * C[k, j]
"""


@pytest.mark.parametrize("tile", [4, 6])
def test_a_padded_tile_whose_rows_run_along_columns_is_copied_back(tile: int) -> None:
    cut = oc.partition(oc.parse(COLUMNS), tile={"j": tile}, tail={"j": "pad"})
    kernel = oc.compile(cut.loops)
    rng = np.random.default_rng(0)
    for m, n, terms in ((1, 8, 1), (5, 16, 7), (17, 24, 23)):
        left, right = (rng.integers(-9, 9, (terms, size)).astype(float) for size in (m, n))
        np.testing.assert_array_equal(kernel(left, right), right.T @ left - 3)
