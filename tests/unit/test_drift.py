"""Times scaled to what the default schedule took first, at each size, whatever else the machine did since."""

from __future__ import annotations

import math

from offcut import Outcome, Record, Schedule
from offcut.tuning.measuring.jobs import sample_until_ranked
from offcut.tuning.recorded_trials import DriftReference
from tests.agree import nearly
from tests.facade import Limits, Measured, Time

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
