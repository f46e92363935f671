"""Unroll-and-jam: iterations of a loop around tiles run each tile together, and what all of them read alike is loaded once.

    for j in 0:n                                    for j in 0:4*(n//4) by 4
      tile c in 0:64                                  tile c in 0:64
        S[j, c] = 0.0                                   S[j, c], S[j + 1, c], … = 0.0, 0.0, …
        for r in 0:3                          ->        for r in 0:3
          S[j, c] += X[j + r, c] * W[r, c]                S[j, c], … += X[j + r, c] * W[r, c], …
        Y[j, c] = S[j, c]                               Y[j, c], … = S[j, c], …

A sum over a window of an image has as many loads as products: of `X` and of `W`. Jammed, those of `W` are a part of
that. Each sum keeps its order, in a register of its own.

It is done where iterations are apart, as the indices show: what a tile writes to memory has the loop's iterator alone in one
index, and the tile reads none of it; what else it writes lives in registers. And where sums have one extent in all iterations
of the loops around, or these are known to have several: borders of one row are a small part of an image, and most of the code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from functools import partial
from typing import TYPE_CHECKING

from offcut.core import index as ix
from offcut.core.expr import Expr, Load, loads, variables
from offcut.core.program import STATUS, For, Stmt, Store, Tile, expressions
from offcut.core.program import walk as statements
from offcut.core.tile_limits import unlimited
from offcut.polyhedral import coefficient

if TYPE_CHECKING:
    from offcut.backends.cpu.lowering.addressing import Lanes
    from offcut.backends.cpu.lowering.vectors import Vectors


def jam_factor(low: Vectors, loop: For) -> int:
    """How many iterations are jammed, by the registers that there are; 1 where they run in turn."""
    count = 1
    while (2 * count + 1) * low.chains < low.isa.registers:
        count *= 2
    extent = ix.literal_value(ix.sub(loop.hi, loop.lo))
    if count < 2 or loop.unit is not None or (extent or count) < count:
        return 1
    return count if not low.jammed[1] and _are_apart(low, loop, loop.body, ()) else 1


def emit_jammed(
    low: Vectors,
    body: Sequence[Stmt],
    lanes: Lanes,
    name: str,
    copies: Sequence[tuple[str, Mapping[str, str]]],
) -> None:
    """Statements for a vector of instances of several iterations.

    name    the loop's iterator
    copies  of each iteration its number, and the registers that stand for buffers
    """
    for stmt in body:
        if isinstance(stmt, For):
            ends = low.scalar(stmt.lo), low.scalar(stmt.hi)
            emit = partial(emit_jammed, low, stmt.body, name=name, copies=copies)
            low.each(stmt, ends, lanes, emit)
            continue
        assert isinstance(stmt, Store)
        for value, slots in copies:
            with low.bound(name, value):
                low.vector_store(stmt, lanes, slots)


def _are_apart(low: Vectors, loop: For, body: Sequence[Stmt], around: tuple[str, ...]) -> bool:
    """Whether iterations of `loop` may be jammed: tiles, and loops around tiles.

    around  the iterators of loops inside of it, around `body`
    """
    return all(
        _is_apart(low, loop, stmt, around)
        if isinstance(stmt, Tile)
        else isinstance(stmt, For)
        and not _varies({loop.iter}, stmt.lo, stmt.hi)
        and _are_apart(low, loop, stmt.body, (*around, stmt.iter))
        for stmt in body
    )


def _is_apart(low: Vectors, loop: For, tile: Tile, around: tuple[str, ...]) -> bool:
    """Whether iterations of `loop` may run a tile together, and read something alike."""
    if tile.microkernel is not None or len(tile.axes) != 1 or unlimited(tile):
        return False
    (axis,) = tile.axes
    where = () if tile.where is None else (tile.where,)
    if _varies({loop.iter}, axis.start, axis.extent, *where) or not low.apart(tile.body, axis.iter):
        return False
    inside = [*statements(tile.body)]
    sums = [stmt for stmt in inside if isinstance(stmt, For)]
    stores = [stmt for stmt in inside if isinstance(stmt, Store)]
    outer = {loop.iter, axis.iter, *around, *(one.iter for one in low.around if not _is_long(one))}
    if len(sums) + len(stores) < len(inside) or low.reduces_in_lanes(tile.body):
        return False
    if any(_varies(outer, one.lo, one.hi) for one in sums):
        return False
    read = {load.buffer for stmt in inside for expr in expressions(stmt) for load, _ in loads(expr)}
    inner = {axis.iter, *around, *(one.iter for one in sums)}
    for store in stores:
        if store.buffer not in low.memory:
            if not low.held(store.buffer, tile.body, set()):
                return False
        elif (
            store not in tile.body
            or store.buffer in read
            or low.program.buffer(store.buffer).scope == STATUS
            or not _is_own(store, loop.iter, inner)
        ):
            return False
    return any(_is_alike(load, loop.iter, axis.iter) for one in sums for load in _loads(one))


def _is_long(loop: For) -> bool:
    """Whether a loop is known to have several iterations."""
    extent = ix.literal_value(ix.sub(loop.hi, loop.lo))
    return extent is not None and extent > 1


def _varies(names: Set[str], *exprs: Expr) -> bool:
    return any(variables(expr) & names for expr in exprs)


def _is_own(store: Store, name: str, inner: set[str]) -> bool:
    """Whether each iteration of the loop of `name` writes elements of its own, as one index shows."""
    return any(coefficient(part, name) and not variables(part) & inner for part in store.index)


def _is_alike(load: Load, name: str, lane: str) -> bool:
    """Whether what is read varies along lanes, and not along the loop of `name`."""
    names = set[str]().union(*map(variables, load.index))
    return lane in names and name not in names


def _loads(loop: For) -> Iterator[Load]:
    for store in statements(loop.body):
        if isinstance(store, Store):
            yield from (load for load, _ in loads(store.value))
