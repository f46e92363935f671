"""The lanes of a stage that reads elements at computed places: the axis along which it reads vectors.

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

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce

from offcut.core import index as ix
from offcut.core.expr import Binary, Expr, Load, Var, loads, reads_memory, real, variables
from offcut.costmodel import Inside, Machine, StatementPrices, prune_dominated
from offcut.describe.computation import Computation, Names, Stage
from offcut.partition import StagedValue, reading_value
from offcut.schedule import beside


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
