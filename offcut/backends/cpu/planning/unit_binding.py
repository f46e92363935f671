"""Binds loops to the units that a schedule names: reductions as lanes, loops as vectors, loops that threads share.

Of ``bind * lane`` the target chooses the loops, and the schedule that comes back names them::

    schedule S                        schedule S
    separate 16                 ->    separate 16
    bind * lane                       bind S.i lane
    bind * thread                     bind S.i thread

A line that names a loop binds each loop of that name that may run so and, by the cost model, gains from it; if none gains, it
binds each that may run so. If no loop may, the line is an error, with the dependence that the loop carries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn, TypeVar

from offcut import debug
from offcut.backends.cpu.machine.isa import Host
from offcut.backends.cpu.planning.cover_report import external_kernels
from offcut.backends.cpu.planning.cpu_plan import CpuPlan
from offcut.backends.cpu.planning.lanes import mark_row_reductions
from offcut.backends.cpu.planning.schedule_words import (
    with_loop_names,
    with_thread_binds,
    with_unit_splits,
    without_unrolled_splits,
)
from offcut.backends.cpu.planning.unroll_and_jam import unroll_and_jam, without_factors
from offcut.backends.cpu.planning.vectorize import vectorize
from offcut.backends.cpu.threads.parallel import Parallel, mark_parallel_loops, single_threaded
from offcut.backends.verify import verify_pass
from offcut.core import index as ix
from offcut.core.analysis import only_reduces
from offcut.core.plain_loops import strip_annotations
from offcut.core.program import LANE, THREAD, UNROLL, For, Program, Stmt, Tile, walk
from offcut.core.traversal import map_blocks
from offcut.errors import PartitionError
from offcut.partition import check_marks, checked_tiles
from offcut.proof import concatenate_loops
from offcut.schedule import (
    ANY,
    Bind,
    Binds,
    Schedule,
    Split,
    each_decision,
    stages_of,
    unit_splits,
    with_source_line,
)
from offcut.schedule.decisions import SERIAL
from offcut.schedule.text import format_decision


@dataclass(frozen=True)
class UnitBinding:
    """A program whose loops run as its schedule binds them.

    shares    the program, and the loops that threads share
    schedule  with the names of loops in place of lines for all loops (``*``)
    notes     one for each loop, about lanes
    divided   the program before its loops were divided among threads; empty if none was
    absent    a note for each line whose loop the program does not have
    """

    shares: Parallel
    schedule: Schedule
    notes: tuple[str, ...]
    divided: tuple[Program, ...]
    absent: tuple[str, ...] = ()


def bind_units(
    program: Program,
    schedule: Schedule,
    host: Host,
    reassociate: bool,
    has_tiles_beside: bool = False,
    is_whole: bool = True,
) -> UnitBinding:
    """Return `program` with its loops bound as `schedule` says.

    has_tiles_beside  whether nests beside tiles may run as lanes
    is_whole          whether it is no nest of another program, whose other loops are bound later

    Raises PartitionError, with the line, if it names no loop, or a loop that may not run so.
    """
    binder = _UnitBinder(schedule, host, reassociate, has_tiles_beside)
    units = binder.bind(program)
    return binder.unroll(units) if is_whole else units


def with_threads(planned: CpuPlan, host: Host) -> CpuPlan:
    """Return a plan for one thread with its loops shared among threads; with a note, if that is not proved."""
    unnamed = with_thread_binds(planned.unnamed, host)
    schedule = with_thread_binds(without_unrolled_splits(planned.schedule), host)
    binder = _UnitBinder(schedule, host, True, False)
    units = binder.unroll(binder.threads(without_factors(planned.program)))
    try:
        verify_pass(planned.program, units.shares.program, reassociate=False)
    except PartitionError as refused:
        why = f"{refused.refused}: {refused.because}"
        return replace(planned, shares=replace(planned.shares, open=(why,)))
    return replace(
        planned,
        program=units.shares.program,
        schedule=units.schedule,
        unnamed=unnamed,
        shares=units.shares,
        through=(*planned.through, planned.program),
    )


T = TypeVar("T")
Loops = Sequence[For | Tile]


class _UnitBinder:
    """Binds the loops of a program to the units of a schedule, in order: lanes of reductions, lanes, threads."""

    def __init__(
        self, schedule: Schedule, host: Host, reassociate: bool, has_tiles_beside: bool
    ) -> None:
        self.schedule, self.host = schedule, host
        self.reassociate, self.has_tiles_beside = reassociate, has_tiles_beside
        self.notes: tuple[str, ...] = ()
        self.open: tuple[str, ...] = ()
        self.chunks: tuple[Split, ...] = ()

    def bind(self, program: Program) -> UnitBinding:
        self.check_units()
        self.check_serial(program)
        absent = self.absent_loops(program)
        units = self.threads(self.lanes(self.rows(program)))
        return replace(units, absent=absent)

    def check_serial(self, program: Program) -> None:
        """Check that each line that runs a loop serially names one.

        Raises PartitionError, with the line.
        """
        binds = Binds.of(self.schedule, None)
        for line in binds.lines:
            named = any(binds.name(line, loop) for loop in _loops(program))
            if line.stage != ANY and not named and not binds.names.says(line):
                with with_source_line(self.schedule, line):
                    self.refuse(program, binds, line)

    def absent_loops(self, program: Program) -> tuple[str, ...]:
        """Return a note for each line that names a loop of the schedule which the program does not have, for example if all of it is one tile."""
        steps = (step for step in self.schedule.steps if isinstance(step, Bind))
        notes = []
        for line in (step for step in steps if step.stage != ANY and step.unit != UNROLL):
            binds = Binds(self.schedule, (line,))
            is_chunk = binds.chunk_split(line) is not None
            named = is_chunk or any(binds.name(line, loop) for loop in _loops(program))
            if not named and binds.names.says(line):
                notes.append(f"{format_decision(line)}: no loop of that name is left to bind")
        return tuple(notes)

    def check_units(self) -> None:
        """Check that the target has each unit of the schedule, and that chunks have iterations.

        Raises PartitionError, with the line.
        """
        binds = Binds.of(self.schedule, UNROLL)
        for split in unit_splits(self.schedule):
            with with_source_line(self.schedule, split):
                checked_tiles(split.axis, split.levels[0].tile)
        for step in self.schedule.steps:
            if not isinstance(step, Bind):
                continue
            if step.unit == UNROLL and binds.split_of(step) is None:
                name = f"{step.stage}.{step.axis}"
                with with_source_line(self.schedule, step):
                    raise PartitionError(
                        "schedule",
                        f"cannot unroll {name}",
                        because="no split says how many iterations run together",
                        help=(
                            f"split {name} 4 as {step.axis}_tile {step.axis}_in",
                            f"bind {name}_in {UNROLL}, where {step.axis} runs in turn around tiles",
                        ),
                    )
            if step.unit not in (LANE, THREAD, UNROLL, None):
                of = ANY if step.stage == ANY else f"{step.stage}.{step.axis}"
                with with_source_line(self.schedule, step):
                    raise PartitionError(
                        "schedule",
                        f"cannot bind {'loops' if of == ANY else of} to {step.unit}",
                        because="the target has no such unit",
                        help=(f"{LANE}, {LANE} tree for sums, {THREAD}, {UNROLL}, {SERIAL}",),
                    )
        for step in each_decision(self.schedule.steps):
            if isinstance(step, Bind) and step not in self.schedule.steps:
                with with_source_line(self.schedule, step):
                    raise PartitionError(
                        "bind",
                        f"cannot bind {step.stage}.{step.axis} in one option",
                        because="a unit runs the loops of that name, of whichever option",
                        help=("the line behind the options",),
                    )

    def rows(self, program: Program) -> Program:
        """Return `program` with reductions bound to lanes."""

        def run(binds: Binds) -> tuple[Program, Loops]:
            result = mark_row_reductions(program, self.reassociate, binds)
            old_loops = set(_loops(program))
            new_loops = (
                loop for loop in _loops(result) if isinstance(loop, For) and loop not in old_loops
            )
            lanes = (loop for loop in new_loops if loop.unit == LANE and only_reduces(loop))
            return result, [replace(loop, unit=None) for loop in lanes]

        binds = Binds.of(self.schedule, LANE, tree=True)
        return self.run_pass("rows", program, binds, run) if binds.lines else program

    def lanes(self, program: Program) -> Program:
        """Return `program` with loops bound to lanes; what is bound to them already runs so, whatever lines say."""
        binds = Binds.of(self.schedule, LANE)
        if not binds.lines and not any(_is_bound(loop, LANE) for loop in _loops(program)):
            return program

        def run(binds: Binds) -> tuple[Program, Loops]:
            with debug.timed("lanes"):
                result = vectorize(program, self.host.isa, self.has_tiles_beside, binds)
            self.notes = result.notes
            return result.program, result.loops

        return self.run_pass("lanes", program, binds, run)

    def run_pass(
        self,
        name: str,
        program: Program,
        binds: Binds,
        run: Callable[[Binds], tuple[Program, Loops]],
    ) -> Program:
        """Return the result of a pass, logged under `name`."""
        result = self.run_unit(program, binds, run)
        debug.passed(name, result, program)
        return result

    def threads(self, program: Program) -> UnitBinding:
        """Return `program` with loops bound to threads, if a call may use several.

        A program that calls external functions runs on the caller's thread: they may need Python's lock.
        """
        binds = Binds.of(self.schedule, THREAD)
        if not binds.lines and not any(_is_bound(loop, THREAD) for loop in _loops(program)):
            result = single_threaded(program, "its schedule binds no loop to thread")
        elif self.host.threads == 1 or external_kernels(program, self.host):
            self.check_in_tiles(program, binds)
            result = single_threaded(program)
        else:
            chunk, threads = self.host.machine.threads.chunk, self.host.threads

            def run(binds: Binds) -> tuple[Parallel, Loops]:
                with debug.timed("threads"):
                    result = mark_parallel_loops(program, chunk, threads, binds)
                self.open, self.chunks = result.open, result.chunks
                return result, result.shared

            result = self.run_unit(program, binds, run)
            self.schedule = with_unit_splits(self.schedule, self.chunks, ())
            debug.passed("threads", result.program, program)
        divided = strip_annotations(result.program) != strip_annotations(program)
        divided = divided and concatenate_loops(result.program) == concatenate_loops(program)
        through = (program,) if divided else ()
        return UnitBinding(result, self.schedule, self.notes, through)

    def check_in_tiles(self, program: Program, binds: Binds) -> None:
        """Check that no line binds a loop that lies in a tile to threads, of which a call has one.

        Raises PartitionError, with the line.
        """
        for line in binds.lines:
            if line.stage == ANY or binds.chunk_split(line) is not None:
                continue
            named = [loop for loop in _loops(program) if binds.name(line, loop)]
            if named and all(isinstance(loop, Tile) for loop in named):
                with with_source_line(self.schedule, line):
                    self.refuse(program, binds, line)

    def unroll(self, units: UnitBinding) -> UnitBinding:
        """Return a program with loops around tiles unrolled, whose iterations run the tiles together."""
        shares, binds = units.shares, Binds.of(self.schedule, UNROLL)
        program, splits = unroll_and_jam(shares.program, self.host.isa, binds, bool(shares.loops))
        if program is shares.program:
            return units
        debug.passed("unroll", program, shares.program)
        self.schedule = with_unit_splits(self.schedule, (), splits)
        return replace(units, shares=replace(shares, program=program), schedule=self.schedule)

    def run_unit(
        self, program: Program, binds: Binds, run: Callable[[Binds], tuple[T, Loops]]
    ) -> T:
        """Return the result of `run`, which binds loops to a unit.

        `run` returns its result and the loops that it bound. It runs again for lines that name loops which it did not choose.

        Raises PartitionError for a line that it does not follow then either.
        """
        result, loops = run(binds)
        unmatched = _unmatched_lines(program, binds, loops)
        if unmatched:
            forced = replace(binds, forced=unmatched)
            result, loops = run(forced)
            for line in _unmatched_lines(program, forced, loops):
                with with_source_line(self.schedule, line):
                    self.refuse(program, binds, line)
        self.schedule = with_loop_names(self.schedule, binds, loops)
        return result

    def refuse(self, program: Program, binds: Binds, line: Bind) -> NoReturn:
        """Raise the error of a line that no loop can follow."""
        unit = f"{line.unit or SERIAL}{' tree' if line.tree else ''}"
        name = f"{line.stage}.{line.axis}"
        loops = [stmt for stmt in _loops(program) if binds.name(line, stmt)]
        chunk = binds.chunk_split(line)
        if chunk is not None and not any(isinstance(stmt, Tile) for stmt in loops):
            raise PartitionError(
                "bind",
                f"cannot bind chunks of {chunk.stage}.{chunk.axis} to thread",
                because="chunks are of a loop that runs as lanes, and this one does not",
                help=(f"bind {chunk.stage}.{chunk.names[-1]} {LANE}",),
            )
        if not loops:
            names = binds.names.names_of_loops(program, line.stage)
            raise PartitionError(
                "bind",
                f"cannot find the loop {name}",
                because=f"the loops of {line.stage} are {', '.join(names)}"
                if names
                else f"no loop computes {line.stage}",
                help=tuple(f"bind {line.stage}.{axis} {unit}" for axis in names[:3]),
            )
        because, help = self.reason(program, loops, line)
        for loop in loops:
            try:
                if isinstance(loop, For):
                    check_marks(_with_one_unit(program, loop, line.unit), {}, self.reassociate)
            except PartitionError as refused:
                because = refused.because
                help = help if line.tree else ("the schedule without this line",)
        raise PartitionError("bind", f"cannot bind {name} to {unit}", because=because, help=help)

    def reason(self, program: Program, loops: Loops, line: Bind) -> tuple[str, tuple[str, ...]]:
        """Return the reason and the help for loops that carry no dependence and do not run as a line says."""
        name = f"{line.stage}.{line.axis}"
        sums = [stmt for stmt in loops if isinstance(stmt, For) and only_reduces(stmt)]
        tiles = [stmt for stmt in walk(program.body) if isinstance(stmt, Tile)]
        outer_tiles = [tile for tile in tiles if any(stmt in loops for stmt in walk((tile,)))]
        if line.tree and not sums:
            because = "lanes hold partial sums of a loop that does nothing but add up"
            reductions = (
                stmt for stmt in _loops(program) if isinstance(stmt, For) and only_reduces(stmt)
            )
            binds = Binds(self.schedule, (line,))
            stage_reductions = (stmt for stmt in reductions if line.stage in stages_of(stmt))
            lines = dict.fromkeys(
                str(axis)
                for stmt in stage_reductions
                for axis in binds.names.names_of(stmt, line.stage)
            )
            return because, tuple(f"bind {line.stage}.{axis} lane tree" for axis in lines)
        if line.tree and any(tile.microkernel is not None for tile in outer_tiles):
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
        if outer_tiles:
            return "it lies in a tile, which one thread runs", ("a loop around the tile",)
        if self.open:
            return self.open[0], ("the schedule without this line",)
        because = "a loop around it is bound to none, or what it writes meets what stands beside it"
        return because, ("the loops around it, outermost first",)


def _loops(program: Program) -> Iterator[For | Tile]:
    return (stmt for stmt in walk(program.body) if isinstance(stmt, For | Tile))


def _is_bound(loop: For | Tile, unit: str) -> bool:
    """Return whether a loop is bound to a unit; to lanes, as these run a whole iteration each, and no partial sums."""
    return isinstance(loop, For) and loop.unit == unit and not (unit == LANE and only_reduces(loop))


def _unmatched_lines(program: Program, binds: Binds, loops: Loops) -> tuple[Bind, ...]:
    """Return the lines that none of `loops` follows, and that are not redundant."""
    unmatched = [line for line in binds.lines if line.stage != ANY]
    unmatched = [
        line for line in unmatched if not any(_follows(loop, binds, line) for loop in loops)
    ]
    return tuple(line for line in unmatched if not _is_redundant(program, binds, line))


def _follows(loop: For | Tile, binds: Binds, line: Bind) -> bool:
    """Return whether a loop that was bound is one that a line names; of a line about chunks, a tile in chunks."""
    is_chunk = binds.chunk_split(line) is not None
    return binds.name(line, loop) and (isinstance(loop, Tile) or not is_chunk)


def _is_redundant(program: Program, binds: Binds, line: Bind) -> bool:
    """Return whether a line changes nothing: its loop has the unit already, is a tile of vectors, or has one iteration."""
    loops = [loop for loop in _loops(program) if binds.name(line, loop)]
    if binds.chunk_split(line) is not None:
        tiles = [loop for loop in loops if isinstance(loop, Tile)]
        return bool(tiles) and all(_is_one_chunk(tile, binds) for tile in tiles)
    if not loops:
        return binds.names.says(line)
    vectors = line.unit == LANE and not line.tree
    return any(
        loop.unit == line.unit if isinstance(loop, For) else vectors and loop.microkernel is None
        for loop in loops
    )


def _is_one_chunk(tile: Tile, binds: Binds) -> bool:
    """Return whether a tile is known to have no more iterations than a chunk of it."""
    chunk, extent = binds.chunk_of(tile), ix.literal_value(tile.axes[0].extent)
    return chunk is not None and extent is not None and extent <= chunk.levels[0].tile


def _with_one_unit(program: Program, loop: For, unit: str | None) -> Program:
    """Return `program` with one loop bound to `unit`, and all others to none."""

    def block(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(
            map_blocks(replace(stmt, unit=unit if stmt is loop else None), block)
            if isinstance(stmt, For)
            else map_blocks(stmt, block)
            for stmt in body
        )

    return replace(program, body=block(program.body))
