"""Reads the events of a program from its text: leaves with the places that they touch, and statements of synchronization.

A *leaf* is a statement that one agent runs at a time: a tile, a store, a nest of plain loops around stores. The *places*
that it touches are elements of an array; in a window, the part that an agent owns, the slot, and the offsets inside.

    for g in 0:2 @warpgroup             places of C:  row m, column j
      for k in 0:n                      places of S:  g, k % 4, i - 8*k
        alloc S[8*k +: 8] in shared depth 4

The order of the text is that of lists, of a position and an iterator in turns (`Event.time`). Loops that are bound to
units have no part in it: their iterators are those of the agent (`Event.loops`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, TypeAlias

from offcut.core import index as ix
from offcut.core.analysis import analysis, last_stored
from offcut.core.conditions import negate
from offcut.core.expr import (
    Expr,
    Var,
    all_loads,
    children,
    dtype_of,
    reads_memory,
    substitute,
    variables,
)
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
    walk,
)
from offcut.core.text.printer import format_head
from offcut.core.traversal import Place, expressions
from offcut.errors import PartitionError
from offcut.polyhedral.sync.agents import Agents, Ends, Unit, slot_of
from offcut.polyhedral.units import tile_buffers

Key: TypeAlias = tuple[str, int]
"""A unit, and the number of loops bound to it around a loop bound to it."""


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
    """The places that a leaf touches by one store or load.

    region  an array, or a window, by the place of its ``alloc``
    place   their coordinates, over iterators around and `inner` ones; None for one that is not known
    inner   iterators inside of the leaf, which count from 0, each with its trip count
    where   conditions inside of the leaf
    writes  whether it is a store
    fenced  whether a fence stands between an ordinary store there and an engine that reads it: not in a memory of an agent's own
    """

    region: str
    place: tuple[Expr | None, ...]
    inner: tuple[tuple[str, Expr], ...]
    where: tuple[Expr, ...]
    writes: bool
    fenced: bool = True


@dataclass(frozen=True, slots=True)
class Event:
    """A leaf or a statement of synchronization.

    number   its own, from 0 on
    unit     the unit that runs it
    engine   of an asynchronous leaf, the unit whose `Ends` it has; "" of any other
    loops    those around it, outermost first
    where    the conditions around it
    time     its place in the text: positions, and iterators of loops that no agents share
    place    the place of the statement, as `walking.numbered` has it
    copies   of a copy to several agents at once, by store: the place in the window that it writes, and all indices that
             its value is made of
    """

    number: int
    unit: str
    engine: str
    loops: tuple[Loop, ...]
    where: tuple[Expr, ...]
    time: tuple[int | str, ...]
    place: Place
    stmt: Any
    accesses: tuple[Access, ...] = ()
    copies: tuple[Access, ...] = ()

    @property
    def keys(self) -> dict[Key, Loop]:
        """Return the loops around whose iterations are agents."""
        return {loop.key: loop for loop in self.loops if loop.key is not None}

    @property
    def head(self) -> str:
        """Return the first line of its statement."""
        return format_head(self.stmt)


@dataclass(frozen=True)
class Events:
    """The events of `program` on `agents`.

    derived  values of `let` over sizes alone, each with its promised range, half open; `lets` has the values
    parts    the number of elements of an array; None where it is not a literal
    units    the units by name
    own      the regions of which each agent has its own
    """

    program: Program
    agents: Agents
    leaves: tuple[Event, ...]
    syncs: tuple[Event, ...]
    derived: Mapping[str, tuple[int, int]]
    parts: Mapping[str, int | None]
    units: Mapping[str, Unit]
    lets: Mapping[str, Expr]
    own: frozenset[str]


def events(program: Program, agents: Agents, own: frozenset[str] = frozenset()) -> Events:
    """Return the events of `program`.

    own   buffers that no two agents share

    Raises PartitionError for a unit or a token that does not exist, a `let` that no host computes before, and a `choose`.
    """
    return _Reader(program, agents, own).read()


def fence_between(units: Mapping[str, Unit], one: Event, other: Event) -> str:
    """Return the kind of fence that the second of two leaves needs to see what the first one writes; "" for none."""
    mine, kind = (units[leaf.engine].fence if leaf.engine else "" for leaf in (one, other))
    theirs = {access.region for access in other.accesses if access.fenced}
    writes = any(access.writes and access.region in theirs for access in one.accesses)
    return kind if writes and kind != mine else ""


def by_one_lane(units: Mapping[str, Unit], one: Event, other: Event) -> bool:
    """Return whether one lane of an agent issues one of two leaves, and all its lanes run the other one."""
    engines = [bool(event.engine) and units[event.engine].engine for event in (one, other)]
    return units[one.unit].lanes and engines[0] != engines[1]


def multicast_keys(event: Event) -> tuple[Key, ...]:
    """Return the unit over whose agents a leaf copies at once, if it does."""
    name = event.stmt.multicast if isinstance(event.stmt, Tile) else None
    return tuple(key for key, loop in event.keys.items() if loop.name == name)


UNORDERED = "cannot keep the order of {} on units that run side by side"


def sync_error(
    program: Program,
    at: str,
    because: str,
    *help: str,
    error: type[PartitionError] = PartitionError,
    stmt: Stmt | None = None,
) -> PartitionError:
    """Return the error for a program whose agents would not keep the order of its text.

    stmt  that is at fault
    """
    result = error("sync", UNORDERED.format(program.name), at=at, because=because, help=help)
    result.stage = "" if stmt is None else last_stored(stmt)
    return result


@dataclass(frozen=True, slots=True)
class _Window:
    region: str
    owner: tuple[str, ...]
    slot: Expr | None
    starts: tuple[Expr, ...]
    known: tuple[bool, ...]
    fenced: bool


@dataclass(frozen=True, slots=True)
class _Scope:
    loops: tuple[Loop, ...] = ()
    where: tuple[Expr, ...] = ()
    time: tuple[int | str, ...] = ()
    windows: Mapping[str, _Window] = field(default_factory=dict)


class _Reader:
    def __init__(self, program: Program, agents: Agents, own: frozenset[str]) -> None:
        self.program, self.agents, self.units = program, agents, agents.by_name
        written = {stmt.buffer for stmt in walk(program) if isinstance(stmt, Store)}
        self.group_by_loops = (
            written - tile_buffers(program) - analysis(program).status_buffers - own
        )
        self.sizes = {size.name for size in program.sizes}
        self.leaves: list[Event] = []
        self.syncs: list[Event] = []
        self.derived: dict[str, tuple[int, int]] = {}
        self.lets: dict[str, Expr] = {}
        self.own_regions: set[str] = set()
        self.parts: dict[str, int | None] = {}
        for buffer in program.buffers:
            extents = [ix.literal_value(extent) for extent in buffer.shape]
            known = [extent for extent in extents if extent is not None]
            self.parts[buffer.name] = prod(known) if len(known) == len(extents) else None

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
            self.lets,
            frozenset(self.own_regions),
        )

    def block(self, body: Sequence[Stmt], place: Place, scope: _Scope, at: list[int]) -> None:
        """Read a block; `at` holds the next position in the text, for all statements in the same loop."""
        for position, stmt in enumerate(body):
            self.statement(stmt, (*place, position), scope, at)

    def statement(self, stmt: Stmt, place: Place, scope: _Scope, at: list[int]) -> None:
        match stmt:
            case Alloc():
                self.block(stmt.body, place, self.within(stmt, place, scope), at)
            case Let(name, lo, hi, value, body):
                if variables(value) <= self.sizes | self.derived.keys() and not reads_memory(value):
                    self.derived[name], self.lets[name] = (lo, hi), value
                    self.block(body, place, scope, at)
                    return
                raise self.refuse(stmt, "it is a value of what changes while units run")
            case If(condition) if reads_memory(condition) and self.is_leaf(stmt):
                self.add(stmt, place, scope, at)  # which of its accesses there are is not asked
            case If(condition, then, other):
                yes = replace(scope, where=(*scope.where, condition))
                no = replace(scope, where=(*scope.where, negate(condition)))
                self.block(then, (*place, 0), yes, at)
                self.block(other, (*place, 1), no, at)
            case For(name, lo, hi, body) if not self.is_leaf(stmt):
                key = self.key(stmt, scope)
                loop = Loop(name, lo, hi, key, place)
                time = (*scope.time, at[0]) if key is not None else (*scope.time, at[0], name)
                self.block(body, place, replace(scope, loops=(*scope.loops, loop), time=time), [0])
                at[0] += 1
            case For() | Tile() | Store() | Sync():
                self.add(stmt, place, scope, at)
            case Choose():
                raise self.refuse(stmt, "which option runs is not known here")

    def is_leaf(self, stmt: For | If) -> bool:
        """Return whether a statement is a nest of stores that one agent runs."""
        inside = walk((stmt,))
        return all(
            isinstance(one, Store | If) or (isinstance(one, For) and one.unit not in self.units)
            for one in inside
        )

    def key(self, loop: For, scope: _Scope) -> Key | None:
        """Return the unit whose agents the iterations of a loop are; None if one agent runs them all."""
        if loop.unit is None or loop.unit not in self.units:
            return None
        several = sum(one.key is not None and one.key[0] == loop.unit for one in scope.loops)
        return loop.unit, several

    def within(self, alloc: Alloc, place: Place, scope: _Scope) -> _Scope:
        """Return the scope inside of a window."""
        starts = tuple(start for start, _ in alloc.axes)
        outer = None if alloc.inplace is None else scope.windows.get(alloc.inplace)
        literal = [ix.literal_value(extent) for _, extent in alloc.axes]
        known = tuple(
            self.agents.pitched or all(one is not None for one in literal[axis + 1 :])
            for axis in range(len(literal))
        )
        if outer is not None:
            window = replace(outer, starts=starts, known=known)
        else:
            owner = tuple(loop.name for loop in scope.loops if loop.key is not None)
            serial = [(one.name, one.lo, one.hi) for one in scope.loops if one.key is None]
            slot = slot_of(serial, alloc.depth) if alloc.depth > 1 and serial else None
            region = f"{alloc.buffer}@{'.'.join(map(str, place))}"
            memory = alloc.memory or self.program.buffer(alloc.buffer).scope
            fenced = memory not in self.agents.own
            if not fenced:
                self.own_regions.add(region)
            window = _Window(region, owner, slot, starts, known, fenced)
        return replace(scope, windows={**scope.windows, alloc.buffer: window})

    def add(self, stmt: Stmt, place: Place, scope: _Scope, at: list[int]) -> None:
        """Add the event of a statement."""
        time = (*scope.time, at[0])
        at[0] += 1
        where = scope.where
        if isinstance(stmt, Sync):
            if stmt.where is not None:
                where = (*where, stmt.where)
            unit, engine = self.sync_unit(stmt, scope)
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
            accesses = tuple(dict.fromkeys(_Inside(self.group_by_loops, scope.windows).of(stmt)))
        number, copies = len(self.leaves) + len(self.syncs), self.copies(stmt, scope)
        event = Event(number, unit, engine, scope.loops, where, time, place, stmt, accesses, copies)
        (self.syncs if isinstance(stmt, Sync) else self.leaves).append(event)

    def runner(self, mark: str | None, scope: _Scope) -> str:
        """Return the unit that runs a statement: that of its mark, or of the loops around."""
        if mark is not None:
            if mark not in self.units:
                raise sync_error(
                    self.program,
                    f"@by({mark})",
                    "the machine has no unit of that name",
                    *(f"@by({name})" for name in self.units),
                )
            if not self.units[mark].engine:
                return mark
        bound = [loop.key[0] for loop in scope.loops if loop.key is not None]
        return bound[-1] if bound else self.agents.default

    def sync_unit(self, sync: Sync, scope: _Scope) -> tuple[str, str]:
        """Return the unit that runs a statement of synchronization, and the engine whose groups it waits for, or ""."""
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
        """Return the accesses of a copy to several agents at once."""
        if not isinstance(stmt, Tile) or stmt.multicast is None:
            return ()
        return tuple(_Inside((), scope.windows, joint=True).of(stmt))

    def refuse(self, stmt: Stmt, because: str) -> PartitionError:
        return sync_error(self.program, format_head(stmt), because)


@dataclass(frozen=True, slots=True)
class _Inner:
    """The loops and conditions around a statement inside of a leaf.

    values       of iterators and `let`, over counters of the loops and the iterators around the leaf
    inner, where as those of `Access`
    """

    values: Mapping[str, Expr] = field(default_factory=dict)
    inner: tuple[tuple[str, Expr], ...] = ()
    where: tuple[Expr, ...] = ()

    def expr(self, expr: Expr) -> Expr:
        """Return an expression over counters."""
        return ix.fold_indices(substitute(expr, self.values)) if self.values else expr

    def over(self, name: str, start: Expr, extent: Expr) -> _Inner:
        """Return the same in one more loop: its iterator is the start and a counter from 0 on."""
        counter = f"{name} inside {len(self.inner)}"
        values = {**self.values, name: ix.add(self.expr(start), Var(counter))}
        return _Inner(values, (*self.inner, (counter, self.expr(extent))), self.where)

    def under(self, condition: Expr) -> _Inner:
        """Return the same under one more condition, which is over counters."""
        return replace(self, where=(*self.where, condition))


_LEAF = _Inner()


@dataclass(frozen=True, slots=True)
class _Inside:
    """The accesses inside of a leaf.

    shared   the buffers whose accesses are of interest
    windows  those around the leaf, by buffer
    joint    whether each store is one access: of its element and of all indices that its value is made of
    """

    shared: Collection[str]
    windows: Mapping[str, _Window]
    joint: bool = False

    def of(self, stmt: Stmt, at: _Inner = _LEAF) -> Iterator[Access]:
        """Return each access inside of a statement."""
        for expr in expressions(stmt):
            for load in all_loads(expr):
                yield from self.access(load.buffer, load.index, False, at)
        match stmt:
            case Store(buffer, index, value) if self.joint:
                place = tuple(map(at.expr, index))
                if buffer in self.windows:
                    starts = self.windows[buffer].starts
                    place = tuple(map(ix.simplify, map(ix.sub, place, starts)))
                place += tuple(map(at.expr, _indices(value)))
                yield Access(buffer, place, at.inner, at.where, True)
            case Store(buffer, index, _):
                yield from self.access(buffer, index, True, at)
            case For(name, lo, hi, body):
                yield from self.block(body, at.over(name, lo, ix.sub(hi, lo)))
            case Tile(axes, body, condition):
                for axis in axes:
                    at = at.over(axis.iter, axis.start, axis.extent)
                if condition is not None:
                    at = at.under(at.expr(condition))
                yield from self.block(body, at)
            case If(condition, then, other):
                holds = at.expr(condition)
                yield from self.block(then, at.under(holds))
                yield from self.block(other, at.under(negate(holds)))
            case Let(name, _, _, value, body):
                values = {**at.values, name: at.expr(value)}
                yield from self.block(body, replace(at, values=values))
            case Alloc(_, _, body):
                yield from self.block(body, at)

    def block(self, body: Sequence[Stmt], at: _Inner) -> Iterator[Access]:
        for stmt in body:
            yield from self.of(stmt, at)

    def access(
        self, buffer: str, index: Sequence[Expr], writes: bool, at: _Inner
    ) -> Iterator[Access]:
        """Return the access of a load or a store, if its buffer is of interest."""
        if buffer not in self.shared:
            return
        place = tuple(map(at.expr, index))
        window = self.windows.get(buffer)
        if window is None:
            yield Access(buffer, place, at.inner, at.where, writes)
            return
        offsets = (
            ix.simplify(ix.sub(part, start)) if known else None
            for part, start, known in zip(place, window.starts, window.known, strict=True)
        )
        slot = () if window.slot is None else (window.slot,)
        owner = map(Var, window.owner)
        where = (*owner, *slot, *offsets)
        yield Access(window.region, where, at.inner, at.where, writes, window.fenced)


def _indices(value: Expr) -> Iterator[Expr]:
    """Return the indices that a value is made of: of loads, and those that are operands."""
    if dtype_of(value) == "index":
        yield value
        return
    for part in children(value):
        yield from _indices(part)
