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


def test_the_first_batch_stays_and_later_ones_are_as_if_measured_then() -> None:
    anchor = DriftReference()

    assert seconds(anchor.scale(measured({1: 2.0, 9: 3.0}, (4.0, 8.0)))) == [2.0, 3.0]
    assert seconds(anchor.scale(measured({1: 3.0, 9: 3.0}, (6.0, 4.0)))) == [2.0, 6.0]


def test_what_records_know_first_is_the_anchor_at_its_sizes() -> None:
    anchor = DriftReference.from_records([record(1, 4.0), record(1, 5.0)])

    assert seconds(anchor.scale(measured({1: 3.0, 9: 3.0}, (8.0, 8.0)))) == [1.5, 3.0]
    assert seconds(anchor.scale(measured({9: 3.0}, (16.0,)))) == [1.5]


def test_a_spread_is_a_ratio_and_what_was_read_from_the_clock_can_be_found() -> None:
    anchor = DriftReference.from_records([record(1, 4.0)])
    scaled = anchor.scale(measured({1: 3.0}, (8.0,)))

    assert scaled.times[0].spread == 0.1
    assert scaled.times[0].seconds * scaled.reference[0] / anchor.seconds[("n", 1),] == 3.0


def test_the_spread_holds_what_the_default_varies_by_from_batch_to_batch_and_not_its_drift() -> (
    None
):
    anchor = DriftReference()
    drifting = [anchor.scale(measured({1: 1.0}, (1.01**k,))) for k in range(9)]
    shaky = [anchor.scale(measured({9: 1.0}, (1.0 + 0.1 * (k % 2),))) for k in range(9)]

    assert drifting[0].times[0].spread == 0.1
    assert drifting[8].times[0].spread < 0.102
    assert shaky[8].times[0].spread == nearly(math.hypot(0.1, 0.1 * math.sqrt(2)), rel=0.1)


def test_candidates_of_one_batch_tell_of_it_once() -> None:
    anchor = DriftReference()
    for batch in range(9):
        for _ in range(8):
            last = anchor.scale(measured({9: 1.0}, (1.0 + 0.1 * (batch % 2),)))
    assert last.times[0].spread == nearly(math.hypot(0.1, 0.1 * math.sqrt(2)), rel=0.1)


def test_what_has_no_reference_stays() -> None:
    failed = Measured(SCHEDULE, Outcome.CRASHED, (), "ended by SIGSEGV", {"n": 1})
    alone = measured({1: 3.0}, ())
    still = measured({1: 3.0}, (0.0,))

    anchor = DriftReference.from_records([record(1, 4.0)])
    assert [anchor.scale(one) for one in (failed, alone, still)] == [failed, alone, still]


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


def test_a_list_is_of_values_that_are_as_likely() -> None:
    assert of({"n": [1, 7]}, n) == [({"n": 1}, 0.5), ({"n": 7}, 0.5)]
    assert of({"n": [1, 7, 7, 7]}, n) == [({"n": 1}, 0.25), ({"n": 7}, 0.75)]


def test_weights_are_shares() -> None:
    found = of({"n": {1: 3, 64: 1, 9: 0}}, n)
    assert found == [({"n": 1}, 0.75), ({"n": 64}, 0.25)]


def test_of_a_range_some_are_taken_both_ends_among_them() -> None:
    for given in ((1, 512), range(1, 513)):
        values = [at["n"] for at, _ in of({"n": given}, n)]
        assert len(values) == POINTS
        assert (values[0], values[-1]) == (1, 512)
        assert values == sorted(values)
    assert [at["n"] for at, _ in of({"n": range(4, 0, -1)}, n)] == [1, 2, 3, 4]
    assert [at["n"] for at, _ in of({"n": (5, 5)}, n)] == [5]


def test_what_is_taken_of_a_range_is_allowed() -> None:
    values = [at["m"] for at, _ in of({"m": (9, 1000)}, m)]
    assert all(value % 8 == 0 and 9 <= value <= 1000 for value in values)


def test_several_sizes_are_every_combination_of_fewer_values() -> None:
    found = of({"n": {1: 1, 2: 3}, "m": [8, 16]}, n, m)
    assert found == [
        ({"n": 1, "m": 8}, 0.125),
        ({"n": 1, "m": 16}, 0.125),
        ({"n": 2, "m": 8}, 0.375),
        ({"n": 2, "m": 16}, 0.375),
    ]
    assert len(of({"n": (1, 512), "m": (8, 512)}, n, m)) <= 2 * POINTS


def test_a_program_without_sizes_has_one_call() -> None:
    assert of(None, 4, 5) == [({}, 1.0)]


def test_sizes_are_read_from_the_command_line() -> None:
    texts = ["n=1,7,33", "m = 8:64", "rows=1:512:8"]
    assert read_sizes(texts) == {"n": [1, 7, 33], "m": range(8, 65), "rows": range(1, 513, 8)}


def test_a_program_without_sizes_has_one_vector_however_it_is_said() -> None:
    assert of(None) == of({}) == [({}, 1.0)]
