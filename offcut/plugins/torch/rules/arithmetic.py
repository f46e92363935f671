"""Functions of two elements and more: arithmetic, comparisons, choices; element types as torch promotes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from offcut.core.dtypes import HALVES, INTEGERS
from offcut.core.expr import Expr
from offcut.graph import Ref
from offcut.graph.special.inverses import is_negative
from offcut.plugins.torch.dtypes import NAMES
from offcut.plugins.torch.halves import is_rounded
from offcut.plugins.torch.left import Left
from offcut.plugins.torch.rules.functions import operand, truth
from offcut.plugins.torch.table import takes
from offcut.plugins.torch.translation import Operand, Translation, plain

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
    """``op(x, y)`` of operands in one element type: by default that of the result. Torch rounds a factor to none of 16 bits."""
    into = t.result if dtype is None else dtype
    if op in ("multiply", "divide") and any(_is_wider(t, one, into) for one in (x, y)):
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


def promoted(t: Translation, x: Operand, y: Operand) -> str:
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


def _arithmetic(op: str) -> Callable[..., Any]:
    def rule(t: Translation, x: Operand, y: Operand) -> Any:
        return binary(t, op, x, y)

    return rule


def _comparison(op: str) -> Callable[..., Any]:
    def rule(t: Translation, x: Operand, y: Operand) -> Any:
        dtype = promoted(t, x, y)
        if dtype == "bool":  # compared as numbers
            dtype = "int32"
        return binary(t, op, x, y, dtype)

    return rule


for _name, _op in (
    ("mul", "multiply"),
    ("maximum", "maximum"),
    ("minimum", "minimum"),
    ("remainder", "remainder"),
):
    takes(_name, *(f"{_name}.{end}" for end in ("Tensor", "Scalar", "Scalar_Tensor")))(
        _arithmetic(_op)
    )

for _name, _op in (
    *(("eq", "equal"), ("ne", "not_equal"), ("lt", "less"), ("le", "less_equal")),
    *(("gt", "greater"), ("ge", "greater_equal")),
):
    takes(f"{_name}.Tensor", f"{_name}.Scalar")(_comparison(_op))


def _but_for_nan(op: str) -> Callable[..., Any]:
    def rule(t: Translation, x: Ref, y: Ref) -> Any:
        """One of two, the other where the one is NaN."""
        x, y = t.as_result(x), t.as_result(y)
        if "float" not in t.result:
            return binary(t, op, x, y)
        one = t.node("where", t.node("equal", x, x), x, y)
        return t.node(op, one, t.node("where", t.node("equal", y, y), y, one))

    return rule


takes("fmax")(_but_for_nan("maximum"))
takes("fmin")(_but_for_nan("minimum"))


@takes("add.Tensor", "add.Scalar")
def add(t: Translation, x: Operand, y: Operand, alpha: Any = 1) -> Any:
    return _plus(t, "add", x, y, alpha)


@takes("sub.Tensor", "sub.Scalar", "subtract.Tensor")
def sub(t: Translation, x: Operand, y: Operand, alpha: Any = 1) -> Any:
    return _plus(t, "subtract", x, y, alpha)


@takes("rsub.Tensor", "rsub.Scalar")
def rsub(t: Translation, x: Operand, y: Operand, alpha: Any = 1) -> Any:
    return _plus(t, "subtract", y, x, alpha)


@takes("div.Tensor", "div.Scalar", "true_divide.Tensor")
def div(t: Translation, x: Operand, y: Operand) -> Any:
    return binary(t, "divide", x, y)


@takes("div.Tensor_mode", "div.Scalar_mode")
def div_mode(t: Translation, x: Operand, y: Operand, *, rounding_mode: str | None = None) -> Any:
    if rounding_mode is None:
        return div(t, x, y)
    if rounding_mode == "floor":
        return floor_divide(t, x, y)
    if t.result in INTEGERS:
        return _whole_quotient(t, x, y)
    if not t.result.startswith("float"):
        raise Left(f"it rounds a quotient of {t.result} towards 0")
    found = binary(t, "divide", x, y)
    up, down = t.node("ceil", found), t.node("floor", found)
    return t.node("where", t.node("less", found, 0.0), up, down)


def _whole_quotient(t: Translation, x: Operand, y: Operand) -> Any:
    """Of integers, rounded towards 0: that of their sizes, with the sign of the quotient."""
    whole, by = (
        t.as_result(one if isinstance(one, Ref) else t.scalar(one, t.result)) for one in (x, y)
    )
    found = t.node("floor_divide", t.node("absolute", whole), t.node("absolute", by))
    unlike = t.node("not_equal", t.node("less", whole, 0), t.node("less", by, 0))
    return t.node("where", unlike, t.node("negative", found), found)


@takes("floor_divide", "floor_divide.Scalar")
def floor_divide(t: Translation, x: Operand, y: Operand) -> Any:
    """Of floats: what is left without the remainder, which is rounded once, as torch does it."""
    if t.result in INTEGERS:
        return binary(t, "floor_divide", x, y)
    if not t.result.startswith("float"):
        raise Left(f"it rounds a quotient of {t.result}")
    whole, by = (
        t.as_result(one if isinstance(one, Ref) else t.scalar(one, t.result)) for one in (x, y)
    )
    rest = t.node("remainder", whole, by)
    found = t.node("round", t.node("divide", t.node("subtract", whole, rest), by))
    return t.node("where", t.node("equal", by, 0.0), t.node("divide", whole, by), found)


@takes("fmod.Tensor", "fmod.Scalar")
def fmod(t: Translation, x: Operand, y: Operand) -> Any:
    """The remainder that has the sign of the dividend."""
    whole, by = (
        t.as_result(one if isinstance(one, Ref) else t.scalar(one, t.result)) for one in (x, y)
    )
    rest = t.node("remainder", t.node("absolute", whole), t.node("absolute", by))
    return t.node("where", t.node("less", whole, 0), t.node("negative", rest), rest)


@takes("copysign.Tensor", "copysign.Scalar")
def copysign(t: Translation, x: Ref, y: Operand) -> Any:
    """The size of one with the sign of the other, which zeros have, too."""
    other = t.as_result(y) if isinstance(y, Ref) else t.scalar(y, t.result)
    size = t.node("absolute", t.as_result(x))
    return t.node("where", is_negative(t.node, other), t.node("negative", size), size)


for _name, _op in (("left", "shift_left"), ("right", "shift_right")):
    _ends = ("Tensor", "Tensor_Scalar", "Scalar_Tensor")
    takes(*(f"bitwise_{_name}_shift.{end}" for end in _ends))(_arithmetic(_op))
    takes(*(f"__{_name[0]}shift__.{end}" for end in ("Tensor", "Scalar")))(_arithmetic(_op))


@takes("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar")
def power(t: Translation, x: Operand, y: Operand) -> Any:
    if isinstance(y, int | float) and y == int(y) and 1 <= y <= _MOST:
        return _multiplied(t, t.as_result(x), int(y))
    if t.result in INTEGERS:
        both = (
            t.as_result(one) if isinstance(one, Ref) else t.scalar(one, t.result) for one in (x, y)
        )
        shape = tuple(map(plain, t.extents))
        return t.node("integer_power", *(t.node("broadcast_to", one, shape) for one in both))
    if not isinstance(x, Ref):
        x = t.scalar(x, t.result)
    return binary(t, "power", x, y)


@takes("addcmul")
def addcmul(t: Translation, x: Ref, y: Ref, z: Ref, *, value: Any = 1) -> Any:
    return binary(t, "add", x, _times(t, binary(t, "multiply", y, z), value))


@takes("addcdiv")
def addcdiv(t: Translation, x: Ref, y: Ref, z: Ref, *, value: Any = 1) -> Any:
    return binary(t, "add", x, _times(t, binary(t, "divide", y, z), value))


@takes("lerp.Scalar", "lerp.Tensor")
def lerp(t: Translation, x: Ref, y: Ref, weight: Operand) -> Any:
    return binary(t, "add", x, binary(t, "multiply", binary(t, "subtract", y, x), weight))


@takes("where.self", "where.ScalarSelf", "where.ScalarOther", "where.Scalar")
def where(t: Translation, condition: Ref, x: Operand, y: Operand) -> Any:
    return _chosen(t, condition, x, y)


@takes("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(t: Translation, x: Ref, mask: Ref, value: Operand) -> Any:
    return _chosen(t, mask, value, x)


def _logical(op: str, of_bits: str) -> Callable[..., Any]:
    def rule(t: Translation, x: Operand, y: Operand) -> Any:
        if t.result != "bool":
            return binary(t, of_bits, x, y)
        held = (truth(t, one if isinstance(one, Ref) else t.scalar(one, "bool")) for one in (x, y))
        return t.node(op, *held)

    return rule


for _word in ("and", "or", "xor"):
    _ends = ("Tensor", "Scalar", "Scalar_Tensor")
    takes(f"logical_{_word}", *(f"bitwise_{_word}.{end}" for end in _ends))(
        _logical(f"logical_{_word}", f"bitwise_{_word}")
    )


def _multiplied(t: Translation, x: Any, times: int) -> Any:
    """A power by squares and products."""
    if times == 1:
        return x
    half = t.node("square", _multiplied(t, x, times // 2))
    return t.node("multiply", half, x) if times % 2 else half


def _chosen(t: Translation, condition: Ref, x: Operand, y: Operand) -> Any:
    operands = [operand(t, one, t.result) for one in (x, y)]
    if not any(isinstance(one, Ref) for one in operands):
        operands[0] = t.scalar(operands[0], t.result)
    return t.node("where", truth(t, condition), *operands)


def _plus(t: Translation, op: str, x: Operand, y: Operand, alpha: Any) -> Any:
    return binary(t, op, x, _times(t, y, alpha))


def _times(t: Translation, x: Operand, factor: Any) -> Any:
    return x if factor == 1 else binary(t, "multiply", x, factor)
