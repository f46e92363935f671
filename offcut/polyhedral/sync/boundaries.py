"""Puts barriers of a unit between the statements of the blocks around its loops.

A statement waits for an earlier one of its block, since the last barrier, if they touch one place and a loop of either is
bound to the unit. A loop around that all agents run ends in a barrier if its next iteration has to wait for this one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from offcut.core.accesses import status_buffers, stored_arrays
from offcut.core.program import Action, Alloc, For, Program, Stmt, Sync, blocks, walk
from offcut.core.text.printer import format_head
from offcut.core.traversal import Place, with_numbered_blocks
from offcut.polyhedral.sync.events import refused
from offcut.polyhedral.units.footprints import Conflicts
from offcut.polyhedral.units.independence import Independence


def has_loops_of(unit: str, stmt: Stmt) -> bool:
    """Return whether a loop in `stmt`, or `stmt` itself, is bound to a unit."""
    return any(isinstance(inner, For) and inner.unit == unit for inner in walk((stmt,)))


def is_barrier(stmt: Stmt, unit: str) -> bool:
    """Return whether `stmt` is a barrier of a unit."""
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
    own = {
        name
        for loop in loops
        for name in stored_arrays(loop.body)
        if independence.keeps(name, loop)
    }
    return frozenset((own | independence.tiled) - windows_in_step(program.body, unit))


@dataclass(frozen=True, slots=True)
class Missing:
    """A barrier that a block lacks: `stmt` may not run before all agents are done with an earlier statement of its block.

    earlier  None: `stmt` is a loop whose next iteration has to wait for what the one before does
    place    of `stmt`
    """

    stmt: Stmt
    earlier: Stmt | None
    place: Place


@dataclass
class Boundaries:
    """The barriers of a unit in a program: the present ones are counted, and the missing ones put in.

    conflict  ``(place, stmt, earlier place, earlier stmt)``: whether a statement has to wait for an earlier one of its block
    carried   ``(place, loop, positions)``: whether an iteration of a loop that all agents run has to wait for the one
              before; a position is that of a statement of its body with a barrier before it
    missing   the barriers that are put in
    reached   the number of present barriers that all agents reach
    doubled   the number of those that stand right behind another one
    """

    unit: str
    conflict: Callable[[Place, Stmt, Place, Stmt], bool]
    carried: Callable[[Place, For, list[int]], bool]

    def __post_init__(self) -> None:
        self.missing: list[Missing] = []
        self.reached = self.doubled = 0

    def block(self, body: tuple[Stmt, ...], place: Place = ()) -> tuple[Stmt, ...]:
        """Return a block that all agents run, with the barriers that it needs."""
        result: list[Stmt] = []
        since: list[tuple[Place, Stmt]] = []  # the statements behind the last barrier
        for position, stmt in enumerate(body):
            here = (*place, position)
            if is_barrier(stmt, self.unit):
                self.reached += 1
                self.doubled += position > 0 and is_barrier(body[position - 1], self.unit)
                result.append(stmt)
                since = []
                continue
            shared = has_loops_of(self.unit, stmt)
            conflicting = (
                earlier
                for at, earlier in since
                if (shared or has_loops_of(self.unit, earlier))
                and self.conflict(here, stmt, at, earlier)
            )
            if (earlier := next(conflicting, None)) is not None:
                self.missing.append(Missing(stmt, earlier, here))
                result.append(Sync(Action.BARRIER, self.unit))
                since = []
            since.append((here, stmt))
            in_step = shared and not (isinstance(stmt, For) and stmt.unit == self.unit)
            result.append(self.inside(stmt, here) if in_step else stmt)
        return tuple(result)

    def inside(self, stmt: Stmt, place: Place) -> Stmt:
        """Return a statement whose blocks all agents run, with the barriers that these need."""
        result = with_numbered_blocks(stmt, place, self.block)
        if isinstance(result, For) and isinstance(stmt, For):
            barriers = [at for at, one in enumerate(result.body) if is_barrier(one, self.unit)]
            positions = [at - number for number, at in enumerate(barriers)]
            if self.carried(place, stmt, positions):
                self.missing.append(Missing(stmt, None, place))
                result = replace(result, body=(*result.body, Sync(Action.BARRIER, self.unit)))
        return result


def with_barriers(program: Program, unit: str, own: frozenset[str]) -> Program:
    """Return `program` with the barriers of a unit any of whose agents may run any iteration of a loop bound to it.

    own   the buffers that each agent has for itself
    """
    body = _boundaries(program, unit, own).block(program.body)
    return program if body == program.body else replace(program, body=body)


def check_barriers(program: Program, unit: str, own: frozenset[str]) -> None:
    """Check that a program has the barriers of a unit that `with_barriers` puts in, and that all agents reach each of them.

    own   the buffers that each agent has for itself

    Raises PartitionError with the statements that may run side by side, or with a barrier too many.
    """
    boundaries = _boundaries(program, unit, own)
    boundaries.block(program.body)
    for missing in boundaries.missing:
        if missing.earlier is None:
            at = f"the next iteration of `{format_head(missing.stmt)}`"
            because = "others may still run the one before"
        else:
            at = f"`{format_head(missing.stmt)}`"
            because = f"it touches what `{format_head(missing.earlier)}` touches, which others may still run"
        raise refused(
            program, at, f"{because}: they must meet in between", f"barrier {unit}, before it"
        )
    if sum(is_barrier(stmt, unit) for stmt in walk(program)) > boundaries.reached:
        raise refused(
            program,
            f"barrier {unit}",
            f"it stands where not every {unit} comes: the others would wait for ever",
        )
    if boundaries.doubled:
        raise refused(
            program, f"barrier {unit}", "nothing runs between it and the barrier before it"
        )


def _boundaries(program: Program, unit: str, own: frozenset[str]) -> Boundaries:
    conflicts = Conflicts(program, own | status_buffers(program))

    def conflict(_: Place, one: Stmt, __: Place, other: Stmt) -> bool:
        return conflicts.between(one, other)

    def carried(_: Place, loop: For, met: list[int]) -> bool:
        return not is_barrier(loop.body[-1], unit)

    return Boundaries(unit, conflict, carried)
