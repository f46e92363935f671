"""What tuning settled on: written by a campaign, read back, and which of several verdicts counts."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import slow

import offcut as oc
from bench.programs import Judged, programs
from bench.shipping import ship
from offcut import Outcome, Record, Records, Schedule, ops
from offcut.core import index as ix
from offcut.costmodel import prune_dominated
from offcut.ir import Expr, Select, Size, Var
from offcut.search import key_of, trials
from offcut.search.record import record_of
from offcut.search.trials import (
    BEST,
    DEFAULT,
    Verdict,
    has_same_planner,
    latest_verdict,
    shipped_verdict,
    verdicts_of,
)
from offcut.tuning.campaign import Campaign
from offcut.tuning.problem import distribution
from tests import spaces
from tests.agree import nearly
from tests.facade import (
    ExpectedCost,
    Measured,
    Time,
    get_explorer,
    real,
    requested,
    stand_ins,
)
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


def test_a_campaign_records_what_it_chose_beside_the_default_once(tmp_path: Path) -> None:
    for _ in range(2):
        chosen = tuned(faster(2.0), tmp_path / "r")
        (verdict,) = verdicts(tmp_path / "r")
    assert Schedule.parse(verdict.schedule) == chosen != first()
    assert verdict.default == str(first())
    assert verdict.gains == nearly((2.0, 2.0))
    assert str(verdict).endswith(", 2.00× as fast as the default at n = 1, 64")
    tuned(faster(3.0), tmp_path / "r", seed=1)
    assert len(verdicts(tmp_path / "r")) == 2


@pytest.mark.parametrize("trials", [1, 12])
def test_a_default_that_stays_is_a_verdict_too(tmp_path: Path, trials: int) -> None:
    assert tuned(faster(0.5), tmp_path / "r", trials) == first()
    (verdict,) = verdicts(tmp_path / "r")
    assert not verdict.changes
    assert str(verdict).endswith(", the default was the best at n = 1, 64")


def test_where_the_default_fails_the_verdict_is_of_the_best_alone(tmp_path: Path) -> None:
    tuned(lambda one: math.inf if one == first() else 1e-6, tmp_path / "r")
    (verdict,) = verdicts(tmp_path / "r")
    assert (verdict.default, verdict.changes) == (None, True)
    assert str(verdict).endswith(", with no time of the default recorded beside it")


MANY = {f"n{k}": 1e-6 for k in range(1, 10)}


@pytest.mark.parametrize(
    ("records", "text"),
    [
        (
            [*said(BEST, "b", n1=1e-6, n9=2e-6), *said(DEFAULT, "d", n1=3e-6, n9=2e-6)],
            "tuned 2023-11-14, 1.00× to 3.00× as fast as the default at n = 1, 9",
        ),
        (
            [*said(BEST, "b", **MANY), *said(DEFAULT, "d", **MANY)],
            "tuned 2023-11-14, 1.00× as fast as the default at 9 sizes",
        ),
        (
            [
                replace(record, sizes={})
                for record in (*said(BEST, "b", n1=1.0), *said(DEFAULT, "d", n1=2.0))
            ],
            "tuned 2023-11-14, 2.00× as fast as the default there is",
        ),
        *(
            (
                said(BEST, "b", created, n1=1e-6),
                "tuned on a day that is not known, with no time of the default recorded beside it",
            )
            for created in (1.7e12, 1e300)
        ),
    ],
)
def test_a_verdict_says_when_and_which_gains(records: list[Record], text: str) -> None:
    (verdict,) = verdicts_of(records)
    assert str(verdict) == text


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


# Verdicts are shipped where they gain enough, and found again; the judged programs have sizes that they allow.


CPU = oc.target("cpu", machine="cascade-lake")
OPTIONS = CPU.options("tune", threads=1)
KIND = CPU.machine_kind(OPTIONS)


def verdict(program: str, gain: float, created: float = 1e9, machine: str = "") -> list[Record]:
    return [
        Record(
            *(
                program,
                text,
                machine or CPU.record_key(OPTIONS),
                oc.__version__,
                {"n": size},
                Outcome.OK,
            ),
            seconds=seconds,
            spread=0.0,
            explorer=explorer,
            created=created,
        )
        for explorer, text, seconds in ((BEST, f"s{gain}", 1e-6), (DEFAULT, "default", gain * 1e-6))
        for size in (1, 7)
    ]


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Records:
    monkeypatch.setattr(trials, "SHIPPED", tmp_path / "shipped")
    return Records(tmp_path / "records.sqlite")


def schedule_of(program: str) -> str | None:
    found = shipped_verdict(program, KIND)
    assert found.because == ""
    return None if found.verdict is None else found.verdict.schedule


def test_what_gains_enough_is_shipped_and_found(records: Records, tmp_path: Path) -> None:
    records.add(
        [*verdict("fast", 1.5), *verdict("alike", 1.01), *verdict("elsewhere", 2.0, 1e9, "m")]
    )
    trial = replace(verdict("fast", 9.0)[0], explorer="anneal")
    records.add(trial)
    file = ship(records, CPU, OPTIONS)
    assert file.name == f"intel-xeon-cascade-lake-{KIND}.jsonl"
    assert [schedule_of(program) for program in ("fast", "alike", "elsewhere")] == [
        "s1.5",
        None,
        None,
    ]
    assert len(file.read_text(encoding="utf-8").splitlines()) == 4
    assert ship(records, CPU, OPTIONS, tmp_path / "out").parent == tmp_path / "out"


def test_the_last_word_is_shipped_and_other_programs_stay(records: Records, tmp_path: Path) -> None:
    records.add([*verdict("a", 1.5), *verdict("b", 1.6)])
    ship(records, CPU, OPTIONS)
    again = Records(tmp_path / "again.sqlite")
    again.add([*verdict("a", 1.7), *verdict("a", 1.8, 2e9)])
    ship(again, CPU, OPTIONS)
    assert [schedule_of(program) for program in "ab"] == ["s1.8", "s1.6"]
    again.add(verdict("a", 1.0, 3e9))
    ship(again, CPU, OPTIONS)
    assert [schedule_of(program) for program in "ab"] == [None, "s1.6"]


def test_every_line_that_is_shipped_is_of_a_verdict_of_this_version() -> None:
    for file in trials.SHIPPED.glob("*.jsonl"):
        for line in file.read_text(encoding="utf-8").splitlines():
            record = record_of(json.loads(line))
            assert record.explorer in (BEST, DEFAULT)
            assert has_same_planner(record.version, oc.__version__)
            oc.Schedule.parse(record.schedule)


@pytest.mark.parametrize("make", programs().values(), ids=programs())
def test_a_judged_program_is_asked_for_at_sizes_that_it_allows(make: Callable[[], Judged]) -> None:
    judged = make()
    known = stand_ins(judged.constants, judged.output, judged.inputs, "tune")
    request = requested(judged.output, judged.inputs, known, "tune")
    tuned, held = (
        distribution(request.program, request.users, sizes)
        for sizes in (judged.tuned, judged.held_out)
    )
    assert not {tuple(at.items()) for at, _ in tuned} & {tuple(at.items()) for at, _ in held}


# Which ways stay: the fewest that no call misses the others with.


N = Var("n")
UP_TO_4096 = (Size("n", 0, 4096),)


def near(size: int, cheap: float, dear: float) -> Expr:
    """Cheap where ``n <= size``, dear beyond."""
    return Select(ix.compare("<=", N, size), real(cheap), real(dear))


WAYS: dict[str, tuple[tuple[Expr, ...], tuple[int, ...]]] = {
    "one": ((real(1.0),), (0,)),
    "equal ones": ((real(1.0), real(1.0), real(1.0)), (0,)),
    "never better": ((real(2.0), real(1.0)), (1,)),
    "a little better": ((near(9, 1.0, 1.0), near(9, 0.99, 1.5)), (0,)),
    "each somewhere": ((near(9, 1.0, 2.0), near(9, 2.0, 1.0)), (0, 1)),
    "between the others": ((near(9, 1.0, 2.0), near(9, 1.5, 1.5), near(9, 2.0, 1.0)), (0, 2)),
}


@pytest.mark.parametrize("what", WAYS)
def test_the_ways_that_stay(what: str) -> None:
    costs, stay = WAYS[what]
    assert prune_dominated(costs, UP_TO_4096, (), 0.02) == stay


def test_calls_that_are_not_allowed_decide_nothing() -> None:
    costs = (near(9, 1.0, 2.0), near(9, 2.0, 1.0))
    assert prune_dominated(costs, (Size("n", 0, 8),), (), 0.02) == (0,)
    assert prune_dominated(costs, (Size("n", 16, 64, 16),), (), 0.02) == (1,)
    assert prune_dominated(costs, UP_TO_4096, (ix.compare(">", N, 100),), 0.02) == (1,)
    assert prune_dominated(costs, UP_TO_4096, (ix.compare(">", N, 5000),), 0.02) == (
        0,
        1,
    )  # none is allowed
    assert prune_dominated(costs, (Size("n", 0, 0),), (), 0.02) == (0, 1)


@pytest.mark.parametrize("rows", [slow(1), 15, slow(100)])
def test_the_cheapest_that_stays_is_near_the_cheapest(rows: int) -> None:
    n = oc.dim("n", max=512)
    a, w = oc.placeholder((n, 64), name="A"), oc.placeholder((64, 96), name="W")

    def seconds(strategy: str) -> float:
        kernel = oc.compile(ops.matmul(a, w), inputs=[a, w], strategy=strategy)
        return min(one.seconds for one in kernel.plan(n=rows).considered)

    assert seconds("auto") <= 1.02 * min(seconds("ladder"), seconds("balance"))
