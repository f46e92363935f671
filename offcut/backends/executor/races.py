"""Compares accesses of agents to one element; raises the fault of two that nothing orders."""

from __future__ import annotations

from collections.abc import Sequence

from offcut.backends.executor.clocks import Clock
from offcut.backends.executor.faults import ExecutionFault, fault
from offcut.backends.executor.leaves import Footprint, box_of
from offcut.backends.executor.memory import Access, Shadow
from offcut.backends.executor.steps import Agent, Place, Region
from offcut.polyhedral.sync import Agents, Ends

LATE = " in the background, and its end was not waited for"


class Races:
    """The accesses to all memories, of which later ones are compared with earlier ones."""

    def __init__(self, program: str, agents: Agents) -> None:
        self.program, self.units, self.own = program, agents.by_name, agents.own
        self.shadows: dict[tuple[Region, Agent | None], Shadow] = {}

    def help_of(self, earlier: Access) -> str:
        """Return the help for an access whose end is not waited for."""
        if earlier.engine and self.units[earlier.engine].ends is Ends.GROUP:
            return "wait group, before it"
        return "arrive at a token behind the first, wait for it before the second"

    def help_between(self, earlier: Access, agent: Agent) -> str:
        """Return the help that orders an access of one agent before a later one of another."""
        if earlier.engine:
            return self.help_of(earlier)
        if agent.unit == earlier.agent.unit:
            return f"barrier {agent.unit}, between them"
        return f"a token {earlier.agent.unit} -> {agent.unit}"

    def compare(self, access: Access, footprint: Footprint, clocks: Sequence[Clock]) -> None:
        """Compare an access with those before it.

        clocks  of the lanes that run it

        Raises ExecutionFault for an earlier access that nothing orders before it.
        """

        def check(earlier: Access, wrote: bool, element: tuple[int, ...], writes: bool) -> None:
            fenced = wrote and place.region.memory not in self.own
            finder = self.race_finder(earlier, access, fenced, clocks)
            if finder:
                raise self.race(finder, earlier, access, place, element, wrote, writes)

        for (place, ends, writes), mask in sorted(footprint.items(), key=lambda item: item[0][2]):
            agent = access.agent if place.region.memory in self.own else None
            key = (place.region, agent)
            if key not in self.shadows:
                self.shadows[key] = Shadow(place.region)
            self.shadows[key].touch(access, box_of(ends), mask, writes, check)

    def race_finder(
        self, earlier: Access, later: Access, fenced: bool, clocks: Sequence[Clock]
    ) -> str:
        """Return the finder of two accesses that nothing orders; "" where one has ended before the other begins.

        fenced  whether an engine sees what the earlier one wrote behind a fence alone
        """
        first = self.units[earlier.engine or earlier.agent.unit]
        written, seen = (
            self.units[access.engine].fence if access.engine else "" for access in (earlier, later)
        )
        fence = seen if fenced and seen != written else ""
        same_agent = earlier.agent == later.agent
        engines = [bool(one.engine) and self.units[one.engine].engine for one in (earlier, later)]
        lanes = self.units[earlier.agent.unit].lanes and engines[0] != engines[1]
        in_order = not earlier.engine or (earlier.engine == later.engine and first.in_order)
        if same_agent and not lanes and not fence and in_order:
            return ""
        if all(clock.knows(earlier.counts, fence) for clock in clocks):
            return ""
        is_known = all(clock.knows(earlier.counts) for clock in clocks)
        if fence and (is_known or (same_agent and not lanes and in_order)):
            return "fence"
        if earlier.engine:
            return "async"
        return "lanes" if same_agent and lanes else "race"

    def race(
        self,
        finder: str,
        earlier: Access,
        later: Access,
        place: Place,
        element: tuple[int, ...],
        wrote: bool,
        writes: bool,
    ) -> ExecutionFault:
        """Return the error of two accesses that nothing orders."""
        index = ", ".join(str(at + start) for at, start in zip(element, place.starts, strict=True))
        does, did = ("writes" if one else "reads" for one in (writes, wrote))
        because = f"it {does} {place.region.name}[{index}], which {earlier} {did}"
        match finder:
            case "fence":
                kind = self.units[later.engine].fence
                return self._fault(finder, str(later), because, f"fence {kind}, behind the first")
            case "async":
                because += LATE
                return self._fault(finder, str(later), because, self.help_of(earlier))
            case "lanes":
                because += ", and one lane issues it before all have"
                return self._fault(finder, str(later), because, f"barrier {later.agent.unit}")
        because += ", and nothing orders the two"
        help = self.help_between(earlier, later.agent)
        return self._fault(finder, str(later), because, help)

    def _fault(self, finder: str, at: str, because: str, help: str) -> ExecutionFault:
        return fault(self.program, finder, at=at, because=because, help=(help,))
