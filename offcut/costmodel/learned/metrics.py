"""How well predicted seconds order what was measured: functions of one group, all of whose members are comparable.

Each takes measured and predicted seconds in the same order. A pair whose measured seconds are nearer than their noise is a tie:
half the distance of the quartiles of each, as errors add up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


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
