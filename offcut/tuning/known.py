"""What records know of the schedules of a problem."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import offcut
from offcut.errors import OffcutError
from offcut.schedule import Schedule
from offcut.search import Outcome, Record, Records, Trial
from offcut.tuning.pricing.predicting import key_of
from offcut.tuning.problem import Measured, Problem, Time


def trials_of(records: Records, problem: Problem) -> tuple[Trial, ...]:
    """Those of this program, machine and version."""
    return records.trials(problem.program, problem.machine, offcut.__version__)


def known(
    trials: Iterable[Trial], problem: Problem, counts: Callable[[Record], bool]
) -> dict[str, Measured]:
    """What became of schedules, by their texts, as far as records of the problem's seed say it at all of its sizes.

    counts  which records are asked
    """
    found: dict[str, Measured] = {}
    for trial in trials:
        kept = [r for r in trial.records if r.seed == problem.seed and counts(r)]
        made = _measured(trial.schedule, kept, problem)
        if made is not None:
            found[trial.schedule] = made
    return found


def _measured(text: str, records: Sequence[Record], problem: Problem) -> Measured | None:
    """What records say of a schedule; None where they do not say all."""
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
    wanted = [key_of(sizes) for sizes, _ in problem.sizes]
    if not all(key in times for key in wanted):
        return None
    return Measured(schedule, Outcome.OK, tuple(times[key] for key in wanted))
