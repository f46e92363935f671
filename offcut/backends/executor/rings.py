"""The barriers of a token: its arrivals, and whether arrivals and waits are in their own phases.

Token k of a ring of `room` barriers is phase ``k // room`` of barrier ``k % room``. Hardware does not stop an arrival that comes a
phase early, and a wait that comes after its phase has ended twice waits for a later one; so each agent has to *know*, by its
clock, that it is in time.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from offcut.backends.executor.clocks import Clock, Component
from offcut.core.program import Token

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
