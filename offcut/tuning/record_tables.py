"""Records as tables to read, and as a curve: the best so far over the trials."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from offcut.core.text.tables import quantity
from offcut.errors import OffcutError
from offcut.experiment.plots import plot_lines
from offcut.search import Outcome, Records, Sizes, Trial, by_place, key_of, rank_trials
from offcut.search.trials import least_times, slowdown

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
