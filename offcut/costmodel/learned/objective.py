"""The objective of boosting: the order of what is comparable, by how much it matters.

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

import numpy as np

from offcut.costmodel.arrays import Values

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
