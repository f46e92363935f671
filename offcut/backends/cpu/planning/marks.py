"""Units of a schedule -> the loops that it binds to them: rows in lanes, loops as vectors, loops that threads share.

Of ``bind * lane`` the target chooses the loops, and the schedule that comes back names them::

    schedule S                        schedule S
    separate 16                 ->    separate 16
    bind * lane                       bind S.i lane
    bind * thread                     bind S.i thread

A line that names a loop is followed wherever a loop of that name may run so and the target finds it to gain; where it finds
so nowhere, wherever it may. A line of which no loop may is refused, with what the loop carries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn, TypeVar

from offcut import debug
from offcut.backends.cpu.machine.isa import Host
from offcut.backends.cpu.planning.claims import foreign_in
from offcut.backends.cpu.planning.planned import Planned
from offcut.backends.cpu.planning.row_reductions import marked
from offcut.backends.cpu.planning.vectorize import vectorized
from offcut.backends.cpu.threads.parallel import Parallel, mark_parallel_loops, single_threaded
from offcut.backends.verify import verify_pass
from offcut.core.accesses import only_reduces
from offcut.core.plain_loops import strip_annotations
from offcut.core.program import LANE, THREAD, For, Program, Stmt, Tile, map_blocks, walk
from offcut.errors import PartitionError
from offcut.partition import check_marks
from offcut.proof import concatenate_loops
from offcut.schedule import (
    ANY,
    ANY_THREADS,
    Bind,
    Binds,
    Schedule,
    Separate,
    at_line,
    each_decision,
    hand_steps,
    stages_of,
)


@dataclass(frozen=True)
class UnitsBound:
    """A program whose loops run as its schedule binds them.

    shares    it, and which of its loops threads share
    schedule  the loops by their names, where the one that was given left them open
    notes     what became of each loop
    divided   the program before its loops were divided among threads, where they were
    """

    shares: Parallel
    schedule: Schedule
    notes: tuple[str, ...]
    divided: tuple[Program, ...]


def bind_units(
    program: Program, schedule: Schedule, host: Host, reassociate: bool, beside: bool = False
) -> UnitsBound:
    """Return `program` with its loops run as `schedule` binds them.

    beside  whether nests beside tiles run as lanes

    Raises PartitionError, with the line, where a line names a loop that is none, or may not run so.
    """
    return _Binding(schedule, host, reassociate, beside).bound(program)


def begun(schedule: Schedule) -> Schedule:
    """Return decisions of a target about loops as they stand with a first line that tells them from those by hand."""
    steps = schedule.steps
    return replace(schedule, steps=(Separate(1), *steps)) if hand_steps(schedule) else schedule


def threads_marked(schedule: Schedule, host: Host) -> Schedule:
    """`schedule` with loops shared by threads, where a call may use several."""
    threads = (ANY_THREADS,) if host.threads > 1 else ()
    return replace(schedule, steps=(*schedule.steps, *threads))


def with_threads(planned: Planned, host: Host) -> Planned:
    """A plan for one thread, its loops shared where that is proved."""
    unnamed = threads_marked(planned.unnamed, host)
    made = _Binding(threads_marked(planned.schedule, host), host, True, False).threads(
        planned.program
    )
    try:
        verify_pass(planned.program, made.shares.program, reassociate=False)
    except PartitionError as refused:
        why = f"{refused.refused}: {refused.because}"
        return replace(planned, shares=replace(planned.shares, open=(why,)))
    return replace(
        planned,
        program=made.shares.program,
        schedule=made.schedule,
        unnamed=unnamed,
        shares=made.shares,
        through=(*planned.through, planned.program),
    )


T = TypeVar("T")
Taken = Sequence[For | Tile]


class _Binding:
    """The units of a schedule, one after the other: lanes of reductions, lanes, threads."""

    def __init__(self, schedule: Schedule, host: Host, reassociate: bool, beside: bool) -> None:
        self.schedule, self.host = schedule, host
        self.reassociate, self.beside = reassociate, beside
        self.notes: tuple[str, ...] = ()
        self.open: tuple[str, ...] = ()

    def bound(self, program: Program) -> UnitsBound:
        self.check_units()
        return self.threads(self.lanes(self.rows(program)))

    def check_units(self) -> None:
        """Refuse a unit that the target has not."""
        for step in self.schedule.steps:
            if isinstance(step, Bind) and step.unit not in (LANE, THREAD):
                of = ANY if step.stage == ANY else f"{step.stage}.{step.axis}"
                units = (f"{LANE} tree", LANE, THREAD)
                with at_line(self.schedule, step):
                    raise PartitionError(
                        "schedule",
                        f"cannot bind {'loops' if of == ANY else of} to {step.unit}",
                        because="the target has no such unit",
                        help=tuple(f"bind {of} {unit}" for unit in units),
                    )
        for step in each_decision(self.schedule.steps):
            if isinstance(step, Bind) and step not in self.schedule.steps:
                with at_line(self.schedule, step):
                    raise PartitionError(
                        "bind",
                        f"cannot bind {step.stage}.{step.axis} in one option",
                        because="a unit runs the loops of that name, of whichever option",
                        help=("the line behind the options",),
                    )

    def rows(self, program: Program) -> Program:
        """Return `program` with the reductions marked that run as lanes."""

        def run(binds: Binds) -> tuple[Program, Taken]:
            made = marked(program, self.reassociate, binds)
            given = set(_loops(program))
            new = (one for one in _loops(made) if isinstance(one, For) and one not in given)
            lanes = (one for one in new if one.unit == LANE and only_reduces(one))
            return made, [replace(one, unit=None) for one in lanes]

        return self.passed("rows", program, Binds.of(self.schedule, LANE, tree=True), run)

    def lanes(self, program: Program) -> Program:
        """Return `program` with loops as vectors."""

        def run(binds: Binds) -> tuple[Program, Taken]:
            with debug.timed("lanes"):
                made = vectorized(program, self.host.isa, self.beside, binds)
            self.notes = made.notes
            return made.program, made.loops

        return self.passed("lanes", program, Binds.of(self.schedule, LANE), run)

    def passed(
        self,
        name: str,
        program: Program,
        binds: Binds,
        run: Callable[[Binds], tuple[Program, Taken]],
    ) -> Program:
        """Return what a pass makes of `program`, where loops are bound to its unit."""
        made = self.unit(program, binds, run, program)
        if binds.lines:
            debug.passed(name, made, program)
        return made

    def threads(self, program: Program) -> UnitsBound:
        """Return `program` with the loops marked that threads share, where a call may use several.

        A program that calls external functions runs on the caller's thread: they may need Python's lock.
        """
        binds = Binds.of(self.schedule, THREAD)
        if not binds.lines:
            made = single_threaded(program, "its schedule binds no loop to thread")
        elif self.host.threads == 1 or foreign_in(program, self.host):
            made = single_threaded(program)
        else:
            chunk, threads = self.host.machine.threads.chunk, self.host.threads

            def run(binds: Binds) -> tuple[Parallel, Taken]:
                with debug.timed("threads"):
                    made = mark_parallel_loops(program, chunk, threads, binds)
                self.open = made.open
                return made, made.shared

            made = self.unit(program, binds, run, single_threaded(program))
            debug.passed("threads", made.program, program)
        divided = strip_annotations(made.program) != strip_annotations(program)
        divided = divided and concatenate_loops(made.program) == concatenate_loops(program)
        through = (program,) if divided else ()
        return UnitsBound(made, self.schedule, self.notes, through)

    def unit(
        self, program: Program, binds: Binds, run: Callable[[Binds], tuple[T, Taken]], without: T
    ) -> T:
        """Return what `run` makes of the loops that are bound to a unit; `without` where none is."""
        if not binds.lines:
            return without
        made, taken = run(binds)
        left = _left(program, binds, taken)
        if left:
            forced = replace(binds, forced=left)
            made, taken = run(forced)
            for line in _left(program, forced, taken):
                with at_line(self.schedule, line):
                    self.refuse(program, binds, line)
        self.schedule = _named(self.schedule, binds, taken)
        return made

    def refuse(self, program: Program, binds: Binds, line: Bind) -> NoReturn:
        """Refuse a line of which no loop may run as it says."""
        name, unit = f"{line.stage}.{line.axis}", f"{line.unit}{' tree' if line.tree else ''}"
        loops = [one for one in _loops(program) if binds.name(line, one)]
        if not loops:
            known = binds.names.known(program, line.stage)
            raise PartitionError(
                "bind",
                f"cannot find the loop {name}",
                because=f"the loops of {line.stage} are {', '.join(known)}"
                if known
                else f"no loop computes {line.stage}",
                help=tuple(f"bind {line.stage}.{axis} {unit}" for axis in known[:3]),
            )
        because, help = self.reason(program, loops, line)
        for loop in loops:
            try:
                if isinstance(loop, For):
                    check_marks(_alone(program, loop, line.unit), {}, self.reassociate)
            except PartitionError as refused:
                because = refused.because
                help = help if line.tree else ("the schedule without this line",)
        raise PartitionError("bind", f"cannot bind {name} to {unit}", because=because, help=help)

    def reason(self, program: Program, loops: Taken, line: Bind) -> tuple[str, tuple[str, ...]]:
        """Return why loops that carry nothing do not run as a line says, and what does."""
        name = f"{line.stage}.{line.axis}"
        sums = [one for one in loops if isinstance(one, For) and only_reduces(one)]
        tiles = [one for one in walk(program.body) if isinstance(one, Tile)]
        around = [tile for tile in tiles if any(one in loops for one in walk((tile,)))]
        if line.tree and not sums:
            because = "lanes hold partial sums of a loop that does nothing but add up"
            every = (one for one in _loops(program) if isinstance(one, For) and only_reduces(one))
            binds = Binds(self.schedule, (line,))
            own = (one for one in every if line.stage in stages_of(one))
            lines = dict.fromkeys(
                str(axis) for one in own for axis in binds.names.names_of(one, line.stage)
            )
            return because, tuple(f"bind {line.stage}.{axis} lane tree" for axis in lines)
        if line.tree and any(tile.microkernel is not None for tile in around):
            return "a microkernel adds it up, in an order of its own", (
                f"cover {line.stage} vectors",
            )
        if line.tree:
            return "reassociate=False keeps the terms of a sum of floats in order", (
                "reassociate=True",
            )
        if line.unit == LANE and sums:
            return "it adds up, and lanes of it hold partial sums", (f"bind {name} lane tree",)
        if line.unit == LANE:
            return "tiles, windows or lanes are inside of it", ("a loop that holds none of them",)
        if around:
            return "it lies in a tile, which one thread runs", ("a loop around the tile",)
        if self.open:
            return self.open[0], ("the schedule without this line",)
        because = "a loop around it is bound to none, or what it writes meets what stands beside it"
        return because, ("the loops around it, outermost first",)


def _loops(program: Program) -> Iterator[For | Tile]:
    return (stmt for stmt in walk(program.body) if isinstance(stmt, For | Tile))


def _left(program: Program, binds: Binds, taken: Taken) -> tuple[Bind, ...]:
    """Return the lines of which no loop is taken, nor was bound before, though there may be one."""
    left = [line for line in binds.lines if line.stage != ANY]
    left = [line for line in left if not any(binds.name(line, one) for one in taken)]
    return tuple(line for line in left if not _is_so(program, binds, line))


def _is_so(program: Program, binds: Binds, line: Bind) -> bool:
    """Return whether a line says what is so without it: of a loop that is marked, of vectors of a tile, of one iteration."""
    loops = [one for one in _loops(program) if binds.name(line, one)]
    if not loops:
        return binds.names.says(line)
    vectors = line.unit == LANE and not line.tree
    return any(
        one.unit == line.unit if isinstance(one, For) else vectors and one.microkernel is None
        for one in loops
    )


def _alone(program: Program, loop: For, unit: str | None) -> Program:
    """Return `program` with one loop bound to a unit, and no other."""

    def block(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(
            map_blocks(replace(stmt, unit=unit if stmt is loop else None), block)
            if isinstance(stmt, For)
            else map_blocks(stmt, block)
            for stmt in body
        )

    return replace(program, body=block(program.body))


def _named(schedule: Schedule, binds: Binds, taken: Taken) -> Schedule:
    """Return `schedule` with the loops by name that a line of all left open."""
    if not any(line.stage == ANY for line in binds.lines):
        return schedule
    (like,) = (line for line in binds.lines if line.stage == ANY)
    lines: dict[Bind, None] = {}
    for loop in taken:
        if not (isinstance(loop, For) and loop.unit == like.unit):
            lines |= dict.fromkeys(binds.lines_of(loop))
    new = tuple(line for line in lines if line not in schedule.steps)
    at = schedule.steps.index(like)
    return replace(schedule, steps=(*schedule.steps[:at], *new, *schedule.steps[at + 1 :]))
