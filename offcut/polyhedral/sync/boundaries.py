"""Where all agents of a unit have to meet: between two statements of a block that their loops stand in.

A statement waits for an earlier one of its block, since the last barrier, where they touch one place and some loop of
either is bound to the unit. A loop around that all of them run in step waits at its end for what its next iteration does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from offcut.core.accesses import statuses
from offcut.core.program import (
    Action,
    Choose,
    For,
    If,
    Program,
    Stmt,
    Store,
    Sync,
    blocks,
    walk,
    with_blocks,
)
from offcut.core.walking import Place
from offcut.polyhedral.units.footprints import Access, Footprints


def has_loops_of(unit: str, stmt: Stmt) -> bool:
    """Whether some loop in `stmt`, or itself, is bound to a unit."""
    return any(isinstance(inner, For) and inner.unit == unit for inner in walk((stmt,)))


def is_barrier(stmt: Stmt, unit: str) -> bool:
    """Whether all agents of a unit meet in `stmt`."""
    return isinstance(stmt, Sync) and (stmt.action, stmt.name) == (Action.BARRIER, unit)


@dataclass(frozen=True, slots=True)
class Missing:
    """A statement that may not run before all agents are done with an earlier one of its block.

    earlier  None: `stmt` is a loop whose next iteration has to wait for what the one before does
    place    of `stmt`
    """

    stmt: Stmt
    earlier: Stmt | None
    place: Place


@dataclass
class Boundaries:
    """Puts barriers of a unit into blocks, beside those that are there.

    conflict  whether a statement has to wait for an earlier one of its block, of places and statements
    carried   whether an iteration of a loop in step has to wait for the one before, given the positions in its body
              that all agents meet before
    missing   what barriers were put before
    """

    unit: str
    conflict: Callable[[Place, Stmt, Place, Stmt], bool]
    carried: Callable[[Place, For, list[int]], bool]

    def __post_init__(self) -> None:
        self.missing: list[Missing] = []

    def block(self, body: tuple[Stmt, ...], place: Place = ()) -> tuple[Stmt, ...]:
        """A block that all agents run, with the barriers that it needs."""
        made: list[Stmt] = []
        since: list[tuple[Place, Stmt]] = []
        for position, stmt in enumerate(body):
            here = (*place, position)
            if is_barrier(stmt, self.unit):
                made.append(stmt)
                since = []
                continue
            mine = has_loops_of(self.unit, stmt)
            waits = next(
                (
                    earlier
                    for at, earlier in since
                    if (mine or has_loops_of(self.unit, earlier))
                    and self.conflict(here, stmt, at, earlier)
                ),
                None,
            )
            if waits is not None:
                self.missing.append(Missing(stmt, waits, here))
                made.append(Sync(Action.BARRIER, self.unit))
                since = []
            since.append((here, stmt))
            in_step = mine and not (isinstance(stmt, For) and stmt.unit == self.unit)
            made.append(self.inside(stmt, here) if in_step else stmt)
        return tuple(made)

    def inside(self, stmt: Stmt, place: Place) -> Stmt:
        """A statement in which all agents run blocks together."""
        several = isinstance(stmt, If | Choose)
        numbers = iter(range(len(blocks(stmt))))

        def within(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
            number = next(numbers)
            return self.block(body, (*place, number) if several else place)

        made = with_blocks(stmt, within)
        if isinstance(made, For) and isinstance(stmt, For):
            met = [at for at, one in enumerate(made.body) if is_barrier(one, self.unit)]
            positions = [at - number for number, at in enumerate(met)]
            if self.carried(place, stmt, positions):
                self.missing.append(Missing(stmt, None, place))
                made = with_blocks(made, lambda body: (*body, Sync(Action.BARRIER, self.unit)))
        return made


class Intervals:
    """Which statements touch what others write, by intervals along each axis of an array."""

    def __init__(self, program: Program, own: frozenset[str]) -> None:
        """`own`: the buffers that no two agents share."""
        written = frozenset(s.buffer for s in walk(program.body) if isinstance(s, Store))
        self.footprints = Footprints(program, written - own)
        self.found: dict[Stmt, frozenset[Access]] = {}

    def conflict(self, one: Stmt, other: Stmt) -> bool:
        """Whether one of two statements may touch what the other one writes."""
        mine, theirs = self.accesses(one), self.accesses(other)
        return any(
            a.buffer == b.buffer and (a.writes or b.writes) and not self.footprints.apart(a, b)
            for a in mine
            for b in theirs
        )

    def accesses(self, stmt: Stmt) -> frozenset[Access]:
        """What a statement touches, each footprint once."""
        if stmt not in self.found:
            self.found[stmt] = frozenset(self.footprints.of((stmt,)))
        return self.found[stmt]


def threads(program: Program, unit: str, own: frozenset[str]) -> tuple[Program, list[Missing]]:
    """`program` with the barriers of a unit any of whose agents may run any iteration, and what misses them now.

    own   buffers that no two agents share
    """
    intervals = Intervals(program, own | statuses(program))

    def conflict(_: Place, one: Stmt, __: Place, other: Stmt) -> bool:
        return intervals.conflict(one, other)

    def carried(_: Place, loop: For, met: list[int]) -> bool:
        return len(loop.body) not in met and not (loop.body and is_barrier(loop.body[-1], unit))

    found = Boundaries(unit, conflict, carried)
    body = found.block(program.body)
    return (program if body == program.body else replace(program, body=body)), found.missing
