"""Which part of a space is measured whole: all of it, where it is small, else what a user says."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isfinite
from random import Random

from offcut.errors import DescribeError
from offcut.schedule import Schedule, parts_of
from offcut.search import Expected, Points, Space
from offcut.search.shared import nests_in
from offcut.tuning.alternatives import with_ways

LIMIT = 2_000
"""Schedules that are measured, at most, where nothing is said."""

PRICED = 20_000
"""Schedules that are priced to find those that are predicted best, at most; of more, so many are drawn."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a space.

    points  its schedules
    size    how many the space has
    said    which part it is, in words
    """

    points: tuple[Schedule, ...]
    size: int
    said: str


def narrowed(space: Points, ways: int) -> Points:
    """A space in which no nest has more than `ways`: it begins with the first ones of each."""
    if not isinstance(space, Space):
        return space
    first = space.first
    for nest in nests_in(parts_of(first)):
        first = with_ways(first, nest.stage, lambda made: made[:ways])
    return replace(space, first=first, most=ways)


def part_of(space: Points, expected: Expected, limit: int, most: int | None, seed: int) -> Part:
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
        return Part(tuple(dict.fromkeys(space.enumerate())), size, "all that there are")
    said = f"those predicted best of {size:,}"
    found = dict.fromkeys(space.enumerate(PRICED))
    if size > PRICED:
        rng = Random(f"{seed}:oracle")
        found = dict.fromkeys(space.sample(rng) for _ in range(PRICED))
        said = f"those predicted best of {PRICED:,} that are drawn of {size:,}"
    legal = [one for one in found if one != space.first and isfinite(expected(one))]
    return Part((space.first, *sorted(legal, key=expected)[: most - 1]), size, said)


def alone(schedule: Schedule) -> tuple[Schedule, ...]:
    """What a schedule would be whose nests have one of their ways each: every choice that a call of it can take."""
    found = [schedule]
    for nest in nests_in(parts_of(schedule)):
        found = [
            with_ways(one, nest.stage, lambda _, way=way: (way,))  # type: ignore[misc]
            for one in found
            for way in nest.ways
        ]
    return tuple(found)
