"""What tuning settled on: written by a campaign, read back, and which of several verdicts counts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from offcut import Outcome, Record, Records, Schedule
from offcut.search import key_of
from offcut.search.trials import (
    BEST,
    DEFAULT,
    Verdict,
    has_same_planner,
    latest_verdict,
    verdicts_of,
)
from offcut.tuning.campaign import Campaign
from tests import spaces
from tests.agree import nearly
from tests.facade import ExpectedCost, Measured, Time, get_explorer
from tests.spaces import SIZES, closed_form

NOON = 1_700_000_000.0


def tuned(
    seconds: Callable[[Schedule], float], records: Path, trials: int = 8, seed: int = 0
) -> Schedule:
    """What a campaign chooses where a call takes so many seconds at every size; infinite: it is refused."""

    def measure(schedules: Sequence[Schedule], tell: Callable[[Measured], None]) -> None:
        for schedule in schedules:
            one = seconds(schedule)
            times = tuple(Time(at, one, 0.0) for at, _ in SIZES)
            found = Measured(schedule, Outcome.OK, times)
            tell(found if math.isfinite(one) else Measured(schedule, Outcome.REFUSED))

    space, price = spaces.space("dense", 2), closed_form("dense", seed)
    expected = ExpectedCost(price, {key_of(at): weight for at, weight in SIZES})
    named, explorer = get_explorer("random")
    space = replace(space, expected=expected)
    return Campaign(
        price.problem, space, expected, explorer, named, Records(records), measure, trials
    ).best()


def first() -> Schedule:
    return spaces.space("dense", 2).first


def said(explorer: str, schedule: str, created: float = NOON, **seconds: float) -> list[Record]:
    """Records of one kind, at sizes that are written ``n7``."""
    return [
        Record(
            *("program", schedule, "machine", "0.1.0", {at[0]: int(at[1:])}, Outcome.OK),
            seconds=one,
            spread=0.0,
            explorer=explorer,
            created=created,
        )
        for at, one in seconds.items()
    ]


def verdicts(path: Path) -> tuple[Verdict, ...]:
    return verdicts_of(Records(path))


def faster(times: float) -> Callable[[Schedule], float]:
    """The default takes 1 µs, every other schedule so many times less."""
    return lambda schedule: 1e-6 if schedule == first() else 1e-6 / times


def test_a_campaign_records_what_it_chose_beside_the_default(tmp_path: Path) -> None:
    chosen = tuned(faster(2.0), tmp_path / "r")
    (verdict,) = verdicts(tmp_path / "r")
    assert Schedule.parse(verdict.schedule) == chosen != first()
    assert verdict.default == str(first())
    assert verdict.gains == nearly((2.0, 2.0))
    assert str(verdict).endswith(", 2.00× as fast as the default at n = 1, 64")


@pytest.mark.parametrize("trials", [1, 12])
def test_a_default_that_stays_is_a_verdict_too(tmp_path: Path, trials: int) -> None:
    assert tuned(faster(0.5), tmp_path / "r", trials) == first()
    (verdict,) = verdicts(tmp_path / "r")
    assert not verdict.changes
    assert str(verdict).endswith(", the default was the best at n = 1, 64")


def test_a_campaign_that_is_begun_again_adds_no_verdict(tmp_path: Path) -> None:
    for _ in range(2):
        tuned(faster(2.0), tmp_path / "r")
    assert len(verdicts(tmp_path / "r")) == 1
    tuned(faster(3.0), tmp_path / "r", seed=1)
    assert len(verdicts(tmp_path / "r")) == 2


def test_where_the_default_fails_the_verdict_is_of_the_best_alone(tmp_path: Path) -> None:
    tuned(lambda one: math.inf if one == first() else 1e-6, tmp_path / "r")
    (verdict,) = verdicts(tmp_path / "r")
    assert verdict.default is None
    assert verdict.changes
    assert str(verdict).endswith(", with no time of the default recorded beside it")


def test_a_verdict_says_when_and_between_which_gains() -> None:
    (verdict,) = verdicts_of(
        [*said(BEST, "b", n1=1e-6, n9=2e-6), *said(DEFAULT, "d", n1=3e-6, n9=2e-6)]
    )
    assert str(verdict) == "tuned 2023-11-14, 1.00× to 3.00× as fast as the default at n = 1, 9"


@pytest.mark.parametrize("created", [1.7e12, 1e300])
def test_a_moment_that_is_no_time_in_seconds_is_not_told(created: float) -> None:
    (verdict,) = verdicts_of(said(BEST, "b", created, n1=1e-6))
    assert str(verdict) == (
        "tuned on a day that is not known, with no time of the default recorded beside it"
    )


def test_many_sizes_and_several_are_counted_and_a_program_without_sizes_names_none() -> None:
    many = {f"n{k}": 1e-6 for k in range(1, 10)}
    (counted,) = verdicts_of([*said(BEST, "b", **many), *said(DEFAULT, "d", **many)])
    assert str(counted).endswith("1.00× as fast as the default at 9 sizes")
    plain = [
        replace(record, sizes={})
        for record in (*said(BEST, "b", n1=1.0), *said(DEFAULT, "d", n1=2.0))
    ]
    (alone,) = verdicts_of(plain)
    assert str(alone).endswith("2.00× as fast as the default there is")


def test_records_of_trials_are_no_verdicts() -> None:
    assert verdicts_of(said("anneal", "a", n1=1e-6)) == ()
    assert verdicts_of(said(DEFAULT, "d", n1=1e-6)) == ()


@pytest.mark.parametrize(
    ("sizes", "wanted"),
    [
        ([("n1",)], 0),
        ([("n1",), ("n1",)], 1),  # the last of as many sizes
        ([("n1", "n7"), ("n1",)], 0),  # more sizes before fewer
        ([("n1",), ("n1", "n7"), ("n8", "n9"), ("n3",)], 2),
    ],
)
def test_the_verdict_at_the_most_sizes_counts_and_of_these_the_last(
    sizes: Sequence[Sequence[str]], wanted: int
) -> None:
    records = [
        record
        for place, names in enumerate(sizes)
        for record in said(BEST, f"s{place}", NOON + place, **dict.fromkeys(names, 1e-6))
    ]
    found = latest_verdict(verdicts_of(records))
    assert found is not None
    assert found.schedule == f"s{wanted}"
    assert latest_verdict(()) is None


def test_versions_that_differ_in_the_last_number_alone_plan_alike() -> None:
    assert has_same_planner("0.1.0", "0.1.7")
    assert not has_same_planner("0.1.0", "0.2.0")
    assert not has_same_planner("1.1.0", "0.1.0")
