"""The walk: a program of units in order, run by run and turn by turn, with fetching, queues and a bus that serves who asks first."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from offcut.costmodel.arrays import Array
from offcut.costmodel.event_queue import EventQueue, InstructionGroup
from offcut.costmodel.resources import MachineResources
from offcut.costmodel.unit_program import End, Ends, Node, Run


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
                self.slot |= dict.fromkeys(node.filled, -1)
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
