"""Instances of runs in the order of the stream, and the events that each of them follows.

An instance begins when what it reads has been written, and when what it writes has been read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from offcut.costmodel.event_timing import Event, EventSimulation, EventTiming
from offcut.costmodel.resources import MachineResources


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
    """The last events that touched a window, by unit: who wrote it, who has read it since."""

    written: Mapping[int, int] = field(default_factory=dict)
    read: dict[int, int] = field(default_factory=dict)


@dataclass
class EventQueue:
    """Events in the order of the stream."""

    resources: MachineResources
    events: list[Event] = field(default_factory=list)
    windows: defaultdict[Hashable, _Window] = field(default_factory=lambda: defaultdict(_Window))
    units: Mapping[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self.units = {unit.name: number for number, unit in enumerate(self.resources.ordered)}

    def instance(
        self,
        parts: Iterable[InstructionGroup],
        reads: Iterable[Hashable] = (),
        writes: Iterable[Hashable] = (),
    ) -> None:
        """Note an instance by its parts, and by the windows that it reads and writes."""
        after: set[int] = set()
        read = [self.windows[key] for key in reads]
        written = [self.windows[key] for key in writes]
        for window in (*read, *written):
            after.update(window.written.values())
        for window in written:
            after.update(window.read.values())
        last: dict[int, int] = {}
        for part in parts:
            number, queue = len(self.events), self.units[part.unit]
            before = (
                after.union(last.values()) if part.bus else after
            )  # rows lie on what was filled
            follows = tuple(one for one in before if self.events[one].unit != queue)
            event = Event(queue, max(part.instructions, 1), part.own, part.bus, follows)
            self.events.append(event)
            last[queue] = number
        for window in read:
            window.read.update(last)
        for window in written:
            window.written, window.read = last, {}

    def replace(self, number: int, own: float, bus: float) -> None:
        """Give an event other cycles."""
        self.events[number] = self.events[number]._replace(own=own, bus=bus)

    def timed(self) -> EventTiming:
        """Return when all has ended."""
        return EventSimulation(self.events, self.resources).timed()
