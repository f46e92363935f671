"""The schedules of a table measured, each once: what records know is taken from there, so that a run that was killed goes
on where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from offcut.errors import PartitionError
from offcut.schedule import Schedule
from offcut.search import Price, Records
from offcut.tuning.campaign import LAST_RUN
from offcut.tuning.drift import Anchor
from offcut.tuning.known import known, trials_of
from offcut.tuning.measuring.simulated import Measure
from offcut.tuning.pricing.predicting import key_of
from offcut.tuning.problem import Measured, Problem

NAME = "oracle"
"""What records call the explorer."""


def filled(
    problem: Problem,
    schedules: Iterable[Schedule],
    records: Records,
    price: Price,
    measure: Measure,
    tell: Callable[[int], None] = lambda done: None,
) -> Mapping[Schedule, Measured]:
    """What became of each schedule.

    schedules  the default first, by which times of several batches are scaled
    price      of what is recorded beside a time
    tell       how many are done
    """
    wanted = tuple(dict.fromkeys(schedules))
    trials = trials_of(records, problem)
    there = known(trials, problem, lambda record: record.explorer not in LAST_RUN)
    default = (trial for trial in trials if wanted and trial.schedule == str(wanted[0]))
    anchor = Anchor.of(record for trial in default for record in trial.records)
    found = {one: there[text] for one in wanted if (text := str(one)) in there}
    tell(len(found))

    kept = False

    def keep(measured: Measured) -> None:
        nonlocal kept
        one = replace(
            anchor.scaled(measured), reference=()
        )  # whoever reads a table scales nothing again
        if not kept:
            records.keep(problem.origins)
            kept = True
        records.add(one.records(problem, NAME, _predicted(problem, price, one.schedule)))
        found[one.schedule] = one
        tell(len(found))

    left = [one for one in wanted if one not in found]
    if left:
        measure(left, keep)
    return found


def _predicted(problem: Problem, price: Price, schedule: Schedule) -> Sequence[float | None]:
    try:
        guesses = price(schedule)
    except PartitionError:
        return ()
    return [guesses.get(key_of(sizes)) or None for sizes, _ in problem.sizes]
