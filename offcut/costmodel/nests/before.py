"""What nests before a nest have left near: arrays that it touches need not come there again.

Between a nest and one before it, in one iteration of the loops that both are in, all that they and the nests between them touch
passes a level. Where that fits the level, an array that both touch is still there when the second one begins::

    comes(array, level) = 0  where some nest before touches the array, and footprints(from it up to this one) <= level
                          1  otherwise

Footprints are of whole nests, but for the loops in common, of which there is one iteration, or a block of them; an array that several
touch counts once, where it is largest. Tiles have no part in it, so it is the same for all ways of a nest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from offcut.costmodel.nests.calls import Array, Calls
from offcut.costmodel.nests.footprints import Access, Levels, accesses
from offcut.describe.computation import Computation, Stage

Before = tuple[tuple[str, tuple[tuple[str, int], ...]], ...]
"""Nests that run before another, in order: the first stage of each, and of the loops that both are in the axes and how many
iterations run at once.
"""


def coming(
    computation: Computation,
    group: Sequence[Stage],
    own: Sequence[Access],
    before: Before,
    levels: Levels,
    calls: Calls,
) -> Array | None:
    """Whether what the nest of `group` touches comes into a level: by access of `own`, level and call; None: all of it does.

    own  the accesses of the nest
    """
    groups = {one[0].buffer: one for one in computation.groups}
    comes = np.ones((len(own), len(levels.bytes), calls.count))
    for number in reversed(range(len(before))):
        stage, loops = before[number]
        between = [groups[name] for name, _ in before[number:]]
        fits = (
            _room([*between, group], computation, dict(loops), levels, calls) <= levels.bytes[:, 0]
        )
        fits[0] = False
        if not fits.any():
            break
        names = [axis for axis, _ in loops]
        touched = {one.array for one in accesses(computation, groups[stage], names, calls)}
        for place, access in enumerate(own):
            if access.array in touched:
                comes[place] *= ~fits
    return None if comes.all() else comes


def _room(
    groups: Iterable[Sequence[Stage]],
    computation: Computation,
    loops: Mapping[str, int],
    levels: Levels,
    calls: Calls,
) -> Array:
    """The room that all nests take in an iteration of loops, by level and call.

    loops  how many iterations run at once
    """
    largest: dict[str, Array] = {}
    for group in groups:
        axes = (axis for stage in group for axis in (*stage.axes, *stage.reduce_axes))
        lengths = {axis.name: calls.of(axis.extent)[None] for axis in axes}
        for name, count in loops.items():
            if name in lengths:
                lengths[name] = np.minimum(lengths[name], count)
        taken: dict[str, Array] = {}
        for access in accesses(computation, group, list(loops), calls):
            room = levels.touched(access, lengths)[1][:, 0]
            taken[access.array] = taken[access.array] + room if access.array in taken else room
        for name, room in taken.items():
            largest[name] = np.maximum(largest[name], room) if name in largest else room
    return sum(largest.values(), np.zeros((len(levels.bytes), calls.count)))
