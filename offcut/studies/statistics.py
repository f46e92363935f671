"""What samples say: seconds of a call, ratios with intervals, geometric means, percentiles, regret, performance profiles.

An interval is that of what several processes differ by (`offcut.studies.processes`). Of one process it is that of the order statistics
of rounds, which assumes no distribution. Its rounds on a machine that others use are not independent: of so many rounds as many count
as this process had of the machine.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from offcut.experiment.timing import Ratio, median_interval, ratio_in_turns, ratio_of_medians
from offcut.studies.processes import log_medians, log_ratios, mean_interval
from offcut.studies.samples import CALLS, WALL, Sample

PERCENTILES = (50, 90, 95, 99)


def call_seconds(sample: Sample) -> float:
    """Return the seconds of a call: the median of the rounds, of several processes the geometric mean of their medians."""
    logs = log_medians(sample)
    return math.exp(statistics.fmean(logs.values())) if logs else statistics.median(sample.seconds)


def call_interval(sample: Sample) -> tuple[float, float]:
    """Return the 95 % interval of the seconds of a call."""
    logs = log_medians(sample)
    if len(logs) < 2:
        return median_interval(sample.seconds, share_of(sample))
    interval = mean_interval([*logs.values()])
    return interval.low, interval.high


def ratio(this: Sample, other: Sample) -> Ratio:
    """Return the seconds of `this` over those of `other`, with its 95 % interval.

    By the processes that both were measured in, where there are several. Else, of two that took turns, the median of the
    ratios of each round; of others, the ratio of the medians.
    """
    logs = log_ratios(this, other)
    if len(logs) > 1:
        return mean_interval([*logs.values()])
    shares = share_of(this), share_of(other)
    if this.turns and this.turns == other.turns:
        return ratio_in_turns(this.seconds, other.seconds, min(shares))
    return ratio_of_medians(this.seconds, other.seconds, shares)


def is_of_one_process(sample: Sample) -> bool:
    """Return whether calls were timed in one process: what differs from process to process is not in its interval."""
    is_timed = bool(sample.seconds) and sample.clock in (CALLS, WALL)
    return is_timed and len({*sample.process}) < 2


def share_of(sample: Sample) -> float:
    """Return how much of the machine the process had while a cell was measured, from 0 to 1: of its processor, less what others used of all."""
    load = sample.load
    own = min(max(load.get("share", 1.0) - load.get("steal", 0.0), 0.0), 1.0)
    return own * (1.0 - min(max(load.get("others", 0.0), 0.0), 1.0))


def is_loaded(sample: Sample) -> bool:
    """Return whether others took a part of the machine that a measurement shows."""
    load = sample.load
    waits = load.get("share", 1.0) < 0.9 or load.get("steal", 0.0) > 0.05
    return waits or load.get("others", 0.0) > 0.1


@dataclass(frozen=True, slots=True)
class Mean:
    """A weighted geometric mean of ratios, with the interval that those of the ratios allow.

    count  of ratios
    """

    ratio: Ratio
    count: int


def geometric_mean(ratios: Sequence[Ratio], weights: Sequence[float]) -> Mean | None:
    """Return the mean; None of nothing.

    The interval treats the cells as independent: the logarithms' half widths add up as their squares do.
    """
    if not ratios:
        return None
    total = sum(weights)
    shares = [weight / total for weight in weights]
    pairs = list(zip(ratios, shares, strict=True))
    centre = sum(s * math.log(r.value) for r, s in pairs)
    below, above = (
        math.hypot(*(s * math.log(getattr(r, end) / r.value) for r, s in pairs))
        for end in ("low", "high")
    )
    ends = (math.exp(x) for x in (centre, centre - below, centre + above))
    return Mean(Ratio(*ends), len(ratios))


def geometric_mean_of_pairs(
    pairs: Sequence[tuple[Sample, Sample]], weights: Sequence[float]
) -> Mean | None:
    """Return the weighted geometric mean of the seconds of the first sample of each pair over those of the second; None of no pairs.

    Where all were measured in the same processes, the mean over the pairs is one number for each process, and the interval is that of
    these numbers: what a process happens to do, all of its cells share. Else the interval is that of `geometric_mean`.
    """
    mean = geometric_mean([ratio(*pair) for pair in pairs], weights)
    logs = [log_ratios(*pair) for pair in pairs]
    if mean is None or len(logs[0]) < 2 or any(one.keys() != logs[0].keys() for one in logs):
        return mean
    by_process = [
        sum(weight * one[number] for weight, one in zip(weights, logs, strict=True)) / sum(weights)
        for number in logs[0]
    ]
    return Mean(mean_interval(by_process), len(pairs))


def percentiles(seconds: Iterable[tuple[float, float]]) -> dict[int, float]:
    """Return the times that so many per cent of the calls do not exceed.

    seconds  a time and its weight, which is its share of the calls
    """
    ordered = sorted(seconds)
    total = sum(weight for _, weight in ordered)
    values_by_percent: dict[int, float] = {}
    for percent in PERCENTILES:
        passed = 0.0
        for value, weight in ordered:
            passed += weight
            if passed >= total * percent / 100 * (1 - 1e-12):
                values_by_percent[percent] = value
                break
    return values_by_percent


@dataclass(frozen=True, slots=True)
class Regret:
    """How much longer a contender takes than another choice, as a part of the latter: .02 is 2 %.

    mean     weighted by the calls; worst: of the cells, and at which
    """

    mean: float
    worst: float
    at: str


def regret(
    times: Mapping[str, float], best: Mapping[str, float], weights: Mapping[str, float]
) -> Regret | None:
    """Return the regret over the cells that both have; None where there are none.

    times, best  seconds by cell
    """
    both = [key for key in times if key in best]
    if not both:
        return None
    each = {key: times[key] / best[key] - 1 for key in both}
    total = sum(weights[key] for key in both)
    worst = max(both, key=lambda key: each[key])
    return Regret(sum(each[key] * weights[key] for key in both) / total, each[worst], worst)


def profile(
    times: Mapping[str, Mapping[str, float]], most: float = 16.0
) -> dict[str, list[tuple[float, float]]]:
    """Return the performance profiles: by contender, the share of cells in which it is at most so many times slower than the fastest.

    times  by contender, seconds by cell; a cell that a contender lacks is never within

    Source: Dolan and Moré, Benchmarking optimization software with performance profiles, 2002.
    """
    cells = sorted({cell for one in times.values() for cell in one})
    least = {cell: min(one[cell] for one in times.values() if cell in one) for cell in cells}
    curves: dict[str, list[tuple[float, float]]] = {}
    for name, one in times.items():
        slower = sorted(one[cell] / least[cell] for cell in one)
        points = [(1.0, sum(1 for x in slower if x <= 1.0) / len(cells))]
        points += [(x, (k + 1) / len(cells)) for k, x in enumerate(slower) if 1.0 < x <= most]
        curves[name] = [*points, (most, sum(1 for x in slower if x <= most) / len(cells))]
    return curves
