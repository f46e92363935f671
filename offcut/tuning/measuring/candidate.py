"""Candidates measured: compiled, checked and timed in processes that may end, each accounted for.

One child compiles and checks the candidates one by one; only those whose results are right are timed,
all in one process and in turns, beside the kernel of the default policy, whose spread tells how
noisy the machine is. Whoever ends its process is what ended it; the others are measured again.

What a call takes on a machine that is simulated is known, so nothing is timed, and no process is needed: what schedules compute is proved
where they are planned, and the simulator asks for no values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from offcut.backends.decide import proved_plan
from offcut.errors import BusyError, OffcutError, TargetError
from offcut.schedule import Schedule
from offcut.search import Outcome
from offcut.search.job_runner import JobRunner, JobStatus
from offcut.tuning.measuring.jobs import noise
from offcut.tuning.measuring.reference import Draw
from offcut.tuning.problem import DEFAULT, Limits, Measure, Measured, Problem, Time

_POLICY = "policy"
"""The name of the kernel that noise is estimated by; candidates are named by their numbers."""

_OUTCOMES = {
    JobStatus.RAISED: Outcome.CRASHED,
    JobStatus.CRASHED: Outcome.CRASHED,
    JobStatus.HUNG: Outcome.HUNG,
    JobStatus.OUT_OF_MEMORY: Outcome.OUT_OF_MEMORY,
}

Progress = Callable[[Measured], None]


class Bench:
    """Measures batches of candidates of one problem; a context manager that leaves no process behind.

    What results must be is computed with the first batch, and kept.
    """

    def __init__(self, problem: Problem, limits: Limits = DEFAULT) -> None:
        self.problem, self.limits = problem, limits
        self._children = JobRunner(limits.memory)
        self._folder = TemporaryDirectory(prefix="offcut-bench-")
        self._draw: Draw | None = None

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the child and remove what was kept."""
        self._children.close()
        self._folder.cleanup()

    def each(
        self, schedules: Sequence[Schedule], progress: Progress | None = None
    ) -> tuple[Measured, ...]:
        """What becomes of each schedule, every one a batch of its own: it is told before the next one begins."""
        results = {one: self.measured([one], progress)[0] for one in dict.fromkeys(schedules)}
        return tuple(results[schedule] for schedule in schedules)

    def measured(
        self, schedules: Sequence[Schedule], progress: Progress | None = None
    ) -> tuple[Measured, ...]:
        """What becomes of each schedule, in their order.

        progress  told of each as soon as it is known: of those that fail first

        Raises BusyError where the machine is too loaded to rank, TargetError where the program cannot be checked.
        """
        tell = progress or (lambda measured: None)
        results: dict[Schedule, Measured] = {}
        right: dict[str, Schedule] = {}
        for schedule in dict.fromkeys(schedules):
            outcome, because, at = self._checked(schedule)
            if outcome is Outcome.OK:
                right[str(len(right))] = schedule
                continue
            results[schedule] = Measured(schedule, outcome, (), because, at)
            tell(results[schedule])
        for name, one in self._timed(right).items():
            results[right[name]] = one
            tell(one)
        return tuple(results[schedule] for schedule in schedules)

    def _checked(self, schedule: Schedule) -> tuple[Outcome, str, Mapping[str, int]]:
        draw = self._draw = self._draw or self._prepared()
        argument = (self.problem, schedule, Path(self._folder.name), draw)
        result = self._children.run(
            "offcut.tuning.measuring.jobs:check_candidate", argument, self.limits.patience
        )
        if result.status is JobStatus.RETURNED:
            outcome, because, at = result.value
            return outcome, because, at
        return _OUTCOMES[result.status], result.because, result.last_message or {}

    def _prepared(self) -> Draw:
        """What results must be, in the folder; from which values operands are drawn."""
        result = self._children.run(
            "offcut.tuning.measuring.reference:write_reference",
            (self.problem, Path(self._folder.name)),
            self.limits.reference,
        )
        if isinstance(result.value, OffcutError):
            raise result.value
        if result.status is not JobStatus.RETURNED:
            raise TargetError(
                "tune",
                f"cannot check what {self.problem.request.program.name} computes",
                at=_sizes_text(result.last_message) and f"after {_sizes_text(result.last_message)}",
                because=f"its reference: {result.because}",
                help=("smaller sizes", "Limits(reference=…, memory=…)"),
            )
        draw: Draw = result.value
        return draw

    def _timed(self, right: Mapping[str, Schedule]) -> dict[str, Measured]:
        """Times of candidates whose results are right, or how they ended after all."""
        results: dict[str, Measured] = {}
        left: dict[str, Schedule | None] = {_POLICY: None, **right}
        while any(name in right for name in left):
            result = self._children.run(
                "offcut.tuning.measuring.jobs:time_candidates",
                (self.problem, left, self.limits, self._draw),
                self.limits.patience,
            )
            if result.status is JobStatus.RETURNED:
                times: dict[str, tuple[Time, ...]] = result.value
                policy = times.pop(_POLICY, ())
                self._check_noise(policy)
                beside = tuple(time.seconds for time in policy)
                return results | {
                    name: Measured(right[name], Outcome.OK, samples, reference=beside)
                    for name, samples in times.items()
                }
            blamed, at = result.last_message or (next(reversed(left)), {})
            del left[blamed]
            if blamed in right:
                outcome = _OUTCOMES[result.status]
                results[blamed] = Measured(right[blamed], outcome, (), result.because, at)
        return results

    def _check_noise(self, times: tuple[Time, ...]) -> None:
        spread = noise(times)
        if spread <= self.limits.noise:
            return
        worst = max(times, key=lambda time: time.spread)
        raise BusyError(
            "tune",
            "cannot rank candidates while this machine does other work",
            at=_sizes_text(worst.sizes),
            because=f"the quartiles of one and the same kernel are {spread:.0%} of its time apart, "
            f"and {self.limits.noise:.0%} is the most",
            help=("run it when nothing else runs", "Limits(noise=…) takes less exact times"),
        )


def _sizes_text(sizes: Any) -> str:
    return ", ".join(f"{name} = {value}" for name, value in (sizes or {}).items())


def simulate(
    problem: Problem, schedules: Sequence[Schedule], progress: Progress
) -> tuple[Measured, ...]:
    """Return what becomes of each schedule by the target's simulator, in their order.

    progress  told of each as soon as it is known
    """
    results = []
    for schedule in schedules:
        results.append(_simulated(problem, schedule))
        progress(results[-1])
    return tuple(results)


def _simulated(problem: Problem, schedule: Schedule) -> Measured:
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
        simulated = partial(simulate, problem)
        return Measuring(simulated, simulated)
    bench = stack.enter_context(Bench(problem, limits))
    return Measuring(bench.each, bench.measured)
