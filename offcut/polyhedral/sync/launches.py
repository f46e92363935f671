"""Launches of a grid: each outermost statement of a program is a launch, and its units begin anew.

``barrier block`` between two launches waits for the whole of the first; it stands where the second touches elements that an
earlier one touches. Inside, a launch is ordered by itself, with tokens of its own. A choice is made before anything is launched:
each option is ordered as a program of its own, and conflicts with a launch beside the choice if any of its launches does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from offcut.core.program import Action, Choose, Program, Stmt, Sync, Token, walk
from offcut.core.text.printer import format_head
from offcut.core.traversal import map_blocks
from offcut.polyhedral.sync.agents import Agents
from offcut.polyhedral.sync.events import events, sync_error
from offcut.polyhedral.sync.relations import Relations


def launches_of(program: Program, agents: Agents) -> tuple[Program, ...]:
    """Return the launches of a program, each as a program with the tokens that it names.

    The result is empty if the machine has no grids, or the program has fewer than two statements.
    """
    body = [stmt for stmt in program.body if not is_end_of_launch(stmt, agents)]
    if agents.grid is None or len(program.body) < 2:
        return ()
    return tuple(_as_program(program, (stmt,)) for stmt in body)


def options_of(program: Program, agents: Agents) -> tuple[Program, ...]:
    """Return the options of a program that is one choice, each as a program with the tokens that it names.

    The result is empty if the machine has no grids, or the program is no choice.
    """
    match program.body:
        case (Choose(options),) if agents.grid is not None:
            return tuple(_as_program(program, option.body) for option in options)
    return ()


def join_options(program: Program, options: Sequence[Program]) -> Program:
    """Return a program that is one choice, with the statements and the tokens of `options`."""
    (choice,) = program.body
    assert isinstance(choice, Choose)
    bodies: list[tuple[Stmt, ...]] = []
    tokens: list[Token] = []
    for option in options:
        stmts, option_tokens = _with_new_tokens(option, {token.name for token in tokens})
        bodies.append(stmts)
        tokens += option_tokens
    pairs = zip(choice.options, bodies, strict=True)
    whole_choice = Choose(tuple(replace(option, body=body) for option, body in pairs))
    return replace(program, body=(whole_choice,), tokens=tuple(tokens))


def is_end_of_launch(stmt: Stmt, agents: Agents) -> bool:
    """Return whether a statement is the barrier of all agents of a grid."""
    always = isinstance(stmt, Sync) and stmt.where is None and stmt.unit is None
    return always and stmt.action is Action.BARRIER and stmt.name == agents.grid  # type: ignore[union-attr]


def join_launches(program: Program, launches: Sequence[Program], agents: Agents) -> Program:
    """Return a program of launches, with a barrier before each one that conflicts with a launch since the last barrier."""
    conflicts = _conflicts(program, agents)
    barrier = Sync(Action.BARRIER, agents.grid or "")
    body: list[Stmt] = []
    tokens: list[Token] = []
    first = 0
    for number, launch in enumerate(launches):
        if any(conflicts(earlier, number) for earlier in range(first, number)):
            body.append(barrier)
            first = number
        stmts, launch_tokens = _with_new_tokens(launch, {token.name for token in tokens})
        body += stmts
        tokens += launch_tokens
    return replace(program, body=tuple(body), tokens=tuple(tokens))


def check_barriers_between(program: Program, agents: Agents) -> None:
    """Check that a barrier stands between launches that conflict, and that each barrier is needed.

    Raises PartitionError with the launch that may begin too early, or with the needless barrier.
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
                raise sync_error(program, at, because, f"barrier {agents.grid}, before it")
        groups[-1].append(number)
        number += 1
    for before, after in pairwise(groups):
        if not any(conflicts(first, second) for first in before for second in after):
            at = f"`barrier {agents.grid}`"
            raise sync_error(program, at, "without it all is ordered, too", "leave it out")


def _conflicts(program: Program, agents: Agents) -> Callable[[int, int], bool]:
    """Return a predicate of two outermost statements, by number: whether both touch one element, and one of them writes it."""
    parts = [(number, one) for number, stmt in enumerate(program.body) for one in _parts(stmt)]
    bare = replace(program, body=tuple(one for _, one in parts), tokens=())
    relations = Relations(events(bare, agents))
    leaves = relations.events.leaves
    results: dict[tuple[int, int], bool] = {}

    def conflicts(first: int, second: int) -> bool:
        if (first, second) not in results:
            results[first, second] = any(
                not relations.conflicts(a, b).is_empty()
                for a in leaves
                for b in leaves
                if (parts[a.place[0]][0], parts[b.place[0]][0]) == (first, second)
            )
        return results[first, second]

    return conflicts


def _parts(stmt: Stmt) -> Iterator[Stmt]:
    """Yield the launches of a statement, without synchronization inside: those of all options of a choice, else itself."""
    if isinstance(stmt, Choose):
        for option in stmt.options:
            for inner in option.body:
                yield from _parts(inner)
    elif not isinstance(stmt, Sync):
        yield _without_syncs(stmt)


def _without_syncs(stmt: Stmt) -> Stmt:
    """Return a statement without synchronization inside."""

    def bare(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(_without_syncs(inner) for inner in body if not isinstance(inner, Sync))

    return map_blocks(stmt, bare)


def _as_program(program: Program, body: tuple[Stmt, ...]) -> Program:
    """Return a program of some statements of `program`, with the tokens that they name."""
    names = {inner.name for inner in walk(body) if isinstance(inner, Sync)}
    tokens = tuple(token for token in program.tokens if token.name in names)
    return replace(program, body=body, tokens=tokens)


def _with_new_tokens(
    program: Program, used_names: set[str]
) -> tuple[tuple[Stmt, ...], tuple[Token, ...]]:
    """Return the statements and tokens of a launch, with tokens renamed that have a name in `used_names`."""
    names: dict[str, str] = {}
    for token in program.tokens:
        name, number = token.name, 1
        while name in used_names or name in names.values():
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
