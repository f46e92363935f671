"""`offcut sweep --oracle`: the exhaustive space of a small problem, and everybody's regret against it.

Each schedule of a table is measured once: what records know is taken from there, so that a run that was killed goes on
where it was.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from offcut.backends.checked_results import check_result
from offcut.backends.decide import proved_plan
from offcut.backends.target import Target
from offcut.core.program import Program
from offcut.errors import DescribeError, PartitionError, TargetError
from offcut.pipeline import target as target_named
from offcut.schedule import Schedule
from offcut.search import Expected, Points, Price, Records, Refitted, Sizes
from offcut.search.explorers import EXPLORERS
from offcut.tuning.campaign import LAST_RUN
from offcut.tuning.measuring.candidate import Measure, measuring
from offcut.tuning.oracle.findings import (
    Chosen,
    Explored,
    Maker,
    Pick,
    chosen_by,
    explored_by,
    picks_of,
)
from offcut.tuning.oracle.table import LIMIT, Part, Table, alone, narrowed, part_of
from offcut.tuning.pricing.predicting import price_of
from offcut.tuning.pricing.prices import LEARNED, price_named
from offcut.tuning.problem import DEFAULT, Limits, Measured, Problem, make_problem
from offcut.tuning.recorded_trials import TrialLog

TRIALS = (16, 32, 64, 128)
SEEDS = 5
Tell = Callable[[str, int, int], None]
"""What is being done, how many of it are done, and how many there are."""


@dataclass(frozen=True)
class Findings:
    """What is known of a space that was measured whole.

    part      of the space
    table     of its schedules
    default   the target's own schedule, which may have several ways
    picks     made without a measurement
    explored  by explorers, replayed
    chosen    at run time, by the default; None: it has one way
    learns    whether a price that learns was asked; it has a row only where it learned something
    """

    name: str
    part: Part
    table: Table
    default: Schedule
    picks: tuple[Pick, ...]
    explored: tuple[Explored, ...]
    chosen: Chosen | None
    learns: bool = False


def oracle(
    program: Program,
    constants: Sequence[str] | Mapping[str, Any] = (),
    sizes: Mapping[str, Any] | None = None,
    *,
    limit: int = LIMIT,
    most: int | None = None,
    ways: int = 1,
    records: str | os.PathLike[str] | Records | None = None,
    seed: int = 0,
    seeds: int = SEEDS,
    explorers: Sequence[str] = tuple(EXPLORERS),
    trials: Sequence[int] = TRIALS,
    target: str | Target = "cpu",
    threads: int | None = None,
    limits: Limits = DEFAULT,
    tell: Tell = lambda what, done, count: None,
) -> Findings:
    """Measure the space of a program whole, and replay on it whoever searches it.

    Begun again, it takes from `records` what they know.

    constants, sizes, records, target, threads, limits  as `tune` takes them
    limit      schedules of a space that is taken whole, at most
    most       so many of them, those that are predicted best; None: all
    ways       that a nest of a schedule may have, at most
    seed       of arrays, and the first of the explorers'
    seeds      that explorers run with
    trials     after which regret is told, ascending

    Raises DescribeError for a space that is too large, TargetError where nothing can be measured.
    """
    for name, given in (("limit", limit), ("most", most), ("ways", ways), ("seeds", seeds)):
        if given is not None and given < 1:
            raise DescribeError(
                "sweep", f"cannot take {name}={given}", because=f"{name} is at least 1"
            )
    chosen = target if isinstance(target, Target) else target_named(target)
    options = check_result(chosen, "options", chosen.options("sweep", threads=threads))
    problem = make_problem("sweep", program, None, constants, sizes, chosen, options, seed)
    default = proved_plan(chosen, problem.request, options)
    whole = chosen.space(default, problem.request, options, ways)
    space = narrowed(whole, ways)
    prices = makers_of(problem, space)
    price = next(iter(prices.values()))(problem)
    expected = Expected(price, problem.weights)
    part = part_of(space, expected, limit, most, seed)
    wanted = dict.fromkeys((whole.first, *alone(whole.first), *part.points))
    kept = records if isinstance(records, Records) else Records(records)
    with ExitStack() as stack:
        measured = filled(
            *(problem, wanted, kept, price, measuring(problem, limits, stack).each),
            lambda done: tell("measured", done, len(wanted)),
        )
    table = Table(problem.sizes, part.points, measured)
    if not table.sound:
        last = measured[part.points[-1]]
        raise TargetError(
            "sweep",
            f"cannot measure a schedule of {whole.first.name}",
            because=f"the last of {len(measured)} is {last.outcome.value}: {last.because}",
        )
    drawn = range(seed, seed + seeds)
    replays, done = len(explorers) * len(prices), count()
    return Findings(
        *(whole.first.name, part, table, whole.first),
        picks_of(table, problem, whole.first, prices),
        explored_by(
            *(table, problem, space, prices, explorers, trials, drawn, limits.hopeless),
            lambda said: tell(f"replayed {said}", next(done), replays),
        ),
        chosen_by(table, whole.first),
        learns=LEARNED in prices,
    )


def makers_of(problem: Problem, space: Points) -> dict[str, Maker]:
    """Whatever predicts seconds, by the names that tables have for it; the first is what narrows a space."""
    closed = _remembered(price_of(problem, space.computation, None))

    def learned(problem: Problem) -> Price:
        return price_named(problem, space.computation, space.first, LEARNED)

    made: dict[str, Maker] = {"closed form": lambda problem: closed}
    return {**made, "learned": learned} if isinstance(learned(problem), Refitted) else made


def _remembered(price: Price) -> Price:
    """Return a price that is asked once of each schedule; a refusal is remembered, too."""
    known: dict[Schedule, Mapping[Sizes, float] | PartitionError] = {}

    def asked(schedule: Schedule) -> Mapping[Sizes, float]:
        if schedule not in known:
            try:
                known[schedule] = price(schedule)
            except PartitionError as refused:
                known[schedule] = refused
        found = known[schedule]
        if isinstance(found, PartitionError):
            raise found
        return found

    return asked


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
    log = TrialLog(records, problem, wanted[0])
    there = log.outcomes(lambda record: record.explorer not in LAST_RUN)
    found = {one: there[text] for one in wanted if (text := str(one)) in there}
    tell(len(found))

    def keep(measured: Measured) -> None:
        # whoever reads a table scales nothing again
        one = replace(log.reference.scaled(measured), reference=())
        log.add(one, NAME, _predicted(price, one.schedule))
        found[one.schedule] = one
        tell(len(found))

    left = [one for one in wanted if one not in found]
    if left:
        measure(left, keep)
    return found


def _predicted(price: Price, schedule: Schedule) -> Mapping[Sizes, float]:
    try:
        return price(schedule)
    except PartitionError:
        return {}
