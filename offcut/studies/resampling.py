"""The interval of a mean over the cells of two folders: not cells are independent, but the processes that all of them were measured in.

Of cells that were measured in several processes, the mean over the cells is one number for each process, and the interval is that of
these numbers. In folders of one process, the groups of cells that took turns are independent: what a machine does in a round, all
cells of the group share, and what it does for minutes, groups that follow each other do. So an interval has three parts there:

- *rounds* are resampled, the same ones for all cells of a group, in runs of a few since a round is like the one before; so many
  as this process had of the machine, by the load that was recorded;
- *groups* that differ by more than their rounds explain had a machine that changed between them: from three groups on their
  deviations count, those of groups that follow each other together (Newey and West, 1987);
- a *shift* that all cells of a folder have in common, no cell shows. It is allowed for on either side: `ALLOWED_DRIFT`, and what
  the loads of the two folders differ by. Peers show it: where it is divided out, a quarter of it is allowed for, since a load
  does not slow down everybody alike.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offcut.experiment.timing import Ratio
from offcut.studies.samples import PREDICTED, SIMULATED, Sample
from offcut.studies.statistics import (
    call_seconds,
    is_loaded,
    log_ratios,
    mean_interval,
    quantile,
    share_of,
)

ALLOWED_DRIFT = 0.02
"""What two runs at different times differ by on one machine without any change, as a part of the time."""
ALLOWED_OF_DRIFT = 0.25
"""The part of a drift that peers show by which other cells may have drifted more or less."""
DRAWS = 999
"""Sets of rounds that a variance is of."""
ROUNDS_TOGETHER = 3
"""Rounds that are drawn together: a disturbance outlasts a round."""
MIN_GROUPS = 3
"""Groups from which on their deviations count."""
QUANTILE = 1.96
"""Standard errors on either side of a 95 % interval of a normal distribution."""
OF_MEDIAN = 1.4826
"""The standard deviation of a normal distribution over the median of distances from its middle."""

Pair = tuple[Sample, Sample]
"""A cell in two folders."""


@dataclass(frozen=True, slots=True)
class MeanRatio:
    """The geometric mean of the seconds in the first folder over those in the second, with its 95 % interval.

    count    of cells
    allowed  the part of the interval, in logarithms, that is for what the folders have in common
    """

    ratio: Ratio
    count: int
    allowed: float

    @property
    def verdict(self) -> str:
        """Return ``faster``, ``slower``, or ``same`` where the interval holds 1."""
        if self.ratio.low > 1:
            return "faster"
        return "slower" if self.ratio.high < 1 else "same"


def allowed_shift(pairs: Sequence[Pair]) -> float:
    """Return by how much, in logarithms, cells may differ for the machine alone: by `ALLOWED_DRIFT`, and by what the loads differ.

    0 of cells that nobody times, but a cost model or a simulator gives.
    """
    timed = [pair for pair in pairs if pair[0].clock not in (PREDICTED, SIMULATED)]
    if not timed:
        return 0.0
    loads = [statistics.fmean(1.0 - share_of(pair[side]) for pair in timed) for side in (0, 1)]
    return math.log1p(ALLOWED_DRIFT) + math.log1p(abs(loads[0] - loads[1]))


def stray_under_load(pairs: Sequence[Pair]) -> float:
    """Return by how much, in logarithms, 19 of 20 cells stray from the middle one where others used the machine; 0 where nobody did.

    By the median of the distances, so that cells that have changed count little as long as they are fewer than half.
    """
    if not any(is_loaded(one) for pair in pairs for one in pair):
        return 0.0
    logs = [math.log(call_seconds(pair[0]) / call_seconds(pair[1])) for pair in pairs]
    middle = statistics.median(logs)
    return QUANTILE * OF_MEDIAN * statistics.median(abs(one - middle) for one in logs)


def mean_ratio(
    pairs: Sequence[Pair], peers: Sequence[Pair] = (), allowed: float = 0.0
) -> MeanRatio | None:
    """Return the geometric mean of the ratios of cells, over that of peers where there are some; None of no cells.

    allowed  by how much, in logarithms, the mean may differ for the machine alone

    Deterministic: what is drawn, a fixed seed draws.
    """
    if not pairs:
        return None
    if by_process := _by_process(pairs, peers):
        interval = mean_interval(by_process)
        low, high = interval.low / math.exp(allowed), interval.high * math.exp(allowed)
        return MeanRatio(Ratio(interval.value, low, high), len(pairs), allowed)
    groups = _groups(pairs, peers)
    logs = {
        id(pair): math.log(call_seconds(pair[0]) / call_seconds(pair[1]))
        for pair in (*pairs, *peers)
    }
    centre = statistics.fmean(logs[id(pair)] for pair in pairs)
    drift = statistics.fmean(logs[id(pair)] for pair in peers) if peers else 0.0
    within = sum(_variance(group) for group in groups)
    residuals = [
        sum(w * (logs[id(pair)] - (centre if w > 0 else drift)) for pair, w in group)
        for group in groups
    ]
    excess = max(_clustered_variance(residuals) - within, 0.0)
    deviations = quantile(max(len(groups) - 1, 1)) * math.sqrt(excess)
    spread = math.hypot(QUANTILE * math.sqrt(within), deviations)
    value, half = centre - drift, spread + allowed
    ends = (math.exp(x) for x in (value, value - half, value + half))
    return MeanRatio(Ratio(*ends), len(pairs), allowed)


def _by_process(pairs: Sequence[Pair], peers: Sequence[Pair]) -> list[float]:
    """Return the logarithm of the mean ratio, over that of peers, in each process that all cells were measured in; nothing of one."""
    cells = [(log_ratios(*pair), 1 / len(pairs)) for pair in pairs]
    cells += [(log_ratios(*pair), -1 / len(peers)) for pair in peers]
    common = set.intersection(*({*logs} for logs, _ in cells))
    values = [sum(w * logs[number] for logs, w in cells) for number in sorted(common)]
    return values if len(values) > 1 else []


def _groups(pairs: Sequence[Pair], peers: Sequence[Pair]) -> list[list[tuple[Pair, float]]]:
    """Return cells with their weights in the difference of the two means, those together that took turns in both folders."""
    groups: dict[tuple[str, str], list[tuple[Pair, float]]] = {}
    for some, weight in ((pairs, 1.0), (peers, -1.0)):
        for pair in some:
            key = pair[0].turns or pair[0].cell, pair[1].turns or pair[1].cell
            groups.setdefault(key, []).append((pair, weight / len(some)))
    return list(groups.values())


def _variance(group: Sequence[tuple[Pair, float]]) -> float:
    """Return the variance of a group's part of the mean, by rounds that are drawn anew in each folder."""
    draws = np.zeros(DRAWS)
    for side in (0, 1):
        samples = [pair[side] for pair, _ in group]
        rounds = max(len(one.seconds) for one in samples)
        share = min(share_of(one) for one in samples)
        positions = _drawn_rounds(rounds, max(round(rounds * share), 1), side)
        for (_, weight), one in zip(group, samples, strict=True):
            seconds = np.array(one.seconds)
            medians = np.median(seconds[positions * len(seconds) // rounds], axis=1)
            draws += (1 - 2 * side) * weight * np.log(medians)
    return float(np.var(draws))


def _drawn_rounds(rounds: int, count: int, seed: int) -> NDArray[np.int64]:
    """Return the numbers of `count` rounds for each draw, in runs of `ROUNDS_TOGETHER` that go on at the first round behind the last one."""
    rng = np.random.default_rng(seed)
    block = min(ROUNDS_TOGETHER, count)
    starts = rng.integers(0, rounds, (DRAWS, -(-count // block), 1))
    runs = (starts + np.arange(block)) % rounds
    return runs.reshape(DRAWS, -1)[:, :count]


def _clustered_variance(residuals: Sequence[float]) -> float:
    """Return the variance of a sum of groups' parts by how they stray, those that follow each other together; 0 of fewer than three."""
    count = len(residuals)
    if count < MIN_GROUPS:
        return 0.0
    each = np.array(residuals)
    independent, lags = float(each @ each), int(count ** (1 / 3) + 1e-9)
    lagged: float = sum(
        2 * (1 - k / (lags + 1)) * float(each[k:] @ each[:-k]) for k in range(1, lags + 1)
    )
    return max(independent, independent + lagged) * (count / (count - 1))
