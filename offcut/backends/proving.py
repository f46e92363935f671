"""Proof of what is handed to the lowering: that it computes what was described, and may run as marked.

The sets are read from the text of the finished program; how it came about is not asked. A proof is kept
on disk by what was compared, as object code is, so that it is made once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeGuard

from offcut import debug
from offcut.backends.host import cache as objects
from offcut.backends.inside import check_asked
from offcut.core.accesses import only_reduces
from offcut.core.analysis import analysis
from offcut.core.dtypes import ANY_ORDER, FLOATS
from offcut.core.expr import Cast, Expr, Load, rewrite
from offcut.core.program import (
    LANE,
    THREAD,
    Choose,
    For,
    If,
    Kind,
    Let,
    Program,
    Stmt,
    Store,
    blocks,
    map_blocks,
    map_body,
    walk,
)
from offcut.core.text.printer import format_stmt
from offcut.errors import PartitionError
from offcut.partition import check_marks
from offcut.polyhedral.units.independence import Independence, Path
from offcut.proof import (
    UNDECIDED,
    check_equal,
    check_options,
    unequal_pairs,
    without_costs,
)

_MARKS = (THREAD, LANE)


@dataclass(frozen=True)
class Unproved:
    """A step of a plan that is not proved, the first such.

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
        """Return what is not proved, and because of what, in words."""
        return f"{self.error.refused}: {self.error.because}"


def unproved_step(steps: Sequence[Program], reassociate: bool) -> Unproved | None:
    """Return the first step that is not proved; None where the last program computes what the first one does, and may run as marked.

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
        given = [stmt for stmt in walk(steps[0].body) if isinstance(stmt, For)]
        check_shares(steps[-1], reassociate, {loop.iter for loop in given if _is_marked(loop)})
    except PartitionError as error:
        return Unproved(number, error)
    objects.write(name, b"proved")
    if not analysis(steps[0]).has(Choose):
        keep_options(steps[-1])
    return None


def keep_options(program: Program) -> None:
    """Note that all options of `program` compute the same, as a proof of each beside one source says."""
    if analysis(program).has(Choose):
        objects.write(_of_options(program), b"")


def told_options(program: Program, op: str) -> tuple[str, ...]:
    """What is not told of the options of a choice that a user wrote: nothing where all compute the same.

    Raises PartitionError, as `op`, where one computes something else.
    """
    if not analysis(program).has(Choose):
        return ()
    name = _of_options(program)
    kept = objects.read(name)
    if kept is None or debug.verifies():
        with debug.timed("options"):
            untold = check_options(program, op).encode()
        if kept is None:  # else what a proof beside the source has told stays so
            objects.write(name, kept := untold)
    return (kept.decode(),) if kept else ()


def _of_options(program: Program) -> str:
    return objects.key("options", str(without_costs(program)))


def check_step(source: Program, emitted: Program, reassociate: bool) -> None:
    """Prove one step: that `emitted` computes what `source` does.

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
        check_asked(emitted)
        emitted = _unasked(emitted)
    return source, _with_constants_of(source, emitted)


def _with_constants_of(source: Program, emitted: Program) -> Program:
    """Return `emitted` with constants of the types that `source` declares, converted where they are read."""
    given = {one.name: one for one in source.buffers if one.kind is Kind.CONSTANT}
    other = {
        one.name: given[one.name].dtype
        for one in emitted.buffers
        if one.kind is Kind.CONSTANT and one.name in given and one.dtype != given[one.name].dtype
    }
    if not other:
        return emitted

    def converted(node: Expr) -> Expr | None:
        if isinstance(node, Load) and node.buffer in other:
            return Cast(replace(node, dtype=other[node.buffer]), node.dtype)
        return None

    buffers = tuple(replace(b, dtype=other.get(b.name, b.dtype)) for b in emitted.buffers)
    body = map_body(emitted.body, lambda expr: rewrite(expr, converted))
    return replace(emitted, buffers=buffers, body=body)


def _is_marked(loop: For) -> bool:
    return loop.unit in _MARKS


def check_shares(program: Program, reassociate: bool, given: set[str]) -> None:
    """Refuse a loop that is marked and carries a dependence; those over `given` were marked by the user."""
    independence = Independence(program)
    for path, loop in _loops(program.body, ()):
        if isinstance(loop, Let):
            independence.entered(loop)
            continue
        if not _is_marked(loop) or loop.iter in given:
            continue
        if loop.unit == LANE and only_reduces(loop):
            if reassociate or all(_is_exact(program, stmt) for stmt in loop.body):
                continue
        elif independence.of(replace(loop, unit=None), path):
            continue
        alone = _with_mark(program.body, path)
        check_marks(replace(program, body=alone), {}, reassociate)


def _is_exact(program: Program, stmt: Stmt) -> bool:
    """Return whether the order of updates makes no difference."""
    if not isinstance(stmt, Store):
        return False
    return stmt.reduce in ANY_ORDER or program.buffer(stmt.buffer).dtype not in FLOATS


def _loops(body: Sequence[Stmt], path: Path) -> Iterator[tuple[Path, For | Let]]:
    """Loops and bounded values with their paths, outermost first."""
    for position, stmt in enumerate(body):
        here = (*path, position)
        if isinstance(stmt, For | Let):
            yield here, stmt
        several = isinstance(stmt, If | Choose)
        for number, block in enumerate(blocks(stmt)):
            yield from _loops(block, (*here, number) if several else here)


def _with_mark(body: tuple[Stmt, ...], path: Path | None) -> tuple[Stmt, ...]:
    """Return `body` with the mark of the loop at `path`, and no other."""

    def at(stmt: Stmt, position: int) -> Stmt:
        here = path if path and path[0] == position else None
        rest = None if here is None else here[1:]
        if isinstance(stmt, For):
            mark = stmt.unit if rest == () else None
            stmt = replace(stmt, unit=mark)
        inner = iter(range(len(blocks(stmt))))
        several = isinstance(stmt, If | Choose)

        def inside(block: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
            number = next(inner)
            if not several or not rest:
                return _with_mark(block, rest or None)
            return _with_mark(block, rest[1:] if rest[0] == number else None)

        return map_blocks(stmt, inside)

    return tuple(at(stmt, position) for position, stmt in enumerate(body))


def _unasked(program: Program) -> Program:
    """Return `program` without the questions whether an access stays inside: a call that does not is refused."""
    names = analysis(program).status_buffers

    def says(stmt: Stmt) -> TypeGuard[Store]:
        return isinstance(stmt, Store) and stmt.buffer in names

    def change(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        made: list[Stmt] = []
        for stmt in body:
            match stmt:
                case If(_, then, (one,)) if says(one):
                    made += change(then)
                case _:
                    made.append(map_blocks(stmt, change))
        return tuple(made)

    first = program.body[0] if program.body else None
    body = program.body[1:] if first is not None and says(first) else program.body
    buffers = tuple(buffer for buffer in program.buffers if buffer.name not in names)
    body = change(body)
    for stmt in walk(body):
        if says(stmt):
            raise PartitionError(
                "prove",
                f"cannot run {program.name}: it says that an array was left where nothing asks",
                at=format_stmt(stmt),
                because="a question whether an access stays inside is what says so",
            )
    return replace(program, buffers=buffers, body=body)
