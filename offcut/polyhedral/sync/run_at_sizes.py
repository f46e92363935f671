"""What synchronization orders at given sizes: each instance is listed, and a graph says what comes before what.

This is the other way to the answer of `order`, which holds for all sizes: it shows a fault by its instances, and that a
statement is needed. Lanes are two, one of which issues tiles of engines; agents that take iterations as they come are
one for each iteration.
"""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from offcut.core.expr import Binary, Compare, Const, Expr, Logic, Var
from offcut.core.interpret.run_arguments import small_sizes
from offcut.core.memo import memo
from offcut.core.program import Action, Sync, Token
from offcut.errors import PartitionError
from offcut.polyhedral.sync.agents import Ends
from offcut.polyhedral.sync.events import (
    Access,
    Event,
    Events,
    Key,
    by_one_lane,
    fence_between,
    multicast_keys,
    sync_error,
)

MOST, NODE = 30_000, 10
"""The most places, instances and pairs that are looked at; as many as these a node of the graph counts for."""
SMALL = (8, 60)
"""The most values of each size, and combinations of them, that are tried."""
TOUCHES = "it touches what {} touches, and may run before that has ended"

Agent: TypeAlias = tuple[str, tuple[tuple[Key, object], ...]]
Values: TypeAlias = Mapping[str, int]


class _Unknown(Exception):
    """Something depends on data, or there is too much of it."""


@dataclass(frozen=True)
class Fault:
    """What goes wrong, and where: as `sync_error` takes it."""

    at: str
    because: str
    help: str = ""


@dataclass(eq=False)
class Instance:
    """An event with the values of the iterators around it.

    begins, ends   the nodes at which it begins and ends, by lane; an asynchronous tile has one end
    reads, writes  the places that it touches
    """

    event: Event
    values: Values
    agent: Agent
    time: tuple[int, ...]
    reads: set[object] = field(default_factory=set)
    writes: set[object] = field(default_factory=set)
    begins: dict[int, int] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return describe_event(self.event, self.values)

    @property
    def copies(self) -> object:
        """What the instances of one copy to several agents have in common; of any other, itself."""
        keys = multicast_keys(self.event)
        if not keys:
            return self
        agent = tuple(one for one in self.agent[1] if one[0] not in keys)
        return self.event.number, self.time, agent


def smallest_fault(events: Events, without: Collection[int] = ()) -> PartitionError | None:
    """Return the error for the least sizes at which units do not keep the order of the text; None where none are known.

    without   the numbers of statements of synchronization that are ignored
    """
    for sizes in small_sizes(events.program, *SMALL):
        values = values_of(events, sizes)
        try:
            fault = _Run(events, values, without).fault() if values else None
        except (_Unknown, ZeroDivisionError):
            return None
        if fault is not None:
            because, help = with_sizes(sizes) + fault.because, (fault.help,) if fault.help else ()
            return sync_error(events.program, fault.at, because, *help)
    return None


def values_of(events: Events, sizes: Values) -> dict[str, int]:
    """Return the values of sizes and of what is derived from them; none where they break a promise."""
    values = dict(sizes)
    for name, (lo, hi) in events.derived.items():
        try:
            values[name] = value_of(events.lets[name])(values)
        except ZeroDivisionError:
            return {}
        if not lo <= values[name] < hi:
            return {}
    return {**values, "": 0}


def with_sizes(sizes: Values) -> str:
    """Return sizes as the beginning of a reason: ``with n = 2, ``."""
    at_sizes = ", ".join(f"{name} = {value}" for name, value in sizes.items())
    return f"with {at_sizes}, " if at_sizes else ""


def describe_event(event: Event, values: Values) -> str:
    """Return a statement and the values of the iterators around it, for the text of an error."""
    at_values_text = ", ".join(f"{loop.name} = {values[loop.name]}" for loop in event.loops)
    return f"`{event.head}`" + (f" at {at_values_text}" if at_values_text else "")


class _Run:
    def __init__(self, events: Events, values: Values, without: Collection[int]) -> None:
        self.events, self.units = events, events.units
        self.left, self.bits = MOST, list[int]()
        self.before: list[list[int]] = []  # by node, those right before it
        self.values = values
        every = (*events.leaves, *(one for one in events.syncs if one.number not in without))
        self.instances = [one for event in every for one in self.of(event)]
        self.instances.sort(key=lambda one: (one.time, str(one.agent)))
        self.copies: dict[object, list[Instance]] = defaultdict(list)
        for one in self.instances:
            self.copies[one.copies].append(one)
        self.joint: dict[object, int] = {}  # nodes of several lanes or agents
        self.fences: dict[tuple[Agent, str], list[tuple[int, int]]] = defaultdict(list)
        self.arrivals: dict[str, dict[Agent, list[Instance]]] = defaultdict(dict)
        self.waits: dict[str, dict[Agent, list[Instance]]] = defaultdict(dict)
        self.owners: list[Instance] = []

    # -- instances -------------------------------------------------------------------------------------------

    def spend(self, count: int = 1) -> None:
        self.left -= count
        if self.left < 0:
            raise _Unknown

    def of(self, event: Event) -> Iterator[Instance]:
        """Return the instances of an event."""
        ranges = [(loop.name, value_of(loop.lo), value_of(loop.hi)) for loop in event.loops]
        conditions = [value_of(condition) for condition in event.where]
        accesses = [(access, self.elements(access)) for access in event.accesses]
        for values in self.points(ranges, self.values):
            if not all(condition(values) for condition in conditions):
                continue
            time = tuple(values[at] if isinstance(at, str) else at for at in event.time)
            one = Instance(event, values, self.agent(event, values, time), time)
            for access, places in accesses:
                into = one.writes if access.writes else one.reads
                into.update(places(values))
            yield one

    def points(
        self, ranges: Sequence[tuple[str, Callable[..., Any], Callable[..., Any]]], values: Values
    ) -> Iterator[dict[str, int]]:
        """Return the values of all that is known and of iterators, for each of their values."""
        if not ranges:
            self.spend()
            yield dict(values)
            return
        (name, lo, hi), *rest = ranges
        for value in range(lo(values), hi(values)):
            yield from self.points(rest, {**values, name: value})

    def elements(self, access: Access) -> Callable[[Values], Iterator[object]]:
        """Return what lists the places of an access at an instance; one coordinate that is not known is any."""
        ranges = [
            (name, value_of(Const(0, "index")), value_of(extent)) for name, extent in access.inner
        ]
        place = [None if part is None else value_of(part) for part in access.place]
        conditions = [value_of(condition) for condition in access.where]

        def places(values: Values) -> Iterator[object]:
            for inner in self.points(ranges, values):
                if all(condition(inner) for condition in conditions):
                    yield access.region, *(part and part(inner) for part in place)

        return places

    def agent(self, event: Event, values: Values, time: tuple[int, ...]) -> Agent:
        """Return the agent that runs an instance."""
        keys: list[tuple[Key, object]] = []
        depth = 0
        for loop in event.loops:
            depth += 1
            if loop.key is not None:
                fixed = self.units[loop.key[0]].fixed
                value = values[loop.name]
                keys.append((loop.key, value if fixed else (time[:depth], value)))
            else:
                depth += 1
        return event.unit, tuple(sorted(keys))

    # -- the graph -------------------------------------------------------------------------------------------

    def node(self, one: Instance, *before: int) -> int:
        """Return a new node of an instance, behind others."""
        self.spend(NODE)
        self.before.append([*before])
        self.owners.append(one)
        return len(self.before) - 1

    def joined(self, key: object, one: Instance, *before: int) -> int:
        """Return the node of several lanes or agents, behind some more."""
        if key not in self.joint:
            self.joint[key] = self.node(one)
        self.before[self.joint[key]] += before
        return self.joint[key]

    def build(self) -> None:
        """Make the graph: what each lane does, one after the other, and what its asynchronous tiles wait for."""
        agents: dict[Agent, list[Instance]] = defaultdict(list)
        barriers = []
        for one in self.instances:
            unit, keys = one.agent
            if _is(one, Action.BARRIER) and all(key[0] != unit for key, _ in keys):
                barriers.append(one)
            else:
                agents[one.agent].append(one)
        for (unit, keys), mine in agents.items():
            mine += (b for b in barriers if b.agent[0] == unit and {*b.agent[1]} <= {*keys})
            mine.sort(key=lambda one: one.time)
            for lane in range(2 if self.units[unit].lanes else 1):
                self.lane(mine, lane)

    def lane(self, mine: Sequence[Instance], lane: int) -> None:
        """Add what one lane of an agent does."""
        last: tuple[int, ...] = ()
        issued: dict[str, list[int]] = defaultdict(list)
        for one in mine:
            stmt, engine = one.event.stmt, one.event.engine
            if not isinstance(stmt, Sync) and engine and self.units[engine].engine and lane:
                continue
            if _is(one, Action.BARRIER):
                node = self.joined(one, one, *last)
            else:
                node = self.node(one, *last)
            one.begins[lane] = one.ends[lane] = node
            last = (node,)
            if isinstance(stmt, Sync):
                self.sync(one, stmt, node, lane, issued)
            elif engine:
                several = len(self.copies[one.copies]) > 1  # any of them may be the one that runs
                end = self.joined((one.copies, "ends"), one, *(() if several else (node,)))
                if self.units[engine].in_order:
                    self.before[end] += issued[engine][-1:]
                issued[engine].append(end)
                one.ends = {0: end}

    def sync(
        self, one: Instance, stmt: Sync, node: int, lane: int, issued: Mapping[str, list[int]]
    ) -> None:
        """Add what a statement of synchronization at a node waits for of its own lane."""
        match stmt.action:
            case Action.WAIT_GROUP:
                tiles = issued.get(one.event.engine, [])
                self.before[node] += tiles[: max(len(tiles) - stmt.pending, 0)]
            case Action.FENCE:
                self.fences[one.agent, stmt.name].append((lane, node))
            case Action.ARRIVE:
                tiles = [t for u, some in issued.items() for t in some if self.by_token(u)]
                one.ends = {0: self.joined((one, "arrives"), one, node, *tiles)}
        if lane == 0 and stmt.action in (Action.ARRIVE, Action.WAIT):
            into = self.arrivals if stmt.action is Action.ARRIVE else self.waits
            into[stmt.name].setdefault(one.agent, []).append(one)

    def by_token(self, unit: str) -> bool:
        return self.units[unit].ends is Ends.TOKEN

    def add_tokens(self) -> Fault | None:
        """Add that the k-th wait comes after the k-th arrivals; return a wait for one that never comes, or a token left."""
        blocks = self.events.agents.blocks
        for token in self.events.program.tokens:
            arrivals_taken = dict.fromkeys(self.arrivals[token.name], 0)
            for waiter, waits in self.waits[token.name].items():
                arriving = self.arriving(token, waiter)
                for number, wait in enumerate(waits):
                    count = min(map(len, arriving.values()), default=0)
                    if count <= number:
                        times = f"arrives {count} times" if count else "never arrives"
                        return Fault(str(wait), f"it waits for ever: {token.source} {times}")
                    for some in arriving.values():
                        for node in wait.begins.values():
                            self.before[node].append(some[number].ends[0])
                        if blocks and number + token.room < len(some):
                            later = some[number + token.room].begins.values()
                            for node in later:
                                self.before[node] += wait.begins.values()
                for agent in arriving:
                    arrivals_taken[agent] = max(arrivals_taken[agent], len(waits))
            for agent, some in self.arrivals[token.name].items():
                if blocks and len(some) > arrivals_taken[agent]:
                    return Fault(
                        str(some[arrivals_taken[agent]]), f"no wait of {token.target} takes it"
                    )
        return None

    def arriving(self, token: Token, waiter: Agent) -> dict[Agent, list[Instance]]:
        """Return the arrivals of each agent that a waiting one waits for."""
        targets = (one.event for one in self.instances if one.event.unit == token.target)
        wide = {key for event in targets for key in multicast_keys(event)}
        mine = dict(waiter[1])
        return {
            agent: some
            for agent, some in self.arrivals[token.name].items()
            if all(mine.get(key, at) == at or key in wide for key, at in agent[1])
        }

    def reach(self) -> Fault | None:
        """Find the nodes before each one, as bits; return two units that wait for each other."""
        self.bits = [1 << node for node in range(len(self.before))]
        missing = [len(earlier) for earlier in self.before]
        after: list[list[int]] = [[] for _ in self.before]
        for node, earlier in enumerate(self.before):
            for one in earlier:
                after[one].append(node)
        ready = [node for node, count in enumerate(missing) if not count]
        while ready:
            node = ready.pop()
            for one in after[node]:
                self.bits[one] |= self.bits[node]
                missing[one] -= 1
                if not missing[one]:
                    ready.append(one)
        stuck = {node for node, count in enumerate(missing) if count}
        return self.standstill(stuck) if stuck else None

    def standstill(self, stuck: Collection[int]) -> Fault:
        """Return two statements of units that wait for each other."""
        node, path = min(stuck), list[int]()
        while node not in path:
            path.append(node)
            node = next(one for one in self.before[node] if one in stuck)
        cycle = [self.owners[one] for one in path[path.index(node) :]]
        waiting = [
            (one, of)
            for one, of in zip(cycle, [*cycle[1:], cycle[0]], strict=True)
            if one.agent != of.agent
        ]
        at = min(range(len(waiting)), key=lambda at: waiting[at][0].time)
        (one, of), (other, _) = waiting[at], waiting[(at + 1) % len(waiting)]
        units = f"{one.event.unit} and {other.event.unit}"
        because = f"it waits for {of}, which comes behind {other}: {units} wait for each other"
        return Fault(str(one), because)

    # -- faults ----------------------------------------------------------------------------------------------

    def fault(self) -> Fault | None:
        """Return the first fault; None if there is none."""
        self.build()
        return self.add_tokens() or self.reach() or self.race() or self.lost_phase()

    def race(self) -> Fault | None:
        """Return two instances that touch one place and are not ordered."""
        touched: dict[object, list[tuple[Instance, bool]]] = defaultdict(list)
        pairs = set[tuple[int, int]]()
        for one in self.instances:
            for place in sorted(one.reads | one.writes, key=str):
                writes = place in one.writes
                self.spend(len(touched[place]))
                for other, wrote in reversed(touched[place]):
                    pair = (id(other), id(one))
                    if (writes or wrote) and pair not in pairs:
                        pairs.add(pair)
                        if not self.is_ordered(other, one):
                            return Fault(str(one), TOUCHES.format(other), self.help(other, one))
                touched[place].append((one, writes))
        return None

    def help(self, one: Instance, other: Instance) -> str:
        """Return what would order two instances."""
        source, target = one.event.unit, other.event.unit
        if source != target:
            return f"a token {source} -> {target}: arrive behind the first, wait before the second"
        if one.agent == other.agent and one.event.engine:
            by_token = self.by_token(one.event.engine)
            return (
                "another unit that waits for the first in between"
                if by_token
                else "wait group, before it"
            )
        return f"barrier {target}, before it"

    def is_ordered(self, one: Instance, other: Instance) -> bool:
        """Return whether one instance has ended before another one begins."""
        kind = fence_between(self.units, one.event, other.event)
        engine, own = one.event.engine, one.agent == other.agent
        lanes = by_one_lane(self.units, one.event, other.event)
        in_order = not engine or (engine == other.event.engine and self.units[engine].in_order)
        if one.copies == other.copies or (own and not lanes and not kind and in_order):
            return True
        begins = {at for copy in self.copies[other.copies] for at in copy.begins.values()}
        for lane, end in one.ends.items():
            between = [end]
            if kind:
                fences = self.fences[one.agent, kind]
                between = [
                    at for by, at in fences if self.is_before(end, at) and (engine or by == lane)
                ]
            if not all(any(self.is_before(at, begin) for at in between) for begin in begins):
                return False
        return True

    def is_before(self, node: int, other: int) -> bool:
        return node != other and bool(self.bits[other] >> node & 1)

    def lost_phase(self) -> Fault | None:
        """Return an arrival that may come in a phase before its own, or a wait that may miss its phase."""
        if self.events.agents.blocks:
            return None
        for token in self.events.program.tokens:
            behind: dict[Instance, list[Instance]] = {}
            ahead: dict[Instance, list[Instance]] = {}
            for waiter, waits in self.waits[token.name].items():
                for some in self.arriving(token, waiter).values():
                    for wait, late in zip(waits, some[token.room :], strict=False):
                        after = self.is_before(min(wait.begins.values()), min(late.begins.values()))
                        behind.setdefault(late, []).extend([wait] * after)
                        ahead.setdefault(wait, []).extend([late] * after)
            because = f"more than {token.room} may be under way at once: the room of {token.name} is {token.room}"
            for one, others in (*behind.items(), *ahead.items()):
                if not others:
                    return Fault(str(one), because)
        return None


def _is(one: Instance, action: Action) -> bool:
    return isinstance(one.event.stmt, Sync) and one.event.stmt.action is action


_OPERATIONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "min": min,
    "max": max,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


@memo(1 << 12)
def value_of(expr: Expr) -> Callable[[Values], Any]:
    """Return what computes an expression.

    Raises _Unknown if it depends on data.
    """
    match expr:
        case Const(value, _):
            return lambda _: value
        case Var(name):
            return operator.itemgetter(name)
        case Binary(op, a, b) | Compare(op, a, b) if op in _OPERATIONS:
            apply, x, y = _OPERATIONS[op], value_of(a), value_of(b)
            return lambda at: apply(x(at), y(at))
        case Logic("not", (arg,)):
            x = value_of(arg)
            return lambda at: not x(at)
        case Logic(op, args):
            every = all if op == "and" else any
            parts = [value_of(arg) for arg in args]
            return lambda at: every(part(at) for part in parts)
    raise _Unknown
