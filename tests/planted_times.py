"""Records whose times are made up: the closed form, times a factor that it does not know."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from random import Random

import offcut as oc
from offcut import PartitionError, Record, Records, Schedule
from tests import spaces
from tests.facade import Cases, Measured, Problem, Time, nests_in, parts_of

SIZES = tuple(({"n": n}, 0.25) for n in (1, 16, 33, 64))


def factor(schedule: Schedule) -> float:
    """Measured over predicted: what is cut by a mask is slow, and so are low tiles and deep loops."""
    found = 1.3
    for nest in nests_in(parts_of(schedule)):
        for way in nest.ways:
            found *= 1.2 ** len(way.loops)
            for cut in way.splits:
                rows = way.cover is not None and cut.axis == way.cover.rows
                found *= 1.6 if rows and cut.tile < 8 else 1.0
                found *= 2.0 if cut.strategy.name == "mask" else 1.0
    return found


@cache
def cases(name: str, machine: str = "cascade-lake", seed: int = 0) -> Cases:
    """Of a program of `spaces`, for a machine that is described."""
    request, options, target = spaces.problem(name, machine)
    computation = spaces.space(name, 3, machine).computation
    assert computation is not None
    return Cases(Problem(request, options, target, SIZES, seed), computation)


def seconds(of: Cases, schedule: Schedule) -> list[float]:
    """What the schedule would take, at each vector of sizes."""
    return [factor(schedule) * float(one) for one in of(schedule).seconds]


def drawn(name: str, count: int, machine: str = "cascade-lake") -> Sequence[Schedule]:
    """Schedules of a space, each once."""
    space, rng = spaces.space(name, 3, machine), Random(5)
    found: dict[Schedule, None] = {space.first: None}
    while len(found) < count:
        point = space.sample(rng)
        try:
            cases(name, machine)(point)
        except PartitionError:
            continue
        found[point] = None
    return tuple(found)


def records(name: str, count: int, machine: str = "cascade-lake") -> list[Record]:
    """Of so many schedules, at all sizes."""
    of = cases(name, machine)
    made: list[Record] = []
    for schedule in drawn(name, count, machine):
        times = tuple(
            Time(at, one, 0.01) for (at, _), one in zip(SIZES, seconds(of, schedule), strict=True)
        )
        made += Measured(schedule, oc.Outcome.OK, times).records(of.problem, "planted")
    return made


def keep(file: Records, name: str, count: int, machine: str = "cascade-lake") -> None:
    """Write records, and what their digests stand for."""
    file.add(records(name, count, machine))
    file.keep(cases(name, machine).problem.origins)
