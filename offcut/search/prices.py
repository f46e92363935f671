"""Predicted seconds of schedules over sizes in, one number a schedule out: what a search goes by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Protocol, TypeAlias, runtime_checkable

from offcut.errors import PartitionError
from offcut.schedule import Schedule
from offcut.search.record import Sizes

# A schedule -> predicted seconds of a call, by its sizes. Raises PartitionError for one that is not legal.
Price: TypeAlias = Callable[[Schedule], Mapping[Sizes, float]]
# What was measured, in order: seconds of a call, and the distance of the quartiles over them, by sizes
Times: TypeAlias = Mapping[Schedule, Mapping[Sizes, tuple[float, float]]]


@runtime_checkable
class RefittablePrice(Protocol):
    """A price that learns from what a search has measured so far."""

    def refit(self, times: Times) -> None:
        """Learn from these, and from nothing that was given before: the same times make the same price."""
        ...


def seconds_by_sizes(price: Price, schedule: Schedule) -> Mapping[Sizes, float]:
    """Return the predicted seconds of a schedule by sizes; none if the price refuses it."""
    try:
        return price(schedule)
    except PartitionError:
        return {}


class TimeLimitReached(Exception):
    """No more prices are asked: the time of the search is over."""


@dataclass
class ExpectedCost:
    """Predicted seconds of a call drawn from a distribution of sizes::

        expected(s) = sum of weight(n) * price(s)(n) over the sizes n

    `inf` for a schedule that is refused or not in `within`, for one beyond `factor` times the least that was asked before, and for one
    more than `looks` between two rounds. What was asked once is remembered.

    price    by sizes
    weights  of the sizes, at least one above 0
    factor   at least 1
    looks    schedules whose price is asked in a round, at most, where that takes long; None: any number
    within   the schedules that there are; None: any
    is_enough  whether no more prices are asked in this round
    is_over    whether the time of the search is over
    left_out   schedules that were not asked for one of the two
    """

    price: Price
    weights: Mapping[Sizes, float]
    factor: float = inf
    looks: int | None = None
    within: frozenset[Schedule] | None = None
    is_enough: Callable[[], bool] = lambda: False
    is_over: Callable[[], bool] = lambda: False
    looked: int = field(default=0, init=False)
    least: float = field(default=inf, init=False)
    known: dict[Schedule, float] = field(default_factory=dict, init=False)
    left_out: set[Schedule] = field(default_factory=set, init=False)

    def __call__(self, schedule: Schedule) -> float:
        """Seconds, or `inf`.

        Raises TimeLimitReached for what was not asked before the time of the search was over.
        """
        if schedule not in self.known:
            if self.is_enough() or self.is_over():
                self.left_out.add(schedule)
            if self.is_over():
                raise TimeLimitReached
            if self.is_enough():
                return inf
            if self.looked == self.looks:
                return inf
            self.looked += 1
            self.known[schedule] = self._ask(schedule)
        seconds = self.known[schedule]
        return inf if seconds > self.factor * self.least else seconds

    def refit(self, times: Times) -> None:
        """Before a round, tell the price what was measured; where it learns from that, all is asked anew.

        What was measured is asked at once: by the least of it, others are refused.
        """
        self.looked = 0
        if isinstance(self.price, RefittablePrice):
            self.price.refit(times)
            self.known.clear()
            self.least = inf
            self.known.update({schedule: self._ask(schedule) for schedule in times})

    def by_sizes(self, schedule: Schedule) -> Mapping[Sizes, float]:
        """The price of a schedule, in seconds by sizes; of none where it is refused, or time is over."""
        if self.is_over() and schedule not in self.known:
            return {}
        return seconds_by_sizes(self.price, schedule)

    def _ask(self, schedule: Schedule) -> float:
        if self.within is not None and schedule not in self.within:
            return inf
        by_sizes = seconds_by_sizes(self.price, schedule)
        if not by_sizes:
            return inf
        total = sum(self.weights.values())
        seconds = sum(weight * by_sizes[sizes] for sizes, weight in self.weights.items()) / total
        if not isfinite(seconds) or seconds < 0:
            return inf
        self.least = min(self.least, seconds)
        return seconds
