"""A few options stand for many: which are kept, and what a call loses by the others' absence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, combinations

import numpy as np
import pytest

from offcut.costmodel import select_options
from tests.agree import nearly

SEEDS = range(12)


def drawn(seed: int) -> np.ndarray:
    """Seconds of five options at some calls, each option good at some of them, or all alike."""
    draw = np.random.default_rng(seed)
    return draw.choice([1.0, 1.5, 2.0], (5, 6)) if seed % 2 else draw.uniform(1, 2, (5, 30))


def subsets(count: int, most: int) -> Iterator[tuple[int, ...]]:
    return chain.from_iterable(combinations(range(count), size) for size in range(1, most + 1))


def call_ratios(seconds: np.ndarray, options: Iterable[int]) -> list[float]:
    """Return what each call takes by the fastest of some options, over the best of all: number by number."""
    return [min(column[at] for at in options) / min(column) for column in seconds.T.tolist()]


def test_the_option_that_is_taken_alone_is_kept_and_no_more_than_are_worth_it() -> None:
    seconds = np.array([[1.0, 2.0, 1.0], [2.0, 1.0, 2.0], [1.2, 1.2, 1.0], [2.0, 1.0, 1.0]])
    assert select_options(seconds, 1, 0.01).options == (0,)
    assert select_options(seconds, 1, 0.01).regret == nearly(1.0)
    assert select_options(seconds, 1, 0.01).mean == nearly(1 / 3)
    assert select_options(seconds, 2, 0.01).options == (0, 1)
    assert select_options(seconds, 4, 0.01).options == (0, 1)
    assert select_options(seconds, 2, 0.4).options == (0,)
    assert select_options(seconds[[0, 2]], 2, 0.01).options == (0, 1)
    assert select_options(seconds[:1], 3, 0.0).options == (0,)


def test_others_that_are_as_fast_at_every_call_replace_the_one_that_is_taken_alone() -> None:
    better = select_options(np.array([[2.0, 3.0], [1.0, 1.0], [1.5, 1.0]]), 4, 0.01)
    assert better.options == (1,)
    assert (better.regret, better.mean, better.calls) == (0.0, 0.0, 2)
    assert str(better) == "at most 0.0% longer than the best of all, 0.0% in the mean of 2 calls"
    single = select_options(np.array([[2.0], [1.0], [3.0]]), 2, 0.01)
    assert single.options == (1,)
    assert str(single).endswith("in the mean of 1 call")
    pair = select_options(np.array([[2.0, 2.0], [1.0, 3.0], [3.0, 1.0]]), 2, 0.01)
    assert pair.options == (1, 2)


def test_it_is_kept_where_few_calls_are_looked_at() -> None:
    seconds = np.array([[2.0, 2.0], [1.0, 3.0], [3.0, 1.0], [1.5, 1.5]])
    kept = [select_options(seconds, most, 0.01, keeps_first=True) for most in (1, 2, 3)]
    assert [one.options for one in kept] == [(0,), (0, 1), (0, 1, 2)]
    assert [one.mean for one in kept] == nearly([1.0, 0.5, 0.0])


@pytest.mark.parametrize("most", [1, 2, 3, 5, 9])
@pytest.mark.parametrize("seed", SEEDS)
def test_no_call_takes_longer_than_by_the_first(seed: int, most: int) -> None:
    seconds = drawn(seed)
    chosen = select_options(seconds, most, 0.01)
    assert len(chosen.options) <= most
    assert (seconds[list(chosen.options)].min(axis=0) <= seconds[0]).all()


@pytest.mark.parametrize("most", [1, 2, 3, 5])
@pytest.mark.parametrize("seed", SEEDS)
def test_no_set_of_options_takes_less_in_the_mean(seed: int, most: int) -> None:
    seconds = drawn(seed)
    chosen = select_options(seconds, most, 0.0)
    ratios = call_ratios(seconds, chosen.options)
    assert chosen.regret == nearly(max(ratios) - 1)
    assert chosen.mean == nearly(sum(ratios) / len(ratios) - 1)
    for some in subsets(len(seconds), most):
        own = call_ratios(seconds, some)
        if all(a <= b for a, b in zip(own, call_ratios(seconds, [0]), strict=True)):
            assert sum(own) >= sum(ratios) * (1 - 1e-12)


def test_options_that_differ_by_rounding_are_equal_and_the_first_one_stays() -> None:
    seconds = np.array([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0 * (1 - 2**-52)]])
    selection = select_options(seconds, 2, 0.01)
    assert (selection.options, selection.regret, selection.mean) == ((0,), 0.0, 0.0)
