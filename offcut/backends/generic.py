"""The policy of a target that says nothing of one: what its microkernels compute is cut into their tiles, staged and covered.

From declarations alone: a microkernel says how large its tiles are, and in which memory each operand lies. Of a sum of products
on a unit of 4 by 4 whose operands lie in a scratchpad ``pad``, these are the decisions::

    stage read A for C as A_in in pad
    stage read W for C as W_in in pad
    split C.i ladder 4 as i_tile i_in
    split C.j ladder 4 as j_tile j_in
    order C i_tile j_tile i_in j_in k
    at A_in C.i_tile
    at W_in C.j_tile
    cover C at i_in unit

A result that lies in a memory of its own is staged (``stage write``), and copied out tile by tile. Stages that no microkernel
computes stay as they are. A strategy that the user asks for stands in the place of `ladder`, and `space` holds other tiles and strategies.

Where a target has a price, tiles of several sizes compete (`Plans.tilings`): the few are kept that are worth their proofs
(`costmodel.select_options`), as options of one ``choose`` whose costs are formulas in the sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial, reduce
from typing import TYPE_CHECKING, ClassVar, Self

from offcut.backends import decide
from offcut.backends.choices import Draft, Price, competing, with_priced_options
from offcut.backends.compile_request import CompileRequest
from offcut.backends.covers import (
    Covered,
    covered_stages,
    index_dependences,
    is_staged,
    memory_of,
    staged_operands,
)
from offcut.backends.options import (
    Options,
    Strategies,
    TargetPlan,
    format_strategy,
    no_schedule_error,
)
from offcut.backends.raising import raise_to_computation, unfuse_stages
from offcut.backends.verify import Unproved, unproved_step
from offcut.core.analysis import analysis
from offcut.core.expr import variables
from offcut.core.program import Program, Tile
from offcut.describe.computation import Computation
from offcut.describe.microkernel import Microkernel
from offcut.errors import PartitionError
from offcut.partition import (
    GUARD,
    LADDER,
    MASK,
    PAD,
    STRATEGIES,
    LoopCut,
    Strategy,
    Users,
    axis_named,
    rename_for_user,
)
from offcut.partition.legality import check_few, count_tiles
from offcut.polyhedral.isl_budget import try_isl
from offcut.schedule import Primitive, Schedule, Staging, create_schedule, transform_stages
from offcut.schedule.decisions import At, Choose, Cover, Level, Order, Split
from offcut.search import ScheduleSpace
from offcut.search.schedule_space import Point, product_space

if TYPE_CHECKING:
    from offcut.backends.planner import Planner


PREFERRED = (LADDER, PAD, MASK, GUARD)
"""Tails of the default policy: of heights that microkernels may have, else whole tiles, else lanes that are off, else as high as is left."""


@dataclass(frozen=True)
class Plans:
    """The plans of a computation, by the decisions for each axis that tiles of a microkernel cut.

    covered  the stages that a microkernel computes
    first    decisions before all others: what a product computes of an operand lies in an array of its own
    source   the computation before these
    tails    strategies of the default policy, in order of preference
    alone    whether a computation without such a stage has plans, too
    narrows  whether terms under a condition are covered without it, and the target ends stages of terms where it does
    """

    tails: ClassVar[tuple[Strategy, ...]] = PREFERRED
    alone: ClassVar[bool] = False
    narrows: ClassVar[bool] = False

    name: str
    computation: Computation
    kernels: tuple[Microkernel, ...]
    covered: tuple[Covered, ...]
    source: Computation
    first: tuple[Staging, ...] = ()

    @classmethod
    def of(cls, planner: Planner, program: Program, users: Users, options: Options) -> Plans | None:
        """Return the plans of a program; None if it is cut already, is not a computation, or has no stage for a microkernel."""
        kernels = planner.microkernels(options)
        if not kernels or analysis(program).of(Tile):
            return None
        computation = try_isl(lambda: raise_to_computation(program, {}, cls.narrows), None)
        if computation is None:
            return None
        first = tuple(staged_operands(computation, kernels))
        source = computation = rename_for_user(computation, users)
        if first:
            computation = reduce(transform_stages, first, computation)
        products = covered_stages(computation, kernels)
        if not products and not cls.alone:
            return None
        return cls(program.name, computation, kernels, products, source, first)

    @classmethod
    def loop_schedule(cls, program: Program, reassociate: bool) -> Schedule | None:
        """Return the decisions for the loops of a program that is no computation; None where nothing is decided."""
        return None

    @property
    def without_staging(self) -> Self:
        """Return the plans of the computation whose operands are not staged first."""
        covered = covered_stages(self.source, self.kernels)
        return replace(self, computation=self.source, first=(), covered=covered)

    @property
    def axes(self) -> tuple[tuple[str, str], ...]:
        """Return (stage, axis) of each axis that is cut."""
        return tuple((one.stage.buffer, axis) for one in self.covered for axis in one.axes)

    @property
    def tilings(self) -> tuple[Mapping[tuple[str, str], int], ...]:
        """Return the tiles of all axes that compete where a target has a price; the first without one."""
        return (self.largest,)

    def sizes(self, at: tuple[str, str]) -> tuple[int, ...]:
        """Return the tiles of an axis that a search may take."""
        most = self.largest[at]
        return tuple(range(min(2, most), most + 1))

    @property
    def largest(self) -> dict[tuple[str, str], int]:
        """Return the largest tile of the microkernel along each of these axes."""
        return {(c.stage.buffer, axis): c.largest(axis) for c in self.covered for axis in c.axes}

    def level(self, at: tuple[str, str], tile: int, tail: Strategy) -> Level:
        """Return the level of a split of an axis, whose tiles have heights that the microkernel has."""
        (one,) = (one for one in self.covered if one.stage.buffer == at[0])
        return Level(tile, tail.in_multiples(one.multiple(at[1])))

    @property
    def fallback(self) -> Plans | None:
        """Return the plans to try where these are not legal, or not proved; None if there are none."""
        return None

    def schedule(self, cuts: Mapping[tuple[str, str], Level]) -> Schedule:
        """Return the decisions for all stages; an axis that `cuts` does not name takes the largest tile of the microkernel."""
        steps = (step for one in self.covered for step in self.decisions(one, cuts))
        return Schedule(self.name, (*self.first, *steps))

    def level_in(self, schedule: Schedule, at: tuple[str, str]) -> Level | None:
        """Return the tiles of an axis in a schedule; None if it does not cut the axis."""
        splits = (step for step in schedule.steps if isinstance(step, Split))
        return next((one.levels[0] for one in splits if (one.stage, one.axis) == at), None)

    def decisions(self, one: Covered, cuts: Mapping[tuple[str, str], Level]) -> Iterator[Primitive]:
        """Yield the decisions for a stage."""
        stage, memory = one.stage.buffer, memory_of(one.kernel, one.kernel.computes.name)
        sums = stage
        if memory is not None:
            sums = f"{stage}_sum"
            yield Staging("write", stage, sums, memory=memory)
        operands = {load.buffer: memory_of(one.kernel, name) for name, load in one.match.operands}
        memories = {buffer: place for buffer, place in operands.items() if place is not None}
        for buffer, place in memories.items():
            yield Staging("read", buffer, f"{buffer}_in", (sums,), (), place)
        outer = [f"{axis}_tile" for axis in one.axes]
        inner = [f"{axis}_in" for axis in one.axes]
        for axis, head, body in zip(one.axes, outer, inner, strict=True):
            level = cuts.get((stage, axis), Level(one.largest(axis), self.tails[0]))
            yield Split(stage, axis, (level,), (head, body))
        others = [axis.name for axis in one.stage.axes if axis.name not in one.axes]
        outer_terms, terms = one.terms
        if memory is None:
            yield Order(stage, (*others, *outer, *outer_terms, *inner, *terms))
        else:
            yield Order(stage, (*others, *outer, *inner))
            if outer_terms:
                yield Order(sums, (*outer_terms, *(axis.name for axis in one.stage.axes), *terms))
            yield At(sums, stage, outer[-1])
        for buffer in memories:
            moving = index_dependences(one.stage, buffer)
            loops = [*others, *(f"{axis}_tile" if axis in moving else "" for axis in one.axes)]
            names = [name for name in loops if name and (name in outer or name in moving)]
            yield At(f"{buffer}_in", stage, names[-1] if names else None)
        yield Cover(sums, inner[0] if memory is None else next(iter(one.axes)), one.kernel.name)

    def unproved_program(self, schedule: Schedule) -> Program:
        """Return the program that decisions make, which is not proved.

        Raises PartitionError for one that is not legal.
        """
        before = create_schedule(unfuse_stages(self.source))
        return before.with_microkernels(self.kernels).apply(schedule).emitted

    def plan(self, schedule: Schedule, small: bool = True) -> TargetPlan:
        """Return the program that decisions make, and the steps by which it is proved.

        small  whether a step is of one staged array; else one is of all of them: fewer, where that is decided

        Raises PartitionError for one that is not legal.
        """
        before = unfuse_stages(self.source)
        by_hand = create_schedule(before).with_microkernels(self.kernels).apply(schedule)
        (*forms, program), tiles = by_hand.forms(small, [step.name for step in self.first])
        starts = self.starts(schedule, before)
        through = (*starts, *forms) if small or len(starts) > 1 else tuple(forms)
        return TargetPlan(program, schedule, through=through, tiles=tiles)

    def starts(self, schedule: Schedule, before: Program) -> tuple[Program, ...]:
        """Return the first programs of a proof: what is planned, and what stagings of operands make of it."""
        if not self.first:
            return (before,)
        staged = create_schedule(before).apply(Schedule(schedule.name, self.first)).emitted
        return before, staged


def policy(
    planner: Planner,
    program: Program,
    users: Users,
    options: Options,
    kind: type[Plans] = Plans,
    complete: Callable[[TargetPlan], TargetPlan] = lambda plan: plan,
    price: Price | None = None,
) -> decide.Plans[TargetPlan]:
    """Yield the plan of what microkernels compute, or of loops that are no computation; then the program as it stands, where no strategy is
    asked for.

    Each is to be proved in few steps; where that is not decided, it is yielded with small ones.

    kind      what decides: of a target that stages, binds and covers in its own way
    complete  what a target adds to each plan; it may refuse
    price     predicted seconds of a program, over its sizes, by which tilings compete; None: they do not

    Raises PartitionError for an axis that there is not, and for a strategy that is not legal.
    """
    plans = kind.of(planner, program, users, options)
    if options.strategy != "auto":
        yield from _plans_of_strategy(plans, program, options, complete, price)
        return
    refusals: list[PartitionError] = []
    for some, draft in _plans_by_preference(plans, price, complete):
        what = "other microkernels" if some.covered else "no tile is a microkernel's"
        notes = () if some is plans else _notes(what, refusals)
        for small in (False, True):
            plan = decide.attempt(partial(_complete_plan, some, draft, small, notes, complete))
            if not isinstance(plan, TargetPlan):
                refusals.append(plan)
                break
            unproved = yield plan
            refusals += [unproved.error] if unproved is not None else []
            if unproved is not None and not unproved.is_undecided:
                break
    loops = kind.loop_schedule(program, options.reassociate) if plans is None else None
    if loops is not None:
        plan = decide.attempt(partial(_plan_of_loops, program, loops, complete))
        if isinstance(plan, TargetPlan):
            unproved = yield plan
            refusals += [unproved.error] if unproved is not None else []
        else:
            refusals.append(plan)
    as_it_stands = TargetPlan(program, notes=_notes("runs as it stands", refusals))
    plan = decide.attempt(partial(complete, as_it_stands))
    if not isinstance(plan, TargetPlan):
        raise refusals[0] if refusals else plan
    yield plan


def _plans_of_strategy(
    plans: Plans | None,
    program: Program,
    options: Options,
    complete: Callable[[TargetPlan], TargetPlan],
    price: Price | None,
) -> decide.Plans[TargetPlan]:
    """Yield the plans of the strategy that options ask for, in few steps and in small ones, as far as they are proved.

    Raises PartitionError for a program without microkernels, and if neither plan is proved.
    """
    if plans is None or not plans.covered:
        raise PartitionError(
            "compile",
            f"cannot take strategy={format_strategy(options.strategy)} with {program.name}",
            because="no microkernel computes a part of it",
            help=(
                "oc.compile(oc.partition(program, tile={…}, tail={…}, target=target).loops, target=target)",
            ),
        )
    unproved_of = partial(_unproved_step, program, reassociate=options.reassociate)
    schedule = plans.schedule(_levels(plans, options.strategy))
    if price is not None:

        def proved_plan(one: Schedule) -> TargetPlan:
            plan = _plan_of_few_tiles(plans, one)
            if (unproved := unproved_of(plan)) is not None:
                raise unproved.error
            return complete(plan)

        def is_proved(_: Schedule, plan: TargetPlan) -> bool:
            return unproved_of(plan) is None

        schedule = with_priced_options(
            schedule, plans.unproved_program, proved_plan, is_proved, price
        )
    first_unproved: Unproved | None = None
    is_yielded = False
    for small in (False, True):
        plan = _plan_of_few_tiles(plans, schedule, small)
        if (unproved := unproved_of(plan)) is None:
            is_yielded = True
            yield complete(plan)
        first_unproved = first_unproved or unproved
    if first_unproved is not None and not is_yielded:
        if not first_unproved.is_undecided:
            raise first_unproved.error
        complete(plan)  # what a target refuses it says better than a proof without an end
        accepted = _accepted_tail(plans, unproved_of, complete)
        raise _undecided_strategy(plans, options.strategy, first_unproved.error, accepted)


def _accepted_tail(
    plans: Plans,
    unproved_of: Callable[[TargetPlan], Unproved | None],
    complete: Callable[[TargetPlan], TargetPlan],
) -> Strategy | None:
    """Return the first tail of the default policy that is proved, and that the target takes, on all axes that sizes give; None if there is none."""
    for tail in plans.tails:
        schedule = plans.schedule(_levels(plans, tail))
        plan = decide.attempt(partial(_plan_of_few_tiles, plans, schedule))
        if isinstance(plan, TargetPlan) and unproved_of(plan) is None:
            plan = decide.attempt(partial(complete, plan))
            if isinstance(plan, TargetPlan):
                return tail
    return None


def _undecided_strategy(
    plans: Plans, strategy: Strategies, error: PartitionError, accepted: Strategy | None
) -> PartitionError:
    """Return the refusal of a strategy by which nothing is proved in bounded work: with the loops that it cuts, and a strategy that is accepted."""
    loops = ", ".join(f"{stage}.{axis}" for stage, axis in _levels(plans, strategy))
    return PartitionError(
        error.op,
        error.refused,
        at=f"{loops} by strategy={format_strategy(strategy)}",
        because=error.because,
        help=(*([] if accepted is None else [f'strategy="{accepted}"']), 'strategy="auto"'),
    )


def _plan_of_few_tiles(plans: Plans, schedule: Schedule, small: bool = False) -> TargetPlan:
    """Return the plan of a schedule, in few steps or in small ones.

    Stages that are computed in the tiles of others have tiles in each of these, so that several heights of tiles multiply.

    Raises PartitionError where an option has more tiles than are proved in bounded work.
    """
    plan = plans.plan(schedule, small)
    axes = dict.fromkeys(f"{stage}.{axis}" for stage, axis in plans.largest)
    check_few(tuple(axes), count_tiles(plan.program.body), 'strategy="cut" or strategy="pad"')
    return plan


def _unproved_step(program: Program, plan: TargetPlan, reassociate: bool) -> Unproved | None:
    """Return the first step of a plan that is not proved; None if all are.

    It is asked before a target completes the plan, which takes several times as long; the proof of these steps is kept.
    """
    return unproved_step((program, *plan.through, plan.program), reassociate)


def _plans_by_preference(
    plans: Plans | None, price: Price | None, complete: Callable[[TargetPlan], TargetPlan]
) -> Iterator[tuple[Plans, Callable[[], Draft]]]:
    """Yield plans, each with the function that drafts its schedule: tilings that compete; one by each tail; then those without a
    microkernel, where there are such.
    """
    if plans is None:
        return
    some: Plans | None = plans
    while some is not None:
        if price is not None and len(some.tilings) > 1:
            yield some, cache(partial(competing, some, price, complete))
        for tail in some.tails:
            cuts = {at: Level(size, tail) for at, size in some.largest.items()}
            yield some, partial(Draft.of, some, cuts)
        some = some.fallback
    if plans.alone and plans.covered:
        plain = replace(plans.without_staging, covered=())
        yield plain, partial(Draft.of, plain, {})


def _complete_plan(
    plans: Plans,
    draft: Callable[[], Draft],
    small: bool,
    notes: tuple[str, ...],
    complete: Callable[[TargetPlan], TargetPlan],
) -> TargetPlan:
    drafted = draft()
    plan = plans.plan(drafted.schedule, small)
    return complete(replace(plan, notes=(*notes, *drafted.notes)))


def _plan_of_loops(
    program: Program, schedule: Schedule, complete: Callable[[TargetPlan], TargetPlan]
) -> TargetPlan:
    return complete(TargetPlan(create_schedule(program).apply(schedule).emitted, schedule))


def _notes(what: str, refusals: Sequence[PartitionError]) -> tuple[str, ...]:
    """Return a note on what became of a program, by the first refusal of better plans; none if there was none."""
    return tuple(f"{what}: {one.refused}: {one.because}" for one in refusals[:1])


def cut(
    planner: Planner,
    program: Program,
    users: Users,
    cuts: Mapping[str, LoopCut],
    options: Options,
    kind: type[Plans] = Plans,
) -> TargetPlan | None:
    """Return the plan of `program` whose axes have these tiles and tails; None where no microkernel asks for memory of its own.

    Raises PartitionError for tiles along an axis that there is not.
    """
    places = (
        place for kernel in planner.microkernels(options) for place in kernel.operands.values()
    )
    if not any(place.memories for place in places):
        return None
    plans = kind.of(planner, program, users, options)
    if plans is None or not any(is_staged(one) for one in plans.covered):
        return None
    levels: dict[tuple[str, str], Level] = {}
    for name, loop_cut in cuts.items():
        home, axis = axis_named(plans.computation, name)
        stages = {stage.buffer for stage in plans.computation.groups[home]}
        for stage, own in plans.axes:
            if stage in stages and own == axis:
                at = stage, own
                levels[at] = plans.level(at, loop_cut.tiles[-1], loop_cut.strategy)
    if len(levels) < len(cuts):
        return None
    return plans.plan(plans.schedule(levels))


def space(
    planner: Planner,
    planned: TargetPlan,
    request: CompileRequest,
    options: Options,
    kind: type[Plans] = Plans,
) -> ScheduleSpace:
    """Return the tiles and strategies of each axis that microkernels' tiles go along.

    Raises TargetError for a program of which a schedule says nothing.
    """
    plans = kind.of(planner, request.program, request.users, options)
    first = planned.schedule
    if plans is None or first is None:
        target: str = planner.name  # type: ignore[attr-defined]
        refused = f"cannot tune {request.program.name} for target={target!r}"
        raise no_schedule_error("tune", refused, request.program, target)
    tails = tuple(one for one in STRATEGIES if not one.among)
    options_of = [
        tuple(plans.level(at, tile, tail) for tail in tails for tile in plans.sizes(at))
        for at in plans.axes
    ]

    def written(point: Point) -> Schedule:
        return plans.schedule(dict(zip(plans.axes, point, strict=True)))  # type: ignore[arg-type]

    def read(schedule: Schedule) -> Point:
        if schedule == first and isinstance(
            first.steps[0], Choose
        ):  # a step from it is one from its first option
            schedule = Schedule(first.name, first.steps[0].options[0].steps)
        return tuple(plans.level_in(schedule, at) for at in plans.axes)

    return product_space(first, tuple(options_of), written, read)


def _levels(plans: Plans, strategy: Strategies) -> dict[tuple[str, str], Level]:
    """Return the tiles with the strategies that are asked for: one for all axes whose extents sizes give, or some by axis."""
    if strategy == "auto":
        return {}
    sizes = plans.largest
    if isinstance(strategy, Strategy):
        moving = {
            (c.stage.buffer, axis.name)
            for c in plans.covered
            for axis in c.stage.axes
            if variables(axis.extent)
        }
        return {at: plans.level(at, size, strategy) for at, size in sizes.items() if at in moving}
    levels = {}
    for name, tail in dict(strategy).items():
        home, axis = axis_named(plans.computation, name)
        for stage in plans.computation.groups[home]:
            if (stage.buffer, axis) in sizes:
                at = stage.buffer, axis
                levels[at] = plans.level(at, sizes[at], tail)
    return levels
