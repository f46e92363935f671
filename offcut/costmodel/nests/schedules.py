"""Schedules of a computation in, predicted seconds at many sizes out: what is known of a way is computed once.

The seconds of a schedule are the sum over its nests, in the way that is taken at run time: that whose own cost is least.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from offcut.core.cached_hash import CachedHash, node
from offcut.core.program import LANE, THREAD
from offcut.costmodel.arrays import Array, Calls
from offcut.costmodel.nests.nest import NestCost, Nests
from offcut.costmodel.nests.parametric import Loops
from offcut.costmodel.nests.reuse import Earlier
from offcut.costmodel.resources import Hardware
from offcut.errors import PartitionError
from offcut.schedule import (
    Bind,
    Binds,
    Nest,
    ResolvedWay,
    Resolving,
    Schedule,
    Separate,
    Staging,
    Step,
    Together,
    Way,
    parts_of,
)


@node
@dataclass(frozen=True, slots=True)
class Surroundings(CachedHash):
    """Where a nest stands.

    around  the loops around it
    behind  those of them in which it runs behind another nest
    before  the nests that run before it, in order, each with the loops that both are in
    windows  all nests in shared loops, each with these: arrays that they compute have windows there
    """

    around: Loops
    behind: Loops
    before: Earlier
    windows: Earlier


@node
@dataclass(frozen=True, slots=True)
class Key(CachedHash):
    """What the price of a way depends on.

    stages     the decisions about stages
    depths     along what sums are covered
    competing  whether it is one of several
    """

    stages: tuple[Step, ...]
    at: Surroundings
    stage: str
    depths: frozenset[str]
    competing: bool
    way: Way


Placed: TypeAlias = tuple[Nest, Surroundings]
"""A nest where it stands."""


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


@dataclass(frozen=True, slots=True)
class Taken:
    """A nest, by call.

    ways     that it may run in
    seconds  of the one that runs
    """

    ways: tuple[WayCost, ...]
    seconds: Array


@dataclass
class SchedulePrices:
    """Predicted seconds of schedules of one program.

    resolving  what gives the loops of their ways
    threads    that share loops where a schedule marks them
    known      by way
    taken      by the decisions about stages, and by nest
    """

    hardware: Hardware
    calls: Calls
    resolving: Resolving
    threads: int = 1
    known: dict[Key, WayCost | PartitionError] = field(default_factory=dict, init=False)
    taken: dict[tuple[Step, ...], dict[Placed, Taken]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._nests = Nests(self.hardware, self.calls)

    def __call__(self, schedule: Schedule) -> Array:
        """Seconds, by call.

        Raises PartitionError for a schedule that is not legal.
        """
        total, nests = self.calls.constant(0), self.taken_in(schedule)
        for nest in nests:
            total += nest.seconds
        call = self.hardware.machine.call.of([len(nest.ways) for nest in nests])
        return total / parallel_speedup(schedule, self.threads) + call

    def nests(self, schedule: Schedule) -> tuple[tuple[WayCost, ...], ...]:
        """The ways of each nest, in order.

        Raises PartitionError for a schedule that is not legal.
        """
        return tuple(nest.ways for nest in self.taken_in(schedule))

    def competing(self, schedule: Schedule) -> Mapping[str, tuple[WayCost, ...]]:
        """The ways of each nest of which a call takes the cheapest, by its first stage; none of which it is said what they cost.

        Raises PartitionError for a schedule that is not legal.
        """
        nests = [nest for nest, _ in _nests_in_order(parts_of(schedule))]
        return {
            nest.stage: ways
            for nest, ways in zip(nests, self.nests(schedule), strict=True)
            if len(ways) > 1 and all(way.cost is None for way in nest.ways)
        }

    def taken_in(self, schedule: Schedule) -> list[Taken]:
        """Its nests, in order; what is the same in two schedules is the same object.

        Raises PartitionError for a schedule that is not legal.
        """
        others = Staging | Separate | Bind
        stages: tuple[Step, ...] = tuple(s for s in schedule.steps if isinstance(s, others))
        known = self.taken.setdefault(stages, {})
        times = []
        for nest in _nests_in_order(parts_of(schedule)):
            if nest not in known:
                known[nest] = self._nest_seconds(schedule, stages, *nest)
            times.append(known[nest])
        return times

    def _nest_seconds(
        self, schedule: Schedule, stages: tuple[Step, ...], nest: Nest, at: Surroundings
    ) -> Taken:
        """Return the same of a nest that is new."""
        ways = []
        depths = frozenset(way.cover.depth for way in nest.ways if way.cover is not None)
        for way in nest.ways:
            key = Key(stages, at, nest.stage, depths, len(nest.ways) > 1, _without_names(way))
            if key not in self.known:
                self.known[key] = self.way_cost(schedule, key)
            cost = self.known[key]
            if isinstance(cost, PartitionError):
                raise cost
            ways.append(cost)
        seconds = ways[0].seconds
        if len(ways) > 1:
            least = np.argmin([way.own for way in ways], axis=0)
            seconds = np.choose(least, [way.seconds for way in ways])
        return Taken(tuple(ways), seconds)

    def way_cost(self, schedule: Schedule, key: Key) -> WayCost | PartitionError:
        """The price of a way, or why it is refused.

        Raises PartitionError where what `schedule` says around it is.
        """
        applying = self.resolving.within(schedule)
        rows = Binds.of(schedule, LANE, tree=True).bind_some(key.stage)
        try:
            computation, way = applying.resolved(key.stage, key.way, key.competing)
        except PartitionError as refused:
            return refused
        at, before, parts = key.at, key.at.before, list[NestCost]()
        if way.copy is not None:
            shared = _around(way.copy, at)
            parts.append(self._nests.copy(computation, way.copy, rows, before, shared, at.windows))
            before = (*before, (way.copy.group[0].buffer, at.around))
        shared = _around(way, at)
        parts.append(
            self._nests.cost(computation, way, rows, before, at.behind, shared, at.windows)
        )
        cycles = sum((part.cycles for part in parts), start=self.calls.constant(0))
        seconds = cycles / self.hardware.machine.hertz
        return WayCost(seconds, self.calls.of(way.cost), tuple(parts))


def _around(way: ResolvedWay, at: Surroundings) -> Loops:
    """Return the shared loops around the loops of a way."""
    return tuple(one for one in at.around if one[0] in way.around)


@lru_cache(1 << 14)
def _without_names(way: Way) -> Way:
    return replace(way, label="")


def parallel_speedup(schedule: Schedule, threads: int) -> float:
    """By how much marked loops divide the time among so many threads."""
    return float(threads) if Binds.of(schedule, THREAD).lines else 1.0


def _nests_in_order(parts: Sequence[Nest | Together]) -> list[Placed]:
    """The nests in `parts`, in order."""
    nests: list[Placed] = []

    def visit(part: Nest | Together, around: Loops, behind: Loops, before: Earlier) -> list[str]:
        """The stages in it."""
        if isinstance(part, Nest):
            nests.append((part, Surroundings(around, behind, before, ())))
            return [part.stage]
        last = 1 if part.block is None else part.block.tile
        inside = (*around, *((axis, 1) for axis in part.axes[:-1]), (part.axes[-1], last))
        stages: list[str] = []
        for place, inner in enumerate(part.parts):
            now = (*before, *((stage, inside) for stage in stages))
            stages += visit(inner, inside, inside if place else behind, now)
        return stages

    done: list[str] = []
    for part in parts:
        done += visit(part, (), (), tuple((stage, ()) for stage in done))
    windows = tuple((nest.stage, at.around) for nest, at in nests if at.around)
    return [(nest, replace(at, windows=windows)) for nest, at in nests]


@dataclass(frozen=True, slots=True)
class ChoiceError:
    """Of the ways of a nest that compete, at some hundred calls that are allowed.

    stage   the first array that the nest computes
    within  by which part of what is counted a price is off, at most
    regret  by which part longer the nest takes than in its fastest way, at most
    """

    stage: str
    within: float
    regret: float

    def __str__(self) -> str:
        return (
            f"{self.stage}: a call chooses by prices within {self.within:.0%} of what is predicted, "
            f"and takes at most {self.regret:.1%} longer for it"
        )


def choice_errors(schedule: Schedule, prices: SchedulePrices) -> tuple[ChoiceError, ...]:
    """Return the error and the regret of each nest with several ways; none where the schedule has no closed form.

    prices  at the calls that are looked at
    """
    if not prices.calls.count:
        return ()
    try:
        nests = prices.competing(schedule)
    except PartitionError:
        return ()
    errors: list[ChoiceError] = []
    for stage, ways in nests.items():
        exact = np.array([way.seconds for way in ways])
        short = np.array([way.own for way in ways])
        least = np.argmin(short, axis=0)
        cheapest_cycles = exact[least, np.arange(prices.calls.count)]
        within = float(np.abs(short / exact - 1).max())
        errors.append(
            ChoiceError(stage, within, float((cheapest_cycles / exact.min(axis=0)).max()) - 1)
        )
    return tuple(errors)
