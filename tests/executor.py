"""Runs a program with its statements of synchronization as agents side by side, adversarially; shares nothing with the pass.

Each agent has the part of the text that is its own, at given sizes, as a list of steps. They are run in an order that a
seed draws: any agent may lag, asynchronous tiles end at any time, or as late as they can. Whether two accesses of one
place are ordered is told by vector clocks, so that a race is seen in whichever order they happened to run; that they are
ordered as in the text, by their places in it. Tokens are barriers with phases of two parities, or queues in hardware.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from random import Random

from offcut.core import index as ix
from offcut.core.expr import Expr, all_loads
from offcut.core.interpret.values import evaluate
from offcut.core.program import (
    Action,
    Alloc,
    For,
    If,
    Kind,
    Let,
    Program,
    Stmt,
    Store,
    Sync,
    Tile,
    Token,
    walk,
)
from offcut.core.traversal import expressions
from offcut.polyhedral.sync import Agents

Clock = dict[object, int]
Agent = tuple[str, tuple[tuple[str, int], ...]]


class FaultyOrder(Exception):
    """Agents raced, stood still, or left a token."""


@dataclass
class Step:
    """What an agent does next: a leaf with what it touches, or a statement of synchronization.

    at  its place in the text, without the loops that are bound to units
    """

    stmt: Stmt
    at: tuple[int, ...]
    bound: tuple[tuple[str, str, int], ...]
    touches: list[tuple[object, bool]] = field(default_factory=list)
    engine: str = ""
    shared: object = None


def count_of(loops) -> int:
    """The iterations of the innermost loop before this one: of all its runs, as far as loops inside are as long each time."""
    count, each = 0, 1
    for at, extent in reversed(loops):
        count += each * at
        if extent is None:
            break
        each *= extent
    return count


class Streams:
    """The steps of each agent at some sizes."""

    def __init__(
        self, program: Program, agents: Agents, sizes: Mapping[str, int], seed: int
    ) -> None:
        self.program, self.agents, self.rng = program, agents, Random(seed)
        self.units = agents.by_name
        self.steps: dict[Agent, list[Step]] = defaultdict(list)
        self.written = {s.buffer for s in walk(program) if isinstance(s, Store)}
        self.private = {b.name for b in program.buffers if b.kind is Kind.PRIVATE}
        self.windows: dict[str, tuple[object, list[int], list[int]]] = {}
        self.extents: dict[str, int] = {}
        self.block(program.body, dict(sizes), (), (), (0,))

    def block(self, body, env, bound, loops, at) -> None:
        for number, stmt in enumerate(body):
            self.statement(stmt, env, bound, loops, (*at, number))

    def statement(self, stmt, env, bound, loops, at) -> None:
        match stmt:
            case For(name, lo, hi, body, unit=unit):
                first, end = value(lo, env), value(hi, env)
                own = unit in self.units
                for k in range(first, end):
                    if own:
                        self.extents[name] = end - first
                        free = not self.units[unit].fixed
                        more = (*bound, (unit, name, self.rng.randrange(THREADS) if free else k))
                        self.block(body, {**env, name: k}, more, loops, (*at, 0))
                    else:
                        now = (*loops, (k - first, ix.literal_value(ix.sub(hi, lo))))
                        self.block(body, {**env, name: k}, bound, now, (*at, k - first))
            case If(condition, then, other):
                self.block(then if value(condition, env) else other, env, bound, loops, at)
            case Let(name, _, _, inner, body):
                self.block(body, {**env, name: value(inner, env)}, bound, loops, at)
            case Alloc():
                self.window(stmt, env, bound, loops, at)
            case Sync():
                if stmt.where is None or value(stmt.where, env):
                    self.add(self.doer(stmt, bound), Step(stmt, at, bound))
            case Tile() | Store():
                self.leaf(stmt, env, bound, at)

    def window(self, stmt: Alloc, env, bound, loops, at) -> None:
        starts = [value(start, env) for start, _ in stmt.axes]
        counts = [value(count, env) for _, count in stmt.axes]
        if stmt.inplace is not None and stmt.inplace in self.windows:
            name = self.windows[stmt.inplace][0]
        else:
            slot = count_of(loops) % stmt.depth
            name = (id(stmt), tuple(k for _, _, k in bound), slot)
        outer = self.windows.get(stmt.buffer)
        self.windows[stmt.buffer] = (name, starts, counts)
        self.block(stmt.body, env, bound, loops, at)
        if outer is None:
            del self.windows[stmt.buffer]
        else:
            self.windows[stmt.buffer] = outer

    def place(self, buffer: str, index: Sequence[int]) -> object:
        if buffer not in self.windows:
            return buffer, tuple(index)
        name, starts, counts = self.windows[buffer]
        at = 0
        for one, start, count in zip(index, starts, counts, strict=True):
            at = at * count + one - start
        return name, at

    def leaf(self, stmt: Stmt, env, bound, at) -> None:
        mark = stmt.unit if isinstance(stmt, Tile) else None
        late = isinstance(stmt, Tile) and stmt.asynchronous
        agent = self.runner(mark, bound)
        engine = (mark or agent[0]) if late else ""
        if engine and self.units[engine].ends.value == "in order":
            engine = ""
        step = Step(stmt, at, bound, [*dict.fromkeys(self.touches(stmt, env))], engine)
        if isinstance(stmt, Tile) and stmt.multicast is not None:
            others = tuple(one for one in bound if one[1] != stmt.multicast)
            step.shared = (id(stmt), at, others)
        self.add(agent, step)

    def touches(self, stmt: Stmt, env) -> Iterator[tuple[object, bool]]:
        for expr in expressions(stmt):
            for load in all_loads(expr):
                if load.buffer in self.written - self.private:
                    yield self.place(load.buffer, [value(i, env) for i in load.index]), False
        match stmt:
            case Store(buffer, index) if buffer not in self.private:
                yield self.place(buffer, [value(i, env) for i in index]), True
            case Tile(axes, body, where):
                ranges = []
                for axis in axes:
                    first = value(axis.start, env)
                    ranges.append(range(first, first + value(axis.extent, env)))
                for point in product(*ranges):
                    inside = {**env, **{a.iter: k for a, k in zip(axes, point, strict=True)}}
                    if where is None or value(where, inside):
                        for one in body:
                            yield from self.touches(one, inside)
            case For(name, lo, hi, body):
                for k in range(value(lo, env), value(hi, env)):
                    for one in body:
                        yield from self.touches(one, {**env, name: k})
            case If(condition, then, other):
                for one in then if value(condition, env) else other:
                    yield from self.touches(one, env)

    def runner(self, mark: str | None, bound) -> Agent:
        if mark is not None and not self.units[mark].engine:
            return mark, tuple((name, k) for _, name, k in bound)
        unit = bound[-1][0] if bound else self.agents.default
        if bound and not self.units[unit].fixed:
            return unit, (("of", bound[-1][2]),)
        if not bound and any(not one.fixed for one in self.agents.units):
            return self.agents.default, (("of", THREADS - 1),)
        return unit, tuple((name, k) for _, name, k in bound)

    def doer(self, sync: Sync, bound) -> Agent:
        keys = tuple((name, k) for _, name, k in bound)
        if sync.action in (Action.ARRIVE, Action.WAIT):
            token = token_of(self.program, sync)
            return (token.source if sync.action is Action.ARRIVE else token.target), keys
        if sync.action is Action.BARRIER:
            return sync.name, keys
        return self.runner(sync.unit, bound)

    def add(self, agent: Agent, step: Step) -> None:
        self.steps[agent].append(step)


THREADS = 3


def value(expr: Expr, env: Mapping[str, int]) -> int:
    return int(evaluate(expr, env))


def token_of(program: Program, sync: Sync) -> Token:
    return next(token for token in program.tokens if token.name == sync.name)


@dataclass
class Op:
    """An asynchronous tile that is under way."""

    step: Step
    clock: Clock
    fences: dict[str, Clock]
    component: object
    after: Op | None = None
    lanes: int = 0
    done: bool = False

    @property
    def ready(self) -> bool:
        """Whether all lanes have issued it, and it may end."""
        return not self.done and self.lanes == 0 and (self.after is None or self.after.done)


@dataclass
class Lane:
    """One lane of an agent: where it is, and what it knows."""

    agent: Agent
    number: int
    steps: list[Step]
    at: int = 0
    clock: Clock = field(default_factory=dict)
    fences: dict[str, Clock] = field(default_factory=lambda: defaultdict(dict))
    issued: dict[str, list[Op]] = field(default_factory=lambda: defaultdict(list))
    arrived: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    waited: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    @property
    def component(self) -> object:
        return self.agent, self.number


@dataclass
class Phases:
    """One barrier of a ring: its phase, the arrivals in it, and what was known when the last one ended."""

    phase: int = 0
    pending: int = 0
    gathering: list[tuple[Clock, dict[str, Clock]]] = field(default_factory=list)
    published: list[tuple[Clock, dict[str, Clock]]] = field(default_factory=list)


class Machine:
    """One run."""

    def __init__(
        self, program: Program, agents: Agents, sizes: Mapping[str, int], seed: int, policy: str
    ) -> None:
        streams = Streams(program, agents, sizes, seed)
        self.program, self.agents, self.units = program, agents, agents.by_name
        self.extents = streams.extents
        self.rng, self.policy = Random(seed * 7 + 1), policy
        self.lanes: list[Lane] = []
        all_meet = {a: s for a, s in streams.steps.items() if self.meets_only(a, s)}
        threads = [u.name for u in agents.units if not u.fixed]
        for agent in [(u, (("of", k),)) for u in threads for k in range(THREADS)]:
            streams.steps.setdefault(agent, [])
        for agent, steps in streams.steps.items():
            if agent in all_meet:
                continue
            mine = [*steps]
            for other, barriers in all_meet.items():
                outer = set(other[1])
                fixed = self.units[agent[0]].fixed
                if other[0] == agent[0] and (not fixed or outer <= set(agent[1])):
                    mine += barriers
            mine.sort(key=lambda step: step.at)
            count = 2 if self.units[agent[0]].lanes else 1
            self.lanes += [Lane(agent, number, mine) for number in range(count)]
        for lane in self.lanes:
            lane.clock[lane.component] = 1
        self.ops: list[Op] = []
        self.shared: dict[object, Op] = {}
        self.leaders: dict[object, object] = {}
        self.joint: dict[int, Op] = {}
        self.rings: dict[object, list[Phases]] = {}
        self.queue: dict[str, list[tuple[Clock, dict[str, Clock]]]] = defaultdict(list)
        self.arrivals: list[tuple[Lane, Token, list[object]]] = []
        self.held: dict[object, list[tuple[Clock, dict[str, Clock]]]] = defaultdict(list)
        self.met: dict[object, int] = defaultdict(int)
        self.touched: dict[object, list[tuple]] = defaultdict(list)
        self.lagging = self.rng.choice(self.lanes).agent if self.lanes else None

    def meets_only(self, agent: Agent, steps: Sequence[Step]) -> bool:
        """Whether what is written down for an agent are barriers that stand outside of its loops."""
        return all(
            isinstance(step.stmt, Sync)
            and step.stmt.action is Action.BARRIER
            and not any(unit == step.stmt.name for unit, _, _ in step.bound)
            for step in steps
        ) and not any(k[0] == "of" for k in agent[1])

    def run(self) -> None:
        while True:
            ready = [("lane", lane) for lane in self.lanes if self.enabled(lane)]
            ending = [("op", op) for op in self.ops if op.ready]
            arriving = [("arrive", one) for one in self.arrivals if self.has_ended(one[2])]
            if self.policy == "late" and ready:
                ending, arriving = [], arriving if self.rng.random() < 0.2 else []
            if self.policy == "lag":
                rest = [one for one in ready if one[1].agent != self.lagging]
                ready = rest or (ready if not ending + arriving else [])
            choices = ready + ending + arriving
            if not choices:
                break
            kind, what = self.rng.choice(choices)
            if kind == "lane":
                self.step(what)
            elif kind == "op":
                self.end(what)
            else:
                self.arrivals.remove(what)
                self.arrive(what[0], what[1], what[2])
        left = [lane for lane in self.lanes if lane.at < len(lane.steps)]
        if left:
            raise FaultyOrder(
                f"stands still: {left[0].agent} before {left[0].steps[left[0].at].stmt}"
            )
        if self.arrivals:
            raise FaultyOrder("an arrival never came")
        if self.agents.blocks and any(self.queue.values()):
            raise FaultyOrder("a token is left")

    # -- steps

    def enabled(self, lane: Lane) -> bool:
        if lane.at >= len(lane.steps):
            return False
        step = lane.steps[lane.at]
        stmt = step.stmt
        if not isinstance(stmt, Sync):
            return True
        match stmt.action:
            case Action.WAIT:
                token = token_of(self.program, stmt)
                if self.agents.blocks:
                    return bool(self.queue[token.name])
                ring = self.ring(token, lane)
                number = lane.waited[token.name]
                return ring[number % token.room].phase % 2 != number // token.room % 2
            case Action.ARRIVE if self.agents.blocks:
                token = token_of(self.program, stmt)
                return len(self.queue[token.name]) < token.room
            case Action.WAIT_GROUP:
                engine = stmt.unit or lane.agent[0]
                return all(op.done for op in self.older(lane, engine, stmt.pending))
            case Action.BARRIER:
                group = self.group(lane, step)
                place = (step.at, stmt.name, id(stmt))
                return all(
                    one.at < len(one.steps) and self.reached(one, place, lane) for one in group
                )
        return True

    def older(self, lane: Lane, engine: str, pending: int) -> list[Op]:
        issued = lane.issued[engine]
        return issued[: len(issued) - pending] if pending else issued

    def group(self, lane: Lane, step: Step) -> list[Lane]:
        """Who meets: the lanes of the agent, or all agents of the unit in the same outer loops."""
        unit = step.stmt.name
        if any(u == unit for u, _, _ in step.bound):
            return [one for one in self.lanes if one.agent == lane.agent]
        outer = {(name, k) for _, name, k in step.bound}
        fixed = self.units[unit].fixed
        return [
            one
            for one in self.lanes
            if one.agent[0] == unit and (not fixed or outer <= set(one.agent[1]))
        ]

    def reached(self, one: Lane, place, lane: Lane) -> bool:
        step = one.steps[one.at]
        if not isinstance(step.stmt, Sync) or step.stmt.action is not Action.BARRIER:
            return False
        return (step.at, step.stmt.name, id(step.stmt)) == place

    def step(self, lane: Lane) -> None:
        step = lane.steps[lane.at]
        stmt = step.stmt
        if not isinstance(stmt, Sync):
            self.leaf(lane, step)
            lane.at += 1
            return
        match stmt.action:
            case Action.WAIT:
                token = token_of(self.program, stmt)
                if self.agents.blocks:
                    known = [self.queue[token.name].pop(0)]
                else:
                    number = lane.waited[token.name]
                    known = self.ring(token, lane)[number % token.room].published
                for clock, fences in known:
                    join(lane.clock, clock, lane.fences, fences)
                lane.waited[token.name] += 1
            case Action.ARRIVE:
                token = token_of(self.program, stmt)
                pending = [op for one in lane.issued.values() for op in one if self.by_token(op)]
                self.arrivals.append((lane, token, [*pending]))
                self.snapshot(lane)
                if self.agents.blocks:
                    what = self.arrivals.pop()
                    self.queue[token.name].append((dict(lane.clock), copied(lane.fences)))
                    del what
            case Action.WAIT_GROUP:
                for op in self.older(lane, stmt.unit or lane.agent[0], stmt.pending):
                    join(lane.clock, op.clock, lane.fences, op.fences)
            case Action.FENCE:
                lane.fences[stmt.name][lane.component] = lane.clock[lane.component]
            case Action.BARRIER:
                group = self.group(lane, step)
                for one in group:
                    for other in group:
                        join(one.clock, other.clock, one.fences, other.fences)
                for one in group:
                    one.clock[one.component] += 1
                    one.at += 1
                return
        lane.clock[lane.component] += 1
        lane.at += 1

    def snapshot(self, lane: Lane) -> None:
        """What the arrival that was noted last brings with it: what its lane knew."""
        arrival = self.arrivals[-1]
        arrival[2].append((dict(lane.clock), copied(lane.fences)))

    def by_token(self, op: Op | object) -> bool:
        return not isinstance(op, Op) or self.units[op.step.engine].ends.value == "token"

    def has_ended(self, pending: Sequence[object]) -> bool:
        for one in pending:
            if isinstance(one, Op) and not one.done:
                return False
            if isinstance(one, Shared) and not (
                one.key in self.shared and self.shared[one.key].done
            ):
                return False
        return True

    def arrive(self, lane: Lane, token: Token, pending: Sequence[object]) -> None:
        known: list[tuple[Clock, dict[str, Clock]]] = []
        for one in pending:
            if isinstance(one, Op):
                known.append((one.clock, one.fences))
            elif isinstance(one, Shared):
                op = self.shared[one.key]
                known.append((op.clock, op.fences))
            else:
                known.append(one)
        number = lane.arrived[token.name]
        lane.arrived[token.name] += 1
        lanes = [one for one in self.lanes if one.agent == lane.agent]
        key = (token.name, lane.agent, number)
        self.held[key] += known
        self.met[key] += 1
        if self.met[key] < len(lanes):
            return
        for ring in self.rings_of(token, lane):
            one = ring[number % token.room]
            one.pending += self.units[token.source].arrivals
            one.gathering += self.held[key]
            if one.pending > token.count:
                raise FaultyOrder(f"{one.pending} arrivals for a token of {token.count}")
            if one.pending == token.count:
                one.phase, one.pending = one.phase + 1, 0
                one.published, one.gathering = one.gathering, []

    # -- rings of barriers, by what the count of a token says

    def scope(self, token: Token) -> tuple[set[str], set[str]]:
        """The loops whose iterations have barriers of their own, and those over which arrivals go to all."""
        of = {
            unit: {
                name for lane in self.lanes if lane.agent[0] == unit for name, _ in lane.agent[1]
            }
            for unit in (token.source, token.target)
        }
        common = of[token.source] & of[token.target]
        only = of[token.source] - common
        local = prod(self.extents[name] for name in only) * self.units[token.source].arrivals
        wide: set[str] = set()
        multicast = {s.multicast for s in walk(self.program) if isinstance(s, Tile) and s.multicast}
        if token.count != local:
            wide = common & multicast
        return common, wide

    def ring(self, token: Token, lane: Lane) -> list[Phases]:
        common, _ = self.scope(token)
        key = (token.name, tuple(one for one in lane.agent[1] if one[0] in common))
        if key not in self.rings:
            self.rings[key] = [Phases() for _ in range(token.room)]
        return self.rings[key]

    def rings_of(self, token: Token, lane: Lane) -> list[list[Phases]]:
        common, wide = self.scope(token)
        mine = [one for one in lane.agent[1] if one[0] in common]
        found = []
        for values in product(
            *(range(self.extents[name]) if name in wide else [k] for name, k in mine)
        ):
            key = (token.name, tuple((name, k) for (name, _), k in zip(mine, values, strict=True)))
            if key not in self.rings:
                self.rings[key] = [Phases() for _ in range(token.room)]
            found.append(self.rings[key])
        return found

    # -- leaves

    def leaf(self, lane: Lane, step: Step) -> None:
        if not step.engine:
            self.touch(lane.component, lane.clock, lane.fences, lane.agent, step, step.touches)
            lane.clock[lane.component] += 1
            return
        if self.units[step.engine].engine and lane.number > 0:
            return  # one lane issues it
        if step.shared is not None:
            self.multicast(lane, step)
            return
        lanes = [one for one in self.lanes if one.agent == lane.agent]
        together = len(lanes) > 1 and not self.units[step.engine].engine
        known = self.joint.get(id(step)) if together else None
        if known is None:
            known = self.issue(lane, step)
            self.joint[id(step)] = known
            known.lanes = len(lanes) if together else 1
        else:  # all lanes issue it together
            join(known.clock, lane.clock, known.fences, lane.fences)
        known.lanes -= 1
        lane.issued[step.engine].append(known)
        lane.clock[lane.component] += 1

    def issue(self, lane: Lane, step: Step) -> Op:
        before = lane.issued[step.engine]
        after = before[-1] if before and self.units[step.engine].in_order else None
        after = after if isinstance(after, Op) else None
        component = ("op", len(self.ops))
        op = Op(step, dict(lane.clock), copied(lane.fences), component, after)
        op.clock[component] = 1
        self.ops.append(op)
        return op

    def multicast(self, lane: Lane, step: Step) -> None:
        """A copy that one agent issues for all: each notes that it will come."""
        key = step.shared
        agents = self.leaders.setdefault(key, {})
        agents[lane.agent] = step
        loop = step.stmt.multicast
        if "leader" not in agents:
            agents["leader"] = self.rng.randrange(self.extents[loop])
        if dict(lane.agent[1])[loop] == agents["leader"]:
            op = self.issue(lane, step)
            # what it writes in the windows of the others is told when it ends
            self.shared[key] = op
        lane.issued[step.engine].append(Shared(key))
        lane.clock[lane.component] += 1

    def end(self, op: Op) -> None:
        if op.after is not None:
            join(op.clock, op.after.clock, op.fences, op.after.fences)
        step = op.step
        touches = list(step.touches)
        if step.shared is not None:
            for other in self.every_copy(step):
                touches += other.touches
        self.touch(op.component, op.clock, op.fences, None, step, touches)
        op.done = True

    def every_copy(self, step: Step) -> list[Step]:
        return [
            other
            for lane in self.lanes
            for other in lane.steps
            if other.shared == step.shared and other is not step
        ]

    def touch(self, component, clock, fences, agent, step: Step, touches) -> None:
        kind = self.units[step.engine].fence if step.engine else ""
        for place, writes in touches:
            for other, time, wrote, at, whose, was in self.touched[place]:
                if not (writes or wrote) or other == component:
                    continue
                if agent is not None and whose == agent:
                    continue
                if clock.get(other, 0) < time:
                    raise FaultyOrder(f"race on {place}: {step.stmt} and what ran at {at}")
                if at > step.at:
                    raise FaultyOrder(f"{step.stmt} runs behind what follows it at {at}")
                if kind and wrote and was != kind and fences.get(kind, {}).get(other, 0) < time:
                    raise FaultyOrder(f"no fence {kind} behind what is written at {place}")
            self.touched[place].append((component, clock[component], writes, step.at, agent, kind))


@dataclass(frozen=True)
class Shared:
    """A copy that some agent issues for several."""

    key: object
    done: bool = False


def copied(fences: Mapping[str, Clock]) -> dict[str, Clock]:
    return defaultdict(dict, {kind: dict(clock) for kind, clock in fences.items()})


def join(clock: Clock, other: Clock, fences: dict[str, Clock], others: Mapping[str, Clock]) -> None:
    for component, time in other.items():
        clock[component] = max(clock.get(component, 0), time)
    for kind, known in others.items():
        mine = fences.setdefault(kind, {})
        for component, time in known.items():
            mine[component] = max(mine.get(component, 0), time)


POLICIES = ("late", "lag", "random")


def fault_of(
    program: Program, agents: Agents, sizes: Mapping[str, int], seeds: Sequence[int] = range(6)
) -> str | None:
    """What goes wrong in some run; None where nothing does."""
    for seed in seeds:
        try:
            Machine(program, agents, sizes, seed, POLICIES[seed % 3]).run()
        except FaultyOrder as fault:
            return str(fault)
    return None
