"""Operators on the emulated device against float64, at sizes around their tiles; their texts on a CPU; bits in every batch."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from conftest import slow
from on_cpu import COMPILER, run_text, variants

import offcut as oc
from tests.agree import Array, agree, of_program

SIZES = (0, 1, 4, 5)
Described = tuple[oc.Tensor, list[oc.Tensor]]


def rows() -> object:
    return oc.dim("n", min=0, max=512)


def of(
    op: str, *shapes: tuple[object, ...], dtype: str = "float32", **options: object
) -> Described:
    """An operator of placeholders ``A``, ``B``, …, of which ``"n"`` is the number of rows."""
    n = rows()
    inputs = [
        oc.placeholder(tuple(n if one == "n" else one for one in shape), dtype, name)
        for shape, name in zip(shapes, "ABCD", strict=False)
    ]
    return getattr(oc.ops, op)(*inputs, **options), inputs


def looked_up() -> Described:
    table, ids = oc.placeholder((9, 20), name="A"), oc.placeholder((rows(),), "int32", "I")
    return oc.ops.embedding(table, ids), [table, ids]


def halves() -> Described:
    """Differences in bfloat16, whole numbers of those of elements that are greater than the first of their row."""
    n = rows()
    a = oc.placeholder((n, 40), "bfloat16", "A")
    d = oc.compute((n, 40), lambda i, j: (a[i, j] - a[i, 0]) * 8.0, name="D")

    def whole(i: Any, j: Any) -> Any:
        return oc.cast(oc.round(oc.where(a[i, j] > a[i, 0], d[i, j], a[i, j])), "int8")

    c = oc.compute((n, 40), whole, name="C")
    return c, [a]


OPERATORS: dict[str, Callable[[], Described]] = {
    "softmax": lambda: of("softmax", ("n", 70)),
    "sum of columns": lambda: of("sum", ("n", 300), axis=0),
    "embedding": looked_up,
    "halves": halves,
    "padded convolution": lambda: of("conv2d", ("n", 9, 6, 5), (20, 9, 3, 3), padding=1, stride=2),
    "pointwise": lambda: of("conv2d", ("n", 40, 3, 8), (20, 40, 1, 1), dtype="bfloat16"),
    "transposed convolution": lambda: of(
        "conv_transpose2d", ("n", 4, 5, 4), (4, 6, 3, 3), stride=2, dtype="bfloat16"
    ),
    "pool": lambda: of("max_pool2d", ("n", 3, 7, 7), window=3, stride=2),
    "five axes": lambda: of("multiply", (2, 3, "n", 2, 5), (2, 3, "n", 2, 5)),
    "remainder": lambda: of("remainder", ("n", 9), ("n", 9)),
    "attention": lambda: of("attention", (2, "n", 8), (2, "n", 8), (2, "n", 8), causal=True),
}
FAST = ("softmax", "halves", "padded convolution")
"""Operators whose text runs in each run of the tests."""
ALIKE = ("pool", "remainder", "transposed convolution", "pointwise")
"""Operators of which others have what is in them."""


@cache
def kernel(name: str) -> tuple[oc.Kernel, oc.Program]:
    """The kernel of an operator, and the program that it is of."""
    result, inputs = OPERATORS[name]()
    target = oc.target("cuda", machine="h200", device="emulated")
    source = oc.compile(result, inputs=inputs, target="interpret").loops
    return oc.compile(result, inputs=inputs, target=target), source


def arrays(program: oc.Program, n: int) -> dict[str, Array]:
    """Inputs at ``n`` rows; the first rows are those of any other number of rows."""
    made = {}
    for buffer in program.buffers:
        if buffer.kind.value == "input":
            shape = [int(getattr(extent, "value", 64)) for extent in buffer.shape]
            place = [k for k, extent in enumerate(buffer.shape) if not hasattr(extent, "value")]
            draw = np.random.default_rng([*buffer.name.encode()])
            values = draw.normal(size=shape)
            if buffer.dtype in ("bfloat16", "int32"):
                values = draw.integers(0, 9, shape) / (8 if buffer.dtype == "bfloat16" else 1)
            kinds = {"bfloat16": ml_dtypes.bfloat16}
            cut = [slice(n) if k in place else slice(None) for k in range(len(shape))]
            made[buffer.name] = values.astype(kinds.get(buffer.dtype, buffer.dtype))[tuple(cut)]
    return made


@pytest.mark.parametrize("name", [slow(n) if n in ALIKE else n for n in OPERATORS])
def test_an_operator_has_the_values_of_float64(name: str) -> None:
    made, source = kernel(name)
    for n in SIZES:
        given = arrays(source, n)
        agree(made(**given), of_program(source, given, n=n))


@cache
def text_of(names: tuple[str, ...]) -> str:
    """The kernels of several operators in one text, which is compiled once."""
    return variants([kernel(name)[0].source("cuda") for name in names])


@pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler")
@pytest.mark.parametrize("name", [n if n in FAST else slow(n) for n in OPERATORS])
def test_the_text_of_an_operator_has_its_values_on_a_cpu(name: str) -> None:
    made, source = kernel(name)
    given, names = arrays(source, 5), FAST if name in FAST else (name,)
    (found,) = run_text(made.loops, given, {"n": 5}, text_of(names), names.index(name)).values()
    agree(found, of_program(source, given, n=5))


@pytest.mark.parametrize("name", ["softmax", slow("padded convolution")])
def test_a_row_has_the_same_bits_in_every_batch(name: str) -> None:
    made, source = kernel(name)
    whole = np.asarray(made(**arrays(source, SIZES[-1])))
    for n in SIZES[:-1]:
        assert np.asarray(made(**arrays(source, n))).tobytes() == whole[:n].tobytes()


@pytest.mark.parametrize("name", ["padded convolution", slow("pointwise")])
def test_patches_of_a_convolution_are_copied_into_shared_memory(name: str) -> None:
    made = kernel(name)[0]
    covered = "mma_m16n8k16_shared_bfloat16" if name == "pointwise" else "fma_shared_float32"
    assert covered in {piece.microkernel for piece in made.plan(n=3).pieces}
    window = "A_staged_in" if name == "padded convolution" else "A_in"
    assert f"at {window} " in str(made.schedule)
    assert ("stage value where(" in str(made.schedule)) == (window == "A_staged_in")
    given = arrays(kernel(name)[1], 3)
    whole = np.asarray(made(**given))
    assert np.asarray(made(A=given["A"][:1], B=given["B"])).tobytes() == whole[:1].tobytes()


def attention_with_past() -> tuple[oc.Tensor, list[oc.Tensor]]:
    """Return causal attention of two heads whose past is a size of its own."""
    s, t, past = (oc.dim(name, max=256) for name in ("s", "t", "past"))
    q = oc.placeholder((2, s, 16), "bfloat16", name="q")
    k, v = (oc.placeholder((2, t, 16), "bfloat16", name=name) for name in "kv")
    return oc.ops.attention(q, k, v, causal=True, past=past, name="y"), [q, k, v]


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["cut", "shift", "version"])
def test_attention_whose_past_is_a_size_takes_strategies(strategy: str) -> None:
    result, inputs = attention_with_past()
    target = oc.target("cuda", machine="h200", device="emulated")
    made = oc.compile(result, inputs=inputs, target=target, strategy=strategy)
    draw = np.random.default_rng(1)
    for queries, keys, before in ((0, 3, 1), (1, 1, 0), (3, 40, 37), (70, 131, 61)):
        shapes = (2, queries, 16), (2, keys, 16), (2, keys, 16)
        x, y, z = (draw.normal(size=shape).astype(ml_dtypes.bfloat16) for shape in shapes)
        a, b, c = (one.astype("float64") for one in (x, y, z))
        seen = np.arange(keys) <= np.arange(queries)[:, None] + before
        weights = np.where(seen, np.exp(a @ b.swapaxes(-1, -2) / 4), 0)
        weights /= weights.sum(-1, keepdims=True)
        error = np.abs(np.asarray(made(x, y, z, past=before)).astype("float64") - weights @ c)
        assert (error <= 2.0**-6 * (weights @ np.abs(c))).all()


@pytest.mark.slow
def test_what_an_array_masks_reaches_no_query_on_either_executor() -> None:
    n = oc.dim("n", max=64)
    q, k, v = (oc.placeholder((n, 16), "bfloat16", name) for name in "qkv")
    mask = oc.placeholder((n, n), "float32", "M")
    result = oc.ops.attention(q, k, v, mask, name="y")
    target = oc.target("cuda", machine="h200", device="emulated")
    made = oc.compile(result, inputs=[q, k, v, mask], target=target)
    pieces = {one.stage: one for one in made.plan(n=64).pieces}
    assert pieces["y_mix"].microkernel == "mma_m16n8k16_shared_bfloat16"
    assert pieces["y_resum"].seconds < pieces["y_exp"].seconds
    draw = np.random.default_rng(3)
    given = {x: draw.normal(size=(9, 16)).astype(ml_dtypes.bfloat16) for x in "qkv"}
    finite = draw.random((9, 9)) < 0.7
    finite[:, 0] = True
    finite[::2, 4] = False
    given["M"] = np.where(finite, 0, -np.inf).astype("float32")
    without = np.asarray(made(**given))
    given["v"][4], given["k"][4] = np.nan, np.inf
    found = [np.asarray(made(**given))]
    if COMPILER is not None:
        found += run_text(made.loops, given, {"n": 9}).values()
    for one in found:
        agree(one[~finite[:, 4]], without[~finite[:, 4]].astype("float64"))
        assert np.isnan(one[finite[:, 4]].astype("float64")).all()


@cache
def masked_sum(window: int | None = None) -> oc.Kernel:
    """``C[i] = sum of W[i, t] * V[t]`` over ``i - window < t <= i``, of bfloat16."""
    n, t = oc.dim("n", min=0, max=512), oc.reduce_axis(oc.dim("n", min=0, max=512), name="t")
    w, v = oc.placeholder((n, n), "bfloat16", "W"), oc.placeholder((n, 24), "bfloat16", "V")

    def term(i: Any, j: Any) -> Any:
        seen = t <= i if window is None else (t <= i) & (t > i - window)
        product = w[i, t].astype("float32") * v[t, j].astype("float32")
        return oc.sum(oc.where(seen, product, -0.0), axis=t)

    target = oc.target("cuda", machine="h200", device="emulated")
    return oc.compile(oc.compute((n, 24), term, name="C"), inputs=[w, v], target=target)


def masked_arrays(n: int, window: int | None) -> tuple[dict[str, Array], Array, Array]:
    """Arguments with NaN and infinity in two rows of V and where W is hidden; the exact sums, 0 where these rows are seen, and where they are."""
    draw = np.random.default_rng(n)
    w, v = (draw.integers(-4, 5, shape).astype(np.float64) for shape in ((n, n), (n, 24)))
    i, j = np.arange(n)[:, None], np.arange(n)
    seen = (j <= i) & (j > i - (window or n + 1))
    bad = np.isin(j, (n // 2, n - 1))
    touched = np.asarray((seen & bad).any(axis=1))
    exact = np.where(touched[:, None], 0, np.where(seen, w, 0) @ v)
    v[bad] = np.nan
    v[n // 2 : n // 2 + 1, :5] = np.inf
    w[~seen] = np.nan
    given = {"W": w.astype(ml_dtypes.bfloat16), "V": v.astype(ml_dtypes.bfloat16)}
    return given, exact, touched


@pytest.mark.slow
@pytest.mark.parametrize("window", [None, 40])
def test_a_sum_under_a_mask_is_of_tensor_cores_and_reads_nothing_behind_it(
    window: int | None,
) -> None:
    made = masked_sum(window)
    assert [one.microkernel for one in made.plan(n=64).pieces] == ["mma_m16n8k16_shared_bfloat16"]
    for n in (0, 1, 33, 70):
        given, exact, touched = masked_arrays(n, window)
        results = [np.asarray(made(**given))]
        if COMPILER is not None and n == 70:
            results += run_text(made.loops, given, {"n": n}).values()
        for values in results:
            np.testing.assert_array_equal(values[~touched], exact[~touched])
            assert not np.isfinite(values[touched].astype(np.float64)).any()


@pytest.mark.slow
def test_a_sum_whose_length_is_an_element_of_an_array_is_of_tensor_cores_on_either_executor() -> (
    None
):
    n, b = oc.dim("n", min=0, max=512), oc.dim("b", min=0, max=9)
    w, v = (
        oc.placeholder(shape, "bfloat16", name)
        for name, shape in (("W", (b, n, n)), ("V", (b, n, 24)))
    )
    lengths, t = oc.placeholder((b,), "int32", "L"), oc.reduce_axis(n, name="t")

    def term(h: Any, i: Any, j: Any) -> Any:
        product = w[h, i, t].astype("float32") * v[h, t, j].astype("float32")
        return oc.sum(oc.where(t < oc.index(lengths[h]), product, -0.0), axis=t)

    target = oc.target("cuda", machine="h200", device="emulated")
    result = oc.compute((b, n, 24), term, name="C")
    made = oc.compile(result, inputs=[w, v, lengths], target=target)
    assert [one.microkernel for one in made.plan(n=64, b=2).pieces] == [
        "mma_m16n8k16_shared_bfloat16"
    ]
    assert "for t_stage in 0:min((n + 31)//32, (index(L[h]) + 31)//32)" in str(made.loops)
    draw = np.random.default_rng(2)
    for size, ends in ((0, [3]), (33, [33, 0, -7, 40]), (70, [70, 1, 31, 32, 65])):
        ragged = np.arange(size) < np.array(ends)[:, None]
        x, y = (
            draw.integers(-4, 5, (len(ends), size, columns)).astype(np.float64)
            for columns in (size, 24)
        )
        exact = np.where(ragged[:, None], x, 0) @ y
        x[np.broadcast_to(~ragged[:, None], x.shape)], y[~ragged] = np.nan, np.nan
        given = {"W": x.astype(ml_dtypes.bfloat16), "V": y.astype(ml_dtypes.bfloat16)}
        given["L"] = np.array(ends, "int32")
        np.testing.assert_array_equal(np.asarray(made(**given)), exact)
        if COMPILER is not None and size == 70:
            sizes = {"n": size, "b": len(ends)}
            np.testing.assert_array_equal(*run_text(made.loops, given, sizes).values(), exact)


@pytest.mark.slow
def test_terms_at_the_border_of_a_mask_are_predicted() -> None:
    made = masked_sum()
    for n in (64, 320, 500):
        flop = made.cost(n=n).pieces[0].flop
        # 24 columns by the terms that each row has, and by those at the border that lanes ask for
        rows = np.arange(n)
        whole = 24 * (rows + 1).sum()
        asked = 24 * sum(min(n, 32 * (r // 32) + 32) for r in rows)
        assert 2 * whole * 0.8 <= flop <= 2 * asked * 1.25


@pytest.mark.slow
def test_scores_behind_a_mask_are_not_computed() -> None:
    n = oc.dim("n", min=1, max=16384)
    q, k, v = (oc.placeholder((8, n, 64), "bfloat16", name) for name in "qkv")
    target = oc.target("cuda", machine="h200", device="emulated")
    result = oc.ops.attention(q, k, v, causal=True)
    made = oc.compile(result, inputs=[q, k, v], target=target)
    conditions = [
        line.strip()
        for line in str(made.loops).splitlines()
        if line.strip().startswith("if ") and ">= 0" in line
    ]
    assert conditions == [
        "if 64*i_block + min(16, n - 64*i_block) - 128*j_block + 47 >= 0",  # products
        "if 4*i_block - 256*j_block + 3 >= 0",  # what lanes make of them, by block
        "if 4*i_block + i_warp - (256*j_block + j_lane) >= 0",  # and by element
    ]
    every = oc.compile(oc.ops.attention(q, k, v), inputs=[q, k, v], target=target)
    pieces = zip(made.plan(n=8192).pieces, every.plan(n=8192).pieces, strict=True)
    products, _, exponentials, *_ = (one.seconds / other.seconds for one, other in pieces)
    assert products < 0.7
    assert exponentials < 0.7


def test_lanes_are_decisions() -> None:
    text = str(kernel("softmax")[0].schedule)
    assert "bind softmax_A_sum.k lane tree" in text
    assert "bind softmax_A.j lane" in text
    result, inputs = OPERATORS["softmax"]()
    target = oc.target("cuda", machine="h200", device="emulated")
    none = oc.Schedule.parse(
        "\n".join(
            line
            for line in text.splitlines()
            if not any(word in line for word in ("lane", "_share"))
        )
    )
    source = oc.compile(result, inputs=inputs, target=target, schedule=none).source("cuda")
    assert "+= 32" not in source
    kept = oc.compile(result, inputs=inputs, target=target, reassociate=False)
    assert "softmax_A_sum.k lane" not in str(kept.schedule)
    assert "bind softmax_A_max.k lane tree" in str(kept.schedule)
