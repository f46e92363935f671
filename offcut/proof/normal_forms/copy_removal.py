"""A staged program -> one that may be what it was staged from: without windows, and without copies into them.

It is a guess, which is proved like any other program on the way (`bodies`, and side by side with the source);
a poor one proves nothing.

    alloc A_in[s +: q, 0 +: 64]                         tile i in s +: q
      tile i in s +: q, k in 0 +: 64                      for k in 0:64
        A_in[i, k] = A[i, k]                    ->          S[i] += A[i, k]
      tile i in s +: q
        for k in 0:64
          S[i] += A_in[i, k]
"""

from __future__ import annotations

from dataclasses import replace

from offcut.core.accesses import accessed_arrays, read_arrays
from offcut.core.expr import Expr, Load, Var, rewrite, substitute, variables
from offcut.core.plain_loops import tile_to_loops
from offcut.core.program import Alloc, Program, Stmt, Store, Tile, blocks, walk
from offcut.core.traversal import (
    map_blocks,
    map_body,
    merge_neighbours,
    rewrite_body,
    with_buffer_renamed,
)


def without_copies(program: Program, source: Program) -> tuple[Program, ...]:
    """Return `program` without its windows, and without what one statement fills, or is copied whole to another array, of the arrays
    that `source` has not: with tiles over the same rows as they are, and as one.
    """
    buffer_of = {buffer.name: buffer for buffer in source.buffers}
    body = rewrite_body(program.body, lambda s: s.body if isinstance(s, Alloc) else None)
    for buffer in program.buffers:
        if buffer.name not in buffer_of:
            body = _without(body, buffer.name)
    body = rewrite_body(body, lambda s: () if _is_idle(s) else None)
    buffers = tuple(
        buffer_of.get(b.name, b)
        for b in program.buffers
        if b.name in buffer_of or b.name in accessed_arrays(body)
    )
    bodies = dict.fromkeys(_join_tiles(body, shared) for shared in (False, True))
    return tuple(replace(program, buffers=buffers, body=one) for one in bodies)


def _without(body: tuple[Stmt, ...], name: str) -> tuple[Stmt, ...]:
    stores = [s for s in walk(body) if isinstance(s, Store)]
    mine = list(dict.fromkeys(s for s in stores if s.buffer == name))
    copies = {s.buffer for s in stores if _is_copy(s, name)}
    readers = [s for s in stores if name in read_arrays((s.value, *s.index))]
    if len(mine) == 1 and mine[0].reduce is None and _names(mine[0]) is not None:
        return _forward_store(body, mine[0])
    if len(copies) == 1 and mine and all(_is_copy(s, name) or s.buffer == name for s in readers):
        (other,) = copies
        body = rewrite_body(
            body, lambda s: () if isinstance(s, Store) and _is_copy(s, name) else None
        )
        return with_buffer_renamed(body, name, other)
    return body


def _is_copy(store: Store, name: str) -> bool:
    """Return whether an element of an array is copied to the same place of another one."""
    value = store.value
    copies = isinstance(value, Load) and value.buffer == name and value.index == store.index
    return copies and store.reduce is None and store.buffer != name


def _names(store: Store) -> list[str] | None:
    """Return the names that its index is made of, one by one."""
    names = [part.name for part in store.index if isinstance(part, Var)]
    own = len(names) == len(set(names)) == len(store.index)
    return names if own and variables(store.value) <= set(names) else None


def _forward_store(body: tuple[Stmt, ...], store: Store) -> tuple[Stmt, ...]:
    names = _names(store)
    assert names is not None

    def rule(node: Expr) -> Expr | None:
        if not isinstance(node, Load) or node.buffer != store.buffer:
            return None
        return substitute(store.value, dict(zip(names, node.index, strict=True)))

    rest = rewrite_body(body, lambda s: () if s == store else None)
    return map_body(rest, lambda expr: rewrite(expr, rule))


def _is_idle(stmt: Stmt) -> bool:
    return not isinstance(stmt, Store) and not any(blocks(stmt))


def _join_tiles(body: tuple[Stmt, ...], shared: bool) -> tuple[Stmt, ...]:
    """Return `body` with tiles that run one after the other as one: those over the same instances, and if `shared` those whose first
    axes are the same, whose further axes become loops.
    """
    inner = [map_blocks(stmt, lambda inside: _join_tiles(inside, shared)) for stmt in body]
    return merge_neighbours(inner, lambda first, second: _together(first, second, shared))


def _together(first: Stmt, second: Stmt, shared: bool) -> Tile | None:
    if not isinstance(first, Tile) or not isinstance(second, Tile):
        return None
    if replace(first, body=second.body) == second:
        return replace(first, body=(*first.body, *second.body))
    count = 0
    for one, other in zip(first.axes, second.axes, strict=False):
        if one != other:
            break
        count += 1
    if not shared or not count or replace(first, axes=second.axes, body=second.body) != second:
        return None
    return replace(
        first, axes=first.axes[:count], body=(*_inner(first, count), *_inner(second, count))
    )


def _inner(tile: Tile, count: int) -> tuple[Stmt, ...]:
    """Return the body of a tile in loops over its axes but for the first `count` ones."""
    return tile_to_loops(replace(tile, axes=tile.axes[count:], where=None))
