"""A staged program without its windows, tiles over the same elements joined: a small step on the way from its source.

::

    alloc S[16*t +: 16]                        tile i in 16*t +: 16
      tile i in 16*t +: 16                       S[i] = 0
        S[i] = 0                         ->      C[i] = f(S[i])
      tile i in 16*t +: 16
        C[i] = f(S[i])
"""

from __future__ import annotations

from dataclasses import replace

from offcut.core.expr import Expr, Load, loads
from offcut.core.program import Alloc, Program, Stmt, Store, Tile, expressions, map_blocks, walk


def joined(program: Program) -> Program:
    """Return `program` without windows and covers, in which tiles that touch each other's elements point by point are one."""
    return replace(program, body=_block(program.body))


def _block(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    found: list[Stmt] = []
    for stmt in _unwindowed(body):
        made = replace(stmt, cover=None) if isinstance(stmt, Tile) else map_blocks(stmt, _block)
        last = found[-1] if found else None
        if isinstance(made, Tile) and isinstance(last, Tile) and _join(last, made):
            found[-1] = replace(last, body=(*last.body, *made.body))
        else:
            found.append(made)
    return tuple(found)


def _unwindowed(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    return tuple(
        inner
        for stmt in body
        for inner in (_unwindowed(stmt.body) if isinstance(stmt, Alloc) else (stmt,))
    )


def _join(first: Tile, second: Tile) -> bool:
    """Return whether two tiles are over the same elements, and each instance needs of the other tile itself alone."""
    if (first.axes, first.where) != (second.axes, second.where):
        return False
    stores = [stmt for stmt in walk((*first.body, *second.body)) if isinstance(stmt, Store)]
    points: dict[str, tuple[Expr, ...]] = {}
    for store in stores:
        if points.setdefault(store.buffer, store.index) != store.index:
            return False
    reads = [
        load
        for stmt in walk((*first.body, *second.body))
        for expr in expressions(stmt)
        for load, _ in loads(expr)
    ]
    return all(
        isinstance(load, Load) and points.get(load.buffer, load.index) == load.index
        for load in reads
    )
