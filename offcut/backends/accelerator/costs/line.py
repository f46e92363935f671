"""Instances of leaves in the order of the stream, and what each of them has to wait for.

An instance begins when what it reads has been written, and when what it writes has been read. The simulator runs
instructions, and tokens make them wait; here a leaf of a nest runs for a tile, in so many equal instructions.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from offcut.backends.accelerator.costs.running import UNITS, Event, Running, Timed
from offcut.backends.accelerator.isa import Unit
from offcut.backends.accelerator.spec import Spec


@dataclass(slots=True)
class _Window:
    """The last events that touched a window: who wrote it, who has read it since, by unit."""

    written: int = -1
    read: dict[int, int] = field(default_factory=dict)


@dataclass
class Line:
    """Events in the order of the stream."""

    spec: Spec
    events: list[Event] = field(default_factory=list)
    windows: dict[Hashable, _Window] = field(default_factory=dict)

    def event(
        self,
        unit: Unit,
        own: float,
        bus: float,
        reads: Iterable[Hashable] = (),
        writes: Iterable[Hashable] = (),
        instructions: int = 1,
    ) -> None:
        """Note an instance, by its cycles without the bus and with it, the windows that it reads and writes."""
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
        self.events.append(Event(queue, max(instructions, 1), own, bus, follows))

    def timed(self) -> Timed:
        """When all has ended."""
        return Running(self.events, self.spec).timed()
