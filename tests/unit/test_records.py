"""Records: written by several processes, killed at any moment, carried as text; nothing is lost. What they name by digest is kept in full."""

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
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import rejection

import offcut as oc
from offcut import Outcome, Record, Records
from offcut.costmodel import of_plain, plain
from offcut.errors import OffcutError
from offcut.search import Place, ProgramText, place_of
from offcut.search import records as module
from offcut.search.trials import BEST, DEFAULT, recorded_verdict
from tests import spaces
from tests.facade import Problem, load_machine, shipped_machines

OK = Record("p", "schedule C", "m", "1", {"n": 7}, Outcome.OK, 2e-6, 0.1, created=1.5)
REFUSED = Record("p", "schedule D", "m", "1", {}, Outcome.REFUSED, because='no,\n"never"\r\n é\x00')


def ok(schedule: str, seconds: float, n: int = 7, **changes: Any) -> Record:
    return replace(OK, schedule=schedule, sizes={"n": n}, seconds=seconds, **changes)


@pytest.fixture
def records(tmp_path: Path) -> Records:
    return Records(tmp_path / "deep" / "records.sqlite")


def test_what_is_added_is_read_in_order_of_writing_whole_or_not_at_all(records: Records) -> None:
    assert list(records) == []
    assert records.prune(keep=1) == 0
    assert not records.path.exists()
    records.add(OK)
    records.add([REFUSED, OK])
    with pytest.raises(OffcutError):
        records.add([OK, "a record"])  # type: ignore[list-item]
    for one in (records, Records(records.path), pickle.loads(pickle.dumps(records))):
        assert list(one) == [OK, REFUSED, OK]
    records.add(ok("s", 1e-6, n) for n in range(1300))
    assert [record.sizes.get("n") for record in records][3:] == list(range(1300)), (
        "more than a page"
    )
    assert len(records) == 1303


def test_a_place_is_told_by_all_that_times_depend_on() -> None:
    here, there = load_machine("cascade-lake"), load_machine("zen4")
    places = (("cpu", here, 1), ("cpu", here, 2), ("cpu", there, 1), ("gpu", here, 1))
    assert len({place_of(*one) for one in places}) == 4
    assert place_of(*places[0]) == place_of("cpu", load_machine("cascade-lake"), 1)


def test_the_environment_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFCUT_RECORDS", str(tmp_path / "mine"))

    assert Records().path == tmp_path / "mine"
    monkeypatch.setenv("OFFCUT_RECORDS", "")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert Records().path.name == "records.sqlite"
    monkeypatch.setenv("OFFCUT_RECORDS", "off")
    with rejection("""\
OffcutError: records: cannot keep records
  because  OFFCUT_RECORDS is off
  help     Records("a file")
  help     OFFCUT_RECORDS=a file
  help     --records file, of the command"""):
        Records()


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


@pytest.mark.parametrize("failed", [outcome for outcome in Outcome if outcome is not Outcome.OK])
def test_what_was_measured_last_counts_unless_it_failed_or_is_of_others(
    records: Records, failed: Outcome
) -> None:
    others = [ok("a", 1e-9, machine="x"), ok("b", 1e-9, program="q"), ok("c", 9e-6, version="0")]
    records.add([ok("a", 1e-6), ok("b", 2e-6), ok("a", 3e-6), *others])
    records.add([ok("d", 1e-6), replace(REFUSED, schedule="d", outcome=failed)])
    found = records.best("p", "m", "1")
    assert found is not None
    assert found.schedule == "b"
    assert records.best("p", "m", "2") is None
    assert {(trial.schedule, trial.ok) for trial in records.trials("p", "m")} == {
        *(("a", True), ("b", True), ("c", True), ("d", False)),
    }


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
    with file.open(newline="") as lines:  # others may write such lines
        read = csv.DictReader(lines) if suffix == ".csv" else map(json.loads, lines)
        first = next(iter(read))
    sizes = json.loads(first["sizes"]) if suffix == ".csv" else first["sizes"]
    assert (first["outcome"], float(first["seconds"]), sizes) == ("ok", 2e-6, {"n": 7})
    for act, op in [(records.export, "export"), (other.import_, "import")]:
        with rejection(
            f"OffcutError: {op}: cannot {op} all.txt\n  because  its suffix is .txt, none of .jsonl, .csv"
        ):
            act(tmp_path / "all.txt")
        with pytest.raises(OffcutError) as refused:
            act(tmp_path / "nowhere" / "all.csv")
        assert refused.value.because == "No such file or directory"


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


# Files that are none


def as_text(file: Path) -> None:
    file.write_text("not a database at all, but long enough to have a header of its own" * 9)


def as_a_database(file: Path) -> None:
    with sqlite3.connect(file) as other:
        other.execute("CREATE TABLE mine (x)")


def of_another_layout(file: Path) -> None:
    Records(file).add(OK)
    with sqlite3.connect(file) as later:
        later.execute("PRAGMA user_version = 7")


def damaged(file: Path) -> None:
    Records(file).add(ok("s" * 300, 1e-6, n) for n in range(200))
    data = bytearray(file.read_bytes())
    data[4096:] = os.urandom(len(data) - 4096)
    file.write_bytes(data)


@pytest.mark.parametrize(
    ("make", "because"),
    [
        (as_text, "file is not a database"),
        (as_a_database, "it is a database of something else"),
        (of_another_layout, "its layout is version 7, and this offcut reads version 2"),
        (Path.mkdir, "unable to open database file"),
        (damaged, "database disk image is malformed"),
    ],
)
def test_a_file_that_is_none_is_refused_and_stays_as_it_is(
    tmp_path: Path, make: Callable[[Path], None], because: str
) -> None:
    file = tmp_path / "notes"
    make(file)
    before = None if file.is_dir() else file.read_bytes()
    with pytest.raises(OffcutError) as refused:
        list(Records(file))
    assert because in refused.value.because
    if make is as_text:
        assert str(refused.value).startswith(f"records: cannot use notes\n  at       {file}\n")
        assert refused.value.help == ('Records("another file")', "OFFCUT_RECORDS=another file")
    elif make is of_another_layout:
        assert refused.value.help[0] == "export(…) there and import_(…) here take records across"
    assert before is None or file.read_bytes() == before
    empty = tmp_path / "empty"
    empty.touch()
    Records(empty).add(OK)
    assert list(Records(empty)) == [OK]


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


def test_a_file_is_read_that_another_process_makes_between_two_readings_of_its_header(
    records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    records.add([OK])
    header, torn = module._header, iter([(0, module.SCHEMA)])
    monkeypatch.setattr(module, "_header", lambda opened: next(torn, None) or header(opened))
    assert list(Records(records.path)) == [OK]
    assert next(torn, None) is None


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


# What records name by digest is kept in full: in their file, through text, beside files that have none.


PROGRAM = ProgramText("p", "program C\n", {"n": "n_1"})
PLACE = Place("m", "cpu", {"name": "mine", "core": {"count": 2}}, 2, True, ("theirs",))


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


TEXT = {"kind": "program", "digest": "p", "text": "t", "sizes": {}}
HERE = {"kind": "place", "digest": "m", "target": "cpu", "machine": {}, "reassociate": True}
LINES = {
    "a kind that is none": ({"kind": "thing"}, "its kind is 'thing', none of program, place"),
    "a field is missing": ({"kind": "program", "digest": "p"}, "it lacks sizes, text"),
    "a field too many": ({**TEXT, "odd": 1}, "it has odd"),
    "no text": ({**TEXT, "text": 3}, "text is 3"),
    "no threads": ({**HERE, "threads": 0, "microkernels": []}, "threads is 0"),
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


def test_a_machine_is_what_its_fields_describe() -> None:
    for name in shipped_machines():
        assert of_plain(json.loads(json.dumps(plain(load_machine(name))))) == load_machine(name)


@pytest.mark.every(3)
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
