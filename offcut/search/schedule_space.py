"""A space of schedules, and the decisions that a schedule leaves open: what explorers propose from, whatever the target.

A space is one `Decision` and two functions: `write` gives the schedule of an alternative, `read` the alternative of a
schedule. A point of it is a `Schedule`, which prints and parses. Whether a point is legal is decided where it is
planned; whether it is worth a trial, by its price.

The decisions that a schedule leaves open: what may be decided, and which alternatives lie beside each other.

A decision is one of several alternatives (`OneOf`), one alternative of each of several decisions (`AllOf`), or the
decisions of one of several cases (`CaseOf`): what a target leaves open is composed of these three. A target may add
a kind of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from math import prod
from random import Random
from typing import Any, Generic, TypeVar

from offcut.core.memo import memoize_method
from offcut.core.names import RenamedAttribute
from offcut.describe.computation import Computation
from offcut.errors import DescribeError
from offcut.schedule import Schedule

T = TypeVar("T", bound=Hashable)


class Decision(ABC, Generic[T]):
    """A decision with alternatives, which are hashable."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Return the number of alternatives, at most."""

    @abstractmethod
    def alternatives(self) -> Iterator[T]:
        """Yield all alternatives, one by one: there may be more than memory holds."""

    @abstractmethod
    def neighbours(self, at: T) -> Iterable[T]:
        """Return the alternatives that differ from `at` in one thing, in an order that depends on it alone."""

    @abstractmethod
    def sample(self, rng: Random) -> T:
        """Return an alternative, drawn."""

    def crossover(self, a: T, b: T, rng: Random) -> T:
        """Return `a`, `b`, or an alternative made of parts of both."""
        return rng.choice((a, b))


@dataclass(frozen=True)
class OneOf(Decision[T]):
    """One of several options.

    options     in order
    is_ordered  whether only the options before and after one are its neighbours; else all others are
    """

    options: tuple[T, ...]
    is_ordered: bool = False

    @property
    def size(self) -> int:
        """Return the number of options."""
        return len(self.options)

    def alternatives(self) -> Iterator[T]:
        """Yield the options."""
        return iter(self.options)

    def neighbours(self, at: T) -> Iterable[T]:
        """Return the options beside one, or all others."""
        if not self.is_ordered:
            return tuple(option for option in self.options if option != at)
        place = self.options.index(at)
        return (*self.options[max(place - 1, 0) : place], *self.options[place + 1 : place + 2])

    def sample(self, rng: Random) -> T:
        """Return an option, each as likely as any other."""
        return rng.choice(self.options)


@dataclass(frozen=True)
class AllOf(Decision[tuple[Any, ...]]):
    """One alternative of each of several decisions, as a tuple in their order."""

    decisions: tuple[Decision[Any], ...]

    @property
    def size(self) -> int:
        """Return the product of the sizes."""
        return prod(decision.size for decision in self.decisions)

    def alternatives(self) -> Iterator[tuple[Any, ...]]:
        """Yield all combinations; the last decision varies first."""
        return _combinations(self.decisions)

    def neighbours(self, at: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
        """Yield the combinations in which one decision has a neighbour."""
        for place, decision in enumerate(self.decisions):
            before, after = at[:place], at[place + 1 :]
            for other in decision.neighbours(at[place]):
                yield (*before, other, *after)

    def sample(self, rng: Random) -> tuple[Any, ...]:
        """Return a combination, drawn decision by decision."""
        return tuple(decision.sample(rng) for decision in self.decisions)

    def crossover(self, a: tuple[Any, ...], b: tuple[Any, ...], rng: Random) -> tuple[Any, ...]:
        """Return a combination, crossed decision by decision."""
        trios = zip(self.decisions, a, b, strict=True)
        return tuple(decision.crossover(one, other, rng) for decision, one, other in trios)


def _combinations(decisions: Sequence[Decision[Any]]) -> Iterator[tuple[Any, ...]]:
    if not decisions:
        yield ()
        return
    for first in decisions[0].alternatives():
        yield from ((first, *rest) for rest in _combinations(decisions[1:]))


@dataclass(frozen=True)
class CaseOf(Decision[tuple[Hashable, Any]]):
    """A case, and an alternative of its decision, as a pair.

    cases       the decision of each case, by its key
    convert     return what is most like an alternative of one case in another: ``convert(case, alternative, other)``
    is_beside   whether two cases are neighbours
    """

    cases: Mapping[Any, Decision[Any]]
    convert: Callable[[Any, Any, Any], Any]
    is_beside: Callable[[Any, Any], bool] = lambda case, other: True

    @property
    def size(self) -> int:
        """Return the sum of the sizes."""
        return sum(decision.size for decision in self.cases.values())

    def alternatives(self) -> Iterator[tuple[Hashable, Any]]:
        """Yield the alternatives of each case."""
        for case, decision in self.cases.items():
            yield from ((case, one) for one in decision.alternatives())

    def neighbours(self, at: tuple[Hashable, Any]) -> Iterator[tuple[Hashable, Any]]:
        """Yield the neighbours in the same case, then what is most like `at` in each case beside it."""
        case, own = at
        yield from ((case, one) for one in self.cases[case].neighbours(own))
        for other in self.cases:
            if other != case and self.is_beside(case, other):
                yield other, self.convert(case, own, other)

    def sample(self, rng: Random) -> tuple[Hashable, Any]:
        """Return an alternative of a case; each case is as likely as any other."""
        case = rng.choice(tuple(self.cases))
        return case, self.cases[case].sample(rng)

    def crossover(
        self, a: tuple[Hashable, Any], b: tuple[Hashable, Any], rng: Random
    ) -> tuple[Hashable, Any]:
        """Return an alternative of the case of one, crossed with what is most like the other there."""
        (case, own), (other, theirs) = rng.sample((a, b), 2)
        if case != other:
            theirs = self.convert(other, theirs, case)
        return case, self.cases[case].crossover(own, theirs, rng)


SAMPLES = 16
"""Alternatives that are drawn for a point, at most: the text of a few is that of no alternative."""
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
        return tuple(other for other in _distinct(near) if other != point and other in self)

    def step(self, point: Schedule, rng: Random) -> Schedule:
        """Return one of the neighbours of `point`; `point` if it has none.

        Raises DescribeError if it is no point of this space.
        """
        near = list(self.decision.neighbours(self._alternative(point)))
        while near:
            other = self.write(near.pop(rng.randrange(len(near))))
            if other in self:  # not every alternative is read from what it writes
                return other
        return point

    def sample(self, rng: Random) -> Schedule:
        """Return a point whose decisions are drawn one by one; `first` if none of some is a point."""
        schedules = (self.write(self.decision.sample(rng)) for _ in range(SAMPLES))
        return next((one for one in schedules if one in self), self.first)

    def crossover(self, a: Schedule, b: Schedule, rng: Random) -> Schedule:
        """Return a point each decision of which is that of `a` or that of `b`.

        Raises DescribeError if one of them is no point of this space.
        """
        one, other = self._alternative(a), self._alternative(b)
        child = self.write(self.decision.crossover(one, other, rng))
        return child if child in self else a

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
