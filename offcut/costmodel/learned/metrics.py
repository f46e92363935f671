"""How well predicted seconds order what was measured; and the objective of boosting, by the same order.

How well predicted seconds order what was measured: functions of one group, all of whose members are comparable.

Each takes measured and predicted seconds in the same order. A pair whose measured seconds are nearer than their noise is a tie:
half the distance of the quartiles of each, as errors add up.

The objective of boosting: the order of what is comparable, by how much it matters.

Of two members of a group, with d the logarithm of the ratio of their measured seconds and e that of the predicted ones,

    loss = T * cross_entropy(sigmoid(d / T), sigmoid(e / T))

is least where e = d. So it orders, as RankNet does, and what it learns is still in logarithms of seconds: a pair that is far apart only
has to be in order, and one that is nearer than T has to be near. The level of a group, which no pair sees, is held by a
small square beside the loss.

Source: Burges et al., "Learning to Rank using Gradient Descent", ICML 2005, whose target probabilities are 0, 1/2 and 1; here they
follow from what was measured.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from offcut.costmodel.arrays import Values


def pairs(
    seconds: ArrayLike, predicted: ArrayLike, spread: ArrayLike = 0.0, apart_by: float = 0.0
) -> tuple[float, int]:
    """Return how many pairs are in the right order, and how many there are that are no ties; equal predictions are half right.

    spread    distance of the quartiles over the median, of each
    apart_by  of the lesser of two, the share by which the other is more, at least
    """
    t, p = np.asarray(seconds, float), np.asarray(predicted, float)
    noise = np.broadcast_to(np.asarray(spread, float), t.shape) * t / 2
    apart = t[:, None] - t[None, :]
    slower = apart > np.maximum(np.hypot(noise[:, None], noise[None, :]), apart_by * t[None, :])
    with np.errstate(invalid="ignore"):
        above = np.sign(p[:, None] - p[None, :])
    return float((slower * (1 + np.nan_to_num(above)) / 2).sum()), int(slower.sum())


def pairwise_accuracy(
    seconds: ArrayLike,
    predicted: ArrayLike,
    spread: ArrayLike = 0.0,
    apart_by: float = 0.0,
    groups: Sequence[NDArray[Any]] | None = None,
) -> float:
    """Return the share of pairs in the right order; NaN where all are ties.

    apart_by  as of `pairs`
    groups    positions of members that are compared; None: all of them are
    """
    t, p = np.asarray(seconds, float), np.asarray(predicted, float)
    noise = np.broadcast_to(np.asarray(spread, float), t.shape)
    every = [np.arange(len(t))] if groups is None else groups
    counted = [pairs(t[group], p[group], noise[group], apart_by) for group in every]
    count = sum(number for _, number in counted)
    return sum(right for right, _ in counted) / count if count else float("nan")


def kendall_tau(seconds: ArrayLike, predicted: ArrayLike) -> float:
    """``(concordant - discordant) / sqrt(pairs untied in one * pairs untied in the other)``: tau-b; NaN where one is constant."""
    t, p = np.asarray(seconds, float), np.asarray(predicted, float)
    upper = np.triu_indices(len(t), 1)
    a, b = (np.sign(x[:, None] - x[None, :])[upper] for x in (t, p))
    untied = float(np.count_nonzero(a)) * float(np.count_nonzero(b))
    return float((a * b).sum() / np.sqrt(untied)) if untied else float("nan")


def recall_at(k: int, seconds: ArrayLike, predicted: ArrayLike) -> float:
    """Of the `k` fastest, the share that is among the `k` predicted to be; of fewer members all are asked for."""
    t, p = np.asarray(seconds, float), np.asarray(predicted, float)
    k = min(k, len(t))
    fastest, best = (set(np.argsort(x, kind="stable")[:k].tolist()) for x in (t, p))
    return len(fastest & best) / k


def regret(seconds: ArrayLike, predicted: ArrayLike, k: int = 1) -> float:
    """By which share of the least seconds the best of the `k` that are predicted to be the fastest misses them."""
    t = np.asarray(seconds, float)
    best = np.argsort(np.asarray(predicted, float), kind="stable")[:k]
    return float(t[best].min() / t.min() - 1)


def coverage(seconds: ArrayLike, predicted: ArrayLike, spread: ArrayLike) -> float:
    """The share that lies within ``predicted * exp(-spread) … predicted * exp(spread)``."""
    t, p = np.asarray(seconds, float), np.asarray(predicted, float)
    return float(np.mean(np.abs(np.log(t / p)) <= np.asarray(spread, float)))


TEMPERATURE = 0.2
"""T: seconds that differ by this share are told apart, for the most part; what others give is in docs/design/0022, as of the next two."""

LEVEL = 0.5
"""The weight of the square."""

_PARTNERS = 256
"""Members of a group that one is compared with, at most."""

Gradient = Callable[[Values], tuple[Values, Values]]


def gradient(
    groups: Sequence[Values], log_seconds: Values, log_base: Values, seed: int
) -> Gradient:
    """From corrections to the first and second derivatives of the loss, the mean over the partners of each row.

    groups       positions of rows that are comparable
    log_seconds  measured
    log_base     what is corrected: the prediction is ``log_base + correction``
    seed         of the partners, where there are more than a few hundred

    The second derivative is its upper bound ``1 / (4 T)``: steps by it never overshoot.
    """
    rng = np.random.default_rng(seed)
    by_length: dict[int, list[Values]] = defaultdict(list)
    for rows in groups:
        by_length[len(rows)].append(rows)
    stacked = [np.stack(alike) for length, alike in sorted(by_length.items()) if length > 1]
    partners = [np.stack([_some(rows, rng) for rows in alike]) for alike in stacked]
    pairs = list(zip(stacked, partners, strict=True))
    targets = [_above(log_seconds[rows], log_seconds[others]) for rows, others in pairs]
    bound = np.full(len(log_seconds), LEVEL)
    for rows in stacked:
        bound[rows] += 0.25 / TEMPERATURE

    def derivatives(correction: Values) -> tuple[Values, Values]:
        foreseen = log_base + correction
        first = LEVEL * (foreseen - log_seconds)
        for (rows, others), target in zip(pairs, targets, strict=True):
            first[rows] += (_above(foreseen[rows], foreseen[others]) - target).mean(axis=-1)
        return first, bound

    return derivatives


def _some(rows: Values, rng: np.random.Generator) -> Values:
    """Those that the members of a group are compared with."""
    if len(rows) <= _PARTNERS:
        return rows
    return np.sort(rng.choice(rows, _PARTNERS, replace=False))


def _above(one: Values, other: Values) -> Values:
    """``sigmoid((one - other) / T)`` of each pair, by group."""
    apart = (one[..., :, None] - other[..., None, :]) / TEMPERATURE
    probabilities: Values = 0.5 * (1 + np.tanh(apart / 2))
    return probabilities
