"""Terms that agree node by node: what stands in a statement for each load and axis of a microkernel."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TypeAlias

from offcut.core.expr import (
    Binary,
    Cast,
    Compare,
    Const,
    Expr,
    Load,
    Logic,
    Lookup,
    Reduce,
    Select,
    Unary,
    Var,
    children,
    dtype_of,
    reads_memory,
    rebuild,
    variables,
)
from offcut.describe.microkernel import Microkernel

Pairing: TypeAlias = tuple[tuple[Expr, Expr], ...]
"""Loads, and axes, of a microkernel, each with what stands in its place in a statement."""

_COMMUTE = ("+", "*", "min", "max")


def pairings(kernel: Microkernel, value: Expr) -> Iterator[Pairing]:
    """Yield every way in which the term of a microkernel is `value`, node by node."""
    body = kernel.definition.body
    immediate = {
        t.name for t in kernel.definition.reads if kernel.place_of(t.name).by == "immediate"
    }
    for pairing in _unify(body.value if isinstance(body, Reduce) else body, value, immediate):
        elements: dict[tuple[str, tuple[Expr, ...]], Expr] = {}
        if all(  # one element of an operand is one element of an array
            elements.setdefault((mine.buffer, mine.index), theirs) == theirs
            for mine, theirs in pairing
            if isinstance(mine, Load)
        ):
            yield pairing


def _unify(mine: Expr, theirs: Expr, immediate: Collection[str]) -> Iterator[Pairing]:
    match mine, theirs:
        case Load(buffer), Const() if buffer in immediate and mine.dtype == theirs.dtype:
            yield ()
        case Load(), Load() if mine.dtype == theirs.dtype:
            yield ((mine, theirs),)
        case Var(), _ if dtype_of(theirs) == "index":
            yield ((mine, theirs),)
        case Binary(op, a, b), Binary(other, x, y) if op == other:
            for order in [(x, y), (y, x)] if op in _COMMUTE else [(x, y)]:
                yield from _unify_all((a, b), order, immediate)
        case (
            (Unary(), Unary())
            | (Cast(), Cast())
            | (Select(), Select())
            | (Compare(), Compare())
            | (Logic(), Logic())
            | (Lookup(), Lookup())
        ):
            own, of = children(mine), children(theirs)
            if len(own) == len(of) and rebuild(mine, of) == theirs:
                yield from _unify_all(own, of, immediate)
        case _ if mine == theirs and not variables(mine) and not reads_memory(mine):
            yield ()


def _unify_all(
    mine: Sequence[Expr], theirs: Sequence[Expr], immediate: Collection[str]
) -> Iterator[Pairing]:
    if not mine:
        yield ()
        return
    for first in _unify(mine[0], theirs[0], immediate):
        yield from (first + rest for rest in _unify_all(mine[1:], theirs[1:], immediate))
