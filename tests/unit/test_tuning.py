"""Tuning: what is tried, kept, taken from records, and chosen; measurements are made up but for the last tests."""

from __future__ import annotations

import math
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import rejection, slow
from planted_target import Planted

import offcut as oc
from offcut import Outcome, Records, Schedule
from offcut.errors import DescribeError
from offcut.search import key_of
from offcut.tuning.campaign import LAST_RUN, Campaign, Progress
from offcut.tuning.progress import EVERY, Lines, line, show_progress
from offcut.tuning.variant_selection import compose_variants, lines
from tests import spaces
from tests.agree import agree, exact_matmul, nearly
from tests.facade import (
    ExpectedCost,
    Limits,
    Measured,
    ScheduleSpace,
    Time,
    TriedSchedule,
    evaluate,
    format_expr,
    get_explorer,
    nests_in,
    parse_expr,
    parts_of,
    proved_plan,
)
from tests.spaces import SIZES, closed_form, dense

ROOT = Path(__file__).parents[2]
QUICK = Limits(patience=120.0, memory=1 << 30, budget=0.02, noise=math.inf)
Seconds = Callable[[Schedule], Sequence[float]]


@dataclass
class Bench:
    """Measures by a function of schedules; stops, as if killed, once it has measured `until`.

    drift    by which factor the machine is slower in each batch, by its number
    default  whose kernel takes turns in each batch; None: nobody's
    """

    seconds: Seconds
    spread: float = 0.0
    until: float = math.inf
    drift: Callable[[int], float] = lambda batch: 1.0
    default: Schedule | None = None
    asked: list[list[Schedule]] = field(default_factory=list)

    def measured(self, schedules: Sequence[Schedule], progress: Callable[[Measured], None]) -> None:
        slower = self.drift(len(self.asked))
        beside = () if self.default is None else self.seconds(self.default)
        reference = tuple(one * slower for one in beside)
        self.asked.append([])
        for schedule in schedules:
            if sum(map(len, self.asked)) >= self.until:
                raise KeyboardInterrupt
            self.asked[-1].append(schedule)
            times = [one * slower for one in self.seconds(schedule)]
            made = zip(SIZES, times, strict=True)
            ok = all(map(math.isfinite, times))
            told = tuple(Time(at, one, self.spread) for (at, _), one in made) if ok else ()
            outcome, because = (Outcome.OK, "") if ok else (Outcome.REFUSED, "planted")
            progress(Measured(schedule, outcome, told, because, reference=reference))


def campaign(
    bench: Bench,
    records: Path,
    of: str = "dense",
    explorer: Any = "random",
    trials: int | None = 20,
    seconds: float | None = None,
    seed: int = 0,
    tell: Callable[[Progress], None] = lambda progress: None,
) -> Campaign:
    space, price = spaces.space(of, 2), closed_form(of, seed)
    expected = ExpectedCost(price, {key_of(at): weight for at, weight in SIZES}, 4.0)
    named, explores = get_explorer(explorer)
    return Campaign(
        *(price.problem, replace(space, expected=expected), expected, explores, named),
        *(Records(records), bench.measured, trials, seconds, tell),
    )


def by_price(space: ScheduleSpace, best: Schedule) -> Seconds:
    """Seconds whose least are those of `best`, alike at all sizes."""
    price = spaces.planted(space, best)
    return lambda schedule: [price(schedule) * 1e-6] * len(SIZES)


def first(of: str = "dense") -> Schedule:
    return spaces.space(of, 2).first


def test_the_default_is_trial_0_and_stays_where_nothing_beats_it(tmp_path: Path) -> None:
    bench = Bench(lambda schedule: [1e-6 if schedule == first() else 2e-6] * 2)
    tuned = campaign(bench, tmp_path / "r")
    assert tuned.best() == first()
    assert bench.asked[0][0] == first()
    assert len(tuned.tried) == 20


@pytest.mark.parametrize(
    ("gain", "spread", "resolution", "stays"),
    [
        (0.97, 0.2, 0.0, True),  # within the noise
        (0.97, 0.001, 0.0, False),
        (0.985, 0.001, 0.0, False),
        (0.985, 0.001, QUICK.resolution, True),  # below what times are known to
    ],
)
def test_a_gain_within_the_noise_is_none(
    tmp_path: Path, gain: float, spread: float, resolution: float, stays: bool
) -> None:
    bench = Bench(lambda one: [1e-6 if one == first() else gain * 1e-6] * 2, spread)
    tuned = campaign(bench, tmp_path / "r", trials=6)
    tuned.resolution = resolution or tuned.resolution
    assert (tuned.best() == first()) == stays


@pytest.mark.parametrize("later", [3e-6, math.inf], ids=["slower", "failing"])
def test_what_was_fast_once_is_not_chosen_where_the_last_run_says_otherwise(
    tmp_path: Path, later: float
) -> None:
    runs: dict[Schedule, int] = {}

    def lucky(schedule: Schedule) -> list[float]:
        runs[schedule] = runs.get(schedule, 0) + 1
        if schedule == first() and math.isfinite(later):
            return [1e-6] * 2
        return [0.1e-6 if runs[schedule] == 1 else later] * 2

    assert campaign(Bench(lucky), tmp_path / "r", trials=4).best() == first()


def test_the_best_of_what_was_tried_is_chosen(tmp_path: Path) -> None:
    space = spaces.space("loops", 2)
    best = space.sample(Random(4))
    bench = Bench(by_price(space, best))
    tuned = campaign(bench, tmp_path / "r", "loops", "exhaustive", trials=16)
    found = tuned.best()
    tried = [schedule for batch in bench.asked[:-1] for schedule in batch]
    assert found == min(tried, key=spaces.planted(space, best))
    assert found in bench.asked[-1]
    assert first("loops") in bench.asked[-1]


def test_every_trial_is_recorded_the_refused_ones_too(tmp_path: Path) -> None:
    odd = Random(2)

    def seconds(schedule: Schedule) -> list[float]:
        return [math.inf if schedule != first() and odd.random() < 0.5 else 1e-6] * 2

    tuned = campaign(Bench(seconds), tmp_path / "r", trials=12)
    tuned.best()
    kept = list(Records(tmp_path / "r"))
    said = {record.schedule: record.outcome for record in kept if record.explorer not in LAST_RUN}
    assert said == {str(one.schedule): one.outcome for one in tuned.tried}
    assert set(said.values()) == {Outcome.OK, Outcome.REFUSED}
    assert all(record.explorer in ("random", *LAST_RUN) for record in kept)
    trials = (record for record in kept if record.explorer not in LAST_RUN)
    assert all(record.predicted for record in trials if record.outcome is Outcome.OK)


@pytest.mark.parametrize("until", [slow(1), 8, slow(19)])
def test_what_was_killed_goes_on_where_it_was(tmp_path: Path, until: int) -> None:
    space = spaces.space("dense", 2)
    seconds = by_price(space, space.sample(Random(9)))
    whole = Bench(seconds)
    wanted = campaign(whole, tmp_path / "whole").best()

    killed = Bench(seconds, until=until)
    with pytest.raises(KeyboardInterrupt):
        campaign(killed, tmp_path / "killed").best()
    again = Bench(seconds)
    assert campaign(again, tmp_path / "killed").best() == wanted
    before = [schedule for batch in killed.asked for schedule in batch]
    after = [schedule for batch in again.asked for schedule in batch]
    assert len(before) == until
    assert [*before, *after] == [schedule for batch in whole.asked for schedule in batch]
    done = Bench(seconds)
    assert campaign(done, tmp_path / "killed").best() == wanted
    assert done.asked == [], "what is done is not measured again"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The clock of campaigns, which stands until a test moves its `now`."""
    clock = SimpleNamespace(now=0.0)
    times = SimpleNamespace(monotonic=lambda: clock.now, time=lambda: clock.now)
    monkeypatch.setattr("offcut.tuning.campaign.time", times)
    return clock


@pytest.mark.parametrize(("each", "seconds", "tried"), [(1, 15.5, 16), (5, 3.0, 1)])
def test_a_budget_in_seconds_ends_the_rounds(
    tmp_path: Path, clock: SimpleNamespace, each: int, seconds: float, tried: int
) -> None:
    def slow(schedule: Schedule) -> list[float]:
        clock.now += each
        return [1e-6, 1e-6]

    tuned = campaign(Bench(slow), tmp_path / "r", explorer="random", trials=None, seconds=seconds)
    tuned.best()
    assert len(tuned.tried) == tried


def test_predicting_counts_into_the_seconds(tmp_path: Path, clock: SimpleNamespace) -> None:
    for explorer in ("anneal", "beam", "evolution"):
        clock.now, told = 0.0, list[Progress]()
        bench = Bench(lambda schedule: [1e-6, 1e-6])
        tuned = campaign(bench, tmp_path / explorer, "dense", explorer, None, 16.0, 0, told.append)
        quick = tuned.expected.price

        @cache
        def slow(schedule: Schedule, quick: Any = quick) -> Any:
            clock.now += 1.0
            return quick(schedule)

        tuned.expected.price = slow
        assert tuned.best() == tuned.space.first
        assert clock.now <= 17
        assert len(tuned.tried) > 1
        assert told[-1].left_out > 0
        shown = line(replace(told[-1], best=2e-6, default=2e-6, regret=None, price=""))
        said = f"{told[-1].left_out} not predicted for want of time"
        assert shown == f"best 2 µs, 1.00× the default, {said}"


def test_progress_says_the_best_and_the_regret_that_is_expected(tmp_path: Path) -> None:
    told: list[Progress] = []
    space = spaces.space("dense", 2)
    bench = Bench(by_price(space, space.sample(Random(3))))
    campaign(bench, tmp_path / "r", trials=10, tell=told.append).best()
    assert [one.trial for one in told] == list(range(1, 11))
    assert [one.best for one in told] == sorted((one.best for one in told), reverse=True)
    assert told[0].best == told[0].default
    assert all(one.regret is not None and one.regret >= 0 for one in told)
    assert line(replace(told[0], best=2e-6, default=3e-6, regret=0.25)) == (
        "best 2 µs, 1.50× the default, regret expected 25%, by the closed form"
    )
    assert not line(replace(told[0], best=2e-6, price="")).endswith("closed form")
    assert line(replace(told[0], best=math.inf)) == told[0].latest.outcome.value


def test_without_a_terminal_a_line_is_written_every_so_often(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told: list[Progress] = []
    bench = Bench(lambda schedule: [1e-6, 1e-6])
    campaign(bench, tmp_path / "r", trials=1, tell=told.append).best()
    clock = iter([0.0, 1.0, EVERY, EVERY + 2, EVERY + 3])
    write = Lines("dense", 5, lambda: next(clock))
    for trial in range(1, 6):
        write(replace(told[0], trial=trial, best=2e-6, default=3e-6, regret=None, price=""))
    said = "best 2 µs, 1.50× the default"
    assert capsys.readouterr().err.splitlines() == [
        f"offcut: tune dense: trial {trial} of 5, {said}" for trial in (1, 3, 5)
    ]
    for asked in (None, True, False):
        with show_progress(asked, "dense", None) as tell:
            tell(replace(told[0], trial=2, best=2e-6, default=3e-6, regret=None, price=""))
        wanted = "" if asked is False else f"offcut: tune dense: trial 2, {said}\n"
        assert capsys.readouterr().err == wanted


def sloping(space: ScheduleSpace) -> Seconds:
    """Seconds by which schedules differ by less than a machine drifts: 1 µs to 2 µs."""
    price = spaces.planted(space, space.sample(Random(5)))
    prices = [price(schedule) for schedule in (space.first, *space.enumerate(60))]
    least, most = min(prices), max(prices)
    return lambda schedule: [1e-6 * (1 + (price(schedule) - least) / (most - least))] * 2


def test_drift_between_batches_is_divided_out(tmp_path: Path) -> None:
    space = spaces.space("dense", 2)
    seconds = sloping(space)
    steady = Bench(seconds, default=space.first)
    wanted = campaign(steady, tmp_path / "steady", trials=24)
    # By powers of two, of which none rounds.
    drifts = Bench(seconds, default=space.first, drift=lambda batch: 2.0**-batch)
    tuned = campaign(drifts, tmp_path / "drifts", trials=24)

    assert tuned.best() == wanted.best()
    assert drifts.asked == steady.asked
    assert [one.times for one in tuned.tried] == [one.times for one in wanted.tried]
    kept, told = (
        [replace(record, created=0.0) for record in Records(tmp_path / name)]
        for name in ("drifts", "steady")
    )
    assert kept == told


def test_what_is_left_as_it_was_timed_follows_the_drift(tmp_path: Path) -> None:
    drifts = Bench(sloping(spaces.space("dense", 2)), drift=lambda batch: 1.5**-batch)
    tuned = campaign(drifts, tmp_path / "r", trials=40)
    tuned.best()

    times = [one.times[0].seconds for one in tuned.tried]
    assert max(times[-8:]) < min(times[:8])


def test_what_goes_on_later_is_scaled_to_what_was_before(tmp_path: Path) -> None:
    space = spaces.space("dense", 2)
    seconds = sloping(space)
    killed = Bench(seconds, until=12, default=space.first)
    with pytest.raises(KeyboardInterrupt):
        campaign(killed, tmp_path / "r", trials=24).best()
    slower = Bench(seconds, default=space.first, drift=lambda batch: 1.5)
    tuned = campaign(slower, tmp_path / "r", trials=24)
    tuned.best()

    for one in tuned.tried:
        assert [time.seconds for time in one.times] == nearly(seconds(one.schedule))


def test_what_an_explorer_proposes_twice_or_without_an_end_is_tried_once_and_as_often_as_asked(
    tmp_path: Path,
) -> None:
    def twice(space: ScheduleSpace, seen: Any, rng: Random, count: int) -> list[Schedule]:
        return [space.first, *space.neighbours(space.first)[:3] * 2]

    def endless(space: ScheduleSpace, seen: Any, rng: Random, count: int) -> Any:
        while True:
            yield space.sample(rng)

    for explorer, trials in ((twice, 20), (endless, 4)):
        bench = Bench(lambda schedule: [1e-6] * 2)
        tuned = campaign(bench, tmp_path / explorer.__name__, explorer=explorer, trials=trials)
        tuned.best()
        assert len(tuned.tried) == len({one.schedule for one in tuned.tried}) == 4


def test_where_nothing_can_be_measured_the_last_reason_is_said(tmp_path: Path) -> None:
    with rejection("""\
TargetError: tune: cannot measure a schedule of C
  because  the last of 1 is refused: planted"""):
        campaign(Bench(lambda schedule: [math.inf] * 2), tmp_path / "r", trials=1).best()


# Alternatives


def one_way(label: str, times: Sequence[float], spread: float = 0.0) -> Measured:
    """A schedule of one way, by its strategy."""
    text = str(spaces.space("dense", 2).first)
    schedule = Schedule.parse(re.sub(r"(split \S+\.i) .* as", rf"\1 {label} 14 as", text))
    made = (Time(at, one, spread) for (at, _), one in zip(SIZES, times, strict=True))
    return Measured(schedule, Outcome.OK, tuple(made))


def ways(schedule: Schedule) -> tuple[Any, ...]:
    return next(nests_in(parts_of(schedule))).variants


def test_ways_that_are_best_at_other_sizes_compete_by_what_was_measured() -> None:
    tried = [
        one_way("ladder", [1e-6, 9e-6]),
        one_way("even", [5e-6, 4e-6]),
        one_way("cut", [6e-6, 5e-6]),
    ]
    made = compose_variants(closed_form("dense").problem, tried, 3)
    assert made is not None
    assert made.seconds == nearly(0.5 * 1e-6 + 0.5 * 4e-6)
    assert [way.label for way in ways(made.schedule)] == ["even", "ladder"]
    even, ladder = (way.cost for way in ways(made.schedule))
    assert evaluate(even, {"n": 1}) == nearly(5e-6)
    assert evaluate(ladder, {"n": 64}) == nearly(9e-6)
    assert Schedule.parse(str(made.schedule)) == made.schedule
    request, options, target = spaces.problem("dense")
    planned = proved_plan(target, request, replace(options, schedule=made.schedule))
    considered = target.describe_plan(planned, request, options, {"n": 1}).considered
    assert [one.label for one in considered if one.chosen] == ["ladder"]


def test_one_way_is_enough_where_it_is_best_everywhere_or_others_gain_no_more_than_noise() -> None:
    best = one_way("ladder", [1e-6, 4e-6])
    assert (
        compose_variants(closed_form("dense").problem, [best, one_way("even", [2e-6, 5e-6])], 3)
        is None
    )
    near = one_way("even", [2e-6, 3.9e-6], spread=0.3)
    assert compose_variants(closed_form("dense").problem, [best, near], 3) is None
    assert (
        compose_variants(closed_form("dense").problem, [best, one_way("even", [2e-6, 3e-6])], 1)
        is None
    )


def test_what_a_way_costs_is_lines_between_what_was_measured() -> None:
    cost = lines("n", {8: 4e-6, 2: 1e-6, 16: 4e-6})
    assert parse_expr(format_expr(cost), "float64") == cost
    found = [float(evaluate(cost, {"n": n})) for n in (1, 2, 5, 8, 12, 16, 32)]
    assert found == nearly([1e-6, 1e-6, 2.5e-6, 4e-6, 4e-6, 4e-6, 8e-6])


# Measured


def few(
    space: ScheduleSpace, seen: Sequence[TriedSchedule], rng: Random, count: int
) -> Sequence[Schedule]:
    """An explorer that is quick: the first neighbours of the default."""
    return space.neighbours(space.first)[:3]


def test_a_layer_is_tuned_and_compiled_as_it_was_tuned(tmp_path: Path) -> None:
    result, a, w = dense()
    given = {"inputs": [a, w], "constants": ["W"], "sizes": {"n": [3, 20]}, "limits": QUICK}
    records = Records(tmp_path / "r")
    tuned = oc.tune(result, **given, trials=3, explorer=few, records=records, progress=False)
    assert isinstance(tuned, Schedule)
    assert len({record.schedule for record in records}) >= 3
    count = len(records)
    assert oc.tune(result, **given, trials=3, explorer=few, records=tmp_path / "r") == tuned
    assert len(records) == count
    draw = np.random.default_rng(0)
    x, v = draw.standard_normal((17, 24), "f"), draw.standard_normal((24, 16), "f")
    kernel = oc.compile(result, inputs=[a, w], constants={"W": v}, schedule=tuned)
    agree(kernel(x), exact_matmul(x, v))


@pytest.mark.parametrize("fault", [slow("be_slow"), slow("miss_an_element"), "crash"])
def test_a_planted_fault_is_recorded_and_not_chosen(tmp_path: Path, fault: str) -> None:
    result, a, w = dense()
    given = {"inputs": [a, w], "constants": ["W"], "sizes": {"n": [3, 20]}, "limits": QUICK}
    planned = oc.tune(result, **given, trials=1, records=tmp_path / "plain", explorer=few)
    tried: list[Schedule] = []

    def two(
        space: ScheduleSpace, seen: Sequence[TriedSchedule], rng: Random, count: int
    ) -> Sequence[Schedule]:
        tried.extend(space.neighbours(space.first)[:1])
        return tuple(tried)

    oc.tune(result, **given, trials=2, records=tmp_path / "plain", explorer=two)
    target = Planted({tried[0].digest: fault}, ticks=True)
    found = oc.tune(result, **given, trials=2, records=tmp_path / "r", explorer=two, target=target)
    assert found == planned
    outcomes = {
        r.schedule: r.outcome for r in Records(tmp_path / "r") if r.explorer not in LAST_RUN
    }
    wanted = {"be_slow": Outcome.OK, "miss_an_element": Outcome.WRONG, "crash": Outcome.CRASHED}
    assert outcomes[str(tried[0])] is wanted[fault]


SCRIPT = """
import sys
sys.path[:0] = ["tests", "tests/unit"]
from test_tuning import QUICK, few
from tests.spaces import dense
import offcut as oc
result, a, w = dense()
oc.tune(result, inputs=[a, w], constants=["W"], sizes={"n": [3, 20]}, limits=QUICK, trials=4,
        explorer=few, records=sys.argv[1])
"""


def test_a_process_that_is_killed_loses_nothing_that_it_measured(tmp_path: Path) -> None:
    records = Records(tmp_path / "r")
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, str(records.path)], cwd=ROOT)
    while not len(records) and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = list(records)
    assert before
    result, a, w = dense()
    given = {"inputs": [a, w], "constants": ["W"], "sizes": {"n": [3, 20]}, "limits": QUICK}
    oc.tune(result, **given, trials=4, explorer=few, records=records)
    after = list(records)
    assert after[: len(before)] == before
    trials = [record for record in after if record.explorer not in LAST_RUN]
    assert len(trials) == len({(r.schedule, tuple(r.sizes.items())) for r in trials})


@pytest.mark.parametrize(
    ("explorer", "because"),
    [
        (lambda space, seen, rng, count: 1 / 0, "it raised ZeroDivisionError: division by zero"),
        (lambda space, seen, rng, count: None, "it raised TypeError"),
        (lambda space, seen, rng, count: [Schedule("zz", ())], "it is not of C"),
        (lambda space, seen, rng, count: ["schedule C"], "it is not a schedule"),
    ],
)
def test_what_an_explorer_does_wrong_is_said(tmp_path: Path, explorer: Any, because: str) -> None:
    bench = Bench(lambda schedule: [1e-6] * 2)
    with pytest.raises(DescribeError) as caught:
        campaign(bench, tmp_path / "r", explorer=explorer, trials=4).best()
    assert caught.value.at.startswith("explorer ")
    assert caught.value.because.startswith(because)
    if because.endswith("a schedule"):
        helps = "\n  help     space.sample(rng)\n  help     space.neighbours(point)"
        assert str(caught.value).startswith("tune: cannot try 'schedule C'\n")
        assert str(caught.value).endswith(helps)
