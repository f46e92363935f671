"""Measuring in turns, against a clock that only the candidates advance."""

from __future__ import annotations

import gc
from collections.abc import Callable
from itertools import cycle

import pytest

from offcut.experiment.timing import Timing, fastest, measure, paired_ratio
from tests.agree import nearly


class World:
    """A clock, and candidates whose calls move it by known amounts."""

    def __init__(self) -> None:
        self.now = 0.0
        self.log: list[str] = []

    def clock(self) -> float:
        return self.now

    def candidate(self, name: str, *seconds: float) -> Callable[[], None]:
        durations = cycle(seconds)

        def run() -> None:
            self.log.append(name)
            self.now += next(durations)

        return run


def test_the_median_call_is_what_a_call_takes() -> None:
    world = World()
    timings = measure(
        {"slow": world.candidate("slow", 3e-3), "fast": world.candidate("fast", 1e-6)},
        clock=world.clock,
    )

    assert timings["slow"].seconds == nearly(3e-3)
    assert timings["fast"].seconds == nearly(1e-6)
    assert timings["fast"].calls > timings["slow"].calls


def test_every_round_measures_every_candidate_once_in_an_order_of_its_own() -> None:
    world = World()
    run = {name: world.candidate(name, 1.0) for name in "abc"}

    timings = measure(run, budget=30.0, rounds=30, clock=world.clock)

    assert all(timing.calls == 1 for timing in timings.values())
    log = "".join(world.log)
    assert log[:6] == "abcabc", "the untimed call and the calibration"
    rounds = [log[start : start + 3] for start in range(6, len(log), 3)]
    assert len(rounds) == 30
    assert set(rounds) == {"abc", "acb", "bac", "bca", "cab", "cba"}


def test_whose_turn_it_is_is_told_before_it_runs() -> None:
    world, told = World(), list[str]()
    runs = {name: world.candidate(name, 1.0) for name in "abc"}

    def turn(name: str) -> None:
        told.append(name)
        assert len(told) == len(world.log) + 1

    measure(runs, budget=5.0, rounds=5, clock=world.clock, turn=turn)

    assert told == world.log


def test_a_candidate_keeps_near_its_budget() -> None:
    world = World()
    timings = measure({"x": world.candidate("x", 1e-4)}, budget=0.3, clock=world.clock)

    assert len(timings["x"].samples) == 21
    assert world.now == nearly(0.3, rel=0.2)


def test_a_candidate_longer_than_a_sample_takes_part_in_fewer_rounds() -> None:
    world = World()
    timings = measure(
        {"x": world.candidate("x", 0.25), "y": world.candidate("y", 0.01)},
        budget=1.0,
        rounds=20,
        clock=world.clock,
    )

    assert len(timings["x"].samples) == 4
    assert len(timings["y"].samples) == 20


def test_a_call_longer_than_the_budget_is_sampled_once() -> None:
    world = World()
    timing = measure({"x": world.candidate("x", 7.0)}, budget=0.3, clock=world.clock)["x"]

    assert timing.samples == (7.0,)
    assert timing.quartiles == (7.0, 7.0)
    assert world.log == ["x", "x"]


def test_the_collector_is_as_it_was_after_a_measurement() -> None:
    def fails() -> None:
        raise ZeroDivisionError

    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError):
        measure({"x": fails})
    assert gc.isenabled()


def test_quartiles_and_spread_of_known_samples() -> None:
    timing = Timing((1.0, 2.0, 3.0, 4.0, 5.0), calls=1)

    assert timing.seconds == 3.0
    assert timing.quartiles == (2.0, 4.0)
    assert timing.spread == nearly(2 / 3)


def test_a_ratio_pairs_the_samples_of_one_round() -> None:
    drifting = tuple(float(1 + i) for i in range(21))
    this = Timing(tuple(1.5 * x for x in drifting), calls=1)

    ratio = paired_ratio(this, Timing(drifting, calls=1))

    assert (ratio.value, ratio.low, ratio.high) == (1.5, 1.5, 1.5)


@pytest.mark.parametrize(("count", "outside"), [(5, 0), (6, 0), (9, 1), (15, 3), (21, 5)])
def test_the_interval_of_a_ratio_is_the_tables_order_statistics(count: int, outside: int) -> None:
    this = Timing(tuple(float(1 + i) for i in range(count)), calls=1)

    ratio = paired_ratio(this, Timing((1.0,) * count, calls=1))

    assert (ratio.low, ratio.high) == (1 + outside, count - outside)


def test_the_fastest_is_found() -> None:
    world = World()
    run = {"a": world.candidate("a", 3e-6), "b": world.candidate("b", 2e-6)}

    assert fastest(run, clock=world.clock) == "b"


def test_one_candidate_is_the_fastest_without_a_call() -> None:
    world = World()

    assert fastest({"a": world.candidate("a", 1.0)}, clock=world.clock) == "a"
    assert world.log == []
