"""A few options stand for many: which are kept, and what a call loses by the others' absence."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from offcut.costmodel import cover


def test_one_option_that_is_best_everywhere_is_enough() -> None:
    found = cover(np.array([[2.0, 3.0], [1.0, 1.0], [1.5, 1.0]]), 4, 0.0)
    assert found.options == (1,)
    assert (found.regret, found.mean, found.calls) == (0.0, 0.0, 2)


def test_an_option_joins_for_what_it_gains_in_the_mean_and_no_more_than_so_many() -> None:
    seconds = np.array([[1.0, 2.0, 1.0], [2.0, 1.0, 2.0], [1.2, 1.2, 1.0]])
    assert cover(seconds, 1, 0.01).options == (2,)
    assert cover(seconds, 1, 0.01).regret == pytest.approx(0.2)
    assert cover(seconds, 2, 0.01).options == (2, 0)
    assert cover(seconds, 3, 0.01).options == (2, 0, 1)
    assert cover(seconds, 3, 0.01).regret == 0.0
    assert cover(seconds, 3, 0.1).options == (2,)
    assert cover(seconds, 3, 0.01, enough=0.2).options == (2,)


@pytest.mark.parametrize("seed", range(5))
def test_what_is_said_of_a_cover_is_so(seed: int) -> None:
    seconds = np.random.default_rng(seed).uniform(1, 2, (6, 40))
    found = cover(seconds, 3, 0.0, enough=0.0)
    ratio = seconds[list(found.options)].min(axis=0) / seconds.min(axis=0)
    assert found.regret == pytest.approx(ratio.max() - 1)
    assert found.mean == pytest.approx(ratio.mean() - 1)
    best = min(
        (seconds[list(some)].min(axis=0) / seconds.min(axis=0)).mean()
        for some in combinations(range(6), 3)
    )
    assert ratio.mean() <= best * 1.05  # greedy, beside the best three of all
