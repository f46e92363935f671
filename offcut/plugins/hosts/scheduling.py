"""A schedule applied to the program of a host: what comes back are loops, conditions, stores, windows and calls alone.

    units       a loop that threads, lanes or copies of its body run keeps its unit; loops over blocks and threads of a grid
                become a kernel (`kernels`)
    stages      a window is an array of its own where it lives (`windows`)
    covers      a tile with a microkernel stays, full: a call (`calls`); another tile is loops
    choose      conditions over the costs

What a host cannot say is refused by the line of the decision that asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from offcut.core import index as ix
from offcut.core.expr import Compare, Expr, Logic, Var, variables
from offcut.core.plain_loops import tile_to_loops
from offcut.core.program import (
    LANE,
    THREAD,
    UNROLL,
    Alloc,
    Choose,
    For,
    If,
    Program,
    Stmt,
    Store,
    Sync,
    Tile,
    map_blocks,
    substitute_coordinates,
    walk,
)
from offcut.core.text.layouts import format_layout
from offcut.core.traversal import rewrite, rewrite_body
from offcut.describe.microkernel import Microkernel
from offcut.errors import OffcutError, PartitionError
from offcut.partition import Question, Refusal, cover
from offcut.pipeline import partition
from offcut.pipeline import target as find_target
from offcut.plugins.hosts.calls import with_full_tiles
from offcut.plugins.hosts.kernels import with_kernels
from offcut.plugins.hosts.windows import HARDWARE, with_arrays_for_windows
from offcut.schedule import (
    ANY,
    At,
    Bind,
    Primitive,
    Schedule,
    Separate,
    Staging,
    Step,
    check_once,
    each_decision,
    replay,
    stages_in,
)
from offcut.schedule.apply.covering import find_intrinsic
from offcut.schedule.decisions import Cover
from offcut.schedule.text import lines_of

CONSTANT = (LANE, UNROLL)
"""Units that run a loop only where its extent is a number."""


@dataclass(frozen=True)
class Words:
    """What a host can say.

    host      as refusals call it
    units     that its loops may be bound to, beside blocks and threads of a grid
    partial   whether lanes may add to one element
    numbers   whether an array in another memory than the main one has a number of elements
    """

    host: str
    units: Collection[str]
    partial: bool = False
    numbers: bool = False


@dataclass(frozen=True)
class Said:
    """A program in the words of a host.

    kernel   the microkernel of a name
    refuse   called with a loop and why its unit cannot be said
    """

    program: Program
    kernel: Callable[[str], Microkernel]
    refuse: Callable[..., PartitionError]


def scheduled(
    program: Program,
    schedule: Schedule | str,
    words: Words,
    microkernels: Sequence[Microkernel] = (),
) -> Said:
    """Return what `schedule` makes of `program`, proved, in the words of a host.

    schedule      its decisions name the stages of `program`, by the arrays that they write
    microkernels  that `cover` may name, beside instructions that were declared

    Raises PartitionError, with the line of the decision, for one that is not legal, or that the host cannot say; ParseError for a
    text that is no schedule.
    """
    if isinstance(schedule, str):
        schedule = Schedule.parse(schedule)
    check_once(schedule)
    for step in each_decision_or_other(schedule):
        because, *help_ = _unsaid(step, words)
        if because:
            raise _refusal(words, schedule, step, because, *help_)
    result = _applied(program, schedule, microkernels)
    saying = _Saying(schedule, words, microkernels)
    return Said(saying.program(result), saying.kernel, saying.refuse_loop)


def is_about(schedule: Schedule, program: Program, *names: str) -> bool:
    """Return whether a schedule is of `program`, which has one of `names`, and its own: it names an array of the program, or none."""
    if schedule.name not in (program.name, *names):
        return False
    stages = {stage for step in each_decision(schedule.steps) for stage in stages_in(step)}
    stages -= {ANY}
    return not stages or any(buffer.name in stages for buffer in program.buffers)


def microkernels_of(target: str) -> tuple[Microkernel, ...]:
    """Return the microkernels that a target has by default; DescribeError where there is no such target."""
    target_of_name = find_target(target)
    return tuple(target_of_name.microkernels(target_of_name.options("schedule", threads=1)))


def each_decision_or_other(schedule: Schedule) -> Iterator[Step]:
    """Yield the decisions of a schedule, those of options in place of their choice, and what is none."""
    for step in schedule.steps:
        if isinstance(step, Primitive):
            yield from each_decision((step,))
        else:
            yield step


def _applied(program: Program, schedule: Schedule, microkernels: Sequence[Microkernel]) -> Program:
    """Return what the decisions make of `program`; conditions leave loops where a line says so."""
    run: list[Step] = []
    for step in (*schedule.steps, None):
        if isinstance(step, Primitive):
            run.append(step)
            continue
        if run:
            # The steps before are no decisions here: lines are counted in the whole text.
            whole = Schedule(schedule.name, schedule.steps)
            program = _replayed(program, whole, tuple(run), microkernels)
            run = []
        if isinstance(step, Separate):
            try:
                program = partition(program, target="interpret", copies=step.copies).loops
            except OffcutError as refused:
                raise _again(refused, schedule, step) from refused
    return program


def _replayed(
    program: Program,
    whole: Schedule,
    steps: tuple[Step, ...],
    microkernels: Sequence[Microkernel],
) -> Program:
    if steps == whole.steps:
        return replay(program, whole, of_target=microkernels)[1]
    part = Schedule(whole.name, steps)
    try:
        return replay(program, part, of_target=microkernels)[1]
    except PartitionError as refused:
        step = _at_line_of(part, refused)
        if step is None:
            raise
        raise _again(refused, whole, step) from refused


def _at_line_of(part: Schedule, refused: PartitionError) -> Step | None:
    """Return the decision at whose line something is refused."""
    number = refused.at.removeprefix("line ").partition(":")[0]
    if not number.isdecimal() or not 2 <= int(number) < len(part.steps) + 2:
        return None
    return part.steps[int(number) - 2]


def _unsaid(step: Step, words: Words) -> tuple[str, ...]:
    """Return why a host cannot say a decision, and what it could; an empty text if it can."""
    units = (*words.units, *HARDWARE)
    of_all = isinstance(step, Primitive) and ANY in stages_in(step)
    if isinstance(step, Bind) and not of_all and step.unit is not None and step.unit not in units:
        help_ = (f"bind {step.stage}.{step.axis} {one}" for one in units[:4])
        return f"{words.host} has no {step.unit} that runs a loop: {', '.join(units)}", *help_
    if isinstance(step, Separate | Primitive) and not of_all:
        return ("",)
    return (
        f"a target decides so, and {words.host} has none",
        "split, fuse, order, at, stage, inline, rfactor, bind, cover, separate, choose",
    )


def _line(schedule: Schedule, decision: object) -> str:
    """Return the line of a decision, with its number."""
    lines = enumerate(lines_of(schedule), 1)
    return next(f"line {k}: {text.strip()}" for k, (text, one) in lines if one is decision)


def _refusal(
    words: Words, schedule: Schedule, step: Step, because: str, *help_: str
) -> PartitionError:
    what = f"cannot say this {_line(schedule, step).split()[2]}"
    at = _line(schedule, step)
    return PartitionError(words.host, what, at=at, because=because, help=help_)


def _again(refused: OffcutError, schedule: Schedule, step: Step) -> PartitionError:
    """Return what is refused at the line that a decision has in the whole schedule."""
    at = _line(schedule, step)
    return PartitionError(
        refused.op, refused.refused, at=at, because=refused.because, help=refused.help
    )


@dataclass
class _Saying:
    """A program that a schedule made, said by a host."""

    schedule: Schedule
    words: Words
    microkernels: Sequence[Microkernel]

    def program(self, program: Program) -> Program:
        """Return the program in the words of the host."""
        program = self.with_covers(program)
        program = with_arrays_for_windows(program, self.refuse_window, self.words.numbers)
        program = with_full_tiles(program, self.kernel, self.refuse_cover)
        program = rewrite(program, _plain)
        program = self.with_units(program)
        return with_kernels(program, self.refuse_loop)

    # covers

    def kernel(self, name: str) -> Microkernel:
        """Return the microkernel of a name."""
        own = next((one for one in reversed(self.microkernels) if one.name == name), None)
        return own or find_intrinsic(name, (), "")

    def with_covers(self, program: Program) -> Program:
        """Return `program` with the axes of every cover, and its operands, as the judge finds them."""

        def rule(stmt: Stmt) -> Stmt | None:
            if not isinstance(stmt, Tile) or stmt.cover is None:
                return None
            kernel = self.kernel(stmt.cover.microkernel)
            undecided = {Question.UNIT}
            judged = cover(stmt, program, kernel, stmt.cover, undecided=undecided)
            if isinstance(judged, Refusal):
                raise self.refuse_cover(stmt, f"{judged.question.value}: {judged}")
            for name, place in kernel.operands.items():
                if place.layout is not None or place.by != "plain":
                    plain = place.by == "plain" and place.layout is not None
                    how = f"as {format_layout(place.layout) if plain else 'a ' + place.by}"
                    raise self.refuse_cover(
                        stmt,
                        f"{kernel.name} takes {name} {how}, and a call of {self.words.host} says strides",
                        "a microkernel whose operands lie at strides",
                    )
            whole = (one for one in judged.covered if one.start != "reset" or one.match.operands)
            found = next(whole, judged.covered[0])
            if found.around or found.turns:
                loops = ", ".join(loop.iter for loop in (*found.around, *found.turns))
                raise self.refuse_cover(
                    stmt, f"{kernel.name} is called once a tile, and {loops} would repeat it"
                )
            match = found.match
            axes = tuple((axis, it) for axis, it in match.axes if it is not None)
            reads = tuple((name, load.buffer) for name, load in match.operands)
            result = (kernel.computes.name, found.store.buffer)
            return replace(stmt, cover=replace(stmt.cover, axes=axes, operands=(*reads, result)))

        return rewrite(program, rule)

    # refusals

    def refuse_cover(self, tile: Tile, because: str, *help_: str) -> PartitionError:
        """Return the refusal of the cover of a tile."""
        stores = {stmt.buffer for stmt in walk(tile.body) if isinstance(stmt, Store)}
        covers = [s for s in each_decision(self.schedule.steps) if isinstance(s, Cover)]
        kernels = [(step, self.kernel(step.microkernel)) for step in covers]
        steps = [s for s, k in kernels if tile.microkernel in (k.name, k.reset, k.update)]
        mine = [s for s in steps if s.stage in stores or s.stage.rpartition("_")[0] in stores]
        return self.at((*steps, *mine), because, *help_)

    def refuse_window(self, window: Alloc, because: str, *help_: str) -> PartitionError:
        """Return the refusal of a window."""
        steps = [
            step
            for step in each_decision(self.schedule.steps)
            if (isinstance(step, At) and step.stage == window.buffer)
            or (isinstance(step, Staging) and step.name == window.buffer)
        ]
        return self.at(steps, because, *help_)

    def refuse_loop(self, loop: For, because: str, *help_: str) -> PartitionError:
        """Return the refusal of what runs a loop."""
        binds = [s for s in each_decision(self.schedule.steps) if isinstance(s, Bind)]
        alike = [s for s in binds if s.unit == loop.unit]
        decisions = [s for s in alike if s.axis == loop.iter]
        return self.at((*alike[:1], *decisions), because, *help_)

    def at(self, steps: Sequence[Step], because: str, *help_: str) -> PartitionError:
        """Return a refusal at the line of the last of some decisions."""
        if not steps:
            return PartitionError(
                self.words.host, "cannot say this program", because=because, help=help_
            )
        return _refusal(self.words, self.schedule, steps[-1], because, *help_)

    # units

    def with_units(self, program: Program) -> Program:
        """Return `program` whose loops have the units that a host can say; refused where no loop of a decision has."""
        refused_units: set[tuple[str, str]] = set()
        lost: dict[tuple[str, str], tuple[For, str]] = {}

        def visit(stmt: Stmt, threads: bool, grid: bool) -> Stmt:
            unit = stmt.unit if isinstance(stmt, For) else None
            inside = threads or unit == THREAD, grid or unit in HARDWARE
            stmt = map_blocks(stmt, lambda body: tuple(visit(one, *inside) for one in body))
            if not isinstance(stmt, For) or unit is None:
                return stmt
            because = self.not_run(stmt, threads, grid)
            if because:
                lost.setdefault((unit, stmt.iter), (stmt, because))
                return replace(stmt, unit=None)
            refused_units.add((unit, stmt.iter))
            return stmt

        body = tuple(visit(stmt, False, False) for stmt in program.body)
        program = replace(program, body=body)
        for (unit, name), (loop, because) in lost.items():
            if (unit, name) not in refused_units:
                raise self.refuse_loop(loop, because)
        return program

    def not_run(self, loop: For, threads: bool, grid: bool) -> str:
        """Return why a unit cannot run this loop; an empty text if it can."""
        extent = _extent(loop)
        if loop.unit in CONSTANT and extent is None:
            return "it runs a loop whose extent is a number, and none of the pieces of this loop has one"
        if loop.unit == THREAD and grid:
            return "threads of the processor run no loop inside of a grid"
        if loop.unit == THREAD and threads:
            return "another loop around is run by threads already"
        if loop.unit == LANE and not self.words.partial:
            for stmt in walk(loop.body):
                if isinstance(stmt, Store) and not _moves(stmt, loop):
                    return f"its iterations write one element of {stmt.buffer}"
        return ""


def _moves(store: Store, loop: For) -> bool:
    return any(loop.iter in variables(part) for part in store.index)


def _extent(loop: For) -> int | None:
    return ix.literal_value(ix.sub(loop.hi, loop.lo))


def _plain(stmt: Stmt) -> Stmt | tuple[Stmt, ...] | None:
    """Return what takes the place of a tile that nothing covers, and of a choice; None: it stays."""
    match stmt:
        case Tile(cover=None):
            return rewrite_body(tile_to_loops(stmt), _plain)
        case If(condition, (), other):
            return (If(Logic("not", (condition,)), other),) if other else ()
        case For(_, _, _, ()) | Sync():
            return ()
        case For(name, lo, hi, body) if lo != ix.const(
            0
        ):  # from 0 on, so that windows are indexed plainly
            inside = substitute_coordinates(body, {name: ix.add(lo, Var(name))})
            return replace(stmt, lo=ix.const(0), hi=ix.sub(hi, lo), body=inside)
        case Choose(options):
            return _cheapest([(option.cost, option.body) for option in options])
    return None


def _cheapest(options: Sequence[tuple[Expr, tuple[Stmt, ...]]]) -> tuple[Stmt, ...]:
    """Return the first option where it costs no more than any other, else one of these."""
    (cost, body), *rest = options
    if not rest:
        return body
    least = [Compare("<=", cost, other) for other, _ in rest]
    condition = least[0] if len(least) == 1 else Logic("and", tuple(least))
    return (If(condition, body, _cheapest(rest)),)
