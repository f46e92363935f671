"""What nests before a nest have left near: arrays that it touches need not come there again.

Between a nest and one before it, in one iteration of the loops that both are in, all that they and the nests between them touch
passes a level. Where that fits the level, an array that both touch is still there when the second one begins::

    comes(array, level) = 0  where some nest before touches the array, and footprints(from it up to this one) <= level
                          1  otherwise

Footprints are of whole nests, but for the loops in common, of which there is one iteration, or a block of them; an array that several
touch counts once, where it is largest. Tiles have no part in it, so it is the same for all ways of a nest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

import numpy as np

from offcut.costmodel.nests.calls import Array, Calls
from offcut.costmodel.nests.footprints import Access, Levels, accesses
from offcut.describe.computation import Computation, Stage

Loops = tuple[tuple[str, int], ...]
"""Shared loops, outermost first: the axis, and how many of its iterations each nest in them runs at once."""

Before = tuple[tuple[str, Loops], ...]
"""Nests that run before another, in order: the first stage of each, and the loops that both are in."""


@dataclass
class Coming:
    """What comes into levels of memory for the nests of one computation.

    known  of nests and the loops that they are in with others, what they touch: whole arrays in an iteration of those loops
    """

    computation: Computation
    levels: Levels
    calls: Calls
    known: dict[tuple[str, Loops], dict[str, Array]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.groups = {one[0].buffer: one for one in self.computation.groups}

    def of(self, group: Sequence[Stage], own: Sequence[Access], before: Before) -> Array | None:
        """Whether what the nest of `group` touches comes into a level: by access of `own`, level and call; None: all of it does.

        own  the accesses of the nest
        """
        comes = np.ones((len(own), len(self.levels.bytes), self.calls.count))
        for number in reversed(range(len(before))):
            _, loops = before[number]
            between = [self.touched(self.groups[name], loops) for name, _ in before[number:]]
            room = _together([*between, self.touched(group, loops)])
            fits = room <= self.levels.bytes[:, 0]
            fits[0] = False
            if not fits.any():
                break
            for place, access in enumerate(own):
                if access.array in between[0]:
                    comes[place] *= ~fits
        return None if comes.all() else comes

    def touched(self, group: Sequence[Stage], loops: Loops) -> dict[str, Array]:
        """The room that each array of a nest takes in an iteration of loops, by level and call."""
        key = group[0].buffer, loops
        if key not in self.known:
            self.known[key] = self.found(group, dict(loops))
        return self.known[key]

    def found(self, group: Sequence[Stage], loops: Mapping[str, int]) -> dict[str, Array]:
        """The same, of a nest that is new.

        loops  how many iterations run at once
        """
        axes = (axis for stage in group for axis in (*stage.axes, *stage.reduce_axes))
        lengths = {axis.name: self.calls.of(axis.extent)[None] for axis in axes}
        for name, count in loops.items():
            if name in lengths:
                lengths[name] = np.minimum(lengths[name], count)
        taken: dict[str, Array] = {}
        for access in accesses(self.computation, group, list(loops), self.calls):
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
