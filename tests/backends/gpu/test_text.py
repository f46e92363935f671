"""The text of kernels in CUDA C++: golden, compiled where NVRTC is, and run on a CPU by a second definition of its primitives."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from conftest import rejection, slow
from on_cpu import COMPILER, run_text, variants

import offcut as oc
from offcut.backends.gpu.nvrtc import compile_cubin, kernel_usages
from offcut.backends.gpu.text import cuda_kernels

GOLDEN = Path(__file__).parents[2] / "golden" / "kernels"
CASES = ("dense_odd", "dense_aligned", "dense_turned", "dense_mask", "dense_boxes", "centered")


def dense(k_size: int, n_size: int, dtype: str, turned: bool = False) -> list[oc.Tensor]:
    """``relu(A @ W)``, in the type of A."""
    n, k = oc.dim("n", min=0, max=4096), oc.reduce_axis(k_size, name="k")
    a = oc.placeholder((n, k_size), dtype, name="A")
    w = oc.placeholder((n_size, k_size) if turned else (k_size, n_size), dtype, name="W")

    def term(i: object, j: object) -> object:
        other = w[j, k] if turned else w[k, j]
        return oc.sum(a[i, k].astype("float32") * other.astype("float32"), axis=k)

    s = oc.compute((n, n_size), term, name="S")
    c = oc.compute((n, n_size), lambda i, j: oc.maximum(s[i, j], 0.0).astype(dtype), name="C")
    return [c, a, w]


def centered() -> list[oc.Tensor]:
    """Columns without their sums, through a function: two launches, between which all blocks meet."""
    n = oc.dim("n", min=1, max=4096)
    x, k = oc.placeholder((n, 6), "float32", name="X"), oc.reduce_axis(n, name="k")
    m = oc.compute((6,), lambda j: oc.sum(x[k, j], axis=k), name="M")
    y = oc.compute((n, 6), lambda i, j: oc.sqrt(oc.maximum(x[i, j] - m[j], 0.25)), name="Y")
    return [y, x]


@cache
def kernel(name: str) -> oc.Kernel:
    machine = "h200" if name == "dense_boxes" else "a100"
    target = oc.target("cuda", machine=machine, device="emulated")
    described = {
        "dense_odd": lambda: dense(37, 133, "bfloat16"),
        "dense_aligned": lambda: dense(72, 24, "float16"),
        "dense_turned": lambda: dense(40, 20, "bfloat16", turned=True),
        "dense_mask": lambda: dense(40, 130, "bfloat16"),
        "dense_boxes": lambda: dense(328, 24, "bfloat16"),
        "centered": centered,
    }[name]()
    strategy = "mask" if name == "dense_mask" else "auto"
    return oc.compile(described[0], inputs=described[1:], target=target, strategy=strategy)


@pytest.mark.parametrize("name", CASES)
def test_a_text_is_as_it_was(name: str, golden: Callable[[str, str], None]) -> None:
    golden(f"kernels/{name}.cu", kernel(name).source("cuda").rstrip("\n"))


def test_every_golden_text_belongs_to_a_case(updating: bool) -> None:
    orphans = [path for path in GOLDEN.glob("*.cu") if path.stem not in CASES]
    for path in orphans if updating else ():
        path.unlink()
    assert updating or not orphans


QUICK = ("dense_odd", "dense_boxes", "centered")


@cache
def text_of(names: tuple[str, ...]) -> str:
    """The kernels of several cases in one text, which is compiled once."""
    return variants([cuda_kernels(kernel(name).loops)[0] for name in names])


@pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler")
@pytest.mark.parametrize("name", [n if n in QUICK else slow(n) for n in CASES])
def test_a_text_has_its_values_on_a_cpu(name: str) -> None:
    program, draw = kernel(name).loops, np.random.default_rng(2)
    kinds = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16, "float32": np.float32}
    names = QUICK if name in QUICK else (name,)
    for n in (1, 17, 70):
        arrays = {}
        for buffer in program.buffers:
            if buffer.kind.value == "input":
                shape = [getattr(extent, "value", n) for extent in buffer.shape]
                arrays[buffer.name] = draw.integers(-4, 5, shape).astype(kinds[buffer.dtype])
        results = run_text(program, arrays, {"n": n}, text_of(names), names.index(name))
        (found,) = results.values()
        np.testing.assert_array_equal(found, program.run(arrays, n=n))


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", CASES)
def test_a_text_compiles_without_spills(name: str, architecture: str) -> None:
    if name == "dense_boxes" and architecture == "sm_80":
        pytest.skip("compute capability 8.0 has no warpgroups")
    pytest.importorskip("cuda.bindings.nvrtc", reason="cuda-bindings are not installed")
    text, plan = cuda_kernels(kernel(name).loops)
    threads = {launch.kernel: launch.threads for launch in plan.launches}
    code, log = compile_cubin("compile", text, architecture, threads)
    assert code[:4] == b"\x7fELF"
    assert {usage.name for usage in kernel_usages(log)} == {*threads}


REFUSED = {
    "a unit": (
        """\
program warpgroups
size n in 0:99
input A: float32[n, 4]
output C: float32[n, 4]
for b in 0:n  @block
  for g in 0:1  @warpgroup
    for j in 0:4
      C[b, j] = A[b, j]
""",
        """\
source: cannot show "cuda"
  at       for j in 0:4
  because  what lanes of a warpgroup run has no text so far
  help     source("loops")""",
    ),
    "lanes that update one element": (
        """\
program counts
size n in 0:99
input A: int32[n]
inout C: int32[8]
output D: int32[n]
for i in 0:n  @lane
  C[index(A[i] % 8)] += 1
  D[i] = A[i]
""",
        """\
source: cannot show "cuda"
  at       for i in 0:n  @lane
  because  lanes that update one element have no text so far
  help     source("loops")""",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_has_no_text_is_refused_in_full_and_runs(what: str) -> None:
    text, expected = REFUSED[what]
    target = oc.target("cuda", machine="h200", device="emulated")
    made = oc.compile(oc.parse(text), target=target)
    with rejection(f"DescribeError: {expected}"):
        made.source("cuda")


def copied_by_the_block(result: oc.Tensor, inputs: list[oc.Tensor], source: str) -> oc.Kernel:
    """A product whose operand A no microkernel copies."""
    target = oc.target("cuda", machine="a100", device="emulated")
    first = str(oc.compile(result, inputs=inputs, target=target).schedule)
    lines = [one for one in first.splitlines() if not one.startswith(f"cover {source}_in ")]
    assert len(lines) < len(first.splitlines())
    schedule = oc.Schedule.parse("\n".join(lines))
    return oc.compile(result, inputs=inputs, target=target, schedule=schedule)


@pytest.mark.slow
@pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler")
def test_what_a_block_copies_without_a_microkernel_is_copied_by_its_first_warp() -> None:
    n = oc.dim("n", max=100)
    a, b = oc.placeholder((n, 17), "float32", "A"), oc.placeholder((17, 9), "float32", "B")
    made = copied_by_the_block(oc.ops.matmul(a, b, name="C"), [a, b], "A")
    assert "arrive(block_to_warp" in made.source("cuda")
    draw = np.random.default_rng(6)
    x, y = (draw.integers(-4, 5, shape).astype("float32") for shape in ((70, 17), (17, 9)))
    (found,) = run_text(made.loops, {"A": x, "B": y}, {"n": 70}).values()
    for values in (found, np.asarray(made(x, y))):
        np.testing.assert_array_equal(values, x @ y)


@pytest.mark.slow
def test_products_of_whole_terms_want_zeros_past_the_end_of_a_window() -> None:
    result, *inputs = dense(37, 133, "bfloat16")
    made = copied_by_the_block(result, inputs, "A")
    draw = np.random.default_rng(6)
    x, w = (draw.integers(-4, 5, s).astype(ml_dtypes.bfloat16) for s in ((70, 37), (37, 133)))
    exact = np.maximum(x.astype("float64") @ w.astype("float64"), 0).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(np.asarray(made(x, w)), exact)
    with pytest.raises(oc.DescribeError) as refused:
        made.source("cuda")
    assert "because  it reads A_in in whole terms, and no copy of rows writes zeros past its end" in str(refused.value)  # fmt: skip


BELOW = """\
program below
size n in 0:99
input A: int32[n]
output B: int32[16]
output C: int32[n]
for i in -3:13  @lane
  B[i + 3] = int32(i//2) * -3 - -5
for i in 0:n  @lane
  C[i] = -A[i]//2 + A[max(min(i, n - 9), 0)//3]
"""
"""Quotients of what may be below 0."""


def test_quotients_of_what_may_be_below_0_are_rounded_down() -> None:
    target = oc.target("cuda", machine="a100", device="emulated")
    made = oc.compile(oc.parse(BELOW), target=target)
    text = made.source("cuda")
    assert "floor_div(i, 2)" in text
    assert "max(min(i, n - 9), 0) / 3" in text
    if COMPILER is not None:
        a = np.arange(-20, 20, dtype="int32")
        found = run_text(made.loops, {"A": a}, {"n": 40})
        for name, expected in zip("BC", made(a), strict=True):
            np.testing.assert_array_equal(found[name], expected)


def test_products_of_spaced_elements_have_no_text() -> None:
    n, k, r = oc.dim("n", min=0, max=99), oc.reduce_axis(24, name="k"), oc.reduce_axis(2, name="r")
    a, w = oc.placeholder((24, 2 * n + 2), name="A"), oc.placeholder((24, 40), name="W")
    texts = list[str]()
    for step in (1, 2):

        def term(i: object, j: object, step: int = step) -> object:
            return oc.sum(a[k, step * i + r] * w[k, j], axis=[r, k])

        c = oc.compute((n, 40), term, name="C")
        schedule = oc.Schedule.parse(texts[0]) if texts else None
        target = oc.target("cuda", machine="h200", device="emulated")
        kernel = oc.compile(c, inputs=[a, w], target=target, schedule=schedule)
        texts.append(str(kernel.schedule))
    assert texts[0] == texts[1]
    with pytest.raises(oc.DescribeError) as refused:
        kernel.source("cuda")
    assert "because  A_in is not read element by element along its axes\n" in str(refused.value)
