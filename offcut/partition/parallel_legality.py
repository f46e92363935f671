"""Whether iterations of a marked loop, and instances of a tile, may run in any order: they carry no dependence."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product, starmap
from math import prod
from typing import TypeVar

from offcut.core import index as ix
from offcut.core.analysis import element_accesses, windowed_arrays
from offcut.core.conditions import conjunction, negate
from offcut.core.dtypes import ANY_ORDER, FLOATS
from offcut.core.expr import variables
from offcut.core.program import (
    LANE,
    Choose,
    For,
    If,
    Kind,
    Let,
    Program,
    Role,
    Stmt,
    Store,
    Sync,
    Tile,
    walk,
)
from offcut.core.text.marks import loop_marks
from offcut.core.text.printer import format_stmt
from offcut.core.traversal import (
    Place,
    parallel_loop_paths,
    substitute_coordinates,
    walk_with_parents,
    walk_with_paths,
)
from offcut.errors import PartitionError
from offcut.polyhedral import Dependence, coefficient, dependences, request_budget
from offcut.polyhedral.facts import equal
from offcut.polyhedral.units import Independence, is_written_before_read
from offcut.proof import Theorem

Inner = TypeVar("Inner", For, Tile)


_MOST_VALUES = 256  # that bounded values around a tile take together, each asked by itself


@request_budget(
    "partition", "cannot run loops as they are marked", help=("the loops without marks",)
)
def check_marks(
    program: Program, sizes: Mapping[str, str], reassociate: bool = True
) -> tuple[Theorem, ...]:
    """What is proved of each loop whose iterations are marked to run together; refuse one that carries a dependence.

    sizes         the users' names of the sizes, by the program's
    reassociate   whether the terms of a float sum may be added in another order

    Theorem: iterations of a loop that carries no dependence touch no element that another one
    writes, so they may run in any order, and at once. ``@lane`` also takes the order of the
    updates of a declared reduction, whose terms are then reduced in several accumulators: to the
    same value, for max, min and integers, and to one of a sum's values, for floats.
    """
    marked = parallel_loop_paths(program)
    if not marked:
        return ()
    reducing: set[tuple[int, ...]] = set()
    open_loops = _loops_not_shown(program, marked)
    for one in dependences(program) if open_loops else ():
        loop = open_loops.get(one.path)
        if loop is None or one.buffer in _own_of(loop, program):
            continue
        store = one.target.store
        reduces = one.reduction and loop.unit == LANE
        exact = store.reduce in ANY_ORDER or program.buffer(one.buffer).dtype not in FLOATS
        if reduces and (reassociate or exact):
            reducing.add(one.path)
            continue
        if not one.certain:
            certain = _certainly(program, loop)
            if certain is None:
                continue
            one = certain
        help: tuple[str, ...] = (f"the loop without {_mark(loop)}",)
        if reduces:
            help = (*help, "reassociate=True")
        elif one.reduction:
            help = (*help, f"rfactor({loop.iter}) in a schedule reduces in parts that run together")
        raise PartitionError(
            "partition",
            f"cannot run loop {loop.iter} as {_mark(loop)}",
            at=format_stmt(store),
            because=describe_dependence(one, program, sizes),
            help=help,
        )
    return tuple(
        Theorem(
            "parallel",
            f"{_mark(loop)}: no iteration meets another"
            + (" but in a reduction" if path in reducing else ""),
            f"loop {loop.iter}",
        )
        for path, loop in marked.items()
    )


def _loops_not_shown(program: Program, marked: Mapping[Place, For]) -> dict[Place, For]:
    """Return the loops whose iterations footprints do not show to be independent: of these, sets are asked."""
    independence = Independence(program)
    open_loops = {}
    for place, stmt in walk_with_paths(program.body):
        if isinstance(stmt, Let):
            independence.inside(stmt)
        if isinstance(stmt, For) and place in marked and independence.conflicting_buffers(stmt):
            open_loops[place] = stmt
    return open_loops


def _certainly(program: Program, loop: For) -> Dependence | None:
    """What a loop carries for some literal of the bounded values around it; None where it carries nothing."""
    outer = next(path for stmt, path in walk_with_parents(program) if stmt is loop)
    ways = _with_values(tuple(starmap(_enter_block, outer)), loop)
    own = _own_of(loop, program)
    each = (_dependence_between(program, way, inner, own) for way, inner in ways)
    return next((one for one in each if one is not None), None)


def _own_of(loop: For, program: Program) -> set[str]:
    """Return the arrays that each iteration of a loop has for itself: in windows, or scalars that it writes first."""
    if loop.unit == LANE:
        return windowed_arrays(loop.body)
    scalars = (b.name for b in program.buffers if b.kind is Kind.PRIVATE and not b.shape)
    return windowed_arrays(loop.body) | {
        name for name in scalars if is_written_before_read(name, loop.body)
    }


def _mark(loop: For) -> str:
    return f"@{next(loop_marks(replace(loop, role=Role.WHOLE)), '')}"


@request_budget(
    "compile", "cannot tell whether a tile's instances are independent", help=("loops",)
)
def check_tiles(program: Program) -> None:
    """Refuse a tile of a program, cut by whomever, whose instances need each other.

    Theorem: instances that carry no dependence may run in any order, and side by side. Most tiles
    show it by their indices: along each axis, what is written and all that is accessed of it has a
    part that moves with this axis alone. The others are asked of isl, one tile at a time.
    """
    for outer, tile in _tiles(program):
        private = {b.name for b in program.buffers if b.kind is Kind.PRIVATE or b.scope is not None}
        own = private | windowed_arrays(tile.body)
        if _is_apart(tile, own):
            continue
        dependence = _dependence_between(program, outer, tile, own)
        if dependence is not None and not dependence.certain:
            each = (
                _dependence_between(program, way, inner, own)
                for way, inner in _with_values(outer, tile)
            )
            dependence = next((one for one in each if one is not None), None)
        if dependence is not None:
            raise PartitionError(
                "compile",
                "cannot run a tile whose instances need each other",
                at=f"tile {', '.join(axis.iter for axis in tile.axes)}",
                because=describe_dependence(dependence, program, {}),
                help=("loops instead of the tile keep the order",),
            )


def _dependence_between(
    program: Program, around: Sequence[Stmt], inner: Tile | For, own: Collection[str]
) -> Dependence | None:
    """Return a dependence between two instances of one tile, or iterations, by an array that is not in `own`."""
    body: tuple[Stmt, ...] = (inner,)
    for stmt in reversed(around):
        body = (only_with(stmt, body),)
    depth = sum(len(s.axes) if isinstance(s, Tile) else isinstance(s, For) for s in around)
    for one in dependences(replace(program, body=body)):
        inside = [path for _, path in one.source.loops]
        if one.path == inside[depth] and one.buffer not in own:
            return one
    return None


def _with_values(around: Sequence[Stmt], inner: Inner) -> Iterator[tuple[tuple[Stmt, ...], Inner]]:
    """Yield a tile or a loop and what encloses it, once for each literal that the bounded values around may be."""
    lets = [stmt for stmt in around if isinstance(stmt, Let)]
    if prod(let.hi - let.lo for let in lets) > _MOST_VALUES:
        yield tuple(around), inner
        return
    for literals in product(*(range(let.lo, let.hi) for let in lets)):
        values = {let.name: ix.const(q) for let, q in zip(lets, literals, strict=True)}
        way: list[Stmt] = []
        for stmt in around:
            fixed = substitute_coordinates((only_with(stmt, ()),), values)[0]
            if isinstance(fixed, Let):
                fixed = If(conjunction(equal(fixed.value, values[fixed.name])), ())
            way.append(fixed)
        (substituted,) = substitute_coordinates((inner,), values)
        assert isinstance(substituted, type(inner))
        yield tuple(way), substituted


def _tiles(program: Program) -> Iterator[tuple[tuple[Stmt, ...], Tile]]:
    """Yield every tile, with what encloses it; of an `if` that is its other branch, under the negated condition."""
    for stmt, path in walk_with_parents(program):
        if isinstance(stmt, Tile):
            yield tuple(starmap(_enter_block, path)), stmt


def _enter_block(stmt: Stmt, number: int) -> Stmt:
    if isinstance(stmt, If) and number == 1:
        return If(negate(stmt.condition), stmt.other)
    return stmt


def only_with(stmt: Stmt, body: tuple[Stmt, ...]) -> Stmt:
    """Return `stmt` with nothing but `body` inside."""
    match stmt:
        case If(condition):
            return If(condition, body)
        case Choose(options):
            return Choose((replace(options[0], body=body),))
        case Store() | Sync():
            return stmt
        case _:
            return replace(stmt, body=body)


def _is_apart(tile: Tile, own: set[str]) -> bool:
    """Return whether the indices show that no instance touches what another one writes."""
    written = {s.buffer for s in walk(tile.body) if isinstance(s, Store)} - own
    names = {axis.iter for axis in tile.axes}
    inner = {s.iter for s in walk(tile.body) if isinstance(s, For)}
    inner |= {s.name for s in walk(tile.body) if isinstance(s, Let)}
    for buffer in written:
        places = {
            tuple(map(ix.simplify, index))
            for stmt in walk(tile.body)
            for name, index in element_accesses(stmt)
            if name == buffer
        }
        for axis in names:
            others = (names | inner) - {axis}
            apart = (
                len(parts) == 1
                and not variables(part := next(iter(parts))) & others
                and coefficient(part, axis)
                for parts in map(set, zip(*places, strict=True))
            )
            if not any(apart):
                return False
    return True


def describe_dependence(one: Dependence, program: Program, sizes: Mapping[str, str]) -> str:
    """Return a dependence in words, at its smallest: the sizes, and the two instances."""
    values, first, second = one.witness
    at_sizes = ", ".join(
        f"{sizes.get(size.name, size.name)} = {value}"
        for size, value in zip(program.sizes, values, strict=True)
    )
    pair = [
        ", ".join(f"{n} = {x}" for n, x in zip(statement.iterators, point, strict=True))
        for statement, point in ((one.source, first), (one.target, second))
    ]
    says = {"flow": "writes what", "anti": "reads what", "output": "writes what"}[one.kind]
    then = {"flow": "reads", "anti": "overwrites", "output": "overwrites"}[one.kind]
    text = f"{format_stmt(one.source.store)} at {pair[0]} {says} the instance {pair[1]} {then}"
    text = text if one.certain else f"as far as sets tell, {text}"
    return f"with {at_sizes}, {text}" if at_sizes else text
