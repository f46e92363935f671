"""A program as the CPU runs it: its computation cut, where it is one; else its own loops as vectors.

    bind -> raise -> cut -> cover -> lanes of rows -> threads                 a computation
    bind -> keep inside -> separate -> cover -> vectorize -> threads          any other program

A computation is a sequence of whole arrays, each from those before. It runs in its own loops where
that separates conditions that no microkernel leaves behind.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from offcut import debug
from offcut.backends.cpu.claims import covers_of, foreign_in, plain_notes
from offcut.backends.cpu.family import families
from offcut.backends.cpu.isa import Host
from offcut.backends.cpu.machine import hardware
from offcut.backends.cpu.parallel import Parallel, parallel
from offcut.backends.cpu.rows import marked
from offcut.backends.cpu.schedule import schedule
from offcut.backends.cpu.seconds import seconds_of_program, seconds_of_schedule
from offcut.backends.cpu.vectorize import privatized, vectorized
from offcut.backends.inside import kept_inside
from offcut.backends.raising import raised
from offcut.backends.schedule import Schedule
from offcut.core.computation import Computation
from offcut.core.expr import Binary, Compare, Expr, Load, Select, dtype_of, variables
from offcut.core.expr import walk as nodes
from offcut.core.program import (
    Alloc,
    Choose,
    Execution,
    For,
    Let,
    Program,
    Stmt,
    Store,
    Tile,
    expressions,
    walk,
)
from offcut.costmodel import copies_worth
from offcut.errors import PartitionError
from offcut.partition import (
    Users,
    check_marks,
    check_program,
    check_tiles,
    check_windows,
    labelled,
    separate,
    without_covers,
)
from offcut.partition.separate import Separated
from offcut.polyhedral import GaveUp, bounded, in_pass

COPIES = 16  # of a statement, at most, to move conditions out of loops

Strategies = str | Mapping[str, str]


@dataclass(frozen=True)
class Planned:
    """A program as the host runs it.

    program  what is lowered
    seconds  predicted, of a call on one thread: an expression over the sizes
    made     its pieces, and the ways that compete at run time; None where it runs in its own loops
    work     instances of a call; None where nothing counts them
    notes    what became of its loops and tiles, and why
    """

    program: Program
    seconds: Expr
    made: Schedule | None
    work: Expr | None
    notes: tuple[str, ...] = ()

    @property
    def has_loops(self) -> bool:
        """Whether some of it runs without a microkernel."""
        return self.made is None or self.made.has_loops


def plan(
    program: Program,
    users: Users,
    host: Host,
    strategy: Strategies = "auto",
    reassociate: bool = True,
) -> Planned:
    """`program` as the host runs it, proved.

    users         what the user calls what is in it
    strategy      ``"auto"``, one for the rows, or by axis; of a program that is a computation alone
    reassociate   whether the terms of a sum may be added in an order of the host's own

    Raises PartitionError where it leaves an array, a strategy is not legal, or isl does not say in
    bounded work.
    """
    asked = strategy if isinstance(strategy, str) else tuple(strategy.items())
    return _plan(program, users, host, asked, reassociate, os.environ.get("OFFCUT_VERIFY") == "1")


@lru_cache(maxsize=4)  # a kernel that was just built is asked for its loops
def _plan(
    program: Program,
    users: Users,
    host: Host,
    asked: str | tuple[tuple[str, str], ...],
    reassociate: bool,
    verify: bool,
) -> Planned:
    """`plan`, by what can be compared; notes and timings are of the first time."""
    strategy = asked if isinstance(asked, str) else dict(asked)
    computation, why = _raised(program, users, reassociate)
    if strategy != "auto" and computation is None:
        raise PartitionError(
            "compile",
            f"cannot take strategy={strategy!r} with this program",
            because=f"{why}, so it runs in the loops that it has",
            help=("oc.compile(oc.partition(program, tile={…}, tail={…}).loops)",),
        )
    if computation is not None:
        try:
            made = _cut(computation, host, strategy, reassociate, verify)
        except PartitionError as refused:  # a read that cannot be bounded, say
            if strategy != "auto":
                raise
            why = f"{refused.refused}: {refused.because}"
        else:
            if strategy != "auto" or _is_worth(made):
                return made
            why = "its conditions are moved out of its loops"
    with bounded("compile", f"cannot compile {program.name}"):
        return _in_loops(program, host, reassociate, why)


def _raised(program: Program, users: Users, reassociate: bool) -> tuple[Computation | None, str]:
    """`program` as a computation, in the user's names; else None, and in words why it is none."""
    try:
        with debug.timed("raise"), in_pass():
            computation = raised(*privatized(program))
    except GaveUp:
        return None, "isl takes too long to tell whether it is a computation"
    if computation is None:
        return None, "it is not a sequence of whole arrays, each from those before"
    late = None if reassociate else _added_last(computation, program)
    return (None, late) if late is not None else (labelled(computation, users), "")


def _added_last(computation: Computation, program: Program) -> str | None:
    """In words, a sum of `program` whose start `computation` adds after its terms; None: none is."""
    own = {buffer.name for buffer in program.buffers}
    for lead in (group[0] for group in computation.groups):
        if lead.reducer is not None and lead.buffer not in own:
            name = lead.buffer.removesuffix("_sum")
            return f"the sum in {name} starts from a value, and reassociate=False"
    return None


def _cut(
    computation: Computation, host: Host, strategy: Strategies, reassociate: bool, verify: bool
) -> Planned:
    """A computation cut for the host; `verify` reads the loops back as well."""
    with debug.timed("cut and prove"), bounded("compile", f"cannot cut {computation.name}"):
        lent, threads = families(host), host.threads
        made = schedule(computation, host.isa, lent, hardware(), strategy, threads, reassociate)
    made = made.settled(covers_of(made.partition.loops, host, reassociate).refused)
    loops = marked(made.partition.loops, reassociate)
    made = replace(made, partition=replace(made.partition, loops=loops))
    debug.note(3, str(made.partition))
    if verify:
        with debug.timed("verify"):
            assert made.partition.computation is not None
            check_program(made.partition.computation, made.partition.loops)
    loops = shared(made.partition.loops, host).program
    made = replace(made, partition=replace(made.partition, loops=loops))
    return Planned(loops, seconds_of_schedule(made), made, computation.instances)


def _is_worth(made: Planned) -> bool:
    """Whether a computation that was cut runs so: not where it leaves conditions in its loops that
    separating these would move out of them.
    """
    assert made.made is not None
    covered = any(piece.microkernel is not None for piece in made.made.partition.pieces)
    shares = any(isinstance(stmt, Alloc) for stmt in walk(made.program.body))
    return covered or shares or not _is_conditional(made.made.partition.source)


def _is_conditional(program: Program) -> bool:
    """Whether what is read depends on conditions on the coordinates of `program`."""
    loops = {stmt.iter for stmt in walk(program.body) if isinstance(stmt, For)}
    return any(
        isinstance(test, Compare) and dtype_of(test.a) == "index" and variables(test) & loops
        for stmt in walk(program.body)
        for expr in expressions(stmt)
        for choice in nodes(expr)
        if isinstance(choice, Select)
        for test in nodes(choice.condition)
    )


def shared(program: Program, host: Host) -> Parallel:
    """`program` with the loops marked that threads share, where a call may use several.

    A program that calls external functions runs on the caller's thread: they may need Python's lock.
    """
    if host.threads == 1 or foreign_in(program, host):
        return Parallel(program, frozenset(), ())
    with debug.timed("threads"):
        return parallel(program)


def _in_loops(program: Program, host: Host, reassociate: bool, why: str) -> Planned:
    """A program in the loops that it has, with conditions moved out of them and lanes along them.

    why   it is not cut as a computation
    """
    if host.threads > 1 and any(_is_parallel(stmt) for stmt in walk(program.body)):
        check_marks(program, {})
    check_tiles(program)
    check_windows(program)
    with debug.timed("bounds"):
        inside = kept_inside(program)
    with debug.timed("separate"):
        whole = Separated(inside, ())
        leave = _is_cut(inside) or _reads_bounds(inside)
        stores = sum(isinstance(stmt, Store) for stmt in walk(inside.body))
        apart = whole if leave else separate(inside, min(COPIES, copies_worth(hardware(), stores)))
    with debug.timed("covers"):
        covers = covers_of(apart.program, host, reassociate)
        plain = tuple(dict.fromkeys(plain_notes(apart.program, covers)))
        settled = without_covers(apart.program, covers.refused)
    with debug.timed("vectorize"):
        made = vectorized(marked(settled.program, reassociate), host.isa)
    run = shared(made.program, host).program
    debug.note(3, str(run))
    said = tuple(f"loop {note.loop}: {note.text}" for note in apart.notes)
    notes = (*_reason(program, why), *said, *made.notes, *settled.notes, *plain)
    return Planned(run, seconds_of_program(run), None, None, notes)


def _reason(program: Program, why: str) -> tuple[str, ...]:
    """A line that says why no sum of products runs by a microkernel, where there is one that is not cut."""
    products = any(
        isinstance(stmt, Store) and stmt.reduce == "sum" and isinstance(stmt.value, Binary)
        for stmt in walk(program.body)
    )
    return (f"no sum runs by a microkernel: {why}",) if products and not _is_cut(program) else ()


def _is_cut(program: Program) -> bool:
    """Whether a program was cut: its conditions were separated then, as far as that was worth it."""
    return any(isinstance(stmt, Tile | Choose | Let) for stmt in walk(program.body))


def _reads_bounds(program: Program) -> bool:
    """Whether an array says how often some loop runs: no set knows where its conditions change."""
    bounds = (b for stmt in walk(program.body) if isinstance(stmt, For) for b in (stmt.lo, stmt.hi))
    return any(isinstance(node, Load) for bound in bounds for node in nodes(bound))


def _is_parallel(stmt: Stmt) -> bool:
    return isinstance(stmt, For) and stmt.execution is Execution.PARALLEL
