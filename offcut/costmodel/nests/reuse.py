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

from offcut.core import index as ix
from offcut.core.memo import lazy_property, memoize_method
from offcut.core.program import For, Program, Stmt
from offcut.costmodel.arrays import Array, Calls
from offcut.costmodel.closed.counting import footprints
from offcut.costmodel.nests.parametric import Loops, emit_windows
from offcut.costmodel.resources import Hardware
from offcut.describe.computation import Computation, Stage
from offcut.describe.source import instance

Earlier = tuple[tuple[str, Loops], ...]
"""Nests that run before another, in order: the first stage of each, and the loops that both are in."""


@dataclass(frozen=True)
class Reuse:
    """Between the nests of one computation."""

    computation: Computation
    hardware: Hardware
    calls: Calls

    @lazy_property
    def groups(self) -> dict[str, tuple[Stage, ...]]:
        """The stages of each nest, by the first of them."""
        return {one[0].buffer: one for one in self.computation.groups}

    @memoize_method
    def fetch_flags(
        self, group: tuple[Stage, ...], arrays: tuple[str, ...], earlier: Earlier
    ) -> Array:
        """Whether the nest of `group` brings an array into a level, 1 or 0: by array, level and call."""
        sizes = np.array([[level.bytes] for level in self.hardware.levels])
        is_fetched = np.ones((len(arrays), len(sizes), self.calls.count))
        for number in reversed(range(len(earlier))):
            _, loops = earlier[number]
            between = [self.footprints(self.groups[name], loops) for name, _ in earlier[number:]]
            fits = _together([*between, self.footprints(group, loops)]) <= sizes
            fits[0] = False
            if not fits.any():
                break
            for place, array in enumerate(arrays):
                if array.partition("#")[0] in between[0]:
                    is_fetched[place] *= ~fits
        return is_fetched

    @memoize_method
    def footprints(self, group: tuple[Stage, ...], loops: Loops) -> dict[str, Array]:
        """The room that each array takes that a nest touches in an iteration of these loops, by level and call."""
        at_once = dict(loops)
        body: tuple[Stmt, ...] = instance(group)
        for axis in reversed(group[0].axes):
            count = axis.extent
            if axis.name in at_once:
                count = ix.minimum(count, at_once[axis.name])
            body = (For(axis.name, ix.const(0), count, body),)
        windows = {name: (ix.const(0), ix.const(count)) for name, count in loops}
        body = emit_windows(self.computation, group, windows, body)
        computation = self.computation
        program = Program(
            computation.name, computation.sizes, computation.assumptions, computation.buffers, body
        )
        sizes_by_array: dict[str, Array] = {}
        for array, room in footprints(program, self.hardware).items():
            name, each = array.partition("#")[0], np.array([self.calls.of(one) for one in room])
            sizes_by_array[name] = sizes_by_array[name] + each if name in sizes_by_array else each
        return sizes_by_array


def _together(nests: Sequence[Mapping[str, Array]]) -> Array:
    """The room that nests take, by level and call: each array once, where it is largest."""
    largest: dict[str, Array] = {}
    for footprint in nests:
        for name, room in footprint.items():
            largest[name] = np.maximum(largest[name], room) if name in largest else room
    return reduce(np.add, largest.values())
