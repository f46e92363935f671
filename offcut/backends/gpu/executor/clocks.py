"""Vector clocks of agents: of plain accesses, and of those behind a fence.

A *component* counts the steps of one lane of an agent, or the tiles that an agent has issued to one engine. A lane that knows a
count of a component runs after all that this count covers.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

Component = Hashable


@dataclass(slots=True)
class Clock:
    """The counts that a lane knows, by component.

    fenced  by kind of fence, the counts whose ordinary stores a fence of that kind has made visible
    """

    counts: dict[Component, int] = field(default_factory=dict)
    fenced: dict[str, dict[Component, int]] = field(default_factory=dict)

    def copy(self) -> Clock:
        """Return a clock with the same counts."""
        return Clock(dict(self.counts), {kind: dict(of) for kind, of in self.fenced.items()})

    def join(self, other: Clock) -> None:
        """Raise the counts to those of `other`, where these are higher."""
        _join(self.counts, other.counts)
        for kind, of in other.fenced.items():
            _join(self.fenced.setdefault(kind, {}), of)

    def knows(self, counts: Iterable[tuple[Component, int]], fence: str = "") -> bool:
        """Return whether all these counts are known.

        fence  a kind: known behind such a fence; "": known at all
        """
        known = self.fenced.get(fence, {}) if fence else self.counts
        return all(known.get(component, 0) >= count for component, count in counts)


def _join(into: dict[Component, int], more: dict[Component, int]) -> None:
    for component, count in more.items():
        if into.get(component, 0) < count:
            into[component] = count
