"""Splits that choose among strategies, for targets whose host chooses among whole programs: an option for each, priced over the sizes.

split C.j mix 64 as j_block j_in         choose
                                           option ladder costs …
                                   ->        split C.j ladder 64 as j_block j_in
                                             …
                                           option balance costs …

Of several such splits there is an option for each combination. Those that are faster nowhere are left out (`costmodel.select_options`), by
the price of what their decisions make; an option that the target refuses, or that is not proved, gives way to the next best ones, as long as
those that are refused have not taken too much work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from offcut.backends.decide import attempt
from offcut.backends.options import TargetPlan
from offcut.backends.tilings_by_size import LARGEST, Price
from offcut.core.program import Program
from offcut.costmodel import sampled, select_options, shortened_over
from offcut.errors import PartitionError
from offcut.polyhedral.isl_budget import REQUEST, operations
from offcut.schedule import Schedule, each_decision, with_strategy_options
from offcut.schedule.decisions import Alternative, Choose, Split

MAX_OPTIONS, GAIN = 4, 0.0
"""Options that are proved, at most, and what one of them gains in the mean of calls, at least: somebody asked for them."""
MAX_COMBINATIONS = 9
"""Combinations that are all priced; of more, one split at a time takes another strategy than the first."""
MAX_REFUSED = 8 * REQUEST
"""Operations of isl that options may take which are refused, all together: of those that are left then, none is tried."""


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
    apply(schedule)  # what is wrong with all options is said of the line that it stands in
    (choice,) = with_strategy_options(schedule).steps
    assert isinstance(choice, Choose)
    options = [(one, Schedule(schedule.name, one.steps)) for one in _few(choice.options)]
    programs = [apply(one) for _, one in options]
    sizes = programs[0].sizes
    calls = sampled(sizes, programs[0].assumptions, LARGEST, LARGEST)
    seconds = np.stack([calls.of(price(program)) for program in programs])
    plans, refusals = dict[int, Program](), list[PartitionError]()
    left, spent = list(range(len(options))), 0
    while left:
        worth = [left[k] for k in select_options(seconds[left], MAX_OPTIONS, GAIN).options]
        for k in (k for k in worth if k not in plans):
            before = operations()
            planned = attempt(partial(plan, options[k][1]))
            if isinstance(planned, PartitionError):
                refusals.append(planned)
            elif is_proved(options[k][1], planned):
                plans[k] = planned.program
                continue
            left.remove(k)
            spent += operations() - before
            if spent > MAX_REFUSED:
                left = [one for one in left if one in plans]
                break
        if plans.keys() >= set(worth):
            break
    else:
        if refusals:
            raise refusals[0]
        return options[0][1]  # and its proof says why
    if len(worth) == 1:
        return options[worth[0]][1]
    labels = [options[k][0].label for k in worth]
    priced = (
        Alternative(
            label if labels.count(label) == 1 else f"{label}_{k}",
            shortened_over(price(plans[k]), sizes),
            options[k][0].steps,
        )
        for k, label in zip(worth, labels, strict=True)
    )
    return Schedule(schedule.name, (Choose(tuple(priced)),))


def _few(options: Sequence[Alternative]) -> Sequence[Alternative]:
    """Return the combinations that are priced: all of a few, else those that differ from the first one in one split at most."""
    if len(options) <= MAX_COMBINATIONS:
        return options
    first = options[0].steps
    return [
        one for one in options if sum(a != b for a, b in zip(first, one.steps, strict=True)) <= 1
    ]
