"""The accesses to the elements of a memory, with which later accesses are compared.

A shadow holds the last write of each element, and the reads of each agent since. FastTrack (Flanagan and Freund, PLDI 2009)
compares accesses so; here an access is that of a tile, with a mask of elements.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from offcut.backends.executor.clocks import Component
from offcut.backends.executor.steps import Agent, Region, Step
from offcut.core.interpret.values import Array

Box: TypeAlias = tuple[slice, ...]


@dataclass(eq=False, slots=True)
class Access:
    """A step of an agent that accessed memory; it comes before whatever knows its counts.

    engine  of an asynchronous tile, the unit that tells its end; "" of all others
    """

    agent: Agent
    step: Step
    counts: tuple[tuple[Component, int], ...]
    engine: str = ""

    def __str__(self) -> str:
        return f"{self.step.head} on {self.agent}"


@dataclass(eq=False, slots=True)
class _Read:
    access: Access
    box: Box
    mask: Array


Check: TypeAlias = Callable[[Access, bool, tuple[int, ...], bool], None]
"""Called with an earlier access, whether it wrote, the coordinates of an element that both touch, and whether the later one writes."""


@dataclass(eq=False)
class Shadow:
    """The accesses to a region that later ones are compared with."""

    region: Region
    accesses: list[Access] = field(default_factory=list)
    reads: list[_Read] = field(default_factory=list)
    writers: Array | None = None

    def touch(self, access: Access, box: Box, mask: Array, writes: bool, check: Check) -> None:
        """Record that `access` touches elements of a box, by coordinates in the region; call `check` with each earlier access to them."""
        if self.writers is None:
            self.writers = np.zeros(self.region.shape, np.int32)
        ids = self.writers[box] if box else self.writers  # a view, also without axes
        for number in np.unique(ids[mask]):
            if number:
                where = mask & (ids == number)
                check(self.accesses[number - 1], True, _first(box, where), writes)
        if not writes:
            self.note_read(access, box, mask)
            return
        remaining = []
        for read in self.reads:
            common = _common(box, mask, read)
            if common is not None:
                if read.access is not access:
                    check(read.access, False, _first(read.box, common), True)
                read.mask = read.mask & ~common
            if read.mask.any():
                remaining.append(read)
        self.reads = remaining
        self.accesses.append(access)
        ids[mask] = len(self.accesses)

    def note_read(self, access: Access, box: Box, mask: Array) -> None:
        """Record a read, in place of an earlier one of the same elements by the same agent."""
        for read in self.reads:
            if (
                read.box == box
                and read.access.agent == access.agent
                and not read.access.engine
                and not access.engine
                and (mask | ~read.mask).all()
            ):
                read.access, read.mask = access, mask
                return
        self.reads.append(_Read(access, box, mask))


def _common(box: Box, mask: Array, read: _Read) -> Array | None:
    """Return the elements of a read that a box with a mask holds too, by the read's box; None if there are none."""
    starts = [max(a.start, b.start) for a, b in zip(box, read.box, strict=True)]
    stops = [min(a.stop, b.stop) for a, b in zip(box, read.box, strict=True)]
    if any(stop <= start for start, stop in zip(starts, stops, strict=True)):
        return None
    ends = list(zip(starts, stops, strict=True))
    own = tuple(slice(a - of.start, b - of.start) for (a, b), of in zip(ends, box, strict=True))
    its = tuple(
        slice(a - of.start, b - of.start) for (a, b), of in zip(ends, read.box, strict=True)
    )
    both = mask[own] & read.mask[its]
    if not both.any():
        return None
    common = np.zeros_like(read.mask)
    common[its] = both
    return common


def _first(box: Box, mask: Array) -> tuple[int, ...]:
    """Return the first element of a mask, by coordinates in the region."""
    offsets = np.argwhere(mask)[0] if mask.ndim else ()
    return tuple(int(of.start + offset) for of, offset in zip(box, offsets, strict=True))
