"""exp, tanh, erf and atan2 as LLVM IR text, for float32 and float64 vectors of any number of lanes.

The first three share one core. Round ``x / ln 2`` to the nearest integer n; with ``r = x - n ln 2``
(``|r| <= ln 2 / 2``) and a polynomial q,

    expm1(r)    = r + r^2 q(r)
    exp(x)      = 2^n (1 + expm1(r))
    exp(x) + c  = 2^n expm1(r) + (2^n + c)
    tanh(x)     = sign(x) (1 - 2 / (exp(2 |x|) + 1))    from |x| = 0.55 on, else x + x^3 p(x^2)
    erf(x)      = sign(x) (1 - exp(z + z w(z)))         z = -|x|,  w(z) = log(erfc(-z)) / z - 1

Nothing cancels near zero, where the leading term (r, x or z) is added last to a small one, and an
error of a large argument is damped by exp or erfc of it. There is no branch and no table: x is
clamped to where the result has become constant, which also keeps 2^n in range, and `tanh` computes
both of its formulas. `exp` scales by two powers of two in turn, which rounds denormal results once.
Where the target scales by any power of two in one instruction (AVX-512's ``vscalef``), with a
rounding of its own for denormal results, `exp` is shorter:

    exp(x)      = scale(1 + r + r^2 q(r), n)                            one Horner chain

    round    t = x / ln 2 + 1.5 * 2^(mantissa bits) leaves n, plus any bias added to that constant,
             in the low bits of t; a shift of t moves them to the exponent. No conversion to integer
             and no floor, which some targets do by a call.
    ln 2     in two parts for `exp`, where n reaches 150 (1076 for float64); the first has enough
             trailing zeros that n times it is exact without an FMA. In one part for the others,
             where an error grows with n and is damped by 2^-n.

    atan2(y, x) of the quotient t of the smaller size by the larger, ``t + t^3 a(t^2)``, is an angle up to a half of a right one; it is
                taken from a right angle where |y| is larger, from two where x is negative, and has the sign of y

Accuracy: the largest error seen, in units in the last place of the exact result. float32: every
value with |x| from 2^-15 (`exp`: 2^-31) to where the result is constant, every 37th of the others
(`scalef`: every 23rd); float64: 12 million (`scalef`: 2 million), uniform and log-uniform in |x|,
against 80-bit libm.

             float32 fma   float32   float64 fma   float64
    exp         0.98        0.96          0.98      0.94
      scalef    0.88                      0.92
    tanh        1.34        1.36          1.45      1.48
    erf         1.69        1.91          1.66      1.84

NaN gives NaN, infinities give the limits, ``tanh(-0.0)`` and ``erf(-0.0)`` are -0.0, `exp` reaches
denormals and inf where the exact function does. A lane's result depends on that lane's argument
and on `fma` and `scalef` alone, bit for bit, whatever the number of lanes: every lane runs the same
operations, in IEEE arithmetic without fast-math flags. The text calls nothing but ``llvm.fma``, only
with ``fma=True``, and ``vscalef``, with ``scalef=True``, which are for targets that have them.

Source: the polynomials (`math_formats`) are our own fits. The reduction is Cody and Waite's, *Software Manual for the Elementary Functions*, 1980.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from offcut.backends.llvm.math_formats import FORMATS, MathFormat
from offcut.core.function_table import FUNCTIONS
from offcut.errors import InternalError

_TANH_SMALL = 0.55  # a little above artanh(1/2), from where on 1 - 2 / (...) loses no bit


@dataclass(slots=True)
class Body:
    """The instructions of one function. Operands are texts: an SSA name or a constant."""

    format: MathFormat
    lanes: int
    fma: bool
    scalef: bool = False
    lines: list[str] = field(default_factory=list)

    @property
    def float_type(self) -> str:
        """The type of the lanes."""
        return self.vector_type(self.format.scalar)

    @property
    def int_type(self) -> str:
        """That of integers of their width."""
        return self.vector_type(self.format.integer)

    def vector_type(self, scalar: str) -> str:
        """A type of as many lanes."""
        return scalar if self.lanes == 1 else f"<{self.lanes} x {scalar}>"

    def constant(self, value: float) -> str:
        """A literal in every lane."""
        text = self.format.literal(value)
        return text if self.lanes == 1 else f"splat ({self.format.scalar} {text})"

    def int_constant(self, value: int) -> str:
        """An integer in every lane."""
        return str(value) if self.lanes == 1 else f"splat ({self.format.integer} {value})"

    def emit(self, instruction: str) -> str:
        """Write an instruction and return the name of its result."""
        name = f"%v{len(self.lines)}"
        self.lines.append(f"  {name} = {instruction}")
        return name

    def op(self, opcode: str, a: str, b: str) -> str:
        """``fadd``, ``fsub``, ``fmul``, ``fdiv`` of floats."""
        return self.emit(f"{opcode} {self.float_type} {a}, {b}")

    def int_op(self, opcode: str, a: str, b: str) -> str:
        """``add``, ``and``, ``shl`` and others of integers."""
        return self.emit(f"{opcode} {self.int_type} {a}, {b}")

    def multiply_add(self, a: str, b: str, c: str) -> str:
        """``a * b + c``, rounded once with `fma`, else twice."""
        if not self.fma:
            return self.op("fadd", self.op("fmul", a, b), c)
        kind = self.float_type
        return self.emit(
            f"call {kind} @{_fma(self.format, self.lanes)}({kind} {a}, {kind} {b}, {kind} {c})"
        )

    def polynomial(self, coefficients: tuple[float, ...], x: str) -> str:
        """Horner's rule: one operation a coefficient; independent iterations hide its latency."""
        *rest, value = map(self.constant, coefficients)
        for coefficient in reversed(rest):
            value = self.multiply_add(value, x, coefficient)
        return value

    def clamp(self, x: str, predicate: str, end: float) -> str:
        """`end` where ``x predicate end``, else x; NaN stays, so this is one min or max."""
        return self.select(x, predicate, end, self.constant(end), x)

    def select(self, x: str, predicate: str, limit: float, then: str, otherwise: str) -> str:
        """`then` where ``x predicate limit``, else `otherwise`; both are computed."""
        kind, bound = self.float_type, self.constant(limit)
        holds = self.emit(f"fcmp {predicate} {kind} {x}, {bound}")
        return self.emit(
            f"select {self.vector_type('i1')} {holds}, {kind} {then}, {kind} {otherwise}"
        )

    def bits(self, x: str) -> str:
        """Floats as the integers that have their bits."""
        return self.emit(f"bitcast {self.float_type} {x} to {self.int_type}")

    def from_bits(self, x: str) -> str:
        """Integers as the floats that have their bits."""
        return self.emit(f"bitcast {self.int_type} {x} to {self.float_type}")

    def magnitude(self, x: str) -> str:
        """The bits of ``|x|``, as an integer."""
        return self.int_op("and", self.bits(x), self.int_constant(~self.format.sign))

    def sign(self, x: str) -> str:
        """The sign bit of x alone, as an integer."""
        return self.int_op("and", self.bits(x), self.int_constant(self.format.sign))

    def scale_by_power(self, x: str, n: str) -> str:
        """``x * 2^n`` of floats, n an integer, rounded once: by registers that hold all lanes."""
        width, scalar = _scalef_lanes(self.format, self.lanes), self.format.scalar
        if self.lanes == 1:
            x, n = (
                self.emit(f"insertelement <1 x {scalar}> poison, {scalar} {v}, i32 0")
                for v in (x, n)
            )
        parts = []
        for first in range(0, self.lanes, width):
            a, b = (self._lane_slice(v, first, width) for v in (x, n))
            name, mask, rounding = _scalef(self.format, width)
            kind = f"<{width} x {scalar}>"
            last = f", {rounding}" if rounding else ""
            arguments = f"{kind} {a}, {kind} {b}, {kind} zeroinitializer, {mask} -1{last}"
            parts.append(self.emit(f"call {kind} @{name}({arguments})"))
        whole, have = parts[0], width
        for part in parts[1:]:
            part = self._shuffle(part, width, [*range(width), *[-1] * (have - width)])
            whole = self._shuffle(whole, have, list(range(have + width)), part)
            have += width
        if self.lanes == 1:
            return self.emit(f"extractelement <{width} x {scalar}> {whole}, i32 0")
        return whole if have == self.lanes else self._lane_slice(whole, 0, self.lanes, have)

    def _lane_slice(self, x: str, first: int, count: int, of: int = 0) -> str:
        """`count` lanes from `first` on; those past the last hold anything."""
        of = of or self.lanes
        if (first, count) == (0, of):
            return x
        lanes = range(first, first + count)
        return self._shuffle(x, of, [lane if lane < of else -1 for lane in lanes])

    def _shuffle(self, x: str, of: int, order: list[int], other: str = "poison") -> str:
        kind = f"<{of} x {self.format.scalar}>"
        indices = ", ".join("i32 poison" if lane < 0 else f"i32 {lane}" for lane in order)
        mask = f"<{len(order)} x i32> <{indices}>"
        return self.emit(f"shufflevector {kind} {x}, {kind} {other}, {mask}")

    def power_of_two(self, biased: str) -> str:
        """``2^(e - bias)`` where the low bits of the integer `biased` hold e."""
        shift = self.int_constant(self.format.mantissa)
        return self.from_bits(self.int_op("shl", biased, shift))


def symbol(name: str, dtype: str, lanes: int) -> str:
    """The name of the function that `define` writes, without the ``@``.

    >>> symbol("exp", "float32", 16)
    'oc_exp_f32x16'
    """
    return f"oc_{name}_{_format(dtype).suffix}x{lanes}"


def declarations(dtype: str, lanes: int, fma: bool, scalef: bool = False) -> frozenset[str]:
    """The ``declare`` lines that the functions of this type need, for a set over a whole module.

    >>> declarations("float64", 1, fma=True)
    frozenset({'declare double @llvm.fma.f64(double, double, double)'})
    >>> declarations("float64", 1, fma=False)
    frozenset()
    """
    format, lines = _format(dtype), set[str]()
    if fma:
        kind = Body(format, lanes, fma).float_type
        lines.add(f"declare {kind} @{_fma(format, lanes)}({kind}, {kind}, {kind})")
    if scalef:
        width = _scalef_lanes(format, lanes)
        called, mask, rounding = _scalef(format, width)
        kind = f"<{width} x {format.scalar}>"
        last = ", i32 immarg" if rounding else ""
        lines.add(f"declare {kind} @{called}({kind}, {kind}, {kind}, {mask}{last})")
    return frozenset(lines)


def define(name: str, dtype: str, lanes: int, fma: bool, scalef: bool = False) -> str:
    """An internal function ``T @symbol(T %x)``, or ``(T %x, T %y)``, that is `name` of each lane.

    name    one of `WRITERS`
    dtype   "float32" or "float64"
    lanes   at least 1; T is the scalar type for 1, else a vector
    fma     the target has fused multiply-add; without it `llvm.fma` would be a call into libm
    scalef  the target has AVX-512F and VL, and fused multiply-add

    The function is ``alwaysinline``, and right also where no pass inlines it.

    >>> print(define("exp", "float32", 8, fma=True).splitlines()[0])
    define internal <8 x float> @oc_exp_f32x8(<8 x float> %x) alwaysinline nounwind {
    """
    body = Body(_format(dtype), lanes, fma, scalef)
    if name not in WRITERS:
        raise InternalError(f"vector_math: no function {name!r}, only {tuple(WRITERS)}")
    words = ("%x", "%y")[: FUNCTIONS[name].arity]
    result, kind = WRITERS[name](body, *words), body.float_type
    arguments = ", ".join(f"{kind} {word}" for word in words)
    head = f"define internal {kind} @{symbol(name, dtype, lanes)}({arguments}) alwaysinline nounwind {{"
    return "\n".join([head, *body.lines, f"  ret {kind} {result}", "}", ""])


def _format(dtype: str) -> MathFormat:
    if dtype not in FORMATS:
        raise InternalError(f"vector_math: no element type {dtype!r}, only {tuple(FORMATS)}")
    return FORMATS[dtype]


def _fma(format: MathFormat, lanes: int) -> str:
    return f"llvm.fma.{'' if lanes == 1 else f'v{lanes}'}{format.suffix}"


def _scalef_lanes(format: MathFormat, lanes: int) -> int:
    """Lanes of the registers that scale so many: the narrowest that hold them, else the widest."""
    bits = 32 if format.scalar == "float" else 64
    return next((size // bits for size in (128, 256) if lanes * bits <= size), 512 // bits)


def _scalef(format: MathFormat, width: int) -> tuple[str, str, str]:
    """The intrinsic for `width` lanes, the type of its mask, and its rounding, where it takes one."""
    single = format.scalar == "float"
    size = width * (32 if single else 64)
    name = f"llvm.x86.avx512.mask.scalef.{'ps' if single else 'pd'}.{size}"
    return name, "i16" if width == 16 else "i8", "i32 4" if size == 512 else ""


def _reduce(body: Body, x: str, ln2: tuple[float, ...], bias: int) -> tuple[str, str]:
    """(integer whose low bits hold ``n + bias``, ``expm1(x - n ln 2)``), n nearest to ``x / ln 2``.

    ln2   parts that sum to it, subtracted in turn
    """
    shifted, _, r = _rest(body, x, ln2, bias)
    q = body.polynomial(body.format.q, r)
    return body.bits(shifted), body.multiply_add(body.op("fmul", r, r), q, r)


def _rest(body: Body, x: str, ln2: tuple[float, ...], bias: int) -> tuple[str, str, str]:
    """(n shifted so that low bits hold ``n + bias``, n, ``x - n ln 2``), n nearest to ``x / ln 2``."""
    shifter = body.constant(1.5 * 2.0**body.format.mantissa + bias)
    shifted = body.multiply_add(x, body.constant(1 / math.log(2)), shifter)
    n, r = body.op("fsub", shifted, shifter), x
    for part in ln2:
        r = body.multiply_add(n, body.constant(-part), r)
    return shifted, n, r


def _exp(body: Body, x: str) -> str:
    low, high = body.format.exp_range
    x = body.clamp(body.clamp(x, "ogt", high), "olt", low)
    if body.scalef:
        _, n, r = _rest(body, x, body.format.ln2, 0)
        return body.scale_by_power(body.polynomial((1.0, 1.0, *body.format.q_alone), r), n)
    # 2^n may be no normal number where the result is one: take floor(n/2) and the rest of n in turn
    biased, p = _reduce(body, x, body.format.ln2, 2 * body.format.bias)
    half = body.int_op("lshr", biased, body.int_constant(1))
    rest = body.int_op("sub", biased, half)
    y = body.op("fadd", p, body.constant(1.0))
    y = body.op("fmul", y, body.power_of_two(half))
    return body.op("fmul", y, body.power_of_two(rest))


def _exp_plus(body: Body, offset: float, x: str) -> str:
    """``e^x + offset`` of an x so near zero that ``2^n`` and ``2^-n`` are normal numbers."""
    biased, p = _reduce(body, x, (math.log(2),), body.format.bias)
    scale = body.power_of_two(biased)
    return body.multiply_add(scale, p, body.op("fadd", scale, body.constant(offset)))


def _with_sign_of(body: Body, value: str, x: str) -> str:
    return body.from_bits(body.int_op("or", body.magnitude(value), body.sign(x)))


def _tanh(body: Body, x: str) -> str:
    a = body.from_bits(body.magnitude(x))
    square = body.op("fmul", a, a)
    small = body.polynomial(body.format.p, square)
    small = body.multiply_add(body.op("fmul", a, square), small, a)
    end = body.clamp(a, "ogt", body.format.tanh_end)
    inverse = body.op("fdiv", body.constant(2.0), _exp_plus(body, 1.0, body.op("fadd", end, end)))
    large = body.op("fsub", body.constant(1.0), inverse)
    return _with_sign_of(body, body.select(a, "olt", _TANH_SMALL, small, large), x)


def _erf(body: Body, x: str) -> str:
    negative = body.from_bits(body.int_op("or", body.bits(x), body.int_constant(body.format.sign)))
    z = body.clamp(negative, "olt", -body.format.w_end)
    w = body.polynomial(body.format.w, z)
    return _with_sign_of(body, _exp_plus(body, -1.0, body.multiply_add(z, w, z)), x)


def _atan2(body: Body, y: str, x: str) -> str:
    a, b = (body.from_bits(body.magnitude(v)) for v in (y, x))
    kind, truth = body.float_type, body.vector_type("i1")
    steep = body.emit(f"fcmp ogt {kind} {a}, {b}")
    low, high = (
        body.emit(f"select {truth} {steep}, {kind} {v}, {kind} {w}") for v, w in ((b, a), (a, b))
    )
    t = body.op("fdiv", low, high)
    same = body.emit(f"fcmp oeq {kind} {low}, {high}")  # of two infinities, too
    t = body.emit(f"select {truth} {same}, {kind} {body.constant(1.0)}, {kind} {t}")
    t = body.select(high, "oeq", 0.0, low, t)
    square = body.op("fmul", t, t)
    p = body.polynomial(body.format.arc, square)
    angle = body.multiply_add(body.op("fmul", t, square), p, t)
    negative = body.emit(f"icmp slt {body.int_type} {body.bits(x)}, {body.int_constant(0)}")
    for turned, turns in ((steep, 1), (negative, 2)):
        first, second = (body.constant(turns * part) for part in body.format.turn)
        away = body.op("fadd", body.op("fsub", first, angle), second)
        angle = body.emit(f"select {truth} {turned}, {kind} {away}, {kind} {angle}")
    return _with_sign_of(body, angle, y)


WRITERS: Mapping[str, Callable[..., str]] = {
    "exp": _exp,
    "tanh": _tanh,
    "erf": _erf,
    "atan2": _atan2,
}
"""What writes each function of `offcut.core.functions` that `define` knows, and returns its result."""
