"""Runs one step of an agent on arrays, records the elements that it touches, and compares accesses for races.

Compares accesses of agents to one element; raises the fault of two that nothing orders.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from offcut.backends.executor.faults import ExecutionFault, fault
from offcut.backends.executor.state import Access, Box, Clock, Shadow
from offcut.backends.executor.steps import Agent, Place, Region, Step
from offcut.core.expr import Expr, Load
from offcut.core.interpret.interpreter import Machine, poison_array
from offcut.core.interpret.values import Array, InterpreterFault, Lanes, Window, lane_of
from offcut.core.program import Kind, Program, Store, Tile
from offcut.polyhedral.sync import Agents, Ends

Footprint = dict[tuple[Place, tuple[tuple[int, int], ...], bool], Array]
"""The elements that a step touches: by place, ends of a box, and whether it writes, a mask of the elements of that box."""


class Leaves(Machine):
    """The interpreter on the memory of the agents, one step after the other.

    arrays   the place of each buffer that is no window
    own      the memories of which each agent has its own
    private  the buffers that each agent has a copy of
    """

    def __init__(
        self,
        program: Program,
        sizes: dict[str, int],
        arrays: Mapping[str, Place],
        own: Collection[str],
    ) -> None:
        values = {b.name: np.empty((0,) * len(b.shape), np.int8) for b in program.buffers}
        super().__init__(program, values, sizes, None, together=True)
        self.sizes, self.arrays, self.own_memories = sizes, dict(arrays), own
        self.private = {b.name: b for b in program.buffers if b.kind is Kind.PRIVATE}
        self.own: dict[tuple[Agent, str], Array] = {}
        self.places: dict[str, Place] = {}
        self.agents: dict[Agent, int] = {}
        self.footprint: Footprint = {}
        self.reading, self.updates = 0, False
        self.copied: Array | None = None

    def run(self, agent: Agent, step: Step) -> Footprint:
        """Run a step; return the elements that it touched.

        Raises ExecutionFault for an access out of bounds, and for a read of an element that no step has written.
        """
        self.agent, self.step, self.footprint = agent, step, {}
        self.places = {**self.arrays, **step.places}
        self.windows = {}
        for name, place in self.places.items():
            if place.values is None:
                place.values = poison_array(place.extents, place.dtype)
                place.initialized = np.zeros(place.extents, bool)
            self.memory[name] = place.values
        for name, place in step.places.items():
            starts = tuple(np.asarray(start, np.int64) for start in place.starts)
            extents = tuple(np.asarray(extent, np.int64) for extent in place.extents)
            self.windows[name] = Window(starts, extents, 0)
        for name, buffer in self.private.items():
            if (agent, name) not in self.own:
                self.own[agent, name] = self.fresh(buffer, self.sizes)
            self.memory[name] = self.own[agent, name]
        try:
            with np.errstate(all="ignore"):
                self.block((step.stmt,), lane_of(step.values))
        except InterpreterFault as error:
            raise self.fault(_finder_of(error), f"{error.what}: {error.because}") from error
        return self.footprint

    def fault(self, finder: str, because: str, *help: str) -> ExecutionFault:
        """Return the error of a finder in the step that runs."""
        at = f"{self.step.head} on {self.agent}"
        return fault(self.program.name, finder, at=at, because=because, help=help)

    def _load(self, name: str, index: tuple[Expr, ...], lanes: Lanes) -> Array:
        self.reading += 1
        try:
            return super()._load(name, index, lanes)
        finally:
            self.reading -= 1

    def store(self, stmt: Store, lanes: Lanes) -> None:
        """Store a value; an update reads the element as well. What the load unit copies of an element that nobody has written is another such element."""
        self.updates = stmt.reduce is not None
        loads = isinstance(self.step.stmt, Tile) and self.step.stmt.unit == "load"
        is_copy = loads and isinstance(stmt.value, Load) and not self.updates
        self.copied = np.ones((), bool) if is_copy else None
        super().store(stmt, lanes)
        self.copied = None

    def element(
        self, name: str, index: tuple[Expr, ...], lanes: Lanes
    ) -> tuple[Array, tuple[Array, ...]]:
        """Return the memory and the indices of an access, and record it."""
        memory, parts = super().element(name, index, lanes)
        place = self.places.get(name)
        if place is not None and name not in (lanes.own or {}) and 0 not in place.extents:
            self.note(place, parts, lanes.mask, self.reading == 0)
        return memory, parts

    def note(self, place: Place, parts: tuple[Array, ...], mask: Array, writes: bool) -> None:
        """Record an access to elements of a place."""
        if not mask.any():
            return
        if not mask.all():
            *spread, active = np.broadcast_arrays(*parts, mask)
            parts = tuple(part[active] for part in spread)
        mask_so_far = place.initialized
        assert mask_so_far is not None
        if not writes or self.updates:
            initialized = np.asarray(mask_so_far[parts])
            if self.copied is not None:
                self.copied = initialized
            elif not initialized.all():
                element = _element(place, parts, ~initialized)
                because = f"it reads {element}, which nobody has written"
                raise self.fault("uninitialized", because)
        if place.region.memory in self.own_memories:
            self.check_owner(place, parts)
        if writes:
            mask_so_far[parts] = True if self.copied is None else self.copied
            self.bury(place, parts)
        if place.tracked:
            ends = tuple((int(part.min()), int(part.max()) + 1) for part in parts)
            reads = (False,) if not writes else (False, True) if self.updates else (True,)
            for kind in reads:
                if (place, ends, kind) not in self.footprint:
                    shape = [stop - start for start, stop in ends]
                    self.footprint[place, ends, kind] = np.zeros(shape, bool)
                self.footprint[place, ends, kind][
                    tuple(p - start for p, (start, _) in zip(parts, ends, strict=True))
                ] = True

    def bury(self, place: Place, parts: tuple[Array, ...]) -> None:
        """Mark elements of the outer window as not initialized, where this one, which lies in its place, is written."""
        outer = place.outer
        if outer is None or outer.initialized is None:
            return
        room = outer.initialized.shape
        in_range = [part < extent for part, extent in zip(parts, room, strict=True)]
        if all(part_in_range.all() for part_in_range in in_range):
            outer.initialized[parts] = False

    def check_owner(self, place: Place, parts: tuple[Array, ...]) -> None:
        """Check that no agent touches registers of another one."""
        number = self.agents.setdefault(self.agent, len(self.agents) + 1)
        if place.owner is None:
            place.owner = np.zeros(place.extents, np.int32)
        owner = np.asarray(place.owner[parts])
        others = (owner != 0) & (owner != number)
        if others.any():
            other_agent = [*self.agents][int(owner[others].flat[0]) - 1]
            because = f"it touches {_element(place, parts, others)}, in registers of {other_agent}"
            raise self.fault("registers", because, "a window in shared memory")
        place.owner[parts] = number


def _element(place: Place, parts: tuple[Array, ...], bad: Array) -> str:
    """Return the first element of an access at which `bad` holds, as text."""
    spread = np.broadcast_arrays(*parts, bad)
    at = tuple(int(where[0]) for where in np.nonzero(spread[-1])) if spread[-1].ndim else ()
    index = [int(part[at]) + s for part, s in zip(spread, place.starts, strict=False)]
    return f"{place.region.name}[{', '.join(map(str, index))}]"


def _finder_of(error: InterpreterFault) -> str:
    if "is outside" in error.what:
        return "bounds"
    return "instances" if "instances" in error.what else "promise"


def box_of(ends: tuple[tuple[int, int], ...]) -> Box:
    """Return the box of the ends of its axes."""
    return tuple(slice(start, stop) for start, stop in ends)


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
