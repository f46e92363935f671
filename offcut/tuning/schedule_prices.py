"""The prices of schedules that search goes by: the closed form of the target, or a function of the user's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from offcut.backends.decide import proved_plan
from offcut.costmodel import Cost, Formulas, Machine
from offcut.costmodel.arrays import Calls
from offcut.costmodel.nests import LoopPrices, SchedulePrices, standing
from offcut.describe.computation import Computation
from offcut.errors import DescribeError, PartitionError, TargetError, blamed_on_another
from offcut.schedule import Schedule, hand_steps, parts_of
from offcut.search import Sizes, Times
from offcut.tuning.problem import Problem

MAX_SECONDS = 1e30
"""Seconds, past which nothing is a price."""

UserPriceFunction = Callable[..., Any]
"""A schedule, and sizes by name -> seconds of a call; it may raise PartitionError for what is not legal."""


@dataclass
class ClosedForm:
    """Predicted seconds of schedules at the sizes of a problem, by the target's model; each schedule is predicted once.

    computation  what nests are of; None where there are none
    notes        what else is to be said of it
    nests        the closed form of schedules with nests; None where there is none
    """

    problem: Problem
    computation: Computation | None
    notes: tuple[str, ...] = ()
    nests: SchedulePrices | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        problem, vectors = self.problem, [dict(sizes) for sizes, _ in self.problem.sizes]
        self._target = problem.target.predict_seconds(problem.request, problem.options, vectors)
        self._loops = None
        if self._target is None:
            self._loops = loop_prices(problem)
            if self.computation is not None:
                self.nests = nest_prices(problem, self.computation)
        self._known: dict[Schedule, Sequence[float] | PartitionError] = {}

    @property
    def description(self) -> str:
        """Return what it is, in words."""
        return "; ".join(("the closed form", *self.notes))

    def __call__(self, schedule: Schedule) -> dict[Sizes, float]:
        """Return the seconds of a call, by sizes.

        Raises PartitionError for a schedule that is not legal.
        """
        if schedule not in self._known:
            try:
                self._known[schedule] = self._seconds(schedule)
            except PartitionError as refused:
                self._known[schedule] = refused
        seconds = self._known[schedule]
        if isinstance(seconds, PartitionError):
            raise seconds
        return dict(zip(self.problem.keys, seconds, strict=True))

    def _seconds(self, schedule: Schedule) -> Sequence[float]:
        """Return the seconds at each vector of sizes."""
        if self._target is not None:
            return self._target(schedule)
        if self.nests is not None and parts_of(schedule):
            return [float(one) for one in self.nests(schedule)]
        by_hand = bool(hand_steps(schedule))
        seconds = None if self._loops is None or by_hand else self._loops(schedule)
        if seconds is not None:
            return [float(one) for one in seconds]
        costs = planned_costs(self.problem, schedule)
        return [one.seconds if isinstance(one, Cost) else 0.0 for one in costs]


@dataclass(frozen=True)
class UserPrice:
    """A price of the user's.

    Raises DescribeError for what is no function.
    """

    problem: Problem
    function: UserPriceFunction

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise _no_price(self.function, "is not a function")

    def __call__(self, schedule: Schedule) -> dict[Sizes, float]:
        """Return the seconds of a call, by sizes.

        Raises DescribeError where the function raises, or gives no seconds.
        """
        vectors = zip(self.problem.keys, self.problem.sizes, strict=True)
        return {key: _user_seconds(self.function, schedule, dict(at)) for key, (at, _) in vectors}


@dataclass(frozen=True)
class LearningUserPrice(UserPrice):
    """A price of the user's that learns: it has a method ``refit(times)``."""

    def refit(self, times: Times) -> None:
        """Hand over what was measured.

        Raises DescribeError where the method raises.
        """

        def refused(did: str) -> DescribeError:
            return DescribeError("tune", "cannot teach price=", because=f"its refit {did}")

        with blamed_on_another(refused):
            self.function.refit(times)  # type: ignore[attr-defined]


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


def planned_costs(problem: Problem, schedule: Schedule) -> list[Cost | Formulas | None]:
    """Return the costs of the program that a schedule makes, at the sizes of a problem in their order; None where the target predicts nothing.

    Its loops are cut and proved for it, which takes some tenth of a second. Raises PartitionError for a schedule that is not legal.
    """
    target, request, options = problem.target, problem.request, problem.scheduled(schedule)
    plan = proved_plan(target, request, options)
    return [target.predict_cost(plan, request, options, dict(sizes)) for sizes, _ in problem.sizes]


def _calls(problem: Problem) -> Calls:
    """Its sizes, by the program's names."""
    vectors = [sizes for sizes, _ in problem.sizes]
    return Calls.of_vectors(vectors, dict(problem.request.users.sizes))


def _user_seconds(own: Any, schedule: Schedule, sizes: dict[str, int]) -> float:
    with blamed_on_another(partial(_no_price, own)):
        seconds = own(schedule, **sizes)
    number = isinstance(seconds, int | float | np.floating) and not isinstance(seconds, bool)
    if not number or not 0 <= seconds <= MAX_SECONDS:
        raise _no_price(own, f"gave {seconds!r:.60}, and a price is seconds, at least 0")
    return float(seconds)


def _no_price(own: object, did: str) -> DescribeError:
    name = getattr(own, "__name__", repr(own))
    help = ("lambda schedule, n: 2e-9 * n",)
    return DescribeError("tune", f"cannot take price={name}", because=f"it {did}", help=help)
