"""Proves that the statements of synchronization of a program keep the order of its text.

Agents run at any speed, asynchronous tiles end at any time. Yet each pair (a, b) of instances that touch one place, one of
them writing, runs in the order of the text if a path leads from a to b. Its steps are:

    a ends            at once; or, of an asynchronous tile, where its agent waits for its group; or where it arrives
    agent             from an instance to each later one of the same agent
    token             from the k-th arrival of each agent to the k-th wait of each one that waits
    barrier           from an instance of any agent of a unit before it to an instance of any other one after it

**The k-th for the k-th.** Let M(w, s) be the last arrival of agent s that some pair needs before wait w. If M is defined
for every wait and rises with it, from the first arrival on without a gap, then it is the only such map, so that the k-th
wait is for the k-th arrival, whatever the speed. If it is not, waits may be for later arrivals than they need: the map to
the last arrival before a wait in the text, or to one a few before, may be such.

**No standstill.** M(w, s) stands before w in the text, and tokens find room. So all agents run to their ends where they
run in the order of the text; as nothing that one does stops what another one could do, they do in any other order.
Room: of a queue in hardware, no more than so many tokens lie in it in the order of the text. Of barriers with phases,
each agent's arrival ``k + room`` comes after some wait for the k-th token: so phase k has ended, and takes no arrival of
another one. And each wait for the k-th token comes before some arrival ``k + room``: so no agent finds that its phase has
ended twice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import reduce
from math import prod

import islpy as isl

from offcut.core import index as ix
from offcut.core.memo import lazy_property
from offcut.core.program import Action, Sync, Token
from offcut.errors import PartitionError
from offcut.polyhedral.affine import parse_map, parse_set
from offcut.polyhedral.sync.agent_steps import AgentSteps
from offcut.polyhedral.sync.agents import Ends
from offcut.polyhedral.sync.events import (
    Event,
    Key,
    by_one_lane,
    multicast_keys,
    sync_error,
)
from offcut.polyhedral.sync.relations import Relations
from offcut.polyhedral.sync.room import fits_capacity, max_tokens
from offcut.polyhedral.sync.run_at_sizes import TOUCHES

MAX_AHEAD = 2
"""The most arrivals that may stand between a wait and the arrival that it is for, in the maps of `matches_by_order`."""


@dataclass(frozen=True)
class Pair:
    """Instances of two leaves, as ``{ a -> b }``: b has to wait for a."""

    one: Event
    other: Event
    map: isl.Map


@dataclass(frozen=True)
class Match:
    """The arrivals that each wait for a token is for.

    arrivals  ``{ [wait, agent] -> arrival }``
    waits     all waits for the token
    arrives   all arrivals of it
    by_need   whether each wait is for the last arrival that some pair needs; False: some are for later ones
    """

    token: Token
    arrivals: isl.Map
    waits: isl.Set
    arrives: isl.Set
    by_need: bool = True


class Order(AgentSteps):
    """The pairs of a program that have to be ordered, and the statements of synchronization that order them."""

    def __init__(
        self, relations: Relations, pairs: Sequence[Pair], without: Collection[int] = ()
    ) -> None:
        """Check the loops of the units.

        without   the numbers of statements of synchronization that are ignored

        Raises PartitionError where the agents of a unit are not known.
        """
        super().__init__(relations, without)
        self.pairs = pairs
        self.program = self.events.program
        self.more = [f"s{at}" for at in range(len(relations.keys))]
        self._edges: dict[str, isl.Map] = {}
        self.check_units()

    def check_units(self) -> None:
        """Check that all statements that a unit runs stand in loops that are bound to the same units."""
        known: dict[str, Event] = {}
        for event in (*self.events.leaves, *self.events.syncs):
            barrier = isinstance(event.stmt, Sync) and event.stmt.action is Action.BARRIER
            if barrier or not self.units[event.unit].fixed:
                continue
            other = known.setdefault(event.unit, event)
            if other.keys.keys() != event.keys.keys():
                raise self.refuse(
                    f"`{event.head}`",
                    f"which {event.unit} does it is not said: `{other.head}` stands in other loops of units",
                )

    # -- tokens ----------------------------------------------------------------------------------------------

    @lazy_property
    def matches(self) -> Mapping[str, Match]:
        """Return the match of each token, by its name, as `match` checks it."""
        result = {}
        ends = set[tuple[str, str]]()
        for token in self.program.tokens:
            if (token.source, token.target) in ends:
                raise self.refuse(
                    f"token {token.name}",
                    f"another token goes from {token.source} to {token.target}: one orders all that they do",
                )
            ends.add((token.source, token.target))
            result[token.name] = self.match(token)
        return result

    def match(self, token: Token) -> Match:
        """Return the arrivals that the waits for a token are for.

        Raises PartitionError if the k-th wait is not for the k-th arrival.
        """
        relations = self.relations
        arrives = relations.union(self.syncs(Action.ARRIVE, token.name))
        waits = relations.union(self.syncs(Action.WAIT, token.name))
        needed = relations.no_pairs
        for pair, pairs in self.between(token.source, token.target):
            ends = self.start(pair.one, pair.other).intersect_domain(pairs.domain())
            to = ends.apply_range(self.following(arrives, ends.range()))
            before = relations.own_since.intersect_domain(waits).intersect_range(pairs.range())
            last_before = before.reverse().lexmax()
            needed = needed.union(to.reverse().apply_range(pairs).apply_range(last_before))
        last = self.by_agent(needed.reverse()).lexmax().coalesce()
        match = Match(token, last, waits, arrives)
        try:
            self.check_match(match)
        except PartitionError:
            for candidate in self.matches_by_order(match):
                with suppress(PartitionError):
                    self.check_match(candidate)
                    return candidate
            raise
        return match

    def matches_by_order(self, match: Match) -> Iterator[Match]:
        """Yield candidate maps from the k-th wait to the k-th arrival, for waits that are for later arrivals than pairs need.

        The first one maps a wait to the last arrival before it in the text, the next one to the arrival before that, and so on.
        """
        earlier = self.relations.later.intersect_domain(match.arrives).intersect_range(match.waits)
        rest = self.by_agent(earlier.reverse()).intersect_domain(self.all_agents(match))
        for _ in range(MAX_AHEAD + 1):
            arrivals = rest.lexmax()
            rest = rest.subtract(arrivals)
            yield replace(match, arrivals=arrivals.coalesce(), by_need=False)

    def between(self, source: str, target: str) -> Iterator[tuple[Pair, isl.Map]]:
        """Return the pairs from one unit to another one, as a token between them orders them: alike for all agents that arrive
        for one token, for all that wait for it, and for all to whom a copy goes.
        """
        some = self.pairs_of(source, target)
        mine, theirs = self.keys_of(source), self.keys_of(target)
        spans = multicast_units(some)
        for pair in some:
            map = self.relations.widen(pair.map, {*spans, *theirs - mine}, pair.other)
            map = self.relations.widen(map.reverse(), mine - theirs, pair.one).reverse()
            yield pair, map.intersect(self.relations.later)

    def pairs_of(self, source: str, target: str) -> list[Pair]:
        """Return the pairs whose first instance one unit runs, and whose second another one."""
        return [p for p in self.pairs if (p.one.unit, p.other.unit) == (source, target)]

    def by_agent(self, needed: isl.Map) -> isl.Map:
        """Return ``{ [w, s] -> a }`` of ``{ w -> a }``: s is the agent of a."""
        relations = self.relations
        dims, more = relations.dims, self.more
        ones = [f"{name}_" for name in dims]
        agent = " and ".join(f"{s} = {a}_" for s, a in zip(more, relations.agents, strict=True))
        same = f"{{ [{', '.join((*dims, *more))}] -> [{', '.join(ones)}] : {agent or 'true'} }}"
        return self.without_agent.apply_range(needed).intersect(
            parse_map(relations.space.parameters + same)
        )

    def keeps_order(self, match: Match) -> isl.Map:
        """Return ``{ a -> w }``: an arrival, and every wait that is for it."""
        return match.arrivals.reverse().apply_range(self.without_agent)

    def check_match(self, match: Match) -> None:
        """Check the theorem: M is defined for every wait, rises with it, leaves no gap, and stands before it in the text.

        Raises PartitionError with a wait or an arrival for which it does not hold.
        """
        relations, source = self.relations, match.token.source
        missing = self.all_agents(match).subtract(match.arrivals.domain())
        self.reject_any(
            missing.apply(self.without_agent),
            f"no arrival is for this wait: nothing behind it needs what {source} does",
            "a wait for each arrival, and none more",
        )
        rising = relations.order("<<", relations.agents, self.more)
        risen = match.arrivals.reverse().apply_range(rising).apply_range(match.arrivals)
        shared = risen.subtract(relations.next_own).domain()
        self.reject_any(shared, "two waits of an agent are for this arrival")
        self.check_gaps(match)
        late = self.keeps_order(match).subtract(relations.later).range()
        because = f"{source} arrives only behind it in the text: both would wait for ever"
        self.reject_any(late, because)

    def check_gaps(self, match: Match) -> None:
        """Check that some wait is for each arrival: for each between two others, and for all where a queue keeps them."""
        relations, ordered = self.relations, self.keeps_order(match)
        used = self.by_agent(ordered).domain()
        earlier = used.apply(relations.order(">>", relations.agents, self.more))
        arrived = self.without_agent.intersect_range(match.arrives).domain()
        gap = earlier.intersect(arrived).subtract(used).apply(self.without_agent)
        if self.events.agents.blocks:
            gap = gap.union(match.arrives.subtract(ordered.domain()))
        because = f"no wait of {match.token.target} is for this arrival"
        self.reject_any(gap, because, "an arrival for each wait, and none more")

    @lazy_property
    def without_agent(self) -> isl.Map:
        """``{ [w, s] -> w }``."""
        dims, more = self.relations.dims, self.more
        text = f"{{ [{', '.join((*dims, *more))}] -> [{', '.join(dims)}] }}"
        return parse_map(self.relations.space.parameters + text)

    def all_agents(self, match: Match) -> isl.Set:
        """Return ``{ [w, s] }``: each wait, and every agent that has to arrive for it."""
        relations, token = self.relations, match.token
        shared = self.keys_of(token.target) & self.keys_of(token.source)
        ranges = self.agent_ranges(token.source, token.target)
        parts = []
        for name, axis, key in zip(self.more, relations.agents, relations.keys, strict=True):
            if key in ranges:
                lo, hi = ranges[key]
                parts.append(f"{lo} <= {name} < {hi}")
            else:
                parts.append(f"{name} = {axis if key in shared else 0}")
        dims = ", ".join((*relations.dims, *self.more))
        text = f"{{ [{dims}] : {' and '.join(parts) or 'true'} }}"
        every = parse_set(relations.space.parameters + text)
        return every.intersect(self.without_agent.intersect_range(match.waits).domain())

    def agent_ranges(self, source: str, target: str) -> dict[Key, tuple[int, int]]:
        """Return the loops whose agents all arrive for one token, each with its first iteration and its end.

        Raises PartitionError if one of these is not a literal.
        """
        mine, theirs = self.keys_of(source), self.keys_of(target)
        spans = multicast_units(self.pairs_of(source, target))
        result = {}
        for key in sorted(mine):
            if key in theirs and key not in spans:
                continue
            loops = {
                (ix.literal_value(one.keys[key].lo), ix.literal_value(one.keys[key].hi))
                for one in (*self.events.leaves, *self.events.syncs)
                if one.unit == source and key in one.keys
            }
            (lo, hi), *more = loops
            if more or lo is None or hi is None:
                raise self.refuse(
                    f"for … @{key[0]}",
                    f"how many agents of {key[0]} there are is not a number: tokens count them",
                )
            result[key] = (lo, hi)
        return result

    def count(self, source: str, target: str) -> int:
        """Return the number of arrivals for one token: those of an `arrive`, times the agents that have to arrive.

        Raises PartitionError if their number is not a literal.
        """
        ranges = self.agent_ranges(source, target)
        return prod(hi - lo for lo, hi in ranges.values()) * self.units[source].arrivals

    def keys_of(self, unit: str) -> frozenset[Key]:
        """Return the loops whose iterations are agents of a unit."""
        events = (*self.events.leaves, *self.events.syncs)
        return frozenset(key for event in events if event.unit == unit for key in event.keys)

    # -- paths -----------------------------------------------------------------------------------------------

    def unordered_part(self, pair: Pair) -> isl.Map:
        """Return the part ``{ a -> b }`` of a pair that no path is shown to order."""
        one, other, relations = pair.one, pair.other, self.relations
        rest = self.across_agents(pair) if one.unit == other.unit else pair.map
        if rest.is_empty():
            return rest
        start = self.start(one, other)
        rest = self.without_direct(rest, start, one.unit, other.unit)
        if rest.is_empty():
            return rest
        by_token = bool(one.engine) and self.units[one.engine].ends is Ends.TOKEN
        rest = self.unreached_part(rest, start, one.unit, other.unit, by_token=by_token)
        return rest.intersect(relations.later)

    def without_direct(self, pairs: isl.Map, start: isl.Map, source: str, target: str) -> isl.Map:
        """Return the part of ``{ a -> b }`` that the token between their units does not order.

        It orders a pair if an arrival follows the end of a, and a wait stands before b: as the last arrival that
        a pair needs is for that wait (`match`), it is this one or a later one.

        start   ``{ a -> x }``: where paths from a begin
        """
        relations, since = self.relations, self.relations.own_since
        for match in self.matches.values():
            ends = match.token.source, match.token.target
            if match.by_need and ends == (source, target):
                arriving = since.intersect_range(match.arrives).domain()
                early = start.intersect_range(arriving).domain()
                late = since.intersect_domain(match.waits).range()
                direct = pairs.intersect_domain(early).intersect_range(late)
                pairs = pairs.subtract(direct.intersect(relations.later))
        return pairs

    def across_agents(self, pair: Pair) -> isl.Map:
        """Return the part of a pair of one unit that the order of each agent alone does not keep."""
        one, other = pair.one, pair.other
        if not self.units[one.unit].fixed:
            return pair.map
        if one.engine and one.engine == other.engine and self.units[one.engine].in_order:
            return pair.map.subtract(self.relations.next_own)
        if one.engine and self.units[one.engine].ends is Ends.TOKEN:
            return pair.map
        ends = self.start(one, other)
        if by_one_lane(self.units, one, other):
            ends = ends.apply_range(self.lanes_meet)
        return pair.map.subtract(ends.apply_range(self.relations.own_since))

    def unreached_part(
        self, pairs: isl.Map, start: isl.Map, source: str, target: str, by_token: bool = False
    ) -> isl.Map:
        """Return the part of ``{ a -> b }`` along which no path of tokens and barriers leads.

        start           ``{ a -> x }``: where paths from a begin
        source, target  the units of a and of b
        by_token        whether the first step has to be a token
        """
        fronts: dict[str, isl.Map] = {source: start}
        for hop in range(len(self.units) + 1):
            reached: dict[str, list[isl.Map]] = {}
            for unit, front in fronts.items():
                for next_unit, edge in self.edges(unit, only_tokens=by_token and hop == 0):
                    reached.setdefault(next_unit, []).append(front.apply_range(edge))
            unions = {unit: reduce(isl.Map.union, maps) for unit, maps in reached.items()}
            fronts = {unit: front for unit, front in unions.items() if not front.is_empty()}
            if target in fronts:
                pairs = pairs.subtract(fronts[target].apply_range(self.relations.own_since))
            if pairs.is_empty() or not fronts:
                break
        return pairs

    def edge(self, match: Match) -> isl.Map:
        """Return ``{ x -> w }``: the waits that are for the first arrival at or after x."""
        name = match.token.name
        if name not in self._edges:
            following = self.following(match.arrives)
            self._edges[name] = following.apply_range(self.keeps_order(match)).coalesce()
        return self._edges[name]

    def edges(self, unit: str, only_tokens: bool) -> Iterator[tuple[str, isl.Map]]:
        """Return the steps from instances of a unit: the unit that each leads to, and ``{ x -> y }``."""
        for match in self.matches.values():
            if match.token.source == unit:
                yield match.token.target, self.edge(match)
        if not only_tokens and unit in self.all_meet:
            yield unit, self.all_meet[unit]

    # -- the theorem -----------------------------------------------------------------------------------------

    def check(self) -> None:
        """Check that every pair is ordered, and that no unit stands still.

        Raises PartitionError with two instances that may run at once, or with the token that has no room.
        """
        for token in self.program.tokens:
            self.check_count(token)
        for match in self.matches.values():
            self.check_room(match)
        for pair in self.pairs:
            rest = self.unordered_part(pair)
            if not rest.is_empty():
                one, first, sizes = self.relations.describe(rest.domain())
                other = self.relations.describe(rest.intersect_domain(first).range())[0]
                raise self.refuse(other, sizes + TOUCHES.format(one))

    def check_count(self, token: Token) -> None:
        """Check that a token is used, and counts one arrival of each agent that has to arrive for it."""
        if not any(one.stmt.name == token.name for one in self.events.syncs):
            because = "nothing arrives at it, and nothing waits for it"
            raise self.refuse(f"token {token.name}", because, "leave it out")
        count = self.count(token.source, token.target)
        if count != token.count:
            raise self.refuse(
                f"token {token.name} counts {token.count}",
                f"{count} arrivals of {token.source} make each one that {token.target} waits for",
                f"token {token.name}: {token.source} -> {token.target} count {count} room {token.room}",
            )

    def check_room(self, match: Match) -> None:
        """Check that as many tokens find room as are under way at once."""
        token = match.token
        if not self.has_room(match, token.room):
            raise self.refuse(
                f"token {token.name}",
                f"more than {token.room} may be under way at once: its room is {token.room}",
                "more room, or fewer windows that take turns (depth)",
            )
        limit = self.events.agents.room
        if limit is not None and token.room > limit:
            raise self.refuse(
                f"token {token.name}", f"its room is {token.room}, and the machine has {limit}"
            )

    def has_room(self, match: Match, room: int) -> bool:
        """Return whether `room` tokens are enough, see the head of this file."""
        ahead, token = self.keeps_order(match).reverse(), match.token
        if self.events.agents.blocks:
            pairs = self.pairs_of(token.source, token.target)
            few = max_tokens([p.one for p in pairs], [p.other for p in pairs], self.events.parts)
            return (match.by_need and few <= room) or fits_capacity(ahead, room)
        following = self.next_of(match.arrives)
        for _ in range(room):
            ahead = ahead.apply_range(following)
        if ahead.is_empty():
            return True
        waits = match.waits.identity()
        behind = ahead.subtract(self.unreached_part(ahead, waits, token.target, token.source))
        # A phase ends before any agent arrives for the one after it, and not once more before an agent has waited for it.
        started = ahead.range().subtract(behind.range())
        passed = ahead.domain().subtract(behind.domain())
        return bool(started.is_empty() and passed.is_empty())

    def refuse(self, at: str, because: str, *help: str) -> PartitionError:
        """Return the error for the program."""
        return sync_error(self.program, at, because, *help)

    def reject_any(self, instances: isl.Set, because: str, *help: str) -> None:
        """Raise PartitionError with the least of `instances`, if there is one."""
        if not instances.is_empty():
            at, _, sizes = self.relations.describe(instances)
            raise self.refuse(at, sizes + because, *help)


def multicast_units(pairs: Iterable[Pair]) -> tuple[Key, ...]:
    """Return the units over which a copy among the second leaves of pairs goes to all agents at once."""
    return tuple(dict.fromkeys(key for pair in pairs for key in multicast_keys(pair.other)))


_OF_TOKENS = (Action.ARRIVE, Action.WAIT)
