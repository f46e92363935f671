"""Programs of units in order: runs, each of one unit, and loops around them, for many programs of the same loops at once.

Numbers are arrays: one value for each of the programs, or one for all.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import reduce
from itertools import product
from typing import NamedTuple, TypeAlias

import numpy as np

from offcut.costmodel.arrays import Array


class Work(NamedTuple):
    """What a run takes: cycles without the bus and with it, and the instructions that these are of, equal ones."""

    own: Array
    bus: Array
    instructions: Array


class End(StrEnum):
    """An end of a loop."""

    FIRST = "first"
    LAST = "last"


Ends: TypeAlias = frozenset[tuple[str, End]]
"""The loops that are in their first turn, or in their last one."""


@dataclass(frozen=True, slots=True)
class Run:
    """Work of one unit.

    work    by the loops that are at their ends
    ends    those ends at which it takes something else
    reads, writes  windows
    fills   whether it begins to use the next slot of the windows that it writes
    """

    unit: str
    work: Callable[[Ends], Work]
    reads: tuple[Hashable, ...] = ()
    writes: tuple[Hashable, ...] = ()
    fills: bool = False
    ends: Ends = frozenset()


@dataclass(frozen=True, slots=True)
class Loop:
    """Turns, one after the other.

    turns    how many, by program: at least 1
    restarts whether each run of the loop begins with the first slot of the windows that it fills, as where no text says how
             many turns there are; else slots go on from one run to the next
    """

    name: str
    turns: Array
    body: tuple[Node, ...]
    restarts: bool = False

    @property
    def windows_filled_inside(self) -> Iterator[Hashable]:
        """Yield the windows that runs in it fill."""
        for node in self.body:
            yield from (
                node.windows_filled_inside
                if isinstance(node, Loop)
                else node.writes
                if node.fills
                else ()
            )


Node: TypeAlias = Run | Loop


def mean_work(run: Run, loops: Sequence[Loop]) -> Work:
    """Return what a run takes in the mean of all turns of the loops around it."""
    total = [np.zeros(1)] * 3
    for turns in product(*(turns_by_end(loop, run.ends) for loop in loops)):
        often = reduce(np.multiply, (count for _, count in turns), np.ones(1))
        work = run.work(frozenset(end for end, _ in turns if end is not None))
        total = [part + often * one for part, one in zip(total, work, strict=True)]
    instances = reduce(np.multiply, (loop.turns for loop in loops), np.ones(1))
    return Work(*(part / instances for part in total))


def turns_by_end(loop: Loop, ends: Ends) -> list[tuple[tuple[str, End] | None, Array]]:
    """Return how many turns of a loop are at each of its ends, and at none of them."""
    last, first = ((loop.name, end) for end in (End.LAST, End.FIRST))
    parts: list[tuple[tuple[str, End] | None, Array]] = []
    rest = loop.turns
    for end in (last, first):
        if end in ends:
            count = np.minimum(rest, 1)
            parts.append((end, count))
            rest = rest - count
    return [*parts, (None, rest)]
