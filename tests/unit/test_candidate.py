"""Candidates of which some crash, hang, or are wrong: each is found out, and the others are measured."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import rejection
from planted_target import SLOW, Planted

import offcut as oc
from offcut import Outcome, Records, Schedule
from offcut.backends.host.scratch import PAGE
from offcut.errors import BusyError, OffcutError
from offcut.kernel import kernel_of
from offcut.tuning.measuring.candidate import Bench
from offcut.tuning.measuring.jobs import place_operands, sample_until_ranked
from offcut.tuning.measuring.reference import Operands, promote_to_float64, reference_results
from tests.agree import nearly
from tests.facade import Limits, Measured, Problem, Time, requested, stand_ins
from tests.spaces import dense

QUICK = Limits(patience=60.0, memory=1 << 30, budget=0.02, noise=math.inf)
SIZES = (({"n": 7}, 2.0), ({"n": 33}, 1.0))
FAULTS = {
    "crash": (Outcome.CRASHED, "ended by SIGABRT"),
    "hang": (Outcome.HUNG, "silent for 60 s"),
    "take_all_memory": (Outcome.OUT_OF_MEMORY, "MemoryError"),
    "crash_late": (Outcome.CRASHED, "ended by SIGABRT"),
    "fail": (Outcome.CRASHED, "RuntimeError: planted"),
    "miss_an_element": (Outcome.WRONG, "C: 1 of 112 elements are off; [6, 15] is "),
    "leave_poison": (Outcome.WRONG, "C: 1 of 112 elements are off; [6, 15] is nan, expected "),
    "write_behind": (Outcome.WRONG, "it writes outside of C"),
    "write_an_input": (Outcome.WRONG, "it writes its input A"),
    "be_slow": (Outcome.OK, ""),
    "nothing": (Outcome.OK, ""),
}
STRATEGIES = ("balance", "cut", "guard", "mask", "even", "residue", "pad", "shift", "ladder")


def problem(faults: Mapping[str, str], sizes: Any = SIZES) -> Problem:
    result, a, w = dense()
    target = Planted(faults, ticks=True)
    constants = stand_ins(["W"], result, [a, w], "tune")
    request = requested(result, [a, w], constants, "tune")
    return Problem(request, target.options("tune", threads=1), target, sizes)


def measured(problem: Problem, schedules: list[Schedule], limits: Limits) -> tuple[Measured, ...]:
    with Bench(problem, limits) as bench:
        return bench.measured(schedules)


@pytest.fixture(scope="module")
def schedules() -> dict[str, Schedule]:
    """By the fault that they have: legal ones, each different, whose kernels are in the cache."""
    result, a, w = dense()
    constants = stand_ins(["W"], result, [a, w], "tune")
    made = [
        oc.compile(result, [a, w], constants, strategy={"i": name}, threads=1).schedule
        for name in (*STRATEGIES, ("ladder", (4, 1)), ("ladder", (7, 1)))
    ]
    assert len(set(made)) == len(FAULTS)
    asked = problem({})
    for schedule in (None, *made):
        kernel_of(asked.request, asked.scheduled(schedule), asked.target)
    return dict(zip(FAULTS, made, strict=True))


@pytest.fixture(scope="module")
def bench(schedules: dict[str, Schedule]) -> Iterator[Bench]:
    faults = {s.digest: fault for fault, s in schedules.items() if fault != "nothing"}
    with Bench(problem(faults), QUICK) as found:
        yield found


@pytest.mark.slow
def test_every_candidate_is_accounted_for(bench: Bench, schedules: dict[str, Schedule]) -> None:
    good = schedules["nothing"]
    nonsense = Schedule("C", (*good.steps, *good.steps))
    told: list[Measured] = []

    found = bench.measured([*schedules.values(), nonsense, good], told.append)

    assert [one.schedule for one in found] == [*schedules.values(), nonsense, good]
    assert {one.schedule for one in told} == set(schedules.values()) | {nonsense}
    assert len(told) == len(schedules) + 1, "each is told once"
    for one, (outcome, because) in zip(found, FAULTS.values(), strict=False):
        assert one.outcome is outcome
        assert one.because.startswith(because)
        assert len(one.times) == (2 if outcome is Outcome.OK else 0)
        assert one.at == ({} if outcome is Outcome.OK else {"n": 7})
    assert found[-2].outcome is Outcome.REFUSED
    assert found[-2].because.startswith("schedule: ")
    assert found[-1] == found[-3]


@pytest.mark.slow
def test_a_slow_candidate_is_measured_as_slow(
    bench: Bench, schedules: dict[str, Schedule], tmp_path: Path
) -> None:
    asked = bench.problem
    slow, fast = bench.measured([schedules["be_slow"], schedules["nothing"]])
    (wrong,) = bench.measured([schedules["miss_an_element"]])

    assert slow.seconds(asked) == nearly(SLOW * fast.seconds(asked), rel=0.02)
    assert slow.reference == fast.reference
    assert [seconds > 0 for seconds in fast.reference] == [True, True]
    assert wrong.reference == ()
    assert wrong.seconds(asked) == math.inf
    records = Records(tmp_path / "records")
    records.add([*slow.records(asked, "hand", (1e-3,)), *fast.records(asked, "hand")])
    records.add(wrong.records(asked, "hand"))
    best = records.best(asked.program, asked.machine, oc.__version__, SIZES)
    assert best is not None
    assert Schedule.parse(best.schedule) == schedules["nothing"]
    assert [(r.sizes, r.predicted) for r in records] == [
        *[({"n": 7}, 1e-3), ({"n": 33}, None), ({"n": 7}, None), ({"n": 33}, None)],
        ({"n": 7}, None),
    ]


def test_each_is_told_before_the_next_one_begins(
    bench: Bench, schedules: dict[str, Schedule], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, check = list[Schedule](), bench._checked

    def checked(schedule: Schedule) -> Any:
        begun.append(schedule)
        return check(schedule)

    monkeypatch.setattr(bench, "_checked", checked)
    two = [schedules["nothing"], schedules["be_slow"]]
    told: list[tuple[Schedule, int]] = []
    found = bench.each([*two, two[0]], lambda one: told.append((one.schedule, len(begun))))

    assert told == [(two[0], 1), (two[1], 2)]
    assert found[0] == found[2]
    assert [len(one.reference) for one in found] == [2, 2, 2]
    assert bench.measured([]) == ()


def test_a_candidate_that_the_policy_would_crash_beside_is_measured(
    schedules: dict[str, Schedule],
) -> None:
    (found,) = measured(problem({"": "crash"}), [schedules["nothing"]], QUICK)

    assert found.outcome is Outcome.OK


def test_a_machine_too_loaded_to_rank_is_refused(
    bench: Bench, schedules: dict[str, Schedule], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "limits", replace(QUICK, noise=0.0))
    with pytest.raises(BusyError) as refused:
        bench.measured([schedules["nothing"]])

    told = str(refused.value).splitlines()
    assert told[0] == "tune: cannot rank candidates while this machine does other work"
    assert told[2].startswith("  because  the quartiles of one and the same kernel are ")
    assert told[3:] == [
        "  help     run it when nothing else runs",
        "  help     Limits(noise=…) takes less exact times",
    ]


def test_sizes_at_which_nothing_can_be_checked_are_refused() -> None:
    with rejection("""\
TargetError: tune: cannot check what C computes
  because  it has no meaning on the arrays that are drawn: run: cannot take n = 0
  help     constants={…}: arrays that fit each other"""):
        reference_results(problem({}, (({"n": 0}, 1.0),)))


def test_a_reference_that_takes_too_long_is_refused(schedules: dict[str, Schedule]) -> None:
    with rejection("""\
TargetError: tune: cannot check what C computes
  because  its reference: silent for 1e-09 s
  help     smaller sizes
  help     Limits(reference=…, memory=…)"""):
        measured(problem({}), [*schedules.values()], replace(QUICK, reference=1e-9))


def test_what_cannot_be_sent_to_a_child_is_refused(schedules: dict[str, Schedule]) -> None:
    planted = problem({})
    planted.target.faults = {"": lambda: None}  # type: ignore[attr-defined]

    with pytest.raises(OffcutError, match="cannot send a tuple to another process"):
        measured(planted, [*schedules.values()], QUICK)


def test_a_reference_of_finite_constants_is_a_program_that_reads_back() -> None:
    b = oc.dim("b", min=1, max=64)
    x, w = oc.placeholder((b, 8, 8, 4), name="X"), oc.placeholder((3, 3, 4, 4), name="W")
    y = oc.ops.conv2d(x, w, None, 1, 1, layout="NHWC", name="Y")
    program = requested(y, [x, w], stand_ins(["W"], y, [x, w], "tune"), "tune").program
    assert any(buffer.finite for buffer in program.buffers)
    made = promote_to_float64(program)
    assert oc.parse(str(made)) == made


def test_an_interrupt_leaves_nothing(schedules: dict[str, Schedule]) -> None:
    def interrupt(one: Measured) -> None:
        raise KeyboardInterrupt

    bench = Bench(problem({}), QUICK)
    with pytest.raises(KeyboardInterrupt), bench:
        bench.measured([Schedule("C", schedules["nothing"].steps * 2)], interrupt)

    assert not Path(bench._folder.name).exists()


def test_places_differ_by_threads_and_machine_and_a_weighted_sum_is_what_counts() -> None:
    asked = problem({})
    threads = replace(asked, options=replace(asked.options, threads=2))
    there = replace(asked, target=oc.target("cpu", machine="zen4"))
    assert len({asked.machine, threads.machine, there.machine}) == 3
    assert asked.machine == problem({"x": "crash"}).machine

    times = (Time({"n": 7}, 1e-3, 0.0), Time({"n": 33}, 5e-3, 0.0))
    assert Measured(Schedule("C", ()), Outcome.OK, times).seconds(asked) == 7e-3


class World:
    """A clock, and candidates whose calls move it by known amounts."""

    def __init__(self) -> None:
        self.now, self.calls = 0.0, dict[str, int]()

    def clock(self) -> float:
        return self.now

    def candidate(self, name: str, *seconds: float) -> Any:
        def run() -> None:
            self.calls[name] = self.calls.get(name, 0) + 1
            self.now += seconds[self.calls[name] % len(seconds)]

        return run


def test_timing_ends_when_all_can_be_ranked() -> None:
    limits, steady, shaky = Limits(budget=1.0, resolution=0.02), World(), World()
    calm = {"a": steady.candidate("a", 1e-2), "b": steady.candidate("b", 2e-2)}
    sample_until_ranked(lambda: calm, limits, steady.clock)
    restless = {"a": shaky.candidate("a", 1e-2, 2e-2, 4e-2, 9e-2, 1e-2)}
    sample_until_ranked(lambda: restless, limits, shaky.clock)

    assert steady.now < 2.0, "two of four parts of what two candidates may take"
    assert shaky.now > 1.0


def test_where_arrays_lie_is_among_the_noise() -> None:
    world, made = World(), list[float]()

    def runs() -> dict[str, Any]:
        made.append(1e-2 * (1 + len(made) % 2))
        return {"a": world.candidate("a", made[-1])}

    found = sample_until_ranked(runs, Limits(budget=1.0, resolution=0.02), world.clock)

    assert len(made) > 1
    assert found["a"].spread > 0.5


def test_operands_lie_at_the_same_places_of_a_page() -> None:
    given = (np.arange(6.0).reshape(2, 3), np.arange(5, dtype="int8"))
    called, (result,) = place_operands(Operands(given, (((7,), "float32"),), {}))

    places = [array.ctypes.data % PAGE for array in (*called.given, result)]
    assert places == [0, PAGE // 4, PAGE // 2]
    pairs = zip(called.given, given, strict=True)
    assert all((a == b).all() and a.dtype == b.dtype for a, b in pairs)
    assert (result.shape, result.dtype, called.results) == ((7,), np.float32, (((7,), "float32"),))

    many, _ = place_operands(Operands((np.zeros(3, "float32"),) * 66, (), {}))
    starts = [array.ctypes.data % PAGE for array in many.given]
    assert {a % 64 for a in starts} == {0}
    assert len(set(starts)) == 64


def test_what_is_hopeless_takes_no_further_turns() -> None:
    world, turns = World(), list[str]()
    runs = {
        "shaky": world.candidate("shaky", 0.03, 0.05, 0.04),
        "slow": world.candidate("slow", 0.2),
    }
    found = sample_until_ranked(
        lambda: runs, Limits(budget=1.0, resolution=1e-9), world.clock, turns.append
    )

    assert len(found["shaky"].samples) > 3 * len(found["slow"].samples)
    assert world.calls["slow"] < 6
    assert turns[-1] == "shaky"
    assert found["slow"].seconds == nearly(0.2)
