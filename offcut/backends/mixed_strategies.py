"""Splits that choose among strategies, for targets whose host chooses among whole programs: an option for each, priced over the sizes.

split C.j mix 64 as j_block j_in         choose
                                           option ladder costs …
                                   ->        split C.j ladder 64 as j_block j_in
                                             …
                                           option balance costs …

Of several such splits there is an option for each combination. An option that the target refuses is left out; so are those that are not
worth a proof (`costmodel.select_options`).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from offcut.backends.decide import attempt
from offcut.backends.options import TargetPlan
from offcut.backends.tilings_by_size import GAIN, LARGEST, Price
from offcut.core.program import Program
from offcut.costmodel import sampled, select_options, shortened_over
from offcut.errors import PartitionError
from offcut.schedule import Schedule, each_decision, with_strategy_options
from offcut.schedule.decisions import Alternative, Choose, Split

MAX_OPTIONS = 4
"""Options that are proved, at most."""


def is_mixed(schedule: Schedule) -> bool:
    """Return whether a split of a schedule chooses among strategies."""
    splits = (step for step in each_decision(schedule.steps) if isinstance(step, Split))
    return any(
        level.tail is not None and level.tail.among for one in splits for level in one.levels
    )


def with_priced_options(
    schedule: Schedule,
    apply: Callable[[Schedule], Program],
    complete: Callable[[TargetPlan], TargetPlan],
    price: Price,
) -> Schedule:
    """Return `schedule` with an option of all its decisions, and its cost, for each combination of strategies; itself if none is mixed.

    apply     returns the program that decisions make
    complete  what a target adds to a plan; it may refuse
    price     predicted seconds of a program, over its sizes

    Raises PartitionError for a decision that is not legal, and, of the first combination, if the target refuses all.
    """
    if not is_mixed(schedule):
        return schedule
    apply(schedule)  # what is wrong with all options is said of the line that it stands in
    (choice,) = with_strategy_options(schedule).steps
    assert isinstance(choice, Choose)
    options, programs, refusals = list[Alternative](), list[Program](), list[PartitionError]()
    for option in choice.options:
        one = Schedule(schedule.name, option.steps)
        program = attempt(lambda one=one: complete(TargetPlan(apply(one))).program)  # type: ignore[misc]
        if isinstance(program, PartitionError):
            refusals.append(program)
            continue
        options.append(option)
        programs.append(program)
    if not options:
        raise refusals[0]
    sizes, facts = programs[0].sizes, programs[0].assumptions
    costs = [price(program) for program in programs]
    calls = sampled(sizes, facts, LARGEST, LARGEST)
    worth = select_options(np.stack([calls.of(cost) for cost in costs]), MAX_OPTIONS, GAIN).options
    if len(worth) == 1:
        return Schedule(schedule.name, options[worth[0]].steps)
    priced = (
        Alternative(options[k].label, shortened_over(costs[k], sizes), options[k].steps)
        for k in sorted(worth)
    )
    return Schedule(schedule.name, (Choose(tuple(priced)),))


__all__ = ["is_mixed", "with_priced_options"]
