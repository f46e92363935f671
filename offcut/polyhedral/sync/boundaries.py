"""Where all agents of a unit have to meet: between two statements of a block that their loops stand in.

A statement waits for an earlier one of its block, since the last barrier, where they touch one place and some loop of
either is bound to the unit. A loop around that all of them run in step waits at its end for what its next iteration does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from offcut.core.accesses import statuses, stored
from offcut.core.program import (
    Action,
    Alloc,
    Choose,
    For,
    If,
    Program,
    Stmt,
    Sync,
    blocks,
    walk,
    with_blocks,
)
from offcut.core.text.printer import format_head
from offcut.core.walking import Place
from offcut.polyhedral.sync.events import refused
from offcut.polyhedral.units.footprints import Conflicts
from offcut.polyhedral.units.independence import Independence


def has_loops_of(unit: str, stmt: Stmt) -> bool:
    """Whether some loop in `stmt`, or itself, is bound to a unit."""
    return any(isinstance(inner, For) and inner.unit == unit for inner in walk((stmt,)))


def is_barrier(stmt: Stmt, unit: str) -> bool:
    """Whether all agents of a unit meet in `stmt`."""
    return isinstance(stmt, Sync) and (stmt.action, stmt.name) == (Action.BARRIER, unit)


def windows_in_step(body: Sequence[Stmt], unit: str) -> set[str]:
    """The buffers of windows around loops that are bound to a unit, which all of its agents reach together, and share."""
    found: set[str] = set()
    for stmt in body:
        if isinstance(stmt, For) and stmt.unit == unit:
            continue
        found |= {stmt.buffer} if isinstance(stmt, Alloc) and has_loops_of(unit, stmt) else set()
        for block in blocks(stmt):
            found |= windows_in_step(block, unit)
    return found


def own_of(program: Program, unit: str) -> frozenset[str]:
    """The buffers of which each iteration of loops that are bound to a unit has its own, and each tile."""
    independence = Independence(program)
    loops = [stmt for stmt in walk(program) if isinstance(stmt, For) and stmt.unit == unit]
    own = {name for loop in loops for name in stored(loop.body) if independence.keeps(name, loop)}
    return frozenset((own | independence.tiled) - windows_in_step(program.body, unit))


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
    reached   how many there were where all agents come
    doubled   how many there were right behind another one
    """

    unit: str
    conflict: Callable[[Place, Stmt, Place, Stmt], bool]
    carried: Callable[[Place, For, list[int]], bool]

    def __post_init__(self) -> None:
        self.missing: list[Missing] = []
        self.reached = self.doubled = 0

    def block(self, body: tuple[Stmt, ...], place: Place = ()) -> tuple[Stmt, ...]:
        """A block that all agents run, with the barriers that it needs."""
        made: list[Stmt] = []
        since: list[tuple[Place, Stmt]] = []
        for position, stmt in enumerate(body):
            here = (*place, position)
            if is_barrier(stmt, self.unit):
                self.reached += 1
                self.doubled += position > 0 and is_barrier(body[position - 1], self.unit)
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


def with_barriers(program: Program, unit: str, own: frozenset[str]) -> Program:
    """`program` with the barriers of a unit any of whose agents may run any iteration of a loop that is bound to it.

    own   buffers that no two agents share
    """
    body = _of(program, unit, own).block(program.body)
    return program if body == program.body else replace(program, body=body)


def check_barriers(program: Program, unit: str, own: frozenset[str]) -> None:
    """Check that the barriers of a unit, as `with_barriers` puts them, are all that are needed, and that all agents come.

    Raises PartitionError with the statements that may run side by side, or a barrier that is one too many.
    """
    found = _of(program, unit, own)
    found.block(program.body)
    for missing in found.missing:
        if missing.earlier is None:
            at = f"the next iteration of `{format_head(missing.stmt)}`"
            because = "others may still run the one before"
        else:
            at = f"`{format_head(missing.stmt)}`"
            because = f"it touches what `{format_head(missing.earlier)}` touches, which others may still run"
        raise refused(
            program, at, f"{because}: they must meet in between", f"barrier {unit}, before it"
        )
    reached = [stmt for stmt in walk(program) if is_barrier(stmt, unit)]
    if len(reached) > found.reached:
        raise refused(
            program,
            f"barrier {unit}",
            f"it stands where not every {unit} comes: the others would wait for ever",
        )
    if found.doubled:
        raise refused(
            program, f"barrier {unit}", "nothing runs between it and the barrier before it"
        )


def _of(program: Program, unit: str, own: frozenset[str]) -> Boundaries:
    conflicts = Conflicts(program, own | statuses(program))

    def conflict(_: Place, one: Stmt, __: Place, other: Stmt) -> bool:
        return conflicts.between(one, other)

    def carried(_: Place, loop: For, met: list[int]) -> bool:
        return not is_barrier(loop.body[-1], unit)

    return Boundaries(unit, conflict, carried)
