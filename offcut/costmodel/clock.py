"""The clock: how long a program of units takes, from what it takes of each resource and from what waits for what.

A *run* takes cycles of one unit, and some of them of a bus that units share. A block is its runs and loops, each as soon as its
units are free, what it reads is written, and what it writes over has been read; a loop of N turns goes on at a rate::

    L(loop) = max(L(turn) + (N - 1) * rate, N * bus)
    rate    = max(what a turn takes of each unit,
                  by window of d slots, the time from its fill to its last read, over d)
    rate and bus each with unhidden * min(busiest unit, bus) on top

so a loop whose windows take turns (depth 2 and more) goes on at the rate of its busiest unit or of the bus, and one with a
single window waits for all of a turn. For the loop around it, it is one run that takes each of its units for all its turns, as a
unit that waits in a loop does nothing else; waits that d slots hide are left out. Runs take the mean of what they take in all
their turns, as borders and tails of tiles take more and less. Units that look far ahead, those of a processor, wait for
nothing: L is what the busiest of them takes (`stage_formula`).

Numbers are arrays: one value for each of many programs of the same loops, as search ranks them. What ranks
first is then followed turn by turn, with a bus that serves who asks first (`event_simulation.walk`).

Source: F. Baccelli, G. Cohen, G. J. Olsder, J.-P. Quadrat, *Synchronization and Linearity*, Wiley 1992: the rate is the largest
mean of a cycle of waits.

Programs of units in order: runs, each of one unit, and loops around them, for many programs of the same loops at once.

Numbers are arrays: one value for each of the programs, or one for all.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import reduce
from itertools import product
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from offcut.core.expr import Binary, Expr, real
from offcut.costmodel.arrays import Array
from offcut.costmodel.resources import BUS, MachineResources


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


T = TypeVar("T")

BUSY_UNITS, NEAR_RESOURCES = 2, 4
"""Of the resources of a processor: those that compute and issue; these, and the two nearest memories."""


def stage_formula(resources: Mapping[str, Expr], loss: float) -> Expr:
    """Return the cycles of a stage of a processor, as an expression."""

    def most(a: Expr, b: Expr) -> Expr:
        return Binary("max", a, b)

    def unhidden(total: Expr, busy: Expr, far: Expr) -> Expr:
        return Binary("+", total, Binary("*", real(loss), Binary("min", busy, far)))

    return _busiest(tuple(resources.values()), loss, most, unhidden)


def stage_arrays(resources: Sequence[Any] | Array, loss: float) -> Any:
    """Return the same of numbers, or of arrays, by call."""

    def unhidden(total: Any, busy: Any, far: Any) -> Any:
        return total + loss * np.minimum(busy, far)

    return _busiest(tuple(resources), loss, np.maximum, unhidden)


def _busiest(
    resources: Sequence[T], loss: float, most: Callable[[T, T], T], unhidden: Callable[[T, T, T], T]
) -> T:
    """Return the cycles of the resource that takes longest, and what it does not hide of the others.

    resources  cycles of each: computing, issuing, memories from the nearest on; of another machine, any
    loss       of the shorter of computing and of moving from far memories, the share that is not hidden
    unhidden   of three numbers a, b, c, ``a + loss * min(b, c)``
    """
    total = reduce(most, resources)
    far = resources[NEAR_RESOURCES:]
    if not loss or not far:
        return total
    return unhidden(total, reduce(most, resources[:BUSY_UNITS]), reduce(most, far))


def estimate_cycles(
    body: Sequence[Node], depths: Mapping[Hashable, int], resources: MachineResources
) -> Array:
    """Estimate the cycles of programs of the same loops: one value for each, or one for all.

    depths  slots of each window, which its fills take in turn
    """
    whole = _Recursion(depths, resources).block(body, ())
    return reduce(np.maximum, (whole.length, *whole.busy.values()))


@dataclass(slots=True)
class _Piece:
    """A run, a block, or a loop with all its turns.

    length        cycles from its begin to its end
    busy          cycles for which it takes each unit, waits in its loops included, and the bus
    instructions  by unit
    held          by window that it fills, the cycles from the fill to the last read
    rates         cycles from one instance of it to the next, at least
    """

    length: Array
    busy: dict[str, Array]
    instructions: dict[str, Array]
    reads: set[Hashable] = field(default_factory=set)
    writes: set[Hashable] = field(default_factory=set)
    held: dict[Hashable, Array] = field(default_factory=dict)
    rates: list[Array] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Recursion:
    depths: Mapping[Hashable, int]
    resources: MachineResources

    def run(self, run: Run, loops: Sequence[Loop]) -> _Piece:
        """Return a run, as it is in the mean of all its turns."""
        own, bus, instructions = mean_work(run, loops)
        length = own + bus
        held = dict.fromkeys(run.writes, length) if run.fills else {}
        return _Piece(
            length=length,
            busy={run.unit: length, BUS: bus},
            instructions={run.unit: instructions},
            reads=set(run.reads),
            writes=set(run.writes),
            held=held,
        )

    def block(self, body: Sequence[Node], loops: tuple[Loop, ...]) -> _Piece:
        """Return a body in its loops: each node begins when its units are free, what it reads is written, and what it writes over
        has been read.
        """
        whole = _Piece(np.zeros(1), {}, {})
        began: dict[str, Array] = {}
        free: dict[str, Array] = {}
        written: dict[Hashable, Array] = {}
        touched: dict[Hashable, Array] = {}
        filled: dict[Hashable, Array] = {}
        # by window, the units that run before it is written
        chains: dict[Hashable, frozenset[str]] = {}
        for node in body:
            one = self.run(node, loops) if isinstance(node, Run) else self.loop(node, loops)
            waits = (
                *(free[unit] for unit in one.instructions if unit in free),
                *(written[window] for window in one.reads if window in written),
                *(touched[window] for window in one.writes if window in touched),
            )
            begin = reduce(np.maximum, waits, np.zeros(1))
            end = begin + one.length
            began = dict.fromkeys(one.instructions, begin) | began
            free |= dict.fromkeys(one.instructions, end)
            written |= dict.fromkeys(one.writes, end)
            touched |= dict.fromkeys(one.reads | one.writes, end)
            filled = dict.fromkeys(one.held, begin) | filled
            own = frozenset(one.instructions)
            before = [chains[window] for window in one.reads if window in chains]
            if isinstance(node, Run) and any(own < units for units in before):
                whole.rates.append(end - began[node.unit])  # others wait for it, and it for them
            chains |= dict.fromkeys(one.writes, own.union(*before))
            whole.length = np.maximum(whole.length, end)
            _add(whole.busy, one.busy)
            _add(whole.instructions, one.instructions)
            whole.reads |= one.reads
            whole.writes |= one.writes
            whole.rates += one.rates
        whole.held = {window: touched[window] - begin for window, begin in filled.items()}
        for unit, count in whole.instructions.items():
            # what comes behind is fetched when the queue has room for all that is left
            late = np.maximum(count - self.resources[unit].depth, 0.0) / np.maximum(count, 1.0)
            begin = free[unit] - whole.busy[unit]
            whole.rates.append(np.where(late > 0, begin + late * whole.busy[unit], 0.0))
        return whole

    def loop(self, loop: Loop, loops: tuple[Loop, ...]) -> _Piece:
        """Return a loop with all its turns."""
        turn, turns = self.block(loop.body, (*loops, loop)), loop.turns
        units = reduce(np.maximum, (turn.busy[unit] for unit in turn.instructions))
        fetch = self.resources.fetch_cycles * sum(turn.instructions.values())
        held = (span / self.depths[window] for window, span in turn.held.items())
        bus, waits = turn.busy[BUS], self.resources.unhidden * np.minimum(units, turn.busy[BUS])
        chain = waits + reduce(np.maximum, (units, fetch, *held, *turn.rates))
        rate = np.maximum(chain, waits + bus)
        depth = min((self.depths[window] for window in turn.held), default=1)
        busy = {}
        for unit in turn.instructions:
            idle = np.maximum(turns - depth, 0) * (rate - turn.busy[unit])
            busy[unit] = turns * turn.busy[unit] + idle
        length = np.maximum(turn.length + (turns - 1) * chain, turns * (waits + bus))
        rates = [turns * rate]
        if loop.restarts:  # the first slot may be the one that was filled last
            for window in turn.held:
                rates.append(np.where(turns % self.depths[window] > 0, length, 0.0))
        return _Piece(
            length=length,
            busy={**busy, BUS: turns * turn.busy[BUS]},
            instructions={unit: turns * count for unit, count in turn.instructions.items()},
            reads=turn.reads,
            writes=turn.writes,
            rates=rates,
        )


def _add(total: dict[str, Array], more: Mapping[str, Array]) -> None:
    for name, count in more.items():
        total[name] = total[name] + count if name in total else count
