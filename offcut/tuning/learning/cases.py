"""Schedules of one program on one target as cases: in closed form at vectors of sizes; nothing is cut, compiled or run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from offcut.backends.decide import proved_plan
from offcut.core.memo import lazy_property
from offcut.costmodel import Cost
from offcut.costmodel.arrays import Values
from offcut.costmodel.learned import Case, Counted, Ran
from offcut.costmodel.nests import SchedulePrices, Taken
from offcut.describe.computation import Computation
from offcut.errors import DescribeError
from offcut.schedule import Nest, Schedule, nests_with_axes, parts_of
from offcut.search import Price
from offcut.tuning.pricing.predicting import nest_prices, price_of
from offcut.tuning.problem import Problem

SHORTEST = 1e-12
"""Seconds, of which there is a logarithm."""

LOOPS = "it runs in its own loops"
"""Why nothing is learned of a schedule without nests, where others have some."""


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
            nests_with_axes(parts_of(schedule)), prices.taken_in(schedule), strict=True
        ):
            if id(taken) not in self.ran:
                self.ran[id(taken)] = tuple(self._ran(nest, len(around), taken))
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

    def describes(self, schedule: Schedule) -> bool:
        """Whether a schedule is a case: it has nests."""
        return has_nests(schedule)

    def seconds(self, schedule: Schedule) -> Values:
        """By the closed form, at each vector of sizes."""
        return np.maximum(self.prices(schedule), SHORTEST)

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


@dataclass(frozen=True)
class CountedCases:
    """What the schedules of a problem are at its sizes where the target itself counts them: no nest describes its loops."""

    problem: Problem

    def __call__(self, schedule: Schedule) -> Counted:
        """Return a schedule at each vector of sizes.

        Raises PartitionError or TargetError for one that is refused, DescribeError where nothing is predicted.
        """
        costs = self.costs(schedule)
        if len(costs) < len(self.problem.sizes):
            because = f"of calls on {self.problem.target.machine.name} nothing is predicted"
            raise DescribeError("learn", "cannot describe this schedule", because=because)
        return Counted(tuple(costs), self.problem.target.machine)

    def describes(self, schedule: Schedule) -> bool:
        """Whether a schedule is a case: any is."""
        return True

    def seconds(self, schedule: Schedule) -> Values:
        """By the closed form, at each vector of sizes."""
        seconds = self.closed(schedule)
        return np.maximum([seconds[key] for key in self.problem.keys], SHORTEST)

    @lazy_property
    def costs(self) -> Callable[[Schedule], Sequence[Cost]]:
        """What the target counts."""
        problem = self.problem
        target, request = problem.target, problem.request
        vectors = [dict(sizes) for sizes, _ in problem.sizes]

        def planned(schedule: Schedule) -> Sequence[Cost]:
            options = problem.scheduled(schedule)
            plan = proved_plan(target, request, options)
            costs = [target.predict_cost(plan, request, options, at) for at in vectors]
            return [one for one in costs if isinstance(one, Cost)]

        return target.predict_costs(request, problem.options, vectors) or planned

    @lazy_property
    def closed(self) -> Price:
        """The closed form of any schedule."""
        return price_of(self.problem, None, None)


def cases_of(
    problem: Problem, computation: Computation | None, first: Schedule
) -> Cases | CountedCases:
    """Return the cases of a problem: of its nests, or as the target counts them.

    first  the target's own schedule
    """
    nests = computation is not None and has_nests(first)
    return Cases(problem, computation) if computation and nests else CountedCases(problem)


def has_nests(schedule: Schedule) -> bool:
    """Whether there is a closed form for a schedule that is not cut yet."""
    return bool(parts_of(schedule))
