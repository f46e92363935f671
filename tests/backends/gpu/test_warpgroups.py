"""Products of warpgroups, whose operands arrive in boxes: which programs have them, values on both devices, what is refused."""

from __future__ import annotations

from functools import cache

import ml_dtypes
import numpy as np
import pytest
from conftest import rejection, slow
from on_cpu import COMPILER, run_text

import offcut as oc
from offcut.backends.gpu.block_limits import check_registers
from offcut.backends.gpu.boxes import check_boxes

SIZES = (0, 1, 64, 65, 127, 129)
KINDS = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16}
WAYS = ("kn", "kk", "mn", "mk")
"""Which axis of A, and of B, lies side by side: the terms k, or rows m and columns n."""


def there(machine: str = "h200") -> oc.Target:
    return oc.target("cuda", machine=machine, device="emulated")


def described(way: str, k_size: int, n_size: int, dtype: str = "bfloat16") -> list[oc.Tensor]:
    """``relu(A @ W)`` with operands that lie as `way` says; rows are multiples of 8 where they lie side by side."""
    n = oc.dim("n", min=0, max=4096, multiple_of=8 if way[0] == "m" else 1)
    k = oc.reduce_axis(k_size, name="k")
    a = oc.placeholder((n, k_size) if way[0] == "k" else (k_size, n), dtype, name="A")
    w = oc.placeholder((k_size, n_size) if way[1] == "n" else (n_size, k_size), dtype, name="W")

    def term(i: object, j: object) -> object:
        one = a[i, k] if way[0] == "k" else a[k, i]
        other = w[k, j] if way[1] == "n" else w[j, k]
        return oc.sum(one.astype("float32") * other.astype("float32"), axis=k)

    s = oc.compute((n, n_size), term, name="S")
    c = oc.compute((n, n_size), lambda i, j: oc.maximum(s[i, j], 0.0).astype(dtype), name="C")
    return [c, a, w]


@cache
def kernel(way: str, k_size: int, n_size: int, dtype: str = "bfloat16") -> oc.Kernel:
    """Return a product in tiles of 128 rows by 256 columns."""
    c, *inputs = described(way, k_size, n_size, dtype)
    return oc.compile(c, inputs=inputs, target=there(), strategy={"i": "guard"})


def arrays(way: str, n: int, k_size: int, n_size: int, dtype: str) -> tuple[np.ndarray, ...]:
    """A, W, and their product."""
    draw = np.random.default_rng(7)
    a, w = (draw.integers(-4, 5, shape) for shape in ((n, k_size), (k_size, n_size)))
    exact = np.maximum(a @ w, 0).astype(np.float32).astype(KINDS[dtype])
    a, w = a if way[0] == "k" else a.T, w if way[1] == "n" else w.T
    return *(np.ascontiguousarray(one).astype(KINDS[dtype]) for one in (a, w)), exact


@pytest.mark.parametrize(
    ("way", "k_size", "n_size", "dtype"),
    [
        ("kn", 200, 264, "bfloat16"),
        ("kk", 72, 20, "float16"),
        ("mn", 40, 24, "bfloat16"),
        slow("mk", 320, 130, "bfloat16"),
    ],
)
def test_an_aligned_product_is_of_warpgroups_and_right_around_its_tiles(
    way: str, k_size: int, n_size: int, dtype: str
) -> None:
    compiled = kernel(way, k_size, n_size, dtype)
    text = str(compiled.loops)
    assert f"@cover(wgmma_m64nNk16_{way}_{dtype}" in text
    assert text.count("@by(load)  @async  @cover(tma_load_2d_") == 2
    for n in SIZES:
        if way[0] == "k" or n % 8 == 0:
            a, w, exact = arrays(way, n, k_size, n_size, dtype)
            np.testing.assert_array_equal(np.asarray(compiled(a, w)), exact)


def test_a_batch_of_products_is_of_warpgroups() -> None:
    n, b = oc.dim("n", min=0, max=512), oc.dim("b", min=0, max=8)
    x, y = (
        oc.placeholder((b, n, 80), "float16", name="X"),
        oc.placeholder((b, 80, 24), "float16", name="Y"),
    )
    k = oc.reduce_axis(80, name="k")
    s = oc.compute(
        (b, n, 24),
        lambda h, i, j: oc.sum(x[h, i, k].astype("float32") * y[h, k, j].astype("float32"), axis=k),
        name="S",
    )
    compiled = oc.compile(s, inputs=[x, y], target=there())
    assert "wgmma" in str(compiled.loops)
    draw = np.random.default_rng(1)
    for batch, size in ((0, 5), (1, 1), (3, 130)):
        a, c = draw.integers(-4, 5, (batch, size, 80)), draw.integers(-4, 5, (batch, 80, 24))
        given = np.asarray(compiled(a.astype(np.float16), c.astype(np.float16)))
        np.testing.assert_array_equal(given, (a @ c).astype(np.float32))


@pytest.mark.parametrize(
    ("machine", "way", "k_size", "n_size"),
    [
        ("h200", "kn", 63, 64),
        ("h200", "kk", 36, 64),
    ],
)
def test_what_boxes_do_not_reach_is_of_warps(
    machine: str, way: str, k_size: int, n_size: int
) -> None:
    c, *inputs = described(way, k_size, n_size)
    compiled = oc.compile(c, inputs=inputs, target=there(machine))
    assert "@cover(mma_m16n8k16_shared_bfloat16" in str(compiled.loops)
    assert "wgmma" not in str(compiled.loops)
    a, w, exact = arrays(way, 70, k_size, n_size, "bfloat16")
    np.testing.assert_array_equal(np.asarray(compiled(a, w)), exact)


def test_a_kernel_has_one_kind_of_product() -> None:
    # the second product has rows of 60 elements, which boxes do not reach: so the first one is of warps, too
    n = oc.dim("n", min=0, max=512)
    x, w = (
        oc.placeholder(shape, "bfloat16", name=name)
        for name, shape in (("X", (n, 64)), ("W", (64, 64)))
    )
    v = oc.placeholder((64, 60), "bfloat16", name="V")

    def product(of: oc.Tensor, by: oc.Tensor, columns: int, name: str) -> oc.Tensor:
        k = oc.reduce_axis(64, name="k")
        sums = oc.compute(
            (n, columns),
            lambda i, j: oc.sum(of[i, k].astype("float32") * by[k, j].astype("float32"), axis=k),
            name=name,
        )
        return oc.compute((n, columns), lambda i, j: sums[i, j].astype("bfloat16"), name=f"{name}h")

    for by, is_grouped in ((v, False), (w, True)):
        last = product(product(x, w, 64, "P"), by, 64 if is_grouped else 60, "Q")
        text = str(oc.compile(last, inputs=[x, w, *[v] * (by is v)], target=there()).loops)
        assert ("wgmma" in text, "mma_m16n8k16_shared" in text) == (is_grouped, not is_grouped)


def test_a_row_has_the_same_bits_at_every_size() -> None:
    compiled = kernel("kk", 72, 20, "float16")
    draw = np.random.default_rng(3)
    a, w = (draw.standard_normal(s).astype(np.float16) for s in ((200, 72), (20, 72)))
    whole = np.asarray(compiled(a, w)).view(np.uint16)
    for n in SIZES[1:]:
        np.testing.assert_array_equal(np.asarray(compiled(a[:n], w)).view(np.uint16), whole[:n])


@pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler")
@pytest.mark.parametrize("way", [*map(slow, WAYS[1:])])
def test_a_text_of_warpgroups_has_its_values_on_a_cpu(way: str) -> None:
    sizes = {"kk": (72, 20), "mn": (40, 24), "mk": (320, 130)}[way]
    for n in (8, 136):
        a, w, exact = arrays(way, n, *sizes, "bfloat16")
        (found,) = run_text(kernel(way, *sizes).loops, {"A": a, "W": w}, {"n": n}).values()
        np.testing.assert_array_equal(found, exact)


READ_BY_LANES = """\
program lanes
size n in 0:300
input A: bfloat16[n, 128]
local As: bfloat16[n, 128] @digits(box: 1//64, row: 0, element: 1%64) multiple(0: 64) swizzle(3, 4, 7) @scope(shared)
output C: bfloat16[n, 128]
for b in 0:(n + 63)//64  @block
  alloc As[64*b +: min(64, n - 64*b), 0 +: 128] in shared
    tile i in 64*b +: min(64, n - 64*b), p in 0 +: 128  @by(load)  @async  @cover(tma_load_2d_bfloat16; i=i, p=p; A=A, C=As)
      As[i, p] = A[i, p]
    for w in 0:4  @warp
      for r in 0:16
        if 64*b + 16*w + r < n
          for j in 0:128  @lane
            C[64*b + 16*w + r, j] = As[64*b + 16*w + r, j]
"""
"""Boxes that lanes read, element by element."""


@pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler")
def test_lanes_read_what_boxes_hold() -> None:
    compiled = oc.compile(oc.parse(READ_BY_LANES), target=there())
    a = np.random.default_rng(4).integers(-9, 9, (70, 128)).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(np.asarray(compiled(a)), a)
    (found,) = run_text(compiled.loops, {"A": a}, {"n": 70}).values()
    np.testing.assert_array_equal(found, a)


def edited(*edits: tuple[str, str]) -> oc.Schedule:
    text = str(kernel("kn", 200, 264).schedule)
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    return oc.Schedule.parse(text)


LAYOUT = " layout digits(box: 1//64, row: 0, element: 1%64) multiple(0: 64) swizzle(3, 4, 7)"
REFUSED = {
    "terms that end inside of boxes": (
        [("split S.k guard 64", "split S.k guard 40")],
        """\
compile: cannot run wgmma_m64nNk16_kn_bfloat16 in C
  at       line 20: cover S at i_row wgmma_m64nNk16_kn_bfloat16
  because  it takes 16 terms at once, and some that follow its own in A_in would be added
  help     tiles of a multiple of 16 terms, the last of which ends with A_in""",
    ),
    "sums beyond the registers": (
        [("split C.i guard 128", "split C.i guard 384"), ("depth 4", "depth 2")],
        """\
compile: cannot keep the sums of C in registers
  at       line 8: at S C.j_block in registers
  because  it takes 128 registers of a thread, and 6 warpgroups have 32 each for sums
  help     smaller tiles
  help     more warpgroups""",
    ),
    "an operand row by row": (
        [(f"W_in in shared{LAYOUT}", "W_in in shared")],
        """\
compile: cannot run tma_load_2d_bfloat16 in C
  at       line 19: cover W_in at k tma_load_2d_bfloat16
  because  W_in lies row by row, and tma_load_2d_bfloat16 has it in digits(box: 1//64, row: 0, element: 1%64) multiple(0: 64) swizzle(3, 4, 7)
  help     stage read … layout digits(box: 1//64, row: 0, element: 1%64) multiple(0: 64) swizzle(3, 4, 7)""",
    ),
    "an operand without its swizzle": (
        [(f"W_in in shared{LAYOUT}", f"W_in in shared{LAYOUT.partition(' swizzle')[0]}")],
        """\
compile: cannot cover a tile by wgmma_m64nNk16_kn_bfloat16
  at       line 20: cover S at i_row wgmma_m64nNk16_kn_bfloat16
  because  layout: W_in[k, j] is not packed as it reads it
  help     without @cover(…) it runs as loops""",
    ),
}


NO_BOXES = {
    # what is written, old text, new text, why it is refused, and what is taken
    "an operand row by row": (f" @{LAYOUT.removeprefix(' layout ')}", "", "W_in lies row by row", "stage read"),
    "rows that begin inside of cells": ("A: bfloat16[n, 200]", "A: bfloat16[n, 204]", "rows of A are not a multiple of 16 bytes", "a copy of rows: copy_rows, cp_async_rows"),
}  # fmt: skip


@pytest.mark.parametrize("what", NO_BOXES)
def test_a_program_whose_arrays_boxes_do_not_copy_is_refused(what: str) -> None:
    old, new, because, taken = NO_BOXES[what]
    before, found, after = str(kernel("kn", 200, 264).loops).rpartition(old)
    assert found
    with pytest.raises(oc.PartitionError, match=f"because  {because}(.|\n)*help     {taken}"):
        check_boxes(oc.parse(before + new + after), there().microkernels())


def test_sums_beyond_the_registers_of_a_machine_are_refused() -> None:
    with pytest.raises(oc.PartitionError) as refused:
        check_registers(kernel("kn", 200, 264).loops, 40960)
    assert refused.value.because.startswith("it takes 128 registers of a thread, and 2 warpgroups")


def test_a_program_of_warpgroups_is_refused_by_a_machine_that_has_none() -> None:
    with rejection("""\
PartitionError: compile: cannot run tma_load_2d_bfloat16 on a100
  at       tile i in 128*i_block +: min(128, n - 128*i_block), k in 64*k_stage +: min(64, 200 - 64*k_stage)  @by(load)  @async  @cover(tma_load_2d_bfloat16; i=i, p=k; A=A, C=A_in)
  because  it wants sm_90a, and a100 is sm_80
  help     a schedule that the policy of this machine writes"""):
        there("a100").check_features(kernel("kn", 200, 264).loops)  # type: ignore[attr-defined]


SLOW_REFUSALS = {*REFUSED} - {"terms that end inside of boxes"}


@pytest.mark.parametrize("what", [slow(one) if one in SLOW_REFUSALS else one for one in REFUSED])
def test_what_warpgroups_do_not_find_is_refused_in_full(what: str) -> None:
    edits, expected = REFUSED[what]
    c, *inputs = described("kn", 200, 264)
    with rejection(f"PartitionError: {expected}"):
        oc.compile(c, inputs=inputs, target=there(), schedule=edited(*edits))


def test_products_of_few_columns_are_bound_by_what_they_read_of_shared_memory() -> None:
    # 64 rows by 16 terms are read for each product: 16 cycles, where 16 columns take 8 and 256 take 128
    ratios = []
    for columns in (16, 256):
        c, *inputs = described("kn", 4096, columns)
        cost = oc.compile(c, inputs=inputs, target=there()).cost(n=4096)
        resources = cost.pieces[0].resources
        ratios.append(resources["shared"] / resources["tensor core"])
        assert resources["waiting"] < 10 * max(resources["tensor core"], resources["L2"])
    assert ratios[0] > 1.2 * ratios[1] > 1.2
