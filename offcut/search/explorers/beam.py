"""Beam search guided by the price, in passes from coarse to fine."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import isfinite
from random import Random

from offcut.partition import AxisCut
from offcut.schedule import Cut, Nest, Schedule, Separate, Step, Together, Way
from offcut.search.explorers.explorer import Judge, Seen
from offcut.search.points import Points

_FINEST = 3


@dataclass(frozen=True, slots=True)
class Beam:
    """From a few points on, the best of all their neighbours, again and again.

    A pass tells points apart by their *grain* alone, and keeps the best of each: at first by what covers a nest,
    what is packed and which loops are shared; then by strategies, too; then by tiles; at last by all. A pass goes on
    from what the last one kept, and takes no point whose coarser grain that has not seen among its best.

    width   points that go on
    rounds  of a pass, at most: it ends where the best stays

    Source: Adams et al., "Learning to Optimize Halide with Tree Search and Random Programs", SIGGRAPH 2019,
    section 3: there, decisions are taken stage by stage, and passes share the grains of the best schedule.
    """

    width: int = 8
    rounds: int = 4

    def propose(
        self, space: Points, seen: Sequence[Seen], rng: Random, count: int
    ) -> Sequence[Schedule]:
        """The best that the passes visit."""
        judge = Judge(space, seen)
        beam = judge.best(self.width)
        visited = list(beam)
        allowed: set[Hashable] | None = None
        for level in range(_FINEST + 1):
            kept = _best(beam, judge, level, self.width)
            for _ in range(self.rounds):
                near = [other for point in kept for other in space.neighbours(point)]
                fits = [o for o in near if allowed is None or grain(o, level - 1) in allowed]
                visited += fits
                before, kept = kept, _best([*kept, *fits], judge, level, self.width)
                if kept == before:
                    break
            beam, allowed = kept, {grain(point, level) for point in kept}
        return tuple(judge.to_try(visited, count))


def _best(points: Sequence[Schedule], judge: Judge, level: int, width: int) -> list[Schedule]:
    """The best point of each grain, the best of these first."""
    found: dict[Hashable, Schedule] = {}
    for point in sorted(dict.fromkeys(points), key=judge):
        if isfinite(judge(point)):
            found.setdefault(grain(point, level), point)
    return list(found.values())[:width]


def grain(schedule: Schedule, level: int) -> Hashable:
    """What a pass tells a schedule by: 0, covers, copies and shared loops; 1, strategies; 2, tiles; 3, all."""
    if level >= _FINEST:
        return schedule
    return tuple(_of_step(step, level) for step in schedule.steps)


def _of_step(step: Step, level: int) -> Hashable:
    match step:
        case Nest():
            return _of_nest(step, level)
        case Together(axes, parts):
            return axes, tuple(_of_step(part, level) for part in parts)
        case Cut(axis, tiles, strategy):
            return axis, (strategy,)[:level], tiles if level > 1 else ()
        case Separate():
            return step if level > 1 else None
        case _:
            return step


@lru_cache(1 << 16)
def _of_nest(nest: Nest, level: int) -> Hashable:
    """Of a nest, which most schedules of a search have in common with others."""
    return nest.stage, frozenset(_of_way(way, level) for way in nest.ways)


def _of_way(way: Way, level: int) -> Hashable:
    splits = tuple(_of_split(cut, level) for cut in way.splits)
    return way.cover, way.pack, splits


def _of_split(cut: AxisCut, level: int) -> Hashable:
    tiles = (cut.tile, cut.heights, cut.by_height) if level > 1 else ()
    return cut.axis, (cut.strategy,)[:level], tiles
