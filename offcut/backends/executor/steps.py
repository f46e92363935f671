"""Expands a program of units into the steps of each agent, at given sizes.

An *agent* is a unit with the values of the loops around that are bound to units: warp 1 of block 0. A *step* is a statement
that it runs as a whole: a tile, a store, a nest of plain loops around stores, or a statement of synchronization. Windows are
objects: each time an ``alloc`` is reached there is a new one, whose elements nobody has written; a *region* is the memory
that the windows of one ``alloc`` take in turn, of which an agent, or the agents inside, have one for each slot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

from offcut.backends.executor.faults import ExecutionFault, fault
from offcut.backends.executor.launch_statements import cheapest
from offcut.core import index as ix
from offcut.core.expr import Const, Expr, Load, reads_memory, rewrite
from offcut.core.interpret.values import Array, InterpreterFault, evaluate
from offcut.core.program import (
    Action,
    Alloc,
    Choose,
    For,
    If,
    Let,
    Program,
    Stmt,
    Store,
    Sync,
    Tile,
    Token,
    walk,
)
from offcut.core.text.printer import format_head
from offcut.polyhedral.sync import Agents, Ends, slot_of

MAIN = "main memory"
"""The memory of arrays that lie in none of their own."""
UnitPath: TypeAlias = tuple[tuple[str, int], ...]
"""The loops around that are bound to units: each unit with the value of the iterator, outermost first."""


class Agent(NamedTuple):
    """One unit: its kind, the loops around it that are bound to units, and the launch that it is of."""

    unit: str
    path: UnitPath
    launch: int = 0

    def __str__(self) -> str:
        names = [f"{unit} {value}" for unit, value in reversed(self.path)]
        if self.path and self.path[-1][0] == self.unit:
            return " of ".join(names)
        return " of ".join([self.unit, *names])


@dataclass(eq=False)
class Region:
    """Memory that windows take in turn, or that an array has.

    name    of the buffer
    memory  the memory that it is in
    shape   the largest extents of its windows
    """

    name: str
    memory: str
    shape: tuple[int, ...]


@dataclass(eq=False)
class Place:
    """The elements of a buffer for a while: a window, or a whole array.

    starts   the coordinates of its first element
    tracked  whether accesses are compared with those of others: not of an array that the program never writes
    values   of its elements; None: nothing has touched it so far
    initialized  a mask: the elements that some step has written
    outer    the place that it lies in, element on element: a write here ends the life of the element there
    """

    region: Region
    starts: tuple[int, ...]
    extents: tuple[int, ...]
    dtype: str
    tracked: bool = True
    values: Array | None = None
    initialized: Array | None = None
    outer: Place | None = None
    owner: Array | None = None


@dataclass(eq=False)
class Step:
    """A statement that an agent runs next.

    number   its place among all steps, as the text runs
    values   of sizes and iterators around
    path     the loops around it that are bound to units
    places   of the buffers of which there is a window around
    engine   of an asynchronous tile, the unit whose end it has; "" of all others
    """

    number: int
    stmt: Stmt
    values: Mapping[str, int]
    path: UnitPath
    places: Mapping[str, Place]
    engine: str = ""

    @property
    def head(self) -> str:
        """Return its first line of text, in backquotes."""
        return f"`{format_head(self.stmt)}`"


@dataclass
class Streams:
    """The steps of each agent, and the barriers that agents of a unit meet at.

    agents    of all units that loops around are bound to, and those that run something
    barriers  (unit, loops around, step) of barriers outside of the unit's own loops
    regions   by alloc, owner and slot
    """

    agents: dict[Agent, list[Step]] = field(default_factory=dict)
    barriers: list[tuple[str, UnitPath, Step]] = field(default_factory=list)
    regions: dict[object, Region] = field(default_factory=dict)

    def all_steps(self) -> dict[Agent, list[Step]]:
        """Return the steps of each agent in the order of the text, with barriers."""
        steps = {agent: [*agent_steps] for agent, agent_steps in self.agents.items()}
        for unit, path, step in self.barriers:
            for agent, agent_steps in steps.items():
                if agent.unit == unit and agent.path[: len(path)] == path:
                    agent_steps.append(step)
        for agent_steps in steps.values():
            agent_steps.sort(key=lambda step: step.number)
        return steps


@dataclass(frozen=True)
class _Scope:
    values: Mapping[str, int]
    path: UnitPath = ()
    loops: tuple[tuple[str, Expr, Expr, int], ...] = ()  # not bound: name, lo, hi, and value
    places: Mapping[str, Place] = field(default_factory=dict)


class Reader:
    """Reads the steps of statements of a program, at given sizes.

    given  the arrays that the program reads and never writes: their elements may decide which units run what
    """

    def __init__(self, program: Program, agents: Agents, given: Mapping[str, Array]) -> None:
        self.program, self.agents, self.units = program, agents, agents.by_name
        self.given = given
        self.buffers = {buffer.name: buffer for buffer in program.buffers}
        self.tokens: dict[str, Token] = {token.name: token for token in program.tokens}
        self.number, self.launch = 0, 0
        self._leaf: dict[int, bool] = {}

    def read(self, body: Sequence[Stmt], values: Mapping[str, int], path: UnitPath = ()) -> Streams:
        """Return the streams of `body`.

        Raises ExecutionFault for a statement that no unit of the machine runs.
        """
        self.streams = Streams()
        self.block(body, _Scope(values, path))
        return self.streams

    def block(self, body: Sequence[Stmt], scope: _Scope) -> None:
        """Add the steps of statements, one after the other."""
        for stmt in body:
            self.statement(stmt, scope)

    def statement(self, stmt: Stmt, scope: _Scope) -> None:
        """Add the steps of a statement, or the statement as one step."""
        match stmt:
            case Tile() | Store():
                self.leaf(stmt, scope)
            case Sync():
                self.sync(stmt, scope)
            case Alloc():
                places = {**scope.places, stmt.buffer: self.window(stmt, scope)}
                self.block(stmt.body, replace(scope, places=places))
            case For() | If() | Let() if self.is_leaf(stmt):
                self.leaf(stmt, scope)
            case For(name, lo, hi, body, unit=unit):
                first, last = self.value(lo, stmt, scope), self.value(hi, stmt, scope)
                if unit is not None and unit not in self.units:
                    self.check_unit(unit, stmt, scope)
                loop_unit = unit if unit in self.units else None
                for value in range(first, last):
                    inner = replace(scope, values={**scope.values, name: value})
                    if loop_unit is not None:
                        inner = replace(inner, path=(*scope.path, (loop_unit, value)))
                        self.streams.agents.setdefault(
                            Agent(loop_unit, inner.path, self.launch), []
                        )
                    else:
                        loop = (name, lo, hi, value)
                        inner = replace(inner, loops=(*scope.loops, loop))
                    self.block(body, inner)
            case If(condition, then, other):
                holds = self.value(condition, stmt, scope)
                self.block(then if holds else other, scope)
            case Let(name, lo, hi, value, body):
                number = self.value(value, stmt, scope)
                if not lo <= number < hi:
                    because = f"{name} = {number} is not in {lo}:{hi}"
                    raise self.fault("promise", stmt, scope, because)
                self.block(body, replace(scope, values={**scope.values, name: number}))
            case Choose(options):
                if options:
                    self.block(cheapest(options, scope.values).body, scope)

    def check_unit(self, unit: str, stmt: Stmt, scope: _Scope) -> None:
        """Check that a loop bound to a unit without agents is one of lanes, or unrolled."""
        if unit not in ("lane", "unroll"):
            because = f"the machine has no unit {unit} whose iterations run side by side"
            raise self.fault("unit", stmt, scope, because, *(f"@{name}" for name in self.units))

    def is_leaf(self, stmt: Stmt) -> bool:
        """Return whether a statement is made of stores that one agent runs."""
        if id(stmt) not in self._leaf:
            self._leaf[id(stmt)] = all(
                isinstance(one, Store | If | Let)
                or (isinstance(one, For) and one.unit not in self.units)
                for one in walk((stmt,))
            )
        return self._leaf[id(stmt)]

    def leaf(self, stmt: Stmt, scope: _Scope) -> None:
        """Add a statement that one agent runs."""
        for one in walk((stmt,)):
            if isinstance(one, For) and one.unit is not None:
                self.check_unit(one.unit, one, scope)
        mark = stmt.unit if isinstance(stmt, Tile) else None
        if mark is not None and mark not in self.units:
            because = f"the machine has no unit {mark}"
            raise self.fault("unit", stmt, scope, because, *(f"@by({name})" for name in self.units))
        agent = self.runner(mark, scope.path)
        late = isinstance(stmt, Tile) and stmt.asynchronous
        engine = (mark or agent.unit) if late else ""
        if engine and self.units[engine].ends is Ends.IN_ORDER:
            engine = ""
        if isinstance(stmt, Tile) and stmt.multicast is not None:
            raise self.fault(
                "unit", stmt, scope, "copies to all blocks of a cluster are not run here"
            )
        if any(isinstance(one, Sync) for one in walk((stmt,))):
            because = "a statement of synchronization stands inside of what one unit runs"
            raise self.fault("unit", stmt, scope, because)
        self.add(agent, stmt, scope, engine)

    def sync(self, stmt: Sync, scope: _Scope) -> None:
        """Add a statement of synchronization."""
        if stmt.where is not None and not self.value(stmt.where, stmt, scope):
            return
        match stmt.action:
            case Action.ARRIVE | Action.WAIT:
                token = self.tokens.get(stmt.name)
                if token is None:
                    raise self.fault("unit", stmt, scope, f"no token {stmt.name} is declared")
                unit = token.source if stmt.action is Action.ARRIVE else token.target
                runs = self.synchronizing_unit(unit, stmt, scope)
                self.add(Agent(runs, scope.path, self.launch), stmt, scope)
            case Action.BARRIER:
                self.synchronizing_unit(stmt.name, stmt, scope)
                if any(unit == stmt.name for unit, _ in scope.path):
                    self.add(Agent(stmt.name, scope.path, self.launch), stmt, scope)
                    return
                step = self.step(stmt, scope, "")
                self.streams.barriers.append((stmt.name, scope.path, step))
            case _:
                agent = self.runner(stmt.unit, scope.path)
                self.add(agent, stmt, scope, stmt.unit or agent.unit)

    def synchronizing_unit(self, unit: str, stmt: Stmt, scope: _Scope) -> str:
        """Return `unit`.

        Raises ExecutionFault for a unit that the machine does not have, or that cannot arrive or wait.
        """
        if unit not in self.units or self.units[unit].engine:
            raise self.fault("unit", stmt, scope, f"the machine has no unit {unit} that does it")
        return unit

    def runner(self, mark: str | None, path: UnitPath) -> Agent:
        """Return the agent that runs a statement: of its mark, or of the loops around."""
        if mark is not None and mark in self.units and not self.units[mark].engine:
            return Agent(mark, path, self.launch)
        return Agent(path[-1][0] if path else self.agents.default, path, self.launch)

    def add(self, agent: Agent, stmt: Stmt, scope: _Scope, engine: str = "") -> None:
        """Add a step of an agent."""
        agent_steps = self.streams.agents.setdefault(agent, [])
        agent_steps.append(self.step(stmt, scope, engine))

    def step(self, stmt: Stmt, scope: _Scope, engine: str) -> Step:
        """Return the next step."""
        self.number += 1
        return Step(self.number, stmt, scope.values, scope.path, scope.places, engine)

    def window(self, alloc: Alloc, scope: _Scope) -> Place:
        """Return the new window of an ``alloc``."""
        buffer = self.buffers[alloc.buffer]
        starts = tuple(self.value(start, alloc, scope) for start, _ in alloc.axes)
        extents = tuple(max(self.value(extent, alloc, scope), 0) for _, extent in alloc.axes)
        outer = scope.places.get(alloc.inplace) if alloc.inplace is not None else None
        if outer is not None:
            return Place(outer.region, starts, extents, buffer.dtype, outer=outer)
        loops = [(name, lo, hi) for name, lo, hi, _ in scope.loops]
        slot = 0
        if alloc.depth > 1 and loops:
            slot = self.value(slot_of(loops, alloc.depth), alloc, scope)
        key = (id(alloc), scope.path, slot)
        region = self.streams.regions.get(key)
        if region is None:
            memory = alloc.memory or buffer.scope or MAIN
            region = self.streams.regions[key] = Region(alloc.buffer, memory, extents)
        region.shape = tuple(map(max, region.shape, extents))
        return Place(region, starts, extents, buffer.dtype)

    def value(self, expr: Expr, stmt: Stmt, scope: _Scope) -> int:
        """Return the value of an expression over sizes, iterators around, and elements of arrays that nobody writes."""
        literal = ix.literal_value(expr)
        if literal is not None:
            return literal
        if reads_memory(expr):
            expr = rewrite(expr, lambda part: self.element(part, stmt, scope))
        try:
            return int(evaluate(expr, scope.values))
        except InterpreterFault as error:
            raise self.fault("promise", stmt, scope, error.what) from error

    def element(self, part: Expr, stmt: Stmt, scope: _Scope) -> Const | None:
        """Return the element that a `Load` reads, of an array that nobody writes; None for any other expression."""
        if not isinstance(part, Load):
            return None
        array = self.given.get(part.buffer)
        if array is None:
            because = f"which units run what depends on {part.buffer}, which the program writes"
            raise self.fault("unit", stmt, scope, because)
        place = tuple(self.value(index, stmt, scope) for index in part.index)
        if not all(0 <= at < extent for at, extent in zip(place, array.shape, strict=True)):
            at = ", ".join(map(str, place))
            because = (
                f"it reads {part.buffer}[{at}] of {' × '.join(map(str, array.shape))} elements"
            )
            raise self.fault("bounds", stmt, scope, because)
        return Const(array[place].item(), part.dtype)

    def fault(
        self, finder: str, stmt: Stmt, scope: _Scope, because: str, *help: str
    ) -> ExecutionFault:
        """Return the error of a finder at a statement."""
        agent = self.runner(None, scope.path)
        at = f"`{format_head(stmt)}` on {agent}"
        return fault(self.program.name, finder, at=at, because=because, help=help)


def is_of_blocks(body: Sequence[Stmt], grid: str) -> bool:
    """Return whether statements are loops over agents of `grid`, and barriers of all of these, under plain loops and conditions."""
    for stmt in body:
        match stmt:
            case For(_, _, _, inner, unit=unit):
                if unit not in (None, grid) or (unit is None and not is_of_blocks(inner, grid)):
                    return False
                if unit == grid and any(ends_launch(one, grid) for one in walk(inner)):
                    return False
            case If(_, then, other):
                if not is_of_blocks((*then, *other), grid):
                    return False
            case Let(_, _, _, _, inner):
                if not is_of_blocks(inner, grid):
                    return False
            case Choose(options):
                if not options or not all(is_of_blocks(option.body, grid) for option in options):
                    return False
            case Sync():
                if not ends_launch(stmt, grid) or stmt.where:
                    return False
            case _:
                return False
    return True


def ends_launch(stmt: Stmt, grid: str) -> bool:
    """Return whether a statement is the barrier of all agents of `grid`."""
    return isinstance(stmt, Sync) and stmt.action is Action.BARRIER and stmt.name == grid
