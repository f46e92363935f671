"""Splits that choose among strategies, for targets whose host chooses among whole programs: an option for each, priced over the sizes.

split C.j mix 64 as j_block j_in         choose
                                           option ladder costs …
                                   ->        split C.j ladder 64 as j_block j_in
                                             …
                                           option balance costs …

Of several such splits there is an option for each combination. An option that the target refuses, or that is not proved, is left out; so are
those that are faster nowhere (`costmodel.select_options`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from offcut.backends.decide import attempt
from offcut.backends.options import TargetPlan
from offcut.backends.tilings_by_size import LARGEST, Price
from offcut.core.program import Program
from offcut.costmodel import sampled, select_options, shortened_over
from offcut.errors import PartitionError
from offcut.schedule import Schedule, each_decision, with_strategy_options
from offcut.schedule.decisions import Alternative, Choose, Split

MAX_OPTIONS, GAIN = 4, 0.0
"""Options that are proved, at most, and what one of them gains in the mean of calls, at least: somebody asked for them."""


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
    price      predicted seconds of a program, over its sizes

    Raises PartitionError for a decision that is not legal, and, of the first combination, if the target refuses all.
    """
    if not is_mixed(schedule):
        return schedule
    apply(schedule)  # what is wrong with all options is said of the line that it stands in
    (choice,) = with_strategy_options(schedule).steps
    assert isinstance(choice, Choose)
    plans, refusals = list[tuple[Alternative, Program]](), list[PartitionError]()
    for option in choice.options:
        one = Schedule(schedule.name, option.steps)
        planned = attempt(partial(plan, one))
        if isinstance(planned, PartitionError):
            refusals.append(planned)
        elif is_proved(one, planned):
            plans.append((option, planned.program))
    if not plans:
        if refusals:
            raise refusals[0]
        return Schedule(schedule.name, choice.options[0].steps)  # and its proof says why
    sizes, facts = plans[0][1].sizes, plans[0][1].assumptions
    costs = [price(program) for _, program in plans]
    calls = sampled(sizes, facts, LARGEST, LARGEST)
    worth = select_options(np.stack([calls.of(cost) for cost in costs]), MAX_OPTIONS, GAIN).options
    priced = [
        Alternative(option.label, shortened_over(costs[k], sizes), option.steps)
        for k, (option, _) in enumerate(plans)
        if k in worth
    ]
    if len(priced) == 1:
        return Schedule(schedule.name, priced[0].steps)
    return Schedule(schedule.name, (Choose(tuple(priced)),))
