"""The decisions of a schedule from coarse to fine: what covers a nest, by which strategies, in which tiles."""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache

from offcut.schedule import Bind, Choose, Order, Schedule, Separate, Split, Step

FINEST = 3
"""The level at which different schedules have different keys."""


def coarse_key(schedule: Schedule, level: int) -> Hashable:
    """Return a key of the decisions down to a level; schedules that differ only in finer decisions have equal keys.

    level  0: covers, copies and shared loops; 1: strategies, too; 2: tiles, too; 3: all
    """
    if level >= FINEST:
        return schedule
    keys = (_of_step(step, level) for step in schedule.steps)
    return tuple(key for key in keys if key is not None)


@lru_cache(1 << 16)
def _of_step(step: Step, level: int) -> Hashable:
    """Return the key of a decision, None if it is a finer one; cached, since most schedules of a search share decisions."""
    match step:
        case Split(stage, axis, levels):
            tiles = tuple((one.tile, one.heights, one.classes) for one in levels)
            return stage, axis, (levels[-1].tail,)[:level], tiles if level > 1 else ()
        case Choose(options):
            return frozenset(tuple(_of_step(own, level) for own in one.steps) for one in options)
        case Separate():
            return step if level > 1 else None
        case Bind() | Order():
            return None
        case _:
            return step
