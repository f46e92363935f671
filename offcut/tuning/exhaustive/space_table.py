"""Every schedule of a space, or of the part of it that a user says, with what was measured of it: what oracles are read from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum, inf, isfinite
from random import Random

import numpy as np

from offcut.core.memo import lazy_property
from offcut.core.names import RenamedAttribute
from offcut.errors import DescribeError
from offcut.schedule import Schedule, nests_in, parts_of, with_variants
from offcut.search import ExpectedCost, Outcome, ScheduleSpace
from offcut.tuning.problem import Measured


@dataclass(frozen=True)
class Table:
    """What was measured, by schedule.

    sizes     vectors of sizes, each with its share of the calls
    points    of the space that is searched
    measured  what became of each of them, and of others that take part: the default, its variants one by one

    The oracle over the sweep is the one schedule of `points` that takes the least expected seconds; that of a size is
    the least seconds that any of them takes there. Both are the least of many times that are known to their
    noise, so that they are somewhat too fast.
    """

    sizes: tuple[tuple[Mapping[str, int], float], ...]
    points: tuple[Schedule, ...]
    measured: Mapping[Schedule, Measured]

    def seconds(self, schedule: Schedule) -> tuple[float, ...]:
        """Of a call at each size; infinite where it failed, or was not measured."""
        result = self.measured.get(schedule)
        if result is None or result.outcome is not Outcome.OK:
            return (inf,) * len(self.sizes)
        return tuple(time.seconds for time in result.times)

    def expected(self, schedule: Schedule) -> float:
        """Sum of weight * seconds over the sizes."""
        return self._weighted(self.seconds(schedule))

    @lazy_property
    def sound(self) -> tuple[Schedule, ...]:
        """The points that were timed."""
        return tuple(one for one in self.points if self.measured[one].outcome is Outcome.OK)

    @lazy_property
    def best(self) -> Schedule:
        """The oracle over the sweep."""
        return min(self.sound, key=self.expected)

    @lazy_property
    def least(self) -> tuple[float, ...]:
        """Seconds of the oracle of each size."""
        return tuple(map(min, zip(*map(self.seconds, self.sound), strict=True)))

    def regret(self, schedule: Schedule) -> float:
        """``expected(schedule) / expected(best) - 1``."""
        return self.expected(schedule) / self.expected(self.best) - 1

    def of_oracle(self, seconds: Sequence[float]) -> tuple[float, float]:
        """What share of the speed of the oracle of each size these seconds have: of the whole distribution, and where it
        is the least.
        """
        whole = self._weighted(self.least) / self._weighted(seconds)
        return whole, min(a / b for a, b in zip(self.least, seconds, strict=True))

    @property
    def spread(self) -> float:
        """The median, over all times, of the distance of the quartiles over the median."""
        spreads = [t.spread for s in self.sound for t in self.measured[s].times]
        return float(np.median(spreads)) if spreads else 0.0

    def _weighted(self, seconds: Sequence[float]) -> float:
        pairs = zip(self.sizes, seconds, strict=True)
        return fsum(weight * one for (_, weight), one in pairs)


LIMIT = 2_000
"""Schedules that are measured, at most, where nothing is said."""

PRICED = 20_000
"""Schedules that are priced to find those that are predicted best, at most; of more, so many are drawn."""


@dataclass(frozen=True, slots=True)
class Subspace:
    """A part of a space.

    points       its schedules
    size         how many the space has
    description  which part it is, in words
    """

    points: tuple[Schedule, ...]
    size: int
    description: str

    said = RenamedAttribute("description")


def subspace_of(
    space: ScheduleSpace, expected: ExpectedCost, limit: int, most: int | None, seed: int
) -> Subspace:
    """The schedules to measure.

    limit  schedules of a space that is taken whole, at most
    most   so many are taken that are predicted best; None: all
    seed   of what is drawn, where there are too many to price

    Raises DescribeError where the space is larger than `limit`, and nothing says which part of it is meant.
    """
    size = space.size
    if most is None and size > limit:
        raise DescribeError(
            "sweep",
            f"cannot measure every schedule of {space.first.name}",
            because=f"its space has {size:,}, and {limit:,} is the most",
            help=(
                f"--limit {size} measures them all",
                f"--most {limit} takes those that are predicted best",
                *(("--ways 1 leaves one way to each nest",) if space.most > 1 else ()),
            ),
        )
    if most is None or size <= most:
        return Subspace(tuple(dict.fromkeys(space.enumerate())), size, "all that there are")
    description = f"those predicted best of {size:,}"
    points = dict.fromkeys(space.enumerate(PRICED))
    if size > PRICED:
        rng = Random(f"{seed}:oracle")
        points = dict.fromkeys(space.sample(rng) for _ in range(PRICED))
        description = f"those predicted best of {PRICED:,} that are drawn of {size:,}"
    legal = [one for one in points if one != space.first and isfinite(expected(one))]
    return Subspace((space.first, *sorted(legal, key=expected)[: most - 1]), size, description)


def single_variant_schedules(schedule: Schedule) -> tuple[Schedule, ...]:
    """What a schedule would be whose nests have one of their variants each: every choice that a call of it can take."""
    schedules = [schedule]
    for nest in nests_in(parts_of(schedule)):
        schedules = [
            with_variants(one, nest.stage, lambda _, variant=variant: (variant,))  # type: ignore[misc]
            for one in schedules
            for variant in nest.variants
        ]
    return tuple(schedules)
