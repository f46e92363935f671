"""Records: written by several processes, killed at any moment, carried as text; nothing is lost."""

from __future__ import annotations

import csv
import json
import os
import pickle
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import offcut as oc
from offcut import Outcome, Record, Records
from offcut.errors import OffcutError
from offcut.search import place_of
from offcut.search.trials import BEST, DEFAULT, recorded_verdict
from tests.facade import load_machine

OK = Record("p", "schedule C", "m", "1", {"n": 7}, Outcome.OK, 2e-6, 0.1, created=1.5)
REFUSED = Record("p", "schedule D", "m", "1", {}, Outcome.REFUSED, because='no,\n"never"\r\n é\x00')


def ok(schedule: str, seconds: float, n: int = 7, **changes: Any) -> Record:
    return replace(OK, schedule=schedule, sizes={"n": n}, seconds=seconds, **changes)


@pytest.fixture
def records(tmp_path: Path) -> Records:
    return Records(tmp_path / "deep" / "records.sqlite")


def test_what_is_added_is_read_in_order_of_writing(records: Records) -> None:
    assert list(records) == []
    assert not records.path.exists()

    records.add(OK)
    records.add([REFUSED, OK])

    assert list(records) == [OK, REFUSED, OK]
    assert len(records) == 3
    assert list(Records(records.path)) == [OK, REFUSED, OK]


def test_more_than_a_page_is_read_whole(records: Records) -> None:
    records.add(ok("s", 1e-6, n) for n in range(1300))

    assert [record.sizes["n"] for record in records] == list(range(1300))


def test_several_records_are_added_whole_or_not_at_all(records: Records) -> None:
    records.add(OK)
    with pytest.raises(OffcutError):
        records.add([OK, "a record"])  # type: ignore[list-item]

    assert list(records) == [OK]


def test_they_cross_pickles(records: Records) -> None:
    records.add(OK)

    assert list(pickle.loads(pickle.dumps(records))) == [OK]


def test_the_face_has_them(records: Records) -> None:
    assert (oc.Records, oc.Record, oc.Outcome) == (Records, Record, Outcome)


def test_a_place_is_told_by_all_that_times_depend_on() -> None:
    here, there = load_machine("cascade-lake"), load_machine("zen4")
    names = [place_of("cpu", here, 1), place_of("cpu", here, 2), place_of("cpu", there, 1)]

    assert len({*names, place_of("gpu", here, 1)}) == 4
    assert names[0] == place_of("cpu", load_machine("cascade-lake"), 1)


def test_the_environment_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFCUT_RECORDS", str(tmp_path / "mine"))

    assert Records().path == tmp_path / "mine"
    monkeypatch.setenv("OFFCUT_RECORDS", "")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert Records().path.name == "records.sqlite"


def test_off_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFCUT_RECORDS", "off")

    with pytest.raises(OffcutError) as refused:
        Records()

    assert (
        str(refused.value)
        == """\
records: cannot keep records
  because  OFFCUT_RECORDS is off
  help     Records("a file")
  help     OFFCUT_RECORDS=a file
  help     --records file, of the command"""
    )


# Which trial is the best


def test_the_best_is_the_fastest_at_the_sizes_that_count(records: Records) -> None:
    records.add([ok("a", 1e-6, 1), ok("a", 9e-6, 99), ok("b", 2e-6, 1), ok("b", 5e-6, 99)])
    small, large = {"n": 1}, {"n": 99}

    def best(*sizes: tuple[dict[str, int], float]) -> str:
        found = records.best("p", "m", "1", sizes)
        assert found is not None
        return found.schedule

    assert best((small, 1.0)) == "a"
    assert best((large, 1.0)) == "b"
    assert best((small, 1.0), (large, 1.0)) == "b", "7 us against 10 us"
    assert best((small, 100.0), (large, 1.0)) == "a", "109 us against 205 us"
    assert records.best("p", "m", "1", [({"n": 3}, 1.0)]) is None, "nobody was timed there"


def test_where_no_sizes_are_given_ratios_count(records: Records) -> None:
    records.add([ok("a", 1e-6, 1), ok("a", 9e-6, 99), ok("b", 2e-6, 1), ok("b", 5e-6, 99)])
    found = records.best("p", "m")
    assert found is not None
    assert found.schedule == "a", "sqrt(9 / 5) < 2"
    assert found.times == {(("n", 1),): 1e-6, (("n", 99),): 9e-6}

    records.add(ok("only at one size", 1e-9, 1))
    assert records.best("p", "m") == found


def test_what_was_measured_last_counts(records: Records) -> None:
    records.add([ok("a", 1e-6), ok("b", 2e-6), ok("a", 3e-6)])

    found = records.best("p", "m")
    assert found is not None
    assert found.schedule == "b"


@pytest.mark.parametrize("outcome", [outcome for outcome in Outcome if outcome is not Outcome.OK])
def test_a_schedule_that_ever_failed_is_not_the_best(records: Records, outcome: Outcome) -> None:
    failed = replace(REFUSED, schedule="a", outcome=outcome)
    records.add([ok("a", 1e-6), ok("b", 2e-6), failed])

    found = records.best("p", "m")
    assert found is not None
    assert found.schedule == "b"
    assert [trial.ok for trial in records.trials("p", "m")] == [False, True]


def test_records_of_others_do_not_count(records: Records) -> None:
    records.add(
        [ok("a", 1e-6, machine="x"), ok("b", 1e-6, program="q"), ok("c", 1e-6, version="0")]
    )

    assert records.best("p", "m", "1") is None
    assert [trial.schedule for trial in records.trials("p", "m")] == ["c"]


# Pruning


def test_pruning_keeps_the_fastest_of_each(records: Records) -> None:
    kept = [ok("a", 1e-6), ok("z", 1e-3, program="q"), ok("a", 2e-6, version="2")]
    records.add([ok("b", 2e-6), *kept, ok("c", 3e-6), REFUSED])

    assert records.prune(keep=1) == 3
    assert list(records) == kept
    assert records.prune(keep=1, version="2") == 2
    assert list(records) == kept[2:]
    assert records.prune(keep=0) == 1
    assert list(records) == []


def test_pruning_keeps_what_tuning_settled_on(records: Records) -> None:
    settled = [
        replace(ok("b", 2e-6, version=oc.__version__), explorer=BEST, created=9.0),
        replace(ok("d", 3e-6, version=oc.__version__), explorer=DEFAULT, created=9.0),
    ]
    records.add([ok("a", 1e-6), ok("b", 2e-6), ok("d", 3e-6), *settled])
    before = recorded_verdict(records.path, "p", "m")

    assert records.prune(keep=1) == 2
    assert list(records)[1:] == settled
    assert recorded_verdict(records.path, "p", "m") == before
    assert records.prune(keep=0) == 1
    assert records.prune(keep=1, version="2") == 2


def test_a_file_that_is_not_there_has_nothing_to_prune(records: Records) -> None:
    assert records.prune(keep=1) == 0
    assert len(records) == 0


# As text


@pytest.mark.parametrize("suffix", [".jsonl", ".csv"])
def test_text_is_read_back_exactly(records: Records, tmp_path: Path, suffix: str) -> None:
    odd = replace(
        OK, sizes={"n": 2**40, "é, =": -1}, seconds=1 / 3, predicted=5e-324, seed=-(2**63)
    )
    records.add([OK, REFUSED, odd, replace(OK, explorer="a\nb", created=1e9 + 1 / 7)])
    file, other = tmp_path / f"all{suffix}", Records(tmp_path / "other")

    assert records.export(file) == 4
    assert other.import_(file) == 4
    assert list(other) == list(records)
    assert other.import_(file) == 0, "they are there already"


def test_lines_can_be_written_by_others(records: Records, tmp_path: Path) -> None:
    records.add([OK])
    records.export(tmp_path / "a.csv")
    records.export(tmp_path / "a.jsonl")

    with (tmp_path / "a.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    (line,) = (tmp_path / "a.jsonl").read_text().splitlines()
    assert (row["outcome"], float(row["seconds"]), json.loads(row["sizes"])) == (
        "ok",
        2e-6,
        {"n": 7},
    )
    assert json.loads(line)["sizes"] == {"n": 7}


def edited(**changes: Any) -> str:
    line = {"program": "p", "schedule": "s", "machine": "m", "version": "1", "sizes": {"n": 7}}
    rest = {"outcome": "ok", "seconds": 1e-6, "spread": 0, "because": "", "seed": 0, "explorer": ""}
    whole = {**line, **rest, "predicted": None, "created": 0, **changes}
    return json.dumps({name: value for name, value in whole.items() if value != "gone"})


@pytest.mark.parametrize(
    ("line", "because"),
    [
        ("{", "it is not JSON: "),
        ("[" * 100_000, "it is not JSON: "),
        ("[1]", "it is not a JSON object"),
        (edited(seed="gone"), "it lacks seed"),
        (edited(more=1), "it has more"),
        (
            edited(outcome="fine"),
            "its outcome is 'fine', none of ok, refused, wrong, crashed, hung",
        ),
        (edited(outcome=["ok"]), "its outcome is ['ok'], none of "),
        (edited(seconds="1"), "seconds is '1', not a number from 0 on"),
        (edited(seconds=-1e-6), "seconds is -1e-06, not a number from 0 on"),
        (edited(seconds=float("nan")), "seconds is nan, not a number from 0 on"),
        (edited(seconds=True), "seconds is True, not a number from 0 on"),
        (edited(seconds=None), "seconds is None where the outcome is ok"),
        (edited(outcome="hung"), "seconds is 1e-06 where the outcome is hung"),
        (edited(sizes={"n": 1.5}), "sizes hold 'n': 1.5, not a name and an integer of 64 bits"),
        (edited(sizes={"n": 2**64}), f"sizes hold 'n': {2**64}, not a name and an integer"),
        (edited(sizes=[1]), "sizes are [1], no mapping of names to integers"),
        (edited(seed=2**63), f"seed is {2**63}, not an integer of 64 bits"),
        (edited(program=7), "program is 7, not a text"),
        (edited(because="\ud800"), "because is '\\ud800', which UTF-8 does not hold"),
        (edited(created=None), "created is None, not a number from 0 on"),
    ],
)
def test_a_bad_line_is_refused_by_its_number_and_nothing_is_lost(
    records: Records, tmp_path: Path, line: str, because: str
) -> None:
    records.add(OK)
    file = tmp_path / "bad.jsonl"
    file.write_text(f"{edited()}\n\n{line}\n{edited()}\n")

    with pytest.raises(OffcutError) as refused:
        records.import_(file)

    assert str(refused.value).startswith("import: cannot read bad.jsonl\n  at       line 3\n")
    assert refused.value.because.startswith(because)
    assert list(records) == [OK]


def test_a_bad_line_of_a_table_is_refused_by_its_number(records: Records, tmp_path: Path) -> None:
    records.add([OK, REFUSED, OK])
    file = tmp_path / "table.csv"
    records.export(file)
    whole = file.read_bytes().decode()

    for old, new, line, because in [
        ("machine,", "machines,", 1, "the columns are not program, schedule, machine, version,"),
        ("2e-06,0.1,,0,,,1.5,measured\r\n", "2e-06,0.1,,0,,\r\n", 2, "it has 12 cells of 14"),
        ("2e-06", "fast", 2, "could not convert string to float: 'fast'"),
        ("refused", "lost", 3, "its outcome is 'lost', none of"),
        ("é", "\udce9", 5, "it is not UTF-8: "),
    ]:
        broken = whole.replace(old, new, 1)
        assert broken != whole
        file.write_bytes(broken.encode(errors="surrogateescape"))
        with pytest.raises(OffcutError) as refused:
            records.import_(file)
        assert refused.value.at == f"line {line}"
        assert refused.value.because.startswith(because)
    assert len(records) == 3


def test_another_suffix_is_refused(records: Records, tmp_path: Path) -> None:
    for act, op in [(records.export, "export"), (records.import_, "import")]:
        with pytest.raises(OffcutError) as refused:
            act(tmp_path / "all.txt")
        assert str(refused.value) == (
            f"{op}: cannot {op} all.txt\n  because  its suffix is .txt, none of .jsonl, .csv"
        )


def test_a_file_that_cannot_be_written_or_read_is_refused(records: Records, tmp_path: Path) -> None:
    with pytest.raises(OffcutError) as refused:
        records.export(tmp_path / "nowhere" / "all.csv")
    assert refused.value.because == "No such file or directory"
    with pytest.raises(OffcutError) as refused:
        records.import_(tmp_path / "all.csv")
    assert refused.value.because == "No such file or directory"


# Files that are none


def test_a_text_is_no_records_file(tmp_path: Path) -> None:
    file = tmp_path / "notes"
    file.write_text("not a database at all, but long enough to have a header of its own" * 9)

    with pytest.raises(OffcutError) as refused:
        Records(file)

    assert (
        str(refused.value)
        == f"""\
records: cannot use notes
  at       {file}
  because  file is not a database
  help     Records("another file")
  help     OFFCUT_RECORDS=another file"""
    )
    assert file.read_text().startswith("not a database")


def test_a_database_of_something_else_stays_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "other.sqlite"
    with sqlite3.connect(file) as other:
        other.execute("CREATE TABLE mine (x)")
    before = file.read_bytes()

    with pytest.raises(OffcutError) as refused:
        Records(file).add(OK)

    assert refused.value.because == "it is a database of something else"
    assert file.read_bytes() == before


def test_another_layout_is_refused(records: Records) -> None:
    records.add(OK)
    with sqlite3.connect(records.path) as later:
        later.execute("PRAGMA user_version = 7")

    with pytest.raises(OffcutError) as refused:
        Records(records.path)

    assert refused.value.because == "its layout is version 7, and this offcut reads version 2"
    assert refused.value.help[0] == "export(…) there and import_(…) here take records across"


def test_an_empty_file_becomes_one(tmp_path: Path) -> None:
    file = tmp_path / "empty"
    file.touch()
    records = Records(file)
    records.add(OK)

    assert list(records) == [OK]


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OffcutError) as refused:
        Records(tmp_path)
    assert refused.value.because == "unable to open database file"


def test_a_damaged_file_is_refused_in_words(records: Records) -> None:
    records.add(ok("s" * 300, 1e-6, n) for n in range(200))
    data = bytearray(records.path.read_bytes())
    data[4096:] = os.urandom(len(data) - 4096)
    records.path.write_bytes(data)

    with pytest.raises(OffcutError) as refused:
        list(records)
    assert "malformed" in refused.value.because


@pytest.mark.parametrize(
    ("changes", "because"),
    [
        ({"outcome": "ok"}, "outcome is 'ok', none of ok, refused"),
        ({"seconds": float("inf")}, "seconds is inf, not a number from 0 on"),
        ({"spread": None}, "spread is None where the outcome is ok"),
        ({"sizes": {"n": True}}, "sizes hold 'n': True, not a name"),
        ({"schedule": None}, "schedule is None, not a text"),
    ],
)
def test_a_record_of_what_is_none_is_refused(changes: dict[str, Any], because: str) -> None:
    with pytest.raises(OffcutError) as refused:
        replace(OK, **changes)
    assert str(refused.value).startswith(f"record: cannot record this\n  because  {because}")


# Several processes

WRITER = """
import sys
from offcut.search import Outcome, Record, Records
path, name, count, pair = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
records = Records(path)
for number in range(count):
    one = Record("p", f"{name} {number}", "m", "1", {"n": number}, Outcome.OK, 1e-6, 0.0)
    records.add([one] * pair)
    print(number, flush=True)
"""


def writer(path: Path, name: str, count: int, pair: int = 1) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), name, str(count), str(pair)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdout=subprocess.PIPE,
        text=True,
    )


def test_several_writers_lose_nothing_from_the_first_moment_on(records: Records) -> None:
    writers = [writer(records.path, name, 9) for name in "abc"]
    for one in writers:
        one.communicate()

    assert [one.returncode for one in writers] == [0, 0, 0]
    wanted = {f"{name} {number}": 1 for name in "abc" for number in range(9)}
    assert Counter(record.schedule for record in records) == wanted


def test_a_writer_that_is_killed_loses_nothing_that_was_added(records: Records) -> None:
    said: dict[str, int] = {}
    for moment in range(3):
        with writer(records.path, str(moment), 10_000, pair=2) as one:
            assert one.stdout is not None
            for _ in range(1 + 7 * moment):
                said[str(moment)] = int(one.stdout.readline())
            one.send_signal(signal.SIGKILL)
            rest = one.stdout.read().split()
        said[str(moment)] = max(said[str(moment)], *map(int, rest or ["0"]))

        found = Counter(record.schedule for record in Records(records.path))
        for name, last in said.items():
            numbers = sorted(int(s.split()[1]) for s in found if s.split()[0] == name)
            assert numbers == list(range(len(numbers)))
            assert len(numbers) in (last + 1, last + 2), "one may be added and not yet said"
        assert set(found.values()) == {2}, "each pair is there whole"
    with sqlite3.connect(records.path) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
