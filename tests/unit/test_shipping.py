"""Verdicts are shipped where they gain enough, and found again; the judged programs have sizes that they allow."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import offcut as oc
from bench.programs import Judged, programs
from bench.shipping import ship
from offcut import Outcome, Record, Records
from offcut.search import trials
from offcut.search.record import record_of
from offcut.search.trials import BEST, DEFAULT, has_same_planner, shipped_verdict
from offcut.tuning.problem import distribution
from tests.facade import requested, stand_ins

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


def test_what_gains_enough_is_shipped_and_found(records: Records) -> None:
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


def test_another_folder_leaves_the_package_as_it_is(records: Records, tmp_path: Path) -> None:
    records.add(verdict("a", 1.5))
    assert ship(records, CPU, OPTIONS, tmp_path / "out").parent == tmp_path / "out"
    assert schedule_of("a") is None


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
