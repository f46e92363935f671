"""A campaign on a table: the explorer proposes as ever, and what it would measure is looked up.

So an explorer is judged by seeds and numbers of trials that nobody could measure one by one. It is `Campaign` itself
that runs, in a space from which all is left out that the table does not hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path

from offcut.errors import PartitionError, TargetError
from offcut.schedule import Schedule
from offcut.search import (
    Expected,
    Outcome,
    Points,
    Price,
    Record,
    Records,
    Refitted,
    Sizes,
    Times,
    Trial,
)
from offcut.search.explorers import explorer_named
from offcut.search.origin import Origin
from offcut.tuning.campaign import Campaign
from offcut.tuning.oracle.table import Table
from offcut.tuning.problem import Measured, Problem


def replayed(
    table: Table,
    problem: Problem,
    space: Points,
    price: Price,
    explorer: str,
    trials: Sequence[int],
    beyond: float,
) -> tuple[float, ...]:
    """The regret of the best that was tried after each of so many trials; infinite where none was timed.

    problem  its seed is that of the explorer
    price    that the explorer goes by; it may learn from the trials
    trials   ascending
    beyond   times the least predicted seconds, past which a schedule is not worth a trial
    """
    held = frozenset(table.points)
    within = _Within(price, held)
    if isinstance(price, Refitted):
        within = _Learning(price, held, price.refit)
    weights = dict(zip(table.keys, (weight for _, weight in table.sizes), strict=True))
    expected = Expected(within, weights, beyond)
    searched = space.going_by(expected)
    named, made = explorer_named(explorer)
    campaign = Campaign(
        *(problem, searched, expected, made, named, Unkept()),
        *(_looked_up(table), trials[-1]),
    )
    try:
        campaign.best()
    except TargetError:
        if any(one.outcome is Outcome.OK for one in campaign.tried):
            raise
    seconds = [one.seconds(problem) for one in campaign.tried]
    least = table.expected(table.best)
    return tuple(min(seconds[:count], default=inf) / least - 1 for count in trials)


def _looked_up(
    table: Table,
) -> Callable[[Sequence[Schedule], Callable[[Measured], None]], None]:
    def measure(schedules: Sequence[Schedule], tell: Callable[[Measured], None]) -> None:
        for schedule in schedules:
            absent = Measured(schedule, Outcome.REFUSED, (), "it is not in the table")
            tell(table.measured.get(schedule, absent))

    return measure


@dataclass(frozen=True, slots=True)
class _Within:
    """A price that refuses what a table does not hold."""

    price: Price
    held: frozenset[Schedule]

    def __call__(self, schedule: Schedule) -> Mapping[Sizes, float]:
        if schedule not in self.held:
            raise PartitionError("sweep", "cannot try this", because="it is not in the table")
        return self.price(schedule)


@dataclass(frozen=True, slots=True)
class _Learning(_Within):
    """Likewise, of one that learns."""

    learn: Callable[[Times], None]

    def refit(self, times: Times) -> None:
        """Hand over what was measured."""
        self.learn(times)


class Unkept(Records):
    """Records that keep nothing."""

    def __init__(self) -> None:
        object.__setattr__(self, "path", Path())

    def add(self, records: Record | Iterable[Record]) -> None:
        """Nothing is written."""

    def keep(self, origins: Iterable[Origin]) -> None:
        """Likewise."""

    def trials(self, program: str, machine: str, version: str | None = None) -> tuple[Trial, ...]:
        """None."""
        return ()
