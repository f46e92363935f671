"""A program whose local arrays are whole: a row for each iteration, where each had one row to itself.

``alloc S[i +: 1, 0 +: n]`` inside of ``for i`` holds one row. Where every access of S stands in that block
and names that row, no iteration sees what another one left, in the window or in an array of all rows: the
two programs do the same, and programs can be compared as if there were no windows.

So may a box of elements, where no iteration of any loop around touches an element that another one does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations, product

from offcut.core import index as ix
from offcut.core.accesses import element_accesses, indices, statement_arrays
from offcut.core.analysis import analysis
from offcut.core.expr import Expr, Var
from offcut.core.memo import memo
from offcut.core.program import Alloc, For, If, Let, Program, Stmt, Tile, blocks, walk
from offcut.core.traversal import all_bound_names, bound_names, map_blocks, rewrite_body
from offcut.polyhedral import escaping_windows
from offcut.polyhedral.units.footprints import Footprints


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
