"""Element types in vectors: constants, arithmetic, conversions, and how they lie in memory.

Values are vectors of any number of lanes, of one lane too. The 16-bit floats are computed in
float32 and rounded after every operation, which gives what their own arithmetic would; they lie in
memory as 16-bit integers and are converted with integer operations, so any target can. Conditions
lie in memory as bytes, 0 or 1.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import inf

import numpy as np

from offcut.backends.llvm import math_via_float64, vector_math
from offcut.backends.llvm.ir import FunctionWriter
from offcut.core.dtypes import FLOATS, HALVES, ITEM_BYTES, UNSIGNED, numpy_dtype
from offcut.core.expr import Binary, Compare, Const, Expr, Select, Unary
from offcut.core.function_table import FUNCTIONS

STORED = {
    "float64": "double",
    "float32": "float",
    "float16": "i16",
    "bfloat16": "i16",
    "int64": "i64",
    "int32": "i32",
    "int16": "i16",
    "int8": "i8",
    "uint64": "i64",
    "uint32": "i32",
    "uint16": "i16",
    "uint8": "i8",
    "index": "i64",
    "bool": "i8",
}
_FROM_ZERO = (*UNSIGNED, "bool")
_INTRINSIC = {"float": "f32", "double": "f64"}
_ON_BITS = {"bitand": "and", "bitor": "or", "bitxor": "xor"}
"""LLVM's words for operations on bits."""


@dataclass(frozen=True)
class Elements:
    """Operations on vectors of `lanes` elements, written into `f`.

    fma        whether a sum of products is contracted into one rounding
    functions  definitions of exp, sin and others that the module needs, collected
    scalef     whether the target scales by a power of two in one instruction
    """

    f: FunctionWriter
    lanes: int
    fma: bool
    functions: dict[str, str]
    scalef: bool = False

    def compute_type(self, dtype: str) -> str:
        """LLVM's scalar type in which `dtype` is computed."""
        return "float" if dtype in HALVES else "i1" if dtype == "bool" else STORED[dtype]

    def kind(self, dtype: str) -> str:
        """LLVM's vector type of values of `dtype`."""
        return f"<{self.lanes} x {self.compute_type(dtype)}>"

    def memory_type(self, dtype: str) -> str:
        """LLVM's vector type of `dtype` in memory."""
        return f"<{self.lanes} x {STORED[dtype]}>"

    def constant(self, value: float, dtype: str) -> str:
        """Return a literal in every lane."""
        return f"splat ({self.compute_type(dtype)} {self.scalar(value, dtype)})"

    def scalar(self, value: float, dtype: str) -> str:
        """Return a literal, rounded to `dtype`."""
        if dtype in FLOATS:
            with np.errstate(over="ignore"):
                rounded = float(numpy_dtype(dtype).type(value))
            return f"0x{struct.unpack('<Q', struct.pack('<d', rounded))[0]:016X}"
        if dtype == "bool":
            return "true" if value else "false"
        return str(int(value))

    def splat(self, value: str, dtype: str) -> str:
        """Return a scalar in every lane."""
        kind, scalar = self.kind(dtype), self.compute_type(dtype)
        one = self.f.let(f"insertelement {kind} poison, {scalar} {value}, i32 0")
        if self.lanes == 1:
            return one
        zeros = f"<{self.lanes} x i32> zeroinitializer"
        return self.f.let(f"shufflevector {kind} {one}, {kind} poison, {zeros}")

    def ramp(self) -> str:
        """0, 1, 2, … as int64 lanes."""
        return "<" + ", ".join(f"i64 {lane}" for lane in range(self.lanes)) + ">"

    def binary(self, op: str, dtype: str, a: str, b: str) -> str:
        """``a op b``: + - * / // %, functions of two, and of integers those on bits."""
        kind = self.kind(dtype)
        if dtype in FLOATS:
            if op in ("min", "max") and b == self.constant(0.0, dtype):
                # One instruction, and -0.0 stays, as in `max(x, 0)` of others; NaN is not beyond.
                beyond = self.compare("<" if op == "max" else ">", dtype, a, b)
                return self.select(beyond, b, a, dtype)
            if op in FUNCTIONS:
                return self._function(op, dtype, a, b)
            if op == "%":
                result = self._remainder(dtype, a, b)
            else:
                word = {"+": "fadd", "-": "fsub", "*": "fmul", "/": "fdiv"}[op]
                result = self.f.let(f"{word} {kind} {a}, {b}")
            return self.round_result(result, dtype)
        unsigned = dtype in UNSIGNED
        if op in ("//", "%") and not b.startswith("splat"):
            # Lanes that are off may divide by anything, and a division by zero traps.
            b = self.binary("max", dtype, b, self.constant(1, dtype))
        if op in ("min", "max"):
            name = f"llvm.{'u' if unsigned else 's'}{op}.v{self.lanes}{STORED[dtype]}"
            return self.f.call(kind, name, f"{kind} {a}, {kind} {b}", f"{kind}, {kind}")
        if op in _ON_BITS:
            return self.f.let(f"{_ON_BITS[op]} {kind} {a}, {b}")
        if op in ("shl", "shr"):
            return self._shift(op, dtype, a, b)
        if op in "+-*":
            return self.f.let(f"{ {'+': 'add', '-': 'sub', '*': 'mul'}[op] } {kind} {a}, {b}")
        if unsigned:
            return self.f.let(f"{'udiv' if op == '//' else 'urem'} {kind} {a}, {b}")
        rest = self.f.let(f"srem {kind} {a}, {b}")
        below = self.f.let(f"icmp slt {kind} {rest}, zeroinitializer")
        if op == "%":
            again = self.f.let(f"add {kind} {rest}, {b}")
            return self.select(below, again, rest, dtype)
        quotient = self.f.let(f"sdiv {kind} {a}, {b}")
        one = self.f.let(f"zext <{self.lanes} x i1> {below} to {kind}")
        return self.f.let(f"sub {kind} {quotient}, {one}")

    def _shift(self, op: str, dtype: str, a: str, b: str) -> str:
        """`a` shifted by `b` bits, as `BITWISE` has it; LLVM's own shifts are poison by the width or more. Less than 0 is more, unsigned."""
        kind, last = self.kind(dtype), self.constant(self._bits(dtype) - 1, dtype)
        name = f"llvm.umin.v{self.lanes}{STORED[dtype]}"
        near = self.f.call(kind, name, f"{kind} {b}, {kind} {last}", f"{kind}, {kind}")
        if op == "shr" and dtype not in UNSIGNED:
            return self.f.let(f"ashr {kind} {a}, {near}")
        word = "lshr" if op == "shr" else "shl"
        moved = self.f.let(f"{word} {kind} {a}, {near}")
        inside = self.f.let(f"icmp eq {kind} {near}, {b}")
        return self.select(inside, moved, self.constant(0, dtype), dtype)

    def _remainder(self, dtype: str, a: str, b: str) -> str:
        """Return the exact remainder of floats, 0 or of the sign of `b`; the C library's, but for its sign."""
        kind, bits = self.kind(dtype), f"<{self.lanes} x i1>"
        rest = (
            self._exact_remainder(dtype, a, b) if self.fma else self.f.let(f"frem {kind} {a}, {b}")
        )
        name = f"llvm.copysign.v{self.lanes}{_INTRINSIC[self.compute_type(dtype)]}"
        nothing = self.f.call(kind, name, f"{kind} zeroinitializer, {kind} {b}", f"{kind}, {kind}")
        signed = self.f.call(kind, name, f"{kind} {rest}, {kind} {b}", f"{kind}, {kind}")
        other = self.f.let(f"fcmp une {kind} {signed}, {rest}")
        moved = self.f.let(f"fadd {kind} {rest}, {b}")
        result = self.f.let(f"select {bits} {other}, {kind} {moved}, {kind} {rest}")
        none = self.f.let(f"fcmp oeq {kind} {rest}, zeroinitializer")
        return self.f.let(f"select {bits} {none}, {kind} {nothing}, {kind} {result}")

    def _exact_remainder(self, dtype: str, a: str, b: str) -> str:
        """What ``a / b`` towards zero leaves of `a`, exactly; the sign of a zero is any.

        With ``q = trunc(a / b)``, which a rounding up makes one too large, ``a - q*b`` is a multiple of the lesser of the last places of
        a and b, and no more than b: one fused operation gives it as it is, and so does adding b once where
        its sign is not a's. The C library's takes over where some lane's q is no integer for sure.
        """
        kind, bits, word = self.kind(dtype), f"<{self.lanes} x i1>", self.compute_type(dtype)
        suffix = f"v{self.lanes}{_INTRINSIC[word]}"
        quotient = self.f.let(f"fdiv {kind} {a}, {b}")
        whole = self.f.call(kind, f"llvm.trunc.{suffix}", f"{kind} {quotient}", kind)
        less = self.f.let(f"fneg {kind} {whole}")
        three = f"{kind}, {kind}, {kind}"
        rest = self.f.call(
            kind, f"llvm.fma.{suffix}", f"{kind} {less}, {kind} {b}, {kind} {a}", three
        )
        copied = partial(self.f.call, kind, f"llvm.copysign.{suffix}", parameters=f"{kind}, {kind}")
        signed = copied(arguments=f"{kind} {rest}, {kind} {a}")
        other = self.f.let(f"fcmp une {kind} {signed}, {rest}")
        moved = self.f.let(f"fadd {kind} {rest}, {copied(arguments=f'{kind} {b}, {kind} {a}')}")
        selected = self.f.let(f"select {bits} {other}, {kind} {moved}, {kind} {rest}")
        size = self.f.call(kind, f"llvm.fabs.{suffix}", f"{kind} {whole}", kind)
        # A quotient of a bit less than its mantissa is an integer, or one too large.
        small = word == "float"
        most = self.constant(2.0 ** (22 if small else 51), "float32" if small else dtype)
        large = self.f.let(f"fcmp uge {kind} {size}, {most}")
        none = self.f.let(f"fcmp uno {kind} {rest}, {rest}")  # 0 times an infinite b
        far = self.f.let(f"or {bits} {large}, {none}")
        some = self.f.call("i1", f"llvm.vector.reduce.or.v{self.lanes}i1", f"{bits} {far}", bits)
        slot = self.f.slot(kind)
        self.f.do(f"store {kind} {selected}, ptr {slot}")
        with self.f.when(some):
            self.f.do(f"store {kind} {self.f.let(f'frem {kind} {a}, {b}')}, ptr {slot}")
        return self.f.let(f"load {kind}, ptr {slot}")

    def multiply_add(self, dtype: str, a: str, b: str, c: str) -> str:
        """``a*b + c``, one rounding where the target has it."""
        if self.fma and dtype in ("float32", "float64"):
            kind = self.kind(dtype)
            name = f"llvm.fma.v{self.lanes}{_INTRINSIC[self.compute_type(dtype)]}"
            arguments = f"{kind} {a}, {kind} {b}, {kind} {c}"
            return self.f.call(kind, name, arguments, f"{kind}, {kind}, {kind}")
        return self.binary("+", dtype, self.binary("*", dtype, a, b), c)

    def unary(self, op: str, dtype: str, a: str) -> str:
        """``neg`` and the functions of `a`."""
        kind = self.kind(dtype)
        if dtype not in FLOATS:
            if op == "abs" and dtype in UNSIGNED:
                return a
            negated = self.f.let(f"sub {kind} zeroinitializer, {a}")
            if op == "neg":
                return negated
            below = self.f.let(f"icmp slt {kind} {a}, zeroinitializer")
            return self.select(below, negated, a, dtype)
        if op == "neg":
            return self.f.let(f"fneg {kind} {a}")
        return self._function(op, dtype, a)

    def _function(self, op: str, dtype: str, *arguments: str) -> str:
        """Return a function of floats, in float32 for 16-bit ones; the C library's where no instruction and no writer is."""
        inner = "float64" if dtype == "float64" else "float32"
        if FUNCTIONS[op].intrinsic:
            kind = self.kind(inner)
            name = f"llvm.{FUNCTIONS[op].intrinsic}.v{self.lanes}{_INTRINSIC[self.compute_type(inner)]}"
            operands = ", ".join(f"{kind} {a}" for a in arguments)
            called = self.f.call(kind, name, operands, ", ".join(kind for _ in arguments))
            return self.round_result(called, dtype)
        if op in vector_math.WRITERS:
            name = vector_math.symbol(op, inner, self.lanes)
            if name not in self.functions:
                self.functions[name] = vector_math.define(
                    op, inner, self.lanes, self.fma, self.scalef
                )
            self.f.declares |= vector_math.declarations(inner, self.lanes, self.fma, self.scalef)
        elif inner == "float32" and op in math_via_float64.WRITERS:
            name = vector_math.symbol(op, inner, self.lanes)
            if name not in self.functions:
                self.functions[name] = math_via_float64.define(op, self.lanes, self.fma)
            self.f.declares |= math_via_float64.declarations(op, self.lanes, self.fma)
        else:
            return self.round_result(self._of_library(op, inner, arguments), dtype)
        kind, scalar = self.kind(inner), self.compute_type(inner)
        if self.lanes > 1:
            operands = ", ".join(f"{kind} {a}" for a in arguments)
            return self.round_result(self.f.let(f"call {kind} @{name}({operands})"), dtype)
        elements = (self.f.let(f"extractelement {kind} {a}, i32 0") for a in arguments)
        operands = ", ".join(f"{scalar} {element}" for element in elements)
        result = self.f.let(f"call {scalar} @{name}({operands})")
        return self.round_result(self.splat(result, inner), dtype)

    def _of_library(self, op: str, dtype: str, arguments: Sequence[str]) -> str:
        """Return the C library's function of doubles, a lane at a time, rounded to float32 where that is what is computed."""
        if dtype == "float32":
            wide = [self.cast(a, dtype, "float64") for a in arguments]
            return self.cast(self._of_library(op, "float64", wide), "float64", dtype)
        kind, result = self.kind(dtype), "poison"
        for lane in range(self.lanes):
            elements = [self.f.let(f"extractelement {kind} {a}, i32 {lane}") for a in arguments]
            arguments_text = ", ".join(f"double {element}" for element in elements)
            one = self.f.call(
                "double", FUNCTIONS[op].libm, arguments_text, ", ".join("double" for _ in arguments)
            )
            result = self.f.let(f"insertelement {kind} {result}, double {one}, i32 {lane}")
        return result

    def select(self, condition: str, a: str, b: str, dtype: str) -> str:
        """Return `a` where the condition holds, else `b`."""
        kind = self.kind(dtype)
        return self.f.let(f"select <{self.lanes} x i1> {condition}, {kind} {a}, {kind} {b}")

    def compare(self, op: str, dtype: str, a: str, b: str) -> str:
        """``a op b`` as i1 lanes; a comparison with NaN holds only for !=."""
        kind = self.kind(dtype)
        if dtype in FLOATS:
            words = {"<": "olt", "<=": "ole", ">": "ogt", ">=": "oge", "==": "oeq", "!=": "une"}
            return self.f.let(f"fcmp {words[op]} {kind} {a}, {b}")
        sign = "u" if dtype in _FROM_ZERO else "s"
        words = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
        word = {"==": "eq", "!=": "ne"}.get(op) or sign + words[op]
        return self.f.let(f"icmp {word} {kind} {a}, {b}")

    def cast(self, a: str, old: str, new: str, bounds: Bounds | None = None) -> str:
        """Return `a` converted; a float becomes an integer toward zero, saturating, NaN to 0.

        bounds  of a float, where they are known
        """
        if old == new:
            return a
        if new == "bool":
            return self.compare("!=", old, a, self.constant(0, old))
        before, after = self.kind(old), self.kind(new)
        if old == "float64" and new in HALVES:
            return self.round_result(self._to_odd(a), new)
        if old in FLOATS and new in FLOATS:
            wide = a
            if before != after:
                wide = self.f.let(
                    f"{'fpext' if after.endswith('double>') else 'fptrunc'} {before} {a} to {after}"
                )
            return self.round_result(wide, new) if new in HALVES else wide
        if old in FLOATS:
            return self._truncate(a, old, new, bounds)
        if new in FLOATS:
            word = "uitofp" if old in _FROM_ZERO else "sitofp"
            return self.round_result(self.f.let(f"{word} {before} {a} to {after}"), new)
        narrow, wide_bits = self._bits(old), self._bits(new)
        if narrow == wide_bits:
            return a
        word = "trunc" if wide_bits < narrow else "zext" if old in _FROM_ZERO else "sext"
        return self.f.let(f"{word} {before} {a} to {after}")

    def _truncate(self, a: str, old: str, new: str, bounds: Bounds | None) -> str:
        """Return a float as an integer, toward zero, saturating, NaN as 0: LLVM's own conversion of that kind takes lanes one by one."""
        wide = "float64" if old == "float64" else "float32"
        unsigned, bits = new in UNSIGNED, self._bits(new)
        least, above = (0, 2**bits) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1))
        word = "fptoui" if unsigned else "fptosi"
        if bounds is not None and least <= bounds[0] and bounds[1] < above and not bounds[2]:
            return self.f.let(f"{word} {self.kind(wide)} {a} to {self.kind(new)}")
        low = self.compare("<", wide, a, self.constant(least, wide))
        high = self.compare(">=", wide, a, self.constant(above, wide))
        inside = self.compare("<", wide, a, self.constant(above, wide))
        inside = self.f.let(
            f"select <{self.lanes} x i1> {low}, <{self.lanes} x i1> zeroinitializer, <{self.lanes} x i1> {inside}"
        )
        fits = self.select(inside, a, self.constant(0, wide), wide)
        converted = self.f.let(f"{word} {self.kind(wide)} {fits} to {self.kind(new)}")
        converted = self.select(high, self.constant(above - 1, new), converted, new)
        return self.select(low, self.constant(least, new), converted, new)

    def _to_odd(self, a: str) -> str:
        """float64 as float32, an inexact one with its last bit set, so that it may be rounded again."""
        f64, f32, i32 = (f"<{self.lanes} x {t}>" for t in ("double", "float", "i32"))
        mask = f"<{self.lanes} x i1>"
        near = self.f.let(f"fptrunc {f64} {a} to {f32}")
        back = self.f.let(f"fpext {f32} {near} to {f64}")
        bits = self.f.let(f"bitcast {f32} {near} to {i32}")
        size, was = self.unary("abs", "float64", back), self.unary("abs", "float64", a)
        up = self.f.let(f"fcmp ogt {f64} {size}, {was}")
        cut = self.f.let(f"select {mask} {up}, {i32} {self._op('sub', bits, 1)}, {i32} {bits}")
        inexact = self.f.let(f"fcmp one {f64} {back}, {a}")
        odd = self.f.let(f"select {mask} {inexact}, {i32} {self._op('or', cut, 1)}, {i32} {bits}")
        return self.f.let(f"bitcast {i32} {odd} to {f32}")

    def _bits(self, dtype: str) -> int:
        return int(self.compute_type(dtype)[1:])

    def round_result(self, a: str, dtype: str) -> str:
        """Return a float32 result as the nearest value of a 16-bit type; others as they are."""
        return self.widen_loaded(self.storable(a, dtype), dtype) if dtype in HALVES else a

    def widen_loaded(self, a: str, dtype: str) -> str:
        """What lies in memory as a value to compute with."""
        if dtype == "bool":
            return self.f.let(f"icmp ne {self.memory_type(dtype)} {a}, zeroinitializer")
        if dtype not in HALVES:
            return a
        i16, i32, f32 = (f"<{self.lanes} x {t}>" for t in ("i16", "i32", "float"))
        wide = self.f.let(f"zext {i16} {a} to {i32}")
        if dtype == "bfloat16":
            return self.f.let(f"bitcast {i32} {self._op('shl', wide, 16)} to {f32}")
        # The exponent is rebiased by a multiplication, which makes denormals right as well.
        magnitude = self._op("shl", self._op("and", wide, 0x7FFF), 13)
        number = self.f.let(f"bitcast {i32} {magnitude} to {f32}")
        scaled = self.f.let(f"fmul {f32} {number}, splat (float 0x46F0000000000000)")
        bits = self.f.let(f"bitcast {f32} {scaled} to {i32}")
        special = self.f.let(f"icmp uge {i32} {magnitude}, splat (i32 {0x7C00 << 13})")
        infinite = self._op("or", magnitude, 0x7F800000)
        chosen = self.f.let(f"select <{self.lanes} x i1> {special}, {i32} {infinite}, {i32} {bits}")
        sign = self._op("shl", self._op("and", wide, 0x8000), 16)
        both = self.f.let(f"or {i32} {chosen}, {sign}")
        return self.f.let(f"bitcast {i32} {both} to {f32}")

    def storable(self, a: str, dtype: str) -> str:
        """Return a computed value as it lies in memory, rounded to nearest, ties to even."""
        if dtype == "bool":
            return self.f.let(f"zext {self.kind(dtype)} {a} to {self.memory_type(dtype)}")
        if dtype not in HALVES:
            return a
        i16, i32, f32 = (f"<{self.lanes} x {t}>" for t in ("i16", "i32", "float"))
        bits = self.f.let(f"bitcast {f32} {a} to {i32}")
        nan = self.f.let(f"fcmp uno {f32} {a}, {a}")
        if dtype == "bfloat16":
            odd = self._op("and", self._op("lshr", bits, 16), 1)
            biased = self.f.let(f"add {i32} {self._op('add', bits, 0x7FFF)}, {odd}")
            quiet = self._op("or", bits, 0x400000)
            chosen = self.f.let(f"select <{self.lanes} x i1> {nan}, {i32} {quiet}, {i32} {biased}")
            return self.f.let(f"trunc {i32} {self._op('lshr', chosen, 16)} to {i16}")
        sign = self._op("and", self._op("lshr", bits, 16), 0x8000)
        magnitude = self._op("and", bits, 0x7FFFFFFF)
        # Normal: round the mantissa to 10 bits. Denormal: adding 0.5 aligns it to 2^-24.
        odd = self._op("and", self._op("lshr", magnitude, 13), 1)
        rebiased = self.f.let(
            f"add {i32} {self._op('add', magnitude, 0xC8000FFF - (1 << 32))}, {odd}"
        )
        normal = self._op("lshr", rebiased, 13)
        number = self.f.let(f"bitcast {i32} {magnitude} to {f32}")
        aligned = self.f.let(f"fadd {f32} {number}, splat (float 5.0e-01)")
        denormal = self._op("sub", self.f.let(f"bitcast {f32} {aligned} to {i32}"), 0x3F000000)
        small = self.f.let(f"icmp ult {i32} {magnitude}, splat (i32 {113 << 23})")
        value = self.f.let(f"select <{self.lanes} x i1> {small}, {i32} {denormal}, {i32} {normal}")
        large = self.f.let(f"icmp uge {i32} {magnitude}, splat (i32 {0x477FF000})")
        value = self.f.let(
            f"select <{self.lanes} x i1> {large}, {i32} splat (i32 31744), {i32} {value}"
        )
        value = self.f.let(
            f"select <{self.lanes} x i1> {nan}, {i32} splat (i32 32256), {i32} {value}"
        )
        return self.f.let(f"trunc {i32} {self.f.let(f'or {i32} {value}, {sign}')} to {i16}")

    def _op(self, word: str, a: str, constant: int) -> str:
        return self.f.let(f"{word} <{self.lanes} x i32> {a}, splat (i32 {constant})")


def item_bytes(dtype: str) -> int:
    """Bytes of one element in memory."""
    return ITEM_BYTES[dtype]


Bounds = tuple[float, float, bool]
"""The least and the greatest number, and whether it may be NaN."""


def float_bounds(expr: Expr) -> Bounds:
    """Return bounds of a float; an element of an array has none.

    ``where(x < c, x, c)`` is at most c, and c where x is NaN.
    """
    match expr:
        case Const(value):
            return (-inf, inf, True) if value != value else (float(value), float(value), False)
        case Unary("round" | "floor" | "ceil", a):
            return float_bounds(a)
        case Binary("min" | "max" as op, a, Const(limit)):
            low, high, may_be_nan = float_bounds(a)
            end, cut = float(limit), min if op == "min" else max
            return cut(low, end), cut(high, end), may_be_nan or end != end
        case Select(Compare("<" | "<=" | ">" | ">=" as op, a, Const(limit)), then, Const(other)):
            if a == then and limit == other:
                low, high, _ = float_bounds(a)
                end = float(limit)
                below = op[0] == "<"
                return (
                    (min(low, end), min(high, end), False)
                    if below
                    else (max(low, end), max(high, end), False)
                )
    return -inf, inf, True
