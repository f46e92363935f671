"""Spaces that are products of choices: every explorer finds the least of a price, and stays inside."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain, combinations, pairwise, product
from random import Random
from typing import Any

import numpy as np
import pytest
from conftest import rejection

import offcut as oc
from offcut import Schedule
from offcut.costmodel import Machine, select_options
from offcut.errors import PartitionError
from offcut.schedule import Separate, Split
from offcut.search import product_space
from offcut.search.explorers import Explorer
from offcut.search.schedule_space import AllOf, CaseOf, Decision, OneOf, Point
from tests.agree import nearly
from tests.facade import LoopCuts, OpenDecisions, TriedSchedule, get_explorer, processor

ROWS, COLUMNS = (1, 2, 4, 8, 16), (16, 32, 64)


def written(point: Point) -> Schedule:
    rows, columns = point
    return Schedule.parse(
        f"schedule C\nsplit C.i cut {rows} as i_tile i_in\nsplit C.j cut {columns} as j_tile j_in\n"
    )


def read(schedule: Schedule) -> Point | None:
    every = ((rows, columns) for rows in (*ROWS, 32) for columns in COLUMNS)
    return next((point for point in every if written(point) == schedule), None)


def price(schedule: Schedule) -> float:
    rows, columns = read(schedule) or (0, 0)
    return 1.0 + abs(float(str(rows)) - 8) + abs(float(str(columns)) - 32) / 16


SPACE = product_space(written((1, 16)), (ROWS, COLUMNS), written, read, expected=price)


def test_all_points_are_listed_once_the_first_before_all_others() -> None:
    found = list(SPACE.enumerate())
    assert found[0] == SPACE.first
    assert len(found) == len(set(found)) == SPACE.size == 15
    assert all(one in SPACE for one in found)
    assert list(SPACE.enumerate(3)) == found[:3]


def test_points_that_are_written_alike_are_one_schedule() -> None:
    said = product_space(  # the last choice says nothing of rows that are not cut
        written((1, 16)),
        (ROWS, COLUMNS, ("a", "b")),
        lambda point: written((point[0], 64 if point[0] != 1 and point[2] == "b" else 16)),
        lambda schedule: (*(read(schedule) or ()), "a"),
    )
    every = list(said.enumerate())
    points = product(ROWS, COLUMNS, ("a", "b"))
    assert every == list(dict.fromkeys(said.write(point) for point in points))
    assert len(every) == 9 < said.size
    assert list(said.enumerate(4)) == every[:4]
    assert said.neighbours(written((1, 16))) == (written((2, 16)),)


def test_neighbours_differ_in_one_choice_by_one_option() -> None:
    assert set(SPACE.neighbours(written((4, 16)))) == {
        written((2, 16)),
        written((8, 16)),
        written((4, 32)),
    }
    assert written((32, 16)) not in SPACE
    with rejection(
        "DescribeError: tune: cannot search around a schedule of C\n"
        "  because  it is not a point of the space\n"
        "  help     space.first\n"
        "  help     space.sample(rng)\n"
        "  help     space.neighbours(point)"
    ):
        SPACE.neighbours(written((32, 16)))


@pytest.mark.every(2)
@pytest.mark.parametrize("name", ["anneal", "beam", "evolution", "exhaustive"])
def test_explorers_find_the_least_of_a_price(name: str) -> None:
    _, explorer = get_explorer(name)
    seen: list[TriedSchedule] = []
    for number in range(4):
        proposed = explorer.propose(SPACE, seen, Random(number), 4)
        seen += [TriedSchedule(one, price(one)) for one in proposed]
    assert isinstance(explorer, Explorer)
    assert all(one.schedule in SPACE for one in seen)
    if name != "exhaustive":
        assert min(one.seconds or 0.0 for one in seen) == 1.0


# Decisions: their alternatives are counted, reached by neighbours, drawn and crossed inside.


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
def test_alternatives_are_what_neighbours_reach_and_what_is_drawn_and_crossed(name: str) -> None:
    decision, rng = DECISIONS[name], Random(0)
    every = list(decision.alternatives())
    assert len(every) == len(set(every)) == decision.size
    assert all(reachable(decision, one) == set(every) for one in every[:2])
    assert all(one not in decision.neighbours(one) for one in every)
    drawn = [decision.sample(rng) for _ in range(200)]
    assert set(drawn) == set(every)
    assert {decision.crossover(a, b, rng) for a, b in pairwise(drawn)} <= set(every)


def test_ordered_options_neighbour_the_ones_before_and_after_and_others_all() -> None:
    assert [tuple(TILES.neighbours(tile)) for tile in (1, 4, 8)] == [(2,), (2, 8), (4,)]
    assert tuple(TAILS.neighbours("mask")) == ("cut", "pad")


def test_cases_that_are_not_beside_each_other_are_crossed_by_what_is_most_like() -> None:
    assert (1, ("pad",)) not in CASES.neighbours((0, ("pad",)))
    crossed = {CASES.crossover((0, ("cut",)), (1, ("pad",)), Random(k)) for k in range(40)}
    assert crossed == {(case, (tail,)) for case in (0, 1) for tail in ("cut", "pad")}


# A few options stand for many: which are kept, and what a call loses by the others' absence.


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


@pytest.mark.parametrize("seed", range(12))
def test_no_set_of_options_takes_less_in_the_mean_and_no_call_longer_than_by_the_first(
    seed: int,
) -> None:
    seconds = drawn(seed)
    assert (seconds[list(select_options(seconds, 9, 0.01).options)].min(axis=0) <= seconds[0]).all()
    for most in (1, 2, 3, 5):
        chosen = select_options(seconds, most, 0.0)
        assert len(chosen.options) <= most
        assert (seconds[list(chosen.options)].min(axis=0) <= seconds[0]).all()
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


# How loops that carry dependences may be cut: what the space of a program in place offers.


SWEEP = oc.parse("""\
program sweep
size t in 1:65
size n in 3:1025
inout A: float32[n, n]
for s in 0:t
  for i in 1:n - 1
    for j in 1:n - 1
      A[i, j] = (A[i - 1, j] + A[i, j - 1] + A[i, j] + A[i, j + 1] + A[i + 1, j]) * 0.2
""")
MEAN = oc.parse("""\
program mean
size n in 3:1025
input A: float32[n, n]
output B: float32[n, n]
for i in 0:n
  for j in 0:n
    B[i, j] = A[i, j] * 0.5
""")


@pytest.fixture(scope="module")
def machine() -> Machine:
    return processor(oc.target("cpu", machine="cascade-lake").machine)


def test_a_loop_that_carries_dependences_has_no_tiles_that_run_together_or_twice(
    machine: Machine,
) -> None:
    ordered = {str(cut.levels[-1].tail) for cut in LoopCuts(SWEEP, machine).of("j")}
    free = {str(cut.levels[-1].tail) for cut in LoopCuts(MEAN, machine).of("j")}
    assert {"pad", "shift"} <= free
    assert free - ordered == {"pad", "shift"}


def test_loops_are_cut_together_where_single_tiles_of_them_are_legal(machine: Machine) -> None:
    cuts = LoopCuts(SWEEP, machine)
    legal = [{"i", "j"}, {"s"}, {"i"}]
    refused = [{"s", "i"}, {"s", "j"}, {"s", "i", "j"}]
    assert [cuts.are_legal(frozenset(loops)) for loops in legal] == [True] * 3
    assert [cuts.are_legal(frozenset(loops)) for loops in refused] == [False] * 3


def test_what_is_drawn_of_a_program_in_place_is_legal(machine: Machine) -> None:
    space = OpenDecisions(Schedule("sweep", (Separate(16),)), SWEEP, (), machine).space
    rng = Random(0)
    drawn = [space.sample(rng) for _ in range(40)]
    drawn += space.neighbours(drawn[0])[:20]
    drawn.append(space.crossover(drawn[0], drawn[1], Random(1)))
    with pytest.warns(DeprecationWarning, match=r"ScheduleSpace\.crossed is now .*\.crossover"):
        assert space.crossed(drawn[0], drawn[1], Random(1)) == drawn[-1]
    seen = {frozenset(s.axis for s in one.steps if isinstance(s, Split)) for one in drawn}
    assert frozenset({"i", "j"}) in seen
    assert not any("s" in loops and len(loops) > 1 for loops in seen)
    with pytest.raises(PartitionError, match="runs before"):
        oc.compile(SWEEP, schedule=Schedule.parse("schedule sweep\ncut s cut 2\ncut i cut 2"))
    for one in drawn[:3]:
        oc.compile(SWEEP, schedule=one)


EVEN = """\
program even
size n in 0:60
input X: int32[n + 12]
inout A: int32[n + 12]
for i in 0:n
  for j in 0:n
    if i % 2 == 0
      A[max(0, i - 1)] = X[j + 3]"""


@pytest.mark.parametrize("tile", [{}, {"j": 4}])
def test_conditions_stay_where_the_proof_does_not_see_through_loops_without_them(
    tile: dict[str, int],
) -> None:
    program = oc.parse(EVEN)
    cut = oc.partition(program, tile=tile)
    assert cut.loops == oc.partition(program, tile=tile, copies=1).loops
    assert "if i % 2 == 0" in str(cut)
    assert "conditions stay where they are" in cut.explain()
    cut.prove()
    for n in (0, 1, 5, 8):
        given = {"X": np.arange(n + 12, dtype=np.int32), "A": np.zeros(n + 12, np.int32)}
        np.testing.assert_array_equal(cut.run(given), program.run(given))
    with pytest.raises(oc.PartitionError) as refused:
        oc.partition(program, tile=tile, copies=8)
    assert "copies=1 leaves every condition where it is: less to compare" in refused.value.help
