"""Loops of a source joined where another program has them as one.

Two loops in turn over one range may be one loop around both bodies if no iteration of the second needs, or
changes, what a later iteration of the first does. It is enough that whatever one of them stores and the
other one accesses is named, on some axis, by the iterator alone::

    for i in 0:n                              for i in 0:n
      S[i] = …                                  S[i] = …
    for i in 0:n                       ->       Y[i] = S[i] + 1.0
      Y[i] = S[i] + 1.0
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from offcut.core.accesses import indices, read, stored, touched
from offcut.core.expr import Expr, Var
from offcut.core.program import For, Program, Stmt, with_blocks
from offcut.core.program import walk as statements
from offcut.core.walking import bound_in


def joined_like(emitted: Program, source: Program) -> Program:
    """`source` with loops joined that are one in `emitted`, where they may be."""
    together = [
        (stmt.iter, stored(stmt.body)) for stmt in statements(emitted.body) if isinstance(stmt, For)
    ]

    def is_one(first: Stmt | None, second: Stmt) -> bool:
        if not isinstance(first, For) or not isinstance(second, For):
            return False
        both = stored((first, second))
        wanted = any(name == first.iter and both <= held for name, held in together)
        return wanted and _may_join(first, second)

    def change(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        made: list[Stmt] = []
        for stmt in body:
            last = made[-1] if made else None
            if is_one(last, stmt):
                assert isinstance(last, For)
                assert isinstance(stmt, For)
                made[-1] = replace(last, body=(*last.body, *stmt.body))
            else:
                made.append(stmt)
        return tuple(with_blocks(stmt, change) for stmt in made)

    return replace(source, body=change(source.body))


def _may_join(first: For, second: For) -> bool:
    """Whether two loops in turn have one range, and their iterations meet in what is theirs alone."""
    if (first.iter, first.lo, first.hi) != (second.iter, second.lo, second.hi):
        return False
    if read((first.lo, first.hi)) or first.iter in bound_in((*first.body, *second.body)):
        return False
    one, other = first.body, second.body
    shared = stored(one) & touched(other) | touched(one) & stored(other)
    return all(_is_by_iteration(first.iter, indices((*one, *other), name)) for name in shared)


def _is_by_iteration(name: str, accesses: Sequence[Sequence[Expr]]) -> bool:
    """Whether the iterator alone is the index on some axis of every access."""
    return any(all(index == Var(name) for index in axis) for axis in zip(*accesses, strict=True))
