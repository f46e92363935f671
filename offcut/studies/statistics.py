"""What samples say: seconds of a call, ratios with intervals over processes, means, percentiles, regret, profiles.

An interval is that of what several processes differ by (`offcut.studies.statistics`). Of one process it is that of the order statistics
of rounds, which assumes no distribution. Its rounds on a machine that others use are not independent: of so many rounds as many count
as this process had of the machine.

Intervals of what several processes measured: a process is one draw, of which all its rounds tell a single number.

Where a process happens to lay its arrays, its stack, its code and what Python holds moves a small kernel by some per cent, the
same way in each of its rounds. So rounds of one process agree with each other and not with those of the next one; an
interval of rounds alone leaves out the larger part. Here a process is its median, or the median of its ratios; what these differ by
from process to process is all that the interval is made of, and how they differ within is a part of that. Logarithms of medians
are close to normal, and Student's distribution holds for the few there are. What else the machine does meanwhile is in what processes
differ by, too, since they are measured at different times.

Source: Kalibera and Jones, Rigorous benchmarking in reasonable time, 2013 (what is repeated is the highest level that varies);
Mytkowicz, Diwan, Hauswirth, Sweeney, Producing wrong data without doing anything obviously wrong, 2009 (layouts);
Georges, Buytaert, Eeckhout, Statistically rigorous Java performance evaluation, 2007.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from offcut.experiment.timing import Ratio, median_interval, ratio_in_turns, ratio_of_medians
from offcut.studies.samples import CALLS, WALL, Sample

CHANCE = 0.05
"""That an interval does not hold the value."""
NORMAL_FREEDOM = 200
"""Degrees of freedom from which on Student's distribution is the normal one."""
MAX_PROCESSES = 1000
"""Processes of a study at most."""
MAX_ROUNDS = 100_000
"""Rounds of a cell at most: each is a call at least, however little time there is."""


def seconds_by_process(sample: Sample) -> dict[int, list[float]]:
    """Return the seconds of each round, by process; nothing of a sample without processes."""
    seconds: dict[int, list[float]] = {}
    for number, one in zip(sample.process, sample.seconds, strict=False):
        seconds.setdefault(number, []).append(one)
    return seconds


def first_rounds(sample: Sample, count: int) -> Sample:
    """Return the first rounds of each process, so many at most."""
    places = [place for place, number in enumerate(sample.round) if number < count]
    seconds = tuple(sample.seconds[place] for place in places)
    return replace(
        sample, seconds=seconds, process=tuple(sample.process[place] for place in places)
    )


def log_medians(sample: Sample) -> dict[int, float]:
    """Return the logarithm of the median seconds of a call, by process."""
    by_process = seconds_by_process(sample)
    return {number: math.log(statistics.median(some)) for number, some in by_process.items()}


def log_ratios(this: Sample, other: Sample) -> dict[int, float]:
    """Return the logarithm of the seconds of `this` over those of `other`, by process, those that both have.

    Of two that took turns, the median of the ratios of each round. Of two folders, the ratio of the shortest rounds of the processes
    of one number, which lay their arrays alike: what disturbs a round makes it longer, and disturbs the other folder at another time.
    """
    first, second = seconds_by_process(this), seconds_by_process(other)
    pairs = {number: (first[number], second[number]) for number in first if number in second}
    if not this.turns or this.turns != other.turns:
        return {
            number: math.log(min(some) / min(others)) for number, (some, others) in pairs.items()
        }
    return {
        number: math.log(statistics.median(a / b for a, b in zip(*both, strict=False)))
        for number, both in pairs.items()
    }


def mean_interval(logs: Sequence[float]) -> Ratio:
    """Return e to the mean of the values of some processes, two at least, with its 95 % interval."""
    half = quantile(len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    middle = statistics.fmean(logs)
    return Ratio(math.exp(middle), math.exp(middle - half), math.exp(middle + half))


def tail(t: float, freedom: int) -> float:
    """Return the chance that a value of Student's distribution lies further from 0 than `t`, on either side.

    Source: Abramowitz and Stegun, Handbook of mathematical functions, 26.7.3 and 26.7.4.
    """
    if freedom >= NORMAL_FREEDOM:
        return math.erfc(abs(t) / math.sqrt(2.0))
    angle = math.atan(abs(t) / math.sqrt(freedom))
    cosine, is_odd = math.cos(angle), freedom % 2
    term = cosine if is_odd else 1.0
    total = term if freedom > 1 or not is_odd else 0.0
    for k in range(2 + is_odd, freedom - 1, 2):
        term *= cosine**2 * (k - 1) / k
        total += term
    inside = math.sin(angle) * total
    return 1.0 - ((angle + inside) * 2 / math.pi if is_odd else inside)


@cache
def quantile(freedom: int, chance: float = CHANCE) -> float:
    """Return how many standard errors an interval of Student's distribution has on either side, so that it misses by `chance`."""
    return _least(lambda t: tail(t, freedom) <= chance)


def _least(holds: Callable[[float], bool]) -> float:
    """Return the least number from 0 on for which a condition holds that goes on to hold."""
    low, high = 0.0, 1.0
    while not holds(high):
        low, high = high, 2 * high
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def processes_needed(deviation: Callable[[int], float], room: float, power: float = 0.9) -> int:
    """Return how many processes it takes until a change is found.

    deviation  of the logarithm of a ratio from process to process, where there are so many
    room       the logarithm of the change, less the margin that the interval has to lie beyond
    power      the chance of finding it
    """
    count, more = 2, quantile(NORMAL_FREEDOM, 2 * (1 - power))
    while count < MAX_PROCESSES:
        if (quantile(count - 1) + more) * deviation(count) <= room * math.sqrt(count):
            break
        count += 1
    return count


def false_discovery_limit(chances: Sequence[float], rate: float = CHANCE) -> float:
    """Return the chance up to which a change counts, so that at most a part of those that count is false; 0 where none does.

    chances  of each, that there is no change

    Source: Benjamini and Hochberg, Controlling the false discovery rate, 1995.
    """
    ordered = sorted(chances)
    limits = (
        chance for rank, chance in enumerate(ordered, 1) if chance <= rate * rank / len(ordered)
    )
    return max(limits, default=0.0)


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
