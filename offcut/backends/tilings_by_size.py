"""Tilings that compete by size: a few of many, as options of one ``choose`` whose costs are formulas in the sizes.

A target drafts tilings, each as a schedule, and prices the program of each. Those are kept that are worth their proofs, among them the
first, which it would take alone, unless others are as fast at every call (`costmodel.select_options`); if one is best at all sizes, or
there is one size alone, the schedule is that one and has no choice. An option is a schedule of the whole program, which is completed,
ordered and proved by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from offcut.backends.options import TargetPlan
from offcut.backends.raising import unfuse_stages
from offcut.core.expr import Expr
from offcut.core.program import Program
from offcut.costmodel import sample_calls, select_options, simplify_cost_over
from offcut.schedule import Schedule, each_decision
from offcut.schedule.decisions import Alternative, Choose, Level

if TYPE_CHECKING:
    from offcut.backends.generic import Plans

Price: TypeAlias = Callable[[Program], Expr]
"""Predicted seconds of a program, over its sizes: a float64 expression."""
MOST, GAIN = 2, 0.02
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
    selection = select_options(np.stack([calls.of(price(one)) for one in programs]), MOST, GAIN)
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
