"""What explorers ask of a space of schedules (`Points`), and a space that is a product of choices: tile sizes, orders of loops, whatever
a target decides one by one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, islice, product
from math import prod
from random import Random
from typing import Self

from offcut.describe.computation import Computation
from offcut.errors import DescribeError
from offcut.schedule import Schedule

Point = tuple[Hashable, ...]
"""One option of each choice."""


@dataclass(frozen=True)
class Points(ABC):
    """The schedules that there are of a program.

    first        the schedule that is tried first
    computation  what nests of schedules are of; None where there are none
    most         ways of a nest that may compete
    expected     predicted seconds of a call drawn from the distribution of sizes; infinite for what is refused, or not worth a trial
    """

    first: Schedule
    computation: Computation | None = field(default=None, kw_only=True)
    most: int = field(default=1, kw_only=True)
    expected: Callable[[Schedule], float] = field(default=lambda _: 0.0, kw_only=True)

    @property
    @abstractmethod
    def size(self) -> int:
        """Return how many points there are, at most."""

    @abstractmethod
    def enumerate(self, limit: int | None = None) -> Iterator[Schedule]:
        """Return the points, `first` before all others; at most `limit` of them."""

    @abstractmethod
    def neighbours(self, point: Schedule) -> tuple[Schedule, ...]:
        """Return the points that differ from `point` in one choice, in an order that depends on it alone.

        Raises DescribeError where it is no point of this space.
        """

    def step(self, point: Schedule, rng: Random) -> Schedule:
        """Return one of the neighbours of `point`; itself where it has none.

        Raises DescribeError where it is no point of this space.
        """
        near = self.neighbours(point)
        return rng.choice(near) if near else point

    @abstractmethod
    def sample(self, rng: Random) -> Schedule:
        """Return a point whose choices are drawn one by one, each option as likely as any other."""

    @abstractmethod
    def crossed(self, a: Schedule, b: Schedule, rng: Random) -> Schedule:
        """Return a point each choice of which is that of `a` or that of `b`.

        Raises DescribeError where one of them is no point of this space.
        """

    @abstractmethod
    def _read(self, schedule: Schedule) -> object:
        """Return what a schedule chooses.

        Raises DescribeError where it is no point of this space.
        """

    def going_by(self, expected: Callable[[Schedule], float]) -> Self:
        """Return the same points, by other prices."""
        return replace(self, expected=expected)

    def __contains__(self, point: object) -> bool:
        """Return whether a schedule is a point of it."""
        try:
            return isinstance(point, Schedule) and bool(self._read(point))
        except DescribeError:
            return False


@dataclass(frozen=True)
class Choices(Points):
    """The schedules that a product of choices gives.

    options   of each choice, in the order in which a step goes from one to the next
    written   the schedule of a point
    read      the point of a schedule; None of one that is none
    """

    options: tuple[Point, ...]
    written: Callable[[Point], Schedule]
    read: Callable[[Schedule], Point | None]

    @property
    def size(self) -> int:
        """How many points there are, at most: several may be written alike."""
        return prod(len(options) for options in self.options)

    def enumerate(self, limit: int | None = None) -> Iterator[Schedule]:
        """The points, `first` before all others, each once; at most `limit` of them."""
        others = (self.written(point) for point in product(*self.options))
        return islice(_once(chain((self.first,), others)), limit)

    def neighbours(self, point: Schedule) -> tuple[Schedule, ...]:
        """The points that differ from `point` in one choice, by one option up or down.

        Raises DescribeError where it is no point of this space.
        """
        at = self._read(point)
        near: list[Schedule] = []
        for place, options in enumerate(self.options):
            here = options.index(at[place])
            for other in (here - 1, here + 1):
                if 0 <= other < len(options):
                    near.append(self.written((*at[:place], options[other], *at[place + 1 :])))
        return tuple(one for one in _once(near) if one != point)

    def sample(self, rng: Random) -> Schedule:
        """A point whose choices are drawn one by one, each option as likely as any other."""
        return self.written(tuple(map(rng.choice, self.options)))

    def crossed(self, a: Schedule, b: Schedule, rng: Random) -> Schedule:
        """A point each choice of which is that of `a` or that of `b`.

        Raises DescribeError where one of them is no point of this space.
        """
        pairs = zip(self._read(a), self._read(b), strict=True)
        return self.written(tuple(map(rng.choice, pairs)))

    def _read(self, schedule: Schedule) -> Point:
        point = self.read(schedule)
        pairs = zip(point or (), self.options, strict=point is not None)
        if point is None or not all(option in options for option, options in pairs):
            raise DescribeError(
                "space",
                f"cannot find a schedule of {schedule.name}",
                because="it decides what the space does not vary",
                help=("space.first", "space.sample(rng)"),
            )
        return point


def _once(schedules: Iterable[Schedule]) -> Iterator[Schedule]:
    """Yield each schedule where it comes first."""
    seen = set[Schedule]()
    for one in schedules:
        if one not in seen:
            seen.add(one)
            yield one
