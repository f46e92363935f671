"""Terms that agree node by node: what stands in a statement for each load and axis of a microkernel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    for pairing in _unify(body.value if isinstance(body, Reduce) else body, value, kernel):
        elements: dict[tuple[str, tuple[Expr, ...]], Expr] = {}
        if all(  # one element of an operand is one element of an array
            elements.setdefault((mine.buffer, mine.index), theirs) == theirs
            for mine, theirs in pairing
            if isinstance(mine, Load)
        ):
            yield pairing


def _unify(mine: Expr, theirs: Expr, kernel: Microkernel) -> Iterator[Pairing]:
    match mine, theirs:
        case Load(buffer, dtype=dtype), Const() if kernel.place_of(buffer).by == "immediate":
            if dtype == theirs.dtype:
                yield ()
        case Load(buffer, dtype=dtype), Cast(Load() as load, to) if to == dtype:
            if load.dtype in kernel.place_of(buffer).types:
                yield ((mine, load),)
        case Load(), Load() if mine.dtype == theirs.dtype:
            yield ((mine, theirs),)
        case Var(), _ if dtype_of(theirs) == "index":
            yield ((mine, theirs),)
        case Binary(op, a, b), Binary(other, x, y) if op == other:
            for order in [(x, y), (y, x)] if op in _COMMUTE else [(x, y)]:
                yield from _unify_all((a, b), order, kernel)
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
                yield from _unify_all(own, of, kernel)
        case _ if mine == theirs and not variables(mine) and not reads_memory(mine):
            yield ()


def _unify_all(
    mine: Sequence[Expr], theirs: Sequence[Expr], kernel: Microkernel
) -> Iterator[Pairing]:
    if not mine:
        yield ()
        return
    for first in _unify(mine[0], theirs[0], kernel):
        yield from (first + rest for rest in _unify_all(mine[1:], theirs[1:], kernel))
