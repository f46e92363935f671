"""What a table says of those that choose without it: prices, explorers, and the choice at run time.

A campaign runs on a table, too: the explorer proposes as ever, and what it would measure is looked up. So an explorer is judged by seeds and numbers of trials that nobody could measure one by one. It is `Campaign` itself
that runs, in a space from which all is left out that the table does not hold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum, inf

from offcut.errors import PartitionError, TargetError
from offcut.schedule import Schedule
from offcut.search import Expected, Outcome, Points, Price, Refitted, Sizes, Times
from offcut.search.explorers import explorer_named
from offcut.tuning.campaign import Campaign
from offcut.tuning.learning.corrected import Corrected
from offcut.tuning.oracle.table import Table, alone
from offcut.tuning.problem import Measured, Problem

Maker = Callable[[Problem], Price]
"""Makes a price of a problem that has learned nothing from it yet; what it draws, it draws from the problem's seed."""

DEFAULT = "the default"
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
    chosen = {SWEEP: table.best, DEFAULT: default}
    for name, make in prices.items():
        price = make(problem)
        if isinstance(price, Corrected) and not price.has_learned:
            continue
        chosen[name] = min(table.points, key=Expected(price, problem.weights))
    return tuple(
        Pick(who, one, table.regret(one), *table.of_oracle(table.seconds(one)))
        for who, one in chosen.items()
    )


def chosen_by(table: Table, default: Schedule) -> Chosen | None:
    """Return how well the default chooses among its ways; None where it has one, or not all of them were timed."""
    ways = [table.seconds(one) for one in alone(default)]
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
    space: Points,
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
    found = []
    for name, make in prices.items():
        for explorer in explorers:
            tell(f"{explorer}, {name}")
            problems = [replace(problem, seed=seed) for seed in seeds]
            given = explorer, trials, beyond
            made = [make(one) for one in problems]
            runs = [
                replayed(table, one, space, price, *given)
                for one, price in zip(problems, made, strict=True)
            ]
            if all(isinstance(price, Corrected) and not price.has_learned for price in made):
                continue  # the rows of the closed form say the same
            by_count = dict(zip(trials, zip(*runs, strict=True), strict=True))
            mean = {count: fsum(some) / len(some) for count, some in by_count.items()}
            worst = {count: max(some) for count, some in by_count.items()}
            found.append(Explored(explorer, name, mean, worst))
    return tuple(found)


def _dot(weights: Sequence[float], seconds: Sequence[float]) -> float:
    return fsum(weight * one for weight, one in zip(weights, seconds, strict=True))


def _finite(seconds: Sequence[float]) -> bool:
    return all(one < inf for one in seconds)


def replayed(
    table: Table,
    problem: Problem,
    space: Points,
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
    held = frozenset(table.points)
    within = _Within(price, held)
    if isinstance(price, Refitted):
        within = _Learning(price, held, price.refit)
    expected = Expected(within, problem.weights, beyond)
    searched = space.going_by(expected)
    named, made = explorer_named(explorer)
    campaign = Campaign(
        *(problem, searched, expected, made, named, None),
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


@dataclass(frozen=True, slots=True)
class _Within:
    """A price that refuses what a table does not hold."""

    price: Price
    held: frozenset[Schedule]

    def __call__(self, schedule: Schedule) -> Mapping[Sizes, float]:
        if schedule not in self.held:
            raise PartitionError("sweep", "cannot try this", because="it is not in the table")
        return self.price(schedule)


@dataclass(frozen=True, slots=True)
class _Learning(_Within):
    """Likewise, of one that learns."""

    learn: Callable[[Times], None]

    def refit(self, times: Times) -> None:
        """Hand over what was measured."""
        self.learn(times)
