"""What agents know of each other: vector clocks, of plain accesses and of those behind a fence.

A *component* counts what one lane of an agent does, or the tiles that an agent has issued to one engine. Who knows of a count
of a component comes after all that it counts up to there.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

Component = Hashable


@dataclass(slots=True)
class Clock:
    """The counts that a lane knows of; by kind of fence, those whose ordinary stores that fence has made seen."""

    counts: dict[Component, int] = field(default_factory=dict)
    fenced: dict[str, dict[Component, int]] = field(default_factory=dict)

    def copy(self) -> Clock:
        """Return a clock that knows the same."""
        return Clock(dict(self.counts), {kind: dict(of) for kind, of in self.fenced.items()})

    def join(self, other: Clock) -> None:
        """Know what `other` knows, too."""
        _join(self.counts, other.counts)
        for kind, of in other.fenced.items():
            _join(self.fenced.setdefault(kind, {}), of)

    def knows(self, counts: Iterable[tuple[Component, int]], fence: str = "") -> bool:
        """Return whether all these counts are known; behind a kind of fence, if one is said."""
        known = self.fenced.get(fence, {}) if fence else self.counts
        return all(known.get(component, 0) >= count for component, count in counts)


def _join(into: dict[Component, int], more: dict[Component, int]) -> None:
    for component, count in more.items():
        if into.get(component, 0) < count:
            into[component] = count
