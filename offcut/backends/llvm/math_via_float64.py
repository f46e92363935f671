"""sin, cos, log, log1p and pow as LLVM IR text, of float32 lanes, calculated in float64.

Twice the width makes each of them one short polynomial and one rounding: what float32 cannot hold (the rest of a
division by pi/2, a logarithm that is multiplied by 100) float64 holds with bits to spare.

    x = 2^k m, sqrt(1/2) <= m < sqrt(2);  f = m - 1;  s = f / (2 + f)
    log(x)     = k ln 2 + 2 s + s^3 p(s^2)
    log1p(x)   = log(1 + x), with f = x itself where k = 0: nothing is lost near 0
    pow(x, y)  = 2^(y log2 |x|), with the sign of x where y is odd
    sin(x)     = ± sin(r) or ± cos(r);  n = x / (pi/2) to the nearest, r = x - n pi/2, the sign and which by n mod 4

2^t splits t into an integer and at most a half. pi/2 is subtracted in three parts, the first two so short that n times
them is exact without an FMA while ``|x| < 2^20``; what is larger is handed to the C library's function, lane by lane, by a
branch that is not taken else.

Accuracy: the largest error seen in units in the last place of float32, over every 97th of all values (pow: two million
pairs whose result is a number), is 0.502 for all five, of sin and cos for ``|x| <= 2^20``. Special values are C's: pow(x, 0) and pow(1, y) are 1 for NaN, too; log(0) is -inf; sin(inf) is
NaN; sin(-0.0) and log1p(-0.0) are -0.0.

A lane's result depends on that lane's arguments and on `fma` alone, bit for bit, whatever the number of lanes.

Source: our own minimax fits, as in `vector_math`; the reduction of x is Cody and Waite's; pow's cases are C23's, annex F.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TypeAlias

from offcut.backends.llvm import vector_math
from offcut.backends.llvm.math_formats import FORMATS
from offcut.backends.llvm.vector_math import Body
from offcut.core.function_table import FUNCTIONS
from offcut.errors import InternalError

Writer: TypeAlias = Callable[..., str]
"""``writer(body, x)``, or ``(body, x, y)``, of float64 values: it returns the name of its result."""

_DOUBLE = FORMATS["float64"]
_FAR = 2.0**20  # from here on sin and cos are the C library's
_HALF_PI = (1.57079632673412561417, 6.07710050630396597660e-11, 2.02226624879595063154e-21)
_ROOT = 0x3FE6A09E667F3BCD  # the bits of sqrt(1/2)

_SIN = (
    -0.166666666397406528,
    0.00833332918233311436,
    -0.000198392728619709066,
    2.71774604111941886e-6,
)
"""(sin(r)/r - 1) / r^2, ``|r| <= pi/4``: relative error of sin 2^-37.4"""
_COS = (
    -0.499999996817401837,
    0.0416666189244486436,
    -0.00138866365634213078,
    0.0000243793412184932523,
)
"""(cos(r) - 1) / r^2, ``|r| <= pi/4``: relative error of cos 2^-33.8"""
_LOG = (
    0.666666666757733415,
    0.399999956310384844,
    0.285721082071123949,
    0.221762273885114125,
    0.195836095725012504,
)
"""(2 artanh(s)/s - 2) / s^2, ``|s| <= 0.172``: relative error of log 2^-44.9"""
_EXP2 = (
    0.693147180665736249,
    0.240226510809692745,
    0.0555041045004488352,
    0.00961803649309595939,
    0.00133338791982927523,
    0.000154671953169467338,
    0.000015207626800394152,
)
"""(2^r - 1) / r, ``|r| <= 1/2``: relative error of 2^r 2^-34.1"""


def declarations(name: str, lanes: int, fma: bool) -> frozenset[str]:
    """Return the ``declare`` lines that a function needs, for a set over a whole module."""
    lines = vector_math.declarations("float64", lanes, fma)
    if name not in _NEAR:
        return lines
    kind, suffix = ("float", "f32") if lanes == 1 else (f"<{lanes} x float>", f"v{lanes}f32")
    lines |= {f"declare {kind} @llvm.{name}.{suffix}({kind})"}
    if lanes > 1:
        lines |= {f"declare i1 @llvm.vector.reduce.or.v{lanes}i1(<{lanes} x i1>)"}
    return lines


def define(name: str, lanes: int, fma: bool) -> str:
    """Return an internal function ``T @symbol(T %x)``, or ``(T %x, T %y)``, that is `name` of each lane of float32.

    lanes   at least 1; T is the scalar type for 1, else a vector
    fma     the target has fused multiply-add

    >>> print(define("pow", 8, fma=True).splitlines()[0])
    define internal <8 x float> @oc_pow_f32x8(<8 x float> %x, <8 x float> %y) alwaysinline nounwind {
    """
    if name not in WRITERS:
        raise InternalError(f"wide_math: no function {name!r}, only {tuple(WRITERS)}")
    body = Body(_DOUBLE, lanes, fma)
    single, words = body.vector_type("float"), "xy"[: FUNCTIONS[name].arity]
    operands = [body.emit(f"fpext {single} %{word} to {body.float_type}") for word in words]
    result = WRITERS[name](body, *operands)
    near = body.emit(f"fptrunc {body.float_type} {result} to {single}")
    symbol = vector_math.symbol(name, "float32", lanes)
    arguments = ", ".join(f"{single} %{word}" for word in words)
    head = f"define internal {single} @{symbol}({arguments}) alwaysinline nounwind {{"
    if name not in _NEAR:
        return "\n".join([head, *body.lines, f"  ret {single} {near}", "}", ""])
    ends, far = _far(body, name, near)
    return "\n".join([head, "entry:", *body.lines, *ends, "}", far])


def _exponent_and_mantissa(body: Body, x: str) -> tuple[str, str]:
    """(k, m - 1) of a positive x."""
    # The exponent is kept above 0, so that a shift of no sign leaves it in the low bits.
    above = body.int_op("add", body.bits(x), body.int_constant((1024 << 52) - _ROOT))
    biased = body.int_op("lshr", above, body.int_constant(52))
    whole = body.int_op("shl", biased, body.int_constant(52))
    m = body.int_op("sub", body.bits(x), whole)
    m = body.from_bits(body.int_op("add", m, body.int_constant(1024 << 52)))
    k = body.from_bits(body.int_op("or", biased, body.int_constant(1075 << 52)))
    k = body.op("fsub", k, body.constant(2.0**52 + 1024))
    return k, body.op("fsub", m, body.constant(1.0))


def _log_near(body: Body, f: str) -> str:
    """``log(1 + f)`` of f from sqrt(1/2) - 1 to sqrt(2) - 1."""
    s = body.op("fdiv", f, body.op("fadd", f, body.constant(2.0)))
    square = body.op("fmul", s, s)
    p = body.multiply_add(square, body.polynomial(_LOG, square), body.constant(2.0))
    return body.op("fmul", s, p)


def _log(body: Body, x: str) -> str:
    return _of_positive(body, x, _log_of(body, *_exponent_and_mantissa(body, x)))


def _log_of(body: Body, k: str, f: str) -> str:
    return body.multiply_add(k, body.constant(math.log(2)), _log_near(body, f))


def _of_positive(body: Body, x: str, value: str) -> str:
    """Return a logarithm of x, which is -inf at 0, inf at inf, and NaN below and of NaN."""
    value = body.select(x, "oeq", 0.0, body.constant(-math.inf), value)
    value = body.select(x, "oeq", math.inf, x, value)
    return body.select(x, "ult", 0.0, body.constant(math.nan), value)


def _log1p(body: Body, x: str) -> str:
    w = body.op("fadd", x, body.constant(1.0))
    k, f = _exponent_and_mantissa(body, w)
    f = body.select(k, "oeq", 0.0, x, f)
    value = _of_positive(body, w, _log_of(body, k, f))
    return body.select(x, "oeq", 0.0, x, value)


def _pow(body: Body, x: str, y: str) -> str:
    a, h = (body.from_bits(body.magnitude(v)) for v in (x, y))
    k, f = _exponent_and_mantissa(body, a)
    power = body.multiply_add(_log_near(body, f), body.constant(1 / math.log(2)), k)
    power = body.select(a, "oeq", 0.0, body.constant(-math.inf), power)
    power = body.select(a, "oeq", math.inf, a, power)
    value = _exp2(body, body.op("fmul", y, power))
    truth = body.vector_type("i1")
    whole = _is_whole(body, h)
    half = _is_whole(body, body.op("fmul", h, body.constant(0.5)))
    odd = body.emit(f"icmp ugt {truth} {whole}, {half}")
    below = body.emit(f"fcmp olt {body.float_type} {x}, {body.constant(0.0)}")
    finite = body.emit(f"fcmp olt {body.float_type} {a}, {body.constant(math.inf)}")
    broken = body.emit(f"icmp ugt {truth} {below}, {whole}")
    broken = body.emit(f"and {truth} {broken}, {finite}")
    value = _select(body, broken, body.constant(math.nan), value)
    signed = body.from_bits(body.int_op("or", body.bits(value), body.sign(x)))
    value = _select(body, odd, signed, value)
    unknown = body.emit(f"fcmp uno {body.float_type} {x}, {y}")
    value = _select(body, unknown, body.constant(math.nan), value)
    one = body.constant(1.0)
    at_one = body.emit(f"fcmp oeq {body.float_type} {a}, {one}")
    for_ever = body.emit(f"fcmp oeq {body.float_type} {h}, {body.constant(math.inf)}")
    value = _select(body, body.emit(f"and {truth} {at_one}, {for_ever}"), one, value)
    value = body.select(y, "oeq", 0.0, one, value)
    return body.select(x, "oeq", 1.0, one, value)


def _is_whole(body: Body, h: str) -> str:
    """Return whether h, at least 0 and with the precision of float32, is a whole number; inf is."""
    shifter = body.constant(2.0**52)
    near = body.op("fsub", body.op("fadd", h, shifter), shifter)
    return body.emit(f"fcmp oeq {body.float_type} {near}, {h}")


def _exp2(body: Body, t: str) -> str:
    """``2^t``; from 2^-160 on and up to 2^160, which float32 rounds to 0 and to inf."""
    t = body.clamp(body.clamp(t, "ogt", 160.0), "olt", -160.0)
    shifter = body.constant(1.5 * 2.0**52 + _DOUBLE.bias)
    shifted = body.op("fadd", t, shifter)
    r = body.op("fsub", t, body.op("fsub", shifted, shifter))
    p = body.multiply_add(r, body.polynomial(_EXP2, r), body.constant(1.0))
    return body.op("fmul", p, body.power_of_two(body.bits(shifted)))


def _sine_of_quarter_turns(body: Body, x: str, ahead: bool) -> str:
    """Return the sine of x, or of x and a quarter turn `ahead`; nothing is said of ``|x|`` beyond `_FAR`."""
    shifter = body.constant(1.5 * 2.0**52)
    shifted = body.multiply_add(x, body.constant(2 / math.pi), shifter)
    n, r = body.op("fsub", shifted, shifter), x
    for part in _HALF_PI:
        r = body.multiply_add(n, body.constant(-part), r)
    turns = body.bits(shifted)
    if ahead:
        turns = body.int_op("add", turns, body.int_constant(1))
    square, one = body.op("fmul", r, r), body.constant(1.0)
    sin = body.op("fmul", r, body.multiply_add(square, body.polynomial(_SIN, square), one))
    cos = body.multiply_add(square, body.polynomial(_COS, square), one)
    last = body.int_op("and", turns, body.int_constant(1))
    odd = body.emit(f"icmp ne {body.int_type} {last}, {body.int_constant(0)}")
    value = _select(body, odd, cos, sin)
    back = body.int_op(
        "shl", body.int_op("lshr", turns, body.int_constant(1)), body.int_constant(63)
    )
    return body.from_bits(body.int_op("xor", body.bits(value), back))


def _far(body: Body, name: str, near: str) -> tuple[list[str], str]:
    """What ends the function, and the function that is called where a lane is beyond `_FAR`, or infinite."""
    single, truth = body.vector_type("float"), body.vector_type("i1")
    limit = FORMATS["float32"].literal(_FAR)
    bound = limit if body.lanes == 1 else f"splat (float {limit})"
    called = f"{vector_math.symbol(name, 'float32', body.lanes)}_far"
    suffix = "f32" if body.lanes == 1 else f"v{body.lanes}f32"
    some = f"  %some = call i1 @llvm.vector.reduce.or.v{body.lanes}i1({truth} %far)"
    ends = [
        f"  %up = fcmp ogt {single} %x, {bound}",
        f"  %negated = fneg {single} %x",
        f"  %down = fcmp ogt {single} %negated, {bound}",
        f"  %far = or {truth} %up, %down",
        some if body.lanes > 1 else "  %some = or i1 %far, false",
        "  br i1 %some, label %beyond, label %done",
        "beyond:",
        f"  %exact = call {single} @{called}({single} %x)",
        f"  %mixed = select {truth} %far, {single} %exact, {single} {near}",
        "  br label %done",
        "done:",
        f"  %result = phi {single} [ {near}, %entry ], [ %mixed, %beyond ]",
        f"  ret {single} %result",
    ]
    text = f"""\
define internal {single} @{called}({single} %x) noinline cold nounwind {{
  %exact = call {single} @llvm.{name}.{suffix}({single} %x)
  ret {single} %exact
}}
"""
    return ends, text


def _select(body: Body, condition: str, then: str, otherwise: str) -> str:
    kind = body.float_type
    return body.emit(
        f"select {body.vector_type('i1')} {condition}, {kind} {then}, {kind} {otherwise}"
    )


_NEAR: Mapping[str, Writer] = {
    "sin": lambda body, x: _sine_of_quarter_turns(body, x, ahead=False),
    "cos": lambda body, x: _sine_of_quarter_turns(body, x, ahead=True),
}
"""Those that are the C library's beyond `_FAR`."""
WRITERS: Mapping[str, Writer] = {**_NEAR, "log": _log, "log1p": _log1p, "pow": _pow}
"""What writes each function of `offcut.core.functions` that `define` knows, and returns its result."""
