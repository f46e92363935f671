"""Functions of two elements and more: arithmetic, comparisons, choices; element types as torch promotes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from offcut.core.dtypes import HALVES, INTEGERS
from offcut.core.expr import Expr
from offcut.graph import Ref
from offcut.graph.call_conditions import assert_condition
from offcut.graph.sizes.extent_values import plain
from offcut.plugins.operators.functions import is_negative, truncated_quotient
from offcut.plugins.torch.dtypes import NAMES, is_rounded
from offcut.plugins.torch.rule_table import Unsupported, register_rule
from offcut.plugins.torch.rules.functions import operand, truth
from offcut.plugins.torch.translation import Operand, Translation

_MOST = 64
"""Whole powers up to this are products."""

_TORCH = {name: dtype for dtype, name in NAMES.items()}


_OF_TRUTHS = {
    "add": "logical_or",
    "maximum": "logical_or",
    "minimum": "logical_and",
    "multiply": "logical_and",
}
"""What arithmetic of bool is."""


def binary(t: Translation, op: str, x: Operand, y: Operand, dtype: str | None = None) -> Any:
    """``op(x, y)`` of operands in one element type: by default that of the result. Torch rounds numbers to 16 bits, but for factors."""
    into = t.result if dtype is None else dtype
    if op not in ("multiply", "divide"):
        x, y = (t.rounded_number(one) for one in (x, y))
    elif any(_is_wider(t, one, into) for one in (x, y)):
        return t.cast(binary(t, op, x, y, "float32"), into)
    if into == "bool" and op in _OF_TRUTHS:
        truths = (truth(t, one if isinstance(one, Ref) else t.scalar(one, into)) for one in (x, y))
        return t.node(_OF_TRUTHS[op], *truths)
    return t.node(op, *(operand(t, one, into) for one in (x, y)))


def _is_wider(t: Translation, x: Operand, kind: str) -> bool:
    """Whether elements of 16 bits are multiplied by a number that they do not hold: a wider one without axes may be such."""
    if isinstance(x, Ref):
        return kind in HALVES and t.dtype(x) in ("float32", "float64")
    return is_rounded(x, kind)


def promoted_dtype(t: Translation, x: Operand, y: Operand) -> str:
    """The element type in which torch compares two operands."""
    samples = [
        torch.empty([1] * min(t.rank(one), 1), dtype=_TORCH[t.dtype(one)])
        if isinstance(one, Ref)
        else 0
        if isinstance(one, Expr)
        else one
        for one in (x, y)
    ]
    return NAMES[torch.result_type(*samples)]


def arithmetic(t: Translation, x: Operand, y: Operand, *, op: str) -> Any:
    return binary(t, op, x, y)


def comparison(t: Translation, x: Operand, y: Operand, *, op: str) -> Any:
    dtype = promoted_dtype(t, x, y)
    return binary(t, op, x, y, "int32" if dtype == "bool" else dtype)  # compared as numbers


for _name, _op in (("mul", "multiply"), ("maximum", "maximum"), ("minimum", "minimum")):
    _ends = ("Tensor", "Scalar", "Scalar_Tensor")
    register_rule(_name, *(f"{_name}.{end}" for end in _ends), op=_op)(arithmetic)

for _name, _op in (
    *(("eq", "equal"), ("ne", "not_equal"), ("lt", "less"), ("le", "less_equal")),
    *(("gt", "greater"), ("ge", "greater_equal")),
):
    register_rule(f"{_name}.Tensor", f"{_name}.Scalar", op=_op)(comparison)

register_rule("div.Tensor", "div.Scalar", "true_divide.Tensor", op="divide")(arithmetic)


@register_rule("fmax", op="maximum")
@register_rule("fmin", op="minimum")
def extreme_but_for_nan(t: Translation, x: Ref, y: Ref, *, op: str) -> Any:
    """One of two, the other where the one is NaN."""
    x, y = t.as_result(x), t.as_result(y)
    if "float" not in t.result:
        return binary(t, op, x, y)
    one = t.node("where", t.node("equal", x, x), x, y)
    return t.node(op, one, t.node("where", t.node("equal", y, y), y, one))


@register_rule("add.Tensor", "add.Scalar", op="add")
@register_rule("sub.Tensor", "sub.Scalar", "subtract.Tensor", op="subtract")
def add_scaled(t: Translation, x: Operand, y: Operand, alpha: Any = 1, *, op: str) -> Any:
    return binary(t, op, x, times(t, y, alpha))


@register_rule("div.Tensor_mode", "div.Scalar_mode")
def div_mode(t: Translation, x: Operand, y: Operand, *, rounding_mode: str | None = None) -> Any:
    if rounding_mode is None:
        return binary(t, "divide", x, y)
    if rounding_mode == "floor":
        return floor_divide(t, x, y)
    if t.result in INTEGERS:
        return _truncated_quotient(t, x, y)
    if "float" not in t.result:
        raise Unsupported(f"it rounds a quotient of {t.result} towards 0")
    quotient = binary(t, "divide", x, y)
    quotient = (
        t.as_held(quotient) if isinstance(y, Ref) else quotient
    )  # torch rounds it first, but by numbers
    up, down = t.node("ceil", quotient), t.node("floor", quotient)
    return t.node("where", t.node("less", quotient, 0.0), up, down)


def _truncated_quotient(t: Translation, x: Operand, y: Operand) -> Any:
    """The quotient of integers, rounded towards 0."""
    return _of_divisor(
        t, y, lambda: truncated_quotient(t, _as_refs(t, x)[0], operand(t, y, t.result))
    )


def _is_other_signed(t: Translation, rest: Ref, x: Ref) -> Ref:
    """Whether a remainder is neither 0 nor of the sign of another number."""
    unlike = t.node("not_equal", t.node("less", rest, 0), t.node("less", x, 0))
    result: Ref = t.node("logical_and", t.node("not_equal", rest, 0), unlike)
    return result


def _as_refs(t: Translation, *operands: Operand) -> tuple[Ref, ...]:
    """Operands as arrays in the element type of the result."""
    return tuple(
        t.as_result(one if isinstance(one, Ref) else t.scalar(one, t.result)) for one in operands
    )


def _of_divisor(t: Translation, y: Operand, quotient: Callable[[], Any]) -> Any:
    """What is calculated of integers by a divisor: a call in which that is 0 is refused, so that torch raises what it raises."""
    if t.result not in INTEGERS or (isinstance(y, int) and y != 0) or t.is_above_0(y):
        return quotient()
    if not isinstance(y, Ref | Expr):
        raise Unsupported("it divides integers by 0")
    (divisor,) = _as_refs(t, y)
    return assert_condition(t.node, quotient(), t.result, t.node("not_equal", divisor, 0))


@register_rule("remainder", *(f"remainder.{end}" for end in ("Tensor", "Scalar", "Scalar_Tensor")))
def remainder(t: Translation, x: Operand, y: Operand) -> Any:
    """The remainder that has the sign of the divisor; of floats, one that is 0 has that of the dividend."""
    if t.result in INTEGERS:
        return _of_divisor(t, y, lambda: binary(t, "remainder", x, y))
    x, y = _as_refs(t, *(t.rounded_number(one) for one in (x, y)))
    rest = t.node("remainder", x, y)
    return t.node("where", t.node("equal", rest, 0.0), t.node("multiply", x, 0.0), rest)


@register_rule("floor_divide", "floor_divide.Scalar")
def floor_divide(t: Translation, x: Operand, y: Operand) -> Any:
    """The quotient, rounded down: of floats, without the remainder, and the next integer below where that has another sign."""
    if t.result in INTEGERS:
        return _of_divisor(t, y, lambda: binary(t, "floor_divide", x, y))
    if "float" not in t.result:
        raise Unsupported(f"it rounds a quotient of {t.result}")
    x, y = _as_refs(t, x, y)
    rest, quotient = fmod(t, x, y), t.node("divide", x, y)
    ratio = t.node("divide", t.node("subtract", x, rest), y)
    ratio = t.node("where", _is_other_signed(t, rest, y), t.node("subtract", ratio, 1.0), ratio)
    floored = t.node("floor", ratio)
    more = t.node("greater", t.node("subtract", ratio, floored), 0.5)
    floored = t.node("where", more, t.node("add", floored, 1.0), floored)
    small = t.node("equal", ratio, 0.0)
    floored = t.node("where", small, copysign(t, t.node("multiply", ratio, 0.0), quotient), floored)
    return t.node("where", t.node("equal", y, 0.0), quotient, floored)


@register_rule("fmod.Tensor", "fmod.Scalar")
def fmod(t: Translation, x: Operand, y: Operand) -> Any:
    """The remainder that has the sign of the dividend."""
    if t.result in INTEGERS:
        rest = remainder(t, x, y)
        x, y = _as_refs(t, x, y)
        unlike = _is_other_signed(t, rest, x)
        return t.node("where", unlike, t.node("subtract", rest, y), rest)
    x, y = _as_refs(t, *(t.rounded_number(one) for one in (x, y)))
    return copysign(t, t.node("remainder", *(t.node("absolute", one) for one in (x, y))), x)


@register_rule("copysign.Tensor", "copysign.Scalar")
def copysign(t: Translation, x: Ref, y: Operand) -> Any:
    """The size of one with the sign of the other, which zeros have, too."""
    other = t.as_result(y) if isinstance(y, Ref) else t.scalar(y, t.result)
    size = t.node("absolute", t.as_result(x))
    return t.node("where", is_negative(t.node, other), t.node("negative", size), size)


for _name, _op in (("left", "shift_left"), ("right", "shift_right")):
    _ends = ("Tensor", "Tensor_Scalar", "Scalar_Tensor")
    register_rule(*(f"bitwise_{_name}_shift.{end}" for end in _ends), op=_op)(arithmetic)
    register_rule(*(f"__{_name[0]}shift__.{end}" for end in ("Tensor", "Scalar")), op=_op)(
        arithmetic
    )


@register_rule("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar")
def power(t: Translation, x: Operand, y: Operand) -> Any:
    if isinstance(y, int | float) and 1 <= y <= _MOST and y == int(y):
        return _power_by_squares(t, t.as_result(x), int(y))
    if t.result in INTEGERS:
        shape, both = tuple(map(plain, t.extents)), _as_refs(t, x, y)
        return t.node("integer_power", *(t.node("broadcast_to", one, shape) for one in both))
    if not isinstance(x, Ref):
        x = t.scalar(x, t.result)
    return binary(t, "power", x, y)


@register_rule("addcmul", op="multiply")
@register_rule("addcdiv", op="divide")
def plus_combined(t: Translation, x: Ref, y: Ref, z: Ref, *, value: Any = 1, op: str) -> Any:
    return binary(t, "add", x, binary(t, op, times(t, y, value), z))


@register_rule("lerp.Scalar", "lerp.Tensor")
def lerp(t: Translation, x: Ref, y: Ref, weight: Operand) -> Any:
    """From the end that is nearer."""
    x, y, weight = _as_refs(t, x, y, weight)
    whole = t.node("subtract", y, x)
    back = t.node("multiply", whole, t.node("subtract", 1.0, weight))
    near = t.node("add", x, t.node("multiply", whole, weight))
    is_near = t.node("less", t.node("absolute", weight), 0.5)
    return t.node("where", is_near, near, t.node("subtract", y, back))


@register_rule("where.self", "where.ScalarSelf", "where.ScalarOther", "where.Scalar")
def where(t: Translation, condition: Ref, x: Operand, y: Operand) -> Any:
    operands = [operand(t, one, t.result) for one in (x, y)]
    if not any(isinstance(one, Ref) for one in operands):
        operands[0] = t.scalar(operands[0], t.result)
    return t.node("where", truth(t, condition), *operands)


def logical(t: Translation, x: Operand, y: Operand, *, word: str) -> Any:
    if t.result != "bool":
        return binary(t, f"bitwise_{word}", x, y)
    truths = (truth(t, one if isinstance(one, Ref) else t.scalar(one, "bool")) for one in (x, y))
    return t.node(f"logical_{word}", *truths)


for _word in ("and", "or", "xor"):
    _ends = ("Tensor", "Scalar", "Scalar_Tensor")
    _names = f"logical_{_word}", *(f"bitwise_{_word}.{end}" for end in _ends)
    register_rule(*_names, word=_word)(logical)


def _power_by_squares(t: Translation, x: Any, times: int) -> Any:
    """A power by squares and products."""
    if times == 1:
        return x
    half = t.node("square", _power_by_squares(t, x, times // 2))
    return t.node("multiply", half, x) if times % 2 else half


def times(t: Translation, x: Operand, factor: Any) -> Any:
    """A multiple of an operand."""
    return x if factor == 1 else binary(t, "multiply", x, factor)
