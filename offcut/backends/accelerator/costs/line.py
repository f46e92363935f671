"""Three queues, each in its order, and a bus that they share: when what stands in them ends.

An instance begins when its unit is free, when what it reads has been written, and when what it writes has been read.
The simulator runs instructions, and tokens make them wait; here a leaf of a nest runs at once, for a tile.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from offcut.backends.accelerator.isa import Unit

UNITS = tuple(Unit)


class Event(NamedTuple):
    """An instance on a unit: cycles without the bus and with it, and the events of other units that it follows."""

    unit: int
    own: float
    bus: float
    after: tuple[int, ...]


@dataclass(slots=True)
class _Window:
    """The last events that touched a window: who wrote it, who has read it since, by unit."""

    written: int = -1
    read: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Timed:
    """How long it takes.

    cycles  until the last unit is free
    alone   by unit: what it does, and what comes before its first and behind its last instance
    """

    cycles: float
    alone: dict[Unit, float]


@dataclass
class Line:
    """Events in the order of the stream."""

    events: list[Event] = field(default_factory=list)
    windows: dict[Hashable, _Window] = field(default_factory=dict)

    def event(
        self,
        unit: Unit,
        own: float,
        bus: float,
        reads: Iterable[Hashable] = (),
        writes: Iterable[Hashable] = (),
    ) -> None:
        """Note an instance, by the windows that it reads and writes."""
        number, queue = len(self.events), UNITS.index(unit)
        after = set[int]()
        for key in reads:
            window = self.windows.setdefault(key, _Window())
            after.add(window.written)
            window.read[queue] = number
        for key in writes:
            window = self.windows.setdefault(key, _Window())
            after |= {window.written, *window.read.values()}
            window.written = number
            window.read = {}
        others = (one for one in after if 0 <= one < number)
        follows = tuple(one for one in others if self.events[one].unit != queue)
        self.events.append(Event(queue, own, bus, follows))

    def timed(self) -> Timed:
        """When all has ended. The bus serves who asks first."""
        events = self.events
        queues: list[list[int]] = [[], [], []]
        for number, event in enumerate(events):
            queues[event.unit].append(number)
        ends: list[float | None] = [None] * len(events)
        at, free, bus = [0, 0, 0], [0.0, 0.0, 0.0], 0.0
        begun: list[float | None] = [None, None, None]
        left = len(events)
        while left:
            asked: tuple[float, int, int] | None = None
            for unit in range(3):
                while at[unit] < len(queues[unit]):
                    number = queues[unit][at[unit]]
                    event = events[number]
                    when = free[unit]
                    for one in event.after:
                        end = ends[one]
                        if end is None:
                            break
                        when = max(when, end)
                    else:
                        if begun[unit] is None:
                            begun[unit] = when
                        if event.bus:
                            ask = (when + event.own, unit, number)
                            asked = ask if asked is None else min(asked, ask)
                            break
                        ends[number] = free[unit] = when + event.own
                        at[unit] += 1
                        left -= 1
                        continue
                    break
            if asked is not None:
                when, unit, number = asked
                bus = max(bus, when) + events[number].bus
                ends[number] = free[unit] = bus
                at[unit] += 1
                left -= 1
        cycles = max(free)
        busy = [0.0, 0.0, 0.0]
        for event in events:
            busy[event.unit] += event.own + event.bus
        alone = {
            UNITS[unit]: busy[unit] + (begun[unit] or 0.0) + cycles - free[unit]
            for unit in range(3)
            if queues[unit]
        }
        return Timed(cycles, alone)
