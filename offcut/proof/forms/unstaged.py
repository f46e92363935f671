"""A staged program -> a guess of its source, without windows and the copies into them.

The guess is proved equal to both like any other program on the way (`bodies`, and side by side with the source);
a poor one proves nothing.

    alloc A_in[s +: q, 0 +: 64]                         tile i in s +: q
      tile i in s +: q, k in 0 +: 64                      for k in 0:64
        A_in[i, k] = A[i, k]                    ->          S[i] += A[i, k]
      tile i in s +: q
        for k in 0:64
          S[i] += A_in[i, k]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from offcut.core.accesses import read, touched
from offcut.core.expr import Expr, Load, Var, rewrite, substitute, variables
from offcut.core.program import (
    Alloc,
    Program,
    Stmt,
    Store,
    Tile,
    all_mapped,
    blocks,
    walk,
    with_blocks,
)
from offcut.core.walking import rewritten, with_buffer_renamed


def unstaged(program: Program, source: Program) -> Program:
    """Return `program` without its windows, and without the arrays that `source` lacks, if one statement fills such an array,
    or it is copied whole to another one.
    """
    declared = {buffer.name: buffer for buffer in source.buffers}
    body = rewritten(program.body, lambda s: s.body if isinstance(s, Alloc) else None)
    for buffer in program.buffers:
        if buffer.name not in declared:
            body = _without(body, buffer.name)
    body = _merge_tiles(rewritten(body, lambda s: () if _is_empty(s) else None))
    names = declared.keys() | touched(body)
    buffers = tuple(declared.get(b.name, b) for b in program.buffers if b.name in names)
    return replace(program, buffers=buffers, body=body)


def _without(body: tuple[Stmt, ...], name: str) -> tuple[Stmt, ...]:
    """Return a block with an array replaced by what is stored to it, or by the array that it is copied to."""
    stores = [s for s in walk(body) if isinstance(s, Store)]
    mine = list(dict.fromkeys(s for s in stores if s.buffer == name))
    copies = {s.buffer for s in stores if _is_copy(s, name)}
    readers = [s for s in stores if name in read((s.value, *s.index))]
    if len(mine) == 1 and mine[0].reduce is None and (names := _names(mine[0])) is not None:
        return _forward(body, mine[0], names)
    if len(copies) == 1 and mine and all(_is_copy(s, name) or s.buffer == name for s in readers):
        (other,) = copies
        body = rewritten(body, lambda s: () if isinstance(s, Store) and _is_copy(s, name) else None)
        return with_buffer_renamed(body, name, other)
    return body


def _is_copy(store: Store, name: str) -> bool:
    """Return whether an element of an array is copied to the same place of another one."""
    value = store.value
    copies = isinstance(value, Load) and value.buffer == name and value.index == store.index
    return copies and store.reduce is None and store.buffer != name


def _names(store: Store) -> list[str] | None:
    """Return the iterators that are its index, if they are distinct and its value depends on no others; else None."""
    names = [part.name for part in store.index if isinstance(part, Var)]
    distinct = len(names) == len(set(names)) == len(store.index)
    return names if distinct and variables(store.value) <= set(names) else None


def _forward(body: tuple[Stmt, ...], store: Store, names: Sequence[str]) -> tuple[Stmt, ...]:
    """Return a block without a store, whose value takes the place of each load; `names` are its index."""

    def rule(node: Expr) -> Expr | None:
        if not isinstance(node, Load) or node.buffer != store.buffer:
            return None
        return substitute(store.value, dict(zip(names, node.index, strict=True)))

    rest = rewritten(body, lambda s: () if s == store else None)
    return all_mapped(rest, lambda expr: rewrite(expr, rule))


def _is_empty(stmt: Stmt) -> bool:
    return not isinstance(stmt, Store) and not any(blocks(stmt))


def _merge_tiles(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Return a block with neighbouring tiles over the same instances as one."""
    merged: list[Stmt] = []
    for stmt in body:
        match merged[-1:], stmt:
            case [Tile() as last], Tile() as tile if replace(last, body=tile.body) == tile:
                merged[-1] = replace(last, body=(*last.body, *tile.body))
            case _:
                merged.append(with_blocks(stmt, _merge_tiles))
    return tuple(merged)
