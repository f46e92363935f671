"""Choices that the host makes by size: strategies, and tilings, that compete as options of one ``choose``.

Splits that choose among strategies, for targets whose host chooses among whole programs: an option for each, priced over the sizes.

split C.j mix 64 as j_block j_in         choose
                                           option ladder costs …
                                   ->        split C.j ladder 64 as j_block j_in
                                             …
                                           option balance costs …

Of several such splits there is an option for each combination. Those that are faster nowhere are left out (`costmodel.select_options`), by
the price of what their decisions make, and so many that all have few tiles together; an option that the target refuses, or that is not proved,
gives way to the next best ones, as long as those that are refused have not taken too much work.

Tilings that compete by size: a few of many, as options of one ``choose`` whose costs are formulas in the sizes.

A target drafts tilings, each as a schedule, and prices the program of each. Those are kept that are worth their proofs, among them the
first, which it would take alone, unless others are as fast at every call (`costmodel.select_options`); if one is best at all sizes, or
there is one size alone, the schedule is that one and has no choice. An option is a schedule of the whole program, which is completed,
ordered and proved by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from offcut.backends.decide import attempt
from offcut.backends.options import TargetPlan
from offcut.backends.raising import unfuse_stages
from offcut.core.expr import Expr
from offcut.core.program import Program
from offcut.costmodel import sample_calls, select_options, simplify_cost_over
from offcut.errors import PartitionError
from offcut.partition.legality import MOST_TILES, count_tiles
from offcut.polyhedral.isl_budget import REQUEST, operations
from offcut.schedule import Schedule, each_decision, with_strategy_options
from offcut.schedule.decisions import Alternative, Choose, Level, Split

if TYPE_CHECKING:
    from offcut.backends.generic import Plans

Price: TypeAlias = Callable[[Program], Expr]
"""Predicted seconds of a program, over its sizes: a float64 expression."""
MAX_TILINGS, TILING_GAIN = 2, 0.02
"""Tilings that compete at a call, at most, and what one of them gains in the mean of calls, of the time of the best, at least: each is
proved by itself."""
LARGEST = 4096
"""The largest size at which tilings are compared, if smaller ones are allowed."""


@dataclass(frozen=True)
class Draft:
    """A schedule, with notes on how it was chosen."""

    schedule: Schedule
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, plans: Plans, cuts: Mapping[tuple[str, str], Level]) -> Draft:
        """Return the schedule of plans with these tiles."""
        return cls(plans.schedule(cuts))


def competing(plans: Plans, price: Price, complete: Callable[[TargetPlan], TargetPlan]) -> Draft:
    """Return a choice among the tilings of plans, each with what it costs; one of them, where others are not worth their proofs.

    price     of a program: tilings are compared before they are completed, and cost what the completed ones do
    complete  what a target adds to a plan

    Raises PartitionError for a tiling that is not legal.
    """
    before = unfuse_stages(plans.source)
    schedules, programs = list[Schedule](), list[Program]()
    for tiles in plans.tilings:
        cuts = {at: plans.level(at, tile, plans.tails[0]) for at, tile in tiles.items()}
        schedules.append(plans.schedule(cuts))
        programs.append(plans.unproved_program(schedules[-1]))
    calls = sample_calls(before.sizes, before.assumptions, LARGEST, LARGEST)
    selection = select_options(
        np.stack([calls.of(price(one)) for one in programs]), MAX_TILINGS, TILING_GAIN
    )
    first, *others = selection.options
    if not others:
        return Draft(schedules[first])
    options = list[Alternative]()
    for at in selection.options:
        label = "_".join(("tile", *map(str, plans.tilings[at].values())))
        cost = price(complete(TargetPlan(programs[at])).program)
        cost = simplify_cost_over(cost, before.sizes)
        options.append(Alternative(label, cost, tuple(each_decision(schedules[at].steps))))
    note = f"{len(options)} of {len(programs)} tilings, by size: {selection}"
    return Draft(Schedule(plans.name, (Choose(tuple(options)),)), (note,))


MAX_STRATEGIES, STRATEGY_GAIN = 4, 0.0
"""Options that are proved, at most, and what one of them gains in the mean of calls, at least: somebody asked for them."""
MAX_COMBINATIONS = 9
"""Combinations that are all priced; of more, one split at a time takes another strategy than the first."""
MAX_REFUSED_OPERATIONS = 8 * REQUEST
"""Operations of isl that refused options may take, all together; after that no other option is planned."""


def is_mixed(schedule: Schedule) -> bool:
    """Return whether a split of a schedule chooses among strategies."""
    splits = (step for step in each_decision(schedule.steps) if isinstance(step, Split))
    return any(
        level.tail is not None and level.tail.among for one in splits for level in one.levels
    )


def with_priced_options(
    schedule: Schedule,
    apply: Callable[[Schedule], Program],
    plan: Callable[[Schedule], TargetPlan],
    is_proved: Callable[[Schedule, TargetPlan], bool],
    price: Price,
) -> Schedule:
    """Return `schedule` with an option of all its decisions, and its cost, for each combination of strategies; itself if none is mixed.

    apply      returns the program that decisions make
    plan       returns the plan that they make on the target; it may refuse
    is_proved  whether a plan of a schedule is proved
    price      predicted seconds of a program, over its sizes: options are compared before they are planned, and cost what their plans do

    Raises PartitionError for a decision that is not legal, and, of the first combination, if the target refuses all.
    """
    if not is_mixed(schedule):
        return schedule
    (choice,) = with_strategy_options(schedule).steps
    assert isinstance(choice, Choose)
    combinations = _priced_combinations(choice.options)
    try:
        applied = [(one, apply(Schedule(schedule.name, one.steps))) for one in combinations]
    except PartitionError:
        apply(schedule)  # what is wrong with all options is said of the line that it stands in
        raise
    few = [pair for pair in applied if count_tiles(pair[1].body) <= MOST_TILES] or applied[:1]
    options, programs = zip(*few, strict=True)
    schedules = [Schedule(schedule.name, one.steps) for one in options]
    sizes = programs[0].sizes
    calls = sample_calls(sizes, programs[0].assumptions, LARGEST, LARGEST)
    seconds = np.stack([calls.of(price(program)) for program in programs])
    tiles = [count_tiles(program.body) for program in programs]
    plans = _plan_best(schedules, tiles, seconds, plan, is_proved)
    if not plans:
        return schedules[0]  # and its proof says why
    if len(plans) == 1:
        return schedules[next(iter(plans))]
    labels = [options[k].label for k in plans]
    priced = (
        Alternative(
            label if labels.count(label) == 1 else f"{label}_{k}",
            simplify_cost_over(price(plans[k]), sizes),
            options[k].steps,
        )
        for k, label in zip(plans, labels, strict=True)
    )
    return Schedule(schedule.name, (Choose(tuple(priced)),))


def _plan_best(
    schedules: Sequence[Schedule],
    tiles: Sequence[int],
    seconds: npt.NDArray[np.float64],
    plan: Callable[[Schedule], TargetPlan],
    is_proved: Callable[[Schedule, TargetPlan], bool],
) -> dict[int, Program]:
    """Return the programs that the target plans for the options worth having, by their positions; none if none is proved.

    tiles    in the text of each
    seconds  of shape (schedules, calls), predicted

    Raises PartitionError, of the first option, if the target refuses all.
    """
    programs, refusals = dict[int, Program](), list[PartitionError]()
    candidates, refused_operations = list(range(len(schedules))), 0
    while candidates:
        for most in range(MAX_STRATEGIES, 0, -1):
            best = select_options(seconds[candidates], most, STRATEGY_GAIN).options
            worth = [candidates[k] for k in best]
            if sum(tiles[k] for k in worth) <= MOST_TILES:
                break
        if programs.keys() >= set(worth):
            return {k: programs[k] for k in worth}
        for k in (k for k in worth if k not in programs):
            before = operations()
            planned = attempt(partial(plan, schedules[k]))
            if isinstance(planned, PartitionError):
                refusals.append(planned)
            elif is_proved(schedules[k], planned):
                programs[k] = planned.program
                continue
            candidates.remove(k)
            refused_operations += operations() - before
            if refused_operations > MAX_REFUSED_OPERATIONS:
                candidates = [one for one in candidates if one in programs]
                break
    if refusals:
        raise refusals[0]
    return {}


def _priced_combinations(options: Sequence[Alternative]) -> Sequence[Alternative]:
    """Return the combinations that are priced: all of a few, else those that differ from the first one in one split at most."""
    if len(options) <= MAX_COMBINATIONS:
        return options
    first = options[0].steps
    return [
        one for one in options if sum(a != b for a, b in zip(first, one.steps, strict=True)) <= 1
    ]
