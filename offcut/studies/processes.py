"""Intervals of what several processes measured: a process is one draw, of which all its rounds tell a single number.

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
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

from offcut.experiment.timing import Ratio
from offcut.studies.samples import Sample

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
