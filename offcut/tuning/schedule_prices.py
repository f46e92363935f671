"""The price of schedules that search goes by: the target's model, or a function of the user's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from offcut.backends.decide import proved_plan
from offcut.costmodel import Cost, Machine
from offcut.costmodel.arrays import Calls
from offcut.costmodel.nests import LoopPrices, SchedulePrices, standing
from offcut.describe.computation import Computation
from offcut.errors import DescribeError, TargetError, blamed_on_another
from offcut.schedule import Schedule, hand_steps, parts_of
from offcut.search import Price, Sizes
from offcut.tuning.problem import Problem

LONGEST = 1e30
"""Seconds, past which nothing is a price."""

OwnSchedulePrice = Callable[..., Any]
"""A schedule, and sizes by name -> seconds of a call; it may raise PartitionError for what is not legal."""


def price_of(
    problem: Problem, computation: Computation | None, own: OwnSchedulePrice | None
) -> Price:
    """Predicted seconds of schedules at the sizes of a problem.

    computation   what nests are of; None where there are none
    own           instead of the target's model
    """
    vectors = [dict(sizes) for sizes, _ in problem.sizes]
    keys = problem.keys
    target_own = problem.target.predict_seconds(problem.request, problem.options, vectors)
    prices = None if computation is None or target_own else nest_prices(problem, computation)
    loops = None if target_own else loop_prices(problem)
    cut: dict[Schedule, list[float]] = {}

    def told(schedule: Schedule) -> dict[Sizes, float]:
        return {key: _asked(own, schedule, at) for key, at in zip(keys, vectors, strict=True)}

    def modelled(schedule: Schedule) -> dict[Sizes, float]:
        if target_own is not None:
            return dict(zip(keys, target_own(schedule), strict=True))
        if prices is None or not parts_of(schedule):
            if schedule not in cut:
                by_hand = bool(hand_steps(schedule))
                cost = None if loops is None or by_hand else loops(schedule)
                cut[schedule] = (
                    seconds_of_loops(problem, schedule) if cost is None else cost.tolist()
                )
            return dict(zip(keys, cut[schedule], strict=True))
        return dict(zip(keys, map(float, prices(schedule)), strict=True))

    if own is not None:
        if not callable(own):
            raise _no_price(own, "is not a function")
        return told
    return modelled


def nest_prices(problem: Problem, computation: Computation) -> SchedulePrices:
    """Return the closed form of schedules with nests, at the sizes of a problem in their order."""
    target, options = problem.target, problem.options
    resolving = target.variant_resolver(computation, options)
    if resolving is None:
        raise TargetError(
            "tune",
            f"cannot price schedules for target={target.name!r}",
            because="it has no cost model",
        )
    return SchedulePrices(target.hardware(options), _calls(problem), resolving, options.threads)


def loop_prices(problem: Problem) -> LoopPrices | None:
    """Return the closed form of schedules without nests, likewise; None where the program's loops have none, or no processor runs them."""
    computation = standing(problem.request.program)
    if computation is None or not isinstance(problem.target.machine, Machine):
        return None
    hardware = problem.target.hardware(problem.options)
    return LoopPrices(computation, hardware, _calls(problem), problem.options.threads)


def seconds_of_loops(problem: Problem, schedule: Schedule) -> list[float]:
    """Return the closed form of the program that a schedule without nests makes, at the sizes of a problem in their order.

    Its loops are cut for it, which takes some tenth of a second. Raises PartitionError for a schedule that is not legal.
    """
    target, request = problem.target, problem.request
    options = replace(problem.options, schedule=schedule)
    planned = proved_plan(target, request, options)
    costs = (
        target.predict_cost(planned, request, options, dict(sizes)) for sizes, _ in problem.sizes
    )
    return [one.seconds if isinstance(one, Cost) else 0.0 for one in costs]


def _calls(problem: Problem) -> Calls:
    """Its sizes, by the program's names."""
    vectors = [sizes for sizes, _ in problem.sizes]
    return Calls.of_vectors(vectors, dict(problem.request.users.sizes))


def _asked(own: Any, schedule: Schedule, sizes: dict[str, int]) -> float:
    with blamed_on_another(partial(_no_price, own)):
        found = own(schedule, **sizes)
    number = isinstance(found, int | float | np.floating) and not isinstance(found, bool)
    if not number or not 0 <= found <= LONGEST:
        raise _no_price(own, f"gave {found!r:.60}, and a price is seconds, at least 0")
    return float(found)


def _no_price(own: object, did: str) -> DescribeError:
    shown = getattr(own, "__name__", repr(own))
    help = ("lambda schedule, n: 2e-9 * n",)
    return DescribeError("tune", f"cannot take price={shown}", because=f"it {did}", help=help)
