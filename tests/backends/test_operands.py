"""Which microkernel computes a sum, and how it reads the columns' operand."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from compiled import Array
from conftest import edge_sizes, rejection, slow

import offcut as oc
from offcut.backends.cpu.machine import isa
from offcut.backends.cpu.microkernels.available import families
from offcut.costmodel import tile_cycles
from offcut.ir import Kind, Store, Var, walk
from tests.agree import agree, exact_matmul
from tests.facade import numpy_dtype

EXACT = {"int8": "int32", "uint8": "int32", "float32": "float64", "bfloat16": "float32"}
"""An element type, and a wider one in which its products are summed."""


def product(
    rows: oc.Dim | int, columns: oc.Dim | int, depth: oc.Dim | int, dtypes: tuple[str, str, str]
) -> tuple[list[oc.Tensor], oc.Tensor]:
    a = oc.placeholder((rows, depth), dtypes[0], name="A")
    b = oc.placeholder((depth, columns), dtypes[1], name="B")
    k = oc.reduce_axis(depth, name="k")
    c = oc.compute(
        (rows, columns),
        lambda i, j: oc.sum(oc.cast(a[i, k], dtypes[2]) * oc.cast(b[k, j], dtypes[2]), axis=k),
        name="C",
    )
    return [a, b], c


def microkernels(kernel: oc.Kernel, **sizes: int) -> set[str]:
    return {piece.microkernel for piece in kernel.plan(**sizes).pieces} - {"vector loops"}


def declared(columns: int, dtypes: tuple[str, str, str], cycles: float) -> oc.Microkernel:
    """A function that is never called: its address is that of nothing."""
    sizes = oc.dim("m", min=1, max=64), oc.dim("n", min=1, max=columns), oc.dim("p")
    return oc.external_microkernel(
        "own", product(*sizes, dtypes)[1], 1, cycles=cycles, measured=False, verify=False
    )


@pytest.mark.slow
@pytest.mark.every(4)
@pytest.mark.parametrize("dtype", ["int8", "float32", slow("uint8"), slow("bfloat16")])
def test_a_dear_function_that_reads_operands_as_they_lie_gives_way_to_one_that_converts_or_packs(
    dtype: str,
) -> None:
    dtypes = dtype, "int8" if dtype == "uint8" else dtype, EXACT[dtype]
    inputs, c = product(oc.dim("m"), oc.dim("n"), oc.dim("k"), dtypes)
    alone = oc.compile(c, inputs=inputs)
    dear = oc.compile(c, inputs=inputs, microkernels=[declared(4096, dtypes, 1e6)])

    sizes = {"m": 70, "n": 33, "k": 50}
    if dtype in ("int8", "uint8") and not isa.host().features >= {"avx2", "fma"}:
        assert microkernels(dear, **sizes) == {"own"}  # against loops, whose cost nobody knows
    else:
        assert microkernels(dear, **sizes) == microkernels(alone, **sizes) != set()


@pytest.mark.every(4)
@pytest.mark.parametrize("columns", [1, 20, 100])
def test_columns_are_cut_at_what_a_function_takes(columns: int) -> None:
    dtypes = ("float32", "float32", "float32")
    inputs, c = product(oc.dim("m"), oc.dim("n"), oc.dim("k"), dtypes)
    kernel = oc.compile(c, inputs=inputs, microkernels=[declared(columns, dtypes, 1e-6)])

    plan = kernel.plan(m=130, n=215, k=9)

    assert {piece.microkernel for piece in plan.pieces} == {"own"}
    assert max(piece.tile["j"] for piece in plan.pieces) <= columns


def floats(rng: np.random.Generator, dtype: str, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(numpy_dtype(dtype))


@pytest.mark.every(6)
@pytest.mark.parametrize("depth", [1, 2, 71])
@pytest.mark.parametrize("rows_of", ["float32", "bfloat16"])
def test_a_constant_of_bfloat16_stays_so_and_gives_the_bits_of_a_converted_one(
    rows_of: str, depth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Units of bfloat16 add the terms of pairs in an order of their own.
    monkeypatch.setenv("OFFCUT_HIDE_FEATURES", "amx-bf16,avx512bf16")
    rng = np.random.default_rng(depth)
    for columns in (20, 70):
        w = floats(rng, "bfloat16", depth, columns)
        inputs, c = product(oc.dim("m"), columns, depth, (rows_of, "bfloat16", "float32"))
        kernel = oc.compile(c, inputs=inputs, constants={"B": w})
        assert microkernels(kernel, m=20) == {f"fma_bfloat16_{isa.host().isa.name}"}
        inputs, wide = product(oc.dim("m"), columns, depth, ("float32", "float32", "float32"))
        reference = oc.compile(wide, inputs=inputs)
        for rows in edge_sizes(14):
            x = floats(rng, rows_of, rows, depth)
            out = np.full((rows, columns), np.nan, np.float32)
            kernel(x, out=out)
            expected = reference(x.astype(np.float32), w.astype(np.float32))
            np.testing.assert_array_equal(out, expected)


@pytest.mark.every(5)
@pytest.mark.parametrize("depth", [1, 2, 31, 71])
@pytest.mark.parametrize("bits", [4, 8])
def test_a_constant_of_integers_stays_so_and_gives_the_bits_of_a_converted_one(
    bits: int, depth: int
) -> None:
    rng = np.random.default_rng(depth)
    for columns in (1, 20, 70):
        least = -(1 << (bits - 1))
        w = rng.integers(least, -least, (depth, columns)).astype(np.int8)
        w[0, 0], w[-1, -1] = least, least + depth % 2
        inputs, c = product(oc.dim("m"), columns, depth, ("float32", "int8", "float32"))
        kernel = oc.compile(c, inputs=inputs, constants={"B": w})
        assert microkernels(kernel, m=20) == {f"fma_int{bits}_{isa.host().isa.name}"}
        inputs, wide = product(oc.dim("m"), columns, depth, ("float32", "float32", "float32"))
        reference = oc.compile(wide, inputs=inputs)
        for rows in edge_sizes(14):
            x = floats(rng, "float32", rows, depth)
            out = np.full((rows, columns), np.nan, np.float32)
            kernel(x, out=out)
            np.testing.assert_array_equal(out, reference(x, w.astype(np.float32)))
            agree(out, exact_matmul(x, w))


@pytest.mark.every(6)
@pytest.mark.parametrize("machine", [None, "avx2"])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("shape", [(1, 1, 1), slow((3, 7, 20)), (2, 32, 33), slow((5, 16, 130))])
def test_a_block_is_added_up_in_registers_and_then_scaled(
    machine: str | None, bits: int, shape: tuple[int, int, int]
) -> None:
    blocks, block, columns = shape
    rng, least = np.random.default_rng(bits), -(1 << (bits - 1))
    x = oc.placeholder((oc.dim("m"), blocks * block), name="x")
    w = oc.placeholder((blocks * block, columns), "int8", name="w")
    s = oc.placeholder((blocks, columns), name="s")
    values = rng.integers(least, -least, (blocks * block, columns)).astype(np.int8)
    values[0, 0] = least
    scales = rng.uniform(0.5, 2, (blocks, columns)).astype(np.float32)
    target = oc.target("cpu") if machine is None else oc.target("cpu", machine=machine)
    compiled = partial(
        oc.compile, inputs=[x, w, s], constants={"w": values, "s": scales}, target=target
    )
    y = oc.ops.dense_blockwise(x, w, s)
    kernel = compiled(y)
    stored = 8 if block % 2 else bits  # two elements of a byte are of one block
    (name,) = microkernels(kernel, m=20)
    assert name.startswith(f"fma_scaled_int{stored}_")
    rows = floats(rng, "float32", edge_sizes(14)[-1], blocks * block)
    whole = kernel(rows)
    exact = exact_matmul(rows, values * np.repeat(scales.astype(np.float64), block, 0))
    agree(whole, exact)
    for count in edge_sizes(14):
        out = np.full((count, columns), np.nan, np.float32)
        kernel(rows[:count], out=out)
        np.testing.assert_array_equal(out, whole[:count])
    for strategy in ("pad", "mask", "cut"):
        np.testing.assert_array_equal(compiled(y, strategy=strategy)(rows), whole)
    in_order = compiled(y, reassociate=False)
    assert microkernels(in_order, m=20) == set()
    agree(in_order(rows), exact)


@pytest.mark.parametrize("machine", [None, "avx2"])
@pytest.mark.parametrize("columns", [1, 16, 40, 130])
def test_integers_of_a_call_are_read_where_they_lie(machine: str | None, columns: int) -> None:
    """Weights of int8 that are no constant, and have no panels."""
    rng = np.random.default_rng(columns)
    x, w = oc.placeholder((oc.dim("m"), 24), name="x"), oc.placeholder((24, columns), "int8", "w")
    s = oc.placeholder((3, columns), name="s")
    values = rng.integers(-128, 128, (24, columns)).astype(np.int8)
    scales = rng.uniform(0.5, 2, (3, columns)).astype(np.float32)
    target = oc.target("cpu") if machine is None else oc.target("cpu", machine=machine)
    dense = oc.compile(oc.ops.dense(x, w), inputs=[x, w], target=target)
    scaled = oc.compile(oc.ops.dense_blockwise(x, w, s), inputs=[x, w, s], target=target)
    wide = values * np.repeat(scales.astype(np.float64), 8, 0)
    for rows in (1, 5, 14, 15):
        a = floats(rng, "float32", rows, 24)
        agree(dense(a, values), exact_matmul(a, values))
        agree(scaled(a, values, scales), exact_matmul(a, wide))


def test_elements_of_four_bits_share_bytes_and_others_are_refused() -> None:
    inputs, c = product(oc.dim("m"), 33, 9, ("float32", "int8", "float32"))
    w = np.arange(297).reshape(9, 33).astype(np.int8) % 16 - 8
    kernel = oc.compile(c, inputs=inputs, constants={"B": w})
    name = f"panels(0, 1, {isa.host().isa.lanes('float32')}, 2, 2) bits(4)"
    assert f"stage prepack B layout {name}" in str(kernel.schedule)
    again = oc.compile(c, inputs=inputs, constants={"B": w}, schedule=kernel.schedule)
    plain = oc.compile(c, inputs=inputs, constants={"B": w}, strategy="guard")
    x = np.random.default_rng(3).standard_normal((5, 9)).astype(np.float32)
    for one in (kernel, again, plain):
        agree(one(x), exact_matmul(x, w))
    agree(kernel.with_constants({"B": -1 - w})(x), exact_matmul(x, -1 - w))
    with rejection("""\
DescribeError: with_constants: cannot take 8 in B
  because  the kernel reads two elements of a byte, which are -8…7, as those that it was compiled with are
  help     elements of B in -8…7
  help     oc.compile(…, constants=…) with these"""):
        kernel.with_constants({"B": w + 1})
    text = oc.parse(str(kernel.source("loops")))
    agree(oc.compile(text, constants={"B": w})(x), exact_matmul(x, w))
    because = "not all of its elements are known to have 4 bits"
    with pytest.raises(oc.PartitionError, match=because):
        oc.compile(c, inputs=inputs, constants={"B": w + 1}, schedule=kernel.schedule)
    with pytest.raises(oc.PartitionError, match=because):
        oc.compile(text, constants={"B": w + 1})


def test_partition_takes_a_unit_whose_tiles_are_as_tall_as_what_is_asked_for() -> None:
    dtypes = ("float32", "float32", "float32")
    tall = declared(4096, dtypes, 1.0)  # dearer than our own, and up to 64 rows
    _, c = product(oc.dim("m"), 512, 256, dtypes)
    for height, taken in ((4, f"fma_float32_{isa.host().isa.name}"), (32, "own")):
        made = oc.partition(c, tile={"i": height, "j": 8}, tail="mask", microkernels=[tall])
        assert {piece.microkernel for piece in made.pieces} == {taken}


def gemm(most: int, **claims: float) -> oc.Microkernel:
    """A gemm of up to `most` rows, never called, that claims the most that a core can do."""
    sizes = oc.dim("m", min=1, max=most), oc.dim("n", min=1), oc.dim("p")
    computes = product(*sizes, ("float32", "float32", "float32"))[1]
    how = {
        "cycles": peak() * 0.75,
        "convention": "blas_gemm",
        "measured": False,
        "verify": False,
        **claims,
    }
    return oc.external_microkernel("gemm", computes, 1, **how)


def peak() -> float:
    """Cycles of a multiply–add in the best tile of offcut's own."""
    return min(
        family.microkernel.cycles
        for family in families(isa.host())
        if family.microkernel.name.startswith("fma_float32")
    )


@pytest.mark.isa("avx2")  # with which twelve rows by vectors are worth less than to copy B
@pytest.mark.every(4)
@pytest.mark.parametrize(
    ("rows", "most", "claims", "taken"),
    [
        (oc.dim("m"), 12, {}, "fma"),  # each call copies B for twelve rows
        (oc.dim("m"), 256, {}, "gemm"),
        (oc.dim("m", max=12), 256, {}, "fma"),  # no call has more
        (12, 256, {}, "fma"),
        (12, 256, {"copying": 0.0}, "gemm"),
        (oc.dim("m"), 256, {"startup": 1e7}, "fma"),
        (oc.dim("m"), 12, {"copying": 0.0}, "gemm"),
    ],
)
def test_a_function_is_priced_at_the_rows_that_a_call_has(
    rows: oc.Dim | int, most: int, claims: dict[str, float], taken: str
) -> None:
    inputs, c = product(rows, 192, 768, ("float32", "float32", "float32"))
    kernel = oc.compile(c, inputs=inputs, microkernels=[gemm(most, **claims)])
    sizes = {size.name: 12 for size in kernel.signature.sizes}
    assert {name.partition("_")[0] for name in microkernels(kernel, **sizes)} == {taken}


@pytest.mark.every(4)
@pytest.mark.parametrize("stages", [1, 2, 3])
def test_a_constant_on_the_left_is_the_columns_and_all_that_follows_runs_in_their_order(
    stages: int,
) -> None:
    n, rows, depth = oc.dim("n", max=64), 48, 256
    w, x = oc.placeholder((rows, depth), name="W"), oc.placeholder((depth, n), name="X")
    k = oc.reduce_axis(depth, "k")
    y = oc.compute((rows, n), lambda i, j: oc.sum(w[i, k] * x[k, j], axis=k), name="S")
    for number in range(1, stages):
        y = oc.compute((rows, n), lambda i, j, y=y: oc.maximum(y[i, j], 0.5), name=f"Y{number}")
    left = np.random.default_rng(0).standard_normal((rows, depth), dtype=np.float32)
    kernel = oc.compile(y, inputs=[w, x], constants={"W": left})

    in_memory = [b.name for b in kernel.loops.buffers if b.kind in (Kind.LOCAL, Kind.OUTPUT)]
    stored = [stmt for stmt in walk(kernel.loops.body) if isinstance(stmt, Store)]
    assert in_memory == [y.name, f"{y.name}_turned"]
    assert {s.buffer: s.index for s in stored}[f"{y.name}_turned"] == (Var("j"), Var("i"))
    *tiles, copy = kernel.plan(n=32).pieces
    assert {piece.microkernel for piece in tiles} == {f"fma_float32_{isa.host().isa.name}"}
    assert (copy.stage, copy.microkernel) == (f"{y.name} in order", "vector loops")
    assert copy.seconds > 0
    for size in edge_sizes(14):
        right = np.random.default_rng(size).standard_normal((depth, size), dtype=np.float32)
        least = -np.inf if stages == 1 else 0.5
        exact = exact_matmul(left, right)
        agree(kernel(right), replace(exact, value=np.maximum(exact.value, least)))


@pytest.mark.every(2)
@pytest.mark.parametrize("given", [False, True])
def test_rows_lie_along_a_known_extent_where_a_call_has_fewer_of_another(given: bool) -> None:
    """Images of 7 columns, any number of them: one image has one row along the latter."""
    n = oc.dim("n", max=512)
    x = oc.placeholder((n, 24, 7, 7), "float32", name="X")
    w = oc.placeholder((40, 24, 3, 3), "float32", name="W")
    y = oc.ops.conv2d(x, w, padding=1)
    rng = np.random.default_rng(0)
    weights = rng.integers(-3, 4, (40, 24, 3, 3)).astype("float32")
    constants = {} if given else {"W": weights}
    kernel = oc.compile(y, inputs=[x, w], constants=constants)
    here = oc.target("cpu", machine="cascade-lake")
    planned = oc.compile(y, inputs=[x, w], constants=constants, target=here).plan(n=1)

    assert [piece.tile["x"] for piece in planned.pieces if "o" in piece.tile] == [7, 7], planned
    for count in (0, 1, 6, 7, 13, 14, 15, 29):
        images = rng.integers(-3, 4, (count, 24, 7, 7)).astype("float32")
        padded = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
        arrays = (images, weights) if given else (images,)
        out = np.full((count, 40, 7, 7), np.nan, "float32")
        kernel(*arrays, out=out)
        np.testing.assert_array_equal(out, np.einsum("ncyxrs,ocrs->noyx", windows, weights))


def test_what_a_tile_takes_is_said_of_every_height_and_width() -> None:
    for one in (*(family.microkernel for family in families(isa.host())), gemm(5)):
        known = tile_cycles(one)
        for rows in range(1, one.max_rows + 1):
            assert known.widest[rows] == one.columns_for(rows)
            for columns in range(1, one.columns_for(rows) + 1):
                shape = one.tile(rows, columns)
                assert known.of(rows, columns)[1:] == (shape.cycles, shape.startup)
