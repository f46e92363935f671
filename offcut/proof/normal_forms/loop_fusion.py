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

from collections.abc import Callable, Sequence
from dataclasses import replace

from offcut.core.accesses import accessed_arrays, indices, read_arrays, stored_arrays
from offcut.core.analysis import analysis
from offcut.core.expr import Expr, Var, variables
from offcut.core.program import For, Program, Stmt
from offcut.core.program import walk as statements
from offcut.core.traversal import all_bound_names, expressions, map_blocks, substitute_coordinates


def fuse_loops_like(emitted: Program, source: Program) -> Program:
    """Return `source` with loops joined that are one in `emitted`, where they may be."""
    there = [stmt for stmt in statements(emitted.body) if isinstance(stmt, For)]
    stores = [(loop, stored_arrays(loop.body)) for loop in there]

    def as_one(first: For, second: For) -> For | None:
        both = stored_arrays((first, second))
        holding = [loop for loop, loops_of_store in stores if both <= loops_of_store]
        alike = [loop for loop in holding if (loop.lo, loop.hi) == (first.lo, first.hi)]
        for name in dict.fromkeys(loop.iter for loop in (*alike, *reversed(holding))):
            one, other = _called(first, name), _called(second, name)
            if one is not None and other is not None and _may_join(one, other):
                return replace(one, body=(*one.body, *other.body))
        return None

    return replace(source, body=_joined(source.body, as_one))


def fuse_ranges(program: Program) -> Program:
    """Return `program` with loops joined that run over one part of a range in turn, where they may be.

    Such are the loops of a block of rows; its start is that of an iteration of the loop around::

        for i_block in 0:(n + 3)//4
          for i in 4*i_block:min(4*i_block + 4, n)
            S[i] = …
          for i in 4*i_block:min(4*i_block + 4, n)
            Y[i] = S[i] + 1.0
    """
    over = analysis(program).iterators

    def as_one(first: For, second: For) -> For | None:
        if not variables(first.lo) & over or not _may_join(first, second):
            return None
        return replace(first, body=(*first.body, *second.body))

    return replace(program, body=_joined(program.body, as_one))


def _joined(body: tuple[Stmt, ...], as_one: Callable[[For, For], For | None]) -> tuple[Stmt, ...]:
    """Return `body` with the loops that stand side by side as one, where `as_one` makes one of them."""
    statements: list[Stmt] = []
    for stmt in body:
        before = statements[-1] if statements else None
        joined = as_one(before, stmt) if isinstance(before, For) and isinstance(stmt, For) else None
        if joined is not None:
            statements[-1] = joined
        else:
            statements.append(stmt)
    return tuple(map_blocks(stmt, lambda inner: _joined(inner, as_one)) for stmt in statements)


def _called(loop: For, name: str) -> For | None:
    """Return `loop` with its iterator called `name`; None where something else in it is called so."""
    if loop.iter == name:
        return loop
    inside = [expr for stmt in statements((loop,)) for expr in expressions(stmt)]
    if name in all_bound_names(loop.body) or any(name in variables(expr) for expr in inside):
        return None
    body = substitute_coordinates(loop.body, {loop.iter: Var(name)})
    return replace(loop, iter=name, body=body)


def _may_join(first: For, second: For) -> bool:
    """Return whether two loops in turn have one range, and their iterations meet in what is theirs alone."""
    if (first.iter, first.lo, first.hi) != (second.iter, second.lo, second.hi):
        return False
    if read_arrays((first.lo, first.hi)) or first.iter in all_bound_names(
        (*first.body, *second.body)
    ):
        return False
    one, other = first.body, second.body
    shared = stored_arrays(one) & accessed_arrays(other) | accessed_arrays(one) & stored_arrays(
        other
    )
    return all(_is_by_iteration(first.iter, indices((*one, *other), name)) for name in shared)


def _is_by_iteration(name: str, accesses: Sequence[Sequence[Expr]]) -> bool:
    """Return whether the iterator alone is the index on some axis of every access."""
    return any(all(index == Var(name) for index in axis) for axis in zip(*accesses, strict=True))
