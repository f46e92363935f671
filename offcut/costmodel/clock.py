"""The clock: how long a program takes, from what it takes of each resource and from what waits for what.

A *run* takes cycles of one unit, and some of them of a bus that units share. Of a block and of a loop of N turns::

    block   what it takes of each resource adds up; a run begins when its unit is free, when what it reads is written,
            and when what it writes over has been read
    loop    L = L(first turns) + (N - first - 1) * rate + L(last turn)
            rate = max(what a turn takes of each resource, what the last of the first turns came later than the one before)
           + unhidden * min(busiest unit, bus)

so a loop whose windows take turns (depth 2 and more) goes on at the rate of its busiest resource, and one with a single
window waits for all of a turn. The first and the last turn are counted apart, as borders and tails of tiles take more and
less. Units that look far ahead, those of a processor, wait for nothing: L is what the busiest of them takes (`stage_formula`).

Numbers are arrays: one value for each of many programs of the same loops, as search compares them (`unit_program`). The bus
is given in the order of the program, and turns between are not looked at: `walk` follows one program, turn by turn, with a bus
that serves who asks first.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from offcut.core.expr import Binary, Expr, real
from offcut.costmodel.arrays import Array
from offcut.costmodel.resources import MachineResources
from offcut.costmodel.unit_program import End, Ends, Loop, Node, Run, turns_by_end

T = TypeVar("T")

SHORT_QUEUE = 64
"""Instructions: a longer queue is not followed, as it holds some turns of a loop."""
FIRST_TURNS = 2
"""Turns of a loop that are followed before its rate is taken."""
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


def busy(body: Sequence[Node], resources: MachineResources) -> Array:
    """Return the cycles of the busiest resource, whatever waits for what: no less than the clock says of the program."""
    units = {unit.name: at for at, unit in enumerate(resources.ordered)}
    total = [np.zeros(1) for _ in range(len(units) + 1)]
    for run, loops in _runs(body):
        every = [turns_by_end(loop, run.ends) for loop in loops]
        for turns in product(*every):
            often = reduce(np.multiply, (count for _, count in turns), np.ones(1))
            own, bus, _ = run.work(frozenset(end for end, _ in turns if end is not None))
            at = units[run.unit]
            total[at] = total[at] + often * (own + bus)
            total[-1] = total[-1] + often * bus
    return reduce(np.maximum, total)


def _runs(
    body: Sequence[Node], loops: tuple[Loop, ...] = ()
) -> Iterator[tuple[Run, tuple[Loop, ...]]]:
    for node in body:
        if isinstance(node, Run):
            yield node, loops
        else:
            yield from _runs(node.body, (*loops, node))


def cycles(
    body: Sequence[Node],
    depths: Mapping[Hashable, int],
    resources: MachineResources,
    which: npt.NDArray[np.int64],
) -> Array:
    """Return the cycles of some programs of the same loops.

    depths  slots of each window, which its fills take in turn
    which   the numbers of these programs in the arrays
    """
    clock = _Clock(depths, resources, which)
    clock.block(body, frozenset())
    return clock.end()


@dataclass(frozen=True, slots=True)
class _Queue:
    """A short queue: instructions that wait at most, and where its last runs are noted, in times and beside them."""

    depth: int
    row: int
    back: int


class _Clock:
    """Times of units and windows, and what has been taken of each resource: a row of an array each.

    place  of each window, and by slot when it was last written and last read: the oldest slot first
    bus    the place of when each unit last had the bus, from and to
    fills  of each window, since slots began anew
    queue  the short queues, by unit: the place of when their last runs began, the oldest first; and in `back`, how many
           instructions ago, and how far their instructions are apart
    fetch  the place of when the last instruction was fetched
    """

    def __init__(
        self,
        depths: Mapping[Hashable, int],
        resources: MachineResources,
        which: npt.NDArray[np.int64],
    ) -> None:
        self.which = which
        self.unit = {unit.name: at for at, unit in enumerate(resources.ordered)}
        self.units = len(self.unit)
        self.place: dict[Hashable, int] = {}
        rows = self.units
        for name, depth in depths.items():
            self.place[name], rows = rows, rows + 2 * depth
        self.depth = depths
        self.fills = {name: np.zeros(1) for name, depth in depths.items() if depth > 1}
        self.unhidden = resources.unhidden
        self.bus = rows
        rows += 2 * self.units
        self.fetch, self.fetch_cycles = rows, resources.fetch_cycles
        self.queue: dict[int, _Queue] = {}
        rows, back = rows + 1, 0
        for unit, one in enumerate(resources.ordered):
            if one.depth <= SHORT_QUEUE:
                self.queue[unit] = _Queue(one.depth, rows, back)
                rows, back = rows + one.depth, back + 2 * one.depth
        self.times = np.zeros((rows, which.size))
        self.back = np.zeros((back, which.size))
        self.all_of_them = np.arange(which.size)
        self.taken = np.zeros((self.units + 1, which.size))  # by units, then the bus

    def end(self) -> Array:
        """Return when all units are done, and the bus with what was asked of it."""
        ends: Array = np.maximum(self.times[: self.units].max(axis=0), self.taken[-1])
        return ends

    def block(self, body: Sequence[Node], ends: Ends) -> None:
        """Go through a body.

        ends  the ends at which the loops around are
        """
        for node in body:
            if isinstance(node, Run):
                self.run(node, *map(self.some, node.work(ends & node.ends)))
            else:
                self.loop(node, ends)

    def some(self, numbers: Array) -> Array:
        """Return those of the programs; one number is that of all."""
        return numbers[self.which] if numbers.size > 1 else numbers

    def run(self, run: Run, own: Array, bus: Array, instructions: Array) -> None:
        """Go through a run; one without an instruction waits for nothing."""
        for name in run.writes if run.fills else ():
            at, depth = self.place[name], self.depth[name]
            if depth > 1:
                slots = self.times[at : at + 2 * depth]
                self.times[at : at + 2 * depth] = np.roll(slots, -2, axis=0)
                self.fills[name] = self.fills[name] + 1
        if not instructions.any():
            return
        before, back_before, unit = self.times, self.back, self.unit[run.unit]
        some = not instructions.all()
        if some:
            self.times, self.back = before.copy(), back_before.copy()
        times, queue = self.times, self.queue.get(unit)
        fetched = times[self.fetch] + self.fetch_cycles
        if queue is not None:
            fetched = np.maximum(fetched, self.began(queue, np.full(1, float(queue.depth))))
        begin = np.maximum(times[unit], fetched)
        for name in run.writes:
            newest = self.place[name] + 2 * (self.depth[name] - 1)
            begin = np.maximum(begin, np.maximum(times[newest], times[newest + 1]))
        for name in run.reads:
            begin = np.maximum(begin, times[self.place[name] + 2 * (self.depth[name] - 1)])
        end = begin + own
        if bus.any():
            end = np.where(bus > 0, self.served(unit, end, bus), end)
            total = self.bus + 2 * unit
            times[total] = np.where(bus > 0, end - bus, times[total])
            times[total + 1] = np.where(bus > 0, end, times[total + 1])
        times[unit] = end
        for name in run.writes:
            times[self.place[name] + 2 * (self.depth[name] - 1)] = end
        for name in run.reads:
            newest = self.place[name] + 2 * self.depth[name] - 1
            times[newest] = np.maximum(times[newest], end)
        times[self.fetch] = fetched + (instructions - 1) * self.fetch_cycles
        if queue is not None:
            self.enter(queue, begin, end, instructions)
        if some:
            self.times = np.where(instructions > 0, times, before)
            self.back = np.where(instructions > 0, self.back, back_before)
        self.taken[unit] += own + bus
        self.taken[-1] += bus

    def began(self, queue: _Queue, ago: Array) -> Array:
        """Return when the instruction so many before the next one began; 0 of one that there is not."""
        back = self.back[queue.back : queue.back + queue.depth]
        newest = (back >= ago).sum(axis=0) - 1
        at, all_of_them = np.maximum(newest, 0), self.all_of_them
        step = self.back[queue.back + queue.depth + at, all_of_them]
        begin = self.times[queue.row + at, all_of_them]
        return np.where(newest >= 0, begin + (back[at, all_of_them] - ago) * step, 0.0)

    def enter(self, queue: _Queue, begin: Array, end: Array, instructions: Array) -> None:
        """Note a run; before the next instruction is fetched, there is room for the last one of it."""
        depth, back = queue.depth, self.back[queue.back : queue.back + queue.depth]
        step, times = (end - begin) / np.maximum(instructions, 1), self.times
        ago = depth - instructions + 1
        room = np.where(ago > 0, self.began(queue, ago), begin - ago * step)
        times[self.fetch] = np.maximum(times[self.fetch], room)
        steps = self.back[queue.back + depth : queue.back + 2 * depth]
        begins = times[queue.row : queue.row + depth]
        for rows in (begins, back, steps):
            rows[:-1] = rows[1:]
        begins[-1], steps[-1], back[-1] = begin, step, 0.0
        back += instructions

    def served(self, unit: int, asks: Array, bus: Array) -> Array:
        """Return until when a unit that asks has the bus: behind another unit that has it then, and with what another one takes of it
        meanwhile.
        """
        others = [
            self.times[self.bus + 2 * other : self.bus + 2 * other + 2]
            for other in range(self.units)
            if other != unit
        ]
        for begin, end in others:
            asks = np.where((begin <= asks) & (asks < end), end, asks)
        ends = asks + bus
        for begin, end in others:
            ends = ends + np.where((asks < begin) & (begin < ends), end - begin, 0.0)
        return ends

    def restart(self, windows: Iterable[Hashable]) -> None:
        """Let the next fill of windows be of their first slot again."""
        for name in windows:
            at, depth = self.place[name], self.depth[name]
            slots = self.times[at : at + 2 * depth]
            by = (-self.fills[name]) % depth
            for count in range(1, depth):
                slots = np.where(
                    by == count, np.roll(self.times[at : at + 2 * depth], -2 * count, 0), slots
                )
            self.times[at : at + 2 * depth] = slots
            self.fills[name] = np.zeros(1)

    def loop(self, loop: Loop, ends: Ends) -> None:
        """Go through the first turns and the last one; those between go on at the rate of the loop."""
        if loop.restarts:
            self.restart(set(loop.filled) & self.fills.keys())
        came, each = np.zeros(1), np.zeros(1)
        rate = np.zeros(1)
        more_fills: dict[Hashable, Array] = {}
        turns = self.some(loop.turns)
        most = float(turns.max())
        for turn in range(1, FIRST_TURNS + 1):
            if most <= turn:
                break
            before, turns_before, end_before = self.times, self.taken, self.end()
            fills, back_before = dict(self.fills), self.back
            self.times, self.taken = before.copy(), turns_before.copy()
            self.back = back_before.copy()
            first: Ends = frozenset({(loop.name, End.FIRST)} if turn == 1 else ())
            self.block(loop.body, ends | first)
            runs = turns > turn
            more_fills = {name: count - fills[name] for name, count in self.fills.items()}
            self.fills = {n: np.where(runs, count, fills[n]) for n, count in self.fills.items()}
            self.times = np.where(runs, self.times, before)
            self.taken = np.where(runs, self.taken, turns_before)
            self.back = np.where(runs, self.back, back_before)
            each = np.where(runs, self.taken - turns_before, 0.0)
            came = self.end() - end_before
            rate = np.maximum(each.max(axis=0), came if turn > 1 else 0.0)
            rate = rate + self.unhidden * np.minimum(each[:-1].max(axis=0), each[-1])
        more = np.maximum(turns - FIRST_TURNS - 1, 0)
        if most > FIRST_TURNS + 1:
            self.times = self.times + more * rate
            self.taken = self.taken + more * each
            self.fills = {n: count + more * more_fills[n] for n, count in self.fills.items()}
        self.block(loop.body, ends | {(loop.name, End.LAST)})
