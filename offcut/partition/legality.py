"""What a cut of a loop program needs, each a theorem, and how it is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from offcut.core.printer import format_stmt
from offcut.core.program import Alloc, Choose, Execution, For, If, Program, Stmt, blocks, walk
from offcut.errors import PartitionError
from offcut.polyhedral import Dependence, dependences


def check_marks(program: Program, sizes: Mapping[str, str]) -> None:
    """Refuse a loop that is marked to run in parallel and carries a dependence.

    sizes   the users' names of the sizes, by the program's

    Theorem: iterations of a loop that carries no dependence touch no element that another one
    writes, so they may run in any order, and at once.
    """
    marked = dict(_marked(program.body, ()))
    if not marked:
        return
    for one in dependences(program):
        loop = marked.get(one.path)
        store = one.source.store if one.kind == "flow" else one.target.store
        if loop is None or store.buffer in _allocated(loop):
            continue
        mark = f"@bind({loop.bound})" if loop.bound else f"@{loop.execution.value}"
        raise PartitionError(
            "partition",
            f"cannot run loop {loop.iter} as {mark}",
            at=format_stmt(one.target.store),
            because=carried(one, program, sizes),
            help=(f"the loop without {mark}",),
        )


def _allocated(loop: For) -> set[str]:
    """The buffers of which each iteration has a window of its own."""
    return {stmt.buffer for stmt in walk(loop.body) if isinstance(stmt, Alloc)}


def _marked(body: Sequence[Stmt], path: tuple[int, ...]) -> list[tuple[tuple[int, ...], For]]:
    """The loops that are marked to run in parallel, by their paths."""
    found: list[tuple[tuple[int, ...], For]] = []
    for position, stmt in enumerate(body):
        here = (*path, position)
        if isinstance(stmt, For):
            together = stmt.execution in (Execution.PARALLEL, Execution.VECTOR)
            if together or stmt.bound is not None:
                found.append((here, stmt))
        inside = blocks(stmt)
        several = isinstance(stmt, If | Choose)
        for number, block in enumerate(inside):
            found += _marked(block, (*here, number) if several else here)
    return found


def carried(one: Dependence, program: Program, sizes: Mapping[str, str]) -> str:
    """A dependence in words, at its smallest: the sizes, and the two instances."""
    values, first, second = one.witness
    given = ", ".join(
        f"{sizes.get(size.name, size.name)} = {value}"
        for size, value in zip(program.sizes, values, strict=True)
    )
    pair = [
        ", ".join(f"{n} = {x}" for n, x in zip(statement.iterators, point, strict=True))
        for statement, point in ((one.source, first), (one.target, second))
    ]
    says = {"flow": "writes what", "anti": "reads what", "output": "writes what"}[one.kind]
    then = {"flow": "reads", "anti": "overwrites", "output": "overwrites"}[one.kind]
    text = f"{format_stmt(one.source.store)} at {pair[0]} {says} the instance {pair[1]} {then}"
    return f"with {given}, {text}" if given else text


def not_equal(
    refused: PartitionError, wanted: Sequence[str], tails: Sequence[str]
) -> PartitionError:
    """The refusal of a cut whose program does not compute what was asked."""
    help: tuple[str, ...] = ()
    if len(wanted) > 1:
        first = wanted[0]
        help = (f'tile={{"{first}": …}} alone keeps the order of all instances',)
    if "shift" in tails:
        help = (*help, 'another tail than "shift" runs no instance twice')
    return PartitionError(
        "partition",
        f"cannot cut {', '.join(wanted) or 'the program'} so",
        at=refused.at,
        because=refused.because,
        help=help,
    )
