"""Loops of a program as lanes of vectors: which loop of a nest, and why not the others.

A loop that carries no dependence may run its iterations in any order, so also side by side. Of the
loops on the way to a statement at most one becomes lanes: the one with which the nest is predicted
to be cheapest, by what its accesses cost as vectors (elements next to each other, one element for
all, or elements apart) and by how long the chain of a reduction is. That loop becomes a `Tile`
around what is inside it, reductions too, each of which keeps its order.

A scalar that every iteration of a loop writes before it reads is a register of its own in every
lane, so what it seems to carry does not count.

A loop that is marked to run as lanes of its own reductions (`lanes`) does so, and the loops around it
are left alone.

What stays as it is: a loop that carries a dependence, one that writes where memory says, a nest that only says the status of a call, and every nest that holds tiles already; where nests of products
were cut, those beside them are taken alone, as are those in a loop of more statements than are compared in pairs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from typing import assert_never, cast

from offcut.backends.cpu.lowering.lane_reductions import reduction_lanes
from offcut.backends.cpu.machine.isa import Isa
from offcut.backends.cpu.planning.embedded_nests import extract_nest
from offcut.core import index as ix
from offcut.core.analysis import accessed_arrays, at_most, statement_arrays
from offcut.core.expr import (
    Expr,
    Var,
    loads,
    reads_memory,
    substitute,
    variables,
)
from offcut.core.program import (
    LANE,
    STATUS,
    Alloc,
    Choose,
    For,
    Form,
    If,
    Kind,
    Let,
    Program,
    Stmt,
    Store,
    Sync,
    Tile,
    TileAxis,
    blocks,
)
from offcut.core.program import walk as statements
from offcut.core.traversal import used_names, with_buffer_renamed
from offcut.costmodel import Inside, Loops, StatementPrices
from offcut.describe.computation import Names
from offcut.polyhedral import (
    Dependence,
    carried_by,
    try_isl,
)
from offcut.polyhedral.units import begins_with_store
from offcut.schedule import EVERY, Binds

MOST_STORES = 32  # in a nest of which isl is asked, in pairs, whether it may run as lanes

Path = tuple[int, ...]


_NOT_TOLD = "a nest stays scalar: isl does not say which of its loops are independent"


@dataclass(frozen=True, slots=True)
class VectorizedProgram:
    """A program as the vector lowering takes it.

    notes   what became of each loop, in the order of the text
    loops   those that became lanes, as they were before
    """

    program: Program
    notes: tuple[str, ...]
    loops: tuple[For, ...]


def vectorize(
    program: Program, isa: Isa, has_tiles_beside: bool = False, binds: Binds = EVERY
) -> VectorizedProgram:
    """Return `program` with loops turned into tiles of lanes; equal to it, sums in the same order.

    has_tiles_beside  whether a loop around tiles is entered, for the nests beside these
    binds   which loops may become lanes
    """
    program, scopes = privatize(program)
    notes: list[str] = []
    bound_loops: list[For] = []
    body: list[Stmt] = []
    for position, stmt in enumerate(program.body):
        inner = {name: path for name, path in scopes.items() if path[:1] == (position,)}
        entered = _is_of_many(stmt) or (has_tiles_beside and _is_around_tiles(stmt))
        if entered and not inner and isinstance(stmt, For):
            within = vectorize(
                extract_nest(program, stmt.body, (stmt,)), isa, has_tiles_beside, binds
            )
            body.append(replace(stmt, body=within.program.body))
            notes += within.notes
            bound_loops += within.loops
            continue
        nest = _Nest(replace(program, body=(stmt,)), position, inner, isa, binds)
        loops = try_isl(nest.vectorize, None)
        body.append(stmt if loops is None else loops)
        notes += nest.notes if loops is not None else (_NOT_TOLD,)
        bound_loops += nest.bound_loops if loops is not None else ()
    if tuple(body) != program.body:
        program = replace(program, body=tuple(body))
    return VectorizedProgram(program, tuple(notes), tuple(bound_loops))


def _is_of_many(stmt: Stmt) -> bool:
    """Return whether a loop whose iterations run in turn holds more statements than are compared at once: what is in it is taken alone."""
    if not isinstance(stmt, For) or stmt.unit is not None:
        return False
    inside = [*statements((stmt,))]
    if any(isinstance(inner, Tile | Choose) for inner in inside):
        return False
    return sum(isinstance(inner, Store) for inner in inside) > MOST_STORES


def _is_around_tiles(loop: Stmt) -> bool:
    """Return whether tiles stand in a loop whose iterations run in turn, beside loops."""
    if not isinstance(loop, For) or loop.unit is not None:
        return False
    tiled = [any(isinstance(inner, Tile) for inner in statements((s,))) for s in loop.body]
    return any(tiled) and not all(tiled)


def privatize(program: Program) -> tuple[Program, dict[str, Path]]:
    """Return `program` with each scalar that lives in a block only as a private buffer of that block.

    The second result is the path of the block, by the buffer's name. A scalar lives in blocks only
    where every access of it is inside a block that writes it before all else.
    """
    names = Names(used_names(program))
    buffers, body, scopes = list(program.buffers), program.body, dict[str, Path]()
    for buffer in program.buffers:
        if buffer.kind not in (Kind.LOCAL, Kind.PRIVATE) or buffer.shape or buffer.scope:
            continue
        block_paths = _scopes(buffer.name, body, ())
        if not block_paths or () in block_paths:
            continue
        position = buffers.index(buffer)
        buffers.pop(position)
        for number, path in enumerate(block_paths):
            name = buffer.name if not number else names.fresh(buffer.name)
            scopes[name] = path
            buffers.insert(position + number, replace(buffer, name=name, kind=Kind.PRIVATE))
            if name != buffer.name:
                body = _rename_buffer(body, path, buffer.name, name)
    if not scopes:
        return program, scopes
    return replace(program, buffers=tuple(buffers), body=body), scopes


def _scopes(buffer: str, body: Sequence[Stmt], path: Path) -> list[Path] | None:
    """Return the outermost blocks that write `buffer` first, where they hold all accesses of it; else None."""
    if begins_with_store(buffer, body):
        return [path]
    paths: list[Path] = []
    for position, stmt in enumerate(body):
        here = (*path, position)
        if buffer in statement_arrays(stmt):
            return None
        if isinstance(stmt, Tile | Choose | Alloc):
            if buffer in accessed_arrays((stmt,)):
                return None
            continue
        inside = blocks(stmt)
        for number, block in enumerate(inside):
            deeper = _scopes(buffer, block, here if len(inside) == 1 else (*here, number))
            if deeper is None:
                return None
            paths += deeper
    return paths


def _rename_buffer(body: tuple[Stmt, ...], path: Path, old: str, new: str) -> tuple[Stmt, ...]:
    """Return `body` with a buffer called otherwise inside the block at `path`."""
    if not path:
        return with_buffer_renamed(body, old, new)
    position, rest = path[0], path[1:]
    stmt = body[position]
    match stmt:
        case If(condition, then, other):
            if rest[0] == 0:
                stmt = If(condition, _rename_buffer(then, rest[1:], old, new), other)
            else:
                stmt = If(condition, then, _rename_buffer(other, rest[1:], old, new))
        case For() | Let():
            stmt = replace(stmt, body=_rename_buffer(stmt.body, rest, old, new))
        case _:
            pass
    return (*body[:position], stmt, *body[position + 1 :])


@dataclass
class _Nest:
    """A statement of the program, `position` of its body, as a program of its own.

    scopes   the block of each private scalar in it
    """

    program: Program
    position: int
    scopes: Mapping[str, Path]
    isa: Isa
    binds: Binds
    notes: list[str] = field(default_factory=list)
    bound_loops: list[For] = field(default_factory=list)
    carried: dict[Path, list[Dependence]] = field(default_factory=dict)
    around: list[For] = field(default_factory=list)

    def vectorize(self) -> Stmt:
        (stmt,) = self.program.body
        inside = list(statements((stmt,)))
        if any(isinstance(inner, Tile | Choose) for inner in inside):
            return stmt
        if not any(isinstance(inner, For) for inner in inside):
            return stmt
        stored = {inner.buffer for inner in inside if isinstance(inner, Store)}
        if all(self.program.buffer(name).scope == STATUS for name in stored):
            return stmt
        stores = sum(isinstance(inner, Store) for inner in inside)
        if stores > MOST_STORES:
            self.notes.append(f"{stores} statements: sequential, too many to compare in pairs")
            return stmt
        dependences_by_path = try_isl(lambda: carried_by(self.program), None)
        for path, dependences in (dependences_by_path or {}).items():
            own = [one for one in dependences if not self.within(one, path)]
            self.carried[self.position, *path[1:]] = own
        return self.best(stmt, (self.position,))[1]

    @property
    def width(self) -> int:
        """Lanes of a vector."""
        return self.isa.lanes("float32")

    @property
    def loops(self) -> Loops:
        """What loops cost here."""
        return self.isa.machine.loops

    @property
    def prices(self) -> StatementPrices:
        """What statements cost here."""
        return StatementPrices(self.isa.machine, self.width)

    def reduces(self, stmt: Stmt) -> bool:
        """Return whether a statement is a loop that runs as lanes of its own reductions."""
        return isinstance(stmt, For) and reduction_lanes(stmt, self.program, self.isa) is not None

    def within(self, dependence: Dependence, path: Path) -> bool:
        """Return whether a dependence is one of a scalar that each iteration of the loop has for itself."""
        if self.program.buffer(dependence.buffer).scope == STATUS:
            return True  # whoever says it, says the same
        scope = self.scopes.get(dependence.buffer)
        at = (self.position, *path[1:])
        return scope is not None and scope[: len(at)] == at

    def best(self, stmt: Stmt, path: Path) -> tuple[float, Stmt]:
        """Predicted cycles of `stmt`, run once, and its cheapest form."""
        match stmt:
            case For():
                return self.loop(stmt, path)
            case Store():
                return self.prices.store(stmt, Inside()), stmt
            case If(condition, then, other):
                yes, then = self.block(then, (*path, 0))
                no, other = self.block(other, (*path, 1))
                branch = If(condition, then, other)
                sides = (yes + no) * self.loops.branch_share
                return self.prices.branch(condition, Inside()) + sides, branch
            case Let() | Alloc():
                cycles, body = self.block(stmt.body, path)
                return cycles + self.loops.bind_cycles, replace(stmt, body=body)
            case Tile() | Choose() | Sync():
                return 0.0, stmt
            case _:
                assert_never(stmt)

    def block(self, body: Sequence[Stmt], path: Path) -> tuple[float, tuple[Stmt, ...]]:
        cheapest = [self.best(stmt, (*path, position)) for position, stmt in enumerate(body)]
        return sum(cycles for cycles, _ in cheapest), tuple(stmt for _, stmt in cheapest)

    def loop(self, loop: For, path: Path) -> tuple[float, Stmt]:
        noted, before = len(self.notes), len(self.bound_loops)
        self.notes.append("")
        trips = self.trips(loop)
        carried = self.carried.get(path)
        self.around.append(loop)
        inner, body = self.block(loop.body, path)
        chain = self.prices.chain(loop)
        each = self.lane_block(loop.body, Inside(loop.iter, "", _buffers_written(loop.body)))
        as_lanes = self.loops.enter_cycles + ceil(trips / self.width) * each
        self.around.pop()
        if self.reduces(loop):
            self.notes[noted] = f"loop {loop.iter} as lanes of its reductions"
            return as_lanes + self.loops.reduce_cycles, loop
        step = self.loops.iterate_cycles + max(inner, chain)
        cycles, vector = trips * step, cast("Stmt", replace(loop, body=body))
        across = _transposing_tile(loop, body) if carried == [] and loop.unit is None else None
        if across is not None:
            vector = replace(across, axes=(_axis_of(loop), *across.axes))
        if carried is None or carried:
            self.notes[noted] = f"loop {loop.iter} sequential: {_reason(carried)}"
            return cycles, vector
        if not _takes_lanes(loop):
            self.notes[noted] = f"loop {loop.iter} sequential: it allocates inside"
            return cycles, vector
        is_reduced = any(self.reduces(stmt) for stmt in statements(loop.body))
        if loop.unit != LANE and not self.binds.take(loop):
            self.notes[noted] = (
                f"loop {loop.iter} one by one: its schedule does not bind it to {LANE}"
            )
            return cycles, vector
        forced = loop.unit == LANE or self.binds.force(loop)
        if not forced and _scatters(loop):
            self.notes[noted] = f"loop {loop.iter} one by one: it writes where memory says"
            return cycles, vector
        if not is_reduced and (as_lanes < cycles or forced):
            del self.notes[noted:], self.bound_loops[before:]
            self.bound_loops.append(loop)
            self.notes.append(f"loop {loop.iter} as lanes of vectors")
            self.inside(loop.body, path)
            return as_lanes, self.lanes(loop, path)
        self.notes[noted] = f"loop {loop.iter} one by one: " + (
            "a loop inside runs as lanes"
            if is_reduced or any(isinstance(stmt, Tile) for stmt in statements((vector,)))
            else "as lanes it is predicted to take longer"
        )
        return cycles, vector

    def trips(self, loop: For) -> float:
        """Iterations, where the text says how many at most, also by the loops around; else the policy's."""
        extent = ix.sub(loop.hi, loop.lo)
        bounds = [at_most(extent)]
        for outer in reversed(self.around):
            factor = dict(ix.to_linear(extent).terms).get(Var(outer.iter), 0)
            if factor:
                end = outer.lo if factor < 0 else ix.sub(outer.hi, 1)
                extent = ix.simplify(substitute(extent, {outer.iter: end}))
                bounds.append(at_most(extent))
        known_bounds = [value for value in bounds if value is not None]
        return float(max(min(known_bounds), 0) if known_bounds else self.isa.machine.policy.trips)

    def inside(self, body: Sequence[Stmt], path: Path) -> None:
        """Say of the loops inside a loop of lanes that each lane runs them."""
        for position, stmt in enumerate(body):
            here = (*path, position)
            if isinstance(stmt, For):
                self.notes.append(f"loop {stmt.iter} inside the lanes")
            inner = blocks(stmt)
            for number, block in enumerate(inner):
                self.inside(block, here if len(inner) == 1 else (*here, number))

    def lanes(self, loop: For, path: Path) -> Stmt:
        """Return the tile that runs a loop; parallel loops right inside it move out, around the tile."""
        match loop.body:
            case (For() as inner,) if self.carried.get(
                (*path, 0)
            ) == [] and loop.iter not in variables(inner.lo) | variables(inner.hi):
                below = self.lanes(replace(loop, body=inner.body), (*path, 0))
                return replace(inner, body=(below,))
        return Tile((_axis_of(loop),), loop.body)

    def lane_block(self, body: Sequence[Stmt], at: Inside) -> float:
        """Predicted cycles of `body` for a vector of instances along its lane."""
        total = 0.0
        for stmt in body:
            match stmt:
                case For():
                    trips = self.trips(stmt)
                    self.around.append(stmt)
                    inner = Inside(at.lane, stmt.iter, _buffers_written(stmt.body))
                    cycles = self.lane_block(stmt.body, inner)
                    self.around.pop()
                    masked = at.lane in variables(stmt.lo) | variables(stmt.hi)
                    step = self.loops.lane_iterate_cycles + masked * self.loops.mask_cycles
                    chain = self.prices.chain(stmt, side_by_side=True)
                    total += trips * (step + max(cycles, chain))
                case Store():
                    total += self.prices.store(stmt, at)
                case If(condition, then, other):
                    sides = self.lane_block(then, at) + self.lane_block(other, at)
                    total += self.prices.branch(condition, at) + sides
                case Let() | Alloc():
                    total += self.loops.bind_cycles + self.lane_block(stmt.body, at)
                case Tile() | Choose() | Sync():
                    pass
                case _:
                    assert_never(stmt)
        return total


def _axis_of(loop: For) -> TileAxis:
    """Return the iterations of a loop as an axis of a tile."""
    return TileAxis(loop.iter, loop.lo, ix.sub(loop.hi, loop.lo))


def _transposing_tile(loop: For, body: Sequence[Stmt]) -> Tile | None:
    """Return the lanes in a loop that write side by side what it reads side by side: both are one tile, which is turned in registers; None for
    other bodies.
    """
    match body:
        case (Tile((across,), (Store(_, (*_, last), value),), None, Form.FULL) as lanes,):
            read = [load.index[-1] for load, _ in loads(value) if load.index]
            turned = read and all(
                _step(one, loop.iter) == 1 and across.iter not in variables(one) for one in read
            )
            bounds = variables(across.start) | variables(across.extent)
            if turned and loop.iter not in bounds and _step(last, across.iter) == 1:
                return lanes
    return None


def _step(index: Expr, name: str) -> int:
    """Return by how much an index grows with an iteration of a loop, where it is linear."""
    return dict(ix.to_linear(index).terms).get(Var(name), 0)


def _buffers_written(body: Sequence[Stmt]) -> frozenset[str]:
    return frozenset(stmt.buffer for stmt in statements(tuple(body)) if isinstance(stmt, Store))


def _reason(carried: Sequence[Dependence] | None) -> str:
    if carried is None:
        return "its dependences are not known"
    first = next((one for one in carried if one.certain), carried[0])
    arrow = f"{first.source.store.buffer} -> {first.target.store.buffer}"
    more = f", and {len(carried) - 1} more" if len(carried) > 1 else ""
    carries = "carries" if any(one.certain for one in carried) else "may carry"
    return f"it {carries} {first.kind} {arrow}{more}"


def _scatters(loop: For) -> bool:
    """Return whether a loop writes at places that memory says, which differ between its iterations: one by one, they are written as fast."""
    return any(
        isinstance(stmt, Store)
        and any(loop.iter in variables(part) and reads_memory(part) for part in stmt.index)
        for stmt in statements(loop.body)
    )


def _takes_lanes(loop: For) -> bool:
    return not any(isinstance(stmt, Alloc) for stmt in statements(loop.body))
