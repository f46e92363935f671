"""What records know of the schedules of a problem: trials that were measured, tables and curves of them.

Times of batches that ran at other moments, or on other devices, are made comparable.

A shared machine drifts: the same kernel takes half as long again an hour later, and from one batch to the next.
Within a batch all take turns, so that their ratios hold; and the default schedule's kernel takes turns in
every batch. What it takes there, over what it took first, is the drift, which is divided out at each
vector of sizes::

    seconds(sizes) = measured(sizes) * anchor(sizes) / reference(sizes)

    reference  of the default's kernel in the batch
    anchor     of the default's kernel in the first batch, or what the records know of it

So what is kept are seconds of a call, on the machine as it was when the default was first measured. Their spread is that in the
batch, and that from one batch to the next, where code and arrays lie elsewhere: what the default's kernel tells of it::

    step          = reference / the reference before, for each batch so far
    spread(sizes) = hypot(spread in the batch, sqrt(2) * median of |step / median step - 1|)

Quartiles of independent normal errors are 2 * 0.674 of their deviation apart, and the median of the
difference of two is 0.674 * sqrt(2) of it; what drifts slowly is no part of that.

Records as tables to read, and as a curve: the best so far over the trials.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import pairwise
from math import hypot, sqrt
from pathlib import Path
from statistics import median

from rich.markup import escape
from rich.table import Table

import offcut
from offcut.core.text.tables import quantity
from offcut.errors import OffcutError
from offcut.experiment.outputs import plot_lines
from offcut.schedule import Schedule
from offcut.search import Outcome, Record, Records, Sizes, Trial, by_place, key_of, rank_trials
from offcut.search.trials import least_times, slowdown
from offcut.tuning.problem import Measure, Measured, Problem, Time


class TrialLog:
    """The measurements of one problem: recorded ones, and new ones, which are recorded as soon as they are added.

    records  None: nothing is recorded
    default  the target's own schedule, to whose first times all others are scaled
    """

    def __init__(self, records: Records | None, problem: Problem, default: Schedule) -> None:
        self.records, self.problem, self.keeps_origins = records, problem, False
        default_trials = (trial for trial in self.trials if trial.schedule == str(default))
        self.reference = DriftReference.from_records(
            record for trial in default_trials for record in trial.records
        )

    @property
    def trials(self) -> tuple[Trial, ...]:
        """The recorded trials of this program, machine and version."""
        if self.records is None:
            return ()
        return self.records.trials(self.problem.program, self.problem.machine, offcut.__version__)

    def outcomes(self, counts: Callable[[Record], bool] = lambda _: True) -> dict[str, Measured]:
        """Return the outcomes of schedules by their texts: of those with records of the problem's seed at all of its sizes.

        counts  predicate of the records to use
        """
        outcomes: dict[str, Measured] = {}
        for trial in self.trials:
            records = [r for r in trial.records if r.seed == self.problem.seed and counts(r)]
            measured = _measured(trial.schedule, records, self.problem)
            if measured is not None:
                outcomes[trial.schedule] = measured
        return outcomes

    def complete(
        self,
        schedules: Sequence[Schedule],
        measure: Measure,
        explorer: str,
        predict: Callable[[Schedule], Mapping[Sizes, float]],
        tell: Callable[[Measured], None] = lambda measured: None,
        counts: Callable[[Record], bool] = lambda _: True,
    ) -> dict[Schedule, Measured]:
        """Return what became of schedules, in their order: what is recorded is taken from there, the rest is measured, and
        recorded one by one as soon as each is known; without those that `measure` did not come to.

        explorer  what records call who proposed them
        predict   seconds by sizes, recorded beside a time
        tell      told of each: of the recorded ones first
        counts    predicate of the records to use
        """
        recorded, results = self.outcomes(counts), dict[Schedule, Measured]()

        def take(one: Measured) -> None:
            results[one.schedule] = one
            tell(one)

        def record(measured: Measured) -> None:
            one = self.reference.scale(measured)
            self.add(one, explorer, predict(one.schedule))
            take(one)

        new = list[Schedule]()
        for schedule in schedules:
            if str(schedule) in recorded:
                take(recorded[str(schedule)])
            else:
                new.append(schedule)
        if new:
            measure(new, record)
        return {schedule: results[schedule] for schedule in schedules if schedule in results}

    def add(self, measured: Measured, explorer: str, predicted: Mapping[Sizes, float]) -> None:
        """Record what became of a schedule, and, with the first of them, what its program and place are.

        predicted  seconds by sizes; none of those that are not there, or 0
        """
        if self.records is None:
            return
        if not self.keeps_origins:
            self.records.keep(self.problem.origins)
            self.keeps_origins = True
        guesses = [predicted.get(key) or None for key in self.problem.keys]
        self.records.add(measured.records(self.problem, explorer, guesses))


def _measured(text: str, records: Sequence[Record], problem: Problem) -> Measured | None:
    """Return the recorded measurement of a schedule; None if a size is missing."""
    try:
        schedule = Schedule.parse(text)
    except OffcutError:
        return None  # a line that was written by hand: what it measured is measured again
    failed = next((one for one in records if one.outcome is not Outcome.OK), None)
    if failed is not None:
        return Measured(schedule, failed.outcome, (), failed.because, dict(failed.sizes))
    times: dict[object, Time] = {}
    for one in records:
        if one.seconds is not None and one.spread is not None:
            at = dict(one.sizes)
            times.setdefault(key_of(at), Time(at, one.seconds, one.spread))
    if not all(key in times for key in problem.keys):
        return None
    return Measured(schedule, Outcome.OK, tuple(times[key] for key in problem.keys))


@dataclass
class DriftReference:
    """First measured seconds of the default schedule by sizes; all times are scaled to them.

    by_batch  seconds of the default's kernel in each batch, in order, by sizes
    """

    seconds: dict[object, float] = field(default_factory=dict)
    by_batch: dict[object, list[float]] = field(default_factory=dict, init=False)

    @staticmethod
    def from_records(records: Iterable[Record]) -> DriftReference:
        """Return the reference from records of the default schedule, in order of writing."""
        reference = DriftReference()
        for one in records:
            if one.seconds:
                reference._anchor(one.sizes, one.seconds)
        return reference

    def scale(self, one: Measured) -> Measured:
        """Return a candidate with its times as they were when the default was first measured.

        What has no reference stays as it is. `Measured.reference` stays, so that what was read from the clock is
        ``seconds * reference / anchor``.
        """
        if not all(one.reference):  # a clock that did not move
            return one
        times = []
        for time, reference in zip(one.times, one.reference, strict=False):
            seconds = time.seconds * self._anchor(time.sizes, reference) / reference
            references = self.by_batch.setdefault(key_of(time.sizes), [])
            if references[-1:] != [reference]:  # all candidates of a batch have the same
                references.append(reference)
            spread = hypot(time.spread, self.batch_spread(time.sizes))
            times.append(Time(time.sizes, seconds, spread))
        return replace(one, times=tuple(times) or one.times)

    def batch_spread(self, sizes: Mapping[str, int]) -> float:
        """Return the spread of a time between batches, (third − first quartile) / median; 0 with fewer than two batches."""
        references = self.by_batch.get(key_of(sizes), [])
        steps = [after / before for before, after in pairwise(references)]
        return sqrt(2) * median(abs(step / median(steps) - 1) for step in steps) if steps else 0.0

    def _anchor(self, sizes: Mapping[str, int], seconds: float) -> float:
        """Return the anchor at these sizes, in seconds; set it to `seconds` if there is none."""
        return self.seconds.setdefault(key_of(sizes), seconds)


Place = tuple[str, str, str]
"""Program, machine and version."""


def list_records(records: Records) -> Table:
    """A row for each program, machine and version."""
    names = ("program", "machine", "version", "trials", "ok", "sizes", "times", "best", "last")
    table = _table(f"{records.path}", *names)
    for place, trials in by_place(records).items():
        best = next(iter(rank_trials(trials)), None)
        sizes = {at for trial in trials for at in trial.times}
        last = max(record.created for trial in trials for record in trial.records)
        sound = sum(trial.ok for trial in trials)
        counts = (str(count) for count in (len(trials), sound, len(sizes)))
        timed = {r.source.value for trial in trials for r in trial.records if r.seconds is not None}
        digest = best.digest[:8] if best else "none"
        table.add_row(
            *place,
            *counts,
            ", ".join(sorted(timed)),
            digest,
            f"{datetime.fromtimestamp(last, UTC):%Y-%m-%d %H:%M}",
        )
    return table


def show_records(records: Records, digest: str) -> Iterator[Table | str]:
    """All that is known of a program, a table for each machine and version; or of a schedule, its text first.

    The least time of any schedule at a size is bold.

    digest  of either, or the first digits of it

    Raises OffcutError where there is none.
    """
    places = by_place(records)
    matches = {place: trials for place, trials in places.items() if place[0].startswith(digest)}
    if not matches:
        matches = _with_schedule(places, digest, "show")
        yield next(iter(matches.values()))[0].schedule
    for place, trials in matches.items():
        table = _table(
            " · ".join(place), "schedule", "outcome", "sizes", "time", "spread", "is", "by", ""
        )
        least = least_times(places[place])
        for trial in trials:
            for record in trial.records:
                time = seconds_text(record.seconds)
                if record.seconds == least.get(key_of(record.sizes), 0.0):
                    time = f"[bold]{time}[/bold]"
                spread = "" if record.spread is None else f"{record.spread:.0%}"
                sizes = sizes_text(tuple(record.sizes.items()))
                reason = escape(record.because.partition("\n")[0])
                cells = (trial.digest[:8], record.outcome.value, sizes)
                source = "" if record.seconds is None else record.source.value
                table.add_row(*cells, time, spread, source, escape(record.explorer), reason)
        yield table


def compare_records(records: Records, one: str, other: str) -> Iterator[Table]:
    """Two schedules beside each other, a table for each program, machine and version that has both.

    one, other  their digests, or the first digits

    Raises OffcutError where no program has both.
    """
    places = by_place(records)
    first = _with_schedule(places, one, "compare")
    second = _with_schedule(places, other, "compare")
    if not first.keys() & second.keys():
        raise OffcutError(
            "compare",
            f"cannot compare {one} with {other}",
            because="no program, machine and version has both",
            help=("offcut records show PROGRAM",),
        )
    for place in first:
        for a in first[place]:
            for b in second.get(place, ()):
                yield _beside(place, a, b)


def curve(records: Records, program: str, file: Path) -> None:
    """Draw, over the trials of a program, how many times slower than the best of all the best so far was.

    program  its digest, or the first digits

    Raises OffcutError where there is none, or nothing of it is ok.
    """
    lines = {}
    for place, trials in by_place(records).items():
        least = least_times(trials)
        if place[0].startswith(program) and least:
            lines[" · ".join(place)] = list(_best_so_far(trials, least))
    if not lines:
        raise OffcutError(
            "plot",
            f"cannot draw trials of {program}",
            because="there is none that is ok",
            help=("offcut records list",),
        )
    plot_lines(
        file,
        lines,
        title="The best schedule so far",
        x_label="trials",
        y_label="times the least time, geometric mean over sizes (lower is better)",
        footer=f"measured; {records.path.name}",
    )


def _best_so_far(
    trials: tuple[Trial, ...], least: Mapping[Sizes, float]
) -> Iterator[tuple[float, float]]:
    """Of those that were timed at every size; a trial that failed counts as one."""
    best = float("inf")
    for number, trial in enumerate(trials, 1):
        if trial.ok and trial.times.keys() == least.keys():
            best = min(best, slowdown(trial.times, least))
        if best < float("inf"):
            yield float(number), best


def _with_schedule(
    places: Mapping[Place, tuple[Trial, ...]], digest: str, op: str
) -> dict[Place, tuple[Trial, ...]]:
    """The trials of one schedule, by place.

    Raises OffcutError where there is none, or several begin so.
    """
    matches = {
        place: tuple(trial for trial in trials if trial.digest.startswith(digest))
        for place, trials in places.items()
    }
    matches = {place: trials for place, trials in matches.items() if trials}
    digests = sorted({trial.digest for trials in matches.values() for trial in trials})
    if len(digests) != 1:
        raise OffcutError(
            op,
            f"cannot {op} {digest}",
            because=f"it is {', '.join(digests[:4])}" if digests else "no record has it",
            help=("offcut records list", "offcut records show PROGRAM"),
        )
    return matches


def _beside(place: Place, a: Trial, b: Trial) -> Table:
    table = _table(" · ".join(place), "sizes", a.digest[:8], b.digest[:8], "second / first")
    for at in dict.fromkeys((*a.times, *b.times)):
        one, other = a.times.get(at), b.times.get(at)
        ratio = f"{other / one:.3f}" if one and other else ""
        table.add_row(sizes_text(at), seconds_text(one), seconds_text(other), ratio)
    failed = [_outcomes(trial) for trial in (a, b)]
    if any(failed):
        table.add_row("", *failed, "")
    return table


def _outcomes(trial: Trial) -> str:
    counts = Counter(record.outcome for record in trial.records)
    del counts[Outcome.OK]
    return ", ".join(f"{count} {outcome.value}" for outcome, count in counts.items())


def _table(title: str, *columns: str) -> Table:
    table = Table(title=escape(title), title_justify="left")
    for name in columns:
        right = name in ("trials", "ok", "time", "spread") or "/" in name
        table.add_column(name, justify="right" if right else "left")
    return table


def sizes_text(at: Sizes) -> str:
    """Sizes in a line."""
    return " ".join(f"{name}={value}" for name, value in at)


def seconds_text(value: float | None) -> str:
    """Return a time in the unit that reads best; "" if there is none."""
    return "" if value is None else quantity(value, "s")
