"""Verify a plan before it is lowered: it computes what was described, and its loops may run as marked.

The sets are read from the text of the finished program; how it came about is not asked. A proof is kept
on disk by what was compared, as object code is, so that it is made once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offcut.backends.covers import complete_covers, unknown_covers, unknown_microkernel_error
from offcut.backends.options import Options
from offcut.core.plain_loops import is_synchronized, strip_synchronization
from offcut.core.program import Program
from offcut.core.text.parser import read_back
from offcut.polyhedral.sync import Agents, check

if TYPE_CHECKING:
    from offcut.backends.target import Planner

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeGuard

from offcut import debug
from offcut.backends.bounds_guards import check_bounds_guards
from offcut.backends.host import cache as objects
from offcut.core.analysis import analysis, only_reduces
from offcut.core.dtypes import ANY_ORDER, FLOATS
from offcut.core.program import (
    LANE,
    THREAD,
    Choose,
    For,
    If,
    Let,
    Stmt,
    Store,
    blocks,
    walk,
)
from offcut.core.text.printer import format_stmt
from offcut.core.traversal import map_blocks
from offcut.errors import PartitionError
from offcut.partition import check_marks
from offcut.polyhedral.units import Independence, Path
from offcut.proof import (
    UNDECIDED,
    check_equal,
    check_options,
    unequal_pairs,
    with_constants_of,
    without_costs,
)

_MARKS = (THREAD, LANE)


@dataclass(frozen=True)
class Unproved:
    """The first step of a plan that is not proved.

    step   its number, from 0: of the step from what is asked for to the first program after it
    error  what is raised where no other plan is taken
    """

    step: int
    error: PartitionError

    @property
    def is_undecided(self) -> bool:
        """Return whether bounded work does not tell; else the step computes something else."""
        return self.error.refused == UNDECIDED

    @property
    def why(self) -> str:
        """Return what is not proved, and why, as text."""
        return f"{self.error.refused}: {self.error.because}"


def unproved_step(steps: Sequence[Program], reassociate: bool) -> Unproved | None:
    """Return the first step that is not proved; None if the last program computes what the first one does, and may run as marked.

    steps        what was described, or given, before any pass; programs on the way, where two small
                 steps are easier to see than one; and what is handed to the lowering
    reassociate  whether the terms of a float sum may be added in another order
    """
    name = objects.key("proof", *map(str, steps), repr(reassociate))
    if not debug.verifies() and objects.read(name) is not None:
        return None
    number = 0
    try:
        pairs = list[tuple[Program, Program]]()
        for before, after in pairwise(steps):
            pairs.append(_comparable(before, after))
            number = len(pairs)
        for number in unequal_pairs(pairs):
            check_equal(*pairs[number], reassociate=reassociate, inside=number > 0)
        number = len(pairs)
        source_loops = [stmt for stmt in walk(steps[0].body) if isinstance(stmt, For)]
        check_parallel_loops(
            steps[-1], reassociate, {loop.iter for loop in source_loops if _is_marked(loop)}
        )
    except PartitionError as error:
        return Unproved(number, error)
    objects.write(name, b"proved")
    if not analysis(steps[0]).has(Choose):
        record_choice_proof(steps[-1])
    return None


def record_choice_proof(program: Program) -> None:
    """Record in the cache that all options of `program` compute the same."""
    if analysis(program).has(Choose):
        objects.write(_choice_key(program), b"")


def unproved_choice_notes(program: Program, op: str) -> tuple[str, ...]:
    """Return a note for the options of a user's choices that cannot be proved equivalent; none if all are.

    Raises PartitionError, as `op`, where one computes something else.
    """
    if not analysis(program).has(Choose):
        return ()
    name = _choice_key(program)
    stored = objects.read(name)
    if stored is None or debug.verifies():
        with debug.timed("options"):
            notes = check_options(program, op).encode()
        if stored is None:  # else what a proof beside the source has told stays so
            objects.write(name, stored := notes)
    return (stored.decode(),) if stored else ()


def _choice_key(program: Program) -> str:
    return objects.key("options", str(without_costs(program)))


def verify_pass(source: Program, emitted: Program, reassociate: bool) -> None:
    """Prove that one step keeps the meaning of a program; skip `check_equal` if only annotations differ.

    Raises PartitionError with the smallest witness, or where that takes more than bounded work.
    """
    pair = _comparable(source, emitted)
    if unequal_pairs((pair,)):
        check_equal(*pair, reassociate=reassociate)


def _comparable(source: Program, emitted: Program) -> tuple[Program, Program]:
    """Return two programs that can be compared.

    Where `emitted` alone asks whether accesses stay inside, it is compared without these questions; a
    constant that is converted when it is bound is read as its conversion.

    Raises PartitionError where an access is not asked.
    """
    if analysis(emitted).status_buffers and not analysis(source).status_buffers:
        check_bounds_guards(emitted)
        emitted = _without_bounds_guards(emitted)
    return source, with_constants_of(source, emitted)


def _is_marked(loop: For) -> bool:
    return loop.unit in _MARKS


def check_parallel_loops(program: Program, reassociate: bool, user_marked: set[str]) -> None:
    """Reject a marked loop that carries a dependence; those over `user_marked` were marked by the user."""
    independence = Independence(program)
    for path, loop in _loops(program.body, ()):
        if isinstance(loop, Let):
            independence.inside(loop)
            continue
        if not _is_marked(loop) or loop.iter in user_marked:
            continue
        if loop.unit == LANE and only_reduces(loop):
            if reassociate or all(_is_exact(program, stmt) for stmt in loop.body):
                continue
        elif independence.of(replace(loop, unit=None), path):
            continue
        body = _with_mark(program.body, path)
        check_marks(replace(program, body=body), {}, reassociate)


def _is_exact(program: Program, stmt: Stmt) -> bool:
    """Return whether the order of updates makes no difference."""
    if not isinstance(stmt, Store):
        return False
    return stmt.reduce in ANY_ORDER or program.buffer(stmt.buffer).dtype not in FLOATS


def _loops(body: Sequence[Stmt], path: Path) -> Iterator[tuple[Path, For | Let]]:
    """Yield loops and `let`s with their paths, outermost first."""
    for position, stmt in enumerate(body):
        inner_path = (*path, position)
        if isinstance(stmt, For | Let):
            yield inner_path, stmt
        several = isinstance(stmt, If | Choose)
        for number, block in enumerate(blocks(stmt)):
            yield from _loops(block, (*inner_path, number) if several else inner_path)


def _with_mark(body: tuple[Stmt, ...], path: Path | None) -> tuple[Stmt, ...]:
    """Return `body` with the mark of the loop at `path`, and no other."""

    def at(stmt: Stmt, position: int) -> Stmt:
        inner_path = path if path and path[0] == position else None
        rest = None if inner_path is None else inner_path[1:]
        if isinstance(stmt, For):
            mark = stmt.unit if rest == () else None
            stmt = replace(stmt, unit=mark)
        inner = iter(range(len(blocks(stmt))))
        several = isinstance(stmt, If | Choose)

        def map_block(block: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
            number = next(inner)
            if not several or not rest:
                return _with_mark(block, rest or None)
            return _with_mark(block, rest[1:] if rest[0] == number else None)

        return map_blocks(stmt, map_block)

    return tuple(at(stmt, position) for position, stmt in enumerate(body))


def _without_bounds_guards(program: Program) -> Program:
    """Return `program` without its bounds guards: a call that leaves an array raises an error."""
    names = analysis(program).status_buffers

    def is_report(stmt: Stmt) -> TypeGuard[Store]:
        return isinstance(stmt, Store) and stmt.buffer in names

    def change(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        statements: list[Stmt] = []
        for stmt in body:
            match stmt:
                case If(_, then, (one,)) if is_report(one):
                    statements += change(then)
                case _:
                    statements.append(map_blocks(stmt, change))
        return tuple(statements)

    first = program.body[0] if program.body else None
    body = program.body[1:] if first is not None and is_report(first) else program.body
    buffers = tuple(buffer for buffer in program.buffers if buffer.name not in names)
    body = change(body)
    for stmt in walk(body):
        if is_report(stmt):
            raise PartitionError(
                "prove",
                f"cannot run {program.name}: it says that an array was left where nothing asks",
                at=format_stmt(stmt),
                because="a question whether an access stays inside is what says so",
            )
    return replace(program, buffers=buffers, body=body)


def without_synchronization(output: Any, agents: Agents | None, op: str) -> Any:
    """Return `output`; a program without its statements of synchronization, checked for `agents`: what is lowered gets its own.

    agents  None: nothing is checked, and nothing left out

    Raises PartitionError, in the name of `sync`, where the order of its text would not be kept.
    """
    if agents is None or not isinstance(output, Program):
        return output
    if not is_synchronized(read_back(output, op)):
        return output
    check(output, agents)
    return strip_synchronization(output)


def check_covers(planner: Planner, program: Program, options: Options, op: str) -> tuple[str, ...]:
    """Check the covers of a text; return a line for each name of a microkernel that nobody knows.

    Memories, layouts and units of the target's own microkernels may be decided by its policy: these are asked of its plan.

    Raises PartitionError, in the name of `op`, with the first question that a tile fails.
    """
    own = planner.microkernels(options)
    complete_covers(program, own, op, None if planner.judges else False)
    unknown = unknown_covers(program, own)
    if unknown and not planner.accepts_any_cover:
        raise unknown_microkernel_error(*next(iter(unknown.items())), own, op)
    if planner.judges:
        return ()
    because = f"target={planner.name!r} knows no microkernel of that name"  # type: ignore[attr-defined]
    return tuple(f"{name} stays a name, and is not checked: {because}" for name in unknown)
