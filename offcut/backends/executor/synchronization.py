"""The statements of synchronization that agents come to: barriers, tokens, groups, fences; and agents that stand still."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import takewhile
from random import Random

from offcut.backends.executor.faults import ExecutionFault, fault
from offcut.backends.executor.state import AgentState, Arrival, AsyncTile, Clock, Ring, Wait
from offcut.backends.executor.steps import Agent, Step, UnitPath
from offcut.core.program import Action, Program, Sync, Token
from offcut.polyhedral.sync import Agents, Ends, Unit

MAX_PHASE_BYTES = 2**20 - 1
"""Bytes that a barrier can expect in a phase. Source: PTX ISA, mbarrier, "tx-count"."""


class Synchronization:
    """The barriers, tokens and copies that the agents of a launch wait for.

    agents    the units that the machine has
    states    of all agents
    rings     the barriers of a token, by its name and the bound loops around
    arrivals  that count when their copies have ended
    landed    that have counted
    depths    the number of these loops, by token
    expects   the bytes that each phase of a token's barrier expects
    """

    program: Program
    agents: Agents
    units: Mapping[str, Unit]
    expects: Mapping[str, int]
    tokens: dict[str, Token]
    rng: Random
    states: list[AgentState]
    rings: dict[tuple[str, UnitPath], Ring]
    arrivals: list[Arrival]
    landed: list[Arrival]
    depths: dict[str, int]

    def fault(self, finder: str, at: str, because: str, *help: str) -> ExecutionFault:
        """Return the error of a finder."""
        return fault(self.program.name, finder, at=at, because=because, help=help)

    def barrier(self, state: AgentState, step: Step, stmt: Sync) -> bool:
        """Run a barrier of the lanes of one agent, or of all agents of a unit; return False until all of them have come to it."""
        meeting = [other for other in self.states if other.steps and other.steps[0] is step]
        participants = [
            other
            for other in self.states
            if other.agent.unit == stmt.name and other.agent.path[: len(step.path)] == step.path
        ]
        if any(unit == stmt.name for unit, _ in step.path):
            participants = [state]
        if len(meeting) < len(participants):
            return False
        clock = Clock()
        for participant in participants:
            clock.join(participant.joint_clock())
        for participant in participants:
            for lane in participant.lanes:
                lane.clock.join(clock)
            participant.advance()
            participant.steps.popleft()
        return True

    def common_depth(self, token: Token) -> int:
        """Return the number of outer loops that are bound for all agents which arrive at a token, or wait for it.

        The token has barriers of its own for each of their values, and so for each block of a grid.
        """
        bounds = [
            [u for u, _ in state.agent.path if u != state.agent.unit or u == self.agents.grid]
            for state in self.states
            if any(isinstance(s.stmt, Sync) and s.stmt.name == token.name for s in state.steps)
        ]
        shortest = min(map(len, bounds), default=0)
        same = (len({of[depth] for of in bounds}) == 1 for depth in range(shortest))
        return sum(1 for _ in takewhile(bool, same))

    def ring(self, token: Token, agent: Agent) -> Ring:
        """Return the barriers of a token that an agent arrives at or waits for."""
        depth = self.depths[token.name]
        key = (token.name, agent.path[:depth])
        if key not in self.rings:
            self.rings[key] = Ring(token)
        return self.rings[key]

    def arrive(self, state: AgentState, step: Step, stmt: Sync) -> None:
        """Let an agent arrive at a token, once its copies have ended; an arrival in another phase is a fault."""
        token = self.tokens[stmt.name]
        ring, number = self.ring(token, state.agent), state.arrival_counts[token.name]
        state.arrival_counts[token.name] += 1
        clock = state.joint_clock()
        because = ring.too_early(number, clock)
        if because:
            raise self.fault("phase", f"{step.head} on {state.agent}", because)
        tiles = [
            tile
            for engine, issued in state.issued.items()
            if self.units[engine].ends is Ends.TOKEN
            for tile in issued
        ]
        if tiles:
            clock.counts.update({(state.agent, tile.engine): tile.number for tile in tiles})
        arrival = Arrival(state, step, ring, number, state.counts, clock, tiles, state.bytes)
        state.bytes = 0
        state.advance()
        if all(tile.ended for tile in tiles):
            self.land(arrival)
        else:
            self.arrivals.append(arrival)

    def land(self, arrival: Arrival) -> None:
        """Count an arrival at its token.

        Raises ExecutionFault if it is too many, in another phase, or completes a token with other bytes than expected.
        """
        ring, token = arrival.ring, arrival.ring.token
        at = f"{arrival.step.head} on {arrival.state.agent}"
        count = arrival.state.unit.arrivals
        bytes = arrival.bytes if arrival.tiles else 0
        finder, because = ring.add(arrival.number, count, arrival.counts, arrival.clock, bytes)
        if finder:
            raise self.fault(finder, at, because)
        self.landed.append(arrival)
        if ring.is_done(arrival.number):
            total = ring.bytes[arrival.number]
            expected = self.expects.get(token.name, total)
            if total != expected or total > MAX_PHASE_BYTES:
                limit = expected if total != expected else MAX_PHASE_BYTES
                because = f"{total} bytes arrive with {token.name}, and its barrier expects {limit}"
                raise self.fault("bytes", at, because)

    def wait(self, state: AgentState, step: Step, stmt: Sync) -> bool:
        """Let an agent wait for a token; return False until the token has all of its arrivals."""
        token = self.tokens[stmt.name]
        ring, number = self.ring(token, state.agent), state.wait_counts[token.name]
        if not ring.is_done(number):
            return False
        if ring.is_done(number + token.room):
            because = f"its phase has ended twice: token {number + token.room} of {token.name} is there, too, with room for {token.room}"
            raise self.fault("phase", f"{step.head} on {state.agent}", because)
        ring.waits[number].append(Wait(str(state.agent), state.counts))
        state.wait_counts[token.name] += 1
        for lane in state.lanes:
            for clock in ring.clocks[number]:
                lane.clock.join(clock)
        state.advance()
        return True

    def wait_group(self, state: AgentState, stmt: Sync, engine: str) -> None:
        """End the tiles that an agent has issued, except for the last ones, as many as may stay pending."""
        tiles = state.issued[engine]
        complete = tiles[: max(len(tiles) - stmt.pending, 0)]
        order = [*complete]
        if not self.units[engine].in_order:
            self.rng.shuffle(order)
        for tile in order:
            tile.end()
        lanes = state.lanes[:1] if self.units[engine].engine else state.lanes
        for lane in lanes:
            lane.clock.counts[state.agent, engine] = len(complete)

    def fence(self, state: AgentState, kind: str) -> None:
        """Make the writes that the lanes of an agent know of visible to an engine."""
        for lane in state.lanes:
            fenced = lane.clock.fenced.setdefault(kind, {})
            fenced[lane.component] = lane.clock.counts[lane.component]
            for engine in state.issued:
                number = lane.clock.count((state.agent, engine))
                fenced[state.agent, engine] = number
        state.advance()

    def end_one_tile(self) -> bool:
        """End the tiles of one pending arrival, and count the arrivals whose tiles have all ended; return False if none is pending."""
        if not self.arrivals:
            return False
        arrival = self.rng.choice(self.arrivals)
        for tile in arrival.tiles:
            tile.end()
        for complete in [a for a in self.arrivals if all(tile.ended for tile in a.tiles)]:
            self.arrivals.remove(complete)
            self.land(complete)
        return True

    def standstill(self) -> ExecutionFault:
        """Return the error for a deadlock: no agent can continue."""
        waiting = [state for state in self.states if state.steps]
        lines = [f"{state.agent} waits at {self.reason(state)}" for state in waiting[:4]]
        first = waiting[0]
        more = f"; and {len(waiting) - 4} more wait" if len(waiting) > 4 else ""
        return self.fault(
            "standstill", f"{first.steps[0].head} on {first.agent}", "; ".join(lines) + more
        )

    def reason(self, state: AgentState) -> str:
        """Return what an agent waits for, as text."""
        step = state.steps[0]
        stmt = step.stmt
        assert isinstance(stmt, Sync)
        if stmt.action is Action.WAIT:
            token, number = self.tokens[stmt.name], state.wait_counts[stmt.name]
            ring = self.ring(token, state.agent)
            return f"{step.head} for token {number}: {ring.count_arrivals(number)} of {token.count} arrivals of {token.source}"
        others = [
            str(other.agent)
            for other in self.states
            if other.agent.unit == stmt.name
            and other.agent.path[: len(step.path)] == step.path
            and not (other.steps and other.steps[0] is step)
        ]
        return f"{step.head} for {', '.join(others)}"

    def check_left_over(self) -> None:
        """Check that no token has some of its arrivals, but not all, and that somebody waits for what is copied to a window."""
        for ring in self.rings.values():
            number, count = ring.incomplete()
            if count:
                token = ring.token
                because = f"{count} of {token.count} arrivals make token {number}, and no more come"
                raise self.fault("arrivals", f"token {token.name}", because)
        awaited = {
            id(tile)
            for arrival in self.landed
            if arrival.ring.waits[arrival.number]
            for tile in arrival.tiles
        }
        for state in self.states:
            for engine, tiles in state.issued.items():
                by_token = self.units[engine].ends is Ends.TOKEN
                for tile in tiles:
                    if not (id(tile) in awaited if by_token else tile.ended):
                        self.check_windows(tile)

    def check_windows(self, tile: AsyncTile) -> None:
        """Check that a tile whose end nobody waits for writes no window that several agents have."""
        names = [
            write.place.region.name
            for write in tile.late
            if write.place.region.memory not in self.agents.own
        ]
        if names:
            because = f"nobody waits for its end, and {names[0]} is gone behind its loop"
            raise self.fault("async", str(tile.access), because)
