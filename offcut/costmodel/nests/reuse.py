"""Reuse between nests that share loops: an array that an earlier nest has just touched may still lie in a cache when a later one asks for it.

Softmax, say, computes exp of a row and then divides it by its sum, row by row: the division finds its row where exp has put it. Between
the two, in one iteration of the shared loops, a cache takes up all that both of them, and the nests between them, touch. Where that fits, what both
touch has not been displaced::

    is fetched(array, level) = 0  where an earlier nest touches it, and the footprints from that nest up to this one fit the level
                               1  otherwise

A footprint is that of a whole nest, in one iteration of the loops in common, or in a block of them; an array that several nests touch counts
once, where it is largest. Tiles have no part in it, so it is the same for all ways of a nest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from offcut.core.memo import lazy_property, memoize_method
from offcut.costmodel.nests.calls import Array, Calls
from offcut.costmodel.nests.footprints import Access, Levels, accesses
from offcut.describe.computation import Computation, Stage

Loops = tuple[tuple[str, int], ...]
"""Shared loops, outermost first: the axis, and how many of its iterations each nest in them runs at once."""

Earlier = tuple[tuple[str, Loops], ...]
"""Nests that run before another, in order: the first stage of each, and the loops that both are in."""


@dataclass(frozen=True)
class Reuse:
    """Between the nests of one computation."""

    computation: Computation
    levels: Levels
    calls: Calls

    @lazy_property
    def groups(self) -> dict[str, tuple[Stage, ...]]:
        """The stages of each nest, by the first of them."""
        return {one[0].buffer: one for one in self.computation.groups}

    def fetched(
        self, group: tuple[Stage, ...], own: Sequence[Access], earlier: Earlier
    ) -> Array | None:
        """Whether each access of the nest of `group` brings what it touches into a level, 1 or 0: by access, level and call;
        None: all of them do.

        own  the accesses of the nest
        """
        found = np.ones((len(own), len(self.levels.bytes), self.calls.count))
        for number in reversed(range(len(earlier))):
            _, loops = earlier[number]
            between = [self.footprints(self.groups[name], loops) for name, _ in earlier[number:]]
            room = _together([*between, self.footprints(group, loops)])
            fits = room <= self.levels.bytes[:, 0]
            fits[0] = False
            if not fits.any():
                break
            for place, access in enumerate(own):
                if access.array in between[0]:
                    found[place] *= ~fits
        return None if found.all() else found

    @memoize_method
    def footprints(self, group: tuple[Stage, ...], loops: Loops) -> dict[str, Array]:
        """The room that each array takes that a nest touches in an iteration of these loops, by level and call."""
        at_once = dict(loops)
        axes = (axis for stage in group for axis in (*stage.axes, *stage.reduce_axes))
        lengths = {axis.name: self.calls.of(axis.extent)[None] for axis in axes}
        for name, count in at_once.items():
            if name in lengths:
                lengths[name] = np.minimum(lengths[name], count)
        taken: dict[str, Array] = {}
        for access in accesses(self.computation, group, list(at_once), self.calls):
            room = self.levels.touched(access, lengths)[1][:, 0]
            taken[access.array] = taken[access.array] + room if access.array in taken else room
        return taken


def _together(nests: Sequence[Mapping[str, Array]]) -> Array:
    """The room that nests take, by level and call: each array once, where it is largest."""
    largest: dict[str, Array] = {}
    for taken in nests:
        for name, room in taken.items():
            largest[name] = np.maximum(largest[name], room) if name in largest else room
    return reduce(np.add, largest.values())
