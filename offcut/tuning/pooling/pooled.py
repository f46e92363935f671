"""Schedules measured by the devices of a pool.

Each device times a parcel of schedules in turns beside the default's kernel. By what that kernel takes, times of other devices
and other moments compare (`recorded_trials`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from offcut.schedule import Schedule
from offcut.search import Outcome
from offcut.search.pool import REQUEUES, Dealer, Flights, Pool, connected
from offcut.search.pool.dealer import Task
from offcut.tuning.campaign import BATCH
from offcut.tuning.pooling import remote
from offcut.tuning.pooling.remote import sent
from offcut.tuning.problem import Limits, Measured, Problem

ROUND = 2 * BATCH
"""Schedules in a round: the same however many devices there are, so that the same ones are proposed."""

Parcel: TypeAlias = tuple[Schedule, ...]
"""What a device is given; nothing: it is asked whether it takes the campaign."""

Tell: TypeAlias = Callable[[Measured], None]


class PooledBench(Dealer[Schedule]):
    """Measures schedules of a problem on the devices that there are."""

    op = "tune"
    again = "begun again, tuning takes from the records what was measured"
    most = BATCH

    def __init__(self, problem: Problem, limits: Limits, flights: Flights[Parcel]) -> None:
        super().__init__(flights)
        self._wire = sent(problem, limits)

    def measured(self, schedules: Sequence[Schedule], tell: Tell) -> None:
        """Tell what becomes of each schedule, as soon as its parcel is back.

        Raises TargetError where no device is left, or the program cannot be checked.
        """
        self.deal(schedules, tell)

    def together(self, schedules: Sequence[Schedule], tell: Tell) -> None:
        """Likewise, all in turns on one device."""
        self.deal(schedules, tell, whole=True)

    def admission(self) -> Task:
        """Return the task that sends the problem."""
        return remote.admit, self.campaign, self._wire

    def order(self, parcel: Parcel) -> Task:
        """Return the task that measures schedules, which go as texts."""
        return remote.measure, self.campaign, tuple(map(str, parcel))

    def dismissal(self) -> Task:
        """Return the task that ends the device's child."""
        return remote.dismiss, self.campaign

    def crashed(self, item: Schedule, because: str) -> Measured:
        """Return what is told of a schedule that every device went with."""
        return Measured(item, Outcome.CRASHED, (), because)


@contextmanager
def pooled(problem: Problem, limits: Limits, pool: Pool) -> Iterator[PooledBench]:
    """A bench on the devices of a pool, as long as the context lasts.

    Raises TargetError where no scheduler answers.
    """
    with connected(pool, "tune") as client:
        flights = Flights[Parcel](client, pool)
        with flights, PooledBench(problem, limits, flights) as bench:
            yield bench


__all__ = ["REQUEUES", "ROUND", "Parcel", "PooledBench", "pooled"]
