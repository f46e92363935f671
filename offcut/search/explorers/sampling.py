"""Points drawn at random: what every other explorer is measured against."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from random import Random

from offcut.schedule import Schedule
from offcut.search.explorers.explorer import Seen
from offcut.search.points import Points


@dataclass(frozen=True, slots=True)
class Sampling:
    """Points that the price does not leave out, each choice drawn alike.

    draws  for each schedule that is asked for, at most: a small space is exhausted some day
    """

    draws: int = 64

    def propose(
        self, space: Points, seen: Sequence[Seen], rng: Random, count: int
    ) -> Sequence[Schedule]:
        """As many as are new."""
        tried = {one.schedule for one in seen}
        found: dict[Schedule, None] = {}
        for _ in range(self.draws * count):
            if len(found) == count:
                break
            point = space.sample(rng)
            if point not in tried and isfinite(space.expected(point)):
                found[point] = None
        return tuple(found)
