"""`offcut sweep --oracle`: the exhaustive space of a small problem, and everybody's regret against it.

Each schedule of a table is measured once: what records know is taken from there, so that a run that was killed goes on
where it was. A campaign runs on a table, too: the explorer proposes as ever, and what it would measure is looked up. So an explorer is judged
by seeds and numbers of trials that nobody could measure one by one. It is `Campaign` itself that runs, in a space from which all is left
out that the table does not hold.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from math import fsum, inf
from typing import Any

from offcut.backends.decide import proved_plan
from offcut.backends.options import check_result
from offcut.backends.target import Target
from offcut.core.program import Program
from offcut.errors import DescribeError, TargetError
from offcut.pipeline import target as target_named
from offcut.schedule import Schedule
from offcut.search import ExpectedCost, Outcome, Price, Records, RefittablePrice, ScheduleSpace
from offcut.search.explorers import EXPLORERS, get_explorer
from offcut.search.prices import seconds_by_sizes
from offcut.tuning.campaign import LAST_RUN, Campaign
from offcut.tuning.exhaustive.space_table import (
    LIMIT,
    Subspace,
    Table,
    single_variant_schedules,
    subspace_of,
)
from offcut.tuning.learning.online_model import LEARNED, OnlineModel, get_cost
from offcut.tuning.measuring.candidate import measuring
from offcut.tuning.problem import DEFAULT, Limits, Measure, Measured, Problem, make_problem
from offcut.tuning.recorded_trials import TrialLog
from offcut.tuning.schedule_prices import ClosedForm

Maker = Callable[[Problem], Price]
"""Makes a price of a problem that has learned nothing from it yet; what it draws, it draws from the problem's seed."""

POLICY = "the default"
SWEEP = "the sweep's oracle"


@dataclass(frozen=True, slots=True)
class Pick:
    """One schedule for all sizes, chosen without a measurement.

    who     chose it: the target's policy, a price; or for comparison the oracle over the sweep
    regret  against the oracle over the sweep
    whole   share of the speed of the oracle of each size, over the distribution
    worst   likewise, at the size where it is the least
    """

    who: str
    schedule: Schedule
    regret: float
    whole: float
    worst: float


@dataclass(frozen=True, slots=True)
class Explored:
    """Regret of the best that an explorer has tried, over several seeds.

    mean, worst  by the number of trials
    """

    explorer: str
    price: str
    mean: Mapping[int, float]
    worst: Mapping[int, float]


@dataclass(frozen=True, slots=True)
class Chosen:
    """The default, whose ways compete at run time, against what always takes the fastest way.

    ways          that a call can take
    whole, worst  share of the speed of the fastest of them at each size: over the distribution, and the least
    """

    ways: int
    whole: float
    worst: float


def picks_of(
    table: Table, problem: Problem, default: Schedule, prices: Mapping[str, Maker]
) -> tuple[Pick, ...]:
    """Return the oracle over the sweep, the default, then the point that each price finds the best of the table.

    A price that corrects the closed form by what was learned has no pick if nothing was learned.
    """
    schedules = {SWEEP: table.best, POLICY: default}
    for name, make in prices.items():
        price = make(problem)
        if isinstance(price, OnlineModel) and not price.has_learned:
            continue
        schedules[name] = min(table.points, key=ExpectedCost(price, problem.weights))
    return tuple(
        Pick(who, one, table.regret(one), *table.of_oracle(table.seconds(one)))
        for who, one in schedules.items()
    )


def chosen_by(table: Table, default: Schedule) -> Chosen | None:
    """Return how well the default chooses among its ways; None where it has one, or not all of them were timed."""
    ways = [table.seconds(one) for one in single_variant_schedules(default)]
    least = tuple(map(min, zip(*ways, strict=True)))
    here = table.seconds(default)
    if len(ways) < 2 or not all(map(_finite, (*ways, here))):
        return None
    weights = [weight for _, weight in table.sizes]
    whole = _dot(weights, least) / _dot(weights, here)
    return Chosen(len(ways), whole, min(a / b for a, b in zip(least, here, strict=True)))


def explored_by(
    table: Table,
    problem: Problem,
    space: ScheduleSpace,
    prices: Mapping[str, Maker],
    explorers: Sequence[str],
    trials: Sequence[int],
    seeds: Sequence[int],
    beyond: float,
    tell: Callable[[str], None] = lambda said: None,
) -> tuple[Explored, ...]:
    """What each explorer finds by each price after so many trials, replayed for each seed.

    prices  each campaign makes its own, which may learn from its trials
    beyond  times the least predicted seconds, past which a schedule is not worth a trial
    tell    who is next
    """
    outcomes = []
    for name, make in prices.items():
        for explorer in explorers:
            tell(f"{explorer}, {name}")
            problems = [replace(problem, seed=seed) for seed in seeds]
            arguments = explorer, trials, beyond
            prices_of_maker = [make(one) for one in problems]
            runs = [
                replay_campaign(table, one, space, price, *arguments)
                for one, price in zip(problems, prices_of_maker, strict=True)
            ]
            if all(
                isinstance(price, OnlineModel) and not price.has_learned
                for price in prices_of_maker
            ):
                continue  # the rows of the closed form say the same
            by_count = dict(zip(trials, zip(*runs, strict=True), strict=True))
            mean = {count: fsum(some) / len(some) for count, some in by_count.items()}
            worst = {count: max(some) for count, some in by_count.items()}
            outcomes.append(Explored(explorer, name, mean, worst))
    return tuple(outcomes)


def _dot(weights: Sequence[float], seconds: Sequence[float]) -> float:
    return fsum(weight * one for weight, one in zip(weights, seconds, strict=True))


def _finite(seconds: Sequence[float]) -> bool:
    return all(one < inf for one in seconds)


def replay_campaign(
    table: Table,
    problem: Problem,
    space: ScheduleSpace,
    price: Price,
    explorer: str,
    trials: Sequence[int],
    beyond: float,
) -> tuple[float, ...]:
    """Return the regret of the best that was tried after each of so many trials; infinite where none was timed.

    problem  its seed is that of the explorer
    price    that the explorer goes by; it may learn from the trials
    trials   ascending
    beyond   times the least predicted seconds, past which a schedule is not worth a trial
    """
    expected = ExpectedCost(price, problem.weights, beyond, within=frozenset(table.points))
    searched = space.going_by(expected)
    name, search = get_explorer(explorer)
    campaign = Campaign(
        *(problem, searched, expected, search, name, None),
        *(_looked_up(table), trials[-1]),
    )
    try:
        campaign.best()
    except TargetError:
        if any(one.outcome is Outcome.OK for one in campaign.tried):
            raise
    seconds = [one.seconds(problem) for one in campaign.tried]
    least = table.expected(table.best)
    return tuple(min(seconds[:count], default=inf) / least - 1 for count in trials)


def _looked_up(
    table: Table,
) -> Callable[[Sequence[Schedule], Callable[[Measured], None]], None]:
    def measure(schedules: Sequence[Schedule], tell: Callable[[Measured], None]) -> None:
        for schedule in schedules:
            absent = Measured(schedule, Outcome.REFUSED, (), "it is not in the table")
            tell(table.measured.get(schedule, absent))

    return measure


TRIALS = (16, 32, 64, 128)
SEEDS = 5
Tell = Callable[[str, int, int], None]
"""What is being done, how many of it are done, and how many there are."""


@dataclass(frozen=True)
class Findings:
    """What is known of a space that was measured whole.

    subspace  whose schedules were measured
    table     of its schedules
    default   the target's own schedule, which may have several ways
    picks     made without a measurement
    explored  by explorers, replayed
    chosen    at run time, by the default; None: it has one way
    learns    whether a price that learns was asked; it has a row only where it learned something
    """

    name: str
    subspace: Subspace
    table: Table
    default: Schedule
    picks: tuple[Pick, ...]
    explored: tuple[Explored, ...]
    chosen: Chosen | None
    learns: bool = False


def measure_space(
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
    for name, value in (("limit", limit), ("most", most), ("ways", ways), ("seeds", seeds)):
        if value is not None and value < 1:
            raise DescribeError(
                "sweep", f"cannot take {name}={value}", because=f"{name} is at least 1"
            )
    own_target = target if isinstance(target, Target) else target_named(target)
    options = check_result(own_target, "options", own_target.options("sweep", threads=threads))
    problem = make_problem("sweep", program, None, constants, sizes, own_target, options, seed)
    default = proved_plan(own_target, problem.request, options)
    whole = own_target.space(default, problem.request, options, ways)
    space = whole.narrow(ways) if whole.narrow else whole
    prices = makers_of(problem, space)
    price = next(iter(prices.values()))(problem)
    expected = ExpectedCost(price, problem.weights)
    part = subspace_of(space, expected, limit, most, seed)
    schedules = dict.fromkeys((whole.first, *single_variant_schedules(whole.first), *part.points))
    store = records if isinstance(records, Records) else Records(records)
    with ExitStack() as stack:
        measured = fill_table(
            *(problem, schedules, store, price, measuring(problem, limits, stack).each),
            lambda done: tell("measured", done, len(schedules)),
        )
    table = Table(problem.sizes, part.points, measured)
    if not table.sound:
        last = measured[part.points[-1]]
        raise TargetError(
            "sweep",
            f"cannot measure a schedule of {whole.first.name}",
            because=f"the last of {len(measured)} is {last.outcome.value}: {last.because}",
        )
    all_seeds = range(seed, seed + seeds)
    replays, done = len(explorers) * len(prices), count()
    return Findings(
        *(whole.first.name, part, table, whole.first),
        picks_of(table, problem, whole.first, prices),
        explored_by(
            *(table, problem, space, prices, explorers, trials, all_seeds, limits.hopeless),
            lambda said: tell(f"replayed {said}", next(done), replays),
        ),
        chosen_by(table, whole.first),
        learns=LEARNED in prices,
    )


def makers_of(problem: Problem, space: ScheduleSpace) -> dict[str, Maker]:
    """Whatever predicts seconds, by the names that tables have for it; the first is what narrows a space."""
    closed = ClosedForm(problem, space.computation)

    def learned(problem: Problem) -> Price:
        return get_cost(problem, space.computation, space.first, LEARNED)

    makers: dict[str, Maker] = {"closed form": lambda problem: closed}
    return (
        {**makers, "learned": learned} if isinstance(learned(problem), RefittablePrice) else makers
    )


NAME = "oracle"
"""What records call the explorer."""


def fill_table(
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
    distinct, done = tuple(dict.fromkeys(schedules)), count(1)
    results = TrialLog(records, problem, distinct[0]).complete(
        distinct,
        measure,
        NAME,
        partial(seconds_by_sizes, price),
        lambda _: tell(next(done)),
        lambda record: record.explorer not in LAST_RUN,
    )
    # whoever reads a table scales nothing again
    return {schedule: replace(one, reference=()) for schedule, one in results.items()}
