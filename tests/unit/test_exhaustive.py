"""The oracle of a space: each figure against one counted by hand, on measurements that are made up."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from conftest import refusals, rejection
from typer.testing import CliRunner

import offcut as oc
from offcut import Outcome, Records, Schedule
from offcut.errors import DescribeError
from offcut.search import key_of
from offcut.search.explorers import EXPLORERS
from offcut.tuning.exhaustive import Table, measure_space
from offcut.tuning.exhaustive import space_table as oracle_table
from offcut.tuning.exhaustive.regret import NAME, chosen_by, fill_table, picks_of, replay_campaign
from offcut.tuning.exhaustive.report import facts
from offcut.tuning.exhaustive.space_table import (
    single_variant_schedules,
    subspace_of,
)
from offcut.tuning.measuring.candidate import Bench
from offcut.tuning.schedule_prices import ClosedForm
from tests import spaces
from tests.agree import nearly
from tests.facade import ExpectedCost, Measured, Problem, ScheduleSpace, Time, app

SIZES = (({"n": 1}, 0.75), ({"n": 64}, 0.25))
SPACE = spaces.space("elementwise", 1)
POINTS = tuple(SPACE.enumerate())
PROBLEM = Problem(*spaces.problem("elementwise"), SIZES)
PRICE = ClosedForm(PROBLEM, SPACE.computation)
WEIGHTS = {key_of(at): weight for at, weight in SIZES}
SCALED = """\
program scaled
size n in 1:65
input A: float32[n, 24]
output B: float32[n, 24]
for i in 0:n
  for j in 0:24
    B[i, j] = A[i, j] * 2.0
"""
run = CliRunner().invoke


def timed(schedule: Schedule, *seconds: float) -> Measured:
    if not all(map(math.isfinite, seconds)):
        return Measured(schedule, Outcome.REFUSED, (), "planted")
    pairs = zip(SIZES, seconds, strict=True)
    return Measured(schedule, Outcome.OK, tuple(Time(at, one, 0.1) for (at, _), one in pairs))


def table(*seconds: tuple[float, float]) -> Table:
    """The first points of the space with these seconds."""
    made = dict(zip(POINTS, seconds, strict=False))
    measured = {point: timed(point, *times) for point, times in made.items()}
    return Table(SIZES, tuple(made), measured)


def planted(schedule: Schedule) -> list[float]:
    """Seconds that depend on the text alone, no two alike."""
    drawn = Random(str(schedule))
    return [1e-6 * (1 + drawn.random()) for _ in range(8)]


def made_up(bench: Bench, schedules: Sequence[Schedule], tell: Callable[[Measured], None]) -> None:
    """In place of `Bench.each`."""
    for schedule in schedules:
        pairs = zip(bench.problem.sizes, planted(schedule), strict=False)
        times = tuple(Time(at, one, 0.0) for (at, _), one in pairs)
        tell(Measured(schedule, Outcome.OK, times))


# The figures of a table


def test_the_oracles_of_a_table_are_those_counted_by_hand() -> None:
    found = table((1.0, 9.0), (3.0, 3.0), (2.0, 4.0), (0.5, math.inf))
    # 0.75 * t(1) + 0.25 * t(64): 3.0, 3.0, 2.5, refused
    assert [found.expected(point) for point in POINTS[:3]] == [3.0, 3.0, 2.5]
    assert found.sound == POINTS[:3]
    assert found.best == POINTS[2]
    assert found.least == (1.0, 3.0)
    assert found.regret(POINTS[0]) == nearly(0.2)
    assert found.regret(POINTS[3]) == math.inf
    # least: 0.75 * 1 + 0.25 * 3 = 1.5, of 2.5; by size 1/2 and 3/4
    assert found.of_oracle(found.seconds(found.best)) == (nearly(0.6), 0.5)
    assert found.spread == nearly(0.1)


def test_a_price_picks_what_it_finds_the_cheapest_and_pays_what_that_takes() -> None:
    found = table((1.0, 9.0), (3.0, 3.0), (2.0, 4.0))

    def wrong(schedule: Schedule) -> Any:
        return dict.fromkeys(WEIGHTS, float(schedule != POINTS[1]))

    sweep, default, picked = picks_of(found, PROBLEM, POINTS[0], {"wrong": lambda problem: wrong})
    assert (sweep.schedule, sweep.regret) == (POINTS[2], 0.0)
    assert (default.who, default.schedule) == ("the default", POINTS[0])
    assert default.regret == nearly(0.2)
    assert (picked.who, picked.schedule) == ("wrong", POINTS[1])
    assert picked.regret == nearly(0.2)
    assert picked.whole == nearly(1.5 / 3.0)
    assert picked.worst == nearly(1 / 3)


def two_ways() -> Schedule:
    space = spaces.space("dense", 2)
    nests = (point for point in space.enumerate() if len(single_variant_schedules(point)) == 2)
    return next(nests)


def test_the_choice_at_run_time_is_judged_by_the_ways_that_it_has() -> None:
    both = two_ways()
    one, other = single_variant_schedules(both)
    measured = {
        both: timed(both, 2.0, 4.0),
        one: timed(one, 1.0, 8.0),
        other: timed(other, 4.0, 4.0),
    }
    found = chosen_by(Table(SIZES, (one, other), measured), both)
    assert found is not None
    # the fastest way: 1 and 4, so 0.75 + 1 = 1.75 of 0.75 * 2 + 0.25 * 4 = 2.5
    assert (found.ways, found.whole, found.worst) == (2, nearly(0.7), 0.5)
    assert chosen_by(Table(SIZES, (one,), measured), one) is None
    measured[one] = timed(one, math.inf, 1.0)
    assert chosen_by(Table(SIZES, (other,), measured), both) is None


# Which part of a space


def expected() -> ExpectedCost:
    return ExpectedCost(PRICE, WEIGHTS)


def test_a_space_that_is_too_large_is_refused_with_its_size() -> None:
    with rejection("""\
DescribeError: sweep: cannot measure every schedule of C
  because  its space has 1,484,744,968, and 2,000 is the most
  help     --limit 1484744968 measures them all
  help     --most 2000 takes those that are predicted best
  help     --ways 1 leaves one way to each nest"""):
        subspace_of(spaces.space("dense", 3), expected(), limit=2000, most=None, seed=0)


def test_a_small_space_is_taken_whole_and_one_way_is_no_advice_where_there_is_one() -> None:
    part = subspace_of(SPACE, expected(), limit=100, most=None, seed=0)
    assert (part.points, part.size) == (POINTS, len(POINTS))
    assert part.description == "all that there are"
    with pytest.raises(DescribeError) as refused:
        subspace_of(SPACE, expected(), limit=9, most=None, seed=0)
    assert refused.value.help == (
        "--limit 92 measures them all",
        "--most 9 takes those that are predicted best",
    )


def test_those_that_are_predicted_best_are_taken_beside_the_first_and_of_too_many_drawn_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    price = expected()
    part = subspace_of(SPACE, price, limit=1, most=7, seed=0)
    others = sorted((point for point in POINTS if point != SPACE.first), key=price)
    assert part.points == (SPACE.first, *others[:6])
    assert part.description == f"those predicted best of {len(POINTS)}"
    monkeypatch.setattr(oracle_table, "PRICED", 30)
    parts = [subspace_of(SPACE, expected(), limit=1, most=5, seed=seed) for seed in (0, 0, 1)]
    assert parts[0] == parts[1] != parts[2]
    assert parts[0].points[0] == SPACE.first
    assert parts[0].description == f"those predicted best of 30 that are drawn of {len(POINTS)}"


def test_a_space_is_narrowed_to_fewer_ways_than_the_default_has() -> None:
    wide = spaces.open_decisions("dense", 2, first=two_ways()).space
    assert wide.size > 10**6
    assert wide.narrow is not None
    narrow = wide.narrow(1)
    assert narrow.size < 10**4
    assert all(len(single_variant_schedules(point)) == 1 for point in narrow.enumerate(50))


# Measured once, and gone on with


def test_what_was_killed_goes_on_and_nothing_is_measured_twice(tmp_path: Path) -> None:
    asked: list[Schedule] = []

    def measure(schedules: Sequence[Schedule], tell: Callable[[Measured], None]) -> None:
        for schedule in schedules:
            if len(asked) == 11:
                asked.append(schedule)
                raise KeyboardInterrupt
            asked.append(schedule)
            tell(timed(schedule, *planted(schedule)[:2]))

    records, told = Records(tmp_path / "r"), list[int]()
    with pytest.raises(KeyboardInterrupt):
        fill_table(PROBLEM, POINTS[:30], records, PRICE, measure)
    assert len(records) == 22
    found = fill_table(PROBLEM, POINTS[:30], records, PRICE, measure, told.append)
    assert asked == [*POINTS[:12], *POINTS[11:30]]
    assert told == list(range(1, 31))
    for point in POINTS[:30]:
        assert [time.seconds for time in found[point].times] == planted(point)[:2]
    kept = list(records)
    assert {record.explorer for record in kept} == {NAME}
    assert all(record.predicted for record in kept)
    again = fill_table(PROBLEM, POINTS[:30], records, PRICE, measure)
    assert again == found
    assert len(asked) == 31
    others = Records(tmp_path / "others")  # who measured a part, and kept no text
    others.add(timed(POINTS[0], *planted(POINTS[0])[:2]).records(PROBLEM, "random", ()))
    assert others.origins == ()
    fill_table(PROBLEM, POINTS[:3], others, PRICE, measure)
    assert {*others.origins} == {*PROBLEM.origins}


def test_a_machine_that_drifts_between_batches_is_divided_out_once(tmp_path: Path) -> None:
    slower = 1.0

    def drifting(schedules: Sequence[Schedule], tell: Callable[[Measured], None]) -> None:
        nonlocal slower
        for one in schedules:
            found = timed(one, *(slower * seconds for seconds in planted(one)[:2]))
            tell(replace(found, reference=tuple(slower * t for t in planted(POINTS[0])[:2])))
        slower *= 1.5

    found = fill_table(PROBLEM, POINTS, Records(tmp_path / "r"), PRICE, drifting)
    for point in POINTS:
        assert [t.seconds for t in found[point].times] == nearly(planted(point)[:2])
    whole = Table(SIZES, POINTS, found)
    regrets = replay_campaign(
        whole, PROBLEM, SPACE, PRICE, "random", (8, 2 * len(POINTS)), math.inf
    )
    assert regrets[0] >= 0
    assert regrets[-1] == nearly(0.0)


# Explorers, replayed


def whole() -> Table:
    return Table(SIZES, POINTS, {point: timed(point, *planted(point)[:2]) for point in POINTS})


def test_regret_after_so_many_trials_is_that_of_the_best_of_them() -> None:
    def in_order(space: ScheduleSpace, seen: Any, rng: Any, count: int) -> Sequence[Schedule]:
        return POINTS[len(seen) :][:count] if seen else POINTS[1:][:count]

    found = whole()
    seconds = [0.75 * a + 0.25 * b for a, b, *_ in map(planted, POINTS)]
    regrets = replay_campaign(found, PROBLEM, SPACE, PRICE, in_order, (1, 8, 16, 32), math.inf)
    assert regrets == nearly([min(seconds[:k]) / min(seconds) - 1 for k in (1, 8, 16, 32)])


@pytest.mark.every(4)
@pytest.mark.parametrize("explorer", EXPLORERS)
def test_every_explorer_finds_the_best_of_a_space_it_may_try_whole(explorer: str) -> None:
    given = whole(), PROBLEM, SPACE, PRICE, explorer
    regrets = replay_campaign(*given, (16, 64, 2 * len(POINTS)), math.inf)
    assert regrets == replay_campaign(*given, (16, 64, 2 * len(POINTS)), math.inf)
    assert list(regrets) == sorted(regrets, reverse=True)
    assert regrets[-1] == (nearly(0.0) if explorer != "beam" else regrets[-1])


@pytest.mark.parametrize("explorer", ["anneal", "beam"])
def test_an_explorer_tries_nothing_that_the_table_does_not_hold(explorer: str) -> None:
    held = {one: timed(one, *planted(one)[:2]) for one in POINTS[:20]}
    missing: list[Schedule] = []

    class Watched(dict[Schedule, Measured]):
        def get(self, key: Schedule, absent: Any = None) -> Any:
            if key not in held:
                missing.append(key)
            return super().get(key, absent)

    watched = Table(SIZES, POINTS[:20], Watched(held))
    replay_campaign(watched, PROBLEM, SPACE, PRICE, explorer, (40,), math.inf)
    assert missing == []


@pytest.mark.parametrize("learns", [False, True])
def test_a_price_that_learns_is_told_the_trials_of_its_own_campaign_and_is_asked_anew(
    learns: bool,
) -> None:
    asked, told = Counter[Schedule](), list[int]()

    class Price:
        def __call__(self, schedule: Schedule) -> Any:
            asked[schedule] += 1
            return PRICE(schedule)

    class Learns(Price):
        def refit(self, times: Any) -> None:
            told.append(len(times))

    def by_price(space: ScheduleSpace, seen: Any, rng: Any, count: int) -> Sequence[Schedule]:
        tried = {one.schedule for one in seen}
        return sorted((one for one in POINTS if one not in tried), key=space.expected)[:count]

    price = Learns() if learns else Price()
    replay_campaign(whole(), PROBLEM, SPACE, price, by_price, (24,), math.inf)
    assert (min(asked.values()) > 1) is learns
    assert told == ([8, 16, 24] if learns else [])


def test_where_none_of_the_first_trials_can_be_timed_regret_is_infinite() -> None:
    def in_order(space: ScheduleSpace, seen: Any, rng: Any, count: int) -> Sequence[Schedule]:
        return POINTS[len(seen) or 1 :][:count]

    failed = {one: timed(one, math.inf) for one in POINTS[:8]}
    found = Table(SIZES, POINTS, {**whole().measured, **failed})
    regrets = replay_campaign(found, PROBLEM, SPACE, PRICE, in_order, (4, 8), math.inf)
    assert regrets == (math.inf, math.inf)
    assert replay_campaign(found, PROBLEM, SPACE, PRICE, in_order, (4, 16), math.inf)[1] < math.inf


# Whole


def of(program: str, tmp_path: Path, **options: Any) -> Any:
    return measure_space(
        oc.parse(program),
        (),
        {"n": [3, 40]},
        records=tmp_path / "r",
        seeds=2,
        trials=(4, 8),
        **options,
    )


@pytest.mark.slow
def test_a_program_is_measured_whole_and_again_from_its_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Bench, "each", made_up)
    told: list[tuple[str, int, int]] = []
    found = of(SCALED, tmp_path, explorers=("random", "anneal"), tell=lambda *say: told.append(say))
    assert len(found.subspace.points) == found.subspace.size == len(found.table.sound)
    who = [pick.who for pick in found.picks]
    assert who[:3] == ["the sweep's oracle", "the default", "closed form"]
    assert (
        who[3:] == []
    )  # nothing was learned before: that price is the closed form, and picks nothing
    rows = [(one.explorer, one.price) for one in found.explored]
    assert rows[:2] == [("random", "closed form"), ("anneal", "closed form")]
    assert {price for _, price in rows[2:]} <= {"learned"}
    assert any("no model knows this program" in line for line in facts(found)) is found.learns
    least = min(0.5 * sum(planted(point)[:2]) for point in found.subspace.points)
    assert found.table.expected(found.table.best) == nearly(least)
    for one in found.explored:
        assert set(one.mean) == {4, 8}
        assert all(0 <= one.mean[count] <= one.worst[count] for count in (4, 8))
    assert ("measured", found.subspace.size, found.subspace.size) in told
    monkeypatch.setattr(Bench, "each", lambda *_: pytest.fail("it measured"))
    again = of(SCALED, tmp_path, explorers=("random", "anneal"))
    assert again.explored == found.explored
    assert again.picks == found.picks


def test_where_nothing_can_be_timed_the_last_reason_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(bench: Bench, schedules: Sequence[Schedule], tell: Any) -> None:
        for one in schedules:
            tell(Measured(one, Outcome.REFUSED, (), "planted"))

    monkeypatch.setattr(Bench, "each", refuses)
    with rejection("""\
TargetError: sweep: cannot measure a schedule of scaled
  because  the last of 2 is refused: planted"""):
        of(SCALED, tmp_path, most=2)


@pytest.mark.parametrize("name", ["limit", "most", "ways", "seeds"])
def test_a_number_below_1_is_refused(name: str, tmp_path: Path) -> None:
    with rejection(f"DescribeError: sweep: cannot take {name}=0\n  because  {name} is at least 1"):
        measure_space(oc.parse(SCALED), sizes={"n": [3]}, records=tmp_path / "r", **{name: 0})


# On the command line


@pytest.mark.slow
def test_the_command_prints_its_tables_and_writes_csv_and_a_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Bench, "each", made_up)
    program, csv, png = (tmp_path / name for name in ("p.offcut", "o.csv", "o.png"))
    program.write_text(SCALED, encoding="utf-8")
    options = ["--sizes", "n=3,40", "--most", "20", "--seeds", "1"]
    options += ["--csv", str(csv), "--png", str(png)]
    kept = ["--records", str(tmp_path / "r")]
    done = run(app, ["sweep", str(program), "--oracle", *options, *kept])
    assert done.exit_code == 0, done.output
    first, *_ = done.output.splitlines()
    assert re.fullmatch(r"scaled: 20 schedules, those predicted best of \d+; 20 ok", first)
    for word in ("the size's oracle", "closed form", "anneal", "128 trials", "n=40"):
        assert word in done.output
    lines = csv.read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("# machine: ")
    rows = [line.split(",") for line in lines if not line.startswith("#")]
    assert rows[0] == ["kind", "who", "price", "at", "figure", "value"]
    assert {row[0] for row in rows[1:]} == {"size", "pick", "explorer"}
    closed = [row for row in rows if row[0] == "explorer" and row[2] == "closed form"]
    assert len(closed) == len(EXPLORERS) * 4 * 2
    assert png.stat().st_size > 10_000


OTHERS = refusals(
    """
given ["p.offcut", "--oracle", "--sizes", "n=3", "--strategies", "cut", "--k", "7"]
sweep: cannot take --strategies, --k
  because  a program in a file says all else
  help     offcut sweep --help

given ["mk,kn->mn", "--sizes", "m=3", "--most", "7"]
sweep: cannot take --most
  because  that is of --oracle
  help     offcut sweep --help
""",
    {},
)


@pytest.mark.parametrize("given", OTHERS)
def test_an_option_of_the_other_sweep_is_refused(given: str) -> None:
    arguments, said = OTHERS[given]
    done = run(app, ["sweep", *arguments])
    assert (done.exit_code, done.stderr.rstrip("\n")) == (2, said)


def test_prices_that_are_all_0_leave_nothing_out() -> None:
    price = ExpectedCost(lambda _: dict.fromkeys(WEIGHTS, 0.0), WEIGHTS)
    assert [price(one) for one in POINTS[:2]] == [0.0, 0.0]
