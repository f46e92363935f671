"""Operands packed at the call: copies along rows, and turned in registers, at every edge."""

from __future__ import annotations

import gc
import pickle
import threading
import weakref
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from compiled import build

import offcut as oc
from offcut import ops
from offcut.backends.cpu.lowering.call_layout import PANEL_SLACK
from offcut.backends.cpu.packed_constants import pack, unpack
from offcut.core.dtypes import numpy_dtype
from offcut.core.panels import panels
from offcut.describe.request import take_ownership
from tests.agree import agree, computed, exact_matmul, nearly
from tests.compiled import floats
from tests.facade import load_machine, processor


@pytest.mark.every(5)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_products_of_many_small_heads_have_the_bits_of_larger_ones(dtype: str) -> None:
    rng = np.random.default_rng(1)
    heads, m, n = (oc.dim(name, max=64) for name in ("b", "m", "n"))
    a = oc.placeholder((heads, m, 20), dtype, name="A")
    b = oc.placeholder((heads, n, 20), dtype, name="B")
    k = oc.reduce_axis(20, name="k")
    c = oc.compute((heads, m, n), lambda h, i, j: oc.sum(a[h, i, k] * b[h, j, k], axis=k), name="C")
    products = build(c, inputs=[a, b])
    x, y = (rng.standard_normal((5, extent, 20)).astype(dtype) for extent in (15, 40))
    agree(products(x, y), computed(lambda x, y: x @ y.swapaxes(1, 2), x, y))
    y[3, 7] = np.nan
    whole = products(x, y)
    for rows in (1, 3, 7, 14, 15):
        for columns in (0, 1, 3, 4, 5, 7, 8, 9, 16, 17, 20, 24, 25):
            few = products(x[1:4, :rows].copy(), y[1:4, :columns].copy())
            np.testing.assert_array_equal(few, whole[1:4, :rows, :columns])


@pytest.mark.isa("avx512f", "avx512vl", "avx512bw", "avx512dq")
def test_few_columns_are_packed_into_the_half_of_a_panel_that_is_read() -> None:
    m, n = oc.dim("m", max=64), oc.dim("n", max=64)
    a, b = oc.placeholder((m, 64), name="A"), oc.placeholder((n, 64), name="B")
    k = oc.reduce_axis(64, name="k")
    c = oc.compute((m, n), lambda i, j: oc.sum(a[i, k] * b[j, k], axis=k), name="C")
    assert "store <8 x float>" in build(c, inputs=[a, b]).source("llvm")
    turned = oc.compute((64, n), lambda p, j: b[j, p], name="T")
    assert "store <8 x float>" not in build(turned, inputs=[b]).source("llvm")


@pytest.mark.every(4)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8", "float32"])
@pytest.mark.parametrize("extent", [1, 15, 17, 33, 49, 97])
def test_a_constant_ragged_extent_writes_its_elements_and_no_other(extent: int, dtype: str) -> None:
    x = oc.placeholder((extent,), dtype, name="X")
    double = build(oc.compute((extent,), lambda j: x[j] + x[j]), inputs=[x], strategy="mask")
    ones = np.ones(extent, np.float32)
    around = np.full(extent + 40, 7).astype(numpy_dtype(dtype))
    double(ones.astype(numpy_dtype(dtype)), out=around[20 : 20 + extent])
    expected = np.concatenate([np.full(20, 7), 2 * ones, np.full(20, 7)])
    np.testing.assert_array_equal(around.astype(np.float32), expected)


def test_rows_of_uneven_height_beside_a_padded_axis_are_not_copied() -> None:
    rng = np.random.default_rng(3)
    a, b = oc.dim("a", max=40), oc.dim("b", max=40)
    x = oc.placeholder((a, b, 5), name="X")
    w = oc.placeholder((5, 7), name="W")
    k = oc.reduce_axis(5, name="k")
    y = oc.compute((a, b, 7), lambda i, j, n: oc.sum(x[i, j, k] * w[k, n], axis=k), name="Y")
    kernel = build(y, inputs=[x, w], strategy={"i": "pad", "j": "balance"})
    v = rng.standard_normal((5, 7), dtype=np.float32)
    for rows in (0, 1, 9, 17):
        u = rng.standard_normal((rows, 15, 5), dtype=np.float32)
        agree(kernel(u, v), exact_matmul(u, v))


@pytest.mark.slow
def test_a_kernel_of_many_large_tiles_runs_on_a_short_stack() -> None:
    rng = np.random.default_rng(4)
    a, b, m, n = (oc.dim(name, max=64) for name in "abmn")
    x = oc.placeholder((a, b, m, 5), "float64", name="X")
    w = oc.placeholder((5, n), "float64", name="W")
    bias = oc.placeholder((n,), "float64", name="B")
    k = oc.reduce_axis(5, name="k")
    h = oc.compute(
        (a, b, m, n), lambda i, j, r, c: oc.sum(x[i, j, r, k] * w[k, c], axis=k), name="H"
    )
    y = oc.compute((a, b, m, n), lambda i, j, r, c: h[i, j, r, c] + bias[c], name="Y")
    kernel = build(y, inputs=[x, w, bias], strategy={"i": "ladder", "j": "ladder", "r": "shift"})
    arrays = [rng.standard_normal(shape) for shape in [(9, 10, 15, 5), (5, 33), (33,)]]
    results: list[np.ndarray] = []
    before = threading.stack_size(128 * 1024)
    try:
        thread = threading.Thread(target=lambda: results.append(kernel(*arrays)))
        thread.start()
        thread.join()
    finally:
        threading.stack_size(before)
    agree(results[0], computed(lambda x, w, bias: x @ w + bias, *arrays))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_constant_that_is_not_packed_is_read_in_place_where_offcut_owns_it(dtype: str) -> None:
    block = np.arange(80, dtype="f").astype(numpy_dtype(dtype))
    start = -block.ctypes.data % 64 // block.itemsize
    inside = block[start : start + 32].reshape(8, 4)
    block.flags.writeable = inside.flags.writeable = False
    assert (
        pack(inside, None, dtype).address != inside.ctypes.data
    )  # its caller may hold another way to it
    take_ownership(block)
    held = pack(inside, None, dtype)
    assert held.address == inside.ctypes.data
    assert bytes(held.owner) == inside.tobytes()
    turned = pack(inside.T, None, dtype)
    assert bytes(turned.owner) == inside.T.tobytes()
    assert unpack(turned, None, dtype, (4, 8)).tobytes() == inside.T.tobytes()
    wide = pack(inside, None, "float64")
    assert bytes(wide.owner) == inside.astype("float64").tobytes()


def test_a_constant_that_its_caller_made_read_only_is_copied() -> None:
    memory = bytearray(np.zeros(16, "f").tobytes())
    given = np.frombuffer(memoryview(memory).toreadonly(), "f")
    n = oc.dim("n", min=1, max=8)
    A, B = oc.placeholder((n, 16), name="A"), oc.placeholder((16,), name="B")
    kernel = oc.compile(ops.add(A, B), inputs=[A, B], constants={"B": given})
    memory[:] = np.full(16, 7, "f").tobytes()
    np.testing.assert_array_equal(kernel(np.zeros((2, 16), "f")), np.zeros((2, 16)))


# Element types, and how many rows of each lie side by side: words of 1, 2, 4, 8 and 16 bytes.
SIDES = [
    *(("float32", 1), ("float32", 2), ("float64", 1), ("float64", 2)),
    *(("bfloat16", 1), ("bfloat16", 2), ("float16", 2), ("int8", 4), ("uint8", 1)),
]


@pytest.mark.every(5)
@pytest.mark.parametrize(("dtype", "side"), SIDES)
@pytest.mark.parametrize("axes", [(0, 1, 2), (0, 2, 1), (2, 1, 0), (1, 2, 0)])
def test_a_packed_constant_has_each_element_where_its_panel_says(
    axes: tuple[int, int, int], dtype: str, side: int
) -> None:
    rng = np.random.default_rng(5)
    width = 6
    for depth, columns in [(0, 6), (1, 1), (7, 5), (8, 6), (9, 7), (2, 18), (13, 23), (3000, 7)]:
        shape = [0, 0, 0]
        for axis, extent in zip(axes, (2, depth, columns), strict=True):
            shape[axis] = extent
        whole = rng.integers(0, 99, (*shape[:2], 2 * shape[2])).astype(numpy_dtype(dtype))
        for array in (np.ascontiguousarray(whole[..., ::2]), whole[..., ::2], whole[..., ::-2]):
            source = np.transpose(array, axes)
            layout = panels(width, side, 2 * side, axes[1], axes[2])
            sets = -(-depth // (2 * side)) * 2
            expected = np.zeros((2, -(-columns // width), sets, width, side), array.dtype)
            for r in range(depth):
                for c in range(columns):
                    at = c // width, r // side, c % width, r % side
                    expected[(slice(None), *at)] = source[:, r, c]
            found = pack(array, layout, dtype)
            assert bytes(found.owner[: expected.nbytes]) == expected.tobytes()
            assert not np.any(found.owner[expected.nbytes :])
            again = unpack(found, layout, dtype, array.shape)
            assert (again.dtype, again.shape) == (array.dtype, array.shape)
            assert again.tobytes() == array.tobytes()


@pytest.mark.parametrize("axes", [(0, 1), (1, 0)])
@pytest.mark.parametrize(("depth", "columns"), [(0, 6), (1, 1), (7, 5), (8, 6), (13, 23)])
def test_elements_of_four_bits_take_half_of_the_bytes(
    depth: int, columns: int, axes: tuple[int, int]
) -> None:
    shape = tuple(np.transpose(np.empty((depth, columns)), axes).shape)
    array = np.random.default_rng(7).integers(-8, 8, shape).astype(np.int8)
    whole = panels(6, 2, 2, *axes)
    layout = replace(whole, bits=4)
    found = pack(array, layout, "int8")
    assert 2 * (found.memory.size - PANEL_SLACK) == np.prod(whole.extents(shape))
    again = unpack(found, layout, "int8", shape)
    assert again.tobytes() == array.tobytes()


def test_many_bytes_of_constants_lie_in_pages_of_this_process_alone() -> None:
    pages = pack(np.ones(1 << 20, "f")[::-1], None, "float32").owner
    while isinstance(pages, np.ndarray):
        pages = pages.base
    assert isinstance(pages, memoryview)
    at = np.frombuffer(pages, np.uint8).ctypes.data
    maps = Path("/proc/self/maps")
    if not maps.exists():
        pytest.skip("the system does not say how memory is mapped")
    for line in maps.read_text().splitlines():
        first, last = (int(end, 16) for end in line.split()[0].split("-"))
        if first <= at < last:
            assert line.split()[1].endswith("p")


@pytest.mark.slow
def test_a_packed_constant_is_held_once_and_its_array_is_made_again_bit_for_bit() -> None:
    rng = np.random.default_rng(6)
    n = oc.dim("n", min=1, max=64)
    A, W, B = (
        oc.placeholder(s, name=x) for s, x in (((n, 33), "A"), ((33, 50), "W"), ((50,), "B"))
    )
    bits = rng.integers(0, 2**32, (33, 50), np.uint32)  # NaN of any payload among them
    b = rng.standard_normal(50).astype("f")
    w = take_ownership(bits.view("f").copy())
    seen = weakref.ref(w)
    kernel = oc.compile(ops.dense(A, W, B), inputs=[A, W, B], constants={"W": w, "B": b})
    a = rng.standard_normal((5, 33)).astype("f")
    before = kernel(a)
    del w
    gc.collect()
    assert seen() is None
    held = [*kernel._arrays.values()]
    assert {one.tobytes() for one in held} == {bits.tobytes(), b.tobytes()}
    again = pickle.loads(pickle.dumps(kernel))
    assert again(a).tobytes() == before.tobytes()
    other = kernel.with_constants({"W": np.zeros((33, 50), "f"), "B": b})
    np.testing.assert_array_equal(other(a), np.broadcast_to(b, (5, 50)))


def test_a_plan_of_no_images_takes_what_packing_takes() -> None:
    # the operand is packed in each call, also where nothing is computed with it
    n = oc.dim("n", max=20)
    x = oc.placeholder((n, 7, 9, 5), "int8", name="X")
    w = oc.placeholder((3, 3, 5, 11), "int8", name="W")
    r, s, c = (oc.reduce_axis(extent, name=name) for extent, name in ((3, "r"), (3, "s"), (5, "c")))
    sums = oc.compute(
        (n, 5, 7, 11),
        lambda b, y, z, o: oc.sum(
            x[b, y + r, z + s, c].astype("int32") * w[r, s, c, o].astype("int32"), axis=(r, s, c)
        ),
        name="C",
    )
    kernel = oc.compile(sums, inputs=[x, w])  # where a unit multiplies bytes, W is packed
    for images in (0, 1, 20):
        assert kernel.plan(n=images).seconds == nearly(kernel.cost(n=images).seconds)


# Any layout of a buffer that offcut lays out: results as without it, by loops, by lanes and by microkernels.


FIXED = [
    "digits(at: 1%64 0)",
    "digits(at: 1%64 0) multiple(0: 2) swizzle(3, 4, 8)",
    "digits(block: 1//16%4, at: 1%16 0) multiple(0: 3)",
]
"""Of as many columns as there are in a row of the programs below, 64."""
ANY = [
    "rows",
    "order(1, 0)",
    "panels(16)",
    "panels(1, 0, 4, 2, 6)",
    "words(0: 2, 1: 4)",
    "words(1: 3)",
    "digits(far: 0//4, near: 0%4 1)",
    "digits(block: 1//8, at: 1%8 0) multiple(0: 3)",
    "order(1, 0) multiple(0: 16, 1: 8) swizzle(2, 4, 6)",
    "rows multiple(1: 16) swizzle(1, 3, 5)",
]
PROGRAM = """
size n in 1:40
size c in {columns}
input A: {dtype}[n, c]
constant W: {dtype}[{rows}, 64] @{layout}
output C: {dtype}[n, c]
output D: {dtype}[{rows}, 64]
local T: {dtype}[n, {extent}] @{layout}
tile i in 0 +: n, j in 0 +: {extent}
  T[i, j] = A[i, j] + {dtype}(1)
for i in 0:n
  tile j in 0 +: {extent}
    C[i, j] = T[i, j]
  for j in 0:{extent}
    C[i, j] += T[n - 1 - i, {extent} - 1 - j]
for j in 0:64
  tile i in 0 +: {rows}
    D[i, j] = W[i, j]
"""


@pytest.mark.every(4)
@pytest.mark.parametrize(
    ("layout", "dtype"),
    [
        *((layout, "int8") for layout in (*ANY, *FIXED)),
        ("panels(1, 0, 4, 2, 6)", "float64"),
        (ANY[-2], "float32"),
    ],
)
def test_a_buffer_may_lie_in_any_way(layout: str, dtype: str) -> None:
    fixed = layout in FIXED
    rows = 12
    text = PROGRAM.format(
        layout=layout,
        dtype=dtype,
        rows=rows,
        columns="64:65" if fixed else "1:70",
        extent="64" if fixed else "c",
    )
    program = oc.parse(text)
    assert oc.parse(str(program)) == program
    rng = np.random.default_rng(3)
    W = rng.integers(-50, 50, (rows, 64)).astype(dtype)
    kernel = oc.compile(program, constants={"W": W})
    for n, c in [(1, 64), (3, 64), (17, 64), *([] if fixed else [(1, 1), (4, 3), (16, 31)])]:
        A = rng.integers(-50, 50, (n, c)).astype(dtype)
        C, D = kernel(A)
        whole = A + np.ones((), dtype)
        np.testing.assert_array_equal(C, whole + whole[::-1, ::-1])
        np.testing.assert_array_equal(D, W)


def test_a_window_lies_as_it_says() -> None:
    text = """
size n in 0:30
input A: float32[n, 32]
output C: float32[n, 32]
local T: float32[n, 32]
for i in 0:n // 4
  alloc T[4*i +: 4, 0 +: 32] layout order(0, 1) swizzle(3, 4, 7)
    tile r in 4*i +: 4, j in 0 +: 32
      T[r, j] = A[r, j]
    tile r in 4*i +: 4, j in 0 +: 32
      C[r, j] = T[8*i + 3 - r, 31 - j]
tile r in 4*(n // 4) +: n - 4*(n // 4), j in 0 +: 32
  C[r, j] = 0
"""
    program = oc.parse(text)
    assert "layout order(0, 1) swizzle(3, 4, 7)" in str(program)
    assert oc.parse(str(program)) == program
    kernel = oc.compile(program)
    A = np.random.default_rng(1).standard_normal((11, 32)).astype("f")
    expected = np.zeros_like(A)
    expected[:8] = A[:8].reshape(2, 4, 32)[:, ::-1, ::-1].reshape(8, 32)
    np.testing.assert_array_equal(kernel(A), expected)
    np.testing.assert_array_equal(program.run({"A": A}), expected)


# Packed columns that several tiles of rows read: the next group is asked for while one is in use.


M = oc.dim("m", max=512)


def dense(depth: int, columns: int, target: oc.Target) -> oc.Kernel:
    x = oc.placeholder((M, depth), name="X")
    w = oc.placeholder((depth, columns), name="W")
    weights = np.random.default_rng(depth).standard_normal((depth, columns)).astype("float32")
    return oc.compile(
        oc.ops.matmul(x, w), inputs=[x, w], constants={"W": weights}, target=target, threads=1
    )


def asked(kernel: oc.Kernel) -> list[str]:
    """What the calls of row blocks are given to ask for, and by how much it moves."""
    calls = [line for line in kernel.source("llvm").splitlines() if "call void" in line]
    found = [line.rsplit(", ptr ", 1)[1].rstrip(")") for line in calls if "i64 0, ptr " in line]
    assert found
    return found


@pytest.mark.every(4)
@pytest.mark.parametrize(
    ("depth", "columns", "some"), [(768, 3072, True), (768, 32, False), (50_000, 96, False)]
)
def test_a_group_is_asked_for_where_there_is_a_next_one_that_fits(
    depth: int, columns: int, some: bool
) -> None:
    """A described machine: 32 columns are one group, and two of 50,000 terms do not fit its L2."""
    described = replace(
        processor(load_machine("cascade-lake")), policy=processor(load_machine("zen4")).policy
    )
    kernel = dense(depth, columns, oc.target("cpu", machine=described))
    assert any(not one.endswith(", i64 0") for one in asked(kernel)) is some


def test_what_is_asked_for_changes_no_value() -> None:
    kernel = dense(768, 3072, oc.target("cpu"))
    x = np.random.default_rng(0).standard_normal((91, 768)).astype("float32")
    whole = kernel(x)
    for rows in (0, 1, 13, 14, 15, 42, 47):
        np.testing.assert_array_equal(kernel(x[:rows]), whole[:rows])


# Rows of a padded tile are copied once for all columns, and again wherever they are others.


SIZES = (1, 13, 15, 29)


def test_an_array_that_changes_between_calls_is_copied_again() -> None:
    n = oc.dim("n", max=64)
    A, W = oc.placeholder((n, 24), name="A"), oc.placeholder((24, 80), name="W")
    w = floats("w", 24, 80)
    kernel = oc.compile(oc.ops.matmul(A, W), inputs=[A, W], constants={"W": w}, strategy="pad")
    assert "llvm.memcpy" in kernel.source("llvm")
    for rows in SIZES:
        x = floats("x", rows, 24)
        agree(kernel(x), exact_matmul(x, w))
        x *= -2.0
        agree(kernel(x), exact_matmul(x, w))


def test_rows_that_the_call_computes_are_copied_for_each_tile() -> None:
    n = oc.dim("n", max=64)
    X, V = oc.placeholder((n, 24), name="X"), oc.placeholder((24, 24), name="V")
    W = oc.placeholder((24, 80), name="W")
    made = oc.ops.matmul(oc.ops.matmul(X, V), W)
    v, w = floats("v", 24, 24), floats("w", 24, 80)
    kernel = oc.compile(made, inputs=[X, V, W], constants={"V": v, "W": w}, strategy="pad")
    for rows in SIZES:
        x = floats("x", rows, 24)
        agree(kernel(x), exact_matmul(x, v, w, spec="ik,kl,lj->ij"))
