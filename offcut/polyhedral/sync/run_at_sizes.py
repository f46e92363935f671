"""What synchronization orders at given sizes: each instance is listed, and a graph says what comes before what.

This is the other way to the answer of `order`, which holds for all sizes: it shows a fault by its instances, and that a
statement is needed. Lanes are two, one of which issues tiles of engines; agents that take iterations as they come are
one for each iteration.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from offcut.core.interpret.run_arguments import small_sizes
from offcut.core.program import Action, Sync, Token
from offcut.errors import PartitionError
from offcut.polyhedral.sync.agents import Ends
from offcut.polyhedral.sync.events import (
    Events,
    by_one_lane,
    fence_between,
    multicast_keys,
    sync_error,
)
from offcut.polyhedral.sync.instances import (
    MOST,
    Agent,
    Instance,
    Listing,
    UnknownInstancesError,
    Values,
    values_of,
)

NODE = 10
"""The places, instances and pairs that a node of the graph counts for, of the `MOST` that are looked at."""
SMALL = (8, 60)
"""The most values of each size, and combinations of them, that are tried."""
TOUCHES = "it touches what {} touches, and may run before that has ended"


@dataclass(frozen=True)
class Fault:
    """What goes wrong, and where: as `sync_error` takes it."""

    at: str
    because: str
    help: str = ""


class RunsAtSizes:
    """The runs of a program at its least sizes: with all of its synchronization, and without some of it."""

    def __init__(self, events: Events) -> None:
        self.events = events
        self.listings: dict[tuple[tuple[str, int], ...], Listing] = {}

    def smallest_fault(self, without: Collection[int] = ()) -> PartitionError | None:
        """Return the error for the least sizes at which units do not keep the order of the text; None where none are known.

        without   the numbers of statements of synchronization that are ignored
        """
        for sizes in small_sizes(self.events.program, *SMALL):
            values = values_of(self.events, sizes)
            try:
                fault = _Run(self.listing(values), without).fault() if values else None
            except (UnknownInstancesError, ZeroDivisionError):
                return None
            if fault is not None:
                because, help = (
                    with_sizes(sizes) + fault.because,
                    (fault.help,) if fault.help else (),
                )
                return sync_error(self.events.program, fault.at, because, *help)
        return None

    def listing(self, values: Values) -> Listing:
        """Return the instances where sizes and what is derived from them have these values."""
        return self.listings.setdefault(tuple(values.items()), Listing(self.events, values))


def with_sizes(sizes: Values) -> str:
    """Return sizes as the beginning of a reason: ``with n = 2, ``."""
    at_sizes = ", ".join(f"{name} = {value}" for name, value in sizes.items())
    return f"with {at_sizes}, " if at_sizes else ""


class _Run:
    def __init__(self, listing: Listing, without: Collection[int]) -> None:
        self.events = events = listing.events
        self.units = events.units
        self.left, self.bits = MOST, list[int]()
        self.before: list[list[int]] = []  # by node, those right before it
        every = (*events.leaves, *(one for one in events.syncs if one.number not in without))
        self.instances: list[Instance] = []
        for event in every:
            count, instances = listing.of(event)
            self.spend(count)
            self.instances += instances
        self.instances.sort(key=lambda one: (one.time, str(one.agent)))
        self.copies: dict[object, list[Instance]] = defaultdict(list)
        for one in self.instances:
            self.copies[one.copies].append(one)
        self.joint: dict[object, int] = {}  # nodes of several lanes or agents
        self.fences: dict[tuple[Agent, str], list[tuple[int, int]]] = defaultdict(list)
        self.arrivals: dict[str, dict[Agent, list[Instance]]] = defaultdict(dict)
        self.waits: dict[str, dict[Agent, list[Instance]]] = defaultdict(dict)
        self.owners: list[Instance] = []

    def spend(self, count: int = 1) -> None:
        self.left -= count
        if self.left < 0:
            raise UnknownInstancesError

    # -- the graph -------------------------------------------------------------------------------------------

    def node(self, one: Instance, *before: int) -> int:
        """Return a new node of an instance, behind others."""
        self.spend(NODE)
        self.before.append([*before])
        self.owners.append(one)
        return len(self.before) - 1

    def join(self, key: object, one: Instance, *before: int) -> int:
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
            node = self.join(one, one, *last) if _is(one, Action.BARRIER) else self.node(one, *last)
            one.begins[lane] = one.ends[lane] = node
            last = (node,)
            if isinstance(stmt, Sync):
                self.sync(one, stmt, node, lane, issued)
            elif engine:
                several = len(self.copies[one.copies]) > 1  # any of them may be the one that runs
                end = self.join((one.copies, "ends"), one, *(() if several else (node,)))
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
                one.ends = {0: self.join((one, "arrives"), one, node, *tiles)}
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
            for place, writes in one.places:
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
