"""The policy of the CPU: a program in, its plans out, in order of preference; the first that is proved is taken.

    bind -> raise -> cut -> cover -> lanes of rows -> threads -> prove        a computation
    bind -> keep inside -> separate -> cut nests -> cover -> vectorize -> threads -> prove    any other program

A computation is a sequence of whole arrays, each from those before. It runs in its own loops where
that separates conditions that no microkernel leaves behind. A nest of any other program may be one. Primitives of a schedule by hand come before
all of this: what is planned is the program that they make.

Where bounded work does not prove a plan, these come behind it, each with a line that says what the one before lacks:

    on one thread       then its loops are shared as far as that is proved
    with padding        products that padding makes zero stay
    row by row          loops around sums run one iteration after the other, not block by block
    in its own loops    a computation is not cut; a program is not cut in its nests
    as it stands        no lanes

A schedule, or a strategy, decides: of these, it leaves what it does not say.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from offcut import debug
from offcut.backends.cpu.machine.isa import Host
from offcut.backends.cpu.microkernels.available import families
from offcut.backends.cpu.planning.competing_plans import (
    competing_schedules,
    lines_below,
    plan_competing,
)
from offcut.backends.cpu.planning.cpu_plan import CpuPlan
from offcut.backends.cpu.planning.iteration_blocks import unblock_shared_loops
from offcut.backends.cpu.planning.loop_plan import NO_NEST, plan_cut_loops, plan_loops
from offcut.backends.cpu.planning.nest_plan import (
    computation_of,
    default_separation,
    depends_on_lanes,
    depends_on_loops,
    nest_schedule,
    plan_nests,
)
from offcut.backends.cpu.planning.schedule_words import check_machine_words, with_thread_binds
from offcut.backends.cpu.planning.unit_binding import with_threads
from offcut.backends.decide import Plans, attempt, changed_plans
from offcut.backends.options import DEFAULT, Options, Strategies
from offcut.backends.verify import Unproved, verify_pass
from offcut.core.expr import Select, reads_memory
from offcut.core.program import Program
from offcut.core.traversal import canonicalize
from offcut.costmodel import tile_price
from offcut.describe.computation import Computation, Stage, source
from offcut.errors import PartitionError
from offcut.partition import Users
from offcut.proof.normal_forms.zero_terms import conditions
from offcut.schedule import (
    ANY_LANES,
    ANY_PRODUCTS,
    ANY_TREE,
    Bind,
    Cover,
    Order,
    Primitive,
    Schedule,
    Separate,
    Split,
    Step,
    Together,
    check_once,
    create_schedule,
    decisions_about,
    each_decision,
    hand_steps,
    is_of_loops,
    parts_of,
    replay,
    with_source_line,
)
from offcut.schedule.text import format_decision


def plans(program: Program, users: Users, host: Host, options: Options = DEFAULT) -> Plans[CpuPlan]:
    """Return the plans of `program` as the host runs it, in order of preference, not proved yet.

    users  what the user calls what is in it

    Raises PartitionError where it leaves an array, a strategy or a decision is not legal, or isl does
    not say in bounded work.
    """
    schedule = options.schedule
    by_hand = () if schedule is None or competing_schedules(schedule) else hand_steps(schedule)
    if schedule is None or not by_hand:
        return changed_plans(_plans_in_order(program, users, host, options), lambda plan: plan)
    with debug.timed("primitives"):
        verify_pass(program, create_schedule(program).source, options.reassociate)
        own = [family.microkernel for family in families(host)]
        first = replace(schedule, steps=by_hand)
        cost = tile_price(own[0], host.machine)
        program_by_hand = replay(
            program, first, options.microkernels, options.reassociate, own, cost, users
        )[1]
        program_by_hand = canonicalize(program_by_hand)
    debug.passed("primitives", program_by_hand, program)
    words = check_machine_words(program_by_hand, host.machine, "compile")
    rest = schedule.steps[len(by_hand) :]
    undecided = replace(options, schedule=replace(schedule, steps=rest) if rest else None)

    def after_hand(plan: CpuPlan) -> CpuPlan:
        """Return a plan of the program that the primitives make as a plan of the program before them."""
        full, unnamed = (
            replace(schedule, steps=(*by_hand, *rest.steps))
            for rest in (plan.schedule, plan.unnamed)
        )
        notes = (*words, *_recut_binds(by_hand, plan), *plan.notes)
        return replace(plan, schedule=full, unnamed=unnamed, by_hand=program_by_hand, notes=notes)

    rest_plans = _plans_in_order(program_by_hand, users, host, undecided, by_hand)
    below = _with_line_offset(rest_plans, len(str(first).splitlines()) - 1)
    return changed_plans(_with_order_at_fault(below, schedule, by_hand), after_hand)


def _recut_binds(by_hand: Sequence[Primitive], plan: CpuPlan) -> Iterator[str]:
    """Yield a note for each loop that primitives bind to a unit, and whose stage the policy cuts anew as a whole array."""
    covers = (step for step in each_decision(plan.schedule.steps) if isinstance(step, Cover))
    stages = {step.stage for step in covers}
    for step in by_hand:
        if not isinstance(step, Bind) or step.unit is None:
            continue
        if plan.applied is not None or step.stage in stages:
            yield f"{format_decision(step)}: its stage is cut anew; separate 1 behind it keeps its loops"


def _with_line_offset(plans: Plans[CpuPlan], lines: int) -> Plans[CpuPlan]:
    """Yield plans of a schedule that stands below `lines` lines of another one; errors count these lines."""
    with lines_below(lines):
        yield from plans


def _with_order_at_fault(
    plans: Plans[CpuPlan], schedule: Schedule, by_hand: Sequence[Primitive]
) -> Plans[CpuPlan]:
    """Yield plans of a schedule that begins with `by_hand`. What is covered in no nest is refused by the line there that orders its loops."""
    try:
        yield from plans
    except PartitionError as refused:
        orders = (step for step in by_hand if isinstance(step, Order))
        order = next((s for s in orders if refused.refused == f"cannot cover {s.stage}"), None)
        if order is None or refused.because != NO_NEST:
            raise
        rest = schedule.steps[len(by_hand) :]
        axes = {step.axis for step in rest if isinstance(step, Split)}
        axes.update(*(step.loops for step in rest if isinstance(step, Order)))
        terms = [name for name in order.loops if name not in axes]
        terms_alone = (" ".join(("order", order.stage, *terms)),) if terms else ()
        with with_source_line(schedule, order):
            raise PartitionError(
                "schedule",
                f"cannot order {order.stage} by {', '.join(order.loops)}",
                because="the nest that is covered has one order of the terms of its sum, and one of its loops; this is neither, and "
                "applied by hand it leaves no nest",
                help=(*terms_alone, "without this line"),
            ) from refused


def _plans_in_order(
    program: Program,
    users: Users,
    host: Host,
    options: Options,
    by_hand: tuple[Primitive, ...] = (),
) -> Plans[CpuPlan]:
    """Yield the plans of the program that primitives by hand make, in order of preference."""
    if options.schedule is not None:
        check_once(options.schedule)
    schedule = options.schedule
    if schedule is None or parts_of(schedule) or competing_schedules(schedule):
        computation, why = computation_of(program, users, options.reassociate)
    else:
        computation, why = None, ""
    preferences = _Preferences(program, users, host, options, computation, why, by_hand)
    yield from preferences.plans()


@dataclass(frozen=True)
class _Preferences:
    """The plans that the policy prefers for a program.

    computation  the program as whole arrays; None if it is not a computation, or is not to be read as one
    why          the reason that it is none, as text
    by_hand      the primitives that made the program
    own_loops    the decisions about the program in its own loops, without a schedule
    competes     whether schedules of the whole computation may compete by size
    notes        of each plan: how it differs from those that are preferred to it
    """

    program: Program
    users: Users
    host: Host
    options: Options
    computation: Computation | None
    why: str
    by_hand: tuple[Primitive, ...] = ()
    own_loops: tuple[Step, ...] = (ANY_PRODUCTS, ANY_TREE, ANY_LANES)
    competes: bool = True
    notes: tuple[str, ...] = ()

    @property
    def decides(self) -> bool:
        """Return whether the policy decides all: no schedule and no strategy is given."""
        return self.options.schedule is None and self.options.strategy == "auto"

    def plans(self) -> Plans[CpuPlan]:
        """Yield the preferred plan, then plans that are easier to prove.

        Raises PartitionError for a plan that computes something else: what applied it is wrong.
        """
        first = attempt(self.first)
        if isinstance(first, PartitionError):
            whole = None if self.decides else self.with_whole_loops(first)
            if whole is None:
                raise first
            if self.options.schedule is None:
                cut = attempt(partial(self.cut_like, whole))
                if isinstance(cut, CpuPlan):
                    unproved = yield cut
                    _check_undecided(unproved)
            yield from whole.plans()
            return
        unproved = yield self.with_notes(first)
        if self.decides and competing_schedules(first.unnamed):
            _check_undecided(unproved)
            yield from self.without_competition(f"one schedule: {unproved.why}").plans()
            return
        if self.decides and first.applied is not None and unproved.step == 0:
            # It is not shown that the computation is the program: no cut of it will be proved.
            yield from self.uncut(unproved.why).plans()
            return
        _check_undecided(unproved)
        if ANY_PRODUCTS in first.unnamed.steps:
            yield from self.without_products(f"no nest is cut: {unproved.why}").plans()
            return
        if self.host.threads > 1 and self.options.schedule is None:
            # Threads never decide how an instance is computed; so a failed proof about their loops must not decide it either.
            on_one_thread = replace(self, host=replace(self.host, threads=1))
            yield from changed_plans(on_one_thread.plans(), partial(with_threads, host=self.host))
            return
        preferences = self
        if first.applied is not None and conditions(self.program):
            preferences = self.with_padding(f"products with padding stay: {unproved.why}")
            padded = attempt(preferences.first)
            if isinstance(padded, CpuPlan):
                first = padded
                unproved = yield preferences.with_notes(padded)
                _check_undecided(unproved)
        why = unproved.why
        by_row = unblock_shared_loops(first.unnamed)
        if self.options.schedule is None and by_row != first.unnamed:
            plan = attempt(partial(preferences.in_nests, by_row))
            if isinstance(plan, CpuPlan):
                unproved = yield preferences.with_notes(plan, f"no blocks of shared loops: {why}")
                _check_undecided(unproved)
        if not self.decides:
            whole = self.with_whole_loops(unproved.error)
            if whole is not None:
                yield from whole.plans()
            return
        if first.applied is not None:
            yield from preferences.uncut(why).plans()
            return
        as_it_stands = plan_loops(
            self.program, self.host, self.options, Schedule(self.program.name, ()), ""
        )
        note = "its loops stay as they are: isl takes too long to tell that they may run as lanes"
        unproved = yield self.with_notes(as_it_stands, note)
        raise unproved.error

    def uncut(self, why: str) -> _Preferences:
        """Return the preferences for the program in its own loops."""
        return replace(self, computation=None, why=why)

    def with_whole_loops(self, error: PartitionError) -> _Preferences | None:
        """Return the preferences for the program whose loops over terms do not end at elements of arrays: conditions stay inside.

        error  of the loops that end there

        Return None if no loop does.
        """
        if self.computation is None:
            return None
        groups = tuple(tuple(map(_without_end, group)) for group in self.computation.groups)
        if groups == self.computation.groups:
            return None
        note = f"loops do not end at elements of arrays: {error.because}"
        computation = replace(self.computation, groups=groups)
        return replace(self, computation=computation, notes=(*self.notes, note))

    def cut_like(self, whole: _Preferences) -> CpuPlan:
        """Return the plan of the schedule that is preferred for whole loops, whose text says nothing of where they end: it is read so again.

        Raises PartitionError where that does not apply to loops that end at elements of arrays.
        """
        return whole.with_notes(self.in_nests(whole.nests()))

    def without_competition(self, *notes: str) -> _Preferences:
        """Return the preferences for the program by one schedule."""
        return replace(self, competes=False, notes=(*self.notes, *notes))

    def without_products(self, note: str) -> _Preferences:
        """Return the preferences for the program in its own loops, whose nests are not cut."""
        loops = tuple(step for step in self.own_loops if step != ANY_PRODUCTS)
        schedule = self.options.schedule
        if schedule is not None:
            steps = tuple(step for step in schedule.steps if step != ANY_PRODUCTS)
            schedule = replace(schedule, steps=steps)
        options = replace(self.options, schedule=schedule)
        return replace(self, options=options, own_loops=loops, notes=(*self.notes, note))

    def with_padding(self, note: str) -> _Preferences:
        """Return the preferences for the program with all products that padding makes zero."""
        options = replace(self.options, keep_padding_terms=True)
        return replace(self, options=options, notes=(*self.notes, note))

    def with_notes(self, plan: CpuPlan, *notes: str) -> CpuPlan:
        """Return a plan with notes on how it differs from those that are preferred to it."""
        return replace(plan, notes=(*plan.notes, *self.notes, *notes))

    def first(self) -> CpuPlan:
        """Return the preferred plan.

        Raises PartitionError for a schedule or a strategy that does not apply.
        """
        options = self.options
        if options.schedule is not None:
            return self.program_of_schedule(options.schedule)
        if self.computation is None:
            if options.strategy == "auto":
                return self.in_loops()
            raise PartitionError(
                "compile",
                f"cannot take strategy={_format_strategies(options.strategy)} with this program",
                because=f"{self.why}, so it runs in the loops that it has",
                help=("oc.compile(oc.partition(program, tile={…}, tail={…}).loops)",),
            )
        if options.strategy != "auto":
            return self.in_nests(self.nests())
        schedule = attempt(self.nests)
        cut = (
            attempt(partial(self.in_nests, schedule))
            if isinstance(schedule, Schedule)
            else schedule
        )
        if isinstance(schedule, Schedule) and competing_schedules(schedule):
            if isinstance(cut, CpuPlan) and not _keeps_conditions(cut):
                return cut
            return self.without_competition().first()
        if isinstance(cut, PartitionError):  # isl does not say in bounded work, for one
            return self.uncut(f"{cut.refused}: {cut.because}").in_loops()
        if not _keeps_conditions(cut):
            return cut
        if not depends_on_lanes(cut.program):
            separate = self.with_separate_conditions(self.computation, cut.unnamed)
            in_separate_nests = attempt(partial(self.in_nests, separate))
            if isinstance(in_separate_nests, CpuPlan) and not depends_on_loops(
                in_separate_nests.program
            ):
                return in_separate_nests
        return self.uncut("its conditions are moved out of its loops").in_loops()

    def program_of_schedule(self, schedule: Schedule) -> CpuPlan:
        """Return the program as a schedule says: as whole arrays where it says so of each; else its loops as they stand, some of whose
        nests may be cut behind `separate`.

        Raises PartitionError, with the line, for a decision that is not legal.
        """
        competes = self.computation is not None and competing_schedules(schedule)
        if not competes and not parts_of(schedule):
            return plan_cut_loops(self.program, self.users, self.host, self.options, schedule)
        if self.computation is None:
            return plan_loops(self.program, self.host, self.options, schedule, self.why)
        if competes:
            return self.in_nests(schedule)
        if is_of_loops(schedule.steps[0]) and decisions_about(schedule, self.computation) is None:
            why = "its schedule cuts some of its nests"
            return plan_loops(self.program, self.host, self.options, schedule, why)
        return self.in_nests(schedule)

    def nests(self) -> Schedule:
        """Return the schedule of nests that the policy prefers; behind primitives that would be read as decisions about these,
        `separate` says where it begins.

        Raises PartitionError for an axis that there is not, or where isl does not answer in bounded work.
        """
        assert self.computation is not None
        competes = self.competes and self.decides and not self.by_hand
        competes = competes and not self.options.keep_pruned
        schedule = nest_schedule(self.computation, self.host, self.options, competes)
        if competing_schedules(schedule):
            return schedule
        whole = replace(schedule, steps=(*self.by_hand, *schedule.steps))
        if hand_steps(whole) == self.by_hand:
            return schedule
        return replace(schedule, steps=(Separate(1), *schedule.steps))

    def in_nests(self, schedule: Schedule) -> CpuPlan:
        """Return the computation in the nests of a schedule, or of several that compete."""
        assert self.computation is not None
        if competing_schedules(schedule):
            return plan_competing(self.computation, self.host, self.options, schedule)
        return plan_nests(self.computation, self.host, self.options, schedule)

    def in_loops(self) -> CpuPlan:
        """Return the program in its own loops, conditions out of them."""
        steps = (*default_separation(self.program, self.host.machine), *self.own_loops)
        schedule = with_thread_binds(Schedule(self.program.name, steps), self.host)
        return plan_loops(self.program, self.host, self.options, schedule, self.why)

    def with_separate_conditions(self, computation: Computation, schedule: Schedule) -> Schedule:
        """Return a schedule of a computation that also moves conditions out of the loops of its nests."""
        separate = default_separation(source(computation), self.host.machine)
        if is_of_loops(schedule.steps[0]):
            return replace(schedule, steps=(*(separate or schedule.steps[:1]), *schedule.steps[1:]))
        nests = [step for step in schedule.steps if not isinstance(step, Bind)]
        marks = [step for step in schedule.steps if isinstance(step, Bind)]
        return replace(schedule, steps=(*nests, *separate, *marks))


def _check_undecided(unproved: Unproved) -> None:
    """Raise the error of a plan that computes something else: no other plan takes its place."""
    if not unproved.is_undecided:
        raise unproved.error


def _keeps_conditions(plan: CpuPlan) -> bool:
    """Return whether a plan in nests leaves conditions in loops that separation would move out of them."""
    assert plan.applied is not None
    cut = plan.applied.partition
    has_microkernel = any(piece.microkernel is not None for piece in cut.pieces)
    shares = any(isinstance(part, Together) for part in parts_of(plan.schedule))
    return not has_microkernel and not shares and depends_on_loops(cut.source)


def _format_strategies(strategy: Strategies) -> str:
    """Return strategies as the text of the argument of ``strategy=``."""
    if isinstance(strategy, tuple):
        return repr({axis: str(name) for axis, name in strategy})
    return repr(str(strategy))


def _without_end(stage: Stage) -> Stage:
    """Return a stage whose condition stays inside of its loop if it reads elements of arrays."""
    term = stage.term
    is_read = stage.narrowed and isinstance(term, Select) and reads_memory(term.condition)
    return replace(stage, narrowed=False) if is_read else stage
