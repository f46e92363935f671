"""The state of a run: clocks of agents, accesses to memories, barriers of tokens.

The accesses to the elements of a memory, with which later accesses are compared.

A shadow holds the last write of each element, and the reads of each agent since. FastTrack (Flanagan and Freund, PLDI 2009)
compares accesses so; here an access is that of a tile, with a mask of elements.

Vector clocks of agents: of plain accesses, and of those behind a fence.

A *component* counts the steps of one lane of an agent, or the tiles that an agent has issued to one engine. A lane that knows a
count of a component runs after all that this count covers.

The barriers of a token: its arrivals, and whether arrivals and waits are in their own phases.

Token k of a ring of `room` barriers is phase ``k // room`` of barrier ``k % room``. Hardware does not stop an arrival that comes a
phase early, and a wait that comes after its phase has ended twice waits for a later one; so each agent has to *know*, by its
clock, that it is in time.

The state of agents while they run: the clocks of their lanes, their asynchronous tiles, and their pending arrivals.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from offcut.backends.executor.steps import Agent, Place, Region, Step
from offcut.core.interpret.values import Array
from offcut.core.program import Token
from offcut.polyhedral.sync import Unit

Component = Hashable


@dataclass(frozen=True, slots=True)
class Past:
    """The counts that all lanes know since their last common meeting, behind a fence of every kind.

    number  of meetings so far
    """

    number: int = 0
    counts: Mapping[Component, int] = field(default_factory=dict)


START = Past()


@dataclass(slots=True)
class Clock:
    """The counts that a lane knows, by component.

    counts  those of which its past does not know as much
    fenced  by kind of fence, the counts whose ordinary stores a fence of that kind has made visible
    """

    counts: dict[Component, int] = field(default_factory=dict)
    fenced: dict[str, dict[Component, int]] = field(default_factory=dict)
    past: Past = START

    def count(self, component: Component) -> int:
        """Return the known count of a component."""
        return max(self.counts.get(component, 0), self.past.counts.get(component, 0))

    def join(self, other: Clock) -> None:
        """Raise the counts to those of `other`, where these are higher."""
        if self.past.number < other.past.number:
            self.past = other.past
        _join(self.counts, other.counts)
        for kind, of in other.fenced.items():
            _join(self.fenced.setdefault(kind, {}), of)

    def knows(self, counts: Iterable[tuple[Component, int]], fence: str = "") -> bool:
        """Return whether all these counts are known.

        fence  a kind: known behind such a fence; "": known at all
        """
        component_counts, past = (
            self.fenced.get(fence, {}) if fence else self.counts,
            self.past.counts,
        )
        return all(
            component_counts.get(component, 0) >= count or past.get(component, 0) >= count
            for component, count in counts
        )


def meet(clocks: Mapping[Component, Clock], past: Past) -> Past:
    """Return the past of lanes that all meet; each lane's clock, by its own component, begins its next count.

    past  that of the last meeting
    """
    counts = dict(past.counts)
    for clock in clocks.values():
        _join(counts, clock.counts)
    together = Past(past.number + 1, counts)
    for component, clock in clocks.items():
        clock.counts, clock.fenced, clock.past = {component: counts[component] + 1}, {}, together
    return together


def _join(into: dict[Component, int], more: Mapping[Component, int]) -> None:
    for component, count in more.items():
        if into.get(component, 0) < count:
            into[component] = count


Box: TypeAlias = tuple[slice, ...]


@dataclass(eq=False, slots=True)
class Access:
    """A step of an agent that accessed memory; it comes before whatever knows its counts.

    engine  of an asynchronous tile, the unit that tells its end; "" of all others
    """

    agent: Agent
    step: Step
    counts: tuple[tuple[Component, int], ...]
    engine: str = ""

    def __str__(self) -> str:
        return f"{self.step.head} on {self.agent}"


@dataclass(eq=False, slots=True)
class _Read:
    access: Access
    box: Box
    mask: Array


Check: TypeAlias = Callable[[Access, bool, tuple[int, ...], bool], None]
"""Called with an earlier access, whether it wrote, the coordinates of an element that both touch, and whether the later one writes."""


@dataclass(eq=False)
class Shadow:
    """The accesses to a region that later ones are compared with."""

    region: Region
    accesses: list[Access] = field(default_factory=list)
    reads: list[_Read] = field(default_factory=list)
    writers: Array | None = None

    def touch(self, access: Access, box: Box, mask: Array, writes: bool, check: Check) -> None:
        """Record that `access` touches elements of a box, by coordinates in the region; call `check` with each earlier access to them."""
        if self.writers is None:
            self.writers = np.zeros(self.region.shape, np.int32)
        ids = self.writers[box] if box else self.writers  # a view, also without axes
        for number in np.unique(ids[mask]):
            if number:
                where = mask & (ids == number)
                check(self.accesses[number - 1], True, _first(box, where), writes)
        if not writes:
            self.note_read(access, box, mask)
            return
        remaining = []
        for read in self.reads:
            common = _common(box, mask, read)
            if common is not None:
                if read.access is not access:
                    check(read.access, False, _first(read.box, common), True)
                read.mask = read.mask & ~common
            if read.mask.any():
                remaining.append(read)
        self.reads = remaining
        self.accesses.append(access)
        ids[mask] = len(self.accesses)

    def note_read(self, access: Access, box: Box, mask: Array) -> None:
        """Record a read, in place of an earlier one of the same elements by the same agent."""
        for read in self.reads:
            if (
                read.box == box
                and read.access.agent == access.agent
                and not read.access.engine
                and not access.engine
                and (mask | ~read.mask).all()
            ):
                read.access, read.mask = access, mask
                return
        self.reads.append(_Read(access, box, mask))


def _common(box: Box, mask: Array, read: _Read) -> Array | None:
    """Return the elements of a read that a box with a mask holds too, by the read's box; None if there are none."""
    starts = [max(a.start, b.start) for a, b in zip(box, read.box, strict=True)]
    stops = [min(a.stop, b.stop) for a, b in zip(box, read.box, strict=True)]
    if any(stop <= start for start, stop in zip(starts, stops, strict=True)):
        return None
    ends = list(zip(starts, stops, strict=True))
    own = tuple(slice(a - of.start, b - of.start) for (a, b), of in zip(ends, box, strict=True))
    its = tuple(
        slice(a - of.start, b - of.start) for (a, b), of in zip(ends, read.box, strict=True)
    )
    both = mask[own] & read.mask[its]
    if not both.any():
        return None
    common = np.zeros_like(read.mask)
    common[its] = both
    return common


def _first(box: Box, mask: Array) -> tuple[int, ...]:
    """Return the first element of a mask, by coordinates in the region."""
    offsets = np.argwhere(mask)[0] if mask.ndim else ()
    return tuple(int(of.start + offset) for of, offset in zip(box, offsets, strict=True))


Counts = tuple[tuple[Component, int], ...]


@dataclass(frozen=True, slots=True)
class Wait:
    """A wait for a token: the agent, and its counts at the wait."""

    agent: str
    counts: Counts


@dataclass(eq=False)
class Ring:
    """The barriers of a token, one for each slot.

    clocks    by number of a token, the clocks of the agents that arrived
    bytes     by number, copied by the tiles of the arrivals
    waits     by number, the waits for it so far
    arrivals  by number, how many have taken place
    counts    by number, the counts of the agents that arrived
    """

    token: Token
    clocks: dict[int, list[Clock]] = field(default_factory=lambda: defaultdict(list))
    bytes: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    waits: dict[int, list[Wait]] = field(default_factory=lambda: defaultdict(list))
    arrivals: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    counts: dict[int, list[Counts]] = field(default_factory=lambda: defaultdict(list))

    def count_arrivals(self, number: int) -> int:
        """Return how many arrivals of a token have taken place."""
        return self.arrivals.get(number, 0)

    def is_done(self, number: int) -> bool:
        """Return whether all arrivals of a token have taken place."""
        return self.count_arrivals(number) >= self.token.count

    def too_early(self, number: int, clock: Clock) -> str:
        """Return the reason, as text, that an arrival may fall in an earlier phase than its own; "" if `clock` rules that out."""
        room = self.token.room
        before = number - room
        if before < 0:
            return ""
        has_ended = self.is_done(before) and all(map(clock.knows, self.counts[before]))
        if has_ended:
            return ""
        return (
            f"it is for token {number}, and the phase of token {before} may not have ended: "
            f"{self.token.name} has room for {room}"
        )

    def add(
        self, number: int, count: int, counts: Counts, clock: Clock, bytes: int
    ) -> tuple[str, str]:
        """Add the arrivals of one agent; return the finder and the reason of a fault, if there is one."""
        if self.count_arrivals(number) + count > self.token.count:
            because = f"it is arrival {self.count_arrivals(number) + count} of token {number}, and {self.token.count} make one"
            return "arrivals", because
        self.arrivals[number] += count
        self.counts[number].append(counts)
        self.clocks[number].append(clock)
        self.bytes[number] += bytes
        before = number - self.token.room
        if not self.is_done(number) or before < 0:
            return "", ""
        for wait in self.waits[before]:
            if not any(arrival.knows(wait.counts) for arrival in self.clocks[number]):
                because = f"it ends the phase behind that of token {before}, for which {wait.agent} may still wait"
                return "phase", because
        return "", ""

    def incomplete(self) -> tuple[int, int]:
        """Return the number of a token that has some of its arrivals but not all, and how many it has; (0, 0) if there is none."""
        for number, count in self.arrivals.items():
            if 0 < count < self.token.count:
                return number, count
        return 0, 0


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
