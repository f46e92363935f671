"""Element-wise operators, and elementary functions that are made of those that offcut has.

Elementary functions that offcut has not: those that plugins compose for all hosts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import reduce
from typing import TypeAlias

import numpy as np

from offcut.core.dtypes import FLOATS, INTEGERS, ITEM_BYTES, UNSIGNED, numpy_dtype
from offcut.core.function_table import FUNCTIONS
from offcut.plugins.onnx.importer.context import Context, single_number
from offcut.plugins.onnx.importer.operands import (
    Call,
    KnownArray,
    Operand,
    Results,
    UnsupportedNode,
    dtype_of,
)
from offcut.plugins.operators import functions as special
from offcut.plugins.operators.functions import truncated_quotient

Operator: TypeAlias = Callable[[Context, Call], Results]
"""What a node gives, from its inputs; it raises Refused for one that it cannot take."""


def unary(name: str) -> Operator:
    """An operator of one operand that is called so in `offcut.ops`."""
    return lambda g, call: g.op(name, call[0])


def binary(name: str) -> Operator:
    """An operator of two operands, or of more in turn, that is called so in `offcut.ops`."""
    return lambda g, call: reduce(lambda a, b: g.binary(name, a, b), call.present)


def scalar(g: Context, name: str, x: Operand, value: float) -> Operand:
    """An operator of an operand and a number of its type."""
    return g.binary(name, x, number(g, x, value))


def number(g: Context, like: Operand, value: float) -> KnownArray:
    """A number of the type of an operand.

    Raises Refused for an integer that is none of the type.
    """
    dtype = g.dtype(like)
    try:
        return KnownArray(np.array(value, numpy_dtype(dtype)), dtype)
    except OverflowError:
        raise UnsupportedNode(f"{value} is not a value of {dtype}") from None


def _operator_with_attributes(name: str, **options: tuple[str, float]) -> Operator:
    """An operator whose options are attributes: by ours, that of ONNX and its default."""

    def rule(g: Context, call: Call) -> Results:
        parameters = {own: call.get(theirs, value) for own, (theirs, value) in options.items()}
        result: Operand = g.op(name, call[0], **parameters)
        return result

    return rule


def divide(g: Context, call: Call) -> Results:
    """``a / b``; of integers towards 0."""
    a, b = call[0], call[1]
    return g.binary("divide", a, b) if g.is_float(a) else _quotient(g, a, _divisor(g, b))


def _quotient(g: Context, a: Operand, b: Operand) -> Operand:
    """Of integers, towards 0."""
    known_number = single_number(b, g.rank(a))
    quotient: Operand = truncated_quotient(g, a, b if known_number is None else known_number)
    return quotient


def _divisor(g: Context, b: Operand) -> Operand:
    """A divisor of integers: a call in which one is 0 is refused, where that is not seen to be none."""
    if isinstance(b, KnownArray) and all(
        low > 0 or high < 0 for low, high in map(g.bounds, b.elements)
    ):
        return b
    if isinstance(b, KnownArray) and 0 in b.elements:
        raise UnsupportedNode("an integer is divided by 0")
    return g.require(b, g.binary("not_equal", b, number(g, b, 0)))


def _power(g: Context, call: Call) -> Results:
    x, exponent = call[0], call[1]
    if g.is_float(x):
        powers = g.binary("power", x, g.cast(exponent, g.dtype(x)))
        if not isinstance(exponent, KnownArray) or exponent.elements != [0.5]:
            return powers
        # that is the square root, but for -0.0 and -inf
        positive = g.op("where", scalar(g, "equal", x, 0.0), 0.0, powers)
        return g.op("where", scalar(g, "equal", x, -math.inf), math.inf, positive)
    if not g.is_float(exponent):
        exponent = g.cast(exponent, g.dtype(x))
        shape = g.shape(g.binary("equal", x, exponent))
        return g.op("integer_power", g.broadcast(x, shape), g.broadcast(exponent, shape))
    powers = g.binary("power", g.cast(x, "float64"), g.cast(exponent, "float64"))
    return g.cast(powers, g.dtype(x))


def _modulo(g: Context, call: Call) -> Results:
    """What is left of `a`: of the sign of `b`, or with ``fmod`` of that of `a`."""
    a, b, signed = call[0], call[1], call.get("fmod", 0)
    if not g.is_float(a):
        b = _divisor(g, b)
        if signed and g.dtype(a) not in UNSIGNED:
            return g.binary("subtract", a, g.binary("multiply", _quotient(g, a, b), b))
        return g.binary("remainder", a, b)
    if not signed:
        return g.binary("remainder", a, b)
    rest = g.binary("remainder", g.op("absolute", a), g.op("absolute", b))
    below = g.binary("less", a, number(g, a, 0))
    return g.op("where", below, g.op("negative", rest), rest)


def _mean(g: Context, call: Call) -> Results:
    parts = [g.in_float32(one) for one in call.present]
    total = reduce(lambda a, b: g.binary("add", a, b), parts)
    return g.cast(scalar(g, "multiply", total, 1 / len(parts)), g.dtype(call[0]))


def _extreme(name: str) -> Operator:
    """The greatest or the least of several."""
    return lambda g, call: binary(name)(g, call) if len(call.inputs) > 1 else call[0]


def _clip(g: Context, call: Call) -> Results:
    x, low, high = call[0], call.input(1), call.input(2)
    if call.version < 11:
        most = float(np.finfo(np.float32).max)
        return g.op("clip", x, low=call.get("min", -most), high=call.get("max", most))
    for name, bound in (("maximum", low), ("minimum", high)):
        x = x if bound is None else g.binary(name, x, bound)
    return x


def _cast(g: Context, call: Call) -> Results:
    call.overlook("saturate", "round_mode")  # of types of 8 bits that are not ours
    return g.cast(call[0], dtype_of(call.get("to")))


def _bit_cast(g: Context, call: Call) -> Results:
    """Of integers: those of as many bits wrap, and a condition is 0 or 1."""
    old, new = g.dtype(call[0]), dtype_of(call.get("to"))
    integers = new in INTEGERS and old in (*INTEGERS, "bool")
    if old != new and not (integers and ITEM_BYTES[old] == ITEM_BYTES[new]):
        raise UnsupportedNode(f"bits of {old} as {new}", "integers of as many bits")
    return g.cast(call[0], new)


def _cast_like(g: Context, call: Call) -> Results:
    call.overlook("saturate", "round_mode")  # likewise
    return g.cast(call[0], g.dtype(g.ref(call[1])))


def _dropout(g: Context, call: Call) -> Results:
    """Nothing is dropped when a model is used."""
    call.overlook("seed", "ratio")
    training, ratio = call.input(2), call.input(1)
    if g.number(training, "training_mode", False) and g.number(ratio, "ratio", 0.5):
        raise UnsupportedNode("it draws at random in training mode", "training_mode=0")
    if call.outputs == 1:
        return call[0]
    dtype = "bool" if call.version >= 10 else g.dtype(call[0])
    return call[0], g.full(g.shape(call[0]), 1, dtype)


def _leaky(g: Context, call: Call) -> Results:
    """``x`` above 0, ``slope * x`` below, with a slope for each channel."""
    x, slope = call[0], call[1]
    below = scalar(g, "less", x, 0.0)
    return g.op("where", below, g.binary("multiply", x, slope), x)


def _selu(g: Context, call: Call) -> Results:
    alpha, gamma = call.get("alpha", 1.6732632423543772), call.get("gamma", 1.0507009873554805)
    return scalar(g, "multiply", g.op("elu", call[0], alpha), gamma)


def _celu(g: Context, call: Call) -> Results:
    """``x`` above 0, ``alpha * (exp(x / alpha) - 1)`` below; where alpha is not above 0, what the body of ONNX says."""
    alpha, x = call.get("alpha", 1.0), call[0]
    if not alpha > 0:
        raise UnsupportedNode(f"alpha is {alpha}", "alpha above 0")
    low = g.op("elu", scalar(g, "divide", x, alpha), alpha)
    return g.op("where", scalar(g, "greater", x, 0.0), x, low)


def _gelu(g: Context, call: Call) -> Results:
    return g.op("gelu_tanh" if call.get("approximate", "none") == "tanh" else "gelu", call[0])


def _swish(g: Context, call: Call) -> Results:
    x, alpha = call[0], call.get("alpha", 1.0)
    if alpha == 1:
        return g.op("silu", x)
    return g.binary("multiply", x, g.op("sigmoid", scalar(g, "multiply", x, alpha)))


def _is_infinite(g: Context, call: Call) -> Results:
    infinities = [
        value
        for name, value in (("detect_positive", math.inf), ("detect_negative", -math.inf))
        if call.get(name, 1)
    ]
    comparisons = [scalar(g, "equal", call[0], value) for value in infinities]
    if not comparisons:
        return g.full(g.shape(call[0]), False, "bool")
    return reduce(lambda a, b: g.binary("logical_or", a, b), comparisons)


def _shrink(g: Context, call: Call) -> Results:
    """Nearer to 0 by `bias`; 0 where that is not beyond `lambd`."""
    bias, edge = call.get("bias", 0.0), call.get("lambd", 0.5)
    x = call[0] if g.is_float(call[0]) else g.cast(call[0], "float64")
    high = scalar(g, "subtract", x, bias)
    high = g.op("where", scalar(g, "greater", x, edge), high, number(g, x, 0))
    low = scalar(g, "add", x, bias)
    return g.cast(g.op("where", scalar(g, "less", x, -edge), low, high), g.dtype(call[0]))


def _shift(g: Context, call: Call) -> Results:
    """By the width or more, or by less than 0, as `offcut.core.expr.BITWISE` has it."""
    return g.binary(
        "shift_left" if call.get("direction") == "LEFT" else "shift_right", *call.present
    )


ELEMENTWISE: Mapping[str, Operator] = {
    "Add": binary("add"),
    "And": binary("logical_and"),
    "BitCast": _bit_cast,
    "BitShift": _shift,
    "BitwiseAnd": binary("bitwise_and"),
    "BitwiseNot": unary("bitwise_not"),
    "BitwiseOr": binary("bitwise_or"),
    "BitwiseXor": binary("bitwise_xor"),
    "Cast": _cast,
    "CastLike": _cast_like,
    "Celu": _celu,
    "Clip": _clip,
    "Div": divide,
    "Dropout": _dropout,
    "Elu": _operator_with_attributes("elu", alpha=("alpha", 1.0)),
    "Equal": binary("equal"),
    "Gelu": _gelu,
    "Greater": binary("greater"),
    "GreaterOrEqual": binary("greater_equal"),
    "HardSwish": unary("hardswish"),
    "Identity": lambda _, call: call[0],
    "IsInf": _is_infinite,
    "IsNaN": lambda g, call: g.op("not_equal", call[0], call[0]),
    "LeakyRelu": _operator_with_attributes("leaky_relu", slope=("alpha", 0.01)),
    "Less": binary("less"),
    "LessOrEqual": binary("less_equal"),
    "Max": _extreme("maximum"),
    "Mean": _mean,
    "Min": _extreme("minimum"),
    "Mod": _modulo,
    "Mul": binary("multiply"),
    "Neg": unary("negative"),
    "Not": unary("logical_not"),
    "Or": binary("logical_or"),
    "PRelu": _leaky,
    "Pow": _power,
    "Reciprocal": unary("reciprocal"),
    "Relu": unary("relu"),
    "Selu": _selu,
    "Shrink": _shrink,
    "Sigmoid": unary("sigmoid"),
    "Sign": unary("sign"),
    "Softplus": unary("softplus"),
    "Sub": binary("subtract"),
    "Sum": _extreme("add"),
    "Swish": _swish,
    "Where": lambda g, call: g.op("where", call[0], call[1], call[2]),
    "Xor": binary("logical_xor"),
}

OF_ROWS: Mapping[str, Operator] = {
    row.onnx: (unary if row.arity == 1 else binary)(row.public)
    for row in FUNCTIONS.values()
    if row.public and row.onnx
}
"""Those that `offcut.core.functions` has a row for; they stand before rules that compose them of others."""


def _composed(formula: special.Formula, in_double: bool) -> Operator:
    """Return a composed function; one that cancels near 0 is calculated in float64 for narrower floats."""

    def rule(g: Context, call: Call) -> Results:
        x, dtype = call[0], g.dtype(call[0])
        if in_double and (dtype not in FLOATS or dtype == "float64"):
            raise UnsupportedNode(f"it is not exact in {dtype}", "float32 and narrower")
        wide = g.cast(x, "float64") if in_double else g.in_float32(x)
        return g.cast(formula(g.op, g.ref(wide)), dtype)

    return rule


COMPOSED_FUNCTIONS: Mapping[str, Operator] = {
    name: _composed(formula, formulas is special.IN_DOUBLE)
    for formulas in (special.IN_DOUBLE, special.OF_ANY_FLOAT)
    for (_, name), formula in formulas.items()
    if name
}
