"""The simulation of a program of units in order, turn by turn: units side by side, the queues before them, and a bus that serves who asks first.

An event is so many instructions of one length: one after the other where nobody else wants the bus, in turns with those
of another unit where it does. Instructions are fetched in the order of the stream, as long as the queue of their unit has
room.

`walk` follows a program run by run and notes the instances of its runs as events in the order of the stream. An instance begins when what it reads has been written, and when what it writes has been read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from offcut.costmodel.arrays import Array
from offcut.costmodel.clock import End, Ends, Node, Run
from offcut.costmodel.resources import MachineResources


class Event(NamedTuple):
    """An instance on a unit, which is a number among the units of the machine: its instructions, cycles without the bus and
    with it, and the events of other units that it follows.
    """

    unit: int
    instructions: int
    own: float
    bus: float
    after: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class EventTiming:
    """How long events take.

    cycles  until the last unit is free
    bus     for which the bus is taken
    alone   by unit: what it does, and what comes before its first and behind its last instance
    """

    cycles: float
    bus: float
    alone: dict[str, float]


class _Unit:
    """A unit with its queue.

    events  by number, in order; first: instructions before each of them; count: of all
    at      the one that is next, or that runs
    left    its instructions that still want the bus; asked: since when the first of them has
    runs    of instructions one after the other: the number of the first, when it began, and cycles from one to the next
    begun   instructions of which it is known when they began
    looked  the run in which the instruction stands that was last looked for
    """

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.events: list[int] = []
        self.first: list[int] = []
        self.count = 0
        self.at = self.left = self.looked = 0
        self.asked = self.free = self.busy = 0.0
        self.runs: list[tuple[int, float, float]] = []
        self.begun = 0

    def begins(self, when: float, step: float, count: int) -> None:
        """Note when the next instructions begin."""
        self.runs.append((self.begun, when, step))
        self.begun += count

    def start_of(self, number: int) -> float | None:
        """When an instruction began; None where that is not known yet. Those asked for are in order."""
        if number < 0:
            return 0.0
        if number >= self.begun:
            return None
        while self.looked + 1 < len(self.runs) and self.runs[self.looked + 1][0] <= number:
            self.looked += 1
        first, when, step = self.runs[self.looked]
        return when + (number - first) * step


class EventSimulation:
    """The run of events.

    awaited  the instruction, of a unit, that begins before more of its queue are fetched
    """

    def __init__(self, events: Sequence[Event], resources: MachineResources) -> None:
        self.events, self.fetch_cycles = events, resources.fetch_cycles
        self.names = tuple(unit.name for unit in resources.units_in_order)
        self.units = [_Unit(unit.depth) for unit in resources.units_in_order]
        before = []
        for number, event in enumerate(events):
            unit = self.units[event.unit]
            unit.events.append(number)
            unit.first.append(unit.count)
            before.append(unit.count)
            unit.count += event.instructions
        self.before = before
        self.ends: list[float | None] = [None] * len(events)
        self.arrived: list[float] = []
        self.whole, self.last = 0, 0.0  # events that are fetched whole, and when the last one was
        self.awaited: tuple[_Unit, int] | None = None
        self.bus = 0.0

    def end_time(self) -> EventTiming:
        """Return when all has ended."""
        while True:
            self.go_on()
            asking = [(one.asked, at) for at, one in enumerate(self.units) if one.left]
            if not asking:
                break
            _, at = min(asking)
            self.serve(
                self.units[at], min((time for time, other in asking if other != at), default=inf)
            )
        cycles = max(unit.free for unit in self.units)
        alone = {
            name: unit.busy + unit.runs[0][1] + cycles - unit.free
            for name, unit in zip(self.names, self.units, strict=True)
            if unit.events
        }
        return EventTiming(cycles, sum(event.bus for event in self.events), alone)

    def go_on(self) -> None:
        """Begin what can begin, up to where it asks for the bus."""
        more = True
        while more:
            self.fetch()
            more = False
            for unit in self.units:
                while not unit.left and self.begin(unit):
                    more = True

    def fetch(self) -> None:
        """Fetch as far as it is known when there is room."""
        events, self.awaited = self.events, None
        while self.whole < len(events):
            number = self.whole
            event = events[number]
            unit = self.units[event.unit]
            first = self.before[number] - unit.depth
            if number == len(self.arrived):
                room = unit.start_of(first)
                if room is None:
                    self.awaited = unit, first
                    return
                self.arrived.append(max(self.last + self.fetch_cycles, room))
            others = event.instructions - 1
            room = unit.start_of(first + others)
            if room is None:
                self.awaited = unit, first + others
                return
            self.last = max(self.arrived[number] + others * self.fetch_cycles, room)
            self.whole += 1

    def begin(self, unit: _Unit) -> bool:
        """Begin the next event of a unit; whether it can."""
        if unit.at == len(unit.events):
            return False
        number = unit.events[unit.at]
        if number >= len(self.arrived):
            return False
        event, arrived = self.events[number], self.arrived[number]
        when = arrived if arrived > unit.free else unit.free
        for other in event.after:
            end = self.ends[other]
            if end is None:
                return False
            if end > when:
                when = end
        unit.busy += event.own + event.bus
        own = event.own / event.instructions
        if event.bus:
            unit.begins(when, 0.0, 1)
            unit.left, unit.asked = event.instructions, when + own
        else:
            unit.begins(when, own, event.instructions)
            self.end(unit, when + event.own)
        return True

    def serve(self, unit: _Unit, until: float) -> None:
        """Give the bus to a unit, again and again while nobody else asks for it before: who does, does so at `until`. No
        longer than to the instruction by which more are fetched: whose those are may ask.
        """
        event = self.events[unit.events[unit.at]]
        own, bus = event.own / event.instructions, event.bus / event.instructions
        self.bus = max(self.bus, unit.asked) + bus
        unit.left -= 1
        asks = self.bus + own
        if unit.left and asks < until:
            more = (
                unit.left if until == inf else min(unit.left, int((until - asks) / (own + bus)) + 1)
            )
            if self.awaited is not None and self.awaited[0] is unit:
                more = min(more, max(self.awaited[1] - unit.begun, 0))
            if more:
                unit.begins(self.bus, own + bus, more)
            self.bus += more * (own + bus)
            unit.left -= more
        if unit.left:
            unit.begins(self.bus, 0.0, 1)
        unit.asked = self.bus + own
        if not unit.left:
            self.end(unit, self.bus)

    def end(self, unit: _Unit, when: float) -> None:
        """Note when an event has ended."""
        self.ends[unit.events[unit.at]] = unit.free = when
        unit.at += 1


class InstructionGroup(NamedTuple):
    """Equal instructions of an instance on a unit, one after the other: their cycles without the bus and with it, and how
    many there are.
    """

    unit: str
    own: float
    bus: float
    instructions: int = 1


@dataclass(slots=True)
class _Window:
    """The last events that touched a window: those that wrote it, and by unit who has read it since."""

    written: frozenset[int] = frozenset()
    read: dict[int, int] = field(default_factory=dict)


@dataclass
class EventQueue:
    """Events in the order of the stream."""

    resources: MachineResources
    events: list[Event] = field(default_factory=list)
    windows: defaultdict[Hashable, _Window] = field(default_factory=lambda: defaultdict(_Window))
    units: Mapping[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self.units = {
            unit.name: number for number, unit in enumerate(self.resources.units_in_order)
        }

    def instance(
        self,
        parts: Iterable[InstructionGroup],
        reads: Iterable[Hashable] = (),
        writes: Iterable[Hashable] = (),
    ) -> None:
        """Note an instance by its parts, and by the windows that it reads and writes."""
        after: frozenset[int] = frozenset()
        read = [self.windows[key] for key in reads]
        written = [self.windows[key] for key in writes]
        for window in (*read, *written):
            after |= window.written
        for window in written:
            if window.read:
                after |= {*window.read.values()}
        events, last = self.events, dict[int, int]()
        for part in parts:
            queue = self.units[part.unit]
            before = (
                after | {*last.values()} if part.bus and last else after
            )  # rows lie on what was filled
            follows = tuple([one for one in before if events[one].unit != queue])
            last[queue] = len(events)
            events.append(Event(queue, part.instructions or 1, part.own, part.bus, follows))
        for window in read:
            window.read |= last
        ends = frozenset(last.values())
        for window in written:
            window.written, window.read = ends, {}

    def replace(self, number: int, own: float, bus: float) -> None:
        """Give an event other cycles."""
        self.events[number] = self.events[number]._replace(own=own, bus=bus)

    def end_time(self) -> EventTiming:
        """Return when all has ended."""
        return EventSimulation(self.events, self.resources).end_time()


def walk(
    body: Sequence[Node],
    depths: Mapping[Hashable, int],
    resources: MachineResources,
    number: int,
) -> EventQueue:
    """Return the events of a program, one of those that the arrays are of.

    depths  slots of each window, which its fills take in turn
    number  of the program in the arrays
    """
    walker = _Walk(depths, resources, number)
    walker.block(body, frozenset())
    return walker.queue


class _Walk:
    """slot  of each window, the one that was filled last"""

    def __init__(
        self, depths: Mapping[Hashable, int], resources: MachineResources, number: int
    ) -> None:
        self.depths, self.number = depths, number
        self.slot = dict.fromkeys(depths, -1)
        self.queue = EventQueue(resources)
        self.groups: dict[tuple[int, Ends], tuple[InstructionGroup, ...]] = {}

    def block(self, body: Sequence[Node], ends: Ends) -> None:
        """Go through a body.

        ends  the ends at which the loops around are
        """
        for node in body:
            if isinstance(node, Run):
                self.run(node, ends & node.ends)
                continue
            if node.restarts:
                self.slot |= dict.fromkeys(node.windows_filled_inside, -1)
            turns = round(self.of_program(node.turns))
            first, last = ends | {(node.name, End.FIRST)}, {(node.name, End.LAST)}
            for turn in range(1, turns + 1):
                own = first if turn == 1 else ends
                self.block(node.body, own | last if turn == turns else own)

    def run(self, run: Run, ends: Ends) -> None:
        """Note an instance."""
        key = id(run), ends
        if key not in self.groups:
            own, bus, count = map(self.of_program, run.work(ends))
            self.groups[key] = (InstructionGroup(run.unit, own, bus, round(count)),)
        slot = self.slot
        for window in run.writes if run.fills else ():
            slot[window] = (slot[window] + 1) % self.depths[window]
        if not self.groups[key][0].instructions:
            return
        reads = [(window, slot[window]) for window in run.reads]
        writes = [(window, slot[window]) for window in run.writes]
        self.queue.instance(self.groups[key], reads, writes)

    def of_program(self, numbers: Array) -> float:
        """Return the number of the program; one number is that of all."""
        return float(numbers[self.number if numbers.size > 1 else 0])
