"""Products of every type of `PRODUCTS` and every order of axes: exact on the emulated device, and by their text on a CPU."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
from conftest import slow
from on_cpu import COMPILER, run_text

import offcut as oc
from offcut.backends.gpu.instructions import PRODUCTS
from tests.agree import Array, agree, exact_matmul

HALF = ml_dtypes.bfloat16
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler")


class Product(NamedTuple):
    """A sum of products, and what tiles of it are covered by.

    spec   as `np.einsum` takes it; k is summed
    fixed  the extents of axes that are not open
    types  of A, B and the sum
    """

    spec: str
    fixed: dict[str, int]
    types: tuple[str, str, str]
    covered: str


def halves(spec: str, **fixed: int) -> Product:
    types = ("bfloat16", "bfloat16", "float32")
    return Product(spec, fixed, types, "mma_m16n8k16_shared_bfloat16")


def like(dtype: str, spec: str, k: int, j: int) -> Product:
    return Product(spec, {"k": k, "j": j}, (dtype,) * 3, f"fma_shared_{dtype}")


CASES = {
    "int8, odd, turned": Product("ik,jk->ij", {"k": 70, "j": 21}, ("int8", "int8", "int32"), "mma_m16n8k32_shared_int8"),
    "uint8 and int8": Product("ik,kj->ij", {"k": 33, "j": 133}, ("uint8", "int8", "int32"), "mma_m16n8k32_shared_uint8_int8"),
    "uint8, columns": Product("ki,kj->ij", {"k": 16, "j": 16}, ("uint8", "uint8", "int32"), "mma_m16n8k32_shared_uint8"),
    "float16 batches": Product("uvik,uvkj->uvij", {"u": 2, "v": 3, "k": 17, "j": 9}, ("float16", "float16", "float32"), "mma_m16n8k16_shared_float16"),
    "float32": like("float32", "ik,kj->ij", 33, 130),
    "float32, turned": like("float32", "ki,jk->ij", 40, 20),
    "float64": like("float64", "ik,jk->ij", 17, 9),
    "int32": like("int32", "ki,kj->ij", 17, 9),
    "rows and columns": halves("ik,jk->ij", k=40),
    "terms": halves("ik,kj->ij", i=24, j=24),
    "rows and terms": halves("ik,kj->ij", j=24),
    "result turned": halves("ik,kj->ji", k=40, j=24),
    "scores of open batches": halves("bik,bjk->bij", k=16),
    "values of heads inside": halves("bhik,bkhj->bihj", b=3, h=2, j=16),
    "one second operand": halves("bik,kj->bij", b=3, k=40, j=24),
}  # fmt: skip
QUICK = ("int8, odd, turned", "terms", "scores of open batches")
SIZES = (0, 1, 17, 64, 65)
"""Around tiles of 16, 32 and 64 rows."""


@cache
def kernel(name: str) -> oc.Kernel:
    spec, fixed, (*types, total), _ = CASES[name]
    operands, result = spec.split("->")
    open_sizes = {"b": oc.dim("b", max=4), **{axis: oc.dim("n", max=100) for axis in "ijk"}}
    extents: dict[str, Any] = open_sizes | fixed
    parts = operands.split(",")
    inputs = [
        oc.placeholder(tuple(extents[axis] for axis in part), dtype, name)
        for name, dtype, part in zip("AB", types, parts, strict=True)
    ]
    k = oc.reduce_axis(extents["k"], name="k")

    def sum_of(*point: Any) -> Any:
        at = dict(zip(result, point, strict=True)) | {"k": k}
        a, b = (
            oc.cast(tensor[tuple(at[axis] for axis in part)], total)
            for tensor, part in zip(inputs, parts, strict=True)
        )
        return oc.sum(a * b, axis=k)

    shape = tuple(extents[axis] for axis in result)
    output = oc.compute(shape, sum_of, name="C", axes=tuple(result))
    target = oc.target("cuda", machine="a100", device="emulated")
    return oc.compile(output, inputs=inputs, target=target)


def operands_of(name: str, n: int) -> tuple[list[Array], Array]:
    """Small whole numbers, and their exact product."""
    spec, fixed, types, _ = CASES[name]
    draw, extents = np.random.default_rng(n), {"b": 2} | dict.fromkeys("ijk", n) | fixed
    given = [
        draw.integers(0 if dtype[0] == "u" else -9, 10, tuple(extents[axis] for axis in part))
        for dtype, part in zip(types, spec.split("->")[0].split(","), strict=False)
    ]
    kinds = [HALF if dtype == "bfloat16" else np.dtype(dtype) for dtype in types]
    arrays = [one.astype(kind) for one, kind in zip(given, kinds, strict=False)]
    return arrays, np.einsum(spec, *given)


@pytest.mark.parametrize("name", [one if one in QUICK else slow(one) for one in CASES])
def test_a_product_is_of_tiles_and_exact_at_sizes_around_them(name: str) -> None:
    made = kernel(name)
    sizes = {"n": 64} if "b" not in {size.name for size in made.loops.sizes} else {"n": 64, "b": 2}
    assert {piece.microkernel for piece in made.plan(**sizes).pieces} == {CASES[name].covered}
    assert oc.Schedule.parse(str(made.schedule)) == made.schedule
    for n in SIZES:
        given, exact = operands_of(name, n)
        np.testing.assert_array_equal(np.asarray(made(*given)), exact)


@needs_compiler
@pytest.mark.parametrize("name", [one if one == QUICK[0] else slow(one) for one in CASES])
def test_the_text_of_a_product_is_exact_on_a_cpu(name: str) -> None:
    given, exact = operands_of(name, 17)
    arrays = dict(zip("AB", given, strict=True))
    (found,) = run_text(kernel(name).loops, arrays, {"n": 17, "b": 2}).values()
    np.testing.assert_array_equal(found, exact)


def test_every_product_that_a_policy_takes_has_a_case() -> None:
    names = {one.name for one in PRODUCTS} - {"mma_m16n8k8_shared_tf32"}
    assert names == {one.covered for one in CASES.values()}


@needs_compiler
def test_products_of_tf32_are_taken_by_hand_alone_and_round_their_operands() -> None:
    n, k = oc.dim("n", max=256), oc.reduce_axis(37, name="k")
    a, b = oc.placeholder((n, 37), name="A"), oc.placeholder((20, 37), name="B")
    result = oc.compute((n, 20), lambda i, j: oc.sum(a[i, k] * b[j, k], axis=k), name="S")
    target = oc.target("cuda", machine="a100", device="emulated")
    plain = oc.compile(result, inputs=[a, b], target=target)
    text = str(plain.schedule)
    assert "tf32" not in text
    asked = oc.Schedule.parse(text.replace("fma_shared_float32", "mma_m16n8k8_shared_tf32"))
    made = oc.compile(result, inputs=[a, b], target=target, schedule=asked)
    draw = np.random.default_rng(4)
    x, y = (draw.normal(size=shape).astype("float32") for shape in ((17, 37), (20, 37)))
    (found,) = run_text(made.loops, {"A": x, "B": y}, {"n": 17}).values()
    exact, terms = x.astype("float64") @ y.T, np.abs(x).astype("float64") @ np.abs(y).T
    error = np.abs(found - exact)
    assert (error <= 2.0**-10 * terms).all()  # each operand is rounded to 11 bits
    assert error.max() > 2.0**-20 * terms.max()
    agree(plain(x, y), exact_matmul(x, y.T))


def test_what_follows_a_product_of_bytes_is_computed_from_registers() -> None:
    n, k = oc.dim("n", max=256), oc.reduce_axis(40, name="k")
    a, w = oc.placeholder((n, 40), "int8", "A"), oc.placeholder((40, 24), "int8", "B")
    bias = oc.placeholder((24,), "int32", name="bias")
    total = oc.compute(
        (n, 24),
        lambda i, j: oc.sum(oc.cast(a[i, k], "int32") * oc.cast(w[k, j], "int32"), axis=k),
        name="S",
    )
    shifted = oc.compute(total.shape, lambda i, j: total[i, j] + bias[j], name="T")
    result = oc.ops.requantize(shifted, 3, name="Y")
    target = oc.target("cuda", machine="h200", device="emulated")
    made = oc.compile(result, inputs=[a, w, bias], target=target)
    assert "inline T" in str(made.schedule)
    assert len(made.plan(n=64).pieces) == 1
    draw = np.random.default_rng(5)
    x, y = (draw.integers(-9, 10, shape).astype("int8") for shape in ((65, 40), (40, 24)))
    plain, b = oc.compile(result, inputs=[a, w, bias], target="interpret"), np.arange(24) * 7
    given = x, y, b.astype("int32")
    whole = np.asarray(made(*given)).astype(int)
    np.testing.assert_array_equal(whole, np.asarray(plain(*given)))
    exact = (x.astype(int) @ y + b) / 8
    assert (np.abs(whole - np.clip(exact, -128, 127)) <= 1).all()


def test_bias_activation_residual_and_cast_follow_in_registers() -> None:
    n = oc.dim("n", max=128)
    x, w = oc.placeholder((n, 40), "bfloat16", "x"), oc.placeholder((40, 24), "bfloat16", "w")
    b, r = oc.placeholder((24,), "float32", "b"), oc.placeholder((n, 24), "float32", "r")
    result = oc.ops.dense(x, w, b, "gelu", r, name="Y")
    target = oc.target("cuda", machine="h200", device="emulated")
    made = oc.compile(result, inputs=[x, w, b, r], target=target)
    assert len(made.plan(n=64).pieces) == 1
    draw = np.random.default_rng(3)
    left, right = (draw.normal(size=shape).astype(HALF) for shape in ((65, 40), (40, 24)))
    bias, rest = (draw.normal(size=shape).astype("float32") for shape in (24, (65, 24)))
    wide = oc.compile(result, inputs=[x, w, b, r], target="interpret")
    exact = np.asarray(wide(left, right, bias, rest)).astype("float64")
    found = np.asarray(made(left, right, bias, rest)).astype("float64")
    terms = np.abs(left).astype("float64") @ np.abs(right).astype("float64") + 4
    assert (np.abs(found - exact) <= 2.0**-7 * np.abs(exact) + 2.0**-18 * terms).all()
