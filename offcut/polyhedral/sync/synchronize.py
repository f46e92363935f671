"""Puts the synchronization that a program needs on units that run side by side into it, as statements.

    private      what one agent alone touches needs none
    two agents of a unit       a barrier, between two statements of the block that their loops stand in
    agents of two units        a token: the second waits for the last arrival of the first that it needs
    one agent, asynchronously  it waits until at most so many later tiles are under way
    one lane of an agent       a barrier of its lanes, where one lane issues what all have prepared
    ordinary stores, read by an engine beside the caches      a fence behind them

With ``D = { (a, b) : b must wait for a }`` between two units, for each agent s of the first one

    latest(b, s) = lexmax { a of s : (a, b) in D }
    covered(b)   : some b' < b of the same agent has latest(b', s) >= latest(b, s)
    waits        = { b in ran D : not covered(b) }            arrivals = latest(waits)

On `waits`, `latest` is one-to-one and rises with the order: the k-th wait is for the k-th arrival. No token is spare:
each wait is for what nothing before it has waited for. The result is checked once more, from the text (`Order.check`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from itertools import product

import islpy as isl

from offcut.core import index as ix
from offcut.core.memo import memo
from offcut.core.plain_loops import strip_synchronization
from offcut.core.program import Action, Alloc, For, Let, Program, Sync, Tile, Token, walk
from offcut.core.text.printer import format_head, shown
from offcut.core.traversal import Place, used_names, walk_with_paths
from offcut.errors import DescribeError, PartitionError
from offcut.polyhedral.isl_budget import request_budget
from offcut.polyhedral.sync.agents import Agents, Ends
from offcut.polyhedral.sync.boundaries import (
    Boundaries,
    Open,
    check_barriers,
    is_barrier,
    missing_barrier,
    own_of,
    with_barriers,
    with_syncs,
    without,
)
from offcut.polyhedral.sync.cases import Cases, join_cases
from offcut.polyhedral.sync.events import (
    UNORDERED,
    Event,
    Events,
    by_one_lane,
    events,
    fence_between,
    sync_error,
)
from offcut.polyhedral.sync.launches import (
    check_barriers_between,
    join_launches,
    join_options,
    launches_of,
    options_of,
)
from offcut.polyhedral.sync.order import Order, Pair
from offcut.polyhedral.sync.pairs import find_redundant, pairs_of
from offcut.polyhedral.sync.relations import Relations, alike, is_inside
from offcut.polyhedral.sync.room import fits_capacity, max_tokens
from offcut.polyhedral.sync.run_at_sizes import RunsAtSizes
from offcut.polyhedral.units import Independence

MOST_PENDING = 8
"""The most groups under way that a wait allows; where there are more, it waits for some of them too."""
MOST_ROOM = 16
"""The most tokens under way that a barrier has room for, unless windows are deeper."""
REQUESTS = 4
"""The number of requests whose isl operations a program may take."""


class StandstillError(PartitionError):
    """An error for tokens that have no room."""


@memo(64)
def synchronized(program: Program, agents: Agents) -> Program:
    """Return `program` with the statements that keep the order of its text; those that it has are removed first.

    Raises PartitionError if nothing that the units can do keeps it, or the search exceeds its isl operations;
    StandstillError if units could stand still.
    """
    _check_arguments("synchronized", program, agents)
    bare = strip_synchronization(program)
    if (unit := _any_agent(program, agents)) is not None:
        return with_barriers(bare, unit, own_of(bare, unit))
    if launches := launches_of(bare, agents):
        return join_launches(bare, [synchronized(launch, agents) for launch in launches], agents)
    if options := options_of(bare, agents):
        return join_options(bare, [synchronized(option, agents) for option in options])
    with _bounded_sizes(program):
        result = _Finder(join_cases(bare), agents).insert_syncs(bare)
        cases = join_cases(result)
        order = _order(events(cases.program, agents))
        order.check()
        while spare := find_redundant(order):
            places = {place for event in spare for place in cases.places(event.place)}
            body = without(result.body, places)
            used = {stmt.name for stmt in walk(body) if isinstance(stmt, Sync)}
            tokens = tuple(token for token in result.tokens if token.name in used)
            result = replace(result, body=body, tokens=tokens)
            cases = join_cases(result)
            order = _order(events(cases.program, agents))
    return result


def check(program: Program, agents: Agents) -> None:
    """Check that the statements of synchronization of a program keep the order of its text, that no unit stands still, and
    that each of them is needed.

    Raises PartitionError with an instance that could run too early, or that waits for ever, or with a statement too many.
    """
    _check_arguments("check", program, agents)
    if launches := launches_of(program, agents):
        for launch in launches:
            check(launch, agents)
        check_barriers_between(program, agents)
        return
    if options := options_of(program, agents):
        for option in options:
            check(option, agents)
        return
    own, missing = frozenset[str](), None
    if (unit := _any_agent(program, agents)) is not None:
        bare = strip_synchronization(program)
        own = own_of(bare, unit)
        _check_words(program, unit)
        _check_independent(bare, unit)
        missing = missing_barrier(program, unit, own)
        if missing is None:
            check_barriers(program, unit, own)
            return
    known = None
    try:
        known = events(program, agents, own)
        with _bounded_sizes(program):
            order = _order(events(join_cases(program).program, agents, own))
            order.check()
            spare = find_redundant(order)
    except PartitionError as error:
        raise (known and RunsAtSizes(known).smallest_fault()) or missing or error from None
    if spare:
        them = "it" if len(spare) == 1 else "them"
        at = ", ".join(f"`{event.head}`" for event in spare)
        raise sync_error(program, at, f"without {them} all is ordered, too", f"leave {them} out")


def _check_arguments(op: str, program: object, agents: object) -> None:
    """Refuse what is no program, and what are no agents."""
    for argument, kind, what, help in (
        (program, Program, "a program", "oc.parse(text)"),
        (agents, Agents, "agents", 'oc.target("cpu").agents'),
    ):
        if not isinstance(argument, kind):
            because = f"it is of type {type(argument).__name__}, not {what}"
            raise DescribeError(
                f"sync.{op}", f"cannot take {shown(argument)}", because=because, help=(help,)
            )


def _any_agent(program: Program, agents: Agents) -> str | None:
    """Return the only unit of a machine if any of its agents may run any iteration; None if agents are fixed.

    Raises PartitionError for a machine with such a unit and others: which agent waits for whom is not known.
    """
    free = [unit.name for unit in agents.units if not unit.fixed]
    if free and len(agents.by_name) > 1:
        at = f"@{free[0]}"
        raise sync_error(program, at, "any of its agents may run any iteration, beside other units")
    return free[0] if free else None


def _check_words(program: Program, unit: str) -> None:
    """Check that all that a program says of synchronization is that all agents of a unit meet, always."""
    help = (f"barrier {unit}", "a text without synchronization, which gets what it needs")
    for token in program.tokens:
        at = f"token {token.name}: {token.source} -> {token.target}"
        raise sync_error(program, at, f"the machine has no unit but {unit}, and no tokens", *help)
    for stmt in walk(program):
        if not isinstance(stmt, Sync):
            continue
        at = f"`{format_head(stmt)}`"
        if not is_barrier(stmt, unit) or stmt.unit is not None:
            because = (
                f"the machine has no unit but {unit}, and all that its agents can do is to meet"
            )
            raise sync_error(program, at, because, *help)
        if stmt.where is not None:
            because = "who meets where is known of barriers without a condition alone"
            raise sync_error(program, at, because, *help)


def _check_independent(program: Program, unit: str) -> None:
    """Check that iterations of loops that are bound to a unit need nothing of each other.

    Raises PartitionError with the loop for which that is not shown.
    """
    independence = Independence(program)
    for place, stmt in walk_with_paths(program.body):
        if isinstance(stmt, Let):
            independence.inside(stmt)
        if isinstance(stmt, For) and stmt.unit == unit and not independence.of(stmt, place):
            because = "its iterations run side by side, and they are not shown to need nothing of each other"
            raise sync_error(program, f"`{format_head(stmt)}`", because)


def _order(known: Events) -> Order:
    relations = Relations(known)
    return Order(relations, pairs_of(relations))


def _bounded_sizes(program: Program) -> AbstractContextManager[None]:
    return request_budget("sync", UNORDERED.format(program.name), requests=REQUESTS)


@dataclass
class _Finder:
    """The statements of synchronization that a program needs, by the place that they stand before, behind, or at the end of.

    cases  the program with equal cases joined
    """

    cases: Cases
    agents: Agents
    before: dict[Place, list[Sync]] = field(default_factory=dict)
    after: dict[Place, list[Sync]] = field(default_factory=dict)
    ends: dict[Place, list[Sync]] = field(default_factory=dict)
    tokens: list[Token] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.program = self.cases.program
        self.relations = Relations(events(self.program, self.agents))
        self.leaves, self.units = self.relations.events.leaves, self.relations.events.units
        self.pairs = pairs_of(self.relations)
        self.order = Order(self.relations, self.pairs)
        self.awaited: set[int] = set()  # leaves whose group is waited for right behind them

    def insert_syncs(self, program: Program) -> Program:
        """Return `program`, whose cases are not joined, with the statements of synchronization that it needs."""
        units = dict.fromkeys(leaf.unit for leaf in self.leaves)
        for unit in units:
            self.barriers(unit)
        for source, target in product(units, repeat=2):
            if source != target:
                self.queue(source, target)
        for engine, unit in dict.fromkeys((leaf.engine, leaf.unit) for leaf in self.leaves):
            if engine and self.units[engine].ends is Ends.GROUP:
                self.groups(engine, unit)
        self.lanes()
        result = with_syncs(program, *map(self.in_all, (self.before, self.after, self.ends)))
        if result is program:
            return result
        result = replace(result, tokens=tuple(self.tokens))
        return result if self.agents.blocks or not self.tokens else self.with_rooms(result)

    def with_rooms(self, program: Program) -> Program:
        """Return a program with the least room for each token, in tokens, that it needs.

        Raises StandstillError if any number of tokens may be under way.
        """
        order = _order(events(join_cases(program).program, self.agents))
        tokens = []
        depths = {stmt.depth for stmt in walk(program) if isinstance(stmt, Alloc)}
        rooms = (*sorted(depths), *range(1, MOST_ROOM + 1))
        for match in order.matches.values():
            token = match.token
            room = next((room for room in rooms if order.has_room(match, room)), None)
            if room is None:
                raise sync_error(
                    program,
                    f"token {token.name}",
                    f"any number of tokens may be under way, as nothing makes {token.source} wait for {token.target}",
                    error=StandstillError,
                )
            tokens.append(replace(token, room=room))
        return replace(program, tokens=tuple(tokens))

    def in_all(self, syncs: Mapping[Place, list[Sync]]) -> dict[Place, list[Sync]]:
        """Return the statements, found for the first case of each group, at the places of all its cases."""
        return {
            place: statements
            for first, statements in syncs.items()
            for place in self.cases.places(first)
        }

    # -- where statements go ---------------------------------------------------------------------------------

    def put(self, into: dict[Place, list[Sync]], number: int, sync: Sync) -> None:
        """Put a statement at the leaf of a number, once."""
        syncs = into.setdefault(self.relations.all[number].place, [])
        if sync not in syncs:
            syncs.append(sync)

    # -- tokens ----------------------------------------------------------------------------------------------

    def queue(self, source: str, target: str) -> None:
        """Put the waits and the arrivals of the token from one unit to another, with the fences and groups that an arrival
        has to stand behind.

        Raises PartitionError if no token goes from one to the other, StandstillError if their queue has too little room.
        """
        pairs = self.order.pairs_of(source, target)
        if not pairs:
            return
        if self.agents.queues is not None and (source, target) not in self.agents.queues:
            raise sync_error(
                self.program,
                f"`{pairs[0].other.head}`",
                f"{target} would have to wait for {source}, and no token goes from one to the other",
            )
        relations, order = self.relations, self.order
        needed = relations.no_pairs
        for _, some in order.between(source, target):
            needed = needed.union(some)
        latest = order.by_agent(needed.coalesce().reverse()).lexmax()
        pops = latest.domain().subtract(self.covered_instances(latest, order.more)).coalesce()
        pushes = latest.intersect_domain(pops).range().coalesce()
        waits = relations.conditions(pops.apply(order.without_agent), self.each_decision(target))
        arrivals = relations.conditions(self.with_last(pushes, source), self.each_decision(source))
        name = self.token_name(source, target)
        for number, where in waits.items():
            self.put(self.before, number, Sync(Action.WAIT, name, where))
        for pair in pairs:
            self.put_fence(pair)
        for number in arrivals:
            self.await_group(relations.all[number])
        for number, where in arrivals.items():
            self.put(self.after, number, Sync(Action.ARRIVE, name, where))
        room = 1
        if self.agents.blocks and self.agents.room is not None:
            room = self.agents.room
            self.check_queue(pairs, latest.intersect_domain(pops), room)
        self.tokens.append(Token(name, source, target, order.count(source, target), room))

    def check_queue(self, pairs: Sequence[Pair], arrivals: isl.Map, room: int) -> None:
        """Check that a queue of `room` tokens is enough.

        pairs     of the two units
        arrivals  ``{ [w, s] -> a }``

        Raises StandstillError if it is not.
        """
        parts = self.relations.events.parts
        few = max_tokens([p.one for p in pairs], [p.other for p in pairs], parts) <= room
        by_wait = self.order.without_agent.reverse()
        if not few and not fits_capacity(by_wait.apply_range(arrivals), room):
            source, target = pairs[0].one.unit, pairs[0].other.unit
            raise sync_error(
                self.program,
                f"{source} -> {target}",
                f"more tokens of {source} for {target} have to lie in their queue at once than it has room for",
                error=StandstillError,
            )

    def covered_instances(self, latest: isl.Map, more: Sequence[str] = ()) -> isl.Set:
        """Return the instances before which their agent waits for as late an instance as `latest` has for them.

        latest   ``{ [w, more] -> a }``
        """
        as_late = latest.apply_range(self.relations.own_since).apply_range(latest.reverse())
        earlier = self.relations.order(">>", self.relations.agents, more)
        return as_late.intersect(earlier).domain()

    def with_last(self, pushes: isl.Set, source: str) -> isl.Set:
        """Return arrivals, and those at the last instances of a leaf, for which nothing waits, if these may be dropped: then
        they need no condition.
        """
        if self.agents.blocks:
            return pushes
        earlier = pushes.apply(self.relations.order(">>", self.relations.agents))
        for leaf in self.each_decision(source):
            every = self.relations.of(leaf)
            mine = pushes.intersect(every)
            rest = every.subtract(pushes)
            if not mine.is_empty() and rest.intersect(earlier).is_empty():
                pushes = pushes.union(rest)
        return pushes.coalesce()

    def each_decision(self, unit: str) -> list[Event]:
        """Return the leaves that a unit runs."""
        return [leaf for leaf in self.leaves if leaf.unit == unit]

    def token_name(self, source: str, target: str) -> str:
        """Return a name for a token that nothing else has."""
        names = used_names(self.program) | {token.name for token in self.tokens}
        name = f"{source}_to_{target}"
        while name in names:
            name += "_"
        return name

    # -- groups ----------------------------------------------------------------------------------------------

    def await_group(self, leaf: Event) -> None:
        """Put a wait for the group of an asynchronous leaf right behind it: other leaves need its result."""
        if leaf.engine and self.units[leaf.engine].ends is Ends.GROUP:
            self.awaited.add(leaf.number)
            unit = None if leaf.engine == leaf.unit else leaf.engine
            self.put(self.after, leaf.number, Sync(Action.WAIT_GROUP, unit=unit))

    def groups(self, engine: str, unit: str) -> None:
        """Put the waits of the agents of a unit for their own tiles on an engine."""
        relations, order = self.relations, self.order
        needed = relations.no_pairs
        in_order = self.units[engine].in_order
        for pair in self.pairs:
            same = (pair.one.engine, pair.one.unit) == (engine, unit) and pair.other.unit == unit
            follows = in_order and pair.other.engine == engine
            if same and not follows and pair.one.number not in self.awaited:
                needed = needed.union(pair.map.intersect(relations.next_own))
        if needed.is_empty():
            return
        latest = needed.coalesce().reverse().lexmax()
        reached = latest.intersect_domain(latest.domain().subtract(self.covered_instances(latest)))
        issues = [one for one in self.leaves if (one.engine, one.unit) == (engine, unit)]
        following = order.next_of(relations.union(issues))
        rest, issuer = reached.domain(), None if engine == unit else engine
        for pending in range(MOST_PENDING + 1):
            reached = reached.apply_range(following)
            more = reached.intersect(relations.next_own.reverse()).domain()
            here = rest if pending == MOST_PENDING else rest.subtract(more)
            waits = relations.conditions(here.coalesce(), self.each_decision(unit))
            for number, where in waits.items():
                sync = Sync(Action.WAIT_GROUP, where=where, pending=pending, unit=issuer)
                self.put(self.before, number, sync)
            rest = rest.intersect(more)
            if rest.is_empty():
                break

    # -- barriers --------------------------------------------------------------------------------------------

    def lanes(self) -> None:
        """Put the barriers among the lanes of an agent, where one of them issues what all have prepared, and fences before
        these.
        """
        for pair in self.pairs:
            if pair.one.unit == pair.other.unit:
                self.put_fence(pair)
                if by_one_lane(self.units, pair.one, pair.other):
                    self.put(self.before, pair.other.number, Sync(Action.BARRIER, pair.one.unit))

    def put_fence(self, pair: Pair) -> None:
        """Put the fence that the second leaf of a pair needs behind the first one, if it needs one."""
        if kind := fence_between(self.units, pair.one, pair.other):
            mark = pair.one.stmt.unit if isinstance(pair.one.stmt, Tile) else None
            self.put(self.after, pair.one.number, Sync(Action.FENCE, kind, unit=mark))

    def barriers(self, unit: str) -> None:
        """Put the barriers among all agents of a unit."""
        relations = self.relations
        apart = [
            Pair(p.one, p.other, p.map.subtract(relations.order("<<", relations.agents)))
            for p in self.pairs
            if p.one.unit == p.other.unit == unit
        ]
        apart = [pair for pair in apart if not pair.map.is_empty()]
        if not apart:
            return
        for pair in apart:
            self.await_group(pair.one)

        def waits(earlier: Open, one: Open) -> bool:
            for pair in apart:
                places = pair.one.place, pair.other.place
                if is_inside(places[0], earlier.place, True) and is_inside(
                    places[1], one.place, True
                ):
                    outer = one.place if earlier.carried is None else (*earlier.carried, 0)
                    both = [p for p in pair.one.loops if p in pair.other.loops]
                    loops = [p for p in both if is_inside(outer, p.at)]
                    depth = sum(1 if p.key is not None else 2 for p in loops)
                    same = [relations.axis(p.key) for p in loops if p.key is not None]
                    same += relations.prefix(depth - (earlier.carried is not None))
                    axis = f"t{depth - 1}"
                    later = [] if earlier.carried is None else [f"{axis} < {axis}'"]
                    if not pair.map.is_disjoint(relations.map((*alike(same), *later))):
                        return True
            return False

        missing = Boundaries(
            unit, waits, lambda loop: (ix.literal_value(ix.sub(loop.hi, loop.lo)) or 0) > 0
        )
        missing.block(self.program.body)
        barrier = Sync(Action.BARRIER, unit)
        for into, places in ((self.before, missing.before), (self.ends, missing.ends)):
            for place in places:
                into.setdefault(place, []).append(barrier)
