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
        self.units = {unit.name: number for number, unit in enumerate(self.resources.ordered)}

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

    def timed(self) -> EventTiming:
        """Return when all has ended."""
        return EventSimulation(self.events, self.resources).timed()
