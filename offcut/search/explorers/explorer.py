"""What an explorer is: a space and what was measured of it in, the schedules to measure next out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from math import inf, isfinite
from random import Random
from statistics import median
from typing import Protocol, TypeAlias, runtime_checkable

from offcut.schedule import Schedule
from offcut.search.schedule_space import ScheduleSpace


@dataclass(frozen=True, slots=True)
class TriedSchedule:
    """A schedule that was tried.

    seconds  measured, of a call drawn from the distribution of sizes; None: it was refused, or failed
    """

    schedule: Schedule
    seconds: float | None


Trials: TypeAlias = Sequence[TriedSchedule]
Schedules: TypeAlias = Sequence[Schedule]


@runtime_checkable
class Explorer(Protocol):
    """Proposes schedules.

    What it draws, it draws from the generator that it is given: the same space, trials and generator give
    the same proposals, in any process.
    """

    def propose(self, space: ScheduleSpace, trials: Trials, rng: Random, count: int) -> Schedules:
        """At most `count` schedules to try next; none ends the search.

        trials  all that was tried, in order; what is proposed again is skipped
        """
        ...


Propose: TypeAlias = Callable[[ScheduleSpace, Trials, Random, int], Schedules]


@dataclass(frozen=True, slots=True)
class Function:
    """An explorer that is a function."""

    function: Propose

    def propose(self, space: ScheduleSpace, trials: Trials, rng: Random, count: int) -> Schedules:
        """What the function gives."""
        return self.function(space, trials, rng, count)


class Judge:
    """Seconds of schedules: measured where they were, else predicted, in the scale of what was measured.

    The scale is the median of measured over predicted seconds; 1 where nothing was measured.
    """

    def __init__(self, space: ScheduleSpace, trials: Sequence[TriedSchedule]) -> None:
        self.space = space
        self.measured = {
            one.schedule: inf if one.seconds is None else one.seconds for one in trials
        }
        ratios = [
            seconds / expected
            for schedule, seconds in self.measured.items()
            if isfinite(seconds) and 0 < (expected := space.expected(schedule)) < inf
        ]
        self.scale = median(ratios) if ratios else 1.0

    def __call__(self, schedule: Schedule) -> float:
        """Seconds; infinite for what is refused, failed, or is not worth a trial."""
        if schedule in self.measured:
            return self.measured[schedule]
        return self.scale * self.space.expected(schedule)

    def best(self, count: int) -> list[Schedule]:
        """Return the best of what was measured, and `space.first` before it where that was not."""
        fine = [one for one, seconds in self.measured.items() if isfinite(seconds)]
        schedules = sorted(fine, key=self.measured.__getitem__)[:count]
        return (
            schedules
            if self.space.first in self.measured
            else [self.space.first, *schedules][:count]
        )

    def to_try(self, visited: Sequence[Schedule], count: int) -> list[Schedule]:
        """Return the `count` best of what was visited that were not measured; of equal ones the first."""
        new = [s for s in dict.fromkeys(visited) if s not in self.measured and isfinite(self(s))]
        return sorted(new, key=self)[:count]


@dataclass(frozen=True, slots=True)
class Sampling:
    """Schedules that the price does not leave out, each decision drawn with equal chances.

    draws  for each schedule that is asked for, at most: a small space is exhausted some day
    """

    draws: int = 64

    def propose(self, space: ScheduleSpace, trials: Trials, rng: Random, count: int) -> Schedules:
        """As many as are new."""
        schedules = {one.schedule for one in trials}
        proposals: dict[Schedule, None] = {}
        for _ in range(self.draws * count):
            if len(proposals) == count:
                break
            point = space.sample(rng)
            if point not in schedules and isfinite(space.expected(point)):
                proposals[point] = None
        return tuple(proposals)


@dataclass(frozen=True, slots=True)
class Exhaustive:
    """All points that the price does not leave out: for small spaces."""

    def propose(self, space: ScheduleSpace, trials: Trials, rng: Random, count: int) -> Schedules:
        """Return the next ones."""
        schedules = {one.schedule for one in trials}
        new = (s for s in space.enumerate() if s not in schedules and isfinite(space.expected(s)))
        return tuple(islice(new, count))
