"""Launches of a grid: each outermost statement of a program is one, whose units begin anew.

Nothing is waited for from one to the next but all of it: ``barrier block``, where a launch touches what another one before it
has touched. Inside, each is ordered by itself, with tokens of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

from offcut.core.program import Action, Program, Stmt, Sync, Token, map_blocks, walk
from offcut.core.text.printer import format_head
from offcut.polyhedral.sync.agents import Agents
from offcut.polyhedral.sync.events import events, refused
from offcut.polyhedral.sync.relations import Relations


def launches_of(program: Program, agents: Agents) -> tuple[Program, ...]:
    """Return the launches of a program without barriers between them, each a program of its own with the tokens that it names;
    none of a machine without grids, and of one launch alone.
    """
    body = [stmt for stmt in program.body if not is_end_of_launch(stmt, agents)]
    if agents.grid is None or len(program.body) < 2:
        return ()
    return tuple(_alone(program, stmt) for stmt in body)


def is_end_of_launch(stmt: Stmt, agents: Agents) -> bool:
    """Return whether a statement is the barrier of all agents of a grid."""
    always = isinstance(stmt, Sync) and stmt.where is None and stmt.unit is None
    return always and stmt.action is Action.BARRIER and stmt.name == agents.grid  # type: ignore[union-attr]


def joined(program: Program, ordered: Sequence[Program], agents: Agents) -> Program:
    """Return launches one after the other, with a barrier before each that touches what one since the last barrier did."""
    conflicts = _conflicts(program, agents)
    barrier = Sync(Action.BARRIER, agents.grid or "")
    body: list[Stmt] = []
    tokens: list[Token] = []
    first = 0
    for number, one in enumerate(ordered):
        if any(conflicts(earlier, number) for earlier in range(first, number)):
            body.append(barrier)
            first = number
        stmts, own = _renamed(one, {token.name for token in tokens})
        body += stmts
        tokens += own
    return replace(program, body=tuple(body), tokens=tuple(tokens))


def check_barriers_between(program: Program, agents: Agents) -> None:
    """Check that barriers stand between launches that touch one place, and nowhere else.

    Raises PartitionError with the launch that may begin too early, or the barrier that is not needed.
    """
    bare = replace(
        program, body=tuple(s for s in program.body if not is_end_of_launch(s, agents)), tokens=()
    )
    conflicts = _conflicts(bare, agents)
    groups: list[list[int]] = [[]]
    number = 0
    for stmt in program.body:
        if is_end_of_launch(stmt, agents):
            groups.append([])
            continue
        for earlier in groups[-1]:
            if conflicts(earlier, number):
                because = f"it touches what `{format_head(bare.body[earlier])}` touches, and may run before that has ended"
                at = f"`{format_head(stmt)}`"
                raise refused(program, at, because, f"barrier {agents.grid}, before it")
        groups[-1].append(number)
        number += 1
    for before, after in pairwise(groups):
        if not any(conflicts(one, other) for one in before for other in after):
            at = f"`barrier {agents.grid}`"
            raise refused(program, at, "without it all is ordered, too", "leave it out")


def _conflicts(program: Program, agents: Agents) -> Callable[[int, int], bool]:
    """Return what says whether two of the outermost statements touch one place, one of them writing."""
    bare = replace(program, body=tuple(map(_without, program.body)), tokens=())
    relations = Relations(events(bare, agents))
    leaves = relations.events.leaves
    known: dict[tuple[int, int], bool] = {}

    def conflicts(one: int, other: int) -> bool:
        if (one, other) not in known:
            known[one, other] = any(
                not relations.conflicts(a, b).is_empty()
                for a in leaves
                for b in leaves
                if (a.place[0], b.place[0]) == (one, other)
            )
        return known[one, other]

    return conflicts


def _without(stmt: Stmt) -> Stmt:
    """Return a statement without synchronization inside."""

    def bare(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(_without(one) for one in body if not isinstance(one, Sync))

    return map_blocks(stmt, bare)


def _alone(program: Program, stmt: Stmt) -> Program:
    names = {one.name for one in walk((stmt,)) if isinstance(one, Sync)}
    tokens = tuple(token for token in program.tokens if token.name in names)
    return replace(program, body=(stmt,), tokens=tokens)


def _renamed(program: Program, taken: set[str]) -> tuple[tuple[Stmt, ...], tuple[Token, ...]]:
    """Return the statements and tokens of a launch, whose tokens have names that no other launch has."""
    names: dict[str, str] = {}
    for token in program.tokens:
        name, number = token.name, 1
        while name in taken:
            number += 1
            name = f"{token.name}_{number}"
        names[token.name] = name

    def change(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Sync):
            waits = stmt.action in (Action.ARRIVE, Action.WAIT)
            return replace(stmt, name=names[stmt.name]) if waits else stmt
        return map_blocks(stmt, lambda body: tuple(map(change, body)))

    tokens = tuple(replace(token, name=names[token.name]) for token in program.tokens)
    return tuple(map(change, program.body)), tokens


__all__ = ["check_barriers_between", "is_end_of_launch", "joined", "launches_of"]
