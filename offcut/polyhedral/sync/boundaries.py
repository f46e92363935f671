"""Puts barriers of a unit between the statements of the blocks around its loops.

All agents of the unit run these blocks; of a loop that is bound to it any of them runs any iteration, and the last of them
runs all else. A statement is *open* until a barrier: some agents may still run it. Another statement waits for it if both
touch one place and a loop of either is bound to the unit. What is open at the end of a loop is so where its next iteration
begins, and what was open before it, behind it, if it may have no iteration.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from offcut.core import index as ix
from offcut.core.analysis import analysis, stored_arrays
from offcut.core.expr import Binary, Const, Var, reads_memory
from offcut.core.program import Action, Alloc, For, If, Let, Program, Stmt, Sync, Tile, blocks, walk
from offcut.core.text.printer import format_head
from offcut.core.traversal import (
    Place,
    expressions,
    map_blocks,
    substitute_coordinates,
    with_numbered_blocks,
)
from offcut.errors import PartitionError
from offcut.polyhedral.sync.events import sync_error
from offcut.polyhedral.units import Conflicts, Independence

LATER = " later"
"""How many more than 1 an iteration is behind another one: a name that no text has."""


def has_loops_of(unit: str, stmt: Stmt) -> bool:
    """Return whether a loop in `stmt`, or `stmt` itself, is bound to a unit."""
    return any(isinstance(inner, For) and inner.unit == unit for inner in walk((stmt,)))


def is_barrier(stmt: Stmt, unit: str) -> bool:
    """Return whether `stmt` is a barrier of a unit."""
    return isinstance(stmt, Sync) and (stmt.action, stmt.name) == (Action.BARRIER, unit)


def windows_in_step(body: Sequence[Stmt], unit: str) -> set[str]:
    """Return the buffers of windows around loops that are bound to a unit, which all of its agents reach together, and share."""
    windows: set[str] = set()
    for stmt in body:
        if isinstance(stmt, For) and stmt.unit == unit:
            continue
        windows |= {stmt.buffer} if isinstance(stmt, Alloc) and has_loops_of(unit, stmt) else set()
        for block in blocks(stmt):
            windows |= windows_in_step(block, unit)
    return windows


def own_of(program: Program, unit: str) -> frozenset[str]:
    """Return the buffers of which each iteration of loops that are bound to a unit has its own, and each tile."""
    independence = Independence(program)
    loops = [stmt for stmt in walk(program) if isinstance(stmt, For) and stmt.unit == unit]
    own = {
        name
        for loop in loops
        for name in stored_arrays(loop.body)
        if independence.keeps(name, loop)
    }
    return frozenset((own | independence.tiled) - windows_in_step(program.body, unit))


Around: TypeAlias = tuple[tuple[Place, Stmt], ...]


@dataclass(frozen=True, slots=True)
class Open:
    """A statement that agents run, at a place.

    around   the statements around it that all agents run, outermost first, each with its place
    shared   whether several agents run it
    carried  the loop around of which this was an iteration before; None: it is of the same one
    """

    place: Place
    stmt: Stmt
    around: Around
    shared: bool
    carried: Place | None = None


Opened: TypeAlias = dict[tuple[Place, Place | None], Open]


@dataclass
class Boundaries:
    """The barriers of a unit that a program has, and those that it lacks.

    waits     whether a statement, the second, has to wait for one that is open
    runs      whether a loop has an iteration at all sizes
    ignored   barriers, by their places, that are as if they were not there
    before    the statements before which a barrier is missing, by place, each with the one that it has to wait for
    ends      the loops at whose ends one is missing: the next iteration waits for the one before
    reached   the present ones that all agents reach
    """

    unit: str
    waits: Callable[[Open, Open], bool]
    runs: Callable[[For], bool]
    ignored: Collection[Place] = ()
    before: dict[Place, tuple[Open, Open]] = field(default_factory=dict)
    ends: dict[Place, tuple[Open, Open]] = field(default_factory=dict)
    reached: dict[Place, None] = field(default_factory=dict)

    def block(
        self,
        body: Sequence[Stmt],
        place: Place = (),
        around: Around = (),
        opened: Opened | None = None,
    ) -> Opened:
        """Look at a block that all agents run, before which some statements are open; return those behind it."""
        opened = opened or {}
        for position, stmt in enumerate(body):
            here = (*place, position)
            if is_barrier(stmt, self.unit):
                self.reached.setdefault(here)
                opened = opened if here in self.ignored else {}
                continue
            in_step = self.is_in_step(stmt)
            head = map_blocks(stmt, lambda _: ()) if in_step else stmt
            if not in_step or any(map(reads_memory, expressions(stmt))):
                shared = in_step or has_loops_of(self.unit, stmt)
                opened = self.behind(Open(here, head, around, shared), opened)
            if in_step:
                opened = self.inside(stmt, here, (*around, (here, stmt)), opened)
        return opened

    def is_in_step(self, stmt: Stmt) -> bool:
        """Return whether all agents run the blocks of a statement."""
        if isinstance(stmt, Tile) or (isinstance(stmt, For) and stmt.unit == self.unit):
            return False
        inside = walk((stmt,))
        return any(is_barrier(one, self.unit) for one in inside) or has_loops_of(self.unit, stmt)

    def behind(self, one: Open, opened: Opened) -> Opened:
        """Return what is open behind a statement: it, and what was, unless a barrier is missing in between."""
        opened = {} if one.place in self.before else opened
        for earlier in opened.values():
            if earlier.carried in self.ends:
                opened = {key: o for key, o in opened.items() if o.carried != earlier.carried}
            elif (one.shared or earlier.shared) and self.waits(earlier, one):
                if earlier.carried is None:
                    self.before[one.place], opened = (earlier, one), {}
                    break
                self.ends[earlier.carried] = earlier, one
        opened = {key: o for key, o in opened.items() if o.carried not in self.ends}
        return {**opened, (one.place, None): one}

    def inside(self, stmt: Stmt, here: Place, around: Around, opened: Opened) -> Opened:
        """Look at the blocks of a statement, which all agents run; return what is open behind it."""
        behind: Opened = {}

        def look(block: tuple[Stmt, ...], place: Place) -> tuple[Stmt, ...]:
            behind.update(self.block(block, place, around, opened))
            return block

        with_numbered_blocks(stmt, here, look)
        if not isinstance(stmt, For):
            return behind
        if _may_repeat(stmt):
            inner = [one for key, one in behind.items() if key[0][: len(here)] == here]
            again: Opened = {(one.place, here): replace(one, carried=here) for one in inner}
            last = self.block(stmt.body, here, around, again)
            behind.update({} if here in self.ends else last)
        behind = {} if here in self.ends else behind
        same = (replace(o, carried=None) if o.carried == here else o for o in behind.values())
        behind = {(one.place, one.carried): one for one in same}
        return behind if self.runs(stmt) else {**opened, **behind}


def _may_repeat(loop: For) -> bool:
    """Return whether a loop may have more than one iteration."""
    match ix.sub(loop.hi, loop.lo):
        case Const(count):
            return count > 1
        case Binary("%", _, Const(divisor)):
            return divisor > 2
    return True


class _Intervals:
    """Whether statements touch one place, as intervals along each axis of an array say."""

    def __init__(self, program: Program, own: frozenset[str]) -> None:
        self.conflicts = Conflicts(program, own | analysis(program).status_buffers)
        self.conflicts.footprints.least[LATER] = 0
        self.known: dict[tuple[Place, Place, Place | None], bool] = {}

    def conflict(self, earlier: Open, one: Open) -> bool:
        """Return whether a statement has to wait for one that is open."""
        key = earlier.place, one.place, earlier.carried
        if key not in self.known:
            self.known[key] = self._conflict(earlier, one)
        return self.known[key]

    def _conflict(self, earlier: Open, one: Open) -> bool:
        pairs = zip(earlier.around, one.around, strict=False)
        depth = sum(mine[0] == theirs[0] for mine, theirs in pairs)
        places = [place for place, _ in one.around[:depth]]
        carried = earlier.carried in places
        depth = places.index(earlier.carried or ()) + 1 if carried else depth
        mine, theirs = _within(earlier, depth), _within(one, depth)
        # Windows of two iterations lie in one place, whatever their elements.
        allocated = (
            {w.buffer for w in walk((mine, theirs)) if isinstance(w, Alloc)} if carried else ()
        )
        loop = one.around[depth - 1][1] if carried else None
        if isinstance(loop, For):
            later = ix.add(Var(loop.iter), Var(LATER), 1)
            (theirs,) = substitute_coordinates((theirs,), {loop.iter: later})
        return self.conflicts.between(mine, theirs, allocated)

    def boundaries(self, program: Program, unit: str, *ignored: Place) -> Boundaries:
        """Return the barriers of a program."""
        result = Boundaries(unit, self.conflict, self.conflicts.footprints.runs, ignored)
        result.block(program.body)
        return result

    def spare(self, program: Program, unit: str, reached: Collection[Place]) -> Place | None:
        """Return the place of a barrier without which none is missing; None if there is none."""
        for place in reached:
            without = self.boundaries(program, unit, place)
            if not without.before and not without.ends:
                return place
        return None


def _within(one: Open, depth: int) -> Stmt:
    """Return a statement inside of those around it, without the outermost `depth`."""
    stmt = one.stmt
    for _, outer in reversed(one.around[depth:]):
        if isinstance(outer, If):
            stmt = If(outer.condition, (stmt,))
        elif isinstance(outer, For | Let | Alloc):
            stmt = replace(outer, body=(stmt,))
    return stmt


def with_barriers(program: Program, unit: str, own: frozenset[str]) -> Program:
    """Return `program`, which has none, with the barriers of a unit any of whose agents may run any iteration of a loop
    bound to it. None is spare, as far as intervals tell.

    own   the buffers that each agent has for itself
    """
    missing = _Intervals(program, own).boundaries(program, unit)
    barrier = (Sync(Action.BARRIER, unit),)
    syncs = dict.fromkeys(missing.before, barrier), dict.fromkeys(missing.ends, barrier)
    result = with_syncs(program, syncs[0], {}, syncs[1])
    intervals = _Intervals(result, own)
    while result is not program:
        reached = intervals.boundaries(result, unit).reached
        spare = intervals.spare(result, unit, reached)
        if spare is None:
            break
        result = replace(result, body=without(result.body, {spare}))
        intervals = _Intervals(result, own)
    return result


Syncs: TypeAlias = Mapping[Place, Sequence[Sync]]


def with_syncs(program: Program, before: Syncs, after: Syncs, ends: Syncs) -> Program:
    """Return a program with statements of synchronization before and behind statements, and at the ends of blocks."""

    def block(body: tuple[Stmt, ...], place: Place = ()) -> tuple[Stmt, ...]:
        result: list[Stmt] = []
        for position, stmt in enumerate(body):
            here = (*place, position)
            result += before.get(here, ())
            result.append(with_numbered_blocks(stmt, here, block))
            result += after.get(here, ())
        result += ends.get(place, ())
        return body if result == [*body] else tuple(result)

    body = block(program.body)
    return program if body is program.body else replace(program, body=body)


def without(body: tuple[Stmt, ...], out: set[Place], around: Place = ()) -> tuple[Stmt, ...]:
    """Return a block without the statements at some places; the block itself stands at `around`."""
    places = [((*around, position), stmt) for position, stmt in enumerate(body)]
    return tuple(
        with_numbered_blocks(stmt, here, lambda block, at: without(block, out, at))
        for here, stmt in places
        if here not in out
    )


def check_barriers(program: Program, unit: str, own: frozenset[str]) -> None:
    """Check that a program has the barriers of a unit that keep the order of its text, that all agents reach each of them,
    and that none is spare, as far as intervals tell.

    own   the buffers that each agent has for itself

    Raises PartitionError with the statements that may run side by side, or with a barrier too many.
    """
    if (error := missing_barrier(program, unit, own)) is not None:
        raise error
    intervals = _Intervals(program, own)
    reached = intervals.boundaries(program, unit).reached
    if intervals.spare(program, unit, reached) is not None:
        raise sync_error(
            program, f"`barrier {unit}`", "without it all is ordered, too", "leave it out"
        )


def missing_barrier(program: Program, unit: str, own: frozenset[str]) -> PartitionError | None:
    """Return the error for a barrier that a program lacks, as far as intervals tell; None if it has all.

    Raises PartitionError for a barrier that not all agents reach.
    """
    intervals = _Intervals(program, own).boundaries(program, unit)
    if sum(is_barrier(stmt, unit) for stmt in walk(program)) > len(intervals.reached):
        because = f"it stands where not every {unit} comes: the others would wait for ever"
        raise sync_error(program, f"`barrier {unit}`", because)
    for earlier, one in (*intervals.before.values(), *intervals.ends.values()):
        heads = format_head(earlier.stmt), format_head(one.stmt)
        because = f"it touches what `{heads[0]}` touches, which others may still run: they must meet in between"
        at = f"`{heads[1]}`" if earlier.carried is None else f"the next iteration of `{heads[1]}`"
        return sync_error(program, at, because, f"barrier {unit}, before it")
    return None
