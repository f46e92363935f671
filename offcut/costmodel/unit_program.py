"""Programs of units in order: runs, each of one unit, and loops around them, for many programs of the same loops at once.

Numbers are arrays: one value for each of the programs, or one for all. A loop that holds one loop and nothing else may be one
with it (`fuse_loops`): its runs take the mean of what they took.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
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
    def filled(self) -> Iterator[Hashable]:
        """Yield the windows that runs in it fill."""
        for node in self.body:
            yield from node.filled if isinstance(node, Loop) else node.writes if node.fills else ()


Node: TypeAlias = Run | Loop


def fuse_loops(body: Sequence[Node]) -> tuple[Node, ...]:
    """Return a program in which loops that hold one loop and nothing else are one with it, of as many turns: all of them but
    the last take the mean of what they took.
    """
    nodes = list[Node]()
    for node in body:
        loops = []
        while isinstance(node, Loop):
            loops.append(node)
            if not (len(node.body) == 1 and isinstance(node.body[0], Loop)):
                break
            (node,) = node.body
        inner = node if isinstance(node, Run) else _as_one(loops)
        nodes.append(inner)
    return tuple(nodes)


def _as_one(loops: Sequence[Loop]) -> Loop:
    """Return loops, each around the next one alone, as one loop."""
    inner = fuse_loops(loops[-1].body)
    if len(loops) == 1:
        return replace(loops[0], body=inner)
    name = " ".join(loop.name for loop in loops)
    turns = reduce(np.multiply, (loop.turns for loop in loops))

    def mean(run: Run) -> Run:
        own = {loop.name for loop in loops}
        ends: Ends = frozenset(end for end in run.ends if end[0] not in own)
        known: dict[Ends, Work] = {}

        def total(around: Ends) -> Work:
            """Return what all turns take."""
            parts = [np.zeros(1)] * 3
            for combination in product(*(turns_by_end(loop, run.ends) for loop in loops)):
                often = reduce(np.multiply, (count for _, count in combination), np.ones(1))
                at = frozenset(end for end, _ in combination if end is not None)
                work = run.work(around | at)
                parts = [part + often * one for part, one in zip(parts, work, strict=True)]
            return Work(*parts)

        def by_ends(at: Ends) -> Work:
            if at not in known:
                around = at & ends
                last = run.work(around | {end for end in run.ends - ends if end[1] is End.LAST})
                if (name, End.LAST) in at:
                    known[at] = last
                else:
                    rest = zip(total(around), last, strict=True)
                    known[at] = Work(*((a - b) / np.maximum(turns - 1, 1) for a, b in rest))
            return known[at]

        return replace(run, work=by_ends, ends=ends | {(name, End.LAST)})

    def through(nodes: Sequence[Node]) -> tuple[Node, ...]:
        return tuple(
            mean(node) if isinstance(node, Run) else replace(node, body=through(node.body))
            for node in nodes
        )

    return Loop(name, turns, through(inner), any(loop.restarts for loop in loops))


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
