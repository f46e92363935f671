"""Decisions: their alternatives are counted, reached by neighbours, drawn and crossed inside."""

from collections import deque
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from offcut.search.decisions import AllOf, CaseOf, Decision, OneOf

TILES = OneOf((1, 2, 4, 8), is_ordered=True)
TAILS = OneOf(("cut", "mask", "pad"))
CASES = CaseOf(
    {None: AllOf((TILES, TAILS)), 0: AllOf((TAILS,)), 1: AllOf((TAILS,))},
    lambda case, at, other: (at[-1],) if other is not None else (1, at[-1]),
    lambda case, other: None in (case, other),
)
DECISIONS: dict[str, Decision[Any]] = {
    "one of several, in order": TILES,
    "one of several": TAILS,
    "all of several": AllOf((TILES, TAILS, AllOf((TAILS,)), AllOf(()))),
    "one of several cases": CASES,
}


def reachable(decision: Decision[Any], first: object) -> set[Any]:
    reached, queue = {first}, deque([first])
    while queue:
        for other in decision.neighbours(queue.popleft()):
            if other not in reached:
                reached.add(other)
                queue.append(other)
    return reached


@pytest.mark.parametrize("name", DECISIONS)
def test_alternatives_are_as_many_as_the_size_and_what_neighbours_reach(name: str) -> None:
    decision = DECISIONS[name]
    every = list(decision.alternatives())
    assert len(every) == len(set(every)) == decision.size
    assert all(reachable(decision, one) == set(every) for one in every[:2])
    assert all(one not in decision.neighbours(one) for one in every)


@pytest.mark.parametrize("name", DECISIONS)
def test_what_is_drawn_and_crossed_is_an_alternative(name: str) -> None:
    decision, rng = DECISIONS[name], Random(0)
    every = set(decision.alternatives())
    drawn = [decision.sample(rng) for _ in range(200)]
    assert set(drawn) == every
    assert {decision.crossover(a, b, rng) for a, b in pairwise(drawn)} <= every


def test_ordered_options_neighbour_the_ones_before_and_after_and_others_all() -> None:
    assert [tuple(TILES.neighbours(tile)) for tile in (1, 4, 8)] == [(2,), (2, 8), (4,)]
    assert tuple(TAILS.neighbours("mask")) == ("cut", "pad")


def test_cases_that_are_not_beside_each_other_are_crossed_by_what_is_most_like() -> None:
    assert (1, ("pad",)) not in CASES.neighbours((0, ("pad",)))
    crossed = {CASES.crossover((0, ("cut",)), (1, ("pad",)), Random(k)) for k in range(40)}
    assert crossed == {(case, (tail,)) for case in (0, 1) for tail in ("cut", "pad")}
