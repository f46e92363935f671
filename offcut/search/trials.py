"""All that was measured of a schedule, and which schedule of several is the fastest."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from math import exp, fsum, log

from offcut.search.record import Outcome, Record

Point = tuple[tuple[str, int], ...]
"""A vector of sizes as a key: by name, in the order of names."""

Weighted = Sequence[tuple[Mapping[str, int], float]]
"""Vectors of sizes, each with how much a second there counts."""


def point(sizes: Mapping[str, int]) -> Point:
    """Sizes as a key."""
    return tuple(sorted(sizes.items()))


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
    def times(self) -> dict[Point, float]:
        """Seconds of a call by sizes: what was written last."""
        return {
            point(record.sizes): record.seconds
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


def least_times(trials: Iterable[Trial]) -> dict[Point, float]:
    """The least seconds, by sizes, of the trials that are ok."""
    least: dict[Point, float] = {}
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
        wanted = [(point(at), weight) for at, weight in sizes]
        whole = [t for t in sound if all(at in t.times for at, _ in wanted)]
        return sorted(whole, key=lambda t: fsum(weight * t.times[at] for at, weight in wanted))
    least = least_times(sound)
    return sorted(sound, key=lambda t: (-len(t.times), slowdown(t.times, least)))


def slowdown(times: Mapping[Point, float], least: Mapping[Point, float]) -> float:
    """Geometric mean, over the sizes of both, of the seconds over the least ones."""
    ratios = [log(seconds / least[at]) for at, seconds in times.items() if at in least]
    return exp(fsum(ratios) / max(1, len(ratios)))
