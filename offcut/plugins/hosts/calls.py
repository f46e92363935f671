"""Covered tiles as calls: the views of arrays that a microkernel takes, and the extent of each of its axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from offcut.core import index as ix
from offcut.core.conditions import conjunction, conjuncts
from offcut.core.dtypes import FLOATS
from offcut.core.expr import Const, Expr, Load, Select, Var, loads, substitute, variables
from offcut.core.expr import rewrite as rewrite_expr
from offcut.core.expr import walk as nodes
from offcut.core.program import (
    Alloc,
    Buffer,
    Cover,
    For,
    Form,
    If,
    Kind,
    Program,
    Stmt,
    Store,
    Tile,
    TileAxis,
    walk,
)
from offcut.core.traversal import expressions, map_expressions, rewrite, rewrite_body
from offcut.describe.microkernel import Microkernel
from offcut.errors import PartitionError

Refuse = Callable[..., PartitionError]


@dataclass(frozen=True)
class View:
    """A view of an array: the elements of one operand.

    first    the index of the first one
    sizes    along each axis of the operand
    strides  for each axis of the operand, how far one step goes along each axis of the array, in its elements
    """

    buffer: str
    first: tuple[Expr, ...]
    sizes: tuple[Expr, ...]
    strides: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Call:
    """A call ``name(views…, extents…)``: the operands in the order in which the microkernel reads them, its result last.

    name     of the instruction: the microkernel's, its reset's where it starts a sum alone, its update's where it adds to one
    extents  along each axis of the microkernel, those of its reduction last
    """

    name: str
    views: tuple[View, ...]
    extents: tuple[Expr, ...]


def call_of(tile: Tile, kernel: Microkernel) -> Call:
    """Return the call of a tile whose cover names all axes and operands, without a condition."""
    definition = kernel.definition
    axes = [axis.name for axis in (*definition.axes, *definition.reduce_axes)]
    starts, counts = _bounds(tile)
    iterators = dict(_cover(tile).axes)
    extents = {axis: counts[iterators[axis]] if axis in iterators else ix.const(1) for axis in axes}
    views = []
    for name, index in _declared_indices(kernel, tile).items():
        buffer, index_of_array = _access(tile, name, index, iterators)
        strides, sizes = [], []
        for part in index:
            form = ix.to_linear(part)
            lead = min(form.terms, key=lambda term: (term[1] != 1, repr(term[0])))[0]
            iterator = iterators.get(lead.name) if isinstance(lead, Var) else None
            strides.append(tuple(_factor(one, iterator) for one in index_of_array))
            sizes.append(_span(part, extents))
        first = tuple(ix.simplify(substitute(part, starts)) for part in index_of_array)
        views.append(View(buffer, first, tuple(sizes), tuple(strides)))
    return Call(_name(tile, kernel), tuple(views), tuple(extents.values()))


def with_full_tiles(
    program: Program, kernel_of: Callable[[str], Microkernel], refuse: Refuse
) -> Program:
    """Return `program` in which no covered tile has a condition: the microkernel runs on copies of full size.

    What lies outside of an array, or of the condition, is 0 in the copies; of the result only instances in the condition go back.
    """
    new_buffers: list[Buffer] = []

    def rule(stmt: Stmt) -> Stmt | None:
        if not isinstance(stmt, Tile) or stmt.cover is None:
            return None
        if not _conditions(stmt):
            return stmt if stmt.form is Form.FULL else replace(stmt, form=Form.FULL)
        full, buffers = _on_copies(stmt, kernel_of(stmt.cover.microkernel), program, refuse)
        new_buffers.extend(b for b in buffers if b not in new_buffers)
        return full

    result = rewrite(program, rule)
    return replace(result, buffers=(*result.buffers, *new_buffers)) if new_buffers else result


def _on_copies(
    tile: Tile, kernel: Microkernel, program: Program, refuse: Refuse
) -> tuple[Stmt, list[Buffer]]:
    """Return a tile with a condition as one without, on copies, and these.

    A copy is the box of what the tile touches, if it were full: ``copy[u] = A[first + u]``.
    """
    starts, counts = _bounds(tile)
    conditions = _conditions(tile)
    iterators, cover = dict(_cover(tile).axes), _cover(tile)
    copies, before, after = list[Buffer](), list[Stmt](), list[Stmt]()
    copy_of: dict[str, tuple[str, tuple[Expr, ...]]] = {}
    for name, index in _declared_indices(kernel, tile).items():
        array, index_of_array = _access(tile, name, index, iterators)
        whole = program.buffer(array)
        if array in copy_of:
            raise refuse(
                tile, f"two of its operands are elements of {array}, and its tile is not full"
            )
        first = tuple(ix.simplify(substitute(part, starts)) for part in index_of_array)
        sizes = tuple(_span(part, counts) for part in index_of_array)
        copy = Buffer(f"{array}_{kernel.name}", whole.dtype, sizes, Kind.LOCAL, scope=whole.scope)
        copies.append(copy)
        copy_of[array] = copy.name, first
        is_result = name == kernel.computes.name
        if not is_result or not _is_first_update(tile):
            box = [Var(f"{copy.name}_{axis}") for axis in range(len(sizes))]
            array_index = tuple(map(ix.add, first, box))
            plain = {
                p.name: at
                for p, at in zip(index_of_array, array_index, strict=True)
                if isinstance(p, Var)
            }
            in_bounds = [
                ix.compare(op, part, end)
                for part, extent in zip(array_index, whole.shape, strict=True)
                for op, end in ((">=", ix.const(0)), ("<", extent))
            ]
            in_bounds += [
                substitute(c, plain) for c in conditions if variables(c) & set(counts) <= set(plain)
            ]
            zero = Const(0.0 if whole.dtype in FLOATS else 0, whole.dtype)
            at = tuple(box)
            element = Store(copy.name, at, Load(array, array_index, whole.dtype))
            body: tuple[Stmt, ...] = (
                If(conjunction(in_bounds), (element,), (Store(copy.name, at, zero),)),
            )
            for variable, size in zip(reversed(box), reversed(sizes), strict=True):
                body = (For(variable.name, ix.const(0), size, body),)
            before += body
        if is_result:
            renamed_axes = {axis.iter: Var(f"{axis.iter}_{copy.name}") for axis in tile.axes}
            array_index = tuple(substitute(part, renamed_axes) for part in index_of_array)
            value = Load(copy.name, tuple(map(ix.sub, array_index, first)), whole.dtype)
            body = (Store(array, array_index, value),)
            outer_conditions = [
                c for c in conditions if not variables(c) & set(counts) - set(renamed_axes)
            ]
            if outer_conditions:
                body = (
                    If(conjunction([substitute(c, renamed_axes) for c in outer_conditions]), body),
                )
            for axis in reversed(tile.axes):
                end = ix.add(axis.start, axis.extent)
                body = (For(renamed_axes[axis.iter].name, axis.start, end, body),)
            after += body

    def in_copy(expr: Expr) -> Expr:
        return rewrite_expr(expr, element_of_copy)

    def element_of_copy(node: Expr) -> Expr | None:
        if isinstance(node, Load) and node.buffer in copy_of:
            name, first = copy_of[node.buffer]
            return Load(name, tuple(map(ix.sub, node.index, first)), node.dtype)
        return None

    def store_to_copy(stmt: Stmt) -> Stmt | None:
        if isinstance(stmt, Store) and stmt.buffer in copy_of:
            name, first = copy_of[stmt.buffer]
            return replace(stmt, buffer=name, index=tuple(map(ix.sub, stmt.index, first)))
        return None

    body = rewrite_body(tuple(map_expressions(stmt, in_copy) for stmt in tile.body), store_to_copy)
    operands = tuple((name, copy_of[array][0]) for name, array in cover.operands)
    full = replace(
        tile, body=body, where=None, form=Form.FULL, cover=replace(cover, operands=operands)
    )
    statements: tuple[Stmt, ...] = (*before, full, *after)
    for copy in reversed(copies):
        statements = (
            Alloc(copy.name, tuple((ix.const(0), n) for n in copy.shape), statements, copy.scope),
        )
    return statements[0], copies


def _conditions(tile: Tile) -> tuple[Expr, ...]:
    """Return the conditions of a tile: those of its instances, and those of the terms of its sum, ``where(p < n, term, -0.0)``."""
    conditions = conjuncts(tile.where) if tile.where is not None else ()
    for stmt in walk(tile.body):
        match stmt:
            case Store(value=Select(condition, _, Const()), reduce=str()):
                conditions = (*conditions, *conjuncts(condition))
    return conditions


def _span(part: Expr, counts: Mapping[str, Expr]) -> Expr:
    """Return how many neighbours an index passes over in a tile."""
    steps = [
        ix.mul(factor, ix.sub(counts[atom.name], 1))
        for atom, factor in ix.to_linear(part).terms
        if isinstance(atom, Var) and atom.name in counts
    ]
    return ix.add(1, *steps)


def _cover(tile: Tile) -> Cover:
    assert tile.cover is not None
    return tile.cover


def _declared_indices(kernel: Microkernel, tile: Tile) -> dict[str, tuple[Expr, ...]]:
    """Return the index of each operand of a tile as the microkernel is declared, in the order of its call: what starts a sum has the result alone."""
    definition, operands = kernel.definition, dict(_cover(tile).operands)
    indices = {
        load.buffer: load.index for load, _ in loads(definition.body) if load.buffer in operands
    }
    return {**indices, kernel.computes.name: tuple(Var(axis.name) for axis in definition.axes)}


def _access(
    tile: Tile, operand: str, index: tuple[Expr, ...], iterators: Mapping[str, str]
) -> tuple[str, tuple[Expr, ...]]:
    """Return the array that is an operand of a tile, and its index there."""
    buffer = dict(_cover(tile).operands)[operand]
    moving = {iterators[n] for part in index for n in variables(part) if n in iterators}
    axes = set(iterators.values())
    stmts = list(walk(tile.body))
    stores = [stmt.index for stmt in stmts if isinstance(stmt, Store) and stmt.buffer == buffer]
    read = [
        node.index
        for stmt in stmts
        for expr in expressions(stmt)
        for node in nodes(expr)
        if isinstance(node, Load) and node.buffer == buffer
    ]
    accesses = [*stores, *read]
    alike = (
        one for one in accesses if set().union(*(variables(part) for part in one)) & axes == moving
    )
    return buffer, next(alike, accesses[0])


def _bounds(tile: Tile) -> tuple[dict[str, Expr], dict[str, Expr]]:
    """Return where each loop of a tile starts, and how many iterations it has."""
    loops = [
        TileAxis(s.iter, s.lo, ix.sub(s.hi, s.lo)) for s in walk(tile.body) if isinstance(s, For)
    ]
    axes = (*tile.axes, *loops)
    return {a.iter: a.start for a in axes}, {a.iter: a.extent for a in axes}


def _factor(part: Expr, iterator: str | None) -> int:
    return 0 if iterator is None else dict(ix.to_linear(part).terms).get(Var(iterator), 0)


def _is_first_update(tile: Tile) -> bool:
    """Return whether a tile writes its result before it adds to it."""
    first = tile.body[0]
    return isinstance(first, Store) and first.reduce is None


def _name(tile: Tile, kernel: Microkernel) -> str:
    if not kernel.definition.reduce_axes:
        return kernel.name
    if not _is_first_update(tile):
        return kernel.update or f"{kernel.name}_update"
    return kernel.name if len(tile.body) > 1 else kernel.reset or f"{kernel.name}_reset"
