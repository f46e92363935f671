"""The synchronization that a program needs on units that run side by side, as statements of it.

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
each wait is for what nothing before it has waited for. What is found is checked once more, from the text (`Order.check`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from itertools import product

import islpy as isl

from offcut.core.expr import Const, Expr
from offcut.core.memo import memo
from offcut.core.plain import unsynchronized
from offcut.core.program import (
    Action,
    Alloc,
    Choose,
    For,
    If,
    Let,
    Program,
    Stmt,
    Sync,
    Token,
    blocks,
    walk,
    with_blocks,
)
from offcut.core.text.printer import format_head, shown
from offcut.core.walking import Place, numbered
from offcut.errors import DescribeError, PartitionError
from offcut.polyhedral.limit import bounded
from offcut.polyhedral.sync.agents import Agents, Ends
from offcut.polyhedral.sync.boundaries import (
    Boundaries,
    check_barriers,
    is_barrier,
    own_of,
    with_barriers,
)
from offcut.polyhedral.sync.events import Event, events, refused
from offcut.polyhedral.sync.multicast import check_multicast
from offcut.polyhedral.sync.order import Order, Pair, by_one_lane, fence_between
from offcut.polyhedral.sync.relations import Relations, multicast_keys
from offcut.polyhedral.sync.room import has_room, most
from offcut.polyhedral.units.independence import Independence

MOST_PENDING = 8
"""Groups under way that a wait tells apart; where there are more, it waits for some of them too."""
MOST_ROOM = 16
"""Tokens under way that a barrier is given room for."""
REQUESTS = 4
"""How many requests of isl a program may take."""


class StandstillError(PartitionError):
    """Tokens for which there is no room."""


@memo(64)
def synchronized(program: Program, agents: Agents) -> Program:
    """`program` with the statements that keep the order of its text; those that it has are left out first.

    Raises PartitionError where nothing that the units can do keeps it, or finding it takes more than bounded work;
    StandstillError where units could stand still.
    """
    _check_arguments("synchronized", program, agents)
    bare = unsynchronized(program)
    if (unit := _any_agent(program, agents)) is not None:
        return with_barriers(bare, unit, own_of(bare, unit))
    with _bounded(program):
        made = _Finder(bare, agents).made()
        order = _order(made, agents)
        order.check()
        while (spare := order.spare()) is not None:
            made = replace(made, body=_without(made.body, spare.place))
            order = _order(made, agents)
    return made


def check(program: Program, agents: Agents) -> None:
    """Check that the statements of synchronization of a program keep the order of its text, that no unit stands still, and
    that each of them is needed.

    Raises PartitionError with an instance that could run too early, or that waits for ever.
    """
    _check_arguments("check", program, agents)
    if (unit := _any_agent(program, agents)) is not None:
        bare = unsynchronized(program)
        _check_words(program, unit)
        check_barriers(program, unit, own_of(bare, unit))
        _check_independent(bare, unit)
        return
    with _bounded(program):
        order = _order(program, agents)
        order.check()
        spare = order.spare()
    if spare is not None:
        because = "without it all is ordered, too"
        raise refused(program, f"`{spare.head}`", because, "leave it out")


def _check_arguments(op: str, program: object, agents: object) -> None:
    """Refuse what is no program, and what are no agents."""
    for given, kind, what, help in (
        (program, Program, "a program", "oc.parse(text)"),
        (agents, Agents, "agents", 'oc.target("cpu").agents'),
    ):
        if not isinstance(given, kind):
            because = f"it is of type {type(given).__name__}, not {what}"
            raise DescribeError(
                f"sync.{op}", f"cannot take {shown(given)}", because=because, help=(help,)
            )


def _any_agent(program: Program, agents: Agents) -> str | None:
    """The unit of a machine that has no other, any of whose agents may run any iteration; None for agents that are fixed.

    Raises PartitionError for a machine that has such a unit and others: which agent waits for whom is not known.
    """
    free = [unit.name for unit in agents.units if not unit.fixed]
    if free and len(agents.units) > 1:
        at = f"@{free[0]}"
        raise refused(program, at, "any of its agents may run any iteration, beside other units")
    return free[0] if free else None


def _check_words(program: Program, unit: str) -> None:
    """Check that all that a program says of synchronization is that all agents of a unit meet, always."""
    help = (f"barrier {unit}", "a text without synchronization, which gets what it needs")
    for token in program.tokens:
        at = f"token {token.name}: {token.source} -> {token.target}"
        raise refused(program, at, f"the machine has no unit but {unit}, and no tokens", *help)
    for stmt in walk(program):
        if not isinstance(stmt, Sync):
            continue
        at = f"`{format_head(stmt)}`"
        if not is_barrier(stmt, unit) or stmt.unit is not None:
            because = (
                f"the machine has no unit but {unit}, and all that its agents can do is to meet"
            )
            raise refused(program, at, because, *help)
        if stmt.where is not None:
            because = "who meets where is known of barriers without a condition alone"
            raise refused(program, at, because, *help)


def _check_independent(program: Program, unit: str) -> None:
    """Check that iterations of loops that are bound to a unit need nothing of each other."""
    independence = Independence(program)
    for place, stmt in numbered(program.body):
        if isinstance(stmt, Let):
            independence.entered(stmt)
        if isinstance(stmt, For) and stmt.unit == unit and not independence.of(stmt, place):
            because = "its iterations run side by side, and they are not shown to need nothing of each other"
            raise refused(program, f"`{format_head(stmt)}`", because)


def _order(program: Program, agents: Agents) -> Order:
    relations = Relations(events(program, agents))
    return Order(relations, pairs_of(relations))


def _bounded(program: Program) -> AbstractContextManager[None]:
    what = f"cannot keep the order of {program.name} on units that run side by side"
    return bounded("sync", what, requests=REQUESTS)


def _without(body: tuple[Stmt, ...], place: Place) -> tuple[Stmt, ...]:
    """`body` without the statement at a place."""
    at, *rest = place
    if not rest:
        return body[:at] + body[at + 1 :]
    several = isinstance(body[at], If | Choose)
    numbers = iter(range(len(blocks(body[at]))))

    def inside(block: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        if not several:
            return _without(block, tuple(rest))
        return _without(block, tuple(rest[1:])) if next(numbers) == rest[0] else block

    return (*body[:at], with_blocks(body[at], inside), *body[at + 1 :])


def pairs_of(relations: Relations) -> list[Pair]:
    """The pairs of instances of which the second must wait for the first.

    Raises PartitionError where iterations of a loop that is bound to a unit need each other.
    """
    leaves, units = relations.events.leaves, relations.events.units
    check_multicast(relations)
    found = []
    for one, other in product(leaves, leaves):
        own = one.unit == other.unit and not one.engine
        own = own and not by_one_lane(units, one, other) and not fence_between(units, one, other)
        if own and not relations.keys:
            continue  # one agent, which keeps its own order
        touching = relations.conflicts(one, other)
        if touching.is_empty():
            continue
        if relations.keys:
            across = touching.intersect(relations.within_one_run(one, other))
            if not across.is_empty():
                _check_bound(relations, one, other, across)
                touching = touching.subtract(across)
        pairs = touching.intersect(relations.later)
        pairs = relations.widened(pairs, multicast_keys(other), other).coalesce()
        if own:
            pairs = pairs.subtract(relations.next_own)
        if not pairs.is_empty():
            found.append(Pair(one, other, pairs))
    return found


def _check_bound(relations: Relations, one: Event, other: Event, across: isl.Map) -> None:
    """Check that iterations of loops that are bound to units need nothing of each other, though sets say they do."""
    program = relations.program
    independence = Independence(program)
    shared = [loop for key, loop in one.keys.items() if other.keys.get(key) == loop]
    held = True
    for place, stmt in numbered(program.body):
        if isinstance(stmt, Let):
            independence.entered(stmt)
        if isinstance(stmt, For) and any(loop.at == place for loop in shared):
            held = held and independence.of(stmt, place)
    if held:
        return
    _, values = relations.at(across.domain().lexmin())
    _, others = relations.at(across.intersect_domain(across.domain().lexmin()).range())
    units = ", ".join(f"@{loop.key[0]}" for loop in shared if loop.key is not None)
    raise refused(
        program,
        f"`{other.head}` at {others}",
        f"it touches what `{one.head}` touches at {values}: both are in one run of a loop {units}, whose iterations "
        "run side by side",
    )


@dataclass
class _Finder:
    program: Program
    agents: Agents
    before: dict[Place, list[Sync]] = field(default_factory=dict)
    after: dict[Place, list[Sync]] = field(default_factory=dict)
    ends: dict[Place, list[Sync]] = field(default_factory=dict)
    tokens: list[Token] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.relations = Relations(events(self.program, self.agents))
        self.leaves, self.units = self.relations.events.leaves, self.relations.events.units
        self.pairs = pairs_of(self.relations)
        self.order = Order(self.relations, self.pairs)
        self.at_once: set[int] = set()
        self.told: set[tuple[str, str]] = set()

    def made(self) -> Program:
        """The program with its statements of synchronization."""
        for unit in dict.fromkeys(leaf.unit for leaf in self.leaves):
            self.meetings(unit)
        for source, target in product(dict.fromkeys(leaf.unit for leaf in self.leaves), repeat=2):
            if source != target:
                self.queue(source, target)
        for leaf in self.leaves:
            if leaf.engine and self.units[leaf.engine].ends is Ends.GROUP:
                self.groups(leaf.engine, leaf.unit)
        self.lanes()
        body = self.placed(self.program.body, ())
        if body == self.program.body:
            return self.program
        made = replace(self.program, body=body, tokens=tuple(self.tokens))
        return made if self.agents.blocks or not self.tokens else self.with_rooms(made)

    def with_rooms(self, program: Program) -> Program:
        """A program with as much room for each token as it needs."""
        order = _order(program, self.agents)
        tokens = []
        depths = {stmt.depth for stmt in walk(program) if isinstance(stmt, Alloc)}
        rooms = (*sorted(depths), *range(1, MOST_ROOM + 1))
        for match in order.matches.values():
            fits = (room for room in rooms if order.has_room(match, room))
            room = next(fits, None)
            if room is None:
                raise StandstillError(
                    "sync",
                    f"cannot keep the order of {program.name} on units that run side by side",
                    at=f"token {match.token.name}",
                    because=f"any number of tokens may be under way, as nothing makes {match.token.source} wait for "
                    f"{match.token.target}",
                )
            tokens.append(replace(match.token, room=room))
        return replace(program, tokens=tuple(tokens))

    # -- where statements go ---------------------------------------------------------------------------------

    def put(self, where: Mapping[int, Expr], sync: Sync, into: dict[Place, list[Sync]]) -> None:
        """A statement at leaves, under their conditions."""
        for number, condition in where.items():
            always = condition == Const(1, "bool")
            one = sync if always else replace(sync, where=condition)
            at = into.setdefault(self.relations.all[number].place, [])
            if one not in at:
                at.append(one)

    def placed(self, body: tuple[Stmt, ...], place: Place) -> tuple[Stmt, ...]:
        """A block with the statements that belong into it."""
        made: list[Stmt] = []
        for position, stmt in enumerate(body):
            here = (*place, position)
            several = isinstance(stmt, If | Choose)
            numbers = iter(range(len(blocks(stmt))))

            def inside(
                block: tuple[Stmt, ...],
                here: Place = here,
                several: bool = several,
                numbers: Iterator[int] = numbers,
            ) -> tuple[Stmt, ...]:
                number = next(numbers)
                return self.placed(block, (*here, number) if several else here)

            made += self.before.get(here, [])
            made.append(with_blocks(stmt, inside))
            made += self.after.get(here, [])
        made += self.ends.get(place, [])
        return body if made == [*body] else tuple(made)

    # -- tokens ----------------------------------------------------------------------------------------------

    def queue(self, source: str, target: str) -> None:
        """The token from one unit to another, and who arrives and waits."""
        pairs = [p for p in self.pairs if (p.one.unit, p.other.unit) == (source, target)]
        if not pairs:
            return
        if self.agents.queues is not None and (source, target) not in self.agents.queues:
            raise refused(
                self.program,
                f"`{pairs[0].other.head}`",
                f"{target} would have to wait for {source}, and no token goes from one to the other",
            )
        relations, order = self.relations, self.order
        needed = relations.no_pairs
        for _, some in order.between(source, target):
            needed = needed.union(some)
        latest = order.by_agent(needed.coalesce().reverse()).lexmax()
        pops = latest.domain().subtract(self.covered(latest)).coalesce()
        pushes = latest.intersect_domain(pops).range().coalesce()
        waits = relations.told(self.waits_of(pops), self.run_by(target))
        arrivals = relations.told(self.whole(pushes, source), self.run_by(source))
        name = self.name(source, target)
        self.put(waits, Sync(Action.WAIT, name), self.before)
        always = {number: Const(1, "bool") for number in arrivals}
        for pair in pairs:
            kind = fence_between(self.units, pair.one, pair.other)
            if kind:
                self.put({pair.one.number: Const(1, "bool")}, Sync(Action.FENCE, kind), self.after)
        for number in always:
            leaf = relations.all[number]
            if leaf.engine and self.units[leaf.engine].ends is Ends.GROUP:
                self.at_once.add(number)
                unit = None if leaf.engine == leaf.unit else leaf.engine
                self.put({number: always[number]}, Sync(Action.WAIT_GROUP, unit=unit), self.after)
        self.put(arrivals, Sync(Action.ARRIVE, name), self.after)
        room = 1
        if self.agents.blocks and self.agents.room is not None:
            room = self.agents.room
            parts = relations.events.parts
            few = most([p.one for p in pairs], [p.other for p in pairs], parts) <= room
            found = latest.intersect_domain(pops)
            if not few and not has_room(self.pairs_of_waits(found), room):
                raise StandstillError(
                    "sync",
                    f"cannot keep the order of {self.program.name} on units that run side by side",
                    at=f"{source} -> {target}",
                    because=f"more tokens of {source} for {target} have to lie in their queue at once than "
                    "it has room for",
                )
        self.tokens.append(Token(name, source, target, order.count(source, target), room))

    def pairs_of_waits(self, found: isl.Map) -> isl.Map:
        """``{ w -> a }`` of ``{ [w, s] -> a }``."""
        return self.order.without_agent.reverse().apply_range(found)

    def waits_of(self, pops: isl.Set) -> isl.Set:
        """``{ w }`` of ``{ [w, s] }``."""
        return pops.apply(self.order.without_agent) if self.relations.keys else pops

    def covered(self, latest: isl.Map) -> isl.Set:
        """Those before which their agent has waited for as late an instance of the other one."""
        relations, order = self.relations, self.order
        same = [f"{s} = {s}'" for s in order.more]
        alike = latest.apply_range(relations.own_since).apply_range(latest.reverse())
        earlier = relations.order(">>", relations.agents, order.more)
        if same:
            earlier = earlier.intersect(relations.map(same, order.more))
        return alike.intersect(earlier).domain()

    def whole(self, pushes: isl.Set, source: str) -> isl.Set:
        """Arrivals, at all instances of a leaf where those that nothing waits for come last and are dropped."""
        if self.agents.blocks:
            return pushes
        earlier = pushes.apply(self.relations.order(">>", self.relations.agents))
        for leaf in self.run_by(source):
            every = self.relations.of(leaf)
            mine = pushes.intersect(every)
            rest = every.subtract(pushes)
            if not mine.is_empty() and rest.intersect(earlier).is_empty():
                pushes = pushes.union(rest)
        return pushes.coalesce()

    def run_by(self, unit: str) -> list[Event]:
        """The leaves of a unit."""
        return [leaf for leaf in self.leaves if leaf.unit == unit]

    def name(self, source: str, target: str) -> str:
        """A name for a token that nothing else has."""
        taken = {buffer.name for buffer in self.program.buffers}
        taken |= {size.name for size in self.program.sizes} | {t.name for t in self.tokens}
        name = f"{source}_to_{target}"
        while name in taken:
            name += "_"
        return name

    # -- groups ----------------------------------------------------------------------------------------------

    def groups(self, engine: str, unit: str) -> None:
        """Where the agents of a unit wait for their own tiles on an engine."""
        if (engine, unit) in self.told:
            return
        self.told.add((engine, unit))
        relations, order = self.relations, self.order
        needed = relations.no_pairs
        in_order = self.units[engine].in_order
        for pair in self.pairs:
            same = (pair.one.engine, pair.one.unit) == (engine, unit) and pair.other.unit == unit
            follows = in_order and pair.other.engine == engine
            if same and not follows and pair.one.number not in self.at_once:
                needed = needed.union(pair.map.intersect(relations.next_own))
        if needed.is_empty():
            return
        latest = needed.coalesce().reverse().lexmax()
        alike = latest.apply_range(relations.own_since).apply_range(latest.reverse())
        covered = alike.intersect(relations.order(">>", relations.agents)).domain()
        reached = latest.intersect_domain(latest.domain().subtract(covered))
        issues = [one for one in self.leaves if (one.engine, one.unit) == (engine, unit)]
        following = order.next_of(relations.union(issues))
        left = reached.domain()
        for pending in range(MOST_PENDING + 1):
            reached = reached.apply_range(following)
            more = reached.intersect(relations.next_own.reverse()).domain()
            here = left if pending == MOST_PENDING else left.subtract(more)
            sync = Sync(Action.WAIT_GROUP, pending=pending, unit=None if engine == unit else engine)
            self.put(relations.told(here.coalesce(), self.run_by(unit)), sync, self.before)
            left = left.intersect(more)
            if left.is_empty():
                break

    # -- barriers --------------------------------------------------------------------------------------------

    def lanes(self) -> None:
        """Barriers among the lanes of an agent, where one of them issues what all have prepared; fences before these."""
        for pair in self.pairs:
            own = pair.one.unit == pair.other.unit
            kind = fence_between(self.units, pair.one, pair.other)
            if own and kind:
                self.put({pair.one.number: Const(1, "bool")}, Sync(Action.FENCE, kind), self.after)
            if own and by_one_lane(self.units, pair.one, pair.other):
                barrier = Sync(Action.BARRIER, pair.one.unit)
                self.put({pair.other.number: Const(1, "bool")}, barrier, self.before)

    def meetings(self, unit: str) -> None:
        """Barriers among all agents of a unit."""
        relations = self.relations
        apart = [
            Pair(p.one, p.other, p.map.subtract(relations.order("<<", relations.agents)))
            for p in self.pairs
            if p.one.unit == p.other.unit == unit
        ]
        apart = [pair for pair in apart if not pair.map.is_empty()]
        if not apart:
            return

        def around(pair: Pair, place: Place) -> tuple[int, list[str]]:
            loops = [one for one in pair.one.loops if is_inside(place, one.at)]
            depth = sum(1 if one.key is not None else 2 for one in loops)
            axes = [relations.axis(one.key) for one in loops if one.key is not None]
            return depth, [f"{name} = {name}'" for name in axes]

        def conflict(here: Place, _: Stmt, at: Place, __: Stmt) -> bool:
            for pair in apart:
                if is_inside(pair.one.place, at, True) and is_inside(pair.other.place, here, True):
                    depth, alike = around(pair, here)
                    alike += [f"{name} = {name}'" for name in relations.prefix(depth)]
                    if not pair.map.intersect(relations.map(alike)).is_empty():
                        return True
            return False

        def carried(place: Place, loop: For, met: list[int]) -> bool:
            for pair in apart:
                if is_inside(pair.one.place, place) and is_inside(pair.other.place, place):
                    one, other = pair.one.place[len(place)], pair.other.place[len(place)]
                    depth, alike = around(pair, (*place, 0))
                    alike += [f"{name} = {name}'" for name in relations.prefix(depth - 1)]
                    axis = f"t{depth - 1}"
                    later = relations.map((*alike, f"{axis} < {axis}'"))
                    met_between = any(at > one or at <= other for at in met)
                    if not met_between and not pair.map.intersect(later).is_empty():
                        return True
            return False

        boundaries = Boundaries(unit, conflict, carried)
        boundaries.block(self.program.body)
        for missing in boundaries.missing:
            into = self.before if missing.earlier is not None else self.ends
            into.setdefault(missing.place, []).append(Sync(Action.BARRIER, unit))


def is_inside(place: Place, outer: Place, itself: bool = False) -> bool:
    """Whether what stands at a place stands inside of what stands at another one."""
    return place[: len(outer)] == outer and (itself or len(place) > len(outer))
