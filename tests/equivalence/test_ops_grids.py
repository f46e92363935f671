"""Every element-wise function of `oc.ops`, and every operator of expressions, on all pairs of 8 bits and on the ends of every
other type: compiled and interpreted, against numpy, and against functions of many digits.
"""

from __future__ import annotations

import inspect
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import mpmath
import numpy as np
import pytest
from compiled import Array
from conftest import slow
from operators import specials, wide, within

import offcut as oc
from offcut import Tensor, ops
from offcut.core.dtypes import HALVES
from offcut.describe import functions
from offcut.describe.value import Value
from offcut.ops import elementwise
from tests.facade import DTYPES, FLOATS, INTEGERS, NUMBERS, UNSIGNED, numpy_dtype

TARGETS = ("cpu", "interpret")
SIGNED = tuple(dtype for dtype in INTEGERS if dtype not in UNSIGNED)


@dataclass(frozen=True)
class Rule:
    """A function of one element of each operand.

    made      of tensors, or of elements
    wanted    of arrays; of 16-bit floats, of float32 where it is exact
    ulps      how far a float may be from it; 0: equal bits, but for the kind of NaN
    result    the element type of results, where that is not the operands'
    terms     what of float64 arrays is rounded at each step, where that is more than the result
    no_sign   zeros may have either sign
    """

    made: Callable[..., Any]
    wanted: Callable[..., Any]
    dtypes: tuple[str, ...]
    operands: int = 1
    ulps: float = 0.0
    result: str = ""
    terms: Callable[..., Any] | None = None
    no_sign: bool = False


def exactly(function: Callable[..., Any]) -> Callable[..., Array]:
    """A function of 60 digits, element by element, rounded to float64; NaN stays NaN, but of a power."""

    def of(*arrays: Array) -> Array:
        with mpmath.workdps(60):
            rows = zip(*(array.tolist() for array in arrays), strict=True)
            return np.array([function(*row) for row in rows], np.float64)

    return of


def of_number(name: str) -> Callable[..., Array]:
    """A function of one number by its name in mpmath; NaN outside of its domain, and its limits at both ends."""
    ends = {
        "exp": (0.0, np.inf),
        "tanh": (-1.0, 1.0),
        "erf": (-1.0, 1.0),
        "log": (np.nan, np.inf),
        "log1p": (np.nan, np.inf),
    }

    def one(x: float) -> float:
        if np.isnan(x):
            return np.nan
        if np.isinf(x):
            return ends.get(name, (np.nan, np.nan))[int(x > 0)]
        pole = {"log": 0.0, "log1p": -1.0}.get(name)
        if pole is not None and x <= pole:
            return -np.inf if x == pole else np.nan
        if x == 0 and name in ("sin", "tanh", "erf", "log1p"):
            return x
        if name in ("tanh", "erf") and abs(x) > 100:
            return float(np.sign(x))
        if name == "exp" and abs(x) > 1e4:
            return np.inf if x > 0 else 0.0
        with mpmath.workdps(400 if name in ("sin", "cos") else 60):
            return float(getattr(mpmath, name)(mpmath.mpf(x)))

    return exactly(one)


def angled(y: float, x: float) -> float:
    """The angle of the point (x, y), with IEEE's ends."""
    if not (np.isfinite([x, y]).all() and x and y):
        return math.atan2(y, x)
    return float(mpmath.atan2(mpmath.mpf(y), mpmath.mpf(x)))


def raised(x: float, y: float) -> float:
    """The power of two numbers, with IEEE's ends."""
    with np.errstate(all="ignore"):
        plain = float(np.power(np.array([x, x]), np.array([y, y]))[0])  # of scalars .5 is a root
    if not (np.isfinite([x, y, plain]).all() and x and y):
        return plain
    return float(mpmath.power(mpmath.mpf(x), mpmath.mpf(y)).real)


def shifted(x: Array, y: Array, left: bool) -> Array:
    """As documented: by the width or more, or by less than 0, no bit is left but the sign's."""
    width = x.dtype.itemsize * 8
    inside = (y >= 0) & (y < width)
    by = np.where(inside, y, 0).astype(x.dtype)
    if left:
        return np.where(inside, x << by, 0).astype(x.dtype)
    return np.where(inside, x >> by, np.where(x < 0, -1, 0).astype(x.dtype)).astype(x.dtype)


def converted(x: Array, dtype: str) -> Array:
    """As documented: toward zero, to the nearest end, NaN to 0; integers wrap; bool of what is not 0."""
    kind = numpy_dtype(dtype)
    if dtype == "bool":
        return x != 0
    if dtype not in INTEGERS or x.dtype.name in (*INTEGERS, "bool"):
        if x.dtype.name in ("int64", "uint64") and dtype in HALVES:  # rounded once
            return np.array([rounded_once(int(one), dtype) for one in x], kind)
        return x.astype(kind)
    ends, found = np.iinfo(kind), []
    for one in x.astype(np.float64).tolist():
        if np.isnan(one):
            found.append(0)
        else:
            found.append(int(min(max(one, ends.min), ends.max)) if np.isfinite(one) else (ends.max if one > 0 else ends.min))  # fmt: skip
    return np.array([min(max(one, ends.min), ends.max) for one in found], kind)


def rounded_once(value: int, dtype: str) -> Any:
    """The 16-bit float nearest to an integer, the even one of two."""
    digits = {"float16": 11, "bfloat16": 8}[dtype]
    size, sign = abs(value), -1 if value < 0 else 1
    drop = max(size.bit_length() - digits, 0)
    kept, rest = size >> drop, size & ((1 << drop) - 1)
    half = (1 << drop) >> 1
    kept += drop > 0 and (rest > half or (rest == half and kept & 1 == 1))
    return np.float64(sign * (kept << drop)).astype(numpy_dtype(dtype))


ACCURATE = {"exp": 2, "log": 1, "log1p": 1, "sin": 1, "cos": 1, "tanh": 2, "erf": 2}
"""The functions that round otherwise than to the nearest: how many units docs/numerics.md allows."""
COMPARED = {"equal": "==", "not_equal": "!=", "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">="}  # fmt: skip
PYTHON = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def quotient(x: Array, y: Array) -> Array:
    """Floored, of integers of any size; 0 by 0, and the least by -1 wraps."""
    whole = np.array([a // b if b else 0 for a, b in zip(x.tolist(), y.tolist(), strict=True)], object)  # fmt: skip
    return wrapped(whole, x.dtype)


def modulus(x: Array, y: Array) -> Array:
    """numpy's of floats; of integers 0 by 0."""
    if x.dtype.kind == "f":
        return np.remainder(x, y)
    whole = np.array([a % b if b else 0 for a, b in zip(x.tolist(), y.tolist(), strict=True)], object)  # fmt: skip
    return wrapped(whole, x.dtype)


def wrapped(whole: Array, dtype: Any) -> Array:
    bits = dtype.itemsize * 8
    return (whole & ((1 << bits) - 1)).astype(f"uint{bits}").view(dtype)


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _functions() -> Iterator[tuple[str, Rule]]:
    both, one = {"dtypes": NUMBERS, "operands": 2}, {"dtypes": NUMBERS}
    yield "add", Rule(ops.add, np.add, **both)
    yield "subtract", Rule(ops.subtract, np.subtract, **both)
    yield "multiply", Rule(ops.multiply, np.multiply, **both)
    yield "maximum", Rule(ops.maximum, np.maximum, **both, no_sign=True)
    yield "minimum", Rule(ops.minimum, np.minimum, **both, no_sign=True)
    yield "remainder", Rule(ops.remainder, modulus, **both)
    yield "divide", Rule(ops.divide, np.divide, FLOATS, 2)
    yield "floor_divide", Rule(ops.floor_divide, quotient, INTEGERS, 2)
    yield "bitwise_and", Rule(ops.bitwise_and, np.bitwise_and, INTEGERS, 2)
    yield "bitwise_or", Rule(ops.bitwise_or, np.bitwise_or, INTEGERS, 2)
    yield "bitwise_xor", Rule(ops.bitwise_xor, np.bitwise_xor, INTEGERS, 2)
    yield "bitwise_not", Rule(ops.bitwise_not, np.invert, INTEGERS)
    yield "shift_left", Rule(ops.shift_left, partial(shifted, left=True), INTEGERS, 2)
    yield "shift_right", Rule(ops.shift_right, partial(shifted, left=False), INTEGERS, 2)
    for name in COMPARED:
        dtypes = DTYPES if name in ("equal", "not_equal") else NUMBERS
        yield name, Rule(getattr(ops, name), getattr(np, name), dtypes, 2, result="bool")
    for name in ("logical_and", "logical_or", "logical_xor"):
        yield name, Rule(getattr(ops, name), getattr(np, name), DTYPES, 2, result="bool")
    yield "logical_not", Rule(ops.logical_not, np.logical_not, DTYPES, result="bool")
    yield "where", Rule(lambda x, y: ops.where(ops.equal(x, x), x, y), lambda x, y: np.where(x == x, x, y), DTYPES, 2)  # fmt: skip
    yield "negative", Rule(ops.negative, np.negative, **one)
    yield "absolute", Rule(ops.absolute, np.abs, **one)
    yield "square", Rule(ops.square, np.square, **one)
    yield "sign", Rule(ops.sign, lambda x: np.where(x > 0, x.dtype.type(1), np.where(x < 0, x - x - x.dtype.type(1) if x.dtype.kind == "i" else x.dtype.type(-1) if x.dtype.kind != "u" else x, x)), **one)  # fmt: skip
    yield "clip", Rule(lambda x: ops.clip(x, 2, 50), lambda x: np.minimum(np.maximum(x, x.dtype.type(2)), x.dtype.type(50)), **one)  # fmt: skip
    yield "clip 3 to 2", Rule(lambda x: ops.clip(x, 3, 2), lambda x: np.minimum(np.maximum(x, x.dtype.type(3)), x.dtype.type(2)), **one)  # fmt: skip
    yield "reciprocal", Rule(ops.reciprocal, lambda x: 1 / x, FLOATS)
    yield "sqrt", Rule(ops.sqrt, np.sqrt, FLOATS)
    yield "rsqrt", Rule(ops.rsqrt, lambda x: 1 / np.sqrt(x), FLOATS)
    yield "floor", Rule(ops.floor, np.floor, FLOATS)
    yield "ceil", Rule(ops.ceil, np.ceil, FLOATS)
    yield "round", Rule(ops.round, np.rint, FLOATS)
    for name, ulps in ACCURATE.items():
        yield name, Rule(getattr(ops, name), of_number(name), FLOATS, ulps=ulps)
    yield "power", Rule(ops.power, exactly(raised), FLOATS, 2, ulps=2)
    yield "atan2", Rule(ops.atan2, exactly(angled), FLOATS, 2, ulps=2)
    for number in (0, 1, 2, 3, 4):
        yield f"power {number}", Rule(lambda x, number=number: ops.power(x, number), lambda x, number=number: x ** x.dtype.type(number), NUMBERS, ulps=2)  # fmt: skip
    for number in (-4, -3, -2, -1, 0.5):
        yield f"power {number}", Rule(lambda x, number=number: ops.power(x, number), lambda x, number=number: np.sqrt(x) if number == 0.5 else (1 / x) ** -number, FLOATS, ulps=2)  # fmt: skip
    yield "power 64", Rule(lambda x: ops.power(x, 64), lambda x: wrapped(x.astype(object) ** 64, x.dtype), INTEGERS)  # fmt: skip
    for to in DTYPES:
        yield f"cast {to}", Rule(lambda x, to=to: ops.cast(x, to), lambda x, to=to: converted(x, to), DTYPES, result=to)  # fmt: skip
    yield "relu", Rule(ops.relu, lambda x: np.maximum(x, x.dtype.type(0)), NUMBERS, no_sign=True)
    yield "relu6", Rule(ops.relu6, lambda x: np.minimum(np.maximum(x, x.dtype.type(0)), x.dtype.type(6)), NUMBERS, no_sign=True)  # fmt: skip
    yield "leaky_relu", Rule(ops.leaky_relu, lambda x: np.where(x > 0, x, x * x.dtype.type(0.01)), FLOATS)  # fmt: skip
    yield "hardsigmoid", Rule(ops.hardsigmoid, lambda x: np.clip(x + 3, 0, 6) / 6, FLOATS, ulps=2, terms=np.ones_like)  # fmt: skip
    yield "hardswish", Rule(ops.hardswish, lambda x: x * (np.clip(x + 3, 0, 6) / 6), FLOATS, ulps=3, terms=np.abs)  # fmt: skip
    yield "sigmoid", Rule(ops.sigmoid, sigmoid, FLOATS, ulps=4)
    yield "silu", Rule(ops.silu, lambda x: x / (1 + np.exp(-x)), FLOATS, ulps=4)
    yield "gelu", Rule(ops.gelu, lambda x: 0.5 * x * (1 + of_number("erf")(x * np.sqrt(0.5))), FLOATS, ulps=4, terms=np.abs)  # fmt: skip
    yield "gelu_tanh", Rule(ops.gelu_tanh, lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x * x * x))), FLOATS, ulps=8, terms=np.abs)  # fmt: skip
    yield "softplus", Rule(ops.softplus, lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))), FLOATS, ulps=2)  # fmt: skip
    yield "elu", Rule(ops.elu, lambda x: np.where(x > 0, x, np.expm1(np.where(x > 0, 0, x))), FLOATS, ulps=6)  # fmt: skip
    narrow = ("float32", *HALVES)
    for to, (low, high) in {"int8": (-128, 127), "uint8": (0, 255)}.items():
        yield f"quantize {to}", Rule(lambda x, to=to: ops.quantize(x, 0.25, 3, to), lambda x, low=low, high=high: np.where(np.isnan(x), low, np.clip(np.rint(np.clip(x / 0.25, -1e6, 1e6)) + 3, low, high)), narrow, result=to)  # fmt: skip
        yield f"requantize {to}", Rule(lambda x, to=to: ops.requantize(x, 7, to), lambda x, low=low, high=high: np.clip(x >> 7, low, high), ("int32",), result=to)  # fmt: skip
    yield from _with_numbers()
    yield "dequantize", Rule(lambda x: ops.dequantize(x, 0.25, 3), lambda x: (x.astype(np.int32) - np.int32(3)).astype(np.float32) * np.float32(0.25), ("int8", "uint8", "int32"), result="float32")  # fmt: skip


def _with_numbers() -> Iterator[tuple[str, Rule]]:
    """Functions of which an operand or a parameter is a number, on either side."""
    of_type = lambda number: lambda x: x.dtype.type(number)  # noqa: E731
    three = of_type(3)
    yield "add 3", Rule(lambda x: ops.add(3, x), lambda x: three(x) + x, NUMBERS)
    yield "subtract of 3", Rule(lambda x: ops.subtract(3, x), lambda x: three(x) - x, NUMBERS)
    yield "subtract 3", Rule(lambda x: ops.subtract(x, 3), lambda x: x - three(x), NUMBERS)
    yield "divide of 1", Rule(lambda x: ops.divide(1, x), lambda x: 1 / x, FLOATS)
    for number in (3, -2.5):
        yield f"remainder {number}", Rule(lambda x, number=number: ops.remainder(x, number), lambda x, number=number: np.remainder(x, x.dtype.type(number)), FLOATS)  # fmt: skip
    for number, dtypes in {1: INTEGERS, 49: INTEGERS, -3: SIGNED}.items():
        yield f"floor_divide {number}", Rule(lambda x, number=number: ops.floor_divide(x, number), lambda x, number=number: quotient(x, np.full_like(x, number)), dtypes)  # fmt: skip
    yield "shift_left of 1", Rule(lambda x: ops.shift_left(1, x), lambda x: shifted(np.ones_like(x), x, True), INTEGERS)  # fmt: skip
    yield "clip below", Rule(lambda x: ops.clip(x, low=3), lambda x: np.maximum(x, three(x)), NUMBERS)  # fmt: skip
    yield "clip above", Rule(lambda x: ops.clip(x, high=3), lambda x: np.minimum(x, three(x)), NUMBERS)  # fmt: skip
    yield "leaky_relu 2", Rule(lambda x: ops.leaky_relu(x, 2), lambda x: np.where(x > 0, x, x * x.dtype.type(2)), FLOATS)  # fmt: skip
    yield "elu 0.5", Rule(lambda x: ops.elu(x, 0.5), lambda x: np.where(x > 0, x, np.expm1(np.where(x > 0, 0, x)) / 2), FLOATS, ulps=6)  # fmt: skip
    yield "power 2.5", Rule(lambda x: ops.power(x, 2.5), exactly(lambda x: raised(x, 2.5)), FLOATS, ulps=2)  # fmt: skip
    yield "power of 1.5", Rule(lambda x: ops.power(1.5, x), exactly(lambda x: raised(1.5, x)), FLOATS, ulps=2)  # fmt: skip


FUNCTIONS = dict(_functions())


def literals(dtype: str) -> tuple[int, ...]:
    """Divisors of an integer type: any positive number that it holds."""
    return (1, 2, 3, 7, 64, 100, int(np.iinfo(numpy_dtype(dtype)).max))


def _of_elements() -> Iterator[tuple[str, Rule]]:
    both = {"dtypes": NUMBERS, "operands": 2}
    yield "__add__", Rule(operator.add, np.add, **both)
    yield "__sub__", Rule(operator.sub, np.subtract, **both)
    yield "__mul__", Rule(operator.mul, np.multiply, **both)
    yield "__truediv__", Rule(operator.truediv, np.divide, FLOATS, 2)
    yield "__mod__", Rule(operator.mod, modulus, FLOATS, 2)
    yield "__radd__", Rule(lambda x: 3 + x, lambda x: x.dtype.type(3) + x, NUMBERS)
    yield "__rsub__", Rule(lambda x: 3 - x, lambda x: x.dtype.type(3) - x, NUMBERS)
    yield "__rmul__", Rule(lambda x: 3 * x, lambda x: x.dtype.type(3) * x, NUMBERS)
    yield "__rtruediv__", Rule(lambda x: 3 / x, lambda x: x.dtype.type(3) / x, FLOATS)
    yield "__rmod__", Rule(lambda x: 3 % x, lambda x: np.remainder(x.dtype.type(3), x), FLOATS)
    above = lambda y: oc.maximum(y, 1)  # noqa: E731
    yield "__floordiv__", Rule(lambda x, y: x // above(y), lambda x, y: quotient(x, np.maximum(y, 1)), INTEGERS, 2)  # fmt: skip
    yield "__mod__ of integers", Rule(lambda x, y: x % above(y), lambda x, y: modulus(x, np.maximum(y, 1)), INTEGERS, 2)  # fmt: skip
    yield "__rfloordiv__", Rule(lambda x: 100 // above(x), lambda x: quotient(np.full_like(x, 100), np.maximum(x, 1)), INTEGERS)  # fmt: skip
    yield "__rmod__ of integers", Rule(lambda x: 100 % above(x), lambda x: modulus(np.full_like(x, 100), np.maximum(x, 1)), INTEGERS)  # fmt: skip
    for dtype in INTEGERS:
        for number in literals(dtype):
            yield f"__floordiv__ {number} of {dtype}", Rule(lambda x, number=number: x // number, lambda x, number=number: quotient(x, np.full_like(x, number)), (dtype,))  # fmt: skip
            yield f"__mod__ {number} of {dtype}", Rule(lambda x, number=number: x % number, lambda x, number=number: modulus(x, np.full_like(x, number)), (dtype,))  # fmt: skip
    yield "__neg__", Rule(operator.neg, np.negative, NUMBERS)
    yield "__pos__", Rule(operator.pos, lambda x: x, DTYPES)
    yield "__abs__", Rule(abs, np.abs, NUMBERS)
    for name, (python, of) in {
        "__and__": (operator.and_, np.bitwise_and),
        "__or__": (operator.or_, np.bitwise_or),
        "__xor__": (operator.xor, np.bitwise_xor),
    }.items():
        yield name, Rule(python, of, (*INTEGERS, "bool"), 2)
        reflected = f"__r{name[2:]}"
        yield reflected, Rule(lambda x, python=python: python(5, x), lambda x, of=of: of(x.dtype.type(5), x), INTEGERS)  # fmt: skip
    yield "__invert__", Rule(operator.invert, np.invert, (*INTEGERS, "bool"))
    yield "__lshift__", Rule(operator.lshift, partial(shifted, left=True), INTEGERS, 2)
    yield "__rshift__", Rule(operator.rshift, partial(shifted, left=False), INTEGERS, 2)
    yield "__rlshift__", Rule(lambda x: 5 << x, lambda x: shifted(np.full_like(x, 5), x, True), INTEGERS)  # fmt: skip
    yield "__rrshift__", Rule(lambda x: 100 >> x, lambda x: shifted(np.full_like(x, 100), x, False), INTEGERS)  # fmt: skip
    for name, sign in COMPARED.items():
        dunder = (
            f"__{ {'==': 'eq', '!=': 'ne', '<': 'lt', '<=': 'le', '>': 'gt', '>=': 'ge'}[sign] }__"
        )
        dtypes = DTYPES if sign in ("==", "!=") else NUMBERS
        yield dunder, Rule(PYTHON[sign], getattr(np, name), dtypes, 2, result="bool")
    yield "astype", Rule(lambda x: x.astype("int32"), lambda x: converted(x, "int32"), DTYPES, result="int32")  # fmt: skip
    for name in ("floor", "ceil", "round", "sqrt"):
        yield name, Rule(getattr(oc, name), np.rint if name == "round" else getattr(np, name), FLOATS)  # fmt: skip
    for name, ulps in ACCURATE.items():
        yield name, Rule(getattr(oc, name), of_number(name), FLOATS, ulps=ulps)
    yield "absolute", Rule(oc.absolute, np.abs, NUMBERS)
    yield "maximum", Rule(oc.maximum, np.maximum, **both, no_sign=True)
    yield "minimum", Rule(oc.minimum, np.minimum, **both, no_sign=True)
    yield "where", Rule(lambda x, y: oc.where(x < y, x, y), lambda x, y: np.where(x < y, x, y), **both)  # fmt: skip
    yield "power", Rule(oc.power, exactly(raised), FLOATS, 2, ulps=2)
    yield "atan2", Rule(oc.atan2, exactly(angled), FLOATS, 2, ulps=2)
    for to in DTYPES:
        yield f"cast {to}", Rule(lambda x, to=to: oc.cast(x, to), lambda x, to=to: converted(x, to), DTYPES, result=to)  # fmt: skip


OF_ELEMENTS = dict(_of_elements())
FAMILIES = {"functions": FUNCTIONS, "elements": OF_ELEMENTS}


def defined(module: Any) -> set[str]:
    """The public functions that a module defines."""
    return {
        name
        for name, one in vars(module).items()
        if inspect.isfunction(one) and one.__module__ == module.__name__ and name[0] != "_"
    }


def test_no_function_is_left_out() -> None:
    tested = {name.split()[0] for name in FUNCTIONS}
    home = elementwise.__name__
    assert {n for n in ops.__all__ if getattr(ops, n).__module__.startswith(home)} == tested


def test_no_operator_of_elements_is_left_out() -> None:
    tested = {name.split()[0] for name in OF_ELEMENTS}
    of_axes = {"index", "reduce_axis", "sum", "max", "min"}
    plain = {"__init__", "__str__", "__repr__", "__hash__"}
    own = {name for name, one in vars(Value).items() if inspect.isfunction(one)} - plain
    assert tested == own | (defined(functions) - of_axes) | {"power", "cast"}


@cache
def values(dtype: str) -> Array:
    """All of 8 bits; of other types the ends, and what is near 0."""
    kind = numpy_dtype(dtype)
    if dtype in INTEGERS:
        ends = np.iinfo(kind)
        if kind.itemsize == 1:
            return np.arange(ends.min, ends.max + 1).astype(kind)
        near = (31, 32, 33, 63, 64, 65, 15, 16, 17, 2**53 + 1, 2**24 + 1, -15, -16, -32, -64)
        return np.concatenate(
            [specials(dtype), np.array([n for n in near if ends.min <= n <= ends.max], kind)]
        )
    return specials(dtype)


def pairs(dtype: str) -> tuple[Array, Array]:
    """All pairs of values."""
    own = values(dtype)
    x, y = np.meshgrid(own, own, indexing="ij")
    return x.ravel(), y.ravel()


LENGTHS = (0, 1, 15, 17)
"""Fewer elements than a vector has, and one more than it."""


def results(family: str, names: Sequence[str], dtype: str, target: str, given: Sequence[Array]) -> list[Array]:  # fmt: skip
    """The results of some functions of as many operands, by one kernel; those of fewer elements are the same."""
    n = oc.dim("n")
    tensors = [oc.placeholder((n,), dtype, name) for name in "XY"[: len(given)]]
    made: list[Tensor] = []
    for number, name in enumerate(names):
        of = FAMILIES[family][name].made
        if family == "functions":
            made.append(of(*tensors))
        else:
            made.append(oc.compute((n,), lambda i, of=of: of(*(t[i] for t in tensors)), f"R{number}"))  # fmt: skip
    kernel = oc.compile(made, inputs=tensors, target=target)

    def called(*arrays: Array) -> list[Array]:
        outputs = kernel(*arrays)
        return [np.asarray(one) for one in (outputs if len(made) > 1 else [outputs])]

    whole = called(*given)
    for size in LENGTHS:
        for one, other in zip(called(*(array[:size] for array in given)), whole, strict=True):
            np.testing.assert_array_equal(*wide(one, other[:size]))
    return whole


@np.errstate(all="ignore")
def check(rule: Rule, dtype: str, given: Sequence[Array], found: Array, what: str) -> None:
    """Equal to what is wanted: bit by bit but for NaN, or within its units."""
    kind = numpy_dtype(rule.result or dtype)
    assert found.dtype == kind, what
    is_half = dtype in HALVES
    if kind.name not in FLOATS or rule.ulps == 0:
        arrays = [one.astype(np.float32) if is_half else one for one in given]
        wanted = np.asarray(rule.wanted(*arrays))
        if kind.name in FLOATS or dtype not in FLOATS or rule.result:
            wanted = wanted.astype(kind)
        wrong = found != wanted
        if kind.name in FLOATS:
            wrong &= ~(np.isnan(found) & np.isnan(wanted))
            if not rule.no_sign:
                wrong |= (np.signbit(found) != np.signbit(wanted)) & ~np.isnan(wanted)
        at = np.flatnonzero(wrong)
        shown = [(*(one[n] for one in given), found[n], wanted[n]) for n in at[:6]]
        assert not len(at), f"{what}: {len(at)} differ: operands, ours, wanted: {shown}"
        return
    if dtype in INTEGERS:
        np.testing.assert_array_equal(found, rule.wanted(*given).astype(kind), what)
        return
    wanted = np.asarray(rule.wanted(*(one.astype(np.float64) for one in given)))
    ulps = rule.ulps + 0.5 if dtype == "float64" or is_half else rule.ulps
    terms = None if rule.terms is None else rule.terms(given[0].astype(np.float64))
    try:
        near = found.astype(np.float64)
        if terms is not None:
            bound = (ulps + 1) * float(np.finfo("float32" if is_half else dtype).eps) * terms
            close = np.abs(near - wanted) <= bound
            near = np.where(close, wanted, near)
            found = near.astype(kind)
            ulps += 0.5
        within(ulps, found, wanted)
        zero = (near == 0) & (wanted == 0)
        assert rule.no_sign or np.array_equal(np.signbit(near[zero]), np.signbit(wanted[zero]))
    except AssertionError as error:
        raise AssertionError(f"{what}: {error}") from error


GRID = [(family, dtype, operands) for family in FAMILIES for dtype in DTYPES for operands in (1, 2)]
SAMPLE = {("functions", "int16", 2), ("functions", "float32", 1), ("functions", "bfloat16", 2), ("functions", "bool", 2), ("functions", "uint8", 1), ("elements", "int32", 1)}  # fmt: skip


@pytest.mark.parametrize(
    ("family", "dtype", "operands"), [one if one in SAMPLE else slow(*one) for one in GRID]
)
def test_every_function_gives_what_numpy_gives(family: str, dtype: str, operands: int) -> None:
    given = pairs(dtype) if operands == 2 else (values(dtype),)
    names = [name for name, rule in FAMILIES[family].items() if dtype in rule.dtypes and rule.operands == operands]  # fmt: skip
    faults = []
    for target in TARGETS:
        made = results(family, names, dtype, target, given)
        for name, found in zip(names, made, strict=True):
            try:
                check(FAMILIES[family][name], dtype, given, found, f"{name} of {dtype}, {target}")
            except AssertionError as error:
                faults.append(str(error))
    assert not faults, "\n".join(faults)
