"""Bytes that fill each level of memory while a nest runs, in numbers: the recursion of `offcut.costmodel.closed.traffic`.

From the tile outwards, with F the bytes that are touched and C those of a level:

    M(tile) = F(tile)
    M(loop) = F(loop)                                              where F(loop) <= C
            = sum over arrays of min(trips * F(body), F(loop))     where F(body) <= C, an array that stays once
            = trips * M(body)                                      otherwise

A loop of tiles of several heights is looked at as one of tiles of their mean height.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from offcut.costmodel.nests.calls import Array
from offcut.costmodel.nests.footprints import Access, Lengths, Levels


@dataclass(frozen=True, slots=True)
class Trips:
    """A loop: an axis that it moves along, how often it runs, and the iterations of the axis that all of it covers."""

    axis: str
    count: Array
    whole: Array


def moved(found: Sequence[Access], loops: Sequence[Trips], tile: Lengths, levels: Levels) -> Array:
    """Bytes into each level, by level and call.

    loops  around the tile, outermost first
    tile   iterations of each axis inside of it
    """
    lengths = dict(tile)
    touched = [levels.touched(one, lengths) for one in found]
    ways = [(one.read | (levels.line > 1)).astype(float) + one.written for one in found]
    each = [size * way for (size, _), way in zip(touched, ways, strict=True)]
    room = sum((size for _, size in touched), start=np.zeros_like(levels.bytes))
    total = sum(each, start=np.zeros_like(levels.bytes))
    for loop in reversed(loops):
        lengths[loop.axis] = loop.whole
        moving = [loop.axis in one.names for one in found]
        whole = [
            levels.touched(one, lengths) if moves else old
            for one, moves, old in zip(found, moving, touched, strict=True)
        ]
        all_of = [size * way for (size, _), way in zip(whole, ways, strict=True)]
        near = sum(
            (
                np.minimum(loop.count * part, entire) if moves else part
                for part, entire, moves in zip(each, all_of, moving, strict=True)
            ),
            start=np.zeros_like(total),
        )
        entire_room = sum((size for _, size in whole), start=np.zeros_like(room))
        some = np.minimum(loop.count, 1)
        fits, stays = entire_room <= levels.bytes, room <= levels.bytes
        total = np.where(
            fits,
            some * sum(all_of, start=np.zeros_like(total)),
            np.where(stays, some * near, loop.count * total),
        )
        touched, each, room = whole, all_of, entire_room
    return total
