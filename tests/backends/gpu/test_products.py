"""Products of tiles of every type of `mma.PRODUCTS`, on the emulated device and by their text on a CPU, beside exact sums."""

from __future__ import annotations

from functools import cache

import ml_dtypes
import numpy as np
import pytest
from conftest import slow
from on_cpu import COMPILER, run_text

import offcut as oc
from offcut.backends.gpu.instructions import PRODUCTS
from tests.agree import Array, agree, exact_matmul

SIZES = (0, 1, 63, 64, 65)
LEADING = (2, 3)


def described(a: str, b: str, total: str, k: int, n: int, how: str) -> list[oc.Tensor]:
    """``A @ B`` over symbolic rows.

    how  letters: ``a`` or ``b`` is turned, ``l`` has two leading axes
    """
    rows, lead = oc.dim("n", min=0, max=256), LEADING if "l" in how else ()
    shapes = (k, rows) if "a" in how else (rows, k), (n, k) if "b" in how else (k, n)
    left, right = (
        oc.placeholder((*lead, *shape), dtype, name)
        for shape, dtype, name in zip(shapes, (a, b), "AB", strict=True)
    )
    p = oc.reduce_axis(k, name="p")

    def term(*at: oc.Value) -> oc.Value:
        *outer, i, j = at
        x = left[(*outer, p, i) if "a" in how else (*outer, i, p)]
        y = right[(*outer, j, p) if "b" in how else (*outer, p, j)]
        return oc.sum(oc.cast(x, total) * oc.cast(y, total), axis=p)

    axes = ("u", "v", "i", "j")[-len(lead) - 2 :]
    return [oc.compute((*lead, rows, n), term, name="S", axes=axes), left, right]


CASES = {
    "int8, odd, turned": (("int8", "int8", "int32", 70, 21, "b"), "mma_m16n8k32_shared_int8"),
    "int8, columns": (("int8", "int8", "int32", 33, 133, "a"), "mma_m16n8k32_shared_int8"),
    "uint8 and int8": (("uint8", "int8", "int32", 64, 24, ""), "mma_m16n8k32_shared_uint8_int8"),
    "uint8": (("uint8", "uint8", "int32", 16, 16, "b"), "mma_m16n8k32_shared_uint8"),
    "float32": (("float32", "float32", "float32", 33, 130, ""), "fma_shared_float32"),
    "float32, turned": (("float32", "float32", "float32", 40, 20, "ab"), "fma_shared_float32"),
    "float64": (("float64", "float64", "float64", 17, 9, "b"), "fma_shared_float64"),
    "int32": (("int32", "int32", "int32", 17, 9, "a"), "fma_shared_int32"),
    "batches": (("float16", "float16", "float32", 17, 9, "l"), "mma_m16n8k16_shared_float16"),
}
QUICK = ("int8, odd, turned", "batches")


@cache
def kernel(name: str) -> oc.Kernel:
    result, *inputs = described(*CASES[name][0])
    target = oc.target("cuda", machine="a100", device="emulated")
    return oc.compile(result, inputs=inputs, target=target)


def operands(a: str, b: str, k: int, n: int, how: str, rows: int) -> tuple[list[Array], Array]:
    """Small whole numbers, and their exact product."""
    draw, lead = np.random.default_rng([k, n, rows]), LEADING if "l" in how else ()
    least = [0 if one.startswith("u") else -9 for one in (a, b)]
    x = draw.integers(least[0], 10, (*lead, rows, k))
    y = draw.integers(least[1], 10, (*lead, k, n))
    given = [
        np.ascontiguousarray((np.swapaxes(one, -1, -2) if turned in how else one).astype(dtype))
        for one, turned, dtype in ((x, "a", a), (y, "b", b))
    ]
    return given, x @ y


@pytest.mark.parametrize("name", [one if one in QUICK else slow(one) for one in CASES])
def test_a_product_is_exact_at_sizes_around_its_tiles(name: str) -> None:
    (a, b, _, k, n, how), covered = CASES[name]
    made = kernel(name)
    assert {piece.microkernel for piece in made.plan(n=64).pieces} == {covered}
    assert oc.Schedule.parse(str(made.schedule)) == made.schedule
    for rows in SIZES:
        given, exact = operands(a, b, k, n, how, rows)
        np.testing.assert_array_equal(np.asarray(made(*given)), exact)


@pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler")
@pytest.mark.parametrize("name", [one if one == QUICK[0] else slow(one) for one in CASES])
def test_the_text_of_a_product_is_exact_on_a_cpu(name: str) -> None:
    (a, b, _, k, n, how), _ = CASES[name]
    given, exact = operands(a, b, k, n, how, 17)
    (found,) = run_text(kernel(name).loops, dict(zip("AB", given, strict=True)), {"n": 17}).values()
    np.testing.assert_array_equal(found, exact)


def test_every_product_that_a_policy_takes_has_a_case() -> None:
    names = {one.name for one in PRODUCTS} - {"mma_m16n8k8_shared_tf32"}
    assert names == {name for _, name in CASES.values()} | {"mma_m16n8k16_shared_bfloat16"}


@pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler")
def test_tf32_is_taken_where_a_schedule_names_it_and_not_otherwise() -> None:
    result, *inputs = described("float32", "float32", "float32", 37, 20, "b")
    target = oc.target("cuda", machine="a100", device="emulated")
    plain = oc.compile(result, inputs=inputs, target=target)
    text = str(plain.schedule)
    assert "tf32" not in text
    asked = oc.Schedule.parse(text.replace("fma_shared_float32", "mma_m16n8k8_shared_tf32"))
    made = oc.compile(result, inputs=inputs, target=target, schedule=asked)
    draw = np.random.default_rng(4)
    x, y = (
        draw.normal(size=(17, 37)).astype("float32"),
        draw.normal(size=(20, 37)).astype("float32"),
    )
    (found,) = run_text(made.loops, {"A": x, "B": y}, {"n": 17}).values()
    exact, terms = x.astype("float64") @ y.T, np.abs(x).astype("float64") @ np.abs(y).T
    error = np.abs(found - exact)
    assert (error <= 2.0**-10 * terms).all()  # each operand is rounded to 11 bits
    assert error.max() > 2.0**-20 * terms.max()
    agree(plain(x, y), exact_matmul(x, y.T))


def test_what_follows_a_product_of_bytes_is_computed_from_registers() -> None:
    total, a, w = described("int8", "int8", "int32", 40, 24, "")
    bias = oc.placeholder((24,), "int32", "bias")
    shifted = oc.compute(total.shape, lambda i, j: total[i, j] + bias[j], name="T")
    result = oc.ops.requantize(shifted, 3, name="Y")
    target = oc.target("cuda", machine="h200", device="emulated")
    made = oc.compile(result, inputs=[a, w, bias], target=target)
    assert "inline T" in str(made.schedule)
    assert len(made.plan(n=64).pieces) == 1
    given, exact = operands("int8", "int8", 40, 24, "", 65)
    b = np.arange(24, dtype="int32") * 7
    plain = oc.compile(result, inputs=[a, w, bias], target="interpret")
    np.testing.assert_array_equal(np.asarray(made(*given, b)), np.asarray(plain(*given, b)))
    whole = np.asarray(made(*given, b)).astype(int)
    assert (np.abs(whole - np.clip((exact + b) / 8, -128, 127)) <= 1).all()


@pytest.mark.parametrize("activation", [*map(slow, ("relu", "silu", "tanh")), "gelu"])
def test_bias_activation_residual_and_cast_follow_in_registers(activation: str) -> None:
    n = oc.dim("n", min=0, max=128)
    x, w = oc.placeholder((n, 40), "bfloat16", "x"), oc.placeholder((40, 24), "bfloat16", "w")
    b, r = oc.placeholder((24,), "float32", "b"), oc.placeholder((n, 24), "float32", "r")
    result = oc.ops.dense(x, w, b, activation, r, name="Y")
    target = oc.target("cuda", machine="h200", device="emulated")
    made = oc.compile(result, inputs=[x, w, b, r], target=target)
    assert len(made.plan(n=64).pieces) == 1
    draw, half = np.random.default_rng(3), ml_dtypes.bfloat16
    left, right = draw.normal(size=(65, 40)).astype(half), draw.normal(size=(40, 24)).astype(half)
    bias, rest = (
        draw.normal(size=24).astype("float32"),
        draw.normal(size=(65, 24)).astype("float32"),
    )
    wide = oc.compile(result, inputs=[x, w, b, r], target="interpret")
    exact = np.asarray(wide(left, right, bias, rest)).astype("float64")
    found = np.asarray(made(left, right, bias, rest)).astype("float64")
    terms = np.abs(left).astype("float64") @ np.abs(right).astype("float64") + 4
    assert (np.abs(found - exact) <= 2.0**-7 * np.abs(exact) + 2.0**-18 * terms).all()
