"""The decisions of a schedule from coarse to fine: what covers a nest, by which strategies, in which tiles."""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache

from offcut.partition import AxisCut
from offcut.schedule import Nest, Schedule, Separate, Split, Staging, Step, Together, Way, parts_of

FINEST = 3
"""The level at which different schedules have different keys."""


def grain(schedule: Schedule, level: int) -> Hashable:
    """Return a key of the decisions down to a level; schedules that differ only in finer decisions have equal keys.

    level  0: covers, copies and shared loops; 1: strategies, too; 2: tiles, too; 3: all
    """
    if level >= FINEST:
        return schedule
    parts = parts_of(schedule)
    if not parts:
        return tuple(_of_step(step, level) for step in schedule.steps)
    nests = tuple(_of_part(part, level) for part in parts)
    return nests, tuple(step for step in schedule.steps if isinstance(step, Staging))


def _of_part(part: Nest | Together, level: int) -> Hashable:
    if isinstance(part, Nest):
        return _of_nest(part, level)
    return part.axes, tuple(_of_part(inner, level) for inner in part.parts)


def _of_step(step: Step, level: int) -> Hashable:
    match step:
        case Split(stage, axis, levels):
            tiles = tuple(one.tile for one in levels) if level > 1 else ()
            return stage, axis, (levels[-1].tail,)[:level], tiles
        case Separate():
            return step if level > 1 else None
        case _:
            return step


@lru_cache(1 << 16)
def _of_nest(nest: Nest, level: int) -> Hashable:
    """Return the key of a nest; cached, since most schedules of a search share nests."""
    return nest.stage, frozenset(_of_way(way, level) for way in nest.ways)


def _of_way(way: Way, level: int) -> Hashable:
    splits = tuple(_of_split(cut, level) for cut in way.splits)
    return way.cover, way.pack, splits


def _of_split(cut: AxisCut, level: int) -> Hashable:
    tiles = (cut.tile, cut.heights, cut.by_height) if level > 1 else ()
    return cut.axis, (cut.strategy,)[:level], tiles
