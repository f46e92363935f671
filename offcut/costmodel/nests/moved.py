"""Bytes that fill each level of memory while a nest runs, in numbers: the recursion of `offcut.costmodel.closed.traffic`.

From the tile outwards, with F the bytes that are touched and C those of a level:

    M(tile) = F(tile)
    M(loop) = F(loop)                                              where F(loop) <= C
            = sum over arrays of min(trips * F(body), F(loop))     where F(body) <= C, an array that stays once
            = trips * M(body)                                      otherwise

An array that an earlier nest has left in a level is not fetched again (`Reuse`).

A loop of tiles of several heights is looked at as one of tiles of their mean height. F is found of all loops at once, and kept
by what it depends on: most ways of a nest touch most arrays as others do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce

import numpy as np

from offcut.costmodel.nests.calls import Array
from offcut.costmodel.nests.footprints import Access, Lengths, Levels


@dataclass(frozen=True, slots=True)
class Trips:
    """A loop: an axis that it moves along, how often it runs, and the iterations of the axis that all of it covers."""

    axis: str
    count: Array
    whole: Array


@dataclass
class Moved:
    """Of the accesses of a nest.

    ways  how often the bytes that an access touches pass: once that are read, once that are written
    """

    accesses: Sequence[Access]
    levels: Levels
    known: dict[tuple[int, bytes], tuple[Array, Array]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        cached = self.levels.cached
        self.ways = [(one.read | cached).astype(float) + one.written for one in self.accesses]
        self.names = [tuple(sorted(one.names)) for one in self.accesses]

    def of(self, loops: Sequence[Trips], tile: Lengths, fetched: Array | None = None) -> Array:
        """Bytes into each level, by level and call.

        loops  around the tile, outermost first
        tile   iterations of each axis inside of it
        fetched  whether an access brings what it touches into a level, 1 or 0, by access, level and call; None: all do
        """
        inward = loops[::-1]
        lengths = {name: _grown(name, length, inward) for name, length in tile.items()}
        found = [self.touched(number, lengths) for number in range(len(self.accesses))]
        if not found:
            return np.zeros((len(self.levels.bytes), 1))
        each = np.stack([size for size, _ in found])
        if fetched is not None:
            each = each * fetched[:, :, None]
        room = reduce(np.add, (taken for _, taken in found))
        total: Array = each[:, :, 0].sum(axis=0)
        if not loops:
            return total
        entire = each.sum(axis=0)
        count = np.stack([loop.count for loop in inward])
        some = np.minimum(count, 1)
        moving = np.array([[loop.axis in names for loop in inward] for names in self.names])
        body, whole = each[:, :, :-1], each[:, :, 1:]
        once = np.where(moving[:, None, :, None], np.minimum(count * body, whole), body)
        near = some * once.sum(axis=0)
        all_of = some * entire[:, 1:]
        fits, stays = room[:, 1:] <= self.levels.bytes, room[:, :-1] <= self.levels.bytes
        for place in range(len(inward)):
            again = np.where(stays[:, place], near[:, place], count[place] * total)
            total = np.where(fits[:, place], all_of[:, place], again)
        return total

    def touched(self, number: int, lengths: Lengths) -> tuple[Array, Array]:
        """Bytes that pass for an access, of the tile and of each loop around it; the room that they take."""
        names = self.names[number]
        key = number, b"".join(lengths[name].tobytes() for name in names if name in lengths)
        if key not in self.known:
            size, room = self.levels.touched(self.accesses[number], lengths)
            self.known[key] = size * self.ways[number], room
        return self.known[key]


def _grown(name: str, length: Array, inward: Sequence[Trips]) -> Array:
    """The iterations of an axis in the tile and in each loop around it."""
    found = [length]
    for loop in inward:
        found.append(loop.whole if loop.axis == name else found[-1])
    return np.stack(found)
