"""A space of schedules: what explorers propose from, whatever the target.

A space is one `Decision` and two functions: `write` gives the schedule of an alternative, `read` the alternative of a
schedule. A point of it is a `Schedule`, which prints and parses. Whether a point is legal is decided where it is
planned; whether it is worth a trial, by its price.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from random import Random
from typing import Any

from offcut.core.memo import memoize_method
from offcut.core.renamed import RenamedAttribute
from offcut.describe.computation import Computation
from offcut.errors import DescribeError
from offcut.schedule import Schedule
from offcut.search.decisions import AllOf, Decision, OneOf

Point = tuple[Hashable, ...]
"""One option of each choice of a `product_space`."""


@dataclass(frozen=True)
class ScheduleSpace:
    """The schedules that open decisions give.

    first        the schedule that is tried first
    decision     what is left open
    write        return the schedule of an alternative; several may give the same schedule
    read         return the alternative of a schedule; None if it is none
    computation  what nests of schedules are of; None if schedules have none
    most         variants of a nest that may compete, at most
    narrow       return the space with fewer of them; None if none compete
    expected     predicted seconds of a call drawn from the distribution of sizes; infinite for what is refused, or
                 not worth a trial
    """

    first: Schedule
    decision: Decision[Any]
    write: Callable[[Any], Schedule]
    read: Callable[[Schedule], Any]
    computation: Computation | None = field(default=None, kw_only=True)
    most: int = field(default=1, kw_only=True)
    narrow: Callable[[int], ScheduleSpace] | None = field(default=None, kw_only=True)
    expected: Callable[[Schedule], float] = field(default=lambda _: 0.0, kw_only=True)

    @property
    def size(self) -> int:
        """Return how many points there are, at most."""
        return self.decision.size

    def enumerate(self, limit: int | None = None) -> Iterator[Schedule]:
        """Return the points, `first` before all others, each once; at most `limit` of them."""
        others = map(self.write, self.decision.alternatives())
        return islice(_distinct(chain((self.first,), others)), limit)

    def neighbours(self, point: Schedule) -> tuple[Schedule, ...]:
        """Return the points that differ from `point` in one decision, in an order that depends on it alone.

        Raises DescribeError if it is no point of this space.
        """
        near = map(self.write, self.decision.neighbours(self._alternative(point)))
        return tuple(other for other in _distinct(near) if other != point)

    def step(self, point: Schedule, rng: Random) -> Schedule:
        """Return one of the neighbours of `point`; `point` if it has none.

        Raises DescribeError if it is no point of this space.
        """
        near = tuple(self.decision.neighbours(self._alternative(point)))
        return self.write(rng.choice(near)) if near else point

    def sample(self, rng: Random) -> Schedule:
        """Return a point whose decisions are drawn one by one."""
        return self.write(self.decision.sample(rng))

    def crossover(self, a: Schedule, b: Schedule, rng: Random) -> Schedule:
        """Return a point each decision of which is that of `a` or that of `b`.

        Raises DescribeError if one of them is no point of this space.
        """
        one, other = self._alternative(a), self._alternative(b)
        return self.write(self.decision.crossover(one, other, rng))

    crossed = RenamedAttribute("crossover")

    def going_by(self, expected: Callable[[Schedule], float]) -> ScheduleSpace:
        """Return the same points, by other prices."""
        return replace(self, expected=expected)

    def __contains__(self, point: object) -> bool:
        """Return whether a schedule is a point of it."""
        return isinstance(point, Schedule) and self._point_of(point) is not None

    def _alternative(self, schedule: Schedule) -> Any:
        """Return the alternative that a schedule is.

        Raises DescribeError if it is no point of this space.
        """
        alternative = self._point_of(schedule)
        if alternative is None:
            raise DescribeError(
                "tune",
                f"cannot search around a schedule of {schedule.name}",
                because="it is not a point of the space",
                help=("space.first", "space.sample(rng)", "space.neighbours(point)"),
            )
        return alternative

    @memoize_method
    def _point_of(self, schedule: Schedule) -> Any:
        alternative = self.read(schedule)
        if alternative is None or schedule == self.first:
            return alternative
        return alternative if self.write(alternative) == schedule else None


def product_space(
    first: Schedule,
    options: tuple[Point, ...],
    written: Callable[[Point], Schedule],
    read: Callable[[Schedule], Point | None],
    expected: Callable[[Schedule], float] = lambda _: 0.0,
) -> ScheduleSpace:
    """Return the space that a product of choices gives; one option up or down of one choice is a neighbour.

    options   of each choice, in the order in which a step goes from one to the next
    read      return the point of a schedule; None, or other options, if it is none
    """

    def point_of(schedule: Schedule) -> Point | None:
        point = read(schedule)
        is_point = point is not None and len(point) == len(options)
        is_offered = is_point and all(
            one in own for one, own in zip(point or (), options, strict=True)
        )
        return point if is_offered else None

    decision = AllOf(tuple(OneOf(choice, is_ordered=True) for choice in options))
    return ScheduleSpace(first, decision, written, point_of, expected=expected)


def _distinct(schedules: Iterable[Schedule]) -> Iterator[Schedule]:
    """Yield each schedule where it comes first."""
    earlier = set[Schedule]()
    for one in schedules:
        if one not in earlier:
            earlier.add(one)
            yield one
