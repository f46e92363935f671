"""Vector clocks of agents: of plain accesses, and of those behind a fence.

A *component* counts the steps of one lane of an agent, or the tiles that an agent has issued to one engine. A lane that knows a
count of a component runs after all that this count covers.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field

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
