"""Instances of leaves in the order of the stream, and what each of them has to wait for.

An instance begins when what it reads has been written, and when what it writes has been read. The simulator runs
instructions, and tokens make them wait; here a leaf of a nest runs for a tile, in so many equal instructions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from offcut.backends.accelerator.instances.running import UNITS, Event, Running, Timed
from offcut.backends.accelerator.isa import Unit
from offcut.backends.accelerator.spec import AcceleratorSpec


class Part(NamedTuple):
    """Equal instructions of an instance on a unit, one after the other: their cycles without the bus and with it, and how
    many there are.
    """

    unit: Unit
    own: float
    bus: float
    instructions: int = 1


@dataclass(slots=True)
class _Window:
    """The last events that touched a window, by unit: who wrote it, who has read it since."""

    written: Mapping[int, int] = field(default_factory=dict)
    read: dict[int, int] = field(default_factory=dict)


@dataclass
class Line:
    """Events in the order of the stream."""

    spec: AcceleratorSpec
    events: list[Event] = field(default_factory=list)
    windows: defaultdict[Hashable, _Window] = field(default_factory=lambda: defaultdict(_Window))

    def instance(
        self, parts: Iterable[Part], reads: Iterable[Hashable] = (), writes: Iterable[Hashable] = ()
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
            number, queue = len(self.events), UNITS.index(part.unit)
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

    def timed(self) -> Timed:
        """When all has ended."""
        return Running(self.events, self.spec).timed()
