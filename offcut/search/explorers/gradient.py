"""Gradient descent on the predicted cost, with tile sizes relaxed to real numbers.

The numbers in a schedule's text (tiles, heights, groups, depths) are its coordinates, in doublings; all other words are its
structure. The logarithm of the price is taken as a smooth function of the coordinates: its gradient at a schedule is the
least-squares solution of the differences to those neighbours that differ in coordinates alone. A step leads along it to a
point between schedules, which is rounded to the schedule that is nearest to it, neighbour by neighbour. Where no such step
lowers the price, the best neighbour is taken, which may have another structure; where none is better, the descent ends.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import isfinite
from random import Random

import numpy as np
from numpy.typing import NDArray

from offcut.schedule import Schedule
from offcut.search.explorers.explorer import Judge, Schedules, Trials
from offcut.search.schedule_space import ScheduleSpace

Vector = NDArray[np.float64]

STEPS = (4.0, 2.0, 1.0)
"""Lengths of a step that are tried, in doublings of the coordinate that the price depends on most."""

_NUMBER = re.compile(r"(?<!\w)\d+(?!\w)")


@dataclass(frozen=True, slots=True)
class Gradient:
    """Gradient descents: half start at the best measured schedules, the others at random ones.

    descents  number of descents; steps: maximum length of each

    Source: Zhao et al., "Felix: Optimizing tensor programs with gradient descent", ASPLOS 2024. There, a program of
    symbolic tiles is differentiated; here, differences of legal schedules stand for that, so that any price will do.
    """

    descents: int = 4
    steps: int = 8

    def propose(self, space: ScheduleSpace, trials: Trials, rng: Random, count: int) -> Schedules:
        """Return the schedules of the lowest predicted cost among those visited."""
        judge = Judge(space, trials)
        starts = judge.best(self.descents // 2)
        starts += [space.sample(rng) for _ in range(self.descents - len(starts))]
        visited = list(starts)
        for point in starts:
            for _ in range(self.steps):
                near = space.neighbours(point)
                lower = _descent_step(space, judge, point, near)
                visited += [*near, lower]
                if lower == point:
                    break
                point = lower
        return tuple(judge.to_try(visited, count))


def _descent_step(
    space: ScheduleSpace, judge: Judge, point: Schedule, near: Sequence[Schedule]
) -> Schedule:
    """Return a schedule of a lower price: along the gradient, else the best neighbour, else `point`."""
    slope = gradient(judge, point, near)
    largest = float(np.abs(slope).max(initial=0.0))
    for length in STEPS if largest > 0 else ():
        goal = coordinates(point)[1] - length / largest * slope
        other = round_to(space, point, goal)
        if judge(other) < judge(point):
            return other
    return min((point, *near), key=judge)


def gradient(judge: Judge, point: Schedule, near: Sequence[Schedule]) -> Vector:
    """Return the gradient of log(price) in doublings of each coordinate; 0 for coordinates that no neighbour changes."""
    structure, origin = coordinates(point)
    price = judge(point)
    moves, changes = list[Vector](), list[float]()
    for other in near:
        other_structure, position = coordinates(other)
        if other_structure == structure and isfinite(price) and 0 < judge(other) < np.inf:
            moves.append(position - origin)
            changes.append(float(np.log(judge(other) / price)))
    if not moves:
        return np.zeros_like(origin)
    solution: Vector = np.linalg.lstsq(np.array(moves), np.array(changes), rcond=None)[0]
    return solution


def round_to(space: ScheduleSpace, point: Schedule, goal: Vector) -> Schedule:
    """Return the schedule of the structure of `point` that lies nearest to `goal`, as neighbours lead to it."""
    structure, origin = coordinates(point)
    distance = float(np.linalg.norm(origin - goal))
    while True:
        nearest = point
        for other in space.neighbours(point):
            other_structure, position = coordinates(other)
            if (
                other_structure == structure
                and (other_distance := float(np.linalg.norm(position - goal))) < distance
            ):
                nearest, distance = other, other_distance
        if nearest == point:
            return point
        point = nearest


@lru_cache(1 << 14)
def coordinates(schedule: Schedule) -> tuple[str, Vector]:
    """Return the text of a schedule without numbers, and log2 of its numbers; lines of `option`, which repeat tiles, are skipped."""
    lines = (line for line in str(schedule).splitlines() if line.split()[0] != "option")
    text = "\n".join(lines)
    numbers = [max(int(number), 1) for number in _NUMBER.findall(text)]
    return _NUMBER.sub("#", text), np.log2(np.array(numbers, np.float64))
