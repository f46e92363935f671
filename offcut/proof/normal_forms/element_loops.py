"""A program whose loops have the names of the coordinates of its source that they run over, and count as these do.

A loop that is split by hand counts inside of its tile; which iteration of the source's loop it runs, the index of what it stores says::

    for j_tile in 0:n//16                          for j_tile in 0:n//16
      for j_in in 0:16                     ->        for j in 16*j_tile:16*j_tile + 16
        C[16*j_tile + j_in] = …                        C[j] = …

The loop runs the same iterations, in the same order. A loop of one iteration is none, and a condition on all that a loop runs is that
of a tile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from offcut.core import index as ix
from offcut.core.accesses import element_accesses
from offcut.core.analysis import analysis
from offcut.core.expr import Expr, Var, reads_memory, variables
from offcut.core.program import For, Form, If, Program, Stmt, Store, Tile, TileAxis, walk
from offcut.core.traversal import (
    all_bound_names,
    bound_names,
    free_names,
    map_blocks,
    rewrite_body,
    substitute_coordinates,
)


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
