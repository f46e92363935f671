"""Plans a program in its own loops, if it is not a computation; a schedule without nests may cut these loops first.

A refusal names the line of the cut that it is about.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from offcut import debug
from offcut.backends.bounds_guards import insert_bounds_guards
from offcut.backends.cpu.lowering.call_layout import MAX_VARYING_ELEMENTS, windows_of
from offcut.backends.cpu.machine.isa import Host
from offcut.backends.cpu.microkernels.available import families
from offcut.backends.cpu.planning.cover_report import check_covers, report_covers, vector_tile_notes
from offcut.backends.cpu.planning.cpu_plan import CpuPlan, seconds_of_program
from offcut.backends.cpu.planning.embedded_nests import cut_nests, has_product
from offcut.backends.cpu.planning.nest_plan import (
    computation_of,
    is_cut,
    nest_schedule,
    plan_nests,
    reads_bounds,
    separate_conditions,
)
from offcut.backends.cpu.planning.schedule_words import with_leading_separate
from offcut.backends.cpu.planning.unit_binding import bind_units
from offcut.backends.decide import attempt
from offcut.backends.options import Options
from offcut.core.analysis import analysis
from offcut.core.expr import Binary
from offcut.core.program import THREAD, Alloc, Program, Store, walk
from offcut.core.text.layouts import format_layout
from offcut.core.text.printer import format_head
from offcut.core.traversal import parallel_loop_paths
from offcut.costmodel import tile_price
from offcut.describe.computation import Computation
from offcut.errors import PartitionError
from offcut.partition import (
    LADDER,
    LoopCut,
    Strategy,
    Users,
    check_marks,
    check_tiles,
    check_windows,
    checked_tiles,
    without_covers,
)
from offcut.polyhedral import request_budget
from offcut.schedule import (
    ANY,
    ANY_PRODUCTS,
    VECTORS,
    Bind,
    Cover,
    Primitive,
    Schedule,
    Split,
    cut_program,
    decisions_about,
    each_decision,
    is_of_loops,
    loop_cuts,
    parts_of,
    split_names,
    stages_in,
    unit_splits,
    with_source_line,
)


def plan_loops(
    program: Program, host: Host, options: Options, schedule: Schedule, why: str
) -> CpuPlan:
    """Return the plan of a program in its own loops, not proved yet: conditions out of loops, nests cut, units bound.

    schedule  says which of these
    why       the reason that the program is not cut as a computation, for a note

    Raises PartitionError for a mark, a tile, a window or a cover that is not legal.
    """
    with request_budget("compile", f"cannot compile {program.name}"):
        marked_loops = parallel_loop_paths(program).values()
        if host.threads > 1 and any(path.unit == THREAD for path in marked_loops):
            check_marks(program, {})
        check_tiles(program)
        check_windows(program)
        _check_window_layouts(program)
        with debug.timed("bounds"):
            run = guarded = insert_bounds_guards(program)
        debug.passed("bounds", guarded, program)
        notes: tuple[str, ...] = ()
        if not is_cut(program):
            run, notes = separate_conditions(run, schedule)
        debug.passed("separate", run, guarded)
        uncut, named_schedule = run, schedule
        if ANY_PRODUCTS in schedule.steps or parts_of(schedule):
            nests = with_products(run, host, options, schedule)
            run, named_schedule = nests.program, nests.schedule
            if run is uncut:
                schedule = named_schedule
            else:
                debug.passed("products", run, uncut)
        if not is_cut(program):
            notes = (*_uncomputed_note(run, why), *notes)
        with debug.timed("covers"):
            covers = report_covers(run, host, options.reassociate)
            if is_cut(program):
                check_covers(run, covers, host)
            plain = tuple(dict.fromkeys(vector_tile_notes(run, covers)))
            remaining = without_covers(run, covers.refused)
        debug.passed("covers", remaining.program, run)
        has_tiles_beside = run is not uncut
        units = bind_units(
            remaining.program, named_schedule, host, options.reassociate, has_tiles_beside
        )
        return CpuPlan(
            units.shares.program,
            schedule=with_leading_separate(units.schedule),
            unnamed=schedule,
            notes=(*notes, *units.notes, *units.absent, *remaining.notes, *plain),
            seconds=seconds_of_program(units.shares.program, host),
            shares=units.shares,
            through=(program, guarded, *((uncut,) if run is not uncut else ()), *units.divided),
        )


NO_NEST = "no nest that computes it is a sequence of whole arrays, each from those before"
"""The reason that a stage is not covered: its loops are those of no nest."""


@dataclass(frozen=True)
class CutNests:
    """A program whose nests of products are cut, and its schedule with the decisions that cut them."""

    program: Program
    schedule: Schedule


def with_products(program: Program, host: Host, options: Options, schedule: Schedule) -> CutNests:
    """Return `program` with the nests cut that are computations of their own: as `schedule` says, and where it leaves that
    open, as the policy does where microkernels run them.

    Raises PartitionError, with the line, for decisions about a nest that is none, or may not be cut so.
    """
    nests, nest_programs = _Nests(host, options, schedule), tuple[Program, ...]()
    if not is_cut(program) and not reads_bounds(program) and has_product(program.body):
        with debug.timed("products"):
            program, nest_programs = cut_nests(program, nests.cut)
    return CutNests(program, nests.with_decisions(nest_programs))


class _Nests:
    """Cuts nests by the decisions of a schedule about them; by the policy, if the schedule leaves nests open."""

    def __init__(self, host: Host, options: Options, schedule: Schedule) -> None:
        self.host = replace(host, threads=1)
        self.options = replace(options, strategy="auto", schedule=None)
        self.schedule, self.is_open = schedule, ANY_PRODUCTS in schedule.steps
        self.decided: dict[int, tuple[Program, Computation, Schedule]] = {}
        self.refused: dict[str, PartitionError] = {}

    def cut(self, nest: Program) -> Program | None:
        """Return a nest cut for microkernels; None if it stays as it is."""
        users = Users(
            tuple((size.name, size.name) for size in nest.sizes),
            tuple((buffer.name, buffer.name) for buffer in nest.buffers),
        )
        computation, _ = computation_of(nest, users, self.options.reassociate)
        if computation is None:
            return None
        decisions = decisions_about(self.schedule, computation)
        if decisions is None and not self.is_open:
            return None
        plan = attempt(partial(self.plan, computation, decisions))
        if isinstance(plan, PartitionError):
            stages = (stage for group in computation.groups for stage in group)
            self.refused |= {stage.buffer: plan for stage in stages}
            return None
        assert plan.applied is not None
        pieces = plan.applied.partition.pieces
        if decisions is None and all(piece.microkernel is None for piece in pieces):
            return None
        self.decided[id(plan.program)] = plan.program, computation, plan.unnamed
        return plan.program

    def plan(self, computation: Computation, decisions: Schedule | None) -> CpuPlan:
        """Return the plan of a nest, by `decisions`; None: by the policy, whose binds are left out: units are of the whole program."""
        if decisions is None:
            decisions = nest_schedule(computation, self.host, self.options)
            steps = (step for step in decisions.steps if not isinstance(step, Bind))
            decisions = replace(decisions, steps=tuple(steps))
        return plan_nests(computation, self.host, self.options, decisions, is_whole=False)

    def with_decisions(self, nest_programs: Sequence[Program]) -> Schedule:
        """Return the schedule with the decisions for the nests that it left open; as it is, if these would fit several nests.

        nest_programs  the nests that are cut

        Raises PartitionError, with the line, for decisions about a nest that is not.
        """
        nests = [self.decided[id(program)][1:] for program in nest_programs]
        self.check(frozenset[str]().union(*(_covered_stages(decisions) for _, decisions in nests)))
        if not self.is_open:
            return self.schedule
        steps = dict.fromkeys(step for _, decisions in nests for step in decisions.steps)
        new = [step for step in steps if step not in self.schedule.steps]
        at = self.schedule.steps.index(ANY_PRODUCTS)
        before, behind = self.schedule.steps[:at], self.schedule.steps[at + 1 :]
        result = replace(self.schedule, steps=(*before, *new, *behind))
        are_unambiguous = all(
            decisions_about(result, computation) == decisions for computation, decisions in nests
        )
        return result if are_unambiguous else self.schedule

    def check(self, cut: frozenset[str]) -> None:
        """Check that each cover of the schedule is of a nest that is cut.

        cut  the stages that are covered in these

        Raises PartitionError, with the line.
        """
        for step in each_decision(self.schedule.steps):
            if not isinstance(step, Cover) or step == ANY_PRODUCTS or step.stage in cut:
                continue
            help: tuple[str, ...] = ("separate, split and bind, for loops as they stand",)
            if step.microkernel == VECTORS and not step.axis:
                at_loop = f"cover {step.stage} at i {VECTORS}, i the outermost of its loops that are a tile"
                help = (at_loop, *help)
            with with_source_line(self.schedule, step):
                raise self.refused.get(step.stage) or PartitionError(
                    "schedule",
                    f"cannot cover {step.stage}",
                    because=NO_NEST,
                    help=help,
                )


def _covered_stages(schedule: Schedule) -> frozenset[str]:
    """Return the stages that a schedule covers."""
    return frozenset(s.stage for s in each_decision(schedule.steps) if isinstance(s, Cover))


def _uncomputed_note(program: Program, why: str) -> tuple[str, ...]:
    """Return a note that sums of products run by no microkernel, or that nests are cut one by one, with the reason why the program is not cut
    as a computation; none if it has no such sum.
    """
    if is_cut(program):
        return (f"nests are cut one by one: {why}",) if why else ()
    products = any(
        isinstance(stmt, Store) and stmt.reduce == "sum" and isinstance(stmt.value, Binary)
        for stmt in walk(program.body)
    )
    return (f"no sum runs by a microkernel: {why}",) if products else ()


def _check_window_layouts(program: Program) -> None:
    """Check that each window with a layout has memory of its own: it stands outside of tiles, and its extents are of sizes alone.

    Raises PartitionError, with the window.
    """
    windows = windows_of(program)
    for alloc in analysis(program).of(Alloc):
        if alloc.layout is not None and alloc.buffer not in windows:
            raise PartitionError(
                "compile",
                f"cannot lay the window of {alloc.buffer} out in {format_layout(alloc.layout)}",
                at=format_head(alloc),
                because="its extents move with a loop, or it stands in a tile, and so it lies in the whole array",
                help=(
                    f"local {alloc.buffer} with the layout",
                    f"a window of extents that sizes give, or of at most {MAX_VARYING_ELEMENTS} elements along axes that move",
                ),
            )


def plan_cut_loops(
    program: Program, users: Users, host: Host, options: Options, schedule: Schedule
) -> CpuPlan:
    """Return a program in its own loops, cut as a schedule without nests says, not proved yet.

    Raises PartitionError, with the line, for a decision that is not legal.
    """
    check_loops(schedule)
    loops, notes = cut_loops(program, users, host, schedule)
    # The user did not ask for the covers that cutting adds: one that cannot run is dropped, not an error.
    runnable = without_covers(loops, report_covers(loops, host, options.reassociate).refused)
    why = "no nest of its schedule covers it"
    plan = plan_loops(runnable.program, host, options, schedule, why)
    return replace(plan, notes=(*notes, *runnable.notes, *plan.notes))


def check_loops(schedule: Schedule) -> None:
    """Check that decisions behind those of a target are splits or binds of its loops.

    Raises PartitionError, with the line.
    """
    splits = set(map(id, (*loop_cuts(schedule).values(), *unit_splits(schedule))))
    for step in schedule.steps:
        if id(step) in splits or not isinstance(step, Primitive) or ANY in stages_in(step):
            continue
        if isinstance(step, Bind):
            continue
        with with_source_line(schedule, step):
            raise PartitionError(
                "schedule",
                "cannot apply a decision here",
                because="what a target decides stands before it, about loops that are made first",
                help=("decisions by hand come first", "split C.i cut 8, behind separate"),
            )


def cut_loops(
    program: Program, users: Users, host: Host, schedule: Schedule
) -> tuple[Program, tuple[str, ...]]:
    """Return a program with its loops cut as they stand, where a schedule says so, and what became of which loop."""
    cuts = loop_cuts(schedule)
    if not cuts:
        return program, ()
    kernels = [family.microkernel for family in families(host)]
    price = tile_price(kernels[0], host.machine)
    copies = next((step.copies for step in schedule.steps if is_of_loops(step)), 1)
    tiles: dict[str, LoopCut] = {}
    for axis, step in cuts.items():
        with with_source_line(schedule, step):
            sizes = tuple(level.tile for level in step.levels)
            tiles[axis] = LoopCut(checked_tiles(axis, sizes), _strategy(step))
    by_cycles = sorted(kernels, key=lambda kernel: kernel.cycles)
    try:
        with request_budget("compile", f"cannot cut {program.name} so"):
            partition = cut_program(program, tiles, by_cycles, price, users, copies)
    except PartitionError as refused:
        names = refused.at.replace(",", " ").split()
        axes = (name for name in cuts if name in names or name.rpartition(".")[2] in names)
        axis = next(axes, next(iter(cuts)))
        with with_source_line(schedule, cuts[axis]):
            raise refused
    return partition.loops, partition.notes


def _strategy(step: Split) -> Strategy:
    """Return the strategy of the last tile of a loop.

    Raises PartitionError for levels that only the loops of a nest may have.
    """
    *outer, last = step.levels
    plain = all(level.by is None and level.room is None for level in step.levels)
    plain = plain and all(level.heights is None for level in outer)
    plain = plain and (last.heights is None or last.tail == LADDER)
    chunk_like = plain and last.tail is None and not outer
    if not plain or last.tail is None or any(level.tail not in (None, LADDER) for level in outer):
        raise PartitionError(
            "schedule",
            f"cannot split {step.axis} so",
            because="the last level of a loop as it stands says what its tail does, sizes are of a ladder's last level, and no tile depends on another",
            help=(
                f"split {step.axis} ladder 64 then balance 8 as {' '.join(split_names(step.axis, 2))}",
                *((f"bind {step.stage}.{step.names[0]} {THREAD}",) if chunk_like else ()),
            ),
        )
    return last.tail.with_heights(last.heights)
