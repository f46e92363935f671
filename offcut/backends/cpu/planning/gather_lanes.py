"""The lanes of a stage that reads elements at computed places: the axis along which it reads vectors.

``Y[n, c, i, j] = X[n, c, P[n, i, j], Q[n, i, j]]`` gathers along j, lane by lane. Lanes along c read the same
place of as many channels, which lie side by side in a copy of X whose last axis is c. Y is computed in that order
of its axes, too, and copied::

    X_staged[z0, z2, z3, z1] = X[z0, z1, z2, z3]
    Y_turned[n, i, j, c] = X_staged[n, P[n, i, j], Q[n, i, j], c]
    Y[n, c, i, j] = Y_turned[n, i, j, c]

Both copies turn squares of vectors in registers. They pay where an element of the result reads several, as an interpolation does.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, prod

from offcut.core import index as ix
from offcut.core.expr import Expr, Load, Var, loads, reads_memory, variables
from offcut.costmodel import Inside, Machine, StatementPrices
from offcut.describe.computation import Computation, Names, Stage
from offcut.partition import StagedValue, reading_value
from offcut.schedule import beside


@dataclass(frozen=True, slots=True)
class TurnedGather:
    """The order of a stage's axes in which it gathers nothing.

    copies  of the arrays that it reads at computed places
    order   of its axes, that of its lanes last
    """

    copies: tuple[StagedValue, ...]
    order: tuple[str, ...]


def turned_gather(
    computation: Computation, position: int, machine: Machine, lanes: int
) -> TurnedGather | None:
    """Return the order of a group's axes in which it reads vectors instead of gathering; None if it does not gather, or if the copies
    are predicted to cost more than that saves.

    lanes  elements of the group's type in a vector
    """
    group = computation.groups[position]
    lead, bodies = group[0], [stage.body for stage in group]
    names = [axis.name for axis in lead.axes]
    rank = len(names)
    if lead.reducer is not None or not any(
        _is_gather(load, name) for name in names[-1:] for load in _loads_of_group(group)
    ):
        return None
    if any(len(computation.buffer(stage.buffer).shape) != rank for stage in group):
        return None
    prices = StatementPrices(machine, lanes)
    gather_price = sum(prices.value(body, Inside(names[-1])) for body in bodies) / lanes
    copy_price = machine.loops.gather_cycles + machine.loops.vector_cycles / lanes
    least_price, best = gather_price / (1 + machine.traffic.convert_share), None
    for axis in lead.axes[:-1]:
        extent = ix.literal_value(axis.extent)
        copies = _copies(computation, position, axis.name) if extent else None
        if not extent or copies is None:
            continue
        bodies_by_copies = [_read_copies(stage, copies).body for stage in group]
        each = sum(prices.value(body, Inside(axis.name)) for body in bodies_by_copies)
        sources = {load.buffer for copy in copies for load in _loads(copy.value)}
        elements_copied = 1 + sum(_size_ratio(computation, source, lead) for source in sources)
        price = each * -(-extent // lanes) / extent + copy_price * elements_copied
        if price < least_price:
            order = (*(name for name in names if name != axis.name), axis.name)
            least_price, best = price, TurnedGather(copies, order)
    return best


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


def _size_ratio(computation: Computation, source: str, lead: Stage) -> float:
    """Return how many elements an array has for each that a stage computes, at most; infinite if that has no end."""
    remaining = [axis.extent for axis in lead.axes]
    own = list[Expr]()
    for extent in computation.buffer(source).shape:
        if extent in remaining:
            remaining.remove(extent)
        else:
            own.append(extent)
    numbers = [ix.literal_value(extent) for extent in own]
    if None in numbers:
        return inf
    computed = prod(ix.literal_value(extent) or 1 for extent in remaining)
    return prod(number for number in numbers if number is not None) / computed
