"""Every schedule of a space, in the order in which it lists them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from math import isfinite
from random import Random

from offcut.schedule import Schedule
from offcut.search.explorers.explorer import Seen
from offcut.search.points import Points


@dataclass(frozen=True, slots=True)
class Exhaustive:
    """All points that the price does not leave out: for small spaces."""

    def propose(
        self, space: Points, seen: Sequence[Seen], rng: Random, count: int
    ) -> Sequence[Schedule]:
        """The next ones."""
        tried = {one.schedule for one in seen}
        new = (s for s in space.enumerate() if s not in tried and isfinite(space.expected(s)))
        return tuple(islice(new, count))
