"""Apply a schedule to the program of a host; the result has loops, conditions, stores, windows and calls only.

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
    walk,
)
from offcut.core.text.layouts import format_layout
from offcut.core.traversal import map_blocks, rewrite, rewrite_body, substitute_coordinates
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
    Staging,
    Step,
    check_once,
    each_decision,
    is_of_loops,
    replay,
    stages_in,
)
from offcut.schedule.apply.covering import find_intrinsic
from offcut.schedule.decisions import Cover
from offcut.schedule.text import lines_of

CONSTANT = (LANE, UNROLL)
"""Units that run a loop only where its extent is a number."""


@dataclass(frozen=True)
class HostFeatures:
    """The constructs that a host can express.

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
class HostProgram:
    """A program that uses only constructs of the host.

    kernel   the microkernel of a name
    refuse   called with a loop and why its unit cannot be said
    """

    program: Program
    kernel: Callable[[str], Microkernel]
    refuse: Callable[..., PartitionError]


def apply_schedule(
    program: Program,
    schedule: Schedule | str,
    features: HostFeatures,
    microkernels: Sequence[Microkernel] = (),
) -> HostProgram:
    """Apply `schedule` to `program`, prove it, and return the result in constructs of the host.

    schedule      its decisions name the stages of `program`, by the arrays that they write
    microkernels  that `cover` may name, beside instructions that were declared

    Raises PartitionError, with the line of the decision, for one that is not legal, or that the host cannot say; ParseError for a
    text that is no schedule.
    """
    if isinstance(schedule, str):
        schedule = Schedule.parse(schedule)
    check_once(schedule)
    for step in flat_steps(schedule):
        because, *help_ = _unsupported_reason(step, features)
        if because:
            raise _unsupported_decision(features, schedule, step, because, *help_)
    result = _apply_decisions(program, schedule, microkernels)
    translation = _HostTranslation(schedule, features, microkernels)
    return HostProgram(translation.program(result), translation.kernel, translation.refuse_loop)


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


def flat_steps(schedule: Schedule) -> Iterator[Step]:
    """Yield the steps of a schedule; a choice is replaced by the decisions of its options."""
    for step in schedule.steps:
        if isinstance(step, Primitive):
            yield from each_decision((step,))
        else:
            yield step


def _apply_decisions(
    program: Program, schedule: Schedule, microkernels: Sequence[Microkernel]
) -> Program:
    """Return `program` after all decisions; `separate` takes conditions out of loops."""
    decisions: list[Step] = []
    for step in (*schedule.steps, None):
        if isinstance(step, Primitive):
            decisions.append(step)
            continue
        if decisions:
            # The steps before are no decisions here: lines are counted in the whole text.
            whole = Schedule(schedule.name, schedule.steps)
            program = _replay_steps(program, whole, tuple(decisions), microkernels)
            decisions = []
        if is_of_loops(step):
            try:
                program = partition(program, target="interpret", copies=step.copies).loops
            except OffcutError as error:
                raise _at_decision_line(error, schedule, step) from error
    return program


def _replay_steps(
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
    except PartitionError as error:
        step = _decision_at(part, error)
        if step is None:
            raise
        raise _at_decision_line(error, whole, step) from error


def _decision_at(part: Schedule, error: PartitionError) -> Step | None:
    """Return the decision at the line of an error; None if the error has no line of a decision."""
    number = error.at.removeprefix("line ").partition(":")[0]
    if not number.isdecimal() or not 2 <= int(number) < len(part.steps) + 2:
        return None
    return part.steps[int(number) - 2]


def _unsupported_reason(step: Step, features: HostFeatures) -> tuple[str, ...]:
    """Return why a host cannot express a decision, then what it could; the reason is empty if it can."""
    units = (*features.units, *HARDWARE)
    of_all = isinstance(step, Primitive) and ANY in stages_in(step)
    if isinstance(step, Bind) and not of_all and step.unit is not None and step.unit not in units:
        help_ = (f"bind {step.stage}.{step.axis} {one}" for one in units[:4])
        return f"{features.host} has no {step.unit} that runs a loop: {', '.join(units)}", *help_
    if is_of_loops(step) or (isinstance(step, Primitive) and not of_all):
        return ("",)
    return (
        f"a target decides so, and {features.host} has none",
        "split, fuse, order, at, stage, inline, rfactor, bind, cover, separate, choose",
    )


def _line(schedule: Schedule, decision: object) -> str:
    """Return the line of a decision, with its number."""
    lines = enumerate(lines_of(schedule), 1)
    return next(f"line {k}: {text.strip()}" for k, (text, one) in lines if one is decision)


def _unsupported_decision(
    features: HostFeatures, schedule: Schedule, step: Step, because: str, *help_: str
) -> PartitionError:
    problem = f"cannot say this {_line(schedule, step).split()[2]}"
    at = _line(schedule, step)
    return PartitionError(features.host, problem, at=at, because=because, help=help_)


def _at_decision_line(error: OffcutError, schedule: Schedule, step: Step) -> PartitionError:
    """Return the error at the line that the decision has in the whole schedule."""
    at = _line(schedule, step)
    return PartitionError(error.op, error.refused, at=at, because=error.because, help=error.help)


@dataclass
class _HostTranslation:
    """The translation of a scheduled program into constructs of a host."""

    schedule: Schedule
    features: HostFeatures
    microkernels: Sequence[Microkernel]

    def program(self, program: Program) -> Program:
        """Return the program in constructs of the host."""
        program = self.with_covers(program)
        program = with_arrays_for_windows(program, self.refuse_window, self.features.numbers)
        program = with_full_tiles(program, self.kernel, self.refuse_cover)
        program = rewrite(program, _lower_statement)
        program = self.with_units(program)
        return with_kernels(program, self.refuse_loop)

    # covers

    def kernel(self, name: str) -> Microkernel:
        """Return the microkernel of a name."""
        microkernel = next((one for one in reversed(self.microkernels) if one.name == name), None)
        return microkernel or find_intrinsic(name, (), "")

    def with_covers(self, program: Program) -> Program:
        """Return `program` with the axes of every cover, and its operands, as the judge finds them."""

        def rule(stmt: Stmt) -> Stmt | None:
            if not isinstance(stmt, Tile) or stmt.cover is None:
                return None
            kernel = self.kernel(stmt.cover.microkernel)
            undecided = {Question.UNIT}
            verdict = cover(stmt, program, kernel, stmt.cover, undecided=undecided)
            if isinstance(verdict, Refusal):
                raise self.refuse_cover(stmt, f"{verdict.question.value}: {verdict}")
            for name, place in kernel.operands.items():
                if place.layout is not None or place.by != "plain":
                    plain = place.by == "plain" and place.layout is not None
                    how = f"as {format_layout(place.layout) if plain else 'a ' + place.by}"
                    raise self.refuse_cover(
                        stmt,
                        f"{kernel.name} takes {name} {how}, and a call of {self.features.host} says strides",
                        "a microkernel whose operands lie at strides",
                    )
            whole = (one for one in verdict.instances if one.start != "reset" or one.match.operands)
            covered = next(whole, verdict.instances[0])
            if covered.around or covered.turns:
                loops = ", ".join(loop.iter for loop in (*covered.around, *covered.turns))
                raise self.refuse_cover(
                    stmt, f"{kernel.name} is called once a tile, and {loops} would repeat it"
                )
            match = covered.match
            axes = tuple((axis, iterator) for axis, iterator in match.axes if iterator is not None)
            reads = tuple((name, load.buffer) for name, load in match.operands)
            result = (kernel.computes.name, covered.store.buffer)
            return replace(stmt, cover=replace(stmt.cover, axes=axes, operands=(*reads, result)))

        return rewrite(program, rule)

    # refusals

    def refuse_cover(self, tile: Tile, because: str, *help_: str) -> PartitionError:
        """Return the error for the cover of a tile."""
        stores = {stmt.buffer for stmt in walk(tile.body) if isinstance(stmt, Store)}
        covers = [s for s in each_decision(self.schedule.steps) if isinstance(s, Cover)]
        kernels = [(step, self.kernel(step.microkernel)) for step in covers]
        steps = [s for s, k in kernels if tile.microkernel in (k.name, k.reset, k.update)]
        mine = [s for s in steps if s.stage in stores or s.stage.rpartition("_")[0] in stores]
        return self.error_at((*steps, *mine), because, *help_)

    def refuse_window(self, window: Alloc, because: str, *help_: str) -> PartitionError:
        """Return the error for a window."""
        steps = [
            step
            for step in each_decision(self.schedule.steps)
            if (isinstance(step, At) and step.stage == window.buffer)
            or (isinstance(step, Staging) and step.name == window.buffer)
        ]
        return self.error_at(steps, because, *help_)

    def refuse_loop(self, loop: For, because: str, *help_: str) -> PartitionError:
        """Return the error for the unit of a loop."""
        binds = [s for s in each_decision(self.schedule.steps) if isinstance(s, Bind)]
        alike = [s for s in binds if s.unit == loop.unit]
        decisions = [s for s in alike if s.axis == loop.iter]
        return self.error_at((*alike[:1], *decisions), because, *help_)

    def error_at(self, steps: Sequence[Step], because: str, *help_: str) -> PartitionError:
        """Return an error at the line of the last of `steps`."""
        if not steps:
            return PartitionError(
                self.features.host, "cannot say this program", because=because, help=help_
            )
        return _unsupported_decision(self.features, self.schedule, steps[-1], because, *help_)

    # units

    def with_units(self, program: Program) -> Program:
        """Return `program` with the units that the host supports; reject a decision if none of its loops keeps its unit."""
        bound_loops: set[tuple[str, str]] = set()
        unbound_loops: dict[tuple[str, str], tuple[For, str]] = {}

        def visit(stmt: Stmt, threads: bool, grid: bool) -> Stmt:
            unit = stmt.unit if isinstance(stmt, For) else None
            inner_flags = threads or unit == THREAD, grid or unit in HARDWARE
            stmt = map_blocks(stmt, lambda body: tuple(visit(one, *inner_flags) for one in body))
            if not isinstance(stmt, For) or unit is None:
                return stmt
            because = self.unsupported_loop_reason(stmt, threads, grid)
            if because:
                unbound_loops.setdefault((unit, stmt.iter), (stmt, because))
                return replace(stmt, unit=None)
            bound_loops.add((unit, stmt.iter))
            return stmt

        body = tuple(visit(stmt, False, False) for stmt in program.body)
        program = replace(program, body=body)
        for (unit, name), (loop, because) in unbound_loops.items():
            if (unit, name) not in bound_loops:
                raise self.refuse_loop(loop, because)
        return program

    def unsupported_loop_reason(self, loop: For, threads: bool, grid: bool) -> str:
        """Return why a unit cannot run this loop; an empty text if it can."""
        extent = _extent(loop)
        if loop.unit in CONSTANT and extent is None:
            return "it runs a loop whose extent is a number, and none of the pieces of this loop has one"
        if loop.unit == THREAD and grid:
            return "threads of the processor run no loop inside of a grid"
        if loop.unit == THREAD and threads:
            return "another loop around is run by threads already"
        if loop.unit == LANE and not self.features.partial:
            for stmt in walk(loop.body):
                if isinstance(stmt, Store) and not _moves(stmt, loop):
                    return f"its iterations write one element of {stmt.buffer}"
        return ""


def _moves(store: Store, loop: For) -> bool:
    return any(loop.iter in variables(part) for part in store.index)


def _extent(loop: For) -> int | None:
    return ix.literal_value(ix.sub(loop.hi, loop.lo))


def _lower_statement(stmt: Stmt) -> Stmt | tuple[Stmt, ...] | None:
    """Return loops for a tile without a cover, conditions for a choice, None for a statement that stays."""
    match stmt:
        case Tile(cover=None):
            return rewrite_body(tile_to_loops(stmt), _lower_statement)
        case If(condition, (), other):
            return (If(Logic("not", (condition,)), other),) if other else ()
        case For(_, _, _, ()) | Sync():
            return ()
        case For(name, lo, hi, body) if lo != ix.const(
            0
        ):  # from 0 on, so that windows are indexed plainly
            shifted_body = substitute_coordinates(body, {name: ix.add(lo, Var(name))})
            return replace(stmt, lo=ix.const(0), hi=ix.sub(hi, lo), body=shifted_body)
        case Choose(options):
            return _cheapest([(option.cost, option.body) for option in options])
    return None


def _cheapest(options: Sequence[tuple[Expr, tuple[Stmt, ...]]]) -> tuple[Stmt, ...]:
    """Return the first option where it costs no more than any other, else one of these."""
    (cost, body), *rest = options
    if not rest:
        return body
    comparisons = [Compare("<=", cost, other) for other, _ in rest]
    condition = comparisons[0] if len(comparisons) == 1 else Logic("and", tuple(comparisons))
    return (If(condition, body, _cheapest(rest)),)
