"""Which loops of a finished program run on several threads.

Marked ``@thread`` is every loop that decisions bind to threads, or any where these leave it open, whose iterations touch
nothing that another one writes, and that the threads can reach together: outside of all other loops, inside loops that are marked, and where
there is work enough between two barriers, inside a loop that all threads run in step. The footprints
show it in most cases (`Footprints`), otherwise sets of dependences do.

Scratch that lives inside one iteration exists once for each thread. Several threads may share an
iteration of an outer loop where inner loops are marked, so these are marked only where the items of
the block around them touch nothing of each other: no thread waits for another there.

Where iterations have windows, no two threads share one so. What is left when each thread has as many of them as any
other, one image of a batch, say, is then a loop that the threads run in step, where an iteration is work for all of them:
they share its inner loops and the window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod

from offcut import debug
from offcut.backends.host import cache
from offcut.backends.verify import check_parallel_loops
from offcut.core import index as ix
from offcut.core.analysis import accessed_arrays, statement_arrays, stored_arrays
from offcut.core.expr import Expr, Var, reads_memory
from offcut.core.memo import memo
from offcut.core.plain_loops import strip_synchronization
from offcut.core.program import (
    THREAD,
    Alloc,
    Choose,
    For,
    If,
    Let,
    Option,
    Program,
    Stmt,
    Store,
    Tile,
    TileAxis,
    blocks,
)
from offcut.core.program import walk as statements
from offcut.core.traversal import expressions, rewrite_body, used_names
from offcut.describe.computation import Names
from offcut.errors import PartitionError
from offcut.polyhedral import Facts, Space, try_isl
from offcut.polyhedral.sync import check_barriers, has_loops_of, windows_in_step, with_barriers
from offcut.polyhedral.units import Independence, Path
from offcut.schedule import EVERY, NO_LOOP, Binds, Split


@dataclass(frozen=True)
class Parallel:
    """A program whose loops say which of them run on several threads.

    own     buffers that every thread has for itself
    loops   the iterators of the outermost marked loops, in the order of the text
    open    what was not found out of loops that are not marked
    shared  the loops that were marked, and tiles whose instances are shared, as they were before
    chunks  the splits of these tiles
    """

    program: Program
    own: frozenset[str]
    loops: tuple[str, ...]
    open: tuple[str, ...] = ()
    shared: tuple[For | Tile, ...] = field(default=(), repr=False, compare=False)
    chunks: tuple[Split, ...] = field(default=(), repr=False, compare=False)


def single_threaded(program: Program, *why: str) -> Parallel:
    """`program` on one thread, and in words why."""
    return Parallel(program, frozenset(), (), why)


@memo(64)
def mark_parallel_loops(
    program: Program, chunk: int, threads: int, binds: Binds = EVERY
) -> Parallel:
    """Return `program` with its independent loops marked, and no others, and barriers where threads have to meet.

    A mark that is there already is taken at its word: `check_marks` is what proves it.

    chunk    instances of a tile of one axis that stands alone, in each of the tiles it becomes where no split says it
    threads  at most, of a call
    binds    which loops may be marked
    """
    return _Marker(strip_synchronization(program), chunk, threads, binds).mark()


def is_decided_by_memory(stmt: Stmt) -> bool:
    """Return whether what decides how `stmt` runs, its bounds or its condition, is read from arrays."""
    return any(map(reads_memory, expressions(stmt)))


def check_race_free(parallel: Parallel, chunk: int, threads: int) -> None:
    """Prove that threads may share the loops of `parallel` as it is marked, and meet wherever they must.

    Raises PartitionError for a loop that carries a dependence, an array of which each thread needs one of
    its own, or a meeting that is missing.
    """
    name = cache.key("threads", repr(parallel))
    if not debug.verifies() and cache.read(name) is not None:
        return
    check_parallel_loops(strip_synchronization(parallel.program), True, set())
    again = mark_parallel_loops(parallel.program, chunk, threads, NO_LOOP)
    for buffer in sorted(again.own ^ parallel.own):
        own = buffer in again.own
        raise _refusal_of_threads(
            parallel.program,
            f"{buffer} is {'what each thread writes before it reads' if own else 'shared'}",
            f"each thread {'needs one of its own' if own else 'has one of its own'}",
        )
    check_barriers(parallel.program, THREAD, parallel.own)
    cache.write(name, b"proved")


def _refusal_of_threads(program: Program, at: str, because: str) -> PartitionError:
    return PartitionError(
        "prove", f"cannot run {program.name} on several threads", at=at, because=because
    )


class _Marker(Independence):
    def __init__(self, program: Program, chunk: int, threads: int, binds: Binds) -> None:
        super().__init__(program)
        self.chunk, self.threads, self.binds = chunk, threads, binds
        self.known = Facts(Space(program.sizes, program.assumptions))
        self.own = set(self.tiled)
        self.loops: list[str] = []
        self.cuts: list[For | Tile] = []
        self.chunks: dict[Split, None] = {}
        self.names = Names(used_names(program))

    def mark(self) -> Parallel:
        body = try_isl(lambda: self.together(self.program.body, (), False), None)
        if body is None:
            text = "isl does not say which loops are independent"
            return Parallel(self.for_one_thread(), self.tiled, (), (text,))
        program = replace(self.program, body=body)
        self.own -= windows_in_step(body, THREAD)
        both = [name for name in sorted(self.own - self.tiled) if self.is_shared(body, name)]
        if both:
            text = f"threads that share a loop would share {both[0]}, of which each has its own"
            return Parallel(self.for_one_thread(), self.tiled, (), (text,))
        loops = tuple(dict.fromkeys(self.loops))
        own = frozenset(self.own)
        shared, open_questions = tuple(self.cuts), tuple(self.open)
        chunks = tuple(self.chunks)
        return Parallel(
            with_barriers(program, THREAD, own), own, loops, open_questions, shared, chunks
        )

    def for_one_thread(self) -> Program:
        """Return the program for one thread."""
        return replace(self.program, body=_without_marks(self.program.body))

    def together(self, body: Sequence[Stmt], path: Path, serial: bool) -> tuple[Stmt, ...]:
        """Return a block that all threads run, inside a loop they run in step where `serial`."""
        statements_of_team: list[Stmt] = []
        for position, stmt in enumerate(body):
            here = (*path, position)
            if is_decided_by_memory(stmt):
                statements_of_team += _without_marks((stmt,))
                continue
            match stmt:
                case For():
                    statements_of_team += self.loop(stmt, here, serial)
                case If(condition, then, other):
                    yes = self.together(then, (*here, 0), serial)
                    statements_of_team.append(
                        If(condition, yes, self.together(other, (*here, 1), serial))
                    )
                case Let() | Alloc():
                    self.inside(stmt)
                    statements_of_team.append(
                        replace(stmt, body=self.together(stmt.body, here, serial))
                    )
                case Choose(options):
                    new_options = [
                        replace(option, body=self.together(option.body, (*here, number), serial))
                        for number, option in enumerate(options)
                    ]
                    statements_of_team.append(Choose(tuple(new_options)))
                case Tile() if not serial:
                    statements_of_team.append(self.chunk_tile(stmt))
                case _:
                    statements_of_team.append(stmt)
        return tuple(statements_of_team)

    def loop(self, loop: For, path: Path, serial: bool) -> tuple[For, ...]:
        """Return a loop that all threads reach together: shared, run in step, or both, one after the other."""
        deep = any(isinstance(stmt, For | Tile) for stmt in statements(loop.body))
        is_bound = loop.unit == THREAD
        inside = not is_bound and _is_parallel(
            loop
        )  # marks that are there say that it runs in step
        worth = is_bound or deep or not serial or self.binds.force(loop)
        if inside or not worth or not self.independent(loop, path):
            return (self.in_step(loop, path),)
        self.loops.append(loop.iter)
        self.cuts.append(loop)
        self.own |= {name for name in stored_arrays(loop.body) if self.keeps(name, loop)}
        whole = replace(loop, unit=THREAD, factor=None, body=self.inner(loop.body, path))
        rest = None if is_bound or serial else self.rest_of_loop(loop, path)
        if rest is None:
            return (whole,)
        return (replace(whole, hi=rest.lo), rest) if rest.lo != loop.lo else (rest,)

    def rest_of_loop(self, loop: For, path: Path) -> For | None:
        """What is left of a shared loop where each thread has as many iterations as any other, run in step.

        None where no iteration has a window in which there is work for all threads, or where they need scalars of
        their own; and where the loop may end before it starts, since nothing is left of that.
        """
        windows = any(isinstance(stmt, Alloc) for stmt in statements(loop.body))
        count = ix.sub(loop.hi, loop.lo)
        ends = try_isl(lambda: self.known.holds(ix.compare(">=", count, 0)), False)
        if not (windows and ends) or _instances(loop.body) < self.threads * self.chunk:
            return None
        start = ix.sub(loop.hi, ix.mod(count, self.threads))
        loop_count, cut_count, own = len(self.loops), len(self.cuts), set(self.own)
        rest = self.in_step(replace(loop, lo=start), path)
        own_buffers = self.own - self.tiled - windows_in_step((rest,), THREAD)
        shared = any(self.is_shared((rest,), name) for name in own_buffers)
        if start == loop.hi or shared or not _shares_windows(rest):
            del self.loops[loop_count:], self.cuts[cut_count:]
            self.own = own
            return None
        return rest

    def in_step(self, loop: For, path: Path) -> For:
        """Return a loop of which all threads run every iteration, and share what is inside."""
        return replace(_serial(loop), body=self.together(loop.body, path, True))

    def inner(self, body: Sequence[Stmt], path: Path) -> tuple[Stmt, ...]:
        """Return a block inside a marked loop, whose marks are for threads that share an iteration."""
        pairs = ((a, b) for k, a in enumerate(body) for b in body[:k])
        if any(self.conflicts.between(a, b) for a, b in pairs):
            return _without_marks(body)
        new_body: list[Stmt] = []
        for position, stmt in enumerate(body):
            here = (*path, position)
            match stmt:
                case For() if not is_decided_by_memory(stmt) and self.independent(stmt, here):
                    self.cuts.append(stmt)
                    inside = self.inner(stmt.body, here)
                    new_body.append(replace(stmt, unit=THREAD, factor=None, body=inside))
                case If(condition, then, other) if not is_decided_by_memory(stmt):
                    yes = self.inner(then, (*here, 0))
                    new_body.append(If(condition, yes, self.inner(other, (*here, 1))))
                case Let() if not is_decided_by_memory(stmt):
                    self.inside(stmt)
                    new_body.append(replace(stmt, body=self.inner(stmt.body, here)))
                case Choose(options) if not is_decided_by_memory(stmt):
                    new_options = [
                        Option(option.label, option.cost, self.inner(option.body, (*here, number)))
                        for number, option in enumerate(options)
                    ]
                    new_body.append(Choose(tuple(new_options)))
                case _:
                    new_body += _without_marks((stmt,))
        return tuple(new_body)

    def chunk_tile(self, tile: Tile) -> Stmt:
        """Return a tile of one long axis, as a marked loop of tiles: its instances are independent."""
        if len(tile.axes) != 1 or tile.microkernel is not None or not self.binds.take(tile):
            return tile
        (axis,) = tile.axes
        split = self.binds.chunk_of(tile) or self.binds.new_chunk(tile, self.chunk)
        extent = ix.literal_value(axis.extent)
        if split is None or (extent is not None and extent <= split.levels[0].tile):
            return tile
        size = split.levels[0].tile
        name = self.names.fresh(f"{axis.iter}_chunk")
        before = ix.mul(size, Var(name))
        here = TileAxis(
            axis.iter, ix.add(axis.start, before), ix.minimum(size, ix.sub(axis.extent, before))
        )
        self.loops.append(name)
        self.cuts.append(tile)
        self.chunks[split] = None
        body = (replace(tile, axes=(here,)),)
        count = ix.ceildiv(axis.extent, size)
        return For(name, ix.const(0), count, body, unit=THREAD)

    def independent(self, loop: For, path: Path) -> bool:
        """Return whether `loop` is marked to be shared, or may be."""
        return loop.unit == THREAD or (self.binds.take(loop) and self.of(loop, path))

    def is_shared(self, body: Sequence[Stmt], name: str) -> bool:
        """Return whether a buffer that threads have for themselves is used where they run together."""
        for stmt in body:
            if not _is_parallel(stmt) or name not in accessed_arrays((stmt,)):
                continue
            if isinstance(stmt, For) and stmt.unit == THREAD:
                if not self.keeps(name, stmt):
                    return True
                continue
            if name in statement_arrays(stmt) or (isinstance(stmt, Alloc) and stmt.buffer == name):
                return True
            if any(self.is_shared(block, name) for block in blocks(stmt)):
                return True
        return False


def _shares_windows(loop: For) -> bool:
    """Return whether threads share loops inside of a window. Loops around windows they share without running in step."""
    windows = (stmt for stmt in statements(loop.body) if isinstance(stmt, Alloc))
    return any(has_loops_of(THREAD, stmt) for window in windows for stmt in window.body)


def _instances(body: Sequence[Stmt]) -> int:
    """Return how many instances `body` has, as if each extent that is no literal were one."""

    def least(extent: Expr) -> int:
        return max(1, ix.literal_value(extent) or 1)

    total = 0
    for stmt in body:
        inside = [_instances(block) for block in blocks(stmt)]
        match stmt:
            case Store():
                total += 1
            case For(_, lo, hi):
                total += least(ix.sub(hi, lo)) * sum(inside)
            case Tile(axes):
                total += prod(least(axis.extent) for axis in axes) * sum(inside)
            case _:
                total += min(inside, default=0)
    return total


def _is_parallel(stmt: Stmt) -> bool:
    """Return whether some loop in `stmt`, or itself, is marked."""
    return has_loops_of(THREAD, stmt)


def _serial(loop: For) -> For:
    marked = loop.unit == THREAD
    return replace(loop, unit=None) if marked else loop


def _without_marks(body: Sequence[Stmt]) -> tuple[Stmt, ...]:
    """Return `body` without marks of parallel loops."""
    return rewrite_body(tuple(body), lambda stmt: _serial(stmt) if isinstance(stmt, For) else None)
