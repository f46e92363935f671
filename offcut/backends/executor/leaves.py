"""Runs one step of an agent on arrays, and records the elements that it touches."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from offcut.backends.executor.faults import ExecutionFault, fault
from offcut.backends.executor.memory import Box
from offcut.backends.executor.steps import Agent, Place, Step
from offcut.core.expr import Expr, Load
from offcut.core.interpret.interpreter import Machine, poison_array
from offcut.core.interpret.values import Array, InterpreterFault, Lanes, Window, lane_of
from offcut.core.program import Kind, Program, Store, Tile

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
