"""Prices that are corrected: by a model, by the trials of a campaign, by a user's own; what each says of itself."""

from __future__ import annotations

import doctest
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import numpy as np
import pytest
from conftest import refusals, rejection

import offcut as oc
from offcut import Outcome, Records, Schedule
from offcut.backends.predict import model_path
from offcut.costmodel.learned import FEATURES, Settings, compute_features, train, xgboost_loader
from offcut.errors import DescribeError, OffcutError
from offcut.search import Price, RefittablePrice, Times, key_of
from offcut.tuning.campaign import Campaign, Progress
from offcut.tuning.learning.learn import training_set
from offcut.tuning.learning.online_model import SCHEDULES, OnlineModel, get_cost
from tests import planted_times as planted
from tests.agree import nearly
from tests.facade import (
    CorrectedModel,
    ExpectedCost,
    Limits,
    Measured,
    Problem,
    ScheduleSpace,
    Time,
    TriedSchedule,
    get_explorer,
)

needs_xgboost = pytest.mark.skipif(not xgboost_loader.is_available(), reason=xgboost_loader.ABSENT)


def price(given: object, name: str = "dense", seed: int = 0) -> Price:
    of = planted.cases(name, seed=seed)
    return get_cost(of.problem, of.computation, planted.spaces.space(name, 3).first, given)


def times(schedules: Sequence[Schedule], name: str = "dense") -> Times:
    """What was measured of schedules."""
    of = planted.cases(name)
    keys = [key_of(at) for at, _ in planted.SIZES]
    return {
        one: {key: (t, 0.01) for key, t in zip(keys, planted.seconds(of, one), strict=True)}
        for one in schedules
    }


@cache
def pair() -> CorrectedModel:
    """Learned from schedules of the same program."""
    pytest.importorskip("xgboost", reason="the extra learned is not installed")
    origins = planted.cases("dense").problem.origins
    rows = training_set(planted.records("dense", 32), origins, FEATURES).rows
    return train(rows, 0, Settings(rounds=60))


@pytest.fixture(autouse=True)
def no_model_of_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFCUT_MODEL", str(tmp_path / "default.json"))


def said(given: Price) -> str:
    assert isinstance(given, OnlineModel)
    return given.description


@needs_xgboost
def test_trials_correct_the_closed_form() -> None:
    drawn = planted.drawn("dense", 60)
    asked = price("learned")
    assert isinstance(asked, OnlineModel)
    closed = [sum(asked(one).values()) for one in drawn]
    asked.refit(times(drawn[: SCHEDULES - 1]))  # too few
    assert [sum(asked(one).values()) for one in drawn] == closed
    assert asked.description == "the closed form"
    asked.refit(times(drawn[:40]))
    wanted = [sum(planted.seconds(planted.cases("dense"), one)) for one in drawn]

    def off(found: Sequence[float]) -> float:
        return float(np.abs(np.log(np.array(wanted[40:]) / np.array(found[40:]))).mean())

    assert asked.description == "the closed form, corrected by 40 trials"
    assert off([sum(asked(one).values()) for one in drawn]) < 0.7 * off(closed)


@needs_xgboost
def test_a_model_stands_behind_the_first_prices_where_it_knows_the_program(tmp_path: Path) -> None:
    drawn = planted.drawn("dense", 40)
    pair().save(tmp_path / "model.json")
    asked = price(tmp_path / "model.json")
    one = planted.cases("dense")(drawn[35])
    _, features = compute_features(one, FEATURES)

    assert said(asked) == "the closed form, corrected by model.json"
    _, first = compute_features(planted.cases("dense")(planted.drawn("dense", 1)[0]), FEATURES)
    expected = pair().corrected_seconds(features, one.seconds, first).seconds
    assert list(asked(drawn[35]).values()) == nearly(list(expected))
    assert isinstance(asked, OnlineModel)
    asked.refit(times(drawn[:24]))
    assert said(asked).startswith("the closed form, corrected by model.json")


@needs_xgboost
def test_a_model_that_does_not_know_the_machine_stays_out_and_says_so(tmp_path: Path) -> None:
    pair().save(tmp_path / "model.json")
    of = planted.cases("dense", "zen4")
    first = planted.spaces.space("dense", 3, "zen4").first
    asked = get_cost(of.problem, of.computation, first, tmp_path / "model.json")

    assert said(asked).startswith("the closed form; not by model.json: machine.")
    assert list(asked(first).values()) == nearly(list(of(first).seconds))


@needs_xgboost
def test_the_default_model_is_taken_where_it_is_and_one_that_is_damaged_or_of_others_is_not(
    tmp_path: Path,
) -> None:
    assert said(price(None)) == said(price("learned")) == "the closed form"
    pair().save(model_path("cpu"))
    assert said(price(None)) == "the closed form, corrected by default.json"
    model_path("cpu").write_text("{}", encoding="utf-8")
    assert (
        said(price("learned"))
        == "the closed form; not by default.json: it is not an offcut model 2"
    )
    pair().save(model_path("cpu"))
    held = json.loads(model_path("cpu").read_text(encoding="utf-8"))
    held["ensemble"]["members"] = [{"learner": {}}]
    model_path("cpu").write_text(json.dumps(held), encoding="utf-8")
    assert said(price(None)).startswith(
        "the closed form; not by default.json: what it holds is damaged: XGBoostError: "
    )
    replace(pair(), names=("mine", *pair().names[1:])).save(tmp_path / "model.json")
    assert said(price(tmp_path / "model.json")) == (
        "the closed form; not by model.json: it was learned from mine, which no feature gives here"
    )


def test_the_default_model_lies_beside_the_default_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OFFCUT_MODEL")
    monkeypatch.setenv("OFFCUT_RECORDS", str(tmp_path / "records.sqlite"))

    assert model_path("cpu") == tmp_path / "model-cpu.json"


@pytest.mark.parametrize("given", ["learned", None])
def test_without_xgboost_search_goes_by_the_closed_form(
    monkeypatch: pytest.MonkeyPatch, given: object
) -> None:
    monkeypatch.setattr(xgboost_loader, "import_error", lambda: xgboost_loader.ABSENT)
    model_path("cpu").write_text("{}", encoding="utf-8")
    asked, first = price(given), planted.spaces.space("dense", 3).first

    assert not isinstance(asked, OnlineModel)
    assert asked(first) == price("closed")(first)
    assert asked.description.startswith("the closed form; not by default.json: ")  # type: ignore[attr-defined]
    assert asked.description.endswith("; not learned: xgboost is not installed")  # type: ignore[attr-defined]


def test_of_loops_that_no_nest_describes_nothing_is_learned() -> None:
    request, options, target = planted.spaces.problem("loops")
    space = planted.spaces.space("loops", 3)
    made = get_cost(
        Problem(request, options, target, planted.SIZES), space.computation, space.first, "learned"
    )
    assert 0 < max(made(space.first).values()) < 1e-3


@needs_xgboost
def test_a_schedule_without_nests_goes_by_the_closed_form_until_it_has_taught() -> None:
    own, drawn = Schedule.parse("schedule C"), planted.drawn("dense", 8)
    learned, closed = price("learned"), price("closed")
    assert isinstance(learned, OnlineModel)
    assert learned(own) == closed(own)
    keys = dict.fromkeys(learned.keys, (1e-6, 0.0))
    learned.refit({**times(drawn), own: keys})
    assert learned(own).keys() == closed(own).keys()


# In a campaign


def campaign(
    records: Path,
    given: object,
    until: float = math.inf,
    trials: int = 24,
    tell: Callable[[Progress], None] | None = None,
) -> Campaign:
    """Of made-up times; stops, as if killed, once it has measured `until`."""
    of = planted.cases("dense")
    space = planted.spaces.space("dense", 2)
    expected = ExpectedCost(price(given), {key_of(at): one for at, one in planted.SIZES}, 4.0)
    count = 0

    def measure(schedules: Sequence[Schedule], progress: Callable[[Measured], None]) -> None:
        nonlocal count
        for schedule in schedules:
            if count >= until:
                raise KeyboardInterrupt
            count += 1
            pairs = zip(planted.SIZES, planted.seconds(of, schedule), strict=True)
            told = tuple(Time(at, one, 0.01) for (at, _), one in pairs)
            progress(Measured(schedule, Outcome.OK, told))

    named, explores = get_explorer(cheapest)
    return Campaign(
        *(of.problem, replace(space, expected=expected), expected, explores, named),
        *(Records(records), measure, trials, None, tell or (lambda progress: None)),
    )


def cheapest(
    space: ScheduleSpace, seen: Sequence[TriedSchedule], rng: Random, count: int
) -> Sequence[Schedule]:
    """Of a few points at random those that are predicted to be the fastest."""
    known = {one.schedule for one in seen}
    drawn = dict.fromkeys(space.sample(rng) for _ in range(2 * count))
    return sorted((one for one in drawn if one not in known), key=space.expected)[:count]


def tried(one: Campaign) -> list[Schedule]:
    return [measured.schedule for measured in one.tried]


@needs_xgboost
def test_a_campaign_learns_from_its_trials_and_says_so(tmp_path: Path) -> None:
    told: list[Progress] = []
    campaign(tmp_path / "r", None, trials=32, tell=told.append).best()

    plain = "the closed form"
    assert {one.price for one in told[:8]} == {plain}
    learned_from = [(n, one.price) for n, one in enumerate(told) if one.price != plain]
    assert learned_from
    for trial, price in learned_from:  # of all rounds before, of eight trials each
        assert price == f"{plain}, corrected by {trial // 8 * 8} trials"


@pytest.mark.slow
@needs_xgboost
def test_what_was_killed_proposes_the_same(tmp_path: Path) -> None:
    whole = campaign(tmp_path / "whole", None, trials=32)
    best = whole.best()
    with pytest.raises(KeyboardInterrupt):
        campaign(tmp_path / "killed", None, 27, 32).best()
    again = campaign(tmp_path / "killed", None, trials=32)

    assert again.best() == best
    assert tried(again) == tried(whole)


# Prices of the user's


class Counting:
    """Learns nothing, and notes of how many schedules it was told."""

    def __init__(self) -> None:
        self.learned: list[int] = []

    def __call__(self, schedule: Schedule, n: int) -> float:
        return 1e-6 * n

    def refit(self, times: Times) -> None:
        self.learned.append(len(times))


def test_a_price_with_refit_is_told_what_was_measured(tmp_path: Path) -> None:
    own = Counting()
    campaign(tmp_path / "r", own).best()

    assert own.learned == sorted(own.learned)
    assert (len(own.learned) >= 3, own.learned[-1]) == (True, 24)


class Point:
    """An entry point."""

    name, value = "mine", "elsewhere:mine"

    def __init__(self, found: Any) -> None:
        self.found = found

    def load(self) -> Any:
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


def with_point(monkeypatch: pytest.MonkeyPatch, found: Any) -> None:
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [Point(found)])


def test_the_class_that_the_page_publishes_is_made_a_price(monkeypatch: pytest.MonkeyPatch) -> None:
    page = Path(__file__).parents[2] / "docs" / "extending" / "model.md"
    examples = doctest.DocTestParser().get_examples(page.read_text(encoding="utf-8"))
    (source,) = (one.source for one in examples if one.source.startswith("class ByWords"))
    named: dict[str, Any] = {"exp": math.exp, "log": math.log, "median": median}
    exec(source, named)
    with_point(monkeypatch, named["ByWords"])
    drawn, made = planted.drawn("dense", 4), price("mine")
    before = made(drawn[0])
    assert isinstance(made, RefittablePrice)
    made.refit(times(drawn))

    assert before[("n", 16),] == nearly(16.0)
    assert 0 < made(drawn[0])[("n", 16),] < 1.0


REFUSED: dict[str, tuple[object, object, str]] = refusals(
    """\
no name
given 'cheap', None
tune: cannot take price='cheap'
  because  there is no such price
  help     "closed", "learned", the path of a model (.json)
  help     mine, of plug-ins
  help     lambda schedule, n: 2e-9 * n

cannot be loaded
given 'mine', ImportError('no')
tune: cannot load price='mine'
  at       elsewhere:mine, an entry point of offcut.prices
  because  ImportError: no

no model
given 'none.json', None
learn: cannot read none.json
  at       none.json
  because  No such file or directory
  help     offcut learn RECORDS -o MODEL makes one

no function
given 3, None
tune: cannot take price=3
  because  it is not a function
  help     lambda schedule, n: 2e-9 * n""",
    globals(),
)


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_price_is_refused(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    given, found, text = REFUSED[case]
    with_point(monkeypatch, found)
    with pytest.raises(OffcutError) as refused:
        price(given)
    assert str(refused.value) == text


def test_tuning_keeps_what_records_name(tmp_path: Path) -> None:
    def few(space: Any, seen: Any, rng: Any, count: int) -> Any:
        return ()

    n = oc.dim("n", min=1, max=64)
    a = oc.placeholder((n, 24), name="A")
    doubled = oc.compute((n, 24), lambda i, j: a[i, j] * 2.0, name="C")
    records = Records(tmp_path / "r")
    limits = Limits(budget=0.02, noise=math.inf)
    oc.tune(doubled, sizes={"n": [3]}, trials=1, explorer=few, records=records, limits=limits)
    program, place = records.origins

    assert {(one.program, one.machine) for one in records} == {(program.digest, place.digest)}


def test_a_price_that_cannot_be_taught_says_so(tmp_path: Path) -> None:
    class Stubborn:
        def __call__(self, schedule: Any, **sizes: int) -> float:
            return 1e-6

        def refit(self, times: Any) -> None:
            raise KeyError("worth")

    with rejection("""\
DescribeError: tune: cannot teach price=
  because  its refit raised KeyError: 'worth'"""):
        campaign(tmp_path / "r", Stubborn(), trials=12).best()


@pytest.mark.parametrize("seconds", [10**400, -1, math.nan, math.inf, "1", True])
def test_a_price_past_all_floats_is_none(tmp_path: Path, seconds: object) -> None:
    with pytest.raises(DescribeError) as caught:
        campaign(tmp_path / "r", lambda schedule, **sizes: seconds, trials=4).best()
    assert caught.value.because.startswith("it gave ")
