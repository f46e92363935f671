"""sin, cos, log, log1p and pow of float32 against float64, and against themselves at other widths."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from functools import cache
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import numpy.typing as npt
import pytest
from test_vector_math import bits, samples, specials, target, ulps

from offcut.backends.llvm.math_via_float64 import WRITERS, declarations, define
from offcut.backends.llvm.vector_math import symbol
from offcut.errors import InternalError

Array = npt.NDArray[Any]

LANES = [1, 4, 8, 16]
IN_FLOAT64: dict[str, Callable[..., Array]] = {
    "sin": np.sin,
    "cos": np.cos,
    "log": np.log,
    "log1p": np.log1p,
    "pow": np.power,
}
BUILDS = [
    pytest.param(True, True, id="fma", marks=pytest.mark.isa("fma")),
    pytest.param(False, True, id="host"),
    pytest.param(False, False, id="baseline"),
]


def module(name: str, lanes: int, fma: bool) -> str:
    """``map(x, y, out, count)``: the function over `count` elements, `lanes` at a time."""
    kind = "float" if lanes == 1 else f"<{lanes} x float>"
    given = f"{kind} %x" + (f", {kind} %y" if name == "pow" else "")
    return (
        "\n".join(sorted(declarations(name, lanes, fma)))
        + f"""
{define(name, lanes, fma)}
define void @map(ptr noalias %a, ptr noalias %b, ptr noalias %out, i64 %count) {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %first = getelementptr float, ptr %a, i64 %i
  %second = getelementptr float, ptr %b, i64 %i
  %x = load {kind}, ptr %first, align 4
  %y = load {kind}, ptr %second, align 4
  %z = call {kind} @{symbol(name, "float32", lanes)}({given})
  %sink = getelementptr float, ptr %out, i64 %i
  store {kind} %z, ptr %sink, align 4
  %next = add i64 %i, {lanes}
  %more = icmp slt i64 %next, %count
  br i1 %more, label %loop, label %done
done:
  ret void
}}
"""
    )


@cache
def mapped(name: str, lanes: int, fma: bool, host: bool) -> Callable[[Array, Array], Array]:
    parsed = llvm.parse_assembly(module(name, lanes, fma))
    parsed.verify()
    machine = target(host)
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(2))
    builder.getModulePassManager().run(parsed, builder)
    engine = llvm.create_mcjit_compiler(parsed, target(host))
    engine.finalize_object()
    entry = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, ctypes.c_int64)(
        engine.get_function_address("map")
    )

    def run(x: Array, y: Array) -> Array:
        assert engine  # its code lives as long as this closure
        z = np.empty_like(x)
        entry(x.ctypes.data, y.ctypes.data, z.ctypes.data, x.size)
        return z

    return run


def arguments(count: int) -> tuple[Array, Array]:
    """Special values beside one another, and drawn ones of every exponent and of the sizes that models have."""
    ends = np.concatenate(
        [specials("float32"), np.array([1, -1, 2, -2, 3, 2.5, 2**20, 1e30], "f4")]
    )
    x, y = (part.ravel() for part in np.meshgrid(ends, ends))
    rng = np.random.default_rng(1)
    wide = samples("float32", count)
    far = rng.uniform(-1e5, 1e5, count).astype("f4")
    other = rng.uniform(-40, 40, wide.size).astype("f4")
    other[::2] = other[::2].round()
    x = np.concatenate([x, wide, far])
    y = np.concatenate([y, other, rng.permutation(samples("float32", 2 * count))[:count]])
    size = x.size // 16 * 16
    return x[:size].copy(), y[:size].copy()


@pytest.mark.every(4)
@pytest.mark.parametrize(("fma", "host"), BUILDS)
@pytest.mark.parametrize("name", WRITERS)
def test_it_is_within_1_ulp_over_all_exponents(name: str, fma: bool, host: bool) -> None:
    x, y = arguments(100_000)
    got = mapped(name, 16 if host else 4, fma, host)(x, y)
    with np.errstate(all="ignore"):
        wide = [x.astype("f8"), y.astype("f8")][: 2 if name == "pow" else 1]
        true = IN_FLOAT64[name](*wide)
        told = ~np.isnan(true)
        np.testing.assert_array_equal(np.isnan(got), ~told)
        assert ulps(got[told], true[told]).max() <= 1.0
        np.testing.assert_array_equal(np.signbit(got)[told], np.signbit(true)[told])
        infinite = np.isinf(true) & told
        np.testing.assert_array_equal(got[infinite], true[infinite])


@pytest.mark.parametrize("name", WRITERS)
def test_a_lane_has_the_same_bits_whatever_the_number_of_lanes(name: str) -> None:
    x, y = arguments(30_000)
    told = ~np.isnan(mapped(name, 1, False, True)(x, y))
    for fma in {False, bool(llvm.get_host_cpu_features().get("fma"))}:
        expected = bits(mapped(name, 1, fma, True)(x, y))[told]
        for lanes in LANES[1:]:
            found = bits(mapped(name, lanes, fma, True)(x, y))[told]
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("lanes", [1, 3, 16])
@pytest.mark.parametrize("name", WRITERS)
def test_it_calls_the_c_library_for_far_arguments_of_sin_and_cos_alone(
    name: str, lanes: int
) -> None:
    text = module(name, lanes, True)
    declared = re.findall(r"^declare .*@([\w.]+)\(", text, re.MULTILINE)
    allowed = ("llvm.fma.", f"llvm.{name}.", "llvm.vector.reduce.or.")
    assert all(
        called.startswith(allowed if name in ("sin", "cos") else allowed[:1]) for called in declared
    )


def test_an_unknown_function_is_refused() -> None:
    with pytest.raises(InternalError, match="no function 'tan'"):
        define("tan", 8, False)
