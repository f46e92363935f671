"""What records name by digest is kept in full: in their file, through text, beside files that have none."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

import offcut as oc
from offcut import Outcome, Record, Records
from offcut.costmodel import of_plain, plain
from offcut.errors import OffcutError
from offcut.search import Place, ProgramText
from tests import spaces
from tests.facade import Problem, load_machine, shipped_machines

PROGRAM = ProgramText("p", "program C\n", {"n": "n_1"})
PLACE = Place("m", "cpu", {"name": "mine", "core": {"count": 2}}, 2, True, ("theirs",))
OK = Record("p", "schedule C", "m", "1", {"n": 7}, Outcome.OK, 2e-6, 0.1, created=1.5)


@pytest.fixture
def records(tmp_path: Path) -> Records:
    return Records(tmp_path / "records.sqlite")


def test_what_is_kept_is_read_again_once(records: Records) -> None:
    assert records.origins == ()
    records.keep([PROGRAM, PLACE])
    records.keep([PLACE, PROGRAM])

    assert records.origins == (PROGRAM, PLACE)
    assert list(records) == []


def test_a_file_of_an_earlier_offcut_opens_and_gets_its_table_with_the_first(
    records: Records,
) -> None:
    records.add(OK)
    with sqlite3.connect(records.path) as connection:
        assert not connection.execute(
            "SELECT * FROM sqlite_schema WHERE name = 'origin'"
        ).fetchall()
    connection.close()

    assert Records(records.path).origins == ()
    assert records.prune(1) == 0
    records.keep([PROGRAM])
    assert records.origins == (PROGRAM,)
    assert list(records) == [OK]


def test_lines_of_json_carry_them_and_a_table_does_not(records: Records, tmp_path: Path) -> None:
    records.add(OK)
    records.keep([PROGRAM, PLACE])
    for name, origins in (("all.jsonl", (PROGRAM, PLACE)), ("all.csv", ())):
        assert records.export(tmp_path / name) == 1
        other = Records(tmp_path / f"{name}.sqlite")
        assert (other.import_(tmp_path / name), other.import_(tmp_path / name)) == (1, 0)
        assert other.origins == origins
        assert list(other) == [OK]


def test_what_no_record_names_goes_when_records_are_pruned(records: Records) -> None:
    records.add([OK, replace(OK, program="q", version="0")])
    records.keep([PROGRAM, replace(PROGRAM, digest="q"), PLACE])
    assert records.prune(1, version="1") == 1

    assert records.origins == (PROGRAM, PLACE)


LINES = {
    "a kind that is none": ({"kind": "thing"}, "its kind is 'thing', none of program, place"),
    "a field is missing": ({"kind": "program", "digest": "p"}, "it lacks sizes, text"),
    "a field too many": (
        {"kind": "program", "digest": "p", "text": "t", "sizes": {}, "odd": 1},
        "it has odd",
    ),
    "no text": ({"kind": "program", "digest": "p", "text": 3, "sizes": {}}, "text is 3"),
    "no threads": (
        {
            "kind": "place",
            "digest": "m",
            "target": "cpu",
            "machine": {},
            "threads": 0,
            "reassociate": True,
            "microkernels": [],
        },
        "threads is 0",
    ),
}


@pytest.mark.parametrize("case", LINES)
def test_a_line_that_is_none_is_refused_by_its_number(
    records: Records, tmp_path: Path, case: str
) -> None:
    said, because = LINES[case]
    file = tmp_path / "all.jsonl"
    file.write_text(f"\n{json.dumps(said)}\n", encoding="utf-8")
    with pytest.raises(OffcutError) as refused:
        records.import_(file)

    assert (refused.value.at, refused.value.because) == ("line 2", because)
    assert list(records) == []


@pytest.mark.parametrize("name", shipped_machines())
def test_a_machine_is_what_its_fields_describe(name: str) -> None:
    said = json.loads(json.dumps(plain(load_machine(name))))

    assert of_plain(said) == load_machine(name)


@pytest.mark.parametrize("name", spaces.PROGRAMS)
def test_a_problem_is_planned_again_from_what_is_kept(name: str) -> None:
    request, options, target = spaces.problem(name)
    problem = Problem(request, options, target, (({"n": 3}, 1.0),))
    program, place = problem.origins
    assert isinstance(program, ProgramText)
    assert isinstance(place, Place)
    parsed = oc.parse(program.text)
    again = oc.target(place.target, machine=of_plain(place.machine))

    assert parsed.digest == program.digest == problem.program
    assert (
        again.record_key(replace(options, threads=place.threads)) == place.digest == problem.machine
    )
