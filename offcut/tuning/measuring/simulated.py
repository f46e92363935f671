"""Schedules of a machine that is simulated: what a call takes is known, so nothing is timed, and no process is needed.

What they compute is proved where they are planned; the simulator asks for no values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TypeAlias

from offcut.backends.decide import proved_plan
from offcut.errors import OffcutError
from offcut.schedule import Schedule
from offcut.search import Outcome
from offcut.tuning.measuring.candidate import Bench
from offcut.tuning.problem import Limits, Measured, Problem, Time

Measure: TypeAlias = Callable[[Sequence[Schedule], Callable[[Measured], None]], object]
"""What becomes of schedules, in their order; the second argument is told of each as soon as it is known."""


class Simulated:
    """Measures schedules of one problem by the target's simulator."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def measured(
        self, schedules: Sequence[Schedule], progress: Callable[[Measured], None]
    ) -> tuple[Measured, ...]:
        """What becomes of each schedule, in their order.

        progress  told of each as soon as it is known
        """
        found = []
        for schedule in schedules:
            found.append(self._one(schedule))
            progress(found[-1])
        return tuple(found)

    def _one(self, schedule: Schedule) -> Measured:
        problem = self.problem
        request, target, options = problem.request, problem.target, problem.scheduled(schedule)
        times: list[Time] = []
        try:
            planned = proved_plan(target, request, options)
            for sizes, _ in problem.sizes:
                seconds = target.simulated_seconds(planned, request, options, sizes)
                times.append(Time(dict(sizes), seconds, 0.0))
        except OffcutError as refused:
            at = dict(problem.sizes[len(times)][0])
            return Measured(schedule, Outcome.REFUSED, (), str(refused), at)
        return Measured(schedule, Outcome.OK, tuple(times))


@dataclass(frozen=True, slots=True)
class Measuring:
    """How schedules of a problem are measured.

    each   one after the other: each is told before the next one begins, so that whoever is killed loses one at most
    turns  all in turns, to be ranked
    """

    each: Measure
    turns: Measure


def measuring(problem: Problem, limits: Limits, stack: ExitStack) -> Measuring:
    """What measures schedules of a problem: the target's simulator, or calls that are timed in processes of their own.

    stack   ends these
    """
    if problem.target.is_simulator:
        simulated = Simulated(problem)
        return Measuring(simulated.measured, simulated.measured)
    bench = stack.enter_context(Bench(problem, limits))
    return Measuring(bench.each, bench.measured)
