"""Runs a program of units side by side on numpy arrays, adversarially.

Agents run in random order, by a seed, and one of them lags behind the others. Asynchronous tiles end as late as possible: when an
agent waits for them, or when no agent can go on. Vector clocks alone tell whether two accesses are ordered, not the order in which
they ran; so one run at given sizes shows every race at these sizes, and every standstill.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from random import Random
from typing import Protocol

import numpy as np
import numpy.typing as npt

from offcut.backends.executor.faults import ExecutionFault
from offcut.backends.executor.launch_statements import cheapest
from offcut.backends.executor.leaves import LATE, Footprint, Leaves, Races, box_of
from offcut.backends.executor.state import (
    START,
    Access,
    AgentState,
    AsyncTile,
    Clock,
    Lane,
    LateWrite,
    meet,
)
from offcut.backends.executor.steps import (
    MAIN,
    Agent,
    Place,
    Reader,
    Region,
    Step,
    UnitPath,
    ends_launch,
    is_of_blocks,
)
from offcut.backends.executor.synchronization import Synchronization
from offcut.core.analysis import stored_arrays
from offcut.core.dtypes import ITEM_BYTES, numpy_dtype
from offcut.core.interpret.run_arguments import checked_arrays, checked_sizes, declaration
from offcut.core.interpret.values import Array, evaluate
from offcut.core.program import (
    Action,
    Alloc,
    Choose,
    For,
    If,
    Kind,
    Let,
    Program,
    Stmt,
    Sync,
    Tile,
    walk,
)
from offcut.polyhedral.sync import Agents


class MachineChecks(Protocol):
    """Checks of a machine beside the order of units; each raises ExecutionFault."""

    def check_launch(self, launch: Sequence[Stmt], sizes: Mapping[str, int]) -> None:
        """Check that a launch is no larger than the machine takes."""

    def check_tile(self, agent: Agent, step: Step, places: Mapping[str, Place]) -> None:
        """Check a tile with a cover against its microkernel."""

    def tile_bytes(self, step: Step) -> int:
        """Return the bytes that arrive with an asynchronous tile; 0: those that it writes."""


def execute(
    program: Program,
    inputs: Mapping[str, npt.ArrayLike],
    sizes: Mapping[str, int] | None = None,
    *,
    agents: Agents,
    checks: MachineChecks | None = None,
    expects: Mapping[str, int] | None = None,
    seed: int = 0,
) -> dict[str, Array]:
    """Run `program` by units side by side; return its results by name.

    inputs   an array for each input, constant and inout buffer; none is changed
    sizes    those that no shape determines
    agents   the units of the machine
    checks   of the machine; None: none
    expects  the bytes that each phase of a token's barrier expects
    seed     of the order in which agents run

    Raises CallError for arguments that do not fit the program, ExecutionFault for each fault of `FINDERS`.
    """
    arrays = checked_arrays(program, inputs)
    values = checked_sizes(program, arrays, dict(sizes or {}))
    execution = _Execution(program, arrays, values, agents, checks, expects or {}, seed)
    execution.run()
    return execution.results()


class _Execution(Synchronization):
    def __init__(
        self,
        program: Program,
        arrays: dict[str, Array],
        sizes: dict[str, int],
        agents: Agents,
        checks: MachineChecks | None,
        expects: Mapping[str, int],
        seed: int,
    ) -> None:
        self.program, self.sizes, self.agents = program, sizes, agents
        self.units, self.checks, self.expects = agents.by_name, checks, expects
        self.rng = Random(seed)
        stores = stored_arrays(program.body)
        self.places = {
            buffer.name: self.array_place(buffer.name, arrays, stores)
            for buffer in program.buffers
            if buffer.kind is not Kind.PRIVATE
        }
        self.leaves = Leaves(program, sizes, self.places, agents.own)
        given = {name: array for name, array in arrays.items() if name not in stores}
        self.reader = Reader(program, agents, given)
        self.races = Races(program.name, agents)
        self.lanes: dict[tuple[Agent, int], Lane] = {}
        self.past = START
        self.tokens = {token.name: token for token in program.tokens}

    def array_place(self, name: str, arrays: Mapping[str, Array], stores: set[str]) -> Place:
        """Return the place of a whole array."""
        buffer = self.program.buffer(name)
        shape = tuple(int(evaluate(extent, self.sizes)) for extent in buffer.shape)
        has_windows = any(
            isinstance(stmt, Alloc) and stmt.buffer == name for stmt in walk(self.program)
        )
        memory = buffer.scope or MAIN
        region = Region(name, memory, shape)
        place = Place(region, (0,) * len(shape), shape, buffer.dtype, name in stores)
        if name in arrays:
            place.values = arrays[name].copy() if buffer.kind is Kind.INOUT else arrays[name]
            place.initialized = np.broadcast_to(np.True_, shape)
            if buffer.kind is Kind.INOUT:
                place.initialized = np.ones(shape, bool)
        elif has_windows:  # outside of its windows it has no elements
            place.values = np.empty((0,) * len(shape), numpy_dtype(buffer.dtype))
            place.initialized = np.zeros_like(place.values, bool)
        return place

    def results(self) -> dict[str, Array]:
        """Return the result arrays, by name.

        Raises ExecutionFault for a result with an element that no step has written.
        """
        arrays: dict[str, Array] = {}
        for buffer in self.program.results:
            place = self.places[buffer.name]
            shape = place.extents
            values = place.values
            if values is None or place.initialized is None:
                values = np.empty(shape, numpy_dtype(buffer.dtype))
                place.initialized = np.zeros(shape, bool)
            if not place.initialized.all():
                at = ", ".join(map(str, np.argwhere(~place.initialized)[0]))
                because = f"nobody writes {buffer.name}[{at}]"
                raise self.fault("unwritten", declaration(buffer), because)
            arrays[buffer.name] = values
        return arrays

    # -- launches

    def run(self) -> None:
        """Run the program, launch by launch where units begin anew with each outermost statement."""
        if self.agents.grid is None:
            self.run_launch(self.program.body)
            return
        self.run_launches(self.program.body, self.agents.grid)

    def run_launches(self, body: Sequence[Stmt], grid: str) -> None:
        """Run launches, those of the cheapest option of a choice."""
        for stmt in body:
            self.reader.launch += 1
            if isinstance(stmt, Choose):
                self.run_launches(cheapest(stmt.options, self.sizes).body, grid)
            elif ends_launch(stmt, grid):
                self.meet()
            else:
                self.run_launch((stmt,))

    def run_launch(self, body: Sequence[Stmt]) -> None:
        """Run a launch: block by block where blocks are all there is, else as one."""
        if self.checks is not None:
            self.checks.check_launch(body, self.sizes)
        if self.agents.grid is not None and is_of_blocks(body, self.agents.grid):
            self.launch(body, dict(self.sizes))
        else:
            self.run_agents(body, dict(self.sizes), ())

    def meet(self) -> None:
        """Let all that comes later know of all that was before, however it reads it: a launch ends behind a fence of every kind."""
        clocks = {lane.component: lane.clock for lane in self.lanes.values()}
        self.past = meet(clocks, self.past)

    def launch(self, body: Sequence[Stmt], values: Mapping[str, int]) -> None:
        """Run statements that are loops over blocks, and meetings of these."""
        for stmt in body:
            match stmt:
                case For(name, lo, hi, inner, unit=unit):
                    for value in range(self.value(lo, values), self.value(hi, values)):
                        inner_values = {**values, name: value}
                        if unit is None:
                            self.launch(inner, inner_values)
                        else:
                            self.run_agents(inner, inner_values, ((unit, value),))
                case If(condition, then, other):
                    self.launch(then if evaluate(condition, values) else other, values)
                case Let(name, lo, hi, value, inner):
                    number = self.value(value, values)
                    if not lo <= number < hi:
                        because = f"{name} = {number} is not in {lo}:{hi}"
                        raise self.fault("promise", f"let {name}", because)
                    self.launch(inner, {**values, name: number})
                case Choose(options):
                    self.launch(cheapest(options, values).body, values)
                case Sync():
                    self.meet()

    def value(self, expr: object, values: Mapping[str, int]) -> int:
        """Return the value of an index expression."""
        return int(evaluate(expr, values))  # type: ignore[arg-type]

    def run_agents(self, body: Sequence[Stmt], values: Mapping[str, int], path: UnitPath) -> None:
        """Run statements to their end, the agents of all of them side by side.

        Raises ExecutionFault for agents of which none can go on, and for arrivals that make no token.
        """
        streams = self.reader.read(body, values, path)
        steps = streams.all_steps()
        self.states = [self.state(agent, agent_steps) for agent, agent_steps in steps.items()]
        self.by_agent = {state.agent: state for state in self.states}
        self.rings, self.arrivals, self.landed = {}, [], []
        self.depths = {token.name: self.common_depth(token) for token in self.program.tokens}
        if not self.states:
            return
        lagging = self.rng.choice(self.states)
        while True:
            order = [state for state in self.states if state.steps]
            self.rng.shuffle(order)
            order.sort(key=lambda state: state is lagging)
            others = [self.advance(state) for state in order if state is not lagging]
            progress = any(others)
            if not progress and lagging in order:
                progress = self.advance(lagging)
            if not progress and not self.end_one_tile():
                break
        if any(state.steps for state in self.states):
            raise self.standstill()
        self.check_left_over()
        for state in self.states:
            for tiles in state.issued.values():
                for tile in tiles:
                    tile.end()

    def state(self, agent: Agent, steps: list[Step]) -> AgentState:
        """Return an agent before its first step, with the lanes that it had in earlier launches."""
        unit = self.units[agent.unit]
        lanes = []
        for number in range(2 if unit.lanes else 1):
            if (agent, number) not in self.lanes:
                clock = Clock({(agent, number): 1}, past=self.past)
                self.lanes[agent, number] = Lane((agent, number), clock)
            lanes.append(self.lanes[agent, number])
        return AgentState(agent, unit, deque(steps), lanes)

    # -- steps

    def advance(self, state: AgentState) -> bool:
        """Run an agent until it has to wait; return whether it did anything."""
        progress = False
        while state.steps and self.step(state, state.steps[0]):
            progress = True
        return progress

    def step(self, state: AgentState, step: Step) -> bool:
        """Run the next step of an agent; return False where it has to wait."""
        stmt = step.stmt
        self.running = state
        if not isinstance(stmt, Sync):
            self.leaf(state, step)
        elif stmt.action is Action.BARRIER:
            return self.barrier(state, step, stmt)
        elif stmt.action is Action.WAIT:
            if not self.wait(state, step, stmt):
                return False
        elif stmt.action is Action.ARRIVE:
            self.arrive(state, step, stmt)
        elif stmt.action is Action.WAIT_GROUP:
            self.wait_group(state, stmt, step.engine)
        else:
            self.fence(state, stmt.name)
        state.steps.popleft()
        return True

    def leaf(self, state: AgentState, step: Step) -> None:
        """Run a tile or a store, and compare its accesses; put off the writes of an asynchronous one."""
        stmt = step.stmt
        if self.checks is not None and isinstance(stmt, Tile) and stmt.cover is not None:
            self.checks.check_tile(state.agent, step, {**self.places, **step.places})
        engine = step.engine
        unit = self.units[engine] if engine else None
        if unit is not None and unit.in_order:
            for earlier in state.issued[engine]:
                earlier.end()
        late = self.late_places(step) if unit is not None else {}
        try:
            footprint = self.leaves.run(state.agent, step)
        except ExecutionFault as error:
            raise self.blame_writer(error) from None
        lanes = state.lanes[:1] if unit is not None and unit.engine else state.lanes
        clocks = [lane.clock for lane in lanes]
        if unit is None:
            access = Access(state.agent, step, state.counts)
            self.races.compare(access, footprint, clocks)
            return
        number = len(state.issued[engine]) + 1
        access = Access(state.agent, step, (((state.agent, engine), number),), engine)
        self.races.compare(access, footprint, clocks)
        tile = AsyncTile(access, engine, number, self.put_off(footprint, late))
        state.issued[engine].append(tile)
        arriving = 0 if self.checks is None else self.checks.tile_bytes(step)
        state.bytes += arriving or _bytes_of(footprint)
        state.advance()

    def late_places(self, step: Step) -> dict[Place, tuple[Array | None, Array | None]]:
        """Return copies of the windows that an asynchronous tile writes, from before it does: their values and their masks."""
        names = stored_arrays((step.stmt,))
        return {
            place: (
                None if place.values is None else place.values.copy(),
                None if place.initialized is None else place.initialized.copy(),
            )
            for name, place in step.places.items()
            if name in names
        }

    def put_off(
        self, footprint: Footprint, late: Mapping[Place, tuple[Array | None, Array | None]]
    ) -> list[LateWrite]:
        """Restore the windows that a tile has written; return its writes, to be done when it ends."""
        late_writes = []
        for (place, ends, writes), mask in footprint.items():
            if writes and place in late:
                assert place.values is not None
                assert place.initialized is not None
                box = box_of(ends)
                values, initialized = place.values[box][mask], place.initialized[box][mask]
                late_writes.append(LateWrite(place, box, mask, values.copy(), initialized.copy()))
        for place, (old_values, old_mask) in late.items():
            assert place.values is not None
            assert place.initialized is not None
            if old_values is None or old_mask is None:
                place.initialized[...] = False
            else:
                place.values[...], place.initialized[...] = old_values, old_mask
        return late_writes

    def blame_writer(self, error: ExecutionFault) -> ExecutionFault:
        """Return the error of a read of an element that no step has written.

        It is a race, or a missing wait, if a statement of another agent is about to write the element.
        """
        if error.finder != "uninitialized":
            return error
        what = error.because.removesuffix(", which nobody has written")
        name = what.removeprefix("it reads ").partition("[")[0]
        place = self.leaves.places[name]
        for state in self.states:
            for tiles in state.issued.values():
                for tile in tiles:
                    if not tile.ended and any(write.place is place for write in tile.late):
                        because = f"{what}, which {tile.access} writes{LATE}"
                        return self.fault(
                            "async", error.at, because, self.races.help_of(tile.access)
                        )
        others = (state for state in self.states if state is not self.running)
        for state in () if place.region.memory in self.agents.own else others:
            for step in state.steps:
                is_here = step.places.get(name, self.places.get(name)) is place
                if is_here and name in stored_arrays((step.stmt,)):
                    writer = Access(state.agent, step, (), step.engine)
                    finder = "async" if step.engine else "race"
                    because = f"{what}, which {writer} writes, and nothing orders the two"
                    help = self.races.help_between(writer, self.running.agent)
                    return self.fault(finder, error.at, because, help)
        return error


def _bytes_of(footprint: Footprint) -> int:
    """Return the bytes that a tile writes."""
    return sum(
        int(mask.sum()) * ITEM_BYTES[place.dtype]
        for (place, _, writes), mask in footprint.items()
        if writes
    )
