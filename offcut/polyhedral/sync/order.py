"""What statements of synchronization order, and whether that is all that has to be ordered.

Agents run at any speed, asynchronous tiles end at any time. That all the same each pair (a, b) that touches one place,
one of them writing, runs as the text has it is shown by a way from a to b:

    a ends            at once; or, of an asynchronous tile, where its agent waits for its group; or where it arrives
    agent             what it does before what it does after that
    token             the k-th arrival of each agent before the k-th wait of each one that waits
    barrier           what all agents of a unit do before it, before what any of them does after it

**The k-th for the k-th.** Let M(w, s) be the last arrival of agent s that some pair needs before wait w. If M is defined
for every wait and rises with it, from the first arrival on without a gap, then it is the only such map, so that the k-th
wait is for the k-th arrival, whatever the speed.

**No standstill.** M(w, s) stands before w in the text, and tokens find room. So all agents run to their ends where they
run in the order of the text; as nothing that one does stops what another one could do, they do in any other order.
Room: of a queue in hardware, no more than so many tokens lie in it in the order of the text. Of barriers with phases,
each agent's arrival ``k + room`` comes after some wait for the k-th token: so phase k has ended, and takes no arrival of
another one. And each wait for the k-th token comes before some arrival ``k + room``: so no agent finds that its phase has
ended twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import islpy as isl

from offcut.core import index as ix
from offcut.core.memo import lazy_property
from offcut.core.program import Action, Sync, Token
from offcut.errors import PartitionError
from offcut.polyhedral.sync.agents import Ends, Unit
from offcut.polyhedral.sync.events import Event, Key, refused
from offcut.polyhedral.sync.relations import Relations, multicast_keys
from offcut.polyhedral.sync.room import has_room


@dataclass(frozen=True)
class Pair:
    """Instances of two leaves of which the second has to wait for the first."""

    one: Event
    other: Event
    map: isl.Map


@dataclass(frozen=True)
class Match:
    """Which arrivals a wait is for.

    arrivals  ``{ [wait, agent] -> arrival }``
    """

    token: Token
    arrivals: isl.Map
    waits: isl.Set
    arrives: isl.Set


class Order:
    """The pairs of a program that have to be ordered, and what orders them."""

    def __init__(
        self, relations: Relations, pairs: Sequence[Pair], without: Event | None = None
    ) -> None:
        """`without`: a statement of synchronization that is taken not to be there."""
        self.relations, self.pairs, self.without = relations, pairs, without
        self.events = relations.events
        self.units: Mapping[str, Unit] = self.events.units
        self.program = self.events.program
        self.more = [f"s{at}" for at in range(len(relations.keys))]
        self._edges: dict[str, isl.Map] = {}
        self.check_units()

    def check_units(self) -> None:
        """All that agents of a unit do stands in loops that are bound to the same units."""
        known: dict[str, Event] = {}
        for event in (*self.events.leaves, *self.events.syncs):
            if isinstance(event.stmt, Sync) and event.stmt.action is Action.BARRIER:
                continue
            other = known.setdefault(event.unit, event)
            if other.keys.keys() != event.keys.keys():
                raise self.refuse(
                    f"`{event.head}`",
                    f"which {event.unit} does it is not said: `{other.head}` stands in other loops of units",
                )

    # -- from an instance to where the next statement of its agent stands ------------------------------------

    def syncs(self, action: Action, name: str | None = None) -> list[Event]:
        """The statements of one kind."""
        return [
            event
            for event in self.events.syncs
            if isinstance(event.stmt, Sync)
            and event.stmt.action is action
            and name in (None, event.stmt.name)
            and event is not self.without
        ]

    def following(self, targets: isl.Set) -> isl.Map:
        """``{ x -> y }``: the first of `targets` that the same agent comes to at or after x."""
        return self.relations.own_since.intersect_range(targets).lexmin()

    def ended(self, leaf: Event) -> isl.Map:
        """``{ a -> x }``: where it is known that an instance of a leaf has ended; at itself where a token says so."""
        own = self.identity(self.relations.of(leaf))
        if not leaf.engine or self.units[leaf.engine].ends is Ends.TOKEN:
            return own
        issues = self.relations.union(
            one for one in self.events.leaves if (one.engine, one.unit) == (leaf.engine, leaf.unit)
        )
        following = self.next_of(issues)
        found = self.relations.no_pairs
        groups = [one for one in self.syncs(Action.WAIT_GROUP) if one.engine == leaf.engine]
        reached, done = own, 0
        for pending in sorted({_pending(one) for one in groups}):
            for _ in range(pending - done):
                reached = reached.apply_range(following)
            done = pending
            waits = self.relations.union(one for one in groups if _pending(one) == pending)
            after = self.relations.next_own.intersect_range(waits)
            found = found.union(reached.apply_range(after))
        return found.lexmin()

    def next_of(self, some: isl.Set) -> isl.Map:
        """``{ x -> y }``: of one agent, the instance of `some` that follows x, of them."""
        return self.relations.next_own.intersect_domain(some).intersect_range(some).lexmin()

    def identity(self, some: isl.Set) -> isl.Map:
        """Each instance as itself."""
        return some.identity()

    def start(self, one: Event, other: Event) -> isl.Map:
        """``{ a -> x }``: from where on what the agent does comes after a, as `other` sees it."""
        return self.fenced(self.ended(one), one, other)

    def fenced(self, ends: isl.Map, one: Event, other: Event) -> isl.Map:
        """As `ends`, behind the fence that `other` needs to see what `one` writes."""
        kind = fence_between(self.units, one, other)
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
        found: dict[str, isl.Map] = {}
        for unit in {barrier.unit for barrier in self.syncs(Action.BARRIER)}:
            outer = [
                one
                for one in self.syncs(Action.BARRIER)
                if one.unit == unit and not any(key[0] == unit for key in one.keys)
            ]
            free = {self.relations.axis(k) for k in self.relations.keys if k[0] == unit}
            alike = [f"{n} = {n}'" for n in self.relations.dims if n not in free]
            meet = self.following(self.relations.union(outer))
            found[unit] = meet.apply_range(self.relations.map(alike))
        return found

    # -- tokens ----------------------------------------------------------------------------------------------

    @lazy_property
    def matches(self) -> Mapping[str, Match]:
        """By the name of a token, which arrivals its waits are for; they are checked."""
        found = {}
        ends = set[tuple[str, str]]()
        for token in self.program.tokens:
            if (token.source, token.target) in ends:
                raise self.refuse(
                    f"token {token.name}",
                    f"another token goes from {token.source} to {token.target}: one orders all that they do",
                )
            ends.add((token.source, token.target))
            found[token.name] = self.match(token)
        return found

    def match(self, token: Token) -> Match:
        """Which arrivals the waits for a token are for.

        Raises PartitionError where the k-th wait is not for the k-th arrival.
        """
        relations = self.relations
        arriving, waiting = (
            self.syncs(Action.ARRIVE, token.name),
            self.syncs(Action.WAIT, token.name),
        )
        arrives, waits = relations.union(arriving), relations.union(waiting)
        following = self.following(arrives)
        before = relations.own_since.intersect_domain(waits).reverse().lexmax()
        needed = relations.no_pairs
        for pair, pairs in self.between(token.source, token.target):
            to = self.start(pair.one, pair.other).apply_range(following)
            needed = needed.union(to.reverse().apply_range(pairs).apply_range(before))
        last = self.by_agent(needed.reverse()).lexmax().coalesce()
        match = Match(token, last, waits, arrives)
        self.check_match(match)
        return match

    def between(self, source: str, target: str) -> Iterator[tuple[Pair, isl.Map]]:
        """The pairs from one unit to another one, as a token between them orders them: alike for all agents that arrive for
        one token, for all that wait for it, and for all to whom a copy goes.
        """
        some = [p for p in self.pairs if (p.one.unit, p.other.unit) == (source, target)]
        mine, theirs = self.keys_of(source), self.keys_of(target)
        spans = spanned(some)
        for pair in some:
            map = self.relations.widened(pair.map, {*spans, *theirs - mine}, pair.other)
            map = self.relations.widened(map.reverse(), mine - theirs, pair.one).reverse()
            yield pair, map.intersect(self.relations.later)

    def by_agent(self, needed: isl.Map) -> isl.Map:
        """``{ [w, s] -> a }`` of ``{ w -> a }``: s is the agent of a."""
        relations = self.relations
        dims, more = relations.dims, self.more
        ones = [f"{name}_" for name in dims]
        alike = " and ".join(f"{s} = {a}_" for s, a in zip(more, relations.agents, strict=True))
        same = f"{{ [{', '.join((*dims, *more))}] -> [{', '.join(ones)}] : {alike or 'true'} }}"
        return self.without_agent.apply_range(needed).intersect(
            isl.Map(relations.space.parameters + same)
        )

    def ordered(self, match: Match) -> isl.Map:
        """``{ a -> w }``: an arrival, and every wait that is for it."""
        return match.arrivals.reverse().apply_range(self.without_agent)

    def check_match(self, match: Match) -> None:
        """Theorem: M is defined for every wait, rises with it, and leaves no gap; it stands before it in the text."""
        relations, token = self.relations, match.token
        wanted = self.all_agents(match)
        missing = wanted.subtract(match.arrivals.domain())
        if not missing.is_empty():
            waits = missing.apply(self.without_agent)
            event, values = relations.at(waits)
            raise self.refuse(
                _instance(event, values),
                f"no arrival is for this wait: nothing behind it needs what {token.source} does",
                "a wait for each arrival, and none more",
            )
        rising = relations.order("<<", relations.agents, self.more)
        same = [f"{s} = {s}'" for s in self.more]
        rising = rising.intersect(relations.map(same, self.more))
        risen = match.arrivals.reverse().apply_range(rising).apply_range(match.arrivals)
        wrong = risen.subtract(relations.next_own)
        if not wrong.is_empty():
            event, values = relations.at(wrong.domain())
            raise self.refuse(
                _instance(event, values), "two waits of an agent are for this arrival"
            )
        self.check_rest(match)
        late = self.ordered(match).subtract(relations.later)
        if not late.is_empty():
            event, values = relations.at(late.range())
            raise self.refuse(
                _instance(event, values),
                f"{token.source} arrives only behind it in the text: both would wait for ever",
            )

    def check_rest(self, match: Match) -> None:
        """No arrival is left out between two that some wait is for; none at all where a queue would keep it."""
        taken = self.ordered(match)
        taken_by = self._beside(taken)
        arrived = self.without_agent.intersect_range(match.arrives).domain()
        gap = (
            self._earlier(taken_by).intersect(arrived).subtract(taken_by).apply(self.without_agent)
        )
        if self.events.agents.blocks:
            gap = gap.union(match.arrives.subtract(taken.domain()))
        if not gap.is_empty():
            event, values = self.relations.at(gap)
            raise self.refuse(
                _instance(event, values),
                f"no wait of {match.token.target} is for this arrival",
                "an arrival for each wait, and none more",
            )

    def _beside(self, pairs: isl.Map) -> isl.Set:
        """``{ [a, s] }`` of ``{ a -> w }``: an arrival, and the agent of w."""
        dims, more = self.relations.dims, self.more
        ones = [f"{name}_" for name in dims]
        alike = [f"{s} = {a}_" for s, a in zip(more, self.relations.agents, strict=True)]
        text = f"{{ [{', '.join(dims)}, {', '.join(ones)}] -> [{', '.join((*dims, *more))}] : {' and '.join(alike)} }}"
        flat = pairs.wrap().flatten()
        return flat.apply(isl.Map(self.relations.space.parameters + text))

    def _earlier(self, some: isl.Set) -> isl.Set:
        """``{ [a', s] }`` of ``{ [a, s] }``: of the agent of a, but before it."""
        order = self.relations.order(">>", self.relations.agents, self.more)
        same = [f"{s} = {s}'" for s in self.more]
        return some.apply(order.intersect(self.relations.map(same, self.more)))

    @lazy_property
    def without_agent(self) -> isl.Map:
        """``{ [w, s] -> w }``."""
        dims, more = self.relations.dims, self.more
        text = f"{{ [{', '.join((*dims, *more))}] -> [{', '.join(dims)}] }}"
        return isl.Map(self.relations.space.parameters + text)

    def all_agents(self, match: Match) -> isl.Set:
        """``{ [w, s] }``: each wait, and every agent of whom an arrival is for it."""
        relations, token = self.relations, match.token
        theirs = self.keys_of(token.target)
        ranges = self.counted(token.source, token.target)
        said = []
        for name, axis, key in zip(self.more, relations.agents, relations.keys, strict=True):
            if key in ranges:
                lo, hi = ranges[key]
                said.append(f"{lo} <= {name} < {hi}")
            elif key in theirs and key in self.keys_of(token.source):
                said.append(f"{name} = {axis}")
            else:
                said.append(f"{name} = 0")
        dims, more = relations.dims, self.more
        text = f"{{ [{', '.join((*dims, *more))}] : {' and '.join(said) or 'true'} }}"
        every = isl.Set(relations.space.parameters + text)
        return every.intersect(self.without_agent.intersect_range(match.waits).domain())

    def counted(self, source: str, target: str) -> dict[Key, tuple[int, int]]:
        """The loops whose agents all arrive for one token, each with its first iteration and its end.

        Raises PartitionError where these are no literals.
        """
        mine, theirs = self.keys_of(source), self.keys_of(target)
        spans = spanned(p for p in self.pairs if (p.one.unit, p.other.unit) == (source, target))
        found = {}
        for key in sorted(mine):
            if key in theirs and key not in spans:
                continue
            loops = {
                (ix.literal(one.keys[key].lo), ix.literal(one.keys[key].hi))
                for one in (*self.events.leaves, *self.events.syncs)
                if one.unit == source and key in one.keys
            }
            (lo, hi), *more = loops
            if more or lo is None or hi is None:
                raise self.refuse(
                    f"for … @{key[0]}",
                    f"how many agents of {key[0]} there are is no number: tokens count them",
                )
            found[key] = (lo, hi)
        return found

    def count(self, source: str, target: str) -> int:
        """Arrivals that make a token: one of each agent that a wait is for, or as many as one of the unit counts for.

        Raises PartitionError where their number is no literal.
        """
        counted = self.counted(source, target)
        return prod(hi - lo for lo, hi in counted.values()) * self.units[source].arrivals

    def keys_of(self, unit: str) -> frozenset[Key]:
        """The loops whose iterations are agents of a unit."""
        found: set[Key] = set()
        for event in (*self.events.leaves, *self.events.syncs):
            if event.unit == unit:
                found |= event.keys.keys()
        return frozenset(found)

    # -- ways ------------------------------------------------------------------------------------------------

    def unordered(self, pair: Pair) -> isl.Map:
        """``{ a -> b }``: of a pair, what nothing is shown to order."""
        one, other, relations = pair.one, pair.other, self.relations
        left = self.without_own(pair) if one.unit == other.unit else pair.map
        if left.is_empty():
            return left
        by_token = bool(one.engine) and self.units[one.engine].ends is Ends.TOKEN
        return self.not_reached(
            left, self.start(one, other), one.unit, other.unit, by_token=by_token
        ).intersect(relations.later)

    def without_own(self, pair: Pair) -> isl.Map:
        """A pair of one unit without what its agents' own order is enough for."""
        one, other = pair.one, pair.other
        if one.engine and one.engine == other.engine and self.units[one.engine].in_order:
            own = self.relations.next_own
            return pair.map.subtract(own)
        if one.engine and self.units[one.engine].ends is Ends.TOKEN:
            return pair.map
        ends = self.start(one, other)
        if by_one_lane(self.units, one, other):
            ends = ends.apply_range(self.lanes_meet)
        return pair.map.subtract(ends.apply_range(self.relations.own_since))

    def not_reached(
        self, left: isl.Map, start: isl.Map, source: str, target: str, by_token: bool = False
    ) -> isl.Map:
        """What of ``{ a -> b }`` no way by tokens and barriers leads along, from `start` of a on."""
        fronts: dict[str, isl.Map] = {source: start}
        for hop in range(len(self.units) + 1):
            found: dict[str, isl.Map] = {}
            for unit, front in fronts.items():
                for next_unit, edge in self.edges(unit, only_tokens=by_token and hop == 0):
                    reached = front.apply_range(edge)
                    known = found.get(next_unit)
                    found[next_unit] = reached if known is None else known.union(reached)
            fronts = {unit: front for unit, front in found.items() if not front.is_empty()}
            if target in fronts:
                left = left.subtract(fronts[target].apply_range(self.relations.own_since))
            if left.is_empty() or not fronts:
                break
        return left

    def edge(self, match: Match) -> isl.Map:
        """``{ x -> w }``: the waits that are for the first arrival at or after x."""
        name = match.token.name
        if name not in self._edges:
            following = self.following(match.arrives)
            self._edges[name] = following.apply_range(self.ordered(match)).coalesce()
        return self._edges[name]

    def edges(self, unit: str, only_tokens: bool) -> Iterator[tuple[str, isl.Map]]:
        """Where what agents of a unit do is known to have been done: to whom, and from where on."""
        for match in self.matches.values():
            if match.token.source == unit:
                yield match.token.target, self.edge(match)
        if not only_tokens and unit in self.all_meet:
            yield unit, self.all_meet[unit]

    # -- the theorem -----------------------------------------------------------------------------------------

    def check(self) -> None:
        """Check that every pair is ordered, and that nothing stands still."""
        for token in self.program.tokens:
            self.check_count(token)
        for match in self.matches.values():
            self.check_room(match)
        for pair in self.pairs:
            left = self.unordered(pair)
            if not left.is_empty():
                raise self.race(pair, left)

    def spare(self) -> Event | None:
        """A barrier, a fence or a wait for a group without which all would be ordered, too; None where there is none.

        Of tokens none is spare: each wait is for an arrival that something behind it needs (`check_match`).
        """
        tokens = (Action.ARRIVE, Action.WAIT)
        for event in self.events.syncs:
            if isinstance(event.stmt, Sync) and event.stmt.action not in tokens:
                try:
                    Order(self.relations, self.pairs, event).check()
                except PartitionError:
                    continue
                return event
        return None

    def race(self, pair: Pair, left: isl.Map) -> PartitionError:
        """The refusal of a pair that nothing orders."""
        first = left.domain().lexmin()
        _, ones = self.relations.at(left.domain())
        _, others = self.relations.at(left.intersect_domain(first).range())
        one, other = _instance(pair.one, ones), _instance(pair.other, others)
        because = f"it touches what {one} touches, and may run before that has ended"
        return self.refuse(other, because)

    def check_count(self, token: Token) -> None:
        """A token is made by one arrival of each agent that a wait is for."""
        wanted = self.count(token.source, token.target)
        if wanted != token.count:
            raise self.refuse(
                f"token {token.name} counts {token.count}",
                f"{wanted} arrivals of {token.source} make each one that {token.target} waits for",
                f"token {token.name}: {token.source} -> {token.target} count {wanted} room {token.room}",
            )

    def check_room(self, match: Match) -> None:
        """Tokens find room."""
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
        """Whether that many tokens find room, see the head of this file."""
        if self.events.agents.blocks:
            pairs = self.ordered(match).reverse()
            return has_room(pairs, room)
        following = self.next_of(match.arrives)
        ahead = self.ordered(match).reverse()
        for _ in range(room):
            ahead = ahead.apply_range(following)
        if ahead.is_empty():
            return True
        token, waits = match.token, self.identity(match.waits)
        behind = ahead.subtract(self.not_reached(ahead, waits, token.target, token.source))
        # A phase ends before any agent arrives for the one after it, and not once more before an agent has waited for it.
        started = ahead.range().subtract(behind.range())
        passed = ahead.domain().subtract(behind.domain())
        return bool(started.is_empty() and passed.is_empty())

    def refuse(self, at: str, because: str, *help: str) -> PartitionError:
        """The refusal of the program."""
        return refused(self.program, at, because, *help)


def spanned(pairs: Iterable[Pair]) -> tuple[Key, ...]:
    """The units over which a copy among the second ones of pairs goes to all agents at once."""
    return tuple(dict.fromkeys(key for pair in pairs for key in multicast_keys(pair.other)))


def fence_between(units: Mapping[str, Unit], one: Event, other: Event) -> str:
    """The kind of fence that the second of two leaves needs to see what the first one writes; "" for none."""
    kind = units[other.engine or other.unit].fence
    theirs = {access.region for access in other.accesses}
    writes = any(access.writes and access.region in theirs for access in one.accesses)
    mine = units[one.engine or one.unit].fence
    return kind if writes and kind != mine else ""


def by_one_lane(units: Mapping[str, Unit], one: Event, other: Event) -> bool:
    """Whether, of an agent with several lanes, one lane issues one of two leaves, and all run the other one."""
    engines = [bool(event.engine) and units[event.engine].engine for event in (one, other)]
    return units[one.unit].lanes and engines[0] != engines[1]


def _pending(event: Event) -> int:
    assert isinstance(event.stmt, Sync)
    return event.stmt.pending


def _instance(event: Event, values: str) -> str:
    return f"`{event.head}`" + (f" at {values}" if values else "")


__all__ = ["Match", "Order", "Pair", "by_one_lane", "fence_between", "spanned"]
