"""A program whose local and private arrays are whole: a row for each iteration, where each had one row to itself.

``alloc S[i +: 1, 0 +: n]`` inside of ``for i`` holds one row. Where every access of S stands in that block
and names that row, no iteration sees what another one left, in the window or in an array of all rows: the
two programs do the same, and programs can be compared as if there were no windows.

So may a box of elements, where no iteration of any loop around touches an element that another one does.

A program whose private arrays are one array for all instances, as they are in its source.

Each instance of a tile has a private array to itself. Where it stores the one element that it names before it reads it, and no other
instance names that element, it makes no difference whether other instances see it::

    private S: float32[n]                          local S: float32[n]
    tile i in 0 +: n                     ->        tile i in 0 +: n
      S[i] = …                                       S[i] = …
      Y[i] = S[i]                                    Y[i] = S[i]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations, product

from offcut.core import index as ix
from offcut.core.analysis import (
    accessed_arrays,
    analysis,
    element_accesses,
    indices,
    statement_arrays,
)
from offcut.core.expr import Expr, Var
from offcut.core.memo import memo
from offcut.core.program import (
    Alloc,
    Buffer,
    For,
    If,
    Kind,
    Let,
    Program,
    Stmt,
    Store,
    Tile,
    blocks,
    walk,
)
from offcut.core.traversal import all_bound_names, bound_names, map_blocks, rewrite_body
from offcut.polyhedral import escaping_windows
from offcut.polyhedral.units import Footprints


@memo(64)
def expand_windows(program: Program) -> Program:
    """`program` without the blocks of those arrays that may as well be whole, and tiles of no axis.

    program   all that it accesses lies inside of its buffers
    """
    accesses = Counter(
        name for stmt in analysis(program).statements for name, _ in element_accesses(stmt)
    )
    shapes = {buffer.name: buffer.shape for buffer in program.buffers}
    body = _without(program.body, frozenset(), shapes, accesses)
    boxes = frozenset(stmt.buffer for stmt in walk(body) if isinstance(stmt, Alloc))
    apart = frozenset(name for name in boxes if _is_apart(program, name))
    if not apart:
        return replace(program, body=body)
    apart -= frozenset(escaping_windows(program, apart))
    return replace(program, body=_without_boxes(body, apart))


def _without_boxes(body: tuple[Stmt, ...], apart: frozenset[str]) -> tuple[Stmt, ...]:
    """`body` without the windows of these arrays."""

    def rule(stmt: Stmt) -> tuple[Stmt, ...] | None:
        return stmt.body if isinstance(stmt, Alloc) and stmt.buffer in apart else None

    return rewrite_body(body, rule)


def _is_apart(program: Program, name: str) -> bool:
    """Whether no window of an array holds an element that another one holds, of another iteration or of the same.

    Else what one of them leaves would be there in the other one, if the array were whole: a window holds nothing
    at first, also where it is of the same elements, or stands inside of the other.
    """
    program = _about(program, name)
    footprints = Footprints(program, frozenset((name,)))

    def keep_apart(one: Stmt, other: Stmt) -> bool:
        pairs = product(footprints.of((one,)), footprints.of((other,)))
        return all(footprints.apart(*pair) for pair in pairs)

    def holds(body: tuple[Stmt, ...]) -> bool:
        having = [stmt for stmt in body if _has_window(stmt, name)]
        return all(map(alone, having)) and all(keep_apart(*p) for p in combinations(having, 2))

    def alone(stmt: Stmt) -> bool:
        match stmt:
            case Alloc(buffer) if buffer == name:
                return not any(_has_window(inner, name) for inner in stmt.body)
            case Alloc():
                return holds(stmt.body)
            case If(_, then, other):
                return holds(then) and holds(other)
            case For():
                touched = tuple(footprints.of(stmt.body, stmt.iter))
                return footprints.moves_on(touched, stmt.iter) and holds(stmt.body)
            case _:
                return False

    return holds(program.body)


def _about(program: Program, name: str) -> Program:
    """`program` without the statements that have nothing to do with an array; its windows stay, also where nothing
    in them touches it: not every place may have one.
    """

    def rule(stmt: Stmt) -> tuple[Stmt, ...] | None:
        if isinstance(stmt, Alloc) and stmt.buffer == name:
            return None
        return None if any(blocks(stmt)) or name in statement_arrays(stmt) else ()

    return replace(program, body=rewrite_body(program.body, rule))


def _has_window(stmt: Stmt, name: str) -> bool:
    return any(isinstance(inner, Alloc) and inner.buffer == name for inner in walk((stmt,)))


def _without(
    body: tuple[Stmt, ...],
    around: frozenset[str],
    shapes: Mapping[str, Sequence[Expr]],
    accesses: Counter[str],
) -> tuple[Stmt, ...]:
    """Return `body` without the blocks of arrays that may as well be whole, and tiles of no axis.

    around    the iterators of the loops that it stands in
    shapes    of all arrays of the program, by name
    accesses  how many there are in the program, by array
    """
    statements: list[Stmt] = []
    for stmt in body:
        if isinstance(stmt, Tile) and stmt.axes:
            statements.append(stmt)  # whose lanes share what is in it
            continue
        inner = around | _iterators(stmt)
        inside = partial(_without, around=inner, shapes=shapes, accesses=accesses)
        new_stmt = map_blocks(stmt, inside)
        match new_stmt:
            case Alloc(name) if not accesses[name]:
                statements += new_stmt.body
            case Alloc(name) if _is_rows(new_stmt, around, shapes[name], accesses[name]):
                statements += new_stmt.body
            case Tile((), once, None):
                statements += once
            case _:
                statements.append(new_stmt)
    return tuple(statements)


def _iterators(stmt: Stmt) -> frozenset[str]:
    return frozenset() if isinstance(stmt, Let) else frozenset(bound_names(stmt))


def _is_rows(block: Alloc, around: frozenset[str], shape: Sequence[Expr], accesses: int) -> bool:
    """Return whether the windows of all iterations are rows of one array, and each iteration names its own.

    shape     of the array
    accesses  how many there are of it in the whole program
    """
    inside = indices(block.body, block.buffer)
    if len(inside) != accesses:
        return False
    rows: set[str] = set()
    for axis, ((start, count), extent) in enumerate(zip(block.axes, shape, strict=True)):
        if ix.literal_value(count) == 1 and isinstance(start, Var):
            rows.add(start.name)
            if any(index[axis] != start for index in inside):
                return False
        elif ix.literal_value(start) != 0 or count != extent:
            return False
    return around <= rows and not rows & all_bound_names(block.body)


def share_private_arrays(program: Program, source: Program) -> Program:
    """Return `program` with its private arrays shared that are so in `source`, where each instance stores an element before it reads it."""
    local = {buffer.name for buffer in source.buffers if buffer.kind is Kind.LOCAL}
    buffers = tuple(
        replace(buffer, kind=Kind.LOCAL)
        if buffer.kind is Kind.PRIVATE
        and buffer.name in local
        and _is_stored_first(program, buffer)
        else buffer
        for buffer in program.buffers
    )
    return program if buffers == program.buffers else replace(program, buffers=buffers)


def _is_stored_first(program: Program, buffer: Buffer) -> bool:
    """Return whether each instance that touches an array stores the element that it alone names, and then touches no other."""
    if buffer.name not in accessed_arrays(program.body) or buffer.name in analysis(program).windows:
        return False
    return all(
        tile is not None and _stores_first(tile, buffer.name)
        for tile in _tiles(program.body, buffer.name)
    )


def _tiles(body: tuple[Stmt, ...], name: str) -> Iterator[Tile | None]:
    """Yield the tiles that touch an array; None for a statement outside of tiles that does."""
    for stmt in body:
        if isinstance(stmt, Tile):
            if name in accessed_arrays((stmt,)):
                yield stmt
            continue
        if any(array == name for array, _ in element_accesses(stmt)):
            yield None
        for block in blocks(stmt):
            yield from _tiles(block, name)


def _stores_first(tile: Tile, name: str) -> bool:
    """Return whether an instance of a tile first stores the one element of an array that it touches, which no other instance touches."""
    first = next(stmt for stmt in tile.body if name in accessed_arrays((stmt,)))
    if not isinstance(first, Store) or first.buffer != name or first.reduce is not None:
        return False
    if any(isinstance(stmt, Tile) for stmt in walk(tile.body)):
        return False
    accesses = [one for stmt in walk((tile,)) for one in element_accesses(stmt) if one[0] == name]
    named: set[Expr] = {Var(axis.iter) for axis in tile.axes}
    reads_itself = [array for array, _ in element_accesses(first)].count(name) > 1
    return (
        len({index for _, index in accesses}) == 1 and named <= {*first.index} and not reads_itself
    )
