"""All that was measured of a schedule, which schedule of several is the fastest, and the verdict of a campaign: the schedule that its last
run found the best, beside the default there; looked up in what is recorded and in what is shipped.

A verdict is kept as records of two kinds, written as one: those whose explorer is `BEST` are of the schedule that
was chosen, those whose explorer is `DEFAULT` of the target's own, both with the seconds of the last run, in
which they took turns. No explorer can have such a name, since it is no identifier. Where the default itself was
chosen, both are of it.

A look-up never fails, never waits and writes nothing: what cannot be read gives no verdict, and a reason. Nothing
but the system's folder is asked where there is no file.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import exp, fsum, log
from pathlib import Path
from typing import TYPE_CHECKING

import offcut
from offcut.errors import OffcutError
from offcut.search.record import (
    Outcome,
    Record,
    Sizes,
    Source,
    digest_of,
    key_of,
    place_of,
    record_of,
    record_of_row,
)

if TYPE_CHECKING:
    from offcut.costmodel import Device

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
        return digest_of(self.schedule)

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
    return tuple(Trial(*key, tuple(times)) for key, times in grouped.items())


def by_place(records: Iterable[Record]) -> dict[tuple[str, str, str], tuple[Trial, ...]]:
    """Trials by program, machine and version, all in the order of their first records."""
    grouped: dict[tuple[str, str, str], list[Record]] = defaultdict(list)
    for record in records:
        grouped[record.program, record.machine, record.version].append(record)
    return {place: trials_of(group) for place, group in grouped.items()}


def least_times(trials: Iterable[Trial]) -> dict[Sizes, float]:
    """The least seconds, by sizes, of the trials that are ok."""
    least: dict[Sizes, float] = {}
    for trial in trials:
        for at, seconds in trial.times.items() if trial.ok else ():
            least[at] = min(seconds, least.get(at, seconds))
    return least


def rank_trials(trials: Sequence[Trial], sizes: Weighted = ()) -> list[Trial]:
    """The trials that are ok, the fastest first; of equal ones the last.

    sizes  those that count: trials that have them all are ranked by the sum of weight * seconds

    Where none are given, more sizes come before fewer, and of as many the least geometric mean, over the
    sizes, of the seconds over the least of any trial there.
    """
    sound = [trial for trial in reversed(trials) if trial.ok]
    if sizes:
        weights = [(key_of(at), weight) for at, weight in sizes]
        whole = [t for t in sound if all(at in t.times for at, _ in weights)]
        return sorted(whole, key=lambda t: fsum(weight * t.times[at] for at, weight in weights))
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
    return tuple(verdict for group in grouped.values() if (verdict := _verdict(group)) is not None)


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


SHIPPED = Path(offcut.__file__).with_name("records")
"""The folder of what was measured before: ``NAME-PLACE.jsonl``, where PLACE is what `machine_kind` gives."""

_PATIENCE = 0.1
"""Seconds that a look-up waits for a writer who has locked the whole file."""

_QUERY = (
    "SELECT * FROM record"
    " WHERE program = ? AND machine = ? AND explorer IN (?, ?) AND outcome = ? ORDER BY id"
)


@dataclass(frozen=True, slots=True)
class VerdictLookup:
    """What a look-up gives.

    verdict  None: there is none
    source   what it is from, as a plan says it
    because  why a file was left aside; "" where none was
    """

    verdict: Verdict | None = None
    source: str = ""
    because: str = ""


def recorded_verdict(file: Path, program: str, machine: str) -> VerdictLookup:
    """The last word of a file of records.

    program, machine  digests: `Program.digest`, `place_of`
    """
    import sqlite3  # takes longer to load than the rest of this file

    try:
        # a connection that may write takes away the log that it makes; one that may not leaves it behind
        address = f"{file.resolve().as_uri()}?mode=rw"
        connection = sqlite3.connect(address, timeout=_PATIENCE, uri=True)
        try:
            parameters = program, machine, BEST, DEFAULT, Outcome.OK.value
            connection.row_factory = sqlite3.Row
            rows = connection.execute(_QUERY, parameters).fetchall()
        finally:
            connection.close()
        records = [record_of_row(dict(row)) for row in rows]
    except (sqlite3.Error, OSError, OffcutError, ValueError, TypeError) as error:
        reason = error.because if isinstance(error, OffcutError) else str(error)
        return VerdictLookup(because=f"{file.name} cannot be used: {reason}")
    return _lookup(records, file.name)


def shipped_verdict(program: str, place: str) -> VerdictLookup:
    """The last word of what is shipped.

    place   what `machine_kind` gives
    """
    records: list[Record] = []
    try:
        for file in sorted(SHIPPED.glob(f"*-{place}.jsonl")):
            with file.open(encoding="utf-8") as lines:
                records += _read_records(lines, program)
    except (OSError, ValueError) as error:
        return VerdictLookup(because=f"shipped records cannot be used: {error}")
    return _lookup(records, "shipped records")


def machine_kind(target: str, machine: Device, threads: int, *facts: object) -> str:
    """What shipped records call the place: the target, and of a processor what a schedule is made for, which is its
    instructions and the caches that a core has for itself; not its clock, its cores, or what was measured of it.
    """
    from offcut.costmodel import Machine  # takes longer to load than the rest of this file

    if not isinstance(machine, Machine):
        return place_of(target, machine, threads, *facts)
    own = tuple((memory.name, memory.bytes) for memory in machine.memory[:2])
    return digest_of(target, machine.architecture, sorted(machine.features), own, threads, *facts)


def _lookup(records: Sequence[Record], source: str) -> VerdictLookup:
    """Return the last verdict of versions that plan as this one does, or the reason why one of another version is not taken."""
    alike = (one for one in records if has_same_planner(one.version, offcut.__version__))
    verdict = latest_verdict(verdicts_of(alike))
    if verdict is not None or not records:
        return VerdictLookup(verdict, source)
    versions = ", ".join(sorted({one.version for one in records}))
    return VerdictLookup(
        because=f"{source} has a verdict of offcut {versions}, which is not taken: this is "
        f"{offcut.__version__}, and schedules may plan otherwise; tune again"
    )


def _read_records(lines: Iterator[str], program: str) -> Iterator[Record]:
    """The records of a program, others not taken apart."""
    for line in lines:
        if program in line:
            data = json.loads(line)
            if data.get("explorer") in (BEST, DEFAULT) and data.get("program") == program:
                yield record_of(data)
