"""How well predictions order what was measured, against counts one by one."""

from __future__ import annotations

from itertools import combinations
from math import exp, hypot, isnan
from random import Random

import pytest

from offcut.costmodel.learned.metrics import (
    coverage,
    kendall_tau,
    pairs,
    pairwise_accuracy,
    recall_at,
    regret,
)
from tests.agree import nearly

Drawn = tuple[list[float], list[float], list[float]]


def drawn(seed: int, count: int = 23) -> Drawn:
    """Measured and predicted seconds, some of them equal, and spreads."""
    rng = Random(seed)
    seconds = [rng.choice([1.0, 1.1, 2.0, 3.0, 4.5]) * rng.choice([1, 1.01]) for _ in range(count)]
    predicted = [one * rng.choice([0.5, 1.0, 1.0, 2.0]) for one in seconds]
    return seconds, predicted, [rng.choice([0.0, 0.05, 0.3]) for _ in range(count)]


@pytest.mark.parametrize("seed", range(5))
def test_pairs_are_those_whose_order_is_known(seed: int) -> None:
    seconds, predicted, spread = drawn(seed)
    right = count = 0.0
    for a, b in combinations(range(len(seconds)), 2):
        fast, slow = (a, b) if seconds[a] < seconds[b] else (b, a)
        noise = hypot(seconds[a] * spread[a] / 2, seconds[b] * spread[b] / 2)
        if seconds[slow] - seconds[fast] <= noise:
            continue
        count += 1
        right += (
            1 if predicted[fast] < predicted[slow] else 0.5 * (predicted[fast] == predicted[slow])
        )

    assert pairwise_accuracy(seconds, predicted, spread) == nearly(right / count)


@pytest.mark.parametrize("seed", range(5))
def test_tau_is_that_of_scipy(seed: int) -> None:
    seconds, predicted, _ = drawn(seed)

    from scipy.stats import kendalltau  # a second, of which the other tests need nothing

    assert kendall_tau(seconds, predicted) == nearly(kendalltau(seconds, predicted)[0])


@pytest.mark.parametrize("k", [1, 4, 23, 30])
def test_recall_and_regret_count_the_chosen(k: int) -> None:
    seconds, predicted, _ = drawn(7)
    order = sorted(range(len(seconds)), key=lambda one: (seconds[one], one))
    chosen = sorted(range(len(seconds)), key=lambda one: (predicted[one], one))[:k]
    most = min(k, len(seconds))

    assert recall_at(k, seconds, predicted) == len({*order[:most]} & {*chosen}) / most
    assert regret(seconds, predicted, k) == nearly(
        min(seconds[one] for one in chosen) / min(seconds) - 1
    )


def test_what_is_exact_is_perfect_and_what_is_turned_round_is_worst() -> None:
    seconds = [1.0, 2.0, 3.0, 4.0]
    turned = [-one for one in seconds]

    assert (pairwise_accuracy(seconds, seconds), pairwise_accuracy(seconds, turned)) == (1.0, 0.0)
    assert (kendall_tau(seconds, seconds), kendall_tau(seconds, turned)) == (1.0, -1.0)
    assert (regret(seconds, seconds), regret(seconds, turned)) == (0.0, 3.0)
    assert pairwise_accuracy(seconds, [1.0] * 4) == 0.5


def test_ties_alone_have_no_order() -> None:
    assert pairs([1.0, 1.15], [2.0, 1.0], apart_by=0.15) == (0.0, 0)
    assert isnan(pairwise_accuracy([1.0, 1.01], [1.0, 2.0], 0.1))
    assert isnan(kendall_tau([1.0, 1.0], [1.0, 2.0]))


def test_what_lies_within_the_spread_is_covered() -> None:
    predicted, spread = [1.0, 1.0, 1.0, 1.0], [0.1, 0.1, 0.5, 0.5]

    assert coverage([exp(0.09), exp(-0.11), exp(0.49), exp(-0.49)], predicted, spread) == 0.75
