"""Schedules of a computation in, predicted seconds at many sizes out: what is known of a way is computed once.

The seconds of a schedule are the sum over its nests, in the way that is taken at run time: that whose own cost is least.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from offcut.costmodel.closed.hardware import Hardware
from offcut.costmodel.nests.calls import Array, Calls
from offcut.costmodel.nests.nest import NestCost, Nests
from offcut.errors import PartitionError
from offcut.schedule import Mark, Nest, Resolving, Schedule, Step, Together, Way


@dataclass(frozen=True, slots=True)
class Key:
    """What the price of a way depends on.

    before     the stages as they are
    around     axes of the loops around
    behind     of the loops in which it runs behind another nest, the axes and how many iterations run at once
    depths     along what sums are covered
    competing  whether it is one of several
    """

    before: tuple[Step, ...]
    around: tuple[str, ...]
    behind: tuple[tuple[str, int], ...]
    stage: str
    depths: frozenset[str]
    competing: bool
    way: Way


@dataclass(frozen=True, slots=True)
class WayCost:
    """A way of a nest, by call.

    seconds  that it is predicted to take
    own      seconds by which it competes at run time; 0 where it competes with none
    parts    what it consists of: a packed copy first
    """

    seconds: Array
    own: Array
    parts: tuple[NestCost, ...]


@dataclass
class SchedulePrices:
    """Predicted seconds of schedules of one program.

    resolving  what gives the loops of their ways
    threads    that share loops where a schedule marks them
    """

    hardware: Hardware
    calls: Calls
    resolving: Resolving
    threads: int = 1
    known: dict[Key, WayCost | PartitionError] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._nests = Nests(self.hardware, self.calls)

    def __call__(self, schedule: Schedule) -> Array:
        """Seconds, by call.

        Raises PartitionError for a schedule that is not legal.
        """
        total = self.calls.constant(0)
        for ways in self.nests(schedule):
            taken = ways[0].seconds
            if len(ways) > 1:
                least = np.argmin([way.own for way in ways], axis=0)
                taken = np.choose(least, [way.seconds for way in ways])
            total = total + taken
        return total / shared(schedule, self.threads)

    def nests(self, schedule: Schedule) -> tuple[tuple[WayCost, ...], ...]:
        """The ways of each nest, in order.

        Raises PartitionError for a schedule that is not legal.
        """
        found = []
        for keys in _keys(schedule):
            ways = []
            for key in keys:
                made = self.known.get(key)
                if made is None:
                    made = self.known[key] = self.learnt(schedule, key)
                if isinstance(made, PartitionError):
                    raise made
                ways.append(made)
            found.append(tuple(ways))
        return tuple(found)

    def learnt(self, schedule: Schedule, key: Key) -> WayCost | PartitionError:
        """The price of a way, or why it is refused.

        Raises PartitionError where what `schedule` says around it is.
        """
        within = self.resolving.within(schedule)
        rows = any(isinstance(s, Mark) and s.unit == "rows" for s in schedule.steps)
        try:
            computation, way = within.way(key.stage, key.way, key.competing)
        except PartitionError as refused:
            return refused
        before = (self._nests.copy(computation, one, rows) for one in way.before)
        parts = (*before, self._nests.cost(computation, way.cut, rows))
        cycles = self._nests.waits(way.cut, key.behind)
        for part in parts:
            cycles = cycles + part.cycles
        seconds = cycles / self.hardware.machine.hertz
        return WayCost(seconds, self.calls.of(way.cost), parts)


def shared(schedule: Schedule, threads: int) -> float:
    """By how much marked loops divide the time among so many threads."""
    marked = any(isinstance(s, Mark) and s.unit == "threads" for s in schedule.steps)
    return float(threads) if marked else 1.0


def _keys(schedule: Schedule) -> list[list[Key]]:
    """Of each way, by nest."""
    before = tuple(s for s in schedule.steps if not isinstance(s, Nest | Together))
    found: list[list[Key]] = []

    def visit(
        part: Step, around: tuple[tuple[str, int], ...], behind: tuple[tuple[str, int], ...]
    ) -> None:
        if isinstance(part, Together):
            last = 1 if part.block is None else part.block.iterations
            inside = (*around, *((axis, 1) for axis in part.axes[:-1]), (part.axes[-1], last))
            for place, inner in enumerate(part.parts):
                visit(inner, inside, inside if place else behind)
        elif isinstance(part, Nest):
            names = tuple(axis for axis, _ in around)
            depths = frozenset(way.cover.depth for way in part.ways if way.cover is not None)
            several = len(part.ways) > 1
            nest = before, names, behind, part.stage, depths, several
            found.append([Key(*nest, _unnamed(way)) for way in part.ways])

    for step in schedule.steps:
        visit(step, (), ())
    return found


@lru_cache(1 << 14)
def _unnamed(way: Way) -> Way:
    return replace(way, label="")
