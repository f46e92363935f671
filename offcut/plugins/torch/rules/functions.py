"""Functions of one element."""

from __future__ import annotations

import math
from typing import Any

from offcut.core.dtypes import HALVES, INTEGERS, ITEM_BYTES
from offcut.core.expr import Expr
from offcut.core.function import Function
from offcut.core.function_table import FUNCTIONS
from offcut.graph import Ref
from offcut.plugins.operators import functions as special
from offcut.plugins.torch.rule_table import Unsupported, register_rule, same, takes_prim
from offcut.plugins.torch.translation import Translation

for _name in (
    "relu",
    "relu6",
    "silu",
    "sigmoid",
    "rsqrt",
    "reciprocal",
    "square",
    "hardswish",
    "hardsigmoid",
):
    register_rule(_name, op=_name)(same)
register_rule("neg", op="negative")(same)


@register_rule("gelu")
def gelu(t: Translation, x: Ref, *, approximate: str = "none") -> Any:
    return t.node("gelu_tanh" if approximate == "tanh" else "gelu", x)


@register_rule("elu")
def elu(
    t: Translation, x: Ref, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0
) -> Any:
    if input_scale != 1:
        power = special.exponential_less_one(t.node, t.node("multiply", x, input_scale))
        below = t.node("multiply", power, alpha)
        result = t.node("where", t.node("greater", x, 0.0), x, below)
    else:
        result = t.node("elu", x, alpha=float(alpha))
    return result if scale == 1 else t.node("multiply", result, scale)


def in_double(t: Translation, x: Ref, *, formula: special.Formula) -> Any:
    """Translate a function that cancels near 0, calculated in float64 for narrower floats."""
    if t.result == "float64":
        raise Unsupported("it is not exact in float64")
    return t.as_result(formula(t.node, t.cast(x, "float64")))


def composed(t: Translation, x: Ref, *, formula: special.Formula) -> Any:
    """Translate a function that is composed of ours."""
    return formula(t.node, t.as_result(x))


for _formulas, _rule in ((special.IN_DOUBLE, in_double), (special.OF_ANY_FLOAT, composed)):
    for (_theirs, _), _formula in _formulas.items():
        register_rule(_theirs, formula=_formula)(_rule)


@register_rule("exp2")
def exp2(t: Translation, x: Ref) -> Any:
    return t.node("power", t.scalar(2, t.result), t.as_result(x))


@register_rule("signbit")
def signbit(t: Translation, x: Ref) -> Any:
    if "float" not in t.dtype(x):
        return t.node("less", t.cast(x, "int32") if t.dtype(x) == "bool" else x, 0)
    return special.is_negative(t.node, x)


@register_rule("round.decimals")
def round_decimals(t: Translation, x: Ref, *, decimals: Any = 0) -> Any:
    if not isinstance(decimals, int):
        raise Unsupported("how many digits it keeps is a size")
    if "float" not in t.result or not decimals:
        return x if "float" not in t.result else t.node("round", x)
    scale, ways = float(10 ** abs(decimals)), ("multiply", "divide")
    into, back = ways if decimals > 0 else ways[::-1]
    return t.node(back, t.node("round", t.node(into, x, scale)), scale)


@register_rule("trunc", "fix")
def trunc(t: Translation, x: Ref) -> Any:
    if not t.result.startswith(("float", "bfloat")):
        return x
    return t.node("where", t.node("less", x, 0.0), t.node("ceil", x), t.node("floor", x))


@register_rule("sign", "sgn")
def sign(t: Translation, x: Ref) -> Any:
    """That of NaN is 0, and so is that of -0.0."""
    if t.result == "bool":
        return x
    result = t.node("sign", t.as_result(x))
    if "float" not in t.result:
        return result
    return t.node("where", t.node("greater", t.node("absolute", result), 0.0), result, 0.0)


@register_rule("leaky_relu")
def leaky_relu(t: Translation, x: Ref, slope: float = 0.01) -> Any:
    return t.node("leaky_relu", x, slope=float(slope))


@register_rule("softplus")
def softplus(t: Translation, x: Ref, beta: float = 1.0, threshold: float = 20.0) -> Any:
    """``log(1 + exp(beta * x)) / beta``, and x where ``beta * x`` is above the threshold."""
    scaled = x if beta == 1 else t.node("multiply", x, float(beta))
    result = t.node("softplus", scaled)
    result = result if beta == 1 else t.node("divide", result, float(beta))
    if threshold >= (40 if t.result == "float64" else 20):  # beyond which they are equal
        return result
    return t.node("where", t.node("greater", scaled, float(threshold)), x, result)


@register_rule("hypot")
def hypot(t: Translation, x: Ref, y: Ref) -> Any:
    """``sqrt(x**2 + y**2)`` without its overflow: the larger size times that of the smaller in its units; inf where one is."""
    sizes = [t.node("absolute", t.as_result(one)) for one in (x, y)]
    less, more = (t.node(op, *sizes) for op in ("minimum", "maximum"))
    share = t.node("where", t.node("equal", more, 0.0), 0.0, t.node("divide", less, more))
    result = t.node("multiply", more, t.node("sqrt", t.node("add", t.node("square", share), 1.0)))
    far = t.node("logical_or", *(t.node("equal", one, math.inf) for one in sizes))
    return t.node("where", far, math.inf, result)


@register_rule("angle")
def angle(t: Translation, x: Ref) -> Any:
    """Of real numbers: pi below 0."""
    value = t.as_result(x)
    result = t.node("where", t.node("less", value, 0.0), math.pi, 0.0, dtype=t.result)
    return t.node("where", isnan(t, value), value, result)


@register_rule("ldexp.Tensor", rounds_each=True)
def ldexp(t: Translation, x: Ref, exponent: Ref) -> Any:
    power = t.node("power", t.scalar(2, t.result), t.as_result(exponent))
    return t.node("multiply", t.as_result(x), power)


@register_rule("mish")
def mish(t: Translation, x: Ref) -> Any:
    return t.node("multiply", x, t.node("tanh", t.node("softplus", x)))


@register_rule("hardtanh")
def hardtanh(t: Translation, x: Ref, low: float = -1.0, high: float = 1.0) -> Any:
    return t.node("clip", x, low=low, high=high)


@register_rule("clamp", "clamp.Tensor", "clip", "clip.Tensor")
def clamp(t: Translation, x: Ref, low: Any = None, high: Any = None) -> Any:
    result = t.as_result(x)
    if not any(isinstance(one, Ref | Expr) for one in (low, high)):
        return t.node("clip", result, low=low, high=high)
    for op, end in (("maximum", low), ("minimum", high)):
        if end is not None:
            result = t.node(op, result, operand(t, end, t.result))
    return result


@register_rule("log2", base=2)
@register_rule("log10", base=10)
def logarithm(t: Translation, x: Ref, *, base: int) -> Any:
    return t.node("multiply", t.node("log", t.as_result(x)), 1 / math.log(base))


@register_rule("logical_not", "bitwise_not")
def logical_not(t: Translation, x: Ref) -> Any:
    if t.result != "bool":
        return t.node("bitwise_not", x)
    return t.node("logical_not", truth(t, x))


@register_rule("isnan")
def isnan(t: Translation, x: Ref) -> Any:
    return t.node("not_equal", x, x)


@register_rule(
    "_to_copy", "to.dtype", "to.device", "to.dtype_layout", "clone", "contiguous", "type_as"
)
def convert(t: Translation, x: Ref, *_: Any, **__: Any) -> Any:
    """Return the same elements, in the type of the result; whether memory is shared is seen to where it is given out."""
    if t.result == "bool":
        return truth(t, x)
    return (
        _truncate(t, x) if t.result in _WRAPPED and "float" in t.dtype(x) else t.cast(x, t.result)
    )


_WRAPPED = {**dict.fromkeys(("int8", "uint8", "int16", "int32"), "int32"), "int64": "int64"}
"""The integers of which torch takes the low bits, where it converts floats to others."""


def _truncate(t: Translation, x: Ref) -> Ref:
    """Floats as integers, towards 0; one that is too far for int32, or for int64, as the least of these, as processors of x86 do it."""
    kind = _WRAPPED[t.result]
    least = -(2.0 ** (8 * ITEM_BYTES[kind] - 1))
    wide = t.cast(x, "float32") if t.dtype(x) in HALVES else x
    near = t.node("less", t.node("absolute", wide), -least)
    return t.cast(t.cast(t.node("where", near, wide, least), kind), t.result)


@register_rule("view.dtype")
def seen_as(t: Translation, x: Ref, kind: Any) -> Any:
    """Of integers: those of as many bits wrap."""
    old, new = t.dtype(x), t.result
    integers = old in INTEGERS and new in INTEGERS
    if old != new and not (integers and ITEM_BYTES[old] == ITEM_BYTES[new]):
        raise Unsupported(f"it takes bits of {old} for {new}")
    return t.cast(x, new)


takes_prim("convert_element_type", "copy_strided")(convert)


@register_rule(
    *("alias", "detach", "lift_fresh_copy", "lift_fresh", "_assert_tensor_metadata", "positive"),
)
def itself(t: Translation, x: Ref) -> Any:
    return x


@register_rule("dropout", "feature_dropout", "native_dropout")
def dropout(t: Translation, x: Ref, rate: float, train: bool | None) -> Any:
    if train and rate:
        raise Unsupported("it is random")
    return (x, None) if isinstance(t.fake, tuple | list) else x


@register_rule("isinf")
def infinite(t: Translation, x: Ref) -> Ref:
    """Return whether each element is infinite."""
    result: Ref = t.node("equal", t.node("absolute", x), math.inf)
    return result


def operand(t: Translation, x: Any, dtype: str) -> Any:
    """Return an operand in an element type; a number stays one."""
    if isinstance(x, Ref):
        return t.cast(x, dtype)
    return t.scalar(x, dtype) if isinstance(x, Expr) else x


def truth(t: Translation, x: Ref) -> Ref:
    """Return whether each element is not 0."""
    result: Ref = x if t.dtype(x) == "bool" else t.node("not_equal", x, 0)
    return result


def elementwise_function(t: Translation, *operands: Any, row: Function) -> Any:
    """Translate the operator of a row: of integers it gives floats, or, as those that round, the integers."""
    if not row.integers and "float" not in t.result:
        return operands[0]
    return t.node(row.public, *(operand(t, one, t.result) for one in operands))


for _row in FUNCTIONS.values():
    if _row.aten and _row.public:
        register_rule(_row.aten, row=_row)(
            elementwise_function
        )  # in place of a rule above that composes it
