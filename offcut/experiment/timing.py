"""Interleaved measurement of candidates that do the same work.

A shared machine drifts: its clock changes, another process comes and goes. So the candidates take
turns, round after round, in one process, and a comparison pairs the samples of one round. Each
sample is a batch of calls whose number is calibrated per candidate, and a result is the median
over the rounds with its quartiles.

The clock is the processor time of the whole process: on an idle machine it is the time on the wall,
and where another process has the core for a while, that while does not count. All threads do, so a
library that starts several gains nothing.
"""

from __future__ import annotations

import gc
import math
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import repeat

Clock = Callable[[], float]
"""Seconds since some fixed moment, by default of processor time."""

Run = Callable[[], object]
"""One call of a candidate on operands that it holds."""

ROUNDS = 21
"""Samples per candidate: enough for a 95 % interval of the median that is not the whole range."""

THREADS = (
    *("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"),
    "VECLIB_MAXIMUM_THREADS",
)
"""What the mathematics libraries read, once, when they are loaded."""

KERNELS = ("OPENBLAS_CORETYPE", "MKL_ENABLE_INSTRUCTIONS", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")
"""Variables that hold a library back to the kernels of another processor: a baseline is measured without them."""


def restart_single_threaded() -> None:
    """Start this program again with one thread for each mathematics library, and with the kernels that a library chooses itself.

    The variables count only if they are set before numpy or torch is loaded. A program that has them already goes on.
    """
    single = dict.fromkeys(THREADS, "1")
    forced = {name for name in KERNELS if name in os.environ}
    if forced or any(os.environ.get(name) != value for name, value in single.items()):
        sys.stdout.flush()
        sys.stderr.flush()
        program = [sys.executable, *sys.orig_argv[1:]]
        environment = {name: value for name, value in os.environ.items() if name not in forced}
        os.execve(sys.executable, program, {**environment, **single})


@dataclass(frozen=True, slots=True)
class Timing:
    """How long one call takes.

    samples   seconds per call, one sample per round, in the order of the rounds
    calls     calls per sample
    places    of each sample, which turn of its round it had, from 0 on; none where they did not take turns
    """

    samples: tuple[float, ...]
    calls: int
    places: tuple[int, ...] = ()

    @property
    def seconds(self) -> float:
        """Return the median seconds per call."""
        return statistics.median(self.samples)

    @property
    def quartiles(self) -> tuple[float, float]:
        """Return the lower and upper quartile, in seconds per call."""
        if len(self.samples) == 1:
            return self.samples[0], self.samples[0]
        low, _, high = statistics.quantiles(self.samples, n=4, method="inclusive")
        return low, high

    @property
    def spread(self) -> float:
        """Return the distance of the quartiles over the median."""
        low, high = self.quartiles
        return (high - low) / self.seconds


@dataclass(frozen=True, slots=True)
class Ratio:
    """Median of the ratios of paired samples, with its 95 % confidence interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} ({self.low:.3f}–{self.high:.3f})"

    @property
    def inverse(self) -> Ratio:
        """Return the ratio of the other over this one."""
        return Ratio(1 / self.value, 1 / self.high, 1 / self.low)


def paired_ratio(this: Timing, other: Timing) -> Ratio:
    """Return the time of `this` over that of `other`, round by round."""
    return ratio_in_turns(this.samples, other.samples)


def ratio_in_turns(
    this: Sequence[float], other: Sequence[float], independent: float = 1.0
) -> Ratio:
    """Return the median of the ratios of two that took turns, round by round, with its 95 % interval.

    this, other  seconds, one for each round
    independent  the part of the rounds that counts as independent, from 0 to 1
    """
    ratios = [a / b for a, b in zip(this, other, strict=False)]
    return Ratio(statistics.median(ratios), *median_interval(ratios, independent))


def ratio_of_medians(
    this: Sequence[float], other: Sequence[float], independent: tuple[float, float] = (1.0, 1.0)
) -> Ratio:
    """Return the ratio of the medians of two that took no turns.

    Its interval treats the two as independent: the logarithms' half widths of both add up as their squares do.

    this, other  seconds, in any order, as many as there are
    independent  the part of each that counts as independent, from 0 to 1
    """
    value, halves = statistics.median(this) / statistics.median(other), []
    for seconds, part in zip((this, other), independent, strict=True):
        middle, (low, high) = statistics.median(seconds), median_interval(seconds, part)
        halves.append((math.log(middle / low), math.log(high / middle)))
    (below, above), (below_other, above_other) = halves
    return Ratio(
        value,
        value * math.exp(-math.hypot(below, above_other)),
        value * math.exp(math.hypot(above, below_other)),
    )


def median_interval(values: Sequence[float], independent: float = 1.0) -> tuple[float, float]:
    """Return the 95 % confidence interval of the median of `values`: its lower and its upper end.

    It comes from order statistics, so it assumes no distribution: the narrowest pair of them outside of which the median lies in at
    most 5 %. Fewer than six independent values cannot give 95 %: their interval is the whole range.

    values       at least one, in any order
    independent  the part of the values that counts as independent, from 0 to 1
    """
    ordered = sorted(values)
    count = len(ordered)
    trials = max(int(count * independent), 1)
    outside, cumulative = 0, 0
    for rank in range(trials // 2):
        cumulative += math.comb(trials, rank)
        if 2 * cumulative / 2**trials > 0.05:
            break
        outside = rank
    outside = outside * count // trials
    return ordered[outside], ordered[count - 1 - outside]


def measure(
    candidates: Mapping[str, Run],
    *,
    budget: float = 0.3,
    rounds: int = ROUNDS,
    clock: Clock = time.process_time,
    turn: Callable[[str], None] = lambda name: None,
    seed: int = 0,
) -> dict[str, Timing]:
    """Measure the candidates in turns: every round takes one sample of each.

    budget   seconds per candidate, spent in `rounds` samples; a candidate whose single call is
             longer than a sample takes part in fewer rounds, one at least
    rounds   samples per candidate
    turn     told whose turn it is, whenever that changes, before the clock is read
    seed     of the orders

    Every candidate is called once, untimed, before anything is timed. Each round has an order of
    its own, shuffled by a fixed seed: nobody is always measured behind the same neighbour, whose
    working set it would find in the caches.
    """
    order = random.Random(seed)
    names = list(candidates)
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    places: dict[str, list[int]] = {name: [] for name in candidates}
    calls: dict[str, int] = {}
    remaining = dict.fromkeys(candidates, budget)
    with _collector_off():
        for name, run in candidates.items():
            turn(name)
            run()
        for place, (name, run) in enumerate(candidates.items()):
            turn(name)
            calls[name], single = _calibrate(run, budget / rounds, clock)
            if single >= budget:
                seconds[name].append(single)
                places[name].append(place)
                remaining[name] = 0.0
        for _ in range(rounds):
            for place, name in enumerate(order.sample(names, len(names))):
                if remaining[name] <= 0:
                    continue
                run = candidates[name]
                turn(name)
                if calls[name] > 1:
                    run()  # bring its operands back into the caches
                elapsed = _elapsed_seconds(run, calls[name], clock)
                seconds[name].append(elapsed / calls[name])
                places[name].append(place)
                if calls[name] == 1:
                    remaining[name] -= elapsed
    return {
        name: Timing(tuple(samples), calls[name], tuple(places[name]))
        for name, samples in seconds.items()
    }


def in_rounds(
    samplers: Mapping[str, Callable[[], float | None]],
    rounds: int,
    done: Callable[[float], None] = lambda rounds: None,
) -> dict[str, list[float]]:
    """Return the samples of each sampler, one for every round, rounds in an order of their own.

    done  told how many rounds are
    """
    order = random.Random(0)
    names = list(samplers)
    samples: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        for name in order.sample(names, len(names)):
            sample = samplers[name]()
            if sample is not None:
                samples[name].append(sample)
        done(number + 1)
    return samples


def fastest(candidates: Mapping[str, Run], *, clock: Clock = time.process_time) -> str:
    """Return the name of the candidate that a short look says is the fastest.

    By the shortest of a few samples, which noise cannot make shorter: enough to choose among the
    ways to call one library, not to report a number.
    """
    if len(candidates) == 1:
        return next(iter(candidates))
    timings = measure(candidates, budget=0.02, rounds=7, clock=clock)
    return min(timings, key=lambda name: min(timings[name].samples))


def _calibrate(run: Run, sample: float, clock: Clock) -> tuple[int, float]:
    """Return how many calls last about `sample` seconds, and how long one call took."""
    calls = 1
    while True:
        elapsed = _elapsed_seconds(run, calls, clock)
        per_call = elapsed / calls
        if elapsed >= sample / 4:
            return max(1, round(sample / per_call)), per_call
        calls *= 4 if elapsed > 0 else 16


def _elapsed_seconds(run: Run, calls: int, clock: Clock) -> float:
    start = clock()
    for _ in repeat(None, calls):
        run()
    return clock() - start


@contextmanager
def _collector_off() -> Iterator[None]:
    """Disable garbage collection inside: its pauses would belong to nobody."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
