"""Records whose times are made up: the closed form, times a factor that it does not know."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from random import Random

import numpy as np
import numpy.typing as npt

import offcut as oc
from offcut import PartitionError, Record, Records, Schedule
from tests import spaces
from tests.facade import Case, Cases, Measured, Problem, Time

SIZES = tuple(({"n": n}, 0.25) for n in (1, 16, 33, 64))


def factor(case: Case) -> npt.NDArray[np.float64]:
    """Measured over predicted, at each vector of sizes: partial tiles are slow, and so is what issues much."""
    tails = case.tails / case.cycles
    issue = case.resources["issue"].sum(axis=0) / case.cycles
    return 1.3 * (1 + 3 * tails) * np.where(issue > 0.4, 2.0, 1.0)


@cache
def cases(name: str, machine: str = "cascade-lake", seed: int = 0) -> Cases:
    """Of a program of `spaces`, for a machine that is described."""
    request, options, target = spaces.problem(name, machine)
    computation = spaces.space(name, 3, machine).computation
    assert computation is not None
    return Cases(Problem(request, options, target, SIZES, seed), computation)


def seconds(of: Cases, schedule: Schedule) -> list[float]:
    """What the schedule would take, at each vector of sizes."""
    case = of(schedule)
    return [float(one) for one in factor(case) * case.seconds]


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
