"""Trials of one problem, from the default schedule to the one that is confirmed: proposed, measured, recorded.

Rounds of a batch: the explorer proposes, what is recorded already is taken from there, the rest is measured
and recorded one by one, as soon as each is known. A round depends on the seed, its number, and what was measured before,
so that a campaign that was killed and is begun again proposes the same, and measures what is missing. Batches are
comparable: how the machine drifted between their trials is divided out (`recorded_trials`). At last the best of
them, what their ways make together, and the default run in turns against each other; the default stays if it is not
beaten by more than the noise, and by more than times are known to.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from math import hypot, inf, isfinite
from random import Random

from offcut.errors import DescribeError, TargetError, blamed_on_another
from offcut.schedule import Schedule
from offcut.search import (
    ExpectedCost,
    Outcome,
    Records,
    ScheduleSpace,
    Source,
    TimeLimitReached,
    Times,
)
from offcut.search.explorers import Explorer, Judge, TriedSchedule
from offcut.search.trials import BEST, DEFAULT, verdicts_of
from offcut.tuning.problem import Measure, Measured, Problem
from offcut.tuning.recorded_trials import TrialLog
from offcut.tuning.variant_selection import compose_variants

BATCH = 8
"""Candidates of a round: what is learned is learned between rounds, and a device of a pool takes as many at most."""

FINALISTS = 3
"""The best trials that run against the default at last."""

CONFIRM = "confirm"
"""What records call the explorer of the last run."""

LAST_RUN = (CONFIRM, BEST, DEFAULT)
"""What is recorded of it: its times, and what they settled."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a campaign is, after a trial.

    trial    its number, from 1 on
    latest   what became of it
    best     seconds of a call of the distribution, of the best trial so far; infinite where none was ok
    default  likewise of the default schedule
    regret   by which share of its time the best so far is predicted to miss the best there is; None: not known
    price    what search goes by, in words; "" where it does not say
    left_out schedules that were not predicted, for want of time
    source   where times are from
    """

    trial: int
    latest: Measured
    best: float
    default: float
    regret: float | None
    price: str = ""
    left_out: int = 0
    source: Source = Source.MEASURED


@dataclass
class Campaign:
    """A search of the schedule of a problem.

    space    its schedules, `expected` their price
    named    what records call the explorer
    records  None: nothing is known, and nothing is kept
    measure  of schedules
    last     of the best, against each other: all in turns, on one device; None: `measure`
    resolution  the share of a time to which times are known: what the best saves beside the default is more, or nothing
    batch    schedules in a round, at most
    started  by ``time.monotonic()``: from when on seconds count
    trials   at most, the default among them; None: as many as `seconds` allow
    seconds  after which no trial is proposed; None: as many as `trials` need. Predicting what to try takes at most half of those
             that are left before a round
    tell     of each trial; of the last once more, where schedules were not predicted
    """

    problem: Problem
    space: ScheduleSpace
    expected: ExpectedCost
    explorer: Explorer
    named: str
    records: Records | None
    measure: Measure
    trials: int | None = None
    seconds: float | None = None
    tell: Callable[[Progress], None] = lambda progress: None
    last: Measure | None = None
    resolution: float = 0.0
    batch: int = BATCH
    started: float = field(default_factory=lambda: time.monotonic())
    tried: list[Measured] = field(default_factory=list, init=False)
    log: TrialLog = field(init=False)

    def __post_init__(self) -> None:
        self.log = TrialLog(self.records, self.problem, self.space.first)

    def best(self) -> Schedule:
        """Return the schedule that is confirmed to be the best.

        Raises TargetError where none could be measured.
        """
        rounds = 0
        self.expected.is_over = lambda: self._left() < 0
        while True:
            count = self._count(time.monotonic() - self.started)
            self.expected.is_enough = partial(self._is_below, self._left() / 2)
            batch = self._batch(rounds, count) if count else ()
            if not batch:
                break
            self._try(batch)
            if self._left() > 0:
                self.expected.refit(self._times())
            rounds += 1
        if self.expected.left_out:
            self.tell(self._progress(self.tried))
        return self._confirmed()

    def _left(self) -> float:
        """Seconds that are left."""
        return inf if self.seconds is None else self.seconds - (time.monotonic() - self.started)

    def _is_below(self, seconds: float) -> bool:
        """Return whether fewer are left."""
        return self._left() < seconds

    def _count(self, elapsed: float) -> int:
        """Return how many schedules the next round tries."""
        count = self.batch
        if self.trials is not None:
            count = min(count, self.trials - len(self.tried))
        if self.seconds is not None and not self.tried:
            count = min(count, 1)  # what a trial takes is not known before one was made
        elif self.seconds is not None:
            each = elapsed / len(self.tried)
            seconds_left = self.seconds - elapsed
            count = min(
                count, max(1, int(seconds_left / each)) if seconds_left > 0 and each > 0 else 0
            )
        return count

    def _batch(self, number: int, count: int) -> Sequence[Schedule]:
        """Return the schedules of a round: the default before all others."""
        first = () if number else (self.space.first,)
        trials = tuple(TriedSchedule(one.schedule, self._seconds(one)) for one in self.tried)
        known = {*(one.schedule for one in trials), *first}
        rng, missing = Random(f"{self.problem.seed}:{number}"), count - len(first)
        try:
            proposals = self._proposals(trials, rng, missing) if missing else ()
        except TimeLimitReached:
            proposals = ()
        new = [one for one in dict.fromkeys(proposals) if one not in known]
        return (*first, *new[:missing])

    def _proposals(
        self, trials: Sequence[TriedSchedule], rng: Random, count: int
    ) -> Sequence[Schedule]:
        """Return what the explorer proposes, `count` schedules at most.

        Raises DescribeError where it raises, or gives what are no schedules of the program.
        """

        def refused(what: str, because: str) -> DescribeError:
            help = ("space.sample(rng)", "space.neighbours(point)")
            return DescribeError(
                "tune", what, at=f"explorer {self.named}", because=because, help=help
            )

        with blamed_on_another(lambda did: refused("cannot search", f"it {did}"), TimeLimitReached):
            proposals = tuple(islice(self.explorer.propose(self.space, trials, rng, count), count))
        for one in proposals:
            if not isinstance(one, Schedule):
                raise refused(f"cannot try {one!r}", "it is not a schedule")
            if one.name != self.space.first.name:
                raise refused(
                    f"cannot try a schedule of {one.name}", f"it is not of {self.space.first.name}"
                )
        return proposals

    def _try(self, batch: Sequence[Schedule]) -> None:
        """Measure what is not recorded, and take the rest from the records."""
        latest = list[Measured]()

        def tell(one: Measured) -> None:
            latest.append(one)
            self.tell(self._progress([*self.tried, *latest]))

        results = self.log.complete(
            batch,
            self.measure,
            self.named,
            self.expected.by_sizes,
            tell,
            lambda record: record.explorer not in LAST_RUN,
        )
        self.tried += results.values()

    def _times(self) -> Times:
        """What was measured of the trials that are ok."""
        return {
            one.schedule: dict(
                zip(self.problem.keys, ((t.seconds, t.spread) for t in one.times), strict=True)
            )
            for one in self.tried
            if one.outcome is Outcome.OK
        }

    def _confirmed(self) -> Schedule:
        """Return the best of the last run; the default where it is not beaten."""
        sound = sorted((one for one in self.tried if one.outcome is Outcome.OK), key=self._time)
        first = self.space.first
        if not sound:
            last = self.tried[-1]
            raise TargetError(
                "tune",
                f"cannot measure a schedule of {first.name}",
                because=f"the last of {len(self.tried)} is {last.outcome.value}: {last.because}",
            )
        finalists = [one.schedule for one in sound[:FINALISTS]]
        combination = compose_variants(self.problem, sound, self.space.most)
        finalists += [] if combination is None else [combination.schedule]
        if any(one.schedule == first for one in sound) and first not in finalists:
            finalists.append(first)
        if len(finalists) == 1:
            return commit_verdict(self.log, sound[0], sound[0] if finalists[0] == first else None)
        last_run = self.log.outcomes(lambda record: record.explorer == CONFIRM)
        is_recorded = all(str(schedule) in last_run for schedule in finalists)
        results = self.log.complete(
            finalists,
            self.last or self.measure,
            CONFIRM,
            self.expected.by_sizes,
            counts=lambda record: is_recorded and record.explorer == CONFIRM,
        )
        fine = [one for one in results.values() if one.outcome is Outcome.OK]
        if not fine:
            return first
        winner = min(fine, key=self._time)
        default = results.get(first)
        if default is None or default.outcome is not Outcome.OK:
            return commit_verdict(self.log, winner, None)
        gain = self._time(default) - self._time(winner)
        doubt = max(self._doubt(default, winner), self.resolution * self._time(default))
        return commit_verdict(self.log, winner if gain > doubt else default, default)

    def _progress(self, measured: Sequence[Measured]) -> Progress:
        seconds = {one.schedule: self._time(one) for one in measured}
        best = min(seconds.values())
        regret = self._regret(measured, best)
        default = seconds.get(self.space.first, inf)
        price = str(getattr(self.expected.price, "description", ""))
        left_out, source = len(self.expected.left_out), self.problem.source
        return Progress(len(measured), measured[-1], best, default, regret, price, left_out, source)

    def _regret(self, measured: Sequence[Measured], best: float) -> float | None:
        """By which share of its time the best is predicted to miss the best there is; None: not known."""
        trials = [TriedSchedule(one.schedule, self._seconds(one)) for one in measured]
        try:
            least = Judge(self.space, trials).scale * self.expected.least
        except TimeLimitReached:
            return None
        return max(best / least - 1, 0.0) if 0 < least < inf and isfinite(best) else None

    def _time(self, one: Measured) -> float:
        return one.seconds(self.problem)

    def _seconds(self, one: Measured) -> float | None:
        return self._time(one) if one.outcome is Outcome.OK else None

    def _doubt(self, *measured: Measured) -> float:
        """Return how far a difference of expected seconds may be noise: half the quartiles' distances, as errors add up."""
        return hypot(
            *(
                weight * time.seconds * time.spread / 2
                for one in measured
                for (_, weight), time in zip(self.problem.sizes, one.times, strict=True)
            )
        )


def commit_verdict(log: TrialLog, best: Measured, default: Measured | None) -> Schedule:
    """Return the schedule that was chosen, and record the verdict, whole or not at all; one that is there already is not written again.

    default  None: it could not be measured
    """
    if log.records is None:
        return best.schedule
    verdict_records = [replace(record, explorer=BEST) for record in best.records(log.problem)]
    if default is not None:
        own = default.records(log.problem)
        verdict_records += [replace(record, explorer=DEFAULT) for record in own]
    known = [record for trial in log.trials for record in trial.records]
    (verdict,) = verdicts_of(replace(one, created=0.0) for one in verdict_records)
    there = (replace(one, created=0.0) for one in verdicts_of(known))
    if verdict not in there:
        now = time.time()
        log.records.add(replace(one, created=now) for one in verdict_records)
    return best.schedule
