"""Statements on accumulators as operations of the vector unit, each of which changes a word in place.

::

    T = a // 64     T lies over a:  shr 6
    T = a - b       T lies over b:  mul -1, add a
    T = a // 3      T lies over a:  add 129, mul 171, shr 9, add -43    where a is of int8
    T = a % 8       T is a copy:    shr 3, mul -8, add a

What is of int8 or uint8 is kept as the int32 of its value; an operation that may leave its type is followed by
two shifts, which cut it as int8 does, of uint8 between two additions of half its range.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from offcut.backends.accelerator.isa import AluOp
from offcut.backends.accelerator.lowering.division import divided
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


Values = Callable[[Load], tuple[int, int]]
"""The least and the greatest value of an element."""

_SHIFTS = ((AluOp.SHR, -24), (AluOp.SHR, 24))
_CUTS: dict[str, tuple[tuple[AluOp, Other], ...]] = {
    "int8": _SHIFTS,
    "uint8": ((AluOp.ADD, 128), *_SHIFTS, (AluOp.ADD, 128)),
    "int32": (),
}
"""What an element type does to words that may have left it."""
_SAME = {
    "+": AluOp.ADD,
    "sum": AluOp.ADD,
    "*": AluOp.MUL,
    "min": AluOp.MIN,
    "max": AluOp.MAX,
}
"""What an operation, or a reduction, is alone."""
_WITHIN = ("min", "max", "//", "%")
"""Operations that leave no element type."""


def of_any(load: Load) -> tuple[int, int]:
    """Values of which everything is exact: where it is asked what an operation lies over, not how it is computed."""
    return 0, 0


def recipe(store: Store, dtype: str, values: Values) -> Recipe | None:
    """The operations of a statement whose result is of `dtype`; None where there are none for it.

    values  of what it reads: a division is exact on a range
    """
    if dtype not in _CUTS:
        return None
    if store.reduce is not None:
        other = _leaf(store.value)
        if not isinstance(other, Load):
            return None
        cut = _CUTS[dtype] if store.reduce == "sum" else ()
        return Recipe(None, False, ((_SAME[store.reduce], other), *cut), update=True)
    found = _of(store.value, values)
    if found is None:
        return None
    match store.value:
        case Cast(a, _):
            leaves = dtype_of(a) != dtype
        case Binary(op):
            leaves = op not in _WITHIN
        case _:
            leaves = _leaf(store.value) is None
    return replace(found, steps=(*found.steps, *_CUTS[dtype])) if leaves else found


def undivided(store: Store, values: Values) -> tuple[Load, int] | None:
    """What a statement divides, and by what, where this is not exact; None where that is not why it does not run."""
    match store.value:
        case Binary("//" | "%", a, b):
            x, y = _leaf(a), _leaf(b)
            if isinstance(x, Load) and isinstance(y, int) and divided(y, *values(x)) is None:
                return x, y
    return None


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


def _of(value: Expr, values: Values) -> Recipe | None:
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
            return _binary(op, _leaf(a), _leaf(b), values)
    return None


def _binary(op: str, x: Other | None, y: Other | None, values: Values) -> Recipe | None:
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
    if op in ("//", "%") and isinstance(x, Load) and isinstance(y, int):
        steps = divided(y, *values(x))
        if steps is None:
            return None
        if op == "//":
            return Recipe(x, False, steps)
        return Recipe(x, True, (*steps, (AluOp.MUL, -y), (AluOp.ADD, x)))
    return None
