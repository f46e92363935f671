"""Schedules of one program on one target as cases: in closed form at vectors of sizes; nothing is cut, compiled or run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from offcut.core.memo import lazy_property
from offcut.costmodel.learned import Case, Ran
from offcut.costmodel.learned.values import Values
from offcut.costmodel.nests import SchedulePrices, Taken
from offcut.describe.computation import Computation
from offcut.errors import DescribeError
from offcut.schedule import Nest, Schedule, Together, parts_of
from offcut.search import Price
from offcut.tuning.pricing.predicting import nest_prices, price_of
from offcut.tuning.problem import Problem

LOOPS = "it runs in its own loops"
"""Why nothing is learned of a schedule without nests."""


@dataclass(frozen=True)
class Cases:
    """What the schedules with nests of a problem are at its sizes.

    computation  what nests are of
    """

    problem: Problem
    computation: Computation

    def __call__(self, schedule: Schedule) -> Case:
        """A schedule at each vector of sizes.

        Raises PartitionError for one that is not legal, DescribeError for one without nests, TargetError where the
        machine is no processor.
        """
        if not has_nests(schedule):
            raise DescribeError("learn", "cannot describe this schedule", because=LOOPS)
        prices = self.prices
        seconds = prices(schedule)
        ways: list[Ran] = []
        for (nest, around), taken in zip(
            _nests(parts_of(schedule)), prices.taken_in(schedule), strict=True
        ):
            if id(taken) not in self.ran:
                self.ran[id(taken)] = tuple(self._ran(nest, around, taken))
            ways += self.ran[id(taken)]
        hardware, calls = prices.hardware, prices.calls
        return Case(
            schedule,
            hardware.machine,
            hardware.microkernels,
            calls.values,
            tuple(ways),
            seconds,
            self.problem.options.threads,
            calls.count,
        )

    def _ran(self, nest: Nest, around: int, taken: Taken) -> Iterator[Ran]:
        """The ways of a nest, as calls run them."""
        least = np.argmin([cost.own for cost in taken.ways], axis=0)
        extents = self.extents.get(nest.stage, {})
        for place, (way, cost) in enumerate(zip(nest.ways, taken.ways, strict=True)):
            yield Ran(nest.stage, way, around, least == place, cost.parts, extents)

    @lazy_property
    def ran(self) -> dict[int, tuple[Ran, ...]]:
        """By what `prices` keeps of a nest where it stands, its ways as calls run them."""
        return {}

    @lazy_property
    def closed(self) -> Price:
        """The closed form of any schedule, of one without nests too."""
        return price_of(self.problem, self.computation, None)

    @lazy_property
    def prices(self) -> SchedulePrices:
        """The closed form of nests."""
        return nest_prices(self.problem, self.computation)

    @lazy_property
    def extents(self) -> Mapping[str, Mapping[str, Values]]:
        """Of the axes of each stage."""
        return {
            stage.buffer: {
                axis.name: self.prices.calls.of(axis.extent)
                for axis in (*stage.axes, *stage.reduce_axes)
            }
            for group in self.computation.groups
            for stage in group[:1]
        }


def has_nests(schedule: Schedule) -> bool:
    """Whether there is a closed form for a schedule that is not cut yet."""
    return bool(parts_of(schedule))


def _nests(parts: Iterable[Nest | Together], around: int = 0) -> Iterator[tuple[Nest, int]]:
    """The nests in `parts`, each with the number of the loops that it shares with others."""
    for part in parts:
        if isinstance(part, Nest):
            yield part, around
        else:
            yield from _nests(part.parts, around + len(part.axes))
