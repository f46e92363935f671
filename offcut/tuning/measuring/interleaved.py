"""Candidates timed in turns, until they can be ranked: the job of a child."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from math import sqrt
from typing import Any

import numpy as np

from offcut.experiment.timing import ROUNDS, Clock, Run, Timing, measure
from offcut.kernel import Kernel, kernel_of
from offcut.schedule import Schedule
from offcut.tuning.measuring.checking import results_of
from offcut.tuning.measuring.operands import Draw, Operands, operands, with_constants
from offcut.tuning.measuring.placing import placed
from offcut.tuning.problem import Limits, Problem, Time

_PARTS = 4
"""Parts of the budget; after each but the first it is asked whether the spread is small enough."""

_NOTCH = 1.57
"""Half the width of a notch is this times the distance of the quartiles over the root of the number of samples."""

Candidates = Mapping[str, Schedule | None]
"""Schedules by a name; None: what the default policy decides."""


def timed(
    argument: tuple[Problem, Candidates, Limits, Draw], say: Callable[[Any], None]
) -> dict[str, tuple[Time, ...]]:
    """Times of each candidate at each of the problem's sizes.

    It says whose turn it is, and the sizes; before the first call none.
    """
    problem, candidates, limits, draw = argument
    request = with_constants(problem.request, problem.seed, draw)
    kernels = {}
    for name, schedule in candidates.items():
        say((name, {}))
        kernels[name] = kernel_of(request, problem.scheduled(schedule), problem.target)
    times: dict[str, tuple[Time, ...]] = dict.fromkeys(candidates, ())
    clock = time.process_time if problem.options.threads == 1 else time.perf_counter
    for sizes, _ in problem.sizes:
        drawn = operands(request, sizes, problem.seed, draw)
        runs = partial(_runs, kernels, drawn)
        found = rankable(runs, limits, clock, partial(_turn, say, dict(sizes)))
        for name, timing in found.items():
            times[name] += (Time(dict(sizes), timing.seconds, timing.spread),)
    return times


def _runs(kernels: Mapping[str, Kernel], drawn: Operands) -> dict[str, Run]:
    """A call of each kernel, on operands of their own that all share."""
    called, out = placed(drawn)
    return {name: partial(results_of, kernel, called, out) for name, kernel in kernels.items()}


def _turn(say: Callable[[Any], None], sizes: Mapping[str, int], name: str) -> None:
    say((name, sizes))


def rankable(
    runs: Callable[[], Mapping[str, Run]],
    limits: Limits,
    clock: Clock = time.process_time,
    turn: Callable[[str], None] = lambda name: None,
) -> dict[str, Timing]:
    """Samples of all in turns, until each median is known to `limits.resolution` or the budget is spent.

    Those that are hopeless after the first part of it take no further turns. Each part runs on arrays of its own, whose pages
    lie elsewhere in caches: what that makes is noise like any other, and two parts there are at least.

    runs  a call of each candidate, on arrays that are made for it
    """
    found: dict[str, Timing] = {}
    left: Collection[str] | None = None
    for number in range(_PARTS):
        made = runs()
        part = measure(
            {name: run for name, run in made.items() if left is None or name in left},
            budget=limits.budget / _PARTS,
            rounds=-(-ROUNDS // _PARTS),
            clock=clock,
            turn=turn,
        )
        for name, timing in part.items():
            before = found[name].samples if name in found else ()
            found[name] = Timing((*before, *timing.samples), timing.calls)
        most = limits.hopeless * min(timing.seconds for timing in found.values())
        left = [name for name in part if found[name].seconds <= most]
        if number and all(resolved(found[name]) <= limits.resolution for name in left):
            break
    return found


def resolved(timing: Timing) -> float:
    """Half the width of the 95 % interval of the median, over the median.

    Source: McGill, Tukey, Larsen, Variations of box plots, The American Statistician 32 (1), 1978.
    """
    return _NOTCH * timing.spread / sqrt(len(timing.samples))


def noise(times: Sequence[Time]) -> float:
    """The median, over the sizes, of the spread of one kernel."""
    return float(np.median([time.spread for time in times])) if times else 0.0
