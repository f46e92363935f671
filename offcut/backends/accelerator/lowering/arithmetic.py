"""Statements on accumulators as operations of the vector unit, each of which changes a word in place.

::

    T = a // 64     T lies over a:  shr 6
    T = a - b       T lies over b:  mul -1, add a
    T = a % 8       T is a copy:    shr 3, shr -3, mul -1, add a

What is of int8 is kept as the int32 of its value; an operation that may leave int8 is followed by two shifts,
which cut it as int8 does.
"""

from __future__ import annotations

from dataclasses import dataclass

from offcut.backends.accelerator.isa import AluOp
from offcut.core.expr import Binary, Cast, Const, Expr, Load, Unary, dtype_of
from offcut.core.program import Store

Other = Load | int
"""A second word, or an immediate."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """What is done to each word of a result.

    base   the element that the word begins with; None: zero; of an update: what is there
    copied whether it must be a copy: the element is read again
    steps  in order
    """

    base: Load | None
    copied: bool
    steps: tuple[tuple[AluOp, Other], ...]
    update: bool = False

    @property
    def reads(self) -> tuple[Load, ...]:
        """Elements that are read."""
        own = () if self.base is None else (self.base,)
        return (*own, *(other for _, other in self.steps if isinstance(other, Load)))


_CUT = ((AluOp.SHR, -24), (AluOp.SHR, 24))
_SAME = {"+": AluOp.ADD, "*": AluOp.MUL, "min": AluOp.MIN, "max": AluOp.MAX}
_REDUCES = {"sum": AluOp.ADD, "max": AluOp.MAX, "min": AluOp.MIN}


def recipe(store: Store, dtype: str) -> Recipe | None:
    """The operations of a statement whose result is of `dtype`; None where there are none for it."""
    if store.reduce is not None:
        other = _leaf(store.value)
        if not isinstance(other, Load) or (dtype == "uint8" and store.reduce == "sum"):
            return None
        cut = _CUT if dtype == "int8" and store.reduce == "sum" else ()
        return Recipe(None, False, ((_REDUCES[store.reduce], other), *cut), update=True)
    found = _of(store.value)
    if found is None:
        return None
    leaves = isinstance(store.value, Cast) and dtype_of(store.value.a) != dtype
    exact = isinstance(store.value, Binary) and store.value.op in ("min", "max", "//", "%")
    if not (leaves or (not exact and found.steps)) or dtype == "int32":
        return found
    if dtype == "uint8":
        return None
    if not isinstance(store.value, Cast) and _leaf(store.value) is not None:
        return found
    return Recipe(found.base, found.copied, (*found.steps, *_CUT))


def _leaf(expr: Expr) -> Other | None:
    """An element, or a constant; conversions to a wider type change no value."""
    match expr:
        case Const(value, _):
            return int(value)
        case Load():
            return expr
        case Cast(a, "int32"):
            return _leaf(a)
    return None


def _of(value: Expr) -> Recipe | None:
    alone = _leaf(value)
    if isinstance(alone, Load):
        return Recipe(alone, False, ())
    if alone is not None:
        return Recipe(None, False, ((AluOp.ADD, alone),) if alone else ())
    match value:
        case Cast(a, _):
            inner = _leaf(a)
            return Recipe(inner, False, ()) if isinstance(inner, Load) else None
        case Unary("neg", a) if isinstance(x := _leaf(a), Load):
            return Recipe(x, False, ((AluOp.MUL, -1),))
        case Unary("abs", a) if isinstance(x := _leaf(a), Load):
            return Recipe(x, True, ((AluOp.MUL, -1), (AluOp.MAX, x)))
        case Binary(op, a, b):
            return _binary(op, _leaf(a), _leaf(b))
    return None


def _binary(op: str, x: Other | None, y: Other | None) -> Recipe | None:
    if x is None or y is None:
        return None
    if op in _SAME:
        if not isinstance(x, Load):
            x, y = y, x
        return Recipe(x, x == y, ((_SAME[op], y),)) if isinstance(x, Load) else None
    if op == "-":
        if isinstance(x, Load) and isinstance(y, int):
            return Recipe(x, False, ((AluOp.ADD, -y),))
        if isinstance(y, Load):
            return Recipe(y, x == y, ((AluOp.MUL, -1), (AluOp.ADD, x)))
    if op in ("//", "%") and isinstance(x, Load) and isinstance(y, int) and _is_power(y):
        bits = y.bit_length() - 1
        if op == "//":
            return Recipe(x, False, ((AluOp.SHR, bits),))
        steps = ((AluOp.SHR, bits), (AluOp.SHR, -bits), (AluOp.MUL, -1), (AluOp.ADD, x))
        return Recipe(x, True, steps)
    return None


def _is_power(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0
