"""All that was measured of a schedule, which schedule of several is the fastest, and the verdict of a campaign: the schedule that its last
run found the best, beside the default there.

A verdict is kept as records of two kinds, written as one: those whose explorer is `BEST` are of the schedule that
was chosen, those whose explorer is `DEFAULT` of the target's own, both with the seconds of the last run, in
which they took turns. No explorer can have such a name, since it is no identifier. Where the default itself was
chosen, both are of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from math import exp, fsum, log

from offcut.search.record import Outcome, Record, Sizes, Source, key_of

Weighted = Sequence[tuple[Mapping[str, int], float]]
"""Vectors of sizes, each with how much a second there counts."""


@dataclass(frozen=True, slots=True)
class Trial:
    """The records of one schedule for one program, machine and version, in order of writing."""

    schedule: str
    version: str
    records: tuple[Record, ...]

    @property
    def digest(self) -> str:
        """64 bits of SHA-256 of the schedule's text, in hexadecimal: what tables call it."""
        return sha256(self.schedule.encode()).hexdigest()[:16]

    @property
    def ok(self) -> bool:
        """Whether it was timed, and never ended otherwise."""
        return all(record.outcome is Outcome.OK for record in self.records)

    @property
    def times(self) -> dict[Sizes, float]:
        """Seconds of a call by sizes: what was written last."""
        return {
            key_of(record.sizes): record.seconds
            for record in self.records
            if record.seconds is not None
        }


def trials_of(records: Iterable[Record]) -> tuple[Trial, ...]:
    """Records of one program and machine, grouped, in the order of their first ones."""
    grouped: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in records:
        grouped[record.schedule, record.version].append(record)
    return tuple(Trial(*named, tuple(found)) for named, found in grouped.items())


def by_place(records: Iterable[Record]) -> dict[tuple[str, str, str], tuple[Trial, ...]]:
    """Trials by program, machine and version, all in the order of their first records."""
    grouped: dict[tuple[str, str, str], list[Record]] = defaultdict(list)
    for record in records:
        grouped[record.program, record.machine, record.version].append(record)
    return {place: trials_of(found) for place, found in grouped.items()}


def least_times(trials: Iterable[Trial]) -> dict[Sizes, float]:
    """The least seconds, by sizes, of the trials that are ok."""
    least: dict[Sizes, float] = {}
    for trial in trials:
        for at, seconds in trial.times.items() if trial.ok else ():
            least[at] = min(seconds, least.get(at, seconds))
    return least


def ranked(trials: Sequence[Trial], sizes: Weighted = ()) -> list[Trial]:
    """The trials that are ok, the fastest first; of equal ones the last.

    sizes  those that count: trials that have them all are ranked by the sum of weight * seconds

    Where none are given, more sizes come before fewer, and of as many the least geometric mean, over the
    sizes, of the seconds over the least of any trial there.
    """
    sound = [trial for trial in reversed(trials) if trial.ok]
    if sizes:
        wanted = [(key_of(at), weight) for at, weight in sizes]
        whole = [t for t in sound if all(at in t.times for at, _ in wanted)]
        return sorted(whole, key=lambda t: fsum(weight * t.times[at] for at, weight in wanted))
    least = least_times(sound)
    return sorted(sound, key=lambda t: (-len(t.times), slowdown(t.times, least)))


def slowdown(times: Mapping[Sizes, float], least: Mapping[Sizes, float]) -> float:
    """Geometric mean, over the sizes of both, of the seconds over the least ones."""
    ratios = [log(seconds / least[at]) for at, seconds in times.items() if at in least]
    return exp(fsum(ratios) / max(1, len(ratios)))


BEST = "the best"
DEFAULT = "the default"

_LISTED = 8
"""Sizes that are listed one by one, at most."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The schedule that one campaign settled on.

    schedule  its text
    default   that of the target's own schedule there; None: no time of it is recorded
    seconds   of a call of the chosen one, by sizes
    before    likewise of the default
    created   seconds since 1970, UTC
    source    where these seconds are from; of several, not the clock if any is not
    """

    schedule: str
    default: str | None
    seconds: Mapping[Sizes, float]
    before: Mapping[Sizes, float]
    created: float
    source: Source = Source.MEASURED

    @property
    def changes(self) -> bool:
        """Whether another schedule than the default was chosen."""
        return self.schedule != self.default

    @property
    def gains(self) -> tuple[float, ...]:
        """Seconds of the default over those of the chosen one, at each size that both were measured at."""
        both = (at for at in self.seconds if at in self.before and self.seconds[at] > 0)
        return tuple(self.before[at] / self.seconds[at] for at in both)

    def __str__(self) -> str:
        """When it was settled, and by how much."""
        day = f"tuned {self._day}"
        if self.source is not Source.MEASURED:
            day += f" by {self.source.value} times"
        if not self.changes:
            return f"{day}, the default was the best {self._where}"
        if not self.gains:
            return f"{day}, with no time of the default recorded beside it"
        low, high = (f"{gain:.2f}" for gain in (min(self.gains), max(self.gains)))
        times = f"{low}×" if low == high else f"{low}× to {high}×"
        return f"{day}, {times} as fast as the default {self._where}"

    @property
    def _day(self) -> str:
        try:
            return f"{datetime.fromtimestamp(self.created, UTC):%Y-%m-%d}"
        except (
            ValueError,
            OverflowError,
            OSError,
        ):  # a number that is no time, such as milliseconds
            return "on a day that is not known"

    @property
    def _where(self) -> str:
        """The sizes, listed where they are few."""
        sizes = sorted(self.seconds)
        names = {name for at in sizes for name, _ in at}
        if len(names) == 1 and len(sizes) <= _LISTED:
            return f"at {names.pop()} = {', '.join(str(at[0][1]) for at in sizes)}"
        return f"at {len(sizes)} sizes" if names else "there is"


def verdicts_of(records: Iterable[Record]) -> tuple[Verdict, ...]:
    """The verdicts among records of one program and place, in the order of writing; others are skipped."""
    grouped: dict[tuple[int, str, float], list[Record]] = defaultdict(list)
    for record in records:
        if record.explorer in (BEST, DEFAULT) and record.outcome is Outcome.OK:
            grouped[record.seed, record.version, record.created].append(record)
    return tuple(made for found in grouped.values() if (made := _verdict(found)) is not None)


def _verdict(records: Iterable[Record]) -> Verdict | None:
    texts: dict[str, str] = {}
    times: dict[str, dict[Sizes, float]] = {BEST: {}, DEFAULT: {}}
    created, source = 0.0, Source.MEASURED
    for record in records:
        if record.seconds is not None:
            source = record.source if source is Source.MEASURED else source
            texts[record.explorer], created = record.schedule, record.created
            times[record.explorer][key_of(record.sizes)] = record.seconds
    if BEST not in texts:
        return None
    return Verdict(texts[BEST], texts.get(DEFAULT), times[BEST], times[DEFAULT], created, source)


def latest_verdict(verdicts: Iterable[Verdict]) -> Verdict | None:
    """The verdict that counts of several: one at the most sizes, and of these the last; None of none.

    A kernel runs at every size, so what was measured at more of them says more about it.
    """
    latest: Verdict | None = None
    for one in verdicts:
        if latest is None or len(one.seconds) >= len(latest.seconds):
            latest = one
    return latest


def has_same_planner(version: str, other: str) -> bool:
    """Whether two versions of offcut make the same kernel of a schedule, as far as times go: those that
    differ in the last number alone do.
    """
    return version.split(".")[:2] == other.split(".")[:2]
