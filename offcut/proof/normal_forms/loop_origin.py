"""Loops that count from where the elements begin that they run over, so that two programs count alike.

::

    for i in 0:m                            for i in s:s + m
      C[s + i] = A[s + i]          ->         C[i] = A[i]

The new iterator is the old one and a number that nothing inside of the loop changes: the loop runs the same
iterations, in the same order.
"""

from __future__ import annotations

from dataclasses import replace

from offcut.core import index as ix
from offcut.core.expr import Expr, Var, variables
from offcut.core.program import For, Program, Stmt, Store, walk
from offcut.core.traversal import all_bound_names, map_blocks, substitute_coordinates

_NO_OFFSET = ix.const(0)


def count_from_elements(program: Program) -> Program:
    """Return `program` with its loops counting from where the elements begin that all stores inside of them write."""
    body = shift_loops(program.body)
    return program if body == program.body else replace(program, body=body)


def shift_loops(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Return a block with the loops in it counting from where elements begin."""
    return tuple(map_blocks(_shifted(stmt), shift_loops) for stmt in body)


def _shifted(stmt: Stmt) -> Stmt:
    offset = stored_offset(stmt) if isinstance(stmt, For) else None
    if not isinstance(stmt, For) or offset in (None, _NO_OFFSET):
        return stmt
    assert offset is not None
    inside = {stmt.iter: ix.sub(Var(stmt.iter), offset)}
    lo, hi = ix.add(stmt.lo, offset), ix.add(stmt.hi, offset)
    return replace(stmt, lo=lo, hi=hi, body=substitute_coordinates(stmt.body, inside))


def stored_offset(loop: For) -> Expr | None:
    """Return how much more than the iterator the index is that it moves in all stores inside; None where they are of two numbers,
    or one that changes inside, or there is no such index.
    """
    bound = {loop.iter} | all_bound_names(loop.body)
    offsets = set[Expr | None]()
    for store in (stmt for stmt in walk(loop.body) if isinstance(stmt, Store)):
        moving = [part for part in store.index if loop.iter in variables(part)]
        offset = ix.sub(moving[0], Var(loop.iter)) if len(moving) == 1 else None
        offsets.add(None if offset is None or variables(offset) & bound else offset)
    return offsets.pop() if len(offsets) == 1 else None
