"""Steps of agents: from an instance of a statement to the next statement of its agent, and to where asynchronous tiles end."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import islpy as isl

from offcut.core.memo import lazy_property
from offcut.core.program import Action
from offcut.polyhedral.sync.agents import Ends, Unit
from offcut.polyhedral.sync.events import Event, fence_between
from offcut.polyhedral.sync.relations import Relations


class AgentSteps:
    """The steps of the agents of a program, as relations ``{ x -> y }`` between instances of statements.

    without   the numbers of statements of synchronization that are ignored
    """

    def __init__(self, relations: Relations, without: Collection[int] = ()) -> None:
        self.relations, self.without = relations, without
        self.events = relations.events
        self.units: Mapping[str, Unit] = self.events.units

    def syncs(self, action: Action, name: str | None = None) -> list[Event]:
        """Return the statements of synchronization of one kind, of one name unless that is None."""
        return [
            event
            for event in self.events.syncs
            if event.stmt.action is action
            and name in (None, event.stmt.name)
            and event.number not in self.without
        ]

    def following(self, targets: isl.Set, sources: isl.Set | None = None) -> isl.Map:
        """Return ``{ x -> y }``: the first of `targets` that the agent of x, one of `sources` (None: any), reaches, at x or later."""
        later = self.relations.own_since.intersect_range(targets)
        return (later if sources is None else later.intersect_domain(sources)).lexmin()

    def next_after_end(self, leaf: Event) -> isl.Map:
        """Return ``{ a -> x }``: the first x of the same agent that runs after the end of a, an instance of a leaf; a itself
        where a token tells its end.
        """
        own = self.relations.of(leaf).identity()
        if not leaf.engine or self.units[leaf.engine].ends is Ends.TOKEN:
            return own
        issues = self.relations.union(
            one for one in self.events.leaves if (one.engine, one.unit) == (leaf.engine, leaf.unit)
        )
        following = self.next_of(issues)
        result = self.relations.no_pairs
        groups = [one for one in self.syncs(Action.WAIT_GROUP) if one.engine == leaf.engine]
        reached, done = own, 0
        for pending in sorted({one.stmt.pending for one in groups}):
            for _ in range(pending - done):
                reached = reached.apply_range(following)
            done = pending
            waits = self.relations.union(one for one in groups if one.stmt.pending == pending)
            after = self.relations.next_own.intersect_range(waits)
            result = result.union(reached.apply_range(after))
        return result.lexmin()

    def next_of(self, some: isl.Set) -> isl.Map:
        """Return ``{ x -> y }``: y follows x among those of `some` that one agent runs."""
        return self.relations.next_own.intersect_domain(some).intersect_range(some).lexmin()

    def start(self, one: Event, other: Event) -> isl.Map:
        """Return ``{ a -> x }``: the first x of the same agent after the end of a, an instance of `one`, and behind the fence
        that `other` needs to see what a writes.
        """
        ends, kind = self.next_after_end(one), fence_between(self.units, one, other)
        if not kind:
            return ends
        fences = self.relations.union(self.syncs(Action.FENCE, kind))
        return ends.apply_range(self.following(fences))

    @lazy_property
    def lanes_meet(self) -> isl.Map:
        """``{ x -> y }``: the next barrier among the lanes of an agent."""
        inner = [b for b in self.syncs(Action.BARRIER) if any(k[0] == b.unit for k in b.keys)]
        return self.following(self.relations.union(inner))

    @lazy_property
    def all_meet(self) -> Mapping[str, isl.Map]:
        """By unit, ``{ x -> y' }``: the next barrier of all its agents, as any of them comes to it."""
        barriers = self.syncs(Action.BARRIER)
        result: dict[str, isl.Map] = {}
        for unit in {barrier.unit for barrier in barriers}:
            outer = [b for b in barriers if b.unit == unit and all(k[0] != unit for k in b.keys)]
            agents = [key for key in self.relations.keys if key[0] == unit]
            next_barrier = self.following(self.relations.union(outer))
            result[unit] = next_barrier.apply_range(self.relations.any_agent(agents))
        return result
