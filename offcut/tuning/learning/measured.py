"""Random programs, random legal schedules of them, and what each takes: by the clock, or by the target's simulator.

Program number k of a seed is the same whatever was drawn before it, and so are its schedules: what was broken off is begun
again with the same command, and measures what records do not have.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import inf
from random import Random

from offcut.backends.checked_results import check_result
from offcut.backends.decide import proved_plan
from offcut.backends.target import Options, Target
from offcut.errors import OffcutError, TargetError
from offcut.schedule import Schedule
from offcut.search import Outcome, Points, Records
from offcut.tuning.learning.programs import KINDS, Drawn, drawn
from offcut.tuning.measuring.candidate import measuring
from offcut.tuning.pricing.predicting import price_of
from offcut.tuning.problem import Limits, Measured, Problem, make_problem
from offcut.tuning.recorded_trials import TrialLog

EXPLORER = "random"
"""What records call what was drawn here."""

SCHEDULES = 8
"""Schedules of a program, the target's own first."""

DRAWS = 4
"""Schedules that are drawn for each that is to be measured, at most: some are refused, or drawn twice."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """What came of random programs.

    programs   how many were measured
    outcomes   of schedules, how many came to each
    known      schedules that records had
    refused    how many kinds of programs the target refused, by kind
    """

    programs: int
    outcomes: Mapping[Outcome, int]
    known: int
    refused: Mapping[str, int]


def sample(
    target: Target,
    records: Records,
    programs: int | None,
    seconds: float = inf,
    seed: int = 0,
    schedules: int = SCHEDULES,
    limits: Limits | None = None,
    tell: Callable[[int, str], None] = lambda number, kind: None,
) -> Sampled:
    """Measure random schedules of random programs, and record what each takes.

    programs   how many; None: as many as `seconds` allow
    seconds    after which no further program, and on a simulator no schedule, is begun
    schedules  of each program, at most
    limits     of each candidate
    tell       the number of a program and its kind, before it is measured

    Raises TargetError for a target that takes no program of any kind, and for what `Bench` raises; BusyError where
    the machine does too much else.
    """
    until = time.monotonic() + seconds
    options = check_result(target, "options", target.options("learn"))
    outcomes, refused = Counter[Outcome](), Counter[str]()
    count, before = 0, 0
    while (programs is None or count < programs) and time.monotonic() < until:
        program, problem, space = _accepted(target, options, seed, count, refused)
        tell(count, program.kind)
        log = TrialLog(records, problem, space.first)
        trials = log.outcomes()
        of = _schedules(problem, space, Random(f"{seed}/{count}/schedules"), schedules)
        rest = [one for one in of if str(one) not in trials]
        before += len(of) - len(rest)
        _measure(log, space, rest, limits or Limits(noise=inf), until, outcomes)
        count += 1
    return Sampled(count, dict(outcomes), before, dict(refused))


def _accepted(
    target: Target, options: Options, seed: int, number: int, refused: Counter[str]
) -> tuple[Drawn, Problem, Points]:
    """Return the program of a number: of the kinds in an order of its own, the first that the target takes."""
    rng = Random(f"{seed}/{number}")
    because = ""
    for kind in rng.sample(KINDS, len(KINDS)):
        program = drawn(Random(f"{seed}/{number}/{kind}"), kind)
        try:
            sizes = {name: list(values) for name, values in program.sizes.items()}
            problem = make_problem(
                "learn",
                program.output,
                program.inputs,
                program.constants,
                sizes,
                target,
                options,
                seed,
            )
            default = proved_plan(target, problem.request, options)
            return program, problem, target.space(default, problem.request, options, 1)
        except OffcutError as error:
            refused[kind] += 1
            because = because or str(error).partition("\n")[0]
    raise TargetError(
        "learn",
        f"cannot learn from random programs on target={target.name!r}",
        because=f"it refuses all of them, the first so: {because}",
        help=("offcut learn RECORDS: of programs that it takes",),
    )


def _schedules(problem: Problem, space: Points, rng: Random, count: int) -> Sequence[Schedule]:
    """Return schedules of a space that have a price, the target's own first."""
    price = price_of(problem, space.computation, None)
    schedules: dict[Schedule, None] = {}
    for number in range(DRAWS * count):
        if len(schedules) >= count:
            break
        one = space.sample(rng) if number else space.first
        try:
            price(one)
        except OffcutError:
            continue
        schedules[one] = None
    return list(schedules)


def _measure(
    log: TrialLog,
    space: Points,
    schedules: Sequence[Schedule],
    limits: Limits,
    until: float,
    outcomes: Counter[Outcome],
) -> None:
    """Measure schedules, each recorded as soon as it is known."""
    if not schedules:
        return
    problem = log.problem
    price = price_of(problem, space.computation, None)

    def keep(one: Measured) -> None:
        outcomes[one.outcome] += 1
        log.add(one, EXPLORER, price(one.schedule))

    with ExitStack() as stack:
        here = measuring(problem, limits, stack)
        if not problem.target.is_simulator:
            here.turns(schedules, keep)
            return
        for one in schedules:
            if time.monotonic() >= until:
                return
            here.turns([one], keep)
