"""Measuring in turns, against a clock that only the candidates advance."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable
from itertools import cycle
from typing import Any

import pytest

import offcut as oc
from offcut import Outcome, Record, Schedule
from offcut.experiment.timing import Timing, fastest, measure, paired_ratio
from offcut.tuning.measuring.jobs import sample_until_ranked
from offcut.tuning.problem import POINTS, distribution, read_sizes
from offcut.tuning.recorded_trials import DriftReference
from tests.agree import nearly
from tests.facade import Limits, Measured, Time, requested


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


def measured_alone(world: World, seconds: float, **options: Any) -> Timing:
    return measure({"x": world.candidate("x", seconds)}, clock=world.clock, **options)["x"]


def test_the_median_call_is_what_a_call_takes_and_candidates_keep_near_their_budget() -> None:
    world = World()
    both = {"slow": world.candidate("slow", 3e-3), "fast": world.candidate("fast", 1e-6)}
    timings = measure(both, clock=world.clock)
    assert timings["slow"].seconds == nearly(3e-3)
    assert timings["fast"].seconds == nearly(1e-6)
    assert timings["fast"].calls > timings["slow"].calls

    world = World()
    assert len(measured_alone(world, 1e-4, budget=0.3).samples) == 21
    assert world.now == nearly(0.3, rel=0.2)
    world = World()
    both = {"x": world.candidate("x", 0.25), "y": world.candidate("y", 0.01)}
    timings = measure(both, budget=1.0, rounds=20, clock=world.clock)
    assert [len(timings[name].samples) for name in "xy"] == [4, 20]
    world = World()
    once = measured_alone(world, 7.0, budget=0.3)
    assert (once.samples, once.quartiles, world.log) == ((7.0,), (7.0, 7.0), ["x", "x"])


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


def test_the_collector_is_as_it_was_after_a_measurement() -> None:
    def fails() -> None:
        raise ZeroDivisionError

    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError):
        measure({"x": fails})
    assert gc.isenabled()


def test_quartiles_spread_and_ratios_of_known_samples() -> None:
    timing = Timing((1.0, 2.0, 3.0, 4.0, 5.0), calls=1)
    assert (timing.seconds, timing.quartiles) == (3.0, (2.0, 4.0))
    assert timing.spread == nearly(2 / 3)
    drifting = tuple(float(1 + i) for i in range(21))
    ratio = paired_ratio(Timing(tuple(1.5 * x for x in drifting), 1), Timing(drifting, 1))
    assert (ratio.value, ratio.low, ratio.high) == (1.5, 1.5, 1.5)
    # As a table of order statistics has it: so many of the samples lie outside on each side.
    for count, outside in ((5, 0), (6, 0), (9, 1), (15, 3), (21, 5)):
        ratio = paired_ratio(Timing(drifting[:count], 1), Timing((1.0,) * count, 1))
        assert (ratio.low, ratio.high) == (1 + outside, count - outside)


def test_the_fastest_is_found_and_one_candidate_without_a_call() -> None:
    world = World()
    run = {"a": world.candidate("a", 3e-6), "b": world.candidate("b", 2e-6)}
    assert fastest(run, clock=world.clock) == "b"
    world = World()
    assert fastest({"a": world.candidate("a", 1.0)}, clock=world.clock) == "a"
    assert world.log == []


# Times scaled to what the default schedule took first, at each size, whatever else the machine did since.


SCHEDULE = Schedule("C", ())


def measured(seconds: dict[int, float], reference: tuple[float, ...]) -> Measured:
    times = tuple(Time({"n": n}, one, 0.1) for n, one in seconds.items())
    return Measured(SCHEDULE, Outcome.OK, times, reference=reference)


def seconds(one: Measured) -> list[float]:
    return [time.seconds for time in one.times]


def record(n: int, seconds: float) -> Record:
    place = ("p", "schedule C", "m", "0")
    return Record(*place, sizes={"n": n}, outcome=Outcome.OK, seconds=seconds, spread=0.0)


def test_later_batches_are_as_if_measured_with_the_first_or_with_what_records_know() -> None:
    anchor = DriftReference()
    assert seconds(anchor.scale(measured({1: 2.0, 9: 3.0}, (4.0, 8.0)))) == [2.0, 3.0]
    assert seconds(anchor.scale(measured({1: 3.0, 9: 3.0}, (6.0, 4.0)))) == [2.0, 6.0]

    anchor = DriftReference.from_records([record(1, 4.0), record(1, 5.0)])
    scaled = anchor.scale(measured({1: 3.0, 9: 3.0}, (8.0, 8.0)))
    assert seconds(scaled) == [1.5, 3.0]
    assert scaled.times[0].spread == 0.1, "a spread is a ratio"
    assert scaled.times[0].seconds * scaled.reference[0] / anchor.seconds[("n", 1),] == 3.0
    assert seconds(anchor.scale(measured({9: 3.0}, (16.0,)))) == [1.5]

    failed = Measured(SCHEDULE, Outcome.CRASHED, (), "ended by SIGSEGV", {"n": 1})
    kept = (failed, measured({1: 3.0}, ()), measured({1: 3.0}, (0.0,)))
    assert tuple(map(anchor.scale, kept)) == kept, "without a reference"


def test_the_spread_holds_what_the_default_varies_by_from_batch_to_batch_and_not_its_drift() -> (
    None
):
    anchor, shaky = DriftReference(), nearly(math.hypot(0.1, 0.1 * math.sqrt(2)), rel=0.1)
    drifting = [anchor.scale(measured({1: 1.0}, (1.01**k,))) for k in range(9)]
    assert drifting[0].times[0].spread == 0.1
    assert drifting[8].times[0].spread < 0.102
    for candidates in (1, 8):  # those of one batch tell of it once
        anchor = DriftReference()
        for batch in range(9):
            for _ in range(candidates):
                last = anchor.scale(measured({9: 1.0}, (1.0 + 0.1 * (batch % 2),)))
        assert last.times[0].spread == shaky


class Shared:
    """A machine whose speed changes between batches: a clock, and kernels that move it."""

    def __init__(self) -> None:
        self.now, self.slower = 0.0, 1.0

    def clock(self) -> float:
        return self.now

    def step(self, seconds: float) -> None:
        self.now += seconds * self.slower


def test_kernels_of_two_batches_compare_though_the_machine_slowed_down_between() -> None:
    machine, anchor = Shared(), DriftReference()
    found = {}
    for name, own, slower in (("first", 3e-3, 1.0), ("second", 2.5e-3, 1.5)):
        machine.slower = slower
        runs = {"policy": lambda: machine.step(4e-3), name: lambda own=own: machine.step(own)}
        timed = sample_until_ranked(lambda runs=runs: runs, Limits(budget=0.1), machine.clock)
        batch = measured({1: timed[name].seconds}, (timed["policy"].seconds,))
        found[name] = anchor.scale(batch).times[0].seconds, timed[name].seconds

    assert found["first"][1] < found["second"][1], "as it was timed"
    assert abs(found["first"][0] - 3e-3) < 1e-9
    assert abs(found["second"][0] - 2.5e-3) < 1e-9


# Distributions of sizes: what a user writes, and the vectors and weights that it means.


n, m = oc.dim("n", min=1, max=4096), oc.dim("m", min=8, max=4096, multiple_of=8)


def of(given: Any, *dims: Any) -> list[tuple[dict[str, int], float]]:
    A = oc.placeholder(dims, name="A")
    C = oc.compute(dims, lambda *at: A[at] + 1.0, name="C", axes=tuple("ij"[: len(dims)]))
    request = requested(C, None, None, "tune")
    found = [
        (dict(at), weight) for at, weight in distribution(request.program, request.users, given)
    ]
    assert sum(weight for _, weight in found) == nearly(1.0)
    return found


def test_lists_are_as_likely_weights_are_shares_and_several_sizes_are_every_combination() -> None:
    assert of({"n": [1, 7]}, n) == [({"n": 1}, 0.5), ({"n": 7}, 0.5)]
    assert of({"n": [1, 7, 7, 7]}, n) == [({"n": 1}, 0.25), ({"n": 7}, 0.75)]
    assert of({"n": {1: 3, 64: 1, 9: 0}}, n) == [({"n": 1}, 0.75), ({"n": 64}, 0.25)]
    assert of({"n": {1: 1, 2: 3}, "m": [8, 16]}, n, m) == [
        ({"n": 1, "m": 8}, 0.125),
        ({"n": 1, "m": 16}, 0.125),
        ({"n": 2, "m": 8}, 0.375),
        ({"n": 2, "m": 16}, 0.375),
    ]
    assert len(of({"n": (1, 512), "m": (8, 512)}, n, m)) <= 2 * POINTS
    assert of(None, 4, 5) == of(None) == of({}) == [({}, 1.0)], "without sizes there is one call"


def test_of_a_range_some_that_are_allowed_are_taken_both_ends_among_them() -> None:
    for given in ((1, 512), range(1, 513)):
        values = [at["n"] for at, _ in of({"n": given}, n)]
        assert (len(values), values[0], values[-1]) == (POINTS, 1, 512)
        assert values == sorted(values)
    assert [at["n"] for at, _ in of({"n": range(4, 0, -1)}, n)] == [1, 2, 3, 4]
    assert [at["n"] for at, _ in of({"n": (5, 5)}, n)] == [5]
    values = [at["m"] for at, _ in of({"m": (9, 1000)}, m)]
    assert all(value % 8 == 0 and 9 <= value <= 1000 for value in values)
    texts = ["n=1,7,33", "m = 8:64", "rows=1:512:8"]
    assert read_sizes(texts) == {"n": [1, 7, 33], "m": range(8, 65), "rows": range(1, 513, 8)}
