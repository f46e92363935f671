"""A program whose local arrays are whole: a row for each iteration, where each had one row to itself.

``alloc S[i +: 1, 0 +: n]`` inside of ``for i`` holds one row. Where every access of S stands in that block
and names that row, no iteration sees what another one left, in the window or in an array of all rows: the
two programs do the same, and programs can be compared as if there were no windows.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from offcut.core import index as ix
from offcut.core.accesses import indices
from offcut.core.expr import Var
from offcut.core.program import Alloc, Let, Program, Stmt, Tile, with_blocks
from offcut.core.walking import bound, bound_in


def without_windows(program: Program) -> Program:
    """`program` without the blocks of those arrays that may as well be whole, and tiles of no axis.

    program   all that it accesses lies inside of its buffers
    """
    return replace(program, body=_without(program, program.body, frozenset()))


def _without(program: Program, body: tuple[Stmt, ...], around: frozenset[str]) -> tuple[Stmt, ...]:
    """`body` likewise; `around` are the iterators of the loops that it stands in."""
    made: list[Stmt] = []
    for stmt in body:
        if isinstance(stmt, Tile) and stmt.axes:
            made.append(stmt)  # whose lanes share what is in it
            continue
        inside = partial(_without, program, around=around | _iterators(stmt))
        changed = with_blocks(stmt, inside)
        match changed:
            case Alloc() if _is_rows(program, changed, around):
                made += changed.body
            case Tile((), once, None):
                made += once
            case _:
                made.append(changed)
    return tuple(made)


def _iterators(stmt: Stmt) -> frozenset[str]:
    return frozenset() if isinstance(stmt, Let) else frozenset(bound(stmt))


def _is_rows(program: Program, block: Alloc, around: frozenset[str]) -> bool:
    """Whether the windows of all iterations are rows of one array, and each iteration names its own."""
    inside = indices(block.body, block.buffer)
    if len(inside) != len(indices(program.body, block.buffer)):
        return False
    rows: set[str] = set()
    shape = program.buffer(block.buffer).shape
    for axis, ((start, count), extent) in enumerate(zip(block.axes, shape, strict=True)):
        if ix.literal(count) == 1 and isinstance(start, Var):
            rows.add(start.name)
            if any(index[axis] != start for index in inside):
                return False
        elif ix.literal(start) != 0 or count != extent:
            return False
    return around <= rows and not rows & bound_in(block.body)
