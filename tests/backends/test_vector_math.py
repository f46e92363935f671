"""exp, tanh, erf and atan2 against float64, against 40 digits, and against themselves at other widths."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from functools import cache
from itertools import product
from typing import Any

import llvmlite.binding as llvm
import mpmath  # type: ignore[import-untyped]
import numpy as np
import numpy.typing as npt
import pytest
from scipy import special

import offcut as oc
from offcut.backends.llvm.vector_math import WRITERS, declarations, define, symbol
from offcut.core.function_table import FUNCTIONS
from offcut.errors import InternalError
from tests.facade import FLOATS, INTEGERS, numpy_dtype

Array = npt.NDArray[Any]

LANES = [1, 4, 8, 16]
DTYPES = ["float32", "float64"]
IN_FLOAT64: dict[str, Callable[..., Array]] = {
    "exp": np.exp,
    "tanh": np.tanh,
    "erf": special.erf,
    "atan2": np.arctan2,
}
IN_DIGITS = {"exp": mpmath.exp, "tanh": mpmath.tanh, "erf": mpmath.erf, "atan2": mpmath.atan2}

# The ways a back end builds: with the host's instructions, fewer of them, and for no feature at all.
BUILDS = [
    pytest.param("scalef", True, id="scalef", marks=pytest.mark.isa("avx512vl")),
    pytest.param("fma", True, id="fma", marks=pytest.mark.isa("fma")),
    pytest.param("", True, id="host"),
    pytest.param("", False, id="baseline"),
]


def target(host: bool) -> llvm.TargetMachine:
    """A new one each time: an engine takes its own away."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    x86 = llvm.get_process_triple().startswith("x86_64")
    cpu = llvm.get_host_cpu_name() if host else "x86-64" if x86 else ""
    features = llvm.get_host_cpu_features().flatten() if host else ""
    triple = llvm.Target.from_triple(llvm.get_process_triple())
    return triple.create_target_machine(cpu=cpu, features=features, opt=2, jit=True)


def known() -> list[str]:
    """What the host can build with."""
    features = llvm.get_host_cpu_features()
    needs = {"": True, "fma": features.get("fma"), "scalef": features.get("avx512vl")}
    return [uses for uses, there in needs.items() if there]


def has(uses: str) -> tuple[bool, bool]:
    """Whether a build has FMA, and whether it scales by powers of two."""
    return bool(uses), uses == "scalef"


def module(name: str, dtype: str, lanes: int, uses: str) -> str:
    """``map(in, other, out, count)``: the function over `count` elements, `lanes` at a time, of two arguments where it has them."""
    scalar = {"float32": "float", "float64": "double"}[dtype]
    kind = scalar if lanes == 1 else f"<{lanes} x {scalar}>"
    size = np.dtype(dtype).itemsize
    arguments = ", ".join(f"{kind} {word}" for word in ("%x", "%z")[: FUNCTIONS[name].arity])
    return (
        "\n".join(sorted(declarations(dtype, lanes, *has(uses))))
        + f"""
{define(name, dtype, lanes, *has(uses))}
define void @map(ptr noalias %in, ptr noalias %other, ptr noalias %out, i64 %count) {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %source = getelementptr {scalar}, ptr %in, i64 %i
  %x = load {kind}, ptr %source, align {size}
  %second = getelementptr {scalar}, ptr %other, i64 %i
  %z = load {kind}, ptr %second, align {size}
  %y = call {kind} @{symbol(name, dtype, lanes)}({arguments})
  %sink = getelementptr {scalar}, ptr %out, i64 %i
  store {kind} %y, ptr %sink, align {size}
  %next = add i64 %i, {lanes}
  %more = icmp slt i64 %next, %count
  br i1 %more, label %loop, label %done
done:
  ret void
}}
"""
    )


def compiled(name: str, dtype: str, lanes: int, uses: str, host: bool) -> llvm.ModuleRef:
    parsed = llvm.parse_assembly(module(name, dtype, lanes, uses))
    parsed.verify()
    machine = target(host)
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(2))
    builder.getModulePassManager().run(parsed, builder)
    return parsed


@cache
def mapped(name: str, dtype: str, lanes: int, uses: str, host: bool) -> Callable[[Array], Array]:
    engine = llvm.create_mcjit_compiler(compiled(name, dtype, lanes, uses, host), target(host))
    engine.finalize_object()
    entry = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, ctypes.c_int64)(
        engine.get_function_address("map")
    )

    def run(x: Array) -> Array:
        assert engine  # its code lives as long as this closure
        assert x.dtype == dtype
        assert x.size % max(LANES) == 0
        y, other = np.empty_like(x), arguments("atan2", x)[1]
        entry(x.ctypes.data, other.ctypes.data, y.ctypes.data, x.size)
        return y

    return run


def arguments(name: str, x: Array) -> tuple[Array, ...]:
    """What the function is given: of two arguments the second is another element of x."""
    return (x, np.roll(x, x.size // 3 + 1))[: FUNCTIONS[name].arity]


def are_numbers(name: str, x: Array) -> Array:
    """Where no argument is NaN."""
    found: Array = ~np.any([np.isnan(one) for one in arguments(name, x)], axis=0)
    return found


def bits(x: Array) -> Array:
    return x.view(f"u{x.itemsize}")


def samples(dtype: str, count: int) -> Array:
    """A third random bit patterns (every exponent, NaN included), the rest where results vary."""
    rng = np.random.default_rng(0)
    size = np.dtype(dtype).itemsize
    third = count // 48 * 16
    wild = rng.integers(0, 256, third * size, dtype=np.uint8).view(dtype)
    near = rng.uniform(-8, 8, third).astype(dtype)
    wide = rng.uniform(-110, 95, third).astype(dtype) * (1 if size == 4 else 7.5)
    return np.concatenate([wild, near, wide.astype(dtype)])


def specials(dtype: str) -> Array:
    info = np.finfo(np.dtype(dtype))
    sub, low, eps, top = info.smallest_subnormal, info.smallest_normal, info.eps, info.max
    values = [
        0.0,
        sub,
        3 * sub,
        low - sub,
        low,
        eps,
        1.0,
        4.0,
        6.0,
        88.75,
        104.5,
        746.5,
        top,
        np.inf,
    ]
    one_sign = np.array([*values, np.nan, info.dtype.type(709.9)], dtype)
    return np.concatenate([one_sign, -one_sign])


def ulps(got: Array, true: Array) -> Array:
    """|got - true| in units in the last place of `true`, float32; beyond the largest value, inf."""
    top = 2.0**128
    spacing = np.spacing(np.minimum(np.abs(true), np.finfo(np.float32).max).astype(np.float32))
    near = np.clip(true, -top, top) - np.clip(got.astype(np.float64), -top, top)
    error: Array = np.abs(near) / spacing
    return error


@pytest.mark.parametrize(("uses", "host"), BUILDS)
@pytest.mark.parametrize("name", WRITERS)
def test_float32_is_within_2_ulp_over_all_exponents(name: str, uses: str, host: bool) -> None:
    x = samples("float32", 300_000)
    number = are_numbers(name, x)

    with np.errstate(all="ignore"):
        got = mapped(name, "float32", 16, uses, host)(x)
        true = IN_FLOAT64[name](*(one.astype(np.float64) for one in arguments(name, x)))

        assert np.isnan(got[~number]).all()
        assert ulps(got[number], true[number]).max() <= 2.0


@pytest.mark.parametrize(("uses", "host"), BUILDS)
@pytest.mark.parametrize("name", WRITERS)
def test_float64_is_within_3_ulp_of_40_digits(name: str, uses: str, host: bool) -> None:
    x = samples("float64", 2_400)
    number = np.flatnonzero(np.all([np.abs(one) < 750 for one in arguments(name, x)], axis=0))

    got = mapped(name, "float64", 8, uses, host)(x)

    with mpmath.workdps(40):
        for k in number:
            true = IN_DIGITS[name](*(mpmath.mpf(float(one[k])) for one in arguments(name, x)))
            if got[k] != float(true):
                unit = np.spacing(min(abs(float(true)), np.finfo(np.float64).max))
                assert abs(mpmath.mpf(float(got[k])) - true) <= 3 * float(unit), x[k]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("uses", "host"), BUILDS)
@pytest.mark.parametrize("name", WRITERS)
def test_the_ends_of_the_range_are_exact(name: str, dtype: str, uses: str, host: bool) -> None:
    x = specials(dtype)

    got = mapped(name, dtype, 16, uses, host)(x)

    with np.errstate(all="ignore"):
        wide = (one.astype(np.float64) for one in arguments(name, x))
        true = IN_FLOAT64[name](*wide).astype(dtype)
    flat = ~np.isfinite(true) | (true == 0) | (np.abs(true) == 1)
    np.testing.assert_array_equal(got[flat], true[flat])
    assert (np.signbit(got) == np.signbit(true))[are_numbers(name, x)].all()
    if name == "tanh":
        tiny = np.abs(x) <= np.finfo(np.dtype(dtype)).smallest_normal
        np.testing.assert_array_equal(got[tiny], x[tiny])


@pytest.mark.every(2)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", WRITERS)
def test_a_lane_has_the_same_bits_whatever_the_number_of_lanes(name: str, dtype: str) -> None:
    x = np.concatenate([specials(dtype), samples(dtype, 100_000)])

    for uses in known():
        expected = bits(mapped(name, dtype, 1, uses, True)(x))
        for lanes in LANES[1:]:
            np.testing.assert_array_equal(bits(mapped(name, dtype, lanes, uses, True)(x)), expected)
    expected = bits(mapped(name, dtype, 1, "", True)(x))
    for lanes in LANES:
        np.testing.assert_array_equal(bits(mapped(name, dtype, lanes, "", False)(x)), expected)


@pytest.mark.every(7)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lanes", [*LANES, 3])
@pytest.mark.parametrize(("uses", "host"), BUILDS)
@pytest.mark.parametrize("name", WRITERS)
def test_the_code_calls_nothing(name: str, dtype: str, lanes: int, uses: str, host: bool) -> None:
    built = compiled(name, dtype, lanes, uses, host)

    declared = re.findall(r"^declare .*@([\w.]+)\(", module(name, dtype, lanes, uses), re.MULTILINE)
    allowed = ("llvm.fma.",) * has(uses)[0] + ("llvm.x86.avx512.mask.scalef.",) * has(uses)[1]
    assert all(called.startswith(allowed) for called in declared)
    assert not re.search(
        r"^\s*(call|bl|jmp\s+\w+@PLT)\b", target(host).emit_assembly(built), re.MULTILINE
    )


@pytest.mark.parametrize("name", WRITERS)
def test_without_any_pass_the_function_is_right_too(name: str) -> None:
    parsed = llvm.parse_assembly(module(name, "float32", 16, ""))
    engine = llvm.create_mcjit_compiler(parsed, target(False))
    engine.finalize_object()
    entry = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, ctypes.c_int64)(
        engine.get_function_address("map")
    )
    x = specials("float32")
    y, other = np.empty_like(x), arguments("atan2", x)[1]

    entry(x.ctypes.data, other.ctypes.data, y.ctypes.data, x.size)

    np.testing.assert_array_equal(bits(y), bits(mapped(name, "float32", 1, "", True)(x)))


def test_an_unknown_function_or_type_is_refused() -> None:
    with pytest.raises(InternalError, match="no function 'sin'"):
        define("sin", "float32", 8, False)
    with pytest.raises(InternalError, match="no element type 'float16'"):
        define("exp", "float16", 8, False)


# Floats as integers: toward zero, saturating, NaN as 0, in every lane at once.


def around_the_ends() -> list[float]:
    """Values about the ends of every integer type, and what is no number."""
    found = [0.0, -0.0, 0.5, -0.5, 0.99, -0.99, 3.7, -3.7, 1e30, -1e30, np.inf, -np.inf, np.nan]
    for bits, away in product(
        (7, 8, 15, 16, 31, 32, 63, 64), (-1.5, -1, -0.75, -0.5, 0, 0.5, 0.75, 1, 1.5)
    ):
        found += [2.0**bits + away, -(2.0**bits) + away]
    for end in (2.0**31, -(2.0**31), 2.0**63, -(2.0**63), 2.0**64):
        found += [float(np.nextafter(end, 0)), float(np.nextafter(np.float32(end), np.float32(0)))]
    return found


def truncated(value: float, dtype: str) -> int:
    info = np.iinfo(dtype)
    if value != value:
        return 0
    if value in (np.inf, -np.inf):
        return int(info.max if value > 0 else info.min)
    return max(int(info.min), min(int(info.max), int(value)))


@pytest.mark.every(4)
@pytest.mark.parametrize(("old", "new"), [*product(FLOATS, INTEGERS)])
def test_a_float_is_truncated_and_saturates(old: str, new: str) -> None:
    n = oc.dim("n")
    X = oc.placeholder((n,), old, name="X")
    kernel = oc.compile(oc.ops.cast(X, new), inputs=[X])
    with np.errstate(over="ignore"):
        x = np.array(around_the_ends()).astype(numpy_dtype(old))
    for some in (x, x[:17], x[:1]):
        assert kernel(some).tolist() == [truncated(float(v), new) for v in some]


def test_lanes_are_not_taken_one_by_one() -> None:
    X = oc.placeholder((oc.dim("n"),), name="X")
    kernel = oc.compile(oc.ops.cast(X, "int32"), inputs=[X])
    assert ".sat." not in kernel.source("llvm")
