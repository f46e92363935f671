"""Explorers: they find the best of a price that is known, and propose the same from the same seed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from math import inf, isfinite
from pathlib import Path
from random import Random

import pytest
from conftest import refusals, rejection

from offcut import Schedule
from offcut.errors import PartitionError
from offcut.search import Sizes, Times
from offcut.search.explorers import EXPLORERS, Explorer, Judge
from offcut.search.explorers.gradient import coordinates, gradient, round_to
from offcut.search.explorers.tree import coarse_key
from tests.facade import ExpectedCost, ScheduleSpace, TriedSchedule, get_explorer
from tests.spaces import space, with_planted

ROOT = Path(__file__).parents[2]
GUIDED = ["anneal", "beam", "evolution", "gradient", "tree"]


def explored(
    explorer: Explorer, space: ScheduleSpace, rounds: int, until: Schedule, count: int = 8
) -> list[TriedSchedule]:
    """What an explorer tries in so many rounds, or until it tries one; each trial as fast as its price says."""
    seen: list[TriedSchedule] = []
    for number in range(rounds):
        found = explorer.propose(space, tuple(seen), Random(f"0:{number}"), count)
        tried = {one.schedule for one in seen}
        seen += [
            TriedSchedule(one, space.expected(one))
            for one in dict.fromkeys(found)
            if one not in tried
        ]
        if any(one.schedule == until for one in seen):
            break
    return seen


def best_of(seen: Sequence[TriedSchedule]) -> TriedSchedule:
    return min(seen, key=lambda one: inf if one.seconds is None else one.seconds)


@pytest.mark.parametrize("name", GUIDED)
@pytest.mark.parametrize("of", ["dense", "loops"])
def test_what_goes_by_a_price_finds_the_point_that_is_planted(name: str, of: str) -> None:
    plain = space(of, alternatives=1)
    best = plain.sample(Random(8))
    made = with_planted(plain, best)
    seen = explored(get_explorer(name)[1], made, 8, best)
    assert best_of(seen).schedule == best
    assert len(seen) <= 64


def test_exhaustive_tries_all_points_once_and_random_finds_the_best_of_a_small_space() -> None:
    plain = space("elementwise", alternatives=1)
    best = plain.sample(Random(3))
    seen = explored(get_explorer("random")[1], with_planted(plain, best), 40, best)
    assert best_of(seen).schedule == best
    found = get_explorer("exhaustive")[1].propose(plain, (), Random(0), plain.size + 1)
    assert len(found) == plain.size
    assert set(found) == set(plain.enumerate())


def test_an_explorer_ends_where_nothing_is_new() -> None:
    plain = space("elementwise", alternatives=1)
    seen = [TriedSchedule(one, 1.0) for one in plain.enumerate()]
    for name in EXPLORERS:
        assert not get_explorer(name)[1].propose(plain, seen, Random(0), 4)


@pytest.mark.every(3)
@pytest.mark.parametrize("name", list(EXPLORERS))
def test_proposals_are_new_and_of_the_space(name: str) -> None:
    made = with_planted(space("mixed"), space("mixed").first)
    seen = [TriedSchedule(made.first, 2.0), TriedSchedule(made.neighbours(made.first)[0], None)]
    found = get_explorer(name)[1].propose(made, seen, Random(4), 6)
    assert len(set(found)) == len(found) <= 6
    assert found
    assert not {one.schedule for one in seen} & set(found)
    assert all(one in made for one in found)


SCRIPT = """
from random import Random
from offcut.search.explorers import EXPLORERS, TriedSchedule, get_explorer
from tests.spaces import space, with_planted
made = with_planted(space("mixed", 2), space("mixed", 2).sample(Random(7)))
for name in EXPLORERS:
    seen = [TriedSchedule(made.first, 3.0)]
    for point in get_explorer(name)[1].propose(made, seen, Random("0:1"), 5):
        print(name, point.digest)
"""


@pytest.mark.slow
def test_a_seed_gives_the_same_proposals_in_any_process() -> None:
    here = StringIO()
    with redirect_stdout(here):
        exec(SCRIPT, {})
    seed = "1" if os.environ.get("PYTHONHASHSEED") == "2" else "2"
    there = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert here.getvalue() == there
    assert len(there.splitlines()) >= 4 * len(EXPLORERS)


def test_grains_tell_apart_what_a_pass_decides() -> None:
    made = space("dense", alternatives=1)
    points = [made.sample(Random(seed)) for seed in range(60)]
    counts = [len({coarse_key(point, level) for point in points}) for level in range(4)]
    assert counts == sorted(counts)
    assert counts[0] < counts[3] == len(set(points))


def test_a_gradient_points_to_fewer_doublings_of_what_is_too_large() -> None:
    plain = space("dense", alternatives=1)
    best = plain.sample(Random(8))
    made = with_planted(plain, best)
    near = [one for one in made.neighbours(best) if coordinates(one)[0] == coordinates(best)[0]]
    assert near

    for point in near[:4]:
        judge = Judge(made, ())
        slope = gradient(judge, point, made.neighbours(point))
        away = coordinates(point)[1] - coordinates(best)[1]
        assert slope @ away > 0, "the price falls towards the best"
        assert round_to(made, point, coordinates(best)[1]) == best
        assert round_to(made, point, coordinates(point)[1]) == point


def test_what_is_measured_comes_before_what_is_predicted() -> None:
    plain = space("elementwise", alternatives=1)
    a, b, c = list(plain.enumerate(3))
    made = replace(plain, expected={a: 1.0, b: 2.0, c: 3.0}.__getitem__)
    judge = Judge(made, [TriedSchedule(a, 50.0), TriedSchedule(b, None)])
    assert (judge(a), judge(b), judge(c)) == (50.0, inf, 150.0)
    assert judge.best(4) == [a]
    assert judge.to_try([c, b, a, c], 4) == [c]


def test_expected_seconds_are_of_the_distribution_and_end_at_a_factor() -> None:
    near, far, wrong = list(space("elementwise", alternatives=1).enumerate(3))
    one, many = (("n", 1),), (("n", 100),)
    asked: list[Schedule] = []

    def price(schedule: Schedule) -> dict[tuple[tuple[str, int], ...], float]:
        asked.append(schedule)
        if schedule == wrong:
            raise PartitionError("schedule", "cannot", because="it is not legal")
        return {one: 1.0, many: 5.0 if schedule == near else 500.0}

    expected = ExpectedCost(price, {one: 3.0, many: 1.0}, factor=10.0)
    assert expected(far) == 503 / 4
    assert expected(near) == 2.0
    assert expected(far) == inf
    assert expected(wrong) == inf
    assert not isfinite(expected(far))
    assert asked == [far, near, wrong]


def test_after_a_round_the_least_of_what_was_measured_bounds_the_others() -> None:
    sizes = (("n", 1),)
    cheap, dear = list(space("elementwise", alternatives=1).enumerate(2))

    class Learns:
        scale = 1.0

        def __call__(self, schedule: Schedule) -> Mapping[Sizes, float]:
            return {sizes: self.scale * (1.0 if schedule == cheap else 9.0)}

        def refit(self, times: Times) -> None:
            self.scale = 2.0

    expected = ExpectedCost(Learns(), {sizes: 1.0}, factor=4.0, looks=1)
    expected.refit({cheap: {sizes: (1.0, 0.0)}})

    assert (expected.least, expected(dear), expected(cheap)) == (2.0, inf, 2.0)


def test_a_function_and_a_class_are_explorers() -> None:
    def mine(
        space: ScheduleSpace, seen: Sequence[TriedSchedule], rng: Random, count: int
    ) -> list[Schedule]:
        return [space.first]

    class Mine:
        def propose(
            self, space: ScheduleSpace, seen: Sequence[TriedSchedule], rng: Random, count: int
        ) -> list[Schedule]:
            return [space.first]

    made = space("elementwise")
    for given, name in ((mine, "mine"), (Mine, "Mine"), (Mine(), "Mine")):
        called, explorer = get_explorer(given)
        assert called == name
        assert list(explorer.propose(made, (), Random(0), 1)) == [made.first]


class _Point:
    """An entry point of a plug-in."""

    name, value = "theirs", "plugin.search:theirs"

    def __init__(self, loaded: object) -> None:
        self.loaded = loaded

    def load(self) -> object:
        if isinstance(self.loaded, Exception):
            raise self.loaded
        return self.loaded


def test_a_plug_in_names_an_explorer(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(group: str) -> list[_Point]:
        assert group == "offcut.explorers"
        return [_Point(lambda space, seen, rng, count: [space.first])]

    monkeypatch.setattr("importlib.metadata.entry_points", found)
    made = space("elementwise")
    _, explorer = get_explorer("theirs")
    assert list(explorer.propose(made, (), Random(0), 1)) == [made.first]


REFUSED = refusals(
    """\
given "annealing", ()
tune: cannot take explorer='annealing'
  because  there is no such explorer
  help     anneal, beam, evolution, exhaustive, gradient, random, tree
  help     a function of (space, seen, rng, count)

given "annealing", [_Point(None)]
tune: cannot take explorer='annealing'
  because  there is no such explorer
  help     anneal, beam, evolution, exhaustive, gradient, random, tree
  help     theirs, of plug-ins
  help     a function of (space, seen, rng, count)

given 3, ()
tune: cannot take explorer=3
  because  it is neither a name nor a function, and has no method propose
  help     anneal, beam, evolution, exhaustive, gradient, random, tree
  help     a function of (space, seen, rng, count)

given "theirs", [_Point(ImportError("no module named plugin"))]
tune: cannot load explorer='theirs'
  at       plugin.search:theirs, an entry point of offcut.explorers
  because  ImportError: no module named plugin""",
    globals(),
)


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_explorer_is_refused(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given, plug_ins, text = REFUSED[case]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: plug_ins)
    with rejection(f"DescribeError: {text}"):
        get_explorer(given)
