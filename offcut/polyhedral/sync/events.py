"""What the agents of a program do, read from its text: leaves with what they touch, and statements of synchronization.

A *leaf* is what one agent runs at a time: a tile, a store, a nest of plain loops around stores. Its *places* are where
it reads and writes: of an array the elements; of a window the part that it owns, the slot, and the offsets inside.

    for g in 0:2 @warpgroup             places of C:  row m, column j
      for k in 0:n                      places of S:  g, k % 4, i - 8*k
        alloc S[8*k +: 8] in shared depth 4

The order of the text is told by numbers, a position and an iterator in turns (`Event.time`). Loops that are bound to
units have no part in it: which agent it is stands beside (`Event.loops`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TypeAlias

from offcut.core import index as ix
from offcut.core.accesses import statuses
from offcut.core.conditions import negated
from offcut.core.expr import Expr, Var, all_loads, reads_memory, substitute, variables
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
    expressions,
    walk,
)
from offcut.core.text.printer import format_head
from offcut.core.walking import Place
from offcut.errors import PartitionError
from offcut.polyhedral.sync.agents import Agents, Ends, Unit
from offcut.polyhedral.units.private import tile_buffers

Key: TypeAlias = tuple[str, int]
"""A unit, and how many loops bound to it stand around."""


@dataclass(frozen=True, slots=True)
class Loop:
    """``for name in lo:hi`` around an event; `key` where it is bound to a unit that agents have."""

    name: str
    lo: Expr
    hi: Expr
    key: Key | None = None
    at: Place = ()


@dataclass(frozen=True, slots=True)
class Access:
    """Places that a leaf touches.

    region  an array, or a window: where its ``alloc`` stands
    place   their coordinates, over iterators around and `inner` ones; None where one is not known
    inner   iterators inside of the leaf, from 0 on, and how many iterations they have
    where   conditions inside of the leaf
    """

    region: str
    place: tuple[Expr | None, ...]
    inner: tuple[tuple[str, Expr], ...]
    where: tuple[Expr, ...]
    writes: bool


@dataclass(frozen=True, slots=True)
class Event:
    """A leaf or a statement of synchronization.

    unit     who runs it
    engine   of an asynchronous leaf, the unit whose `Ends` it has; "" of any other
    loops    around it, outermost first
    time     its place in the text: positions, and iterators of loops that no agents share
    place    where the statement stands, as `walking.numbered` has it
    copies   of a copy to several agents at once: the elements of whole arrays that it reads and writes,
             and where the windows begin
    """

    number: int
    unit: str
    engine: str
    loops: tuple[Loop, ...]
    where: tuple[Expr, ...]
    time: tuple[int | str, ...]
    place: Place
    stmt: Stmt
    accesses: tuple[Access, ...] = ()
    copies: tuple[Access, ...] = ()

    @property
    def keys(self) -> dict[Key, Loop]:
        """The loops around whose iterations are agents."""
        return {loop.key: loop for loop in self.loops if loop.key is not None}

    @property
    def head(self) -> str:
        """Its first line."""
        return format_head(self.stmt)


@dataclass(frozen=True)
class Events:
    """What agents of `program` do.

    derived  values of `let` over sizes alone, with their promised range
    parts    how many places a region has, as far as that is a literal
    """

    program: Program
    agents: Agents
    leaves: tuple[Event, ...]
    syncs: tuple[Event, ...]
    derived: Mapping[str, tuple[int, int]]
    parts: Mapping[str, int | None]
    units: Mapping[str, Unit]


def events(program: Program, agents: Agents) -> Events:
    """What the agents of `program` do.

    Raises PartitionError for a statement that no agent is said to run.
    """
    return _Reader(program, agents).read()


def refused(program: Program, at: str, because: str, *help: str) -> PartitionError:
    """The refusal of a program whose agents would not keep the order of the text."""
    what = f"cannot keep the order of {program.name} on units that run side by side"
    return PartitionError("sync", what, at=at, because=because, help=help)


@dataclass(frozen=True, slots=True)
class _Window:
    region: str
    owner: tuple[str, ...]
    slot: Expr | None
    starts: tuple[Expr, ...]
    known: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class _Scope:
    loops: tuple[Loop, ...] = ()
    where: tuple[Expr, ...] = ()
    time: tuple[int | str, ...] = ()
    windows: Mapping[str, _Window] = field(default_factory=dict)


class _Reader:
    def __init__(self, program: Program, agents: Agents) -> None:
        self.program, self.agents, self.units = program, agents, agents.by_name
        written = {stmt.buffer for stmt in walk(program) if isinstance(stmt, Store)}
        self.shared = written - tile_buffers(program) - statuses(program)
        self.sizes = {size.name for size in program.sizes}
        self.leaves: list[Event] = []
        self.syncs: list[Event] = []
        self.derived: dict[str, tuple[int, int]] = {}
        self.parts: dict[str, int | None] = {}
        self.count = 0
        for buffer in program.buffers:
            self.parts[buffer.name] = _product(buffer.shape)

    def read(self) -> Events:
        self.block(self.program.body, (), _Scope(), [0])
        return Events(
            self.program,
            self.agents,
            tuple(self.leaves),
            tuple(self.syncs),
            self.derived,
            self.parts,
            self.units,
        )

    def block(self, body: Sequence[Stmt], place: Place, scope: _Scope, at: list[int]) -> None:
        """A block; `at` is the next position in the text, of all that stands in the same loop."""
        for position, stmt in enumerate(body):
            self.statement(stmt, (*place, position), scope, at)

    def statement(self, stmt: Stmt, place: Place, scope: _Scope, at: list[int]) -> None:
        match stmt:
            case Alloc():
                self.block(stmt.body, place, self.within(stmt, place, scope), at)
            case Let(name, lo, hi, value, body):
                if variables(value) <= self.sizes | self.derived.keys() and not reads_memory(value):
                    self.derived[name] = (lo, hi)
                    self.block(body, place, scope, at)
                    return
                raise self.refuse(stmt, "it is a value of what changes while units run")
            case If(condition, then, other):
                yes = replace(scope, where=(*scope.where, condition))
                no = replace(scope, where=(*scope.where, negated(condition)))
                self.block(then, (*place, 0), yes, at)
                self.block(other, (*place, 1), no, at)
            case For(name, lo, hi, body) if not self.is_leaf(stmt):
                key = self.key(stmt, scope)
                loop = Loop(name, lo, hi, key, place)
                time = (*scope.time, at[0]) if key is not None else (*scope.time, at[0], name)
                self.block(body, place, replace(scope, loops=(*scope.loops, loop), time=time), [0])
                at[0] += 1
            case For() | Tile() | Store():
                self.add(stmt, place, scope, at)
            case Sync():
                self.add(stmt, place, scope, at)
            case Choose():
                raise self.refuse(stmt, "which option runs is not known here")

    def is_leaf(self, loop: For) -> bool:
        """Whether a loop is a nest of stores that one agent runs."""
        inside = walk((loop,))
        return all(
            isinstance(one, Store | If) or (isinstance(one, For) and one.unit not in self.units)
            for one in inside
        )

    def key(self, loop: For, scope: _Scope) -> Key | None:
        """The unit whose agents the iterations of a loop are; None where one agent runs them all."""
        if loop.unit is None or loop.unit not in self.units:
            return None
        several = sum(one.key is not None and one.key[0] == loop.unit for one in scope.loops)
        return loop.unit, several

    def within(self, alloc: Alloc, place: Place, scope: _Scope) -> _Scope:
        """Inside of a window."""
        starts = tuple(start for start, _ in alloc.axes)
        outer = None if alloc.inplace is None else scope.windows.get(alloc.inplace)
        literal = [ix.literal(extent) for _, extent in alloc.axes]
        known = tuple(
            all(one is not None for one in literal[axis + 1 :]) for axis in range(len(literal))
        )
        if outer is not None:
            window = replace(outer, starts=starts, known=known)
        else:
            owner = tuple(loop.name for loop in scope.loops if loop.key is not None)
            serial = [loop for loop in scope.loops if loop.key is None]
            slot = None
            if alloc.depth > 1 and serial:
                step = ix.sub(Var(serial[-1].name), serial[-1].lo)
                slot = ix.mod(step, alloc.depth)
            region = f"{alloc.buffer}@{'.'.join(map(str, place))}"
            window = _Window(region, owner, slot, starts, known)
            self.parts[region] = None if owner or alloc.depth == 1 else alloc.depth
        return replace(scope, windows={**scope.windows, alloc.buffer: window})

    def add(self, stmt: Stmt, place: Place, scope: _Scope, at: list[int]) -> None:
        """One more event."""
        time = (*scope.time, at[0])
        at[0] += 1
        where = scope.where
        if isinstance(stmt, Sync):
            if stmt.where is not None:
                where = (*where, stmt.where)
            unit, engine = self.doer(stmt, scope)
            accesses: tuple[Access, ...] = ()
        else:
            if any(isinstance(one, Sync) for one in walk((stmt,))):
                raise self.refuse(stmt, "a statement of synchronization stands inside of a tile")
            mark = stmt.unit if isinstance(stmt, Tile) else None
            unit = self.runner(mark, scope)
            late = isinstance(stmt, Tile) and stmt.asynchronous
            engine = (mark or unit) if late else ""
            if engine and self.units[engine].ends is Ends.IN_ORDER:
                engine = ""
            accesses = tuple(dict.fromkeys(_Inside(self.shared, scope.windows).of(stmt)))
        copies = self.copies(stmt, scope)
        self.count += 1
        number = self.count - 1
        event = Event(number, unit, engine, scope.loops, where, time, place, stmt, accesses, copies)
        (self.syncs if isinstance(stmt, Sync) else self.leaves).append(event)

    def runner(self, mark: str | None, scope: _Scope) -> str:
        """The unit that runs a statement: its mark's, or that of the loops around."""
        if mark is not None:
            if mark not in self.units:
                raise refused(
                    self.program,
                    f"@by({mark})",
                    "the machine has no unit of that name",
                    *(f"@by({name})" for name in self.units),
                )
            if not self.units[mark].engine:
                return mark
        bound = [loop.key[0] for loop in scope.loops if loop.key is not None]
        return bound[-1] if bound else self.agents.default

    def doer(self, sync: Sync, scope: _Scope) -> tuple[str, str]:
        """Who comes to a statement of synchronization, and the engine whose groups it waits for."""
        match sync.action:
            case Action.ARRIVE | Action.WAIT:
                token = next((t for t in self.program.tokens if t.name == sync.name), None)
                if token is None:
                    raise self.refuse(sync, f"no token {sync.name} is declared")
                unit = token.source if sync.action is Action.ARRIVE else token.target
                if unit not in self.units or self.units[unit].engine:
                    raise self.refuse(sync, f"the machine has no unit {unit} that does it")
                return unit, ""
            case Action.BARRIER:
                if sync.name not in self.units or self.units[sync.name].engine:
                    raise self.refuse(sync, f"the machine has no unit {sync.name} that meets")
                return sync.name, ""
            case _:
                unit = self.runner(sync.unit, scope)
                return unit, (sync.unit or unit) if sync.action is Action.WAIT_GROUP else ""

    def copies(self, stmt: Stmt, scope: _Scope) -> tuple[Access, ...]:
        """What a copy to several agents at once reads and writes."""
        if not isinstance(stmt, Tile) or stmt.multicast is None:
            return ()
        every = {buffer.name for buffer in self.program.buffers}
        found = [*_Inside(every, {}).of(stmt)]
        touched = {access.region for access in found}
        found += [
            Access(name, window.starts, (), (), True)
            for name, window in scope.windows.items()
            if name in touched
        ]
        return tuple(dict.fromkeys(found))

    def refuse(self, stmt: Stmt, because: str) -> PartitionError:
        return refused(self.program, format_head(stmt), because)


@dataclass
class _Inside:
    """The accesses inside of a leaf, each iterator counted from where it starts."""

    shared: Collection[str]
    windows: Mapping[str, _Window]
    names: int = 0

    def of(
        self,
        stmt: Stmt,
        values: Mapping[str, Expr] = MappingProxyType({}),
        inner: tuple[tuple[str, Expr], ...] = (),
        where: tuple[Expr, ...] = (),
    ) -> Iterator[Access]:
        """Each access inside of a statement."""
        for expr in expressions(stmt):
            yield from self.loads(expr, values, inner, where)
        match stmt:
            case Store(buffer, index, _):
                yield from self.access(buffer, index, True, values, inner, where)
            case For(name, lo, hi, body):
                values, inner = self.entered(name, lo, ix.sub(hi, lo), values, inner)
                for one in body:
                    yield from self.of(one, values, inner, where)
            case Tile(axes, body, condition):
                for axis in axes:
                    values, inner = self.entered(axis.iter, axis.start, axis.extent, values, inner)
                if condition is not None:
                    where = (*where, _at(condition, values))
                for one in body:
                    yield from self.of(one, values, inner, where)
            case If(condition, then, other):
                for one in then:
                    yield from self.of(one, values, inner, (*where, _at(condition, values)))
                for one in other:
                    no = negated(_at(condition, values))
                    yield from self.of(one, values, inner, (*where, no))
            case Let(name, _, _, value, body):
                for one in body:
                    yield from self.of(one, {**values, name: _at(value, values)}, inner, where)
            case Alloc(_, _, body):
                for one in body:
                    yield from self.of(one, values, inner, where)

    def entered(
        self,
        name: str,
        start: Expr,
        extent: Expr,
        values: Mapping[str, Expr],
        inner: tuple[tuple[str, Expr], ...],
    ) -> tuple[dict[str, Expr], tuple[tuple[str, Expr], ...]]:
        """Inside of one more loop: the iterator is its start, and so many more."""
        self.names += 1
        own = f"{name} inside {self.names}"
        moved = {**values, name: ix.add(_at(start, values), Var(own))}
        return moved, (*inner, (own, _at(extent, values)))

    def loads(
        self,
        expr: Expr,
        values: Mapping[str, Expr],
        inner: tuple[tuple[str, Expr], ...],
        where: tuple[Expr, ...],
    ) -> Iterator[Access]:
        for load in all_loads(expr):
            yield from self.access(load.buffer, load.index, False, values, inner, where)

    def access(
        self,
        buffer: str,
        index: Sequence[Expr],
        writes: bool,
        values: Mapping[str, Expr],
        inner: tuple[tuple[str, Expr], ...],
        where: tuple[Expr, ...],
    ) -> Iterator[Access]:
        if buffer not in self.shared:
            return
        at: list[Expr | None] = [_at(part, values) for part in index]
        window = self.windows.get(buffer)
        if window is None:
            yield Access(buffer, tuple(at), inner, where, writes)
            return
        offsets = [
            ix.simplify(ix.sub(part, start)) if known and part is not None else None
            for part, start, known in zip(at, window.starts, window.known, strict=True)
        ]
        slot = () if window.slot is None else (window.slot,)
        owner = tuple(Var(name) for name in window.owner)
        yield Access(window.region, (*owner, *slot, *offsets), inner, where, writes)


def _at(expr: Expr, values: Mapping[str, Expr]) -> Expr:
    return ix.folded(substitute(expr, values)) if values else expr


def _product(shape: Sequence[Expr]) -> int | None:
    total = 1
    for extent in shape:
        literal = ix.literal(extent)
        if literal is None:
            return None
        total *= literal
    return total


__all__ = ["Access", "Event", "Events", "Key", "Loop", "events", "refused"]
