"""A program whose loops have the names of the coordinates of its source that they run over, and count as these do.

A loop that is split by hand counts inside of its tile; which iteration of the source's loop it runs, the index of what it stores says::

    for j_tile in 0:n//16                          for j_tile in 0:n//16
      for j_in in 0:16                     ->        for j in 16*j_tile:16*j_tile + 16
        C[16*j_tile + j_in] = …                        C[j] = …

The loop runs the same iterations, in the same order. A loop of one iteration is none, and a condition on all that a loop runs is that
of a tile.

Tiles of one iteration that name the coordinates of a source, in a program whose loops count other things.

::

    for b in 0:(n + 3)//4                        for b in 0:(n + 3)//4
      for w in 0:4                                 for w in 0:4
        if 4*b + w < n                   ->          if 4*b + w < n
          C[4*b + w] = A[4*b + w]                      tile i in 4*b + w +: 1
                                                         C[i] = A[i]

The two run the same: inside of the tile ``w`` is ``i - 4*b``. Where each loop of the source is named so, programs are compared side by
side (`by_structure`), whatever stands inside: loops that end at elements of arrays, which sets do not say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TypeAlias

from offcut.core import index as ix
from offcut.core.analysis import analysis, element_accesses
from offcut.core.expr import Expr, Var, children, reads_memory, rebuild, substitute, variables
from offcut.core.program import For, Form, If, Program, Stmt, Store, Tile, TileAxis, walk
from offcut.core.traversal import (
    all_bound_names,
    bound_names,
    free_names,
    map_blocks,
    map_body,
    rewrite_body,
    substitute_coordinates,
)
from offcut.describe.computation import Names
from offcut.polyhedral import coefficient


def name_loops_like(source: Program, program: Program) -> tuple[Program, Program]:
    """Return two programs without loops of one iteration, the second one with its loops over coordinates of the first called so."""
    source, program = map(drop_single_iterations, (source, program))
    coordinates = {
        place: part.name
        for store in analysis(source).of(Store)
        for place, part in _places(store)
        if isinstance(part, Var)
    }
    naming = _Naming(coordinates, analysis(source).iterators)
    body = naming.block(program.body, frozenset())
    return source, program if body == program.body else replace(program, body=body)


def drop_single_iterations(program: Program) -> Program:
    """Return `program` with what loops of one iteration run in their place."""

    def rule(stmt: Stmt) -> tuple[Stmt, ...] | None:
        if not isinstance(stmt, For) or ix.sub(stmt.hi, stmt.lo) != ix.const(1):
            return None
        if variables(stmt.lo) & all_bound_names(stmt.body):
            return None
        return substitute_coordinates(stmt.body, {stmt.iter: stmt.lo})

    body = rewrite_body(program.body, rule)
    return program if body == program.body else replace(program, body=body)


# (the array that a statement stores, one that it accesses, an axis of this)
_Place = tuple[str, str, int]


def _places(store: Store) -> Iterator[tuple[_Place, Expr]]:
    """Yield the places of all that a statement accesses, each with the index there, those of what it stores first."""
    for array, index in element_accesses(store):
        for axis, part in enumerate(index):
            yield (store.buffer, array, axis), part


@dataclass(frozen=True)
class _Naming:
    """The coordinates of a source.

    coordinates  those that are indices, by their places
    iterators    all names of its loops
    """

    coordinates: Mapping[_Place, str]
    iterators: frozenset[str]

    def block(self, body: Sequence[Stmt], around: frozenset[str]) -> tuple[Stmt, ...]:
        """Return statements with their loops named, inside of loops and tiles that bind the names `around`."""
        return tuple(self.statement(stmt, around) for stmt in body)

    def statement(self, stmt: Stmt, around: frozenset[str]) -> Stmt:
        """Return a statement with its loops named."""
        if isinstance(stmt, For) and stmt.iter not in self.iterators:
            stmt = self.loop(stmt, around)
        inside = around | {*bound_names(stmt)}
        named = map_blocks(stmt, lambda block: self.block(block, inside))
        return _to_masked_tile(named) if isinstance(named, For) else named

    def loop(self, loop: For, around: frozenset[str]) -> For:
        """Return a loop as one over a coordinate; as it is where it runs over none."""
        bound = all_bound_names((loop,))
        taken = around | bound | free_names((loop,))
        stores = (stmt for stmt in walk(loop.body) if isinstance(stmt, Store))
        for place, part in chain.from_iterable(map(_places, stores)):
            name, offset = self.coordinates.get(place), ix.sub(part, Var(loop.iter))
            if loop.iter not in variables(part) or variables(offset) & bound:
                continue
            if name is not None and name not in taken:
                inside = {loop.iter: ix.sub(Var(name), offset)}
                lo, hi = ix.add(loop.lo, offset), ix.add(loop.hi, offset)
                body = substitute_coordinates(loop.body, inside)
                return replace(loop, iter=name, lo=lo, hi=hi, body=body)
        return loop


def _to_masked_tile(loop: For) -> Stmt:
    """Return a loop with a condition on all that it runs as a tile of that condition; any other as it is."""
    match loop.body:
        case (If(condition, then, ()),) if not reads_memory(condition):
            axis = TileAxis(loop.iter, loop.lo, ix.sub(loop.hi, loop.lo))
            return Tile((axis,), then, condition, Form.GUARD)
    return loop


Coordinates: TypeAlias = Mapping[str, Mapping[int, str]]
"""By array, and axis of it, the loop of the source that counts it in all stores."""


def ends_at_elements(program: Program) -> bool:
    """Return whether a loop of a program begins or ends at an element of an array."""
    loops = (stmt for stmt in walk(program.body) if isinstance(stmt, For))
    return any(reads_memory(bound) for loop in loops for bound in (loop.lo, loop.hi))


def with_distinct_loops(program: Program) -> Program:
    """Return `program` with another name for each loop of a nest that has the name of one before, as decisions by hand call them."""

    def change(stmt: Stmt, names: Names) -> Stmt:
        if isinstance(stmt, For) and (name := names.fresh(stmt.iter)) != stmt.iter:
            body = substitute_coordinates(stmt.body, {stmt.iter: Var(name)})
            stmt = replace(stmt, iter=name, body=body)
        return map_blocks(stmt, lambda body: tuple(change(one, names) for one in body))

    return replace(program, body=tuple(change(stmt, Names()) for stmt in program.body))


def with_unit_tiles(source: Program, emitted: Program) -> Program:
    """Return `emitted` with a tile of one iteration around what nests of other loops run, for each loop of `source` that it lacks."""
    lacking = all_bound_names(source.body) - all_bound_names(emitted.body)
    counted = _coordinates(source, lacking)
    own = all_bound_names(source.body)
    body = tuple(_with_tiles(stmt, (), counted, own) for stmt in emitted.body)
    return emitted if body == emitted.body else replace(emitted, body=body)


def _coordinates(source: Program, loops: frozenset[str]) -> Coordinates:
    """Return the coordinates of these loops of a program."""
    parts_of: dict[str, dict[int, set[Expr]]] = {}
    for store in _stores(source.body):
        for axis, part in enumerate(store.index):
            parts_of.setdefault(store.buffer, {}).setdefault(axis, set()).add(part)
    return {
        buffer: {
            axis: part.name
            for axis, parts in axes.items()
            for part in parts
            if len(parts) == 1 and isinstance(part, Var) and part.name in loops
        }
        for buffer, axes in parts_of.items()
    }


def _stores(body: Sequence[Stmt]) -> Iterator[Store]:
    return (stmt for stmt in walk(tuple(body)) if isinstance(stmt, Store))


def _with_tiles(
    stmt: Stmt, around: tuple[str, ...], counted: Coordinates, own: frozenset[str]
) -> Stmt:
    """Return a statement with tiles around what its innermost loops run that the source has not.

    around  the iterators of such loops around
    own     the iterators of the source
    """
    match stmt:
        case For(name) if name not in own:
            inside = (*around, name)
        case If() if around:
            inside = around
        case _:
            return map_blocks(
                stmt, lambda body: tuple(_with_tiles(one, (), counted, own) for one in body)
            )

    def block(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        if len(body) == 1 and _is_outer(body[0], own):
            return (_with_tiles(body[0], inside, counted, own),)
        return _tiled(body, inside, counted)

    return map_blocks(stmt, block)


def _is_outer(stmt: Stmt, own: frozenset[str]) -> bool:
    """Return whether a statement is a loop that the source has not, or a condition."""
    return (
        stmt.iter not in own if isinstance(stmt, For) else isinstance(stmt, If) and not stmt.other
    )


def _tiled(body: tuple[Stmt, ...], loops: Sequence[str], counted: Coordinates) -> tuple[Stmt, ...]:
    """Return statements in a tile of the coordinates that these loops count for all stores of them."""
    places: dict[str, set[Expr]] = {}
    for store in _stores(body):
        for axis, name in counted.get(store.buffer, {}).items():
            places.setdefault(name, set()).add(store.index[axis])
    axes, values = list[TileAxis](), dict[str, Expr]()
    for name, starts in places.items():
        start, *others = starts
        steps = (one for one in reversed(loops) if one not in values)
        loop = next((one for one in steps if coefficient(start, one) == 1), None)
        if not others and loop is not None:
            axes.append(TileAxis(name, start, ix.const(1)))
            values[loop] = ix.sub(Var(name), ix.sub(start, Var(loop)))
    if not axes:
        return body
    return (Tile(tuple(axes), map_body(body, lambda expr: _folded(substitute(expr, values)))),)


def _folded(expr: Expr) -> Expr:
    """Return an expression with all index arithmetic in it folded, also that of places of elements that are an index."""
    return ix.fold_indices(rebuild(expr, tuple(map(_folded, children(expr)))))
