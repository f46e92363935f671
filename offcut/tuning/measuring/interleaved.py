"""Candidates timed in turns, until they can be ranked: the job of a child."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import sqrt
from typing import Any

import numpy as np

from offcut.core.dtypes import numpy_dtype
from offcut.experiment.timing import ROUNDS, Clock, Run, Timing, measure
from offcut.kernel import kernel_of
from offcut.schedule import Schedule
from offcut.tuning.measuring.checking import results_of
from offcut.tuning.measuring.operands import Draw, operands, with_constants
from offcut.tuning.problem import Limits, Problem, Time

_PARTS = 4
"""Parts of the budget; after each it is asked whether the spread is small enough."""

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
        called = operands(request, sizes, problem.seed, draw)
        out = tuple(np.empty(shape, numpy_dtype(dtype)) for shape, dtype in called.results)
        runs = {name: partial(results_of, kernel, called, out) for name, kernel in kernels.items()}
        found = rankable(runs, limits, clock, partial(_turn, say, dict(sizes)))
        for name, timing in found.items():
            times[name] += (Time(dict(sizes), timing.seconds, timing.spread),)
    return times


def _turn(say: Callable[[Any], None], sizes: Mapping[str, int], name: str) -> None:
    say((name, sizes))


def rankable(
    runs: Mapping[str, Run],
    limits: Limits,
    clock: Clock = time.process_time,
    turn: Callable[[str], None] = lambda name: None,
) -> dict[str, Timing]:
    """Samples of all in turns, until each median is known to `limits.resolution` or the budget is spent.

    Those that are hopeless after the first part of it take no further turns.
    """
    found: dict[str, Timing] = {}
    left = dict(runs)
    for _ in range(_PARTS):
        part = measure(
            left,
            budget=limits.budget / _PARTS,
            rounds=-(-ROUNDS // _PARTS),
            clock=clock,
            turn=turn,
        )
        for name, timing in part.items():
            before = found[name].samples if name in found else ()
            found[name] = Timing((*before, *timing.samples), timing.calls)
        most = limits.hopeless * min(timing.seconds for timing in found.values())
        left = {name: run for name, run in left.items() if found[name].seconds <= most}
        if all(resolved(found[name]) <= limits.resolution for name in left):
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
