"""The state of agents while they run: the clocks of their lanes, their asynchronous tiles, and their pending arrivals."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field

from offcut.backends.executor.clocks import Clock, Component
from offcut.backends.executor.memory import Access
from offcut.backends.executor.rings import Ring
from offcut.backends.executor.steps import Agent, Place, Step
from offcut.core.interpret.values import Array
from offcut.polyhedral.sync import Unit


@dataclass(eq=False)
class Lane:
    """One lane of an agent, with the clock of what it knows."""

    component: Component
    clock: Clock


@dataclass(frozen=True, eq=False)
class LateWrite:
    """Elements of a box of a place, by a mask: their values, and which of them somebody has written."""

    place: Place
    box: tuple[slice, ...]
    mask: Array
    values: Array
    initialized: Array

    def perform(self) -> None:
        """Write the values to memory."""
        assert self.place.values is not None
        assert self.place.initialized is not None
        self.place.values[self.box][self.mask] = self.values
        self.place.initialized[self.box][self.mask] = self.initialized


@dataclass(eq=False)
class AsyncTile:
    """An asynchronous tile that is under way.

    late  the elements that it writes when it ends
    """

    access: Access
    engine: str
    number: int
    late: list[LateWrite]
    ended: bool = False

    def end(self) -> None:
        """Write its values to memory, unless it has ended already."""
        if not self.ended:
            for write in self.late:
                write.perform()
            self.ended = True


@dataclass(eq=False)
class AgentState:
    """An agent that runs.

    issued          its asynchronous tiles, by engine
    arrival_counts  its arrivals so far, by token
    wait_counts     its waits so far, by token
    bytes           copied since it last arrived at a token
    """

    agent: Agent
    unit: Unit
    steps: deque[Step]
    lanes: list[Lane]
    issued: dict[str, list[AsyncTile]] = field(default_factory=lambda: defaultdict(list))
    arrival_counts: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    wait_counts: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    bytes: int = 0

    @property
    def counts(self) -> tuple[tuple[Component, int], ...]:
        """Return the counts of the step that its lanes do next."""
        return tuple((lane.component, lane.clock.counts[lane.component]) for lane in self.lanes)

    def advance(self) -> None:
        """Count one step: whoever learned the counts before this knows of all earlier steps, and of no later one."""
        for lane in self.lanes:
            lane.clock.counts[lane.component] += 1

    def joint_clock(self) -> Clock:
        """Return the clock of all that its lanes know together."""
        clock = Clock()
        for lane in self.lanes:
            clock.join(lane.clock)
        return clock


@dataclass(eq=False)
class Arrival:
    """An arrival that takes place when tiles have ended."""

    state: AgentState
    step: Step
    ring: Ring
    number: int
    counts: tuple[tuple[Component, int], ...]
    clock: Clock
    tiles: list[AsyncTile]
    bytes: int
