"""What explorers ask of a space of schedules: what is in it, what is near to what, and what is expected of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Protocol

from offcut.describe.computation import Computation
from offcut.schedule import Schedule


class Points(Protocol):
    """The schedules that there are of a program."""

    @property
    def first(self) -> Schedule:
        """The schedule that all others are derived from, the first of them."""

    @property
    def computation(self) -> Computation | None:
        """What nests of schedules are of; None where there are none."""

    @property
    def most(self) -> int:
        """Ways of a nest that may compete."""

    @property
    def expected(self) -> Callable[[Schedule], float]:
        """Predicted seconds of a call drawn from the distribution of sizes; infinite for what is not worth a trial."""

    @property
    def size(self) -> int:
        """How many points there are, at most."""

    def enumerate(self, limit: int | None = None) -> Iterator[Schedule]:
        """The points, `first` before all others; at most `limit` of them."""

    def neighbours(self, point: Schedule) -> tuple[Schedule, ...]:
        """The points that differ from `point` in one choice, in an order that depends on it alone.

        Raises DescribeError where it is no point of this space.
        """

    def step(self, point: Schedule, rng: Random) -> Schedule:
        """One of the neighbours of `point`; itself where it has none."""

    def sample(self, rng: Random) -> Schedule:
        """A point that is drawn."""

    def crossed(self, a: Schedule, b: Schedule, rng: Random) -> Schedule:
        """A point each choice of which is that of `a` or that of `b`."""

    def going_by(self, expected: Callable[[Schedule], float]) -> Points:
        """The same points, by other prices."""
