"""Features of what `cost()` counts of a schedule: of any machine, by the names that its resources have there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import log, log1p

import numpy as np

from offcut.core.memo import lazy_property
from offcut.costmodel.arrays import Values
from offcut.costmodel.closed import Cost
from offcut.costmodel.closed.cost import PieceCost
from offcut.costmodel.device import Accelerator, Device
from offcut.costmodel.machine import Machine
from offcut.costmodel.resources import resources_of

_TINY = 1e-15


@dataclass(frozen=True)
class Counted:
    """A schedule at several vectors of sizes, as `cost()` prints it at each.

    machine  that it is for: resources of it that a schedule does not use are 0
    """

    costs: Sequence[Cost]
    machine: Device

    @property
    def count(self) -> int:
        """Return how many vectors of sizes there are."""
        return len(self.costs)

    @lazy_property
    def seconds(self) -> Values:
        """By the closed form."""
        return np.array([one.seconds for one in self.costs])

    def each(self, of: Callable[[Cost], Mapping[str, float]]) -> dict[str, Values]:
        """Return what a function gives of each cost, by name."""
        rows = [of(one) for one in self.costs]
        names = dict.fromkeys(name for row in rows for name in row)
        return {name: np.array([row.get(name, 0.0) for row in rows]) for name in names}


def resources(case: Counted) -> dict[str, Values]:
    """Seconds; of each resource its share of the cycles, and of those where it takes longest; what all wait for; the call."""
    described = isinstance(case.machine, Accelerator | Machine)
    every = tuple(resources_of(case.machine).every) if described else ()
    return case.each(partial(_resources, every))


def memories(case: Counted) -> dict[str, Values]:
    """Bytes from each memory by operation, as logarithms, and the share of it that is filled."""
    return case.each(_memories)


def pieces(case: Counted) -> dict[str, Values]:
    """Trips, startups, heights and widths of tiles as logarithms, the share of tails; operations beside those that are described."""
    return case.each(_pieces)


COUNTED = (resources, memories, pieces)


def _resources(every: Iterable[str], one: Cost) -> dict[str, float]:
    cycles, stages = max(one.cycles, _TINY), one.stages.values()
    features = {"seconds": log(max(one.seconds, _TINY)), "call": one.call / cycles}
    for name in dict.fromkeys((*every, *(name for stage in stages for name in stage))):
        features[name] = sum(stage.get(name, 0.0) for stage in stages) / cycles
        bound = [stage for stage in stages if max(stage, key=lambda n: stage[n]) == name]
        features[f"{name}.binds"] = sum(stage[name] for stage in bound) / cycles
    busy = [sorted(stage.values())[-2:] for stage in stages]
    features["waits"] = (
        sum(last - first for first, last in (x for x in busy if len(x) == 2)) / cycles
    )
    return features


def _memories(one: Cost) -> dict[str, float]:
    rest = sum(size for name, size in one.bytes.items() if name not in one.occupancy)
    bytes_by_memory = {"main": rest, **{name: one.bytes.get(name, 0) for name in one.occupancy}}
    features = {name: log1p(size / max(one.flop, 1)) for name, size in bytes_by_memory.items()}
    return {**features, **{f"{name}.filled": share for name, share in one.occupancy.items()}}


def _pieces(one: Cost) -> dict[str, float]:
    cycles = max(sum(piece.cycles for piece in one.pieces), _TINY)

    def mean(of: Callable[[PieceCost], float]) -> float:
        return sum(of(piece) * piece.cycles for piece in one.pieces) / cycles

    done = sum(piece.flop for piece in one.pieces)
    return {
        "count": log1p(len(one.pieces)),
        "trips": mean(lambda piece: log1p(piece.runs)),
        "startups": log1p(one.instructions),
        "startups_a_trip": mean(lambda piece: log1p(piece.instructions / max(piece.runs, 1))),
        "height": mean(lambda piece: _extent(piece, -2)),
        "width": mean(lambda piece: _extent(piece, -1)),
        "tails": mean(lambda piece: float(piece.role == "tail")),
        "padded": log((1 + done) / (1 + one.flop)),
        "rate": log((1 + one.flop) / (1 + max(one.seconds, _TINY) * one.peak)),
    }


def _extent(piece: PieceCost, place: int) -> float:
    """Return the logarithm of an extent of a tile, counted from the last; 0 of one that moves, or of none."""
    extents = list(piece.tile.values())
    is_literal = -place <= len(extents) and extents[place].isdigit()
    return log1p(int(extents[place])) if is_literal else 0.0
