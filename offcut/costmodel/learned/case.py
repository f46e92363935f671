"""A schedule at several vectors of sizes, in numbers: what features are functions of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from offcut.costmodel.machine import Machine
from offcut.costmodel.nests import NestCost
from offcut.describe.microkernel import Microkernel
from offcut.schedule import Schedule, Way

Values: TypeAlias = NDArray[Any]
"""A number for each vector of sizes."""


@dataclass(frozen=True)
class Ran:
    """A way of a nest, as calls run it.

    nest     its first stage
    way      the decisions
    around   loops that it shares with other nests
    taken    whether a call takes it, at each vector of sizes
    parts    what it consists of, in closed form: a packed copy first
    extents  of the nest's axes; none of a stage that the schedule adds
    """

    nest: str
    way: Way
    around: int
    taken: Values
    parts: tuple[NestCost, ...]
    extents: Mapping[str, Values]

    def total(self, of: Callable[[NestCost], Any]) -> Values:
        """The sum of what a function gives of each part; 0 where no call takes this way."""
        return np.where(self.taken, sum(of(part) for part in self.parts), 0.0)

    @cached_property
    def cycles(self) -> Values:
        """By the closed form."""
        return self.total(lambda part: part.cycles)


@dataclass(frozen=True)
class Case:
    """A schedule of a program on a machine, at each of `count` vectors of sizes.

    machine       that it is predicted for
    microkernels  that its tiles may name
    sizes         of the calls, by the program's names
    ways          of all nests, in order
    seconds       by the closed form
    threads       of a call, at most
    """

    schedule: Schedule
    machine: Machine
    microkernels: Mapping[str, Microkernel]
    sizes: Mapping[str, Values]
    ways: tuple[Ran, ...]
    seconds: Values
    threads: int = 1
    count: int = field(default=1)

    @cached_property
    def cycles(self) -> Values:
        """By the closed form, on one core."""
        return self.total(lambda part: part.cycles)

    @cached_property
    def flop(self) -> Values:
        """Operations on elements."""
        return self.total(lambda part: part.flop)

    def total(self, of: Callable[[NestCost], Any]) -> Values:
        """The sum over the ways that are taken of what a function gives of each of their parts, by level where it does."""
        return sum((way.total(of) for way in self.ways), np.zeros(self.count))

    def mean(self, values: Iterable[Values | float]) -> Values:
        """The mean of numbers, one for each of `ways` in order, by the share of the cycles."""
        pairs = zip(self.ways, values, strict=True)
        total = sum((way.cycles * value for way, value in pairs), np.zeros(self.count))
        found: Values = np.divide(
            total, self.cycles, out=np.zeros(self.count), where=self.cycles > 0
        )
        return found
