"""Every schedule of a space, or of a part of it, with what was measured of it: what oracles are read from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum, inf

import numpy as np

from offcut.core.memo import lazy_property
from offcut.schedule import Schedule
from offcut.search import Outcome, Sizes
from offcut.tuning.pricing.predicting import key_of
from offcut.tuning.problem import Measured


@dataclass(frozen=True)
class Table:
    """What was measured, by schedule.

    sizes     vectors of sizes, each with its share of the calls
    points    of the space that is searched
    measured  what became of each of them, and of others that take part: the default, its ways one by one

    The oracle over the sweep is the one schedule of `points` that takes the least expected seconds; that of a size is
    the least seconds that any of them takes there. Both are the least of many times that are known to their
    noise, so that they are somewhat too fast.
    """

    sizes: tuple[tuple[Mapping[str, int], float], ...]
    points: tuple[Schedule, ...]
    measured: Mapping[Schedule, Measured]

    def seconds(self, schedule: Schedule) -> tuple[float, ...]:
        """Of a call at each size; infinite where it failed, or was not measured."""
        found = self.measured.get(schedule)
        if found is None or found.outcome is not Outcome.OK:
            return (inf,) * len(self.sizes)
        return tuple(time.seconds for time in found.times)

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
    def keys(self) -> tuple[Sizes, ...]:
        """The sizes as prices have them."""
        return tuple(key_of(at) for at, _ in self.sizes)

    @property
    def spread(self) -> float:
        """The median, over all times, of the distance of the quartiles over the median."""
        found = [t.spread for s in self.sound for t in self.measured[s].times]
        return float(np.median(found)) if found else 0.0

    def _weighted(self, seconds: Sequence[float]) -> float:
        pairs = zip(self.sizes, seconds, strict=True)
        return fsum(weight * one for (_, weight), one in pairs)
