"""Conditions joined and taken apart: what holds where another fails, and what holds together."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from offcut.core import index as ix
from offcut.core.dtypes import FLOATS, INTEGERS, ITEM_BYTES, is_identity
from offcut.core.expr import (
    Binary,
    Cast,
    Compare,
    Const,
    Expr,
    Load,
    Logic,
    Select,
    dtype_of,
    reads_memory,
)


def negate(condition: Expr) -> Expr:
    """What holds where `condition` does not; comparisons of floats all fail on NaN, so ``not`` stays."""
    if isinstance(condition, Compare) and dtype_of(condition.a) not in FLOATS:
        return replace(condition, op=_OPPOSITE[condition.op])
    return Logic("not", (condition,))


_OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}


def conjuncts(condition: Expr, holds: bool = True) -> tuple[Expr, ...]:
    """Conditions that hold together exactly where `condition` does; where it fails, if not `holds`.

    A bound ``min(a, b)``, or a lower bound ``max(a, b)``, that reads memory gives two conditions, so that isl sees the one without memory.
    """
    match condition:
        case Logic("not", (inner,)):
            return conjuncts(inner, not holds)
        case Logic(op, args) if op == ("and" if holds else "or"):
            return tuple(part for arg in args for part in conjuncts(arg, holds))
        case Compare("<" | "<=", _, Binary("min", b, c)) if holds and reads_memory(condition):
            limits = [replace(condition, b=limit) for limit in (b, c)]
            return tuple(part for one in limits for part in conjuncts(one))
        case Compare("<" | "<=", Binary("max", b, c)) if holds and reads_memory(condition):
            limits = [replace(condition, a=limit) for limit in (b, c)]
            return tuple(part for one in limits for part in conjuncts(one))
    return (condition if holds else negate(condition),)


def conjunction(conditions: Sequence[Expr]) -> Expr:
    """What holds where all of `conditions` do, so everywhere where there is none."""
    if not conditions:
        return Const(1, "bool")
    return conditions[0] if len(conditions) == 1 else Logic("and", tuple(conditions))


def conditional_term(value: Expr, reducer: str | None) -> tuple[Expr, Expr] | None:
    """Return the condition and the term of an update that changes nothing where the condition fails; None where it is no such update."""
    match value:
        case Select(condition, then, Const(nothing, dtype)) if reducer is not None:
            return (condition, then) if is_identity(reducer, nothing, dtype) else None
    return None


def read_only_element(expr: Expr, arrays: Collection[str]) -> Load | None:
    """Return the load of ``index(A[…])`` if A is in `arrays`, which are never written; None for any other expression.

    What is calculated with it is in the range of an index: its integers have at most 32 bits, or lie between literals, as those of
    ``index(max(min(A[…], 2147483647), 0))``.
    """
    if not isinstance(expr, Cast) or expr.dtype != "index":
        return None
    load, bounded_by = expr.a, set[str]()
    while isinstance(load, Binary) and load.op in ("min", "max"):
        if not isinstance(load.b, Const) or not -(2**31) <= load.b.value < 2**31:
            return None
        bounded_by.add(load.op)
        load = load.a
    if not isinstance(load, Load) or load.buffer not in arrays or load.dtype not in INTEGERS:
        return None
    return load if ITEM_BYTES[load.dtype] <= 4 or bounded_by == {"min", "max"} else None


def at_another_place(element: Expr, index: tuple[Expr, ...]) -> Expr:
    """Return an element that `read_only_element` takes, of another place of its array."""
    match element:
        case Load():
            return replace(element, index=index)
        case Cast(a):
            return replace(element, a=at_another_place(a, index))
        case Binary(_, a):
            return replace(element, a=at_another_place(a, index))
        case _:
            raise ValueError(f"no element of an array: {element}")


def at_least_zero(atom: Expr) -> Compare | None:
    """Return a comparison of indices as ``index >= 0``; None where it is none."""
    if not isinstance(atom, Compare) or dtype_of(atom.a) != "index":
        return None
    difference = ix.sub(atom.a, atom.b)
    match atom.op:
        case ">=" | ">":
            form = ix.sub(difference, int(atom.op == ">"))
        case "<" | "<=":
            form = ix.sub(-1 if atom.op == "<" else 0, difference)
        case _:
            return None
    return Compare(">=", ix.simplify(form), ix.const(0))
