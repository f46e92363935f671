"""Reductions, and reads at computed places, bound to lanes.

Binds reductions to lanes that run over rows of memory.

``M[i] = sum over j of A[i, j]`` reads unit steps along j and rows apart along i: lanes along i would
gather, lanes along j load vectors. So the loop over j is marked ``@lane``. A column sum
``C[j] += A[i, j]`` reads unit steps along j, the axis of its result, and keeps its lanes there. A
few terms, `FEW` at most, are not worth a sum over lanes. A product of two matrices is what
microkernels compute, one chain of operations for each element: it keeps that order wherever none
covers it.

The mark depends on the statement, its indices and a literal extent alone, never on how the loops
around were cut: an element is reduced in one order in every piece.

The lanes of a stage that reads elements at computed places: the axis along which it reads vectors.

``Y[n, c, i, j] = X[n, c, P[n, i, j], Q[n, i, j]]`` gathers along j, lane by lane. Lanes along c read the same
place of as many channels, which lie side by side in a copy of X whose last axis is c. Y is computed in that order
of its axes, too, and copied::

    X_staged[z0, z2, z3, z1] = X[z0, z1, z2, z3]
    Y_turned[n, i, j, c] = X_staged[n, P[n, i, j], Q[n, i, j], c]
    Y[n, c, i, j] = Y_turned[n, i, j, c]

Both copies turn squares of vectors in registers. They pay where an element of the result reads several, as an interpolation does, and
where the images are no larger than what is read of them: of sizes that are not known, both orders compete at a call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import assert_never

from offcut.core import index as ix
from offcut.core.analysis import only_reduces
from offcut.core.dtypes import FLOATS
from offcut.core.expr import (
    Binary,
    Cast,
    Expr,
    Load,
    Var,
    dtype_of,
    loads,
    reads_memory,
    real,
    variables,
)
from offcut.core.program import (
    LANE,
    Alloc,
    Choose,
    For,
    If,
    Let,
    Program,
    Stmt,
    Store,
    Sync,
    Tile,
    walk,
)
from offcut.costmodel import Inside, Machine, StatementPrices, prune_dominated
from offcut.describe.computation import Computation, Names, Stage
from offcut.partition import StagedValue, reading_value
from offcut.polyhedral import NEXT, SAME, Spacing, row_spacing
from offcut.schedule import EVERY, Binds, beside

FEW = 7  # terms


def mark_row_reductions(program: Program, reassociate: bool, binds: Binds = EVERY) -> Program:
    """`program` with the loops marked that run as lanes of their reductions.

    reassociate   whether float sums may take part; where not, a mark on one is taken away
    binds         which loops may be marked
    """
    body = _Marker(program, reassociate, binds).block(program.body, ())
    return program if body == program.body else replace(program, body=body)


def is_row_reduction(stage: Stage) -> bool:
    """Whether the innermost reduction of `stage` is over rows of memory, many terms each."""
    if stage.reducer is None or not stage.reduce_axes:
        return False
    *outer, last = stage.reduce_axes
    around = [axis.name for axis in (*stage.axes, *outer) if ix.literal_value(axis.extent) != 1]
    point = tuple(Var(axis.name) for axis in stage.axes)
    store = Store(stage.buffer, point, stage.value, stage.reducer)
    floats = dtype_of(stage.value) in FLOATS
    return not _few(last.extent) and _on_rows(store, last.name, around, not floats)


def _few(extent: Expr) -> bool:
    literal = ix.literal_value(extent)
    return literal is not None and literal <= FEW


def _buffers_of_microkernels(program: Program) -> set[str]:
    """The buffers that some tile with a microkernel reduces into."""
    tiles = (s for s in walk(program.body) if isinstance(s, Tile) and s.microkernel is not None)
    return {s.buffer for t in tiles for s in walk(t.body) if isinstance(s, Store) and s.reduce}


class _Marker:
    """Binds the reductions of a program to lanes, but for those into buffers that microkernels reduce into."""

    def __init__(self, program: Program, reassociate: bool, binds: Binds) -> None:
        self.program, self.reassociate, self.binds = program, reassociate, binds
        self.covered = _buffers_of_microkernels(program)

    def block(self, body: Sequence[Stmt], outer: tuple[str, ...]) -> tuple[Stmt, ...]:
        """Return statements, inside of the loops `outer`, with their reductions bound to lanes."""

        def mark_inner(inner: Sequence[Stmt], *names: str) -> tuple[Stmt, ...]:
            return self.block(inner, (*outer, *names))

        result: list[Stmt] = []
        for stmt in body:
            match stmt:
                case For(name) if only_reduces(stmt):
                    result.append(self.loop(stmt, outer))
                case For(name):
                    result.append(replace(stmt, body=mark_inner(stmt.body, name)))
                case Tile():
                    names = (axis.iter for axis in stmt.axes)
                    result.append(_tile(replace(stmt, body=mark_inner(stmt.body, *names))))
                case If(condition, then, other):
                    result.append(If(condition, mark_inner(then), mark_inner(other)))
                case Let() | Alloc():
                    result.append(replace(stmt, body=mark_inner(stmt.body)))
                case Choose(options):
                    new_options = tuple(
                        replace(option, body=mark_inner(option.body)) for option in options
                    )
                    result.append(Choose(new_options))
                case Store() | Sync():
                    result.append(stmt)
                case _:
                    assert_never(stmt)
        return tuple(result)

    def loop(self, loop: For, outer: tuple[str, ...]) -> For:
        """Return a loop that only reduces, bound to lanes if it runs over rows of memory."""
        stores = [stmt for stmt in loop.body if isinstance(stmt, Store)]
        if _adds_floats(stores, self.program) and not self.reassociate:
            serial = loop.unit != LANE
            return loop if serial else replace(loop, unit=None)
        if loop.unit is not None or not self.binds.take(loop):
            return loop
        forced = self.binds.force(loop) and not any(s.buffer in self.covered for s in stores)
        if not forced and not self.is_of_rows(loop, stores, outer):
            return loop
        return replace(loop, unit=LANE)

    def is_of_rows(self, loop: For, stores: Sequence[Store], outer: tuple[str, ...]) -> bool:
        """Return whether a loop reduces over rows of memory, many terms each."""
        if _few(ix.sub(loop.hi, loop.lo)):
            return False
        for store in stores:
            arrays = {load.buffer for load, _ in loads(store.value)}
            if any(self.program.buffer(name).layout is not None for name in arrays):
                return False  # held in panels: rows of it do not lie as they are written
            moving = _moving(store, outer, self.program.buffer(store.buffer).shape)
            floats = _adds_floats(stores, self.program)
            if not _on_rows(
                store, loop.iter, moving, not floats and store.buffer not in self.covered
            ):
                return False
        return True


def _adds_floats(stores: Sequence[Store], program: Program) -> bool:
    """Return whether the order of updates makes a difference."""
    return any(
        store.reduce == "sum" and program.buffer(store.buffer).dtype in FLOATS for store in stores
    )


def _tile(tile: Tile) -> Tile:
    """`tile`, without a microkernel where all that it reduces runs as lanes of its own."""
    loops = [stmt for stmt in walk(tile.body) if isinstance(stmt, For) and only_reduces(stmt)]
    own = bool(loops) and all(loop.unit == LANE for loop in loops)
    return replace(tile, cover=None) if own else tile


def _moving(store: Store, around: Sequence[str], shape: Sequence[Expr]) -> list[str]:
    """Those of the axes around a store along which its array is longer than one element."""
    short = {
        part.name
        for part, extent in zip(store.index, shape, strict=True)
        if isinstance(part, Var) and ix.literal_value(extent) == 1
    }
    return [name for name in around if name not in short]


def _on_rows(store: Store, axis: str, around: Sequence[str], products: bool) -> bool:
    """Whether vectors along `axis` load what `store` reads, and no axis of its result does as well.

    products   whether that may be said of a product of two matrices
    """
    if not products and _is_product(store, around):
        return False
    row_spacings = set(_steps(store, axis))
    if NEXT not in row_spacings or not row_spacings <= {NEXT, SAME}:
        return False
    return not any(
        _step(store.index, name) == NEXT and set(_steps(store, name)) <= {NEXT, SAME}
        for name in around
    )


def _is_product(store: Store, around: Sequence[str]) -> bool:
    """Whether a term is the product of two loads, each of which moves with an axis of its own."""
    match _plain(store.value):
        case Binary("*", a, b):
            left, right = _plain(a), _plain(b)
            if not (isinstance(left, Load) and isinstance(right, Load)):
                return False
            moves = [
                {name for name in around if any(name in variables(part) for part in load.index)}
                & {name for part in store.index for name in variables(part)}
                for load in (left, right)
            ]
            return bool(moves[0] - moves[1]) and bool(moves[1] - moves[0])
        case _:
            return False


def _plain(value: Expr) -> Expr:
    """A value without the conversions around it."""
    while isinstance(value, Cast):
        value = value.a
    return value


def _steps(store: Store, axis: str) -> Iterator[Spacing | None]:
    """How far apart the elements lie that each load of a term reads along `axis`."""
    for load, path in loads(store.value):
        yield _step(load.index, axis)
        for condition in path:
            yield from (_step(inner.index, axis) for inner, _ in loads(condition))


def _step(index: Sequence[Expr], axis: str) -> Spacing | None:
    """How two iterations lie that begin anywhere."""
    return row_spacing(index, axis, width=2, multiple=1)


@dataclass(frozen=True, slots=True)
class GatherOrder:
    """An order of a stage's axes, that of its lanes last.

    copies   of the arrays that it reads at computed places, in which its lanes lie side by side; none: it gathers
    seconds  that it is predicted to take, with the copies: an expression over the sizes
    """

    order: tuple[str, ...]
    copies: tuple[StagedValue, ...]
    seconds: Expr


def gather_orders(
    computation: Computation, position: int, machine: Machine, lanes: int
) -> tuple[GatherOrder, ...]:
    """Return the orders of a group's axes that are worth their code, each the best at some sizes: one, or the one that gathers and
    one that reads vectors of copies; none if it does not gather.

    lanes  elements of the group's type in a vector
    """
    group = computation.groups[position]
    lead, bodies = group[0], [stage.body for stage in group]
    names = tuple(axis.name for axis in lead.axes)
    if lead.reducer is not None or not any(
        _is_gather(load, name) for name in names[-1:] for load in _loads_of_group(group)
    ):
        return ()
    if any(len(computation.buffer(stage.buffer).shape) != len(names) for stage in group):
        return ()
    prices = StatementPrices(machine, lanes)

    def seconds(*terms: tuple[Sequence[Expr], float]) -> Expr:
        """Return the sum of products of extents, each times cycles; in float64, since there may be more than 2**63 elements."""
        parts = (
            reduce(partial(Binary, "*"), (*map(real, extents), real(each / machine.hertz)))
            for extents, each in terms
        )
        return reduce(partial(Binary, "+"), parts)

    extents = [axis.extent for axis in lead.axes]
    gather_cycles = sum(prices.value(body, Inside(names[-1])) for body in bodies) / lanes
    orders = [GatherOrder(names, (), seconds((extents, gather_cycles)))]
    copy_cycles = machine.loops.gather_cycles + machine.loops.vector_cycles / lanes
    margin = 1 + machine.traffic.gather_margin
    for axis in lead.axes[:-1]:
        copies = _copies(computation, position, axis.name)
        if not copies:
            continue
        bodies_by_copies = [_read_copies(stage, copies).body for stage in group]
        each = sum(prices.value(body, Inside(axis.name)) for body in bodies_by_copies)
        vectors = ix.ceildiv(axis.extent, lanes)
        rows = [other.extent for other in lead.axes if other is not axis]
        copied_rows = [rows, *(_rows(computation, copy) for copy in copies)]
        order = (*(name for name in names if name != axis.name), axis.name)
        cost = seconds(
            ((*rows, vectors), margin * each),
            *(((*one, vectors), margin * lanes * copy_cycles) for one in copied_rows),
        )
        orders.append(GatherOrder(order, copies, cost))
    costs = [order.seconds for order in orders]
    sizes, assumptions = computation.sizes, computation.assumptions
    best = prune_dominated(costs, sizes, assumptions, machine.policy.gain, machine.call)
    turned = [orders[number] for number in best if number]
    return (*(orders[:1] if 0 in best else ()), *turned[:1])


def _loads(expr: Expr) -> list[Load]:
    return list(dict.fromkeys(load for load, _ in loads(expr)))


def _loads_of_group(group: tuple[Stage, ...]) -> list[Load]:
    return [load for stage in group for load in _loads(stage.body)]


def _is_gather(load: Load, lane: str) -> bool:
    """Return whether an element is read at a place along `lane` that another array names."""
    return any(lane in variables(part) and reads_memory(part) for part in load.index)


def _read_copies(stage: Stage, copies: tuple[StagedValue, ...]) -> Stage:
    """Return `stage` with reads of copies in place of reads of the arrays that they hold."""
    for copy in copies:
        stage = reading_value(stage, copy) or stage
    return stage


def _copies(computation: Computation, position: int, axis: str) -> tuple[StagedValue, ...] | None:
    """Return the copies of the arrays that a group gathers from, whose elements lie side by side along `axis`; None if it still gathers."""
    group = computation.groups[position]
    own, last = {stage.buffer for stage in group}, group[0].axes[-1].name
    moved_axes: dict[str, int] = {}
    for load in _loads_of_group(group):
        places = [place for place, part in enumerate(load.index) if axis in variables(part)]
        if load.buffer in own or not places or beside(load, axis):
            continue
        (place, *others), known = places, moved_axes.get(load.buffer)
        if others or load.index[place] != Var(axis) or not _is_gather(load, last):
            return None
        if known not in (None, place):
            return None
        moved_axes[load.buffer] = place
    if any(load.buffer in moved_axes for stage in group[1:] for load in _loads(stage.body)):
        return None
    names = computation.names()
    return tuple(_copy(computation, array, place, names) for array, place in moved_axes.items())


def _copy(computation: Computation, array: str, place: int, names: Names) -> StagedValue:
    """Return a copy of all elements of an array, with one of its axes as the last."""
    buffer, own_names = computation.buffer(array), Names(names.taken)
    axes = [own_names.fresh(f"z{number}") for number in range(len(buffer.shape))]
    order = (*(name for name in axes if name != axes[place]), axes[place])
    element = Load(array, tuple(map(Var, axes)), buffer.dtype)
    return StagedValue(names.fresh(f"{array}_staged"), order, tuple(map(Var, order)), element)


def _rows(computation: Computation, copy: StagedValue) -> list[Expr]:
    """Return the extents of the axes of a copy but the last."""
    (load,) = _loads(copy.value)
    shape = computation.buffer(load.buffer).shape
    last = load.index.index(Var(copy.axes[-1]))
    return [extent for place, extent in enumerate(shape) if place != last]
