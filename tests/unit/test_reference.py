"""What results must be: near numpy's in float64, and no nearer to a wrong result than to a right one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compiled import Array

import offcut as oc
from offcut import Outcome
from offcut.core.interpret.interpreter import StepLimitError, run
from offcut.ir import Kind
from offcut.tuning.measuring import jobs, reference
from offcut.tuning.measuring.reference import Draw, drawn, with_constants
from tests.agree import agree, exact_matmul
from tests.facade import Problem, requested

SIZES = ({"n": 5}, {"n": 37})
N = oc.dim("n", min=1, max=512)


def problem(result: Any, *inputs: Any, sizes: Any = SIZES) -> Problem:
    target = oc.target("cpu")
    asked = requested(result, inputs or None, None, "tune")
    weighted = tuple((at, 1.0) for at in sizes)
    return Problem(asked, target.options("tune", threads=1), target, weighted)


def dense(dtype: str, depth: int = 40, sums: str = "") -> Any:
    a, w = oc.placeholder((N, depth), dtype, name="A"), oc.placeholder((depth, 24), dtype, name="W")
    k = oc.reduce_axis(depth, name="k")

    def value(i: Any, j: Any) -> Any:
        factors = [f.astype(sums) if sums else f for f in (a[i, k], w[k, j])]
        return oc.sum(factors[0] * factors[1], axis=k)

    return oc.compute((N, 24), value, name="C")


def rows(dtype: str = "float32") -> Any:
    return oc.placeholder((N, 33), dtype, name="X")


def attention() -> Any:
    q, k, v = (oc.placeholder((1, 2, N, 16), "float32", name=name) for name in "QKV")
    return oc.ops.attention(q, k, v, name="Y")


def layernorm() -> Any:
    gain, bias = (oc.placeholder((33,), "float32", name=name) for name in ("gain", "bias"))
    return oc.ops.layernorm(rows(), gain, bias, 1e-5, name="Y")


def looked_up() -> Any:
    at, table = oc.placeholder((N,), "int32", name="at"), oc.placeholder((9, 8), name="table")
    return oc.compute((N, 8), lambda i, j: table[oc.index(at[i]), j] * 2.0, name="Y")


def rounded() -> Any:
    x = rows()
    return oc.compute((N, 33), lambda i, j: (x[i, j] * 90.0).astype("int8"), name="Y")


def of_roots() -> Any:
    x = rows()
    return oc.compute((N, 33), lambda i, j: oc.log(x[i, j]) + oc.sqrt(x[i, j]), name="Y")


def narrow() -> Any:
    wide = dense("bfloat16", sums="float32")
    return oc.compute((N, 24), lambda i, j: wide[i, j].astype("bfloat16"), name="Y")


PROGRAM = """
program smooth
size n in 3:513
inout A: float32[n, 9]
for t in 0:4
  for i in 1:n - 1
    for j in 0:9
      A[i, j] = (A[i - 1, j] + A[i, j] + A[i + 1, j]) * 0.25
"""
PROGRAMS: dict[str, Callable[[], Any]] = {
    "dense float32": lambda: dense("float32"),
    "dense float64": lambda: dense("float64"),
    "dense int8": lambda: dense("int8", sums="int32"),
    "dense bfloat16": lambda: dense("bfloat16", sums="float32"),
    "dense to bfloat16": narrow,
    "softmax": lambda: oc.ops.softmax(rows(), name="Y"),
    "layernorm": layernorm,
    "attention": attention,
    "gelu": lambda: oc.ops.gelu(rows(), name="Y"),
    "looked up": looked_up,
    "rounded": rounded,
    "roots": of_roots,
    "in place": lambda: oc.parse(PROGRAM),
}


@pytest.mark.every(4)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_right_kernel_is_right_and_one_of_which_an_element_is_off_is_wrong(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, plain = problem(PROGRAMS[name]()), jobs.results_of
    draw = reference.write_reference((asked, tmp_path), lambda done: None)
    assert isinstance(draw, Draw)
    job = (asked, None, tmp_path, draw)
    assert jobs.check_candidate(job, lambda at: None) == (Outcome.OK, "", {})

    def off(kernel: Any, called: Any, out: tuple[Array, ...]) -> None:
        plain(kernel, called, out)
        first = out[0].flat[0]
        out[0].flat[0] = first + 2 if out[0].dtype.kind in "iu" else first * 1.1 + 0.01

    monkeypatch.setattr(jobs, "results_of", off)
    outcome, because, at = jobs.check_candidate(job, lambda at: None)
    assert (outcome, at) == (Outcome.WRONG, {"n": 5})
    assert "1 of " in because


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_value_is_the_product_and_a_lost_term_is_beyond_what_is_allowed(dtype: str) -> None:
    asked = problem(dense(dtype))
    draw, found = reference.reference_results(asked)

    for sizes, (result,) in zip(SIZES, found, strict=True):
        arrays = drawn(asked.request.program, sizes, 0, draw)
        a, w = arrays["A"], arrays["W"]
        agree(result.value, exact_matmul(a, w))
        assert not result.mismatch(a @ w)
        assert result.mismatch(a[:, 1:] @ w[1:])


def test_where_the_interpreter_takes_too_long_loops_are_compiled_and_smaller_sizes_are_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wide = reference.promote_to_float64(problem(dense("float32")).request.program)
    arrays = [drawn(wide, {"n": 300}, seed, Draw.SIGNED) for seed in (0, 1)]
    with monkeypatch.context() as quick:
        quick.setattr(reference, "_QUICK", 10)
        compiled = reference.results(wide, arrays, {"n": 300})
    for given, one in zip(arrays, compiled, strict=True):
        agree(one["C"], exact_matmul(given["A"], given["W"]))
    asked: list[int] = []

    def slow(program: Any, arrays: Any, sizes: Mapping[str, int], most: float) -> Any:
        asked.append(sizes["n"])
        if sizes["n"] > 1:
            raise StepLimitError
        return run(program, arrays, sizes, most=most)

    monkeypatch.setattr(reference, "run", slow)
    reference._compiled.cache_clear()
    reference.results(wide, arrays[:1], {"n": 300})
    assert asked == [300, 5, 1]


def test_a_sum_that_an_instance_holds_for_itself_runs_together_in_the_interpreter() -> None:
    x = oc.placeholder((N, 6, 6, 64), "bfloat16", name="X")
    w = oc.placeholder((3, 3, 64, 64), "bfloat16", name="W")
    y = oc.ops.conv2d(x, w, None, 1, 1, layout="NHWC", name="Y")
    wide = reference.promote_to_float64(requested(y, [x, w], {}, "tune").program)
    arrays = drawn(wide, {"n": 2}, 0, Draw.FIRST)

    found = run(wide, arrays, {"n": 2}, most=reference._QUICK)

    assert all(one.kind is not Kind.PRIVATE for one in wide.buffers)
    assert np.isfinite(found["Y"]).all()


def test_constants_that_are_zero_are_drawn_and_others_stay() -> None:
    a, w = oc.placeholder((N, 4), name="A"), oc.placeholder((4, 3), name="W")
    k = oc.reduce_axis(4, name="k")
    result = oc.compute((N, 3), lambda i, j: oc.sum(a[i, k] * w[k, j], axis=k), name="C")
    given = {"W": np.full((4, 3), 2.0, np.float32)}
    zeros = requested(result, [a, w], {"W": np.zeros((4, 3), np.float32)}, "tune")
    twos = requested(result, [a, w], given, "tune")

    assert with_constants(zeros, 0, Draw.SIGNED).arrays["W"].all()
    np.testing.assert_array_equal(with_constants(twos, 0, Draw.SIGNED).arrays["W"], given["W"])


def test_operands_depend_on_the_seed_and_nothing_else() -> None:
    program = problem(dense("float32")).request.program

    def draws(seed: int) -> Mapping[str, Array]:
        return drawn(program, {"n": 5}, seed, Draw.SIGNED)

    for name in ("A", "W"):
        np.testing.assert_array_equal(draws(3)[name], draws(3)[name])
        assert (draws(3)[name] != draws(4)[name]).any()
    assert not np.array_equal(draws(3)["A"][0, :24], draws(3)["W"][0])


@pytest.mark.parametrize(("name", "terms"), [("dense float32", 40), ("in place", 4), ("gelu", 1)])
def test_terms_are_the_trips_that_one_element_takes(name: str, terms: int) -> None:
    program = problem(PROGRAMS[name]()).request.program

    assert reference.max_terms_per_element(program, {"n": 37}) == terms


def test_values_are_positive_where_others_mean_nothing() -> None:
    asked = problem(of_roots())
    draw, ((result,), _) = reference.reference_results(replace(asked, seed=1))

    assert draw is Draw.POSITIVE
    assert np.isfinite(result.value).all()
