"""`offcut records`: what was measured, as a user reads it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from offcut import Outcome, Record, Records
from offcut.search import Trial
from tests.facade import app

OK = Record("abc1", "schedule C", "here", "1", {"n": 7}, Outcome.OK, 2e-6, 0.1, explorer="beam")
OTHER = replace(OK, schedule="schedule C\nbind * lane tree")
FAILED = replace(
    OK, schedule="x", outcome=Outcome.CRASHED, seconds=None, spread=None, because="[a\nb"
)
ALL = (
    *(OK, replace(OK, sizes={"n": 99}, seconds=4e-3), FAILED),
    *(replace(OTHER, seconds=1e-6), replace(OTHER, sizes={"n": 99}, seconds=2.0, created=1e9)),
    replace(OK, program="abd2", seconds=3e-10),
)
ONE, TWO = (Trial(one.schedule, "1", ()).digest for one in (OK, OTHER))


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COLUMNS", "160")
    Records(tmp_path / "records").add(ALL)
    return tmp_path / "records"


def run(file: Path, *words: str) -> Result:
    return CliRunner().invoke(app, ["records", *words, "--records", str(file)])


def cells(text: str) -> list[list[str]]:
    """The rows of all tables, without their borders."""
    rows = [line.replace("┃", "│").split("│")[1:-1] for line in text.splitlines()]
    return [[cell.strip() for cell in row] for row in rows if row]


def test_a_list_has_a_row_for_each_program(file: Path) -> None:
    done = run(file, "list")

    assert done.exit_code == 0
    assert cells(done.stdout) == [
        ["program", "machine", "version", "trials", "ok", "sizes", "times", "best", "last"],
        ["abc1", "here", "1", "3", "2", "2", "measured", ONE[:8], "2001-09-09 01:46"],
        ["abd2", "here", "1", "1", "1", "1", "measured", ONE[:8], "1970-01-01 00:00"],
    ]


def test_a_table_for_no_terminal_has_its_digests_whole(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS")
    rows = cells(run(file, "list").stdout)
    assert [row[7:] for row in rows[1:]] == [
        [ONE[:8], "2001-09-09 01:46"],
        [ONE[:8], "1970-01-01 00:00"],
    ]


def test_a_program_is_shown_with_all_its_records(file: Path) -> None:
    done = run(file, "show", "abc")
    failed = Trial("x", "1", ()).digest[:8]

    assert cells(done.stdout)[1:] == [
        [ONE[:8], "ok", "n=7", "2 µs", "10%", "measured", "beam", ""],
        [ONE[:8], "ok", "n=99", "4 ms", "10%", "measured", "beam", ""],
        [failed, "crashed", "n=7", "", "", "", "beam", "[a"],
        [TWO[:8], "ok", "n=7", "1 µs", "10%", "measured", "beam", ""],
        [TWO[:8], "ok", "n=99", "2 s", "10%", "measured", "beam", ""],
    ]


def test_a_schedule_is_shown_behind_its_text(file: Path) -> None:
    done = run(file, "show", TWO)

    assert done.stdout.startswith("schedule C\nbind * lane tree\nabc1 · here · 1 ")
    assert len(cells(done.stdout)) == 3


def test_two_schedules_are_compared_at_each_size(file: Path) -> None:
    assert cells(run(file, "compare", ONE[:6], TWO[:6]).stdout) == [
        ["sizes", ONE[:8], TWO[:8], "second / first"],
        ["n=7", "2 µs", "1 µs", "0.500"],
        ["n=99", "4 ms", "2 s", "500.000"],
    ]
    failed, alone = Trial("x", "1", ()).digest, Trial("alone", "1", ()).digest
    assert cells(run(file, "compare", ONE, failed).stdout)[-1] == ["", "", "1 crashed", ""]
    Records(file).add(replace(OK, program="else", schedule="alone"))
    assert run(file, "compare", TWO, alone).stderr == (
        f"compare: cannot compare {TWO} with {alone}\n"
        "  because  no program, machine and version has both\n"
        "  help     offcut records show PROGRAM\n"
    )


def test_records_are_pruned_and_carried_as_text(file: Path, tmp_path: Path) -> None:
    text, other = tmp_path / "all.jsonl", tmp_path / "other"

    assert run(file, "export", str(text)).stdout == "6 records written\n"
    assert run(file, "prune", "--keep", "1").stdout == "3 records removed\n"
    assert list(Records(file)) == [*ALL[:2], ALL[-1]]
    assert run(other, "import", str(text)).stdout == "6 records added\n"
    assert list(Records(other)) == list(ALL)
    assert run(file, "prune", "--keep", "1", "--version", "2").stdout == "3 records removed\n"


def test_the_best_so_far_is_drawn(file: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib, which draws, is not installed")
    png = tmp_path / "best.png"

    assert run(file, "plot", "ab", str(png)).exit_code == 0
    assert png.stat().st_size > 1000


LIST, SHOW = "  help     offcut records list\n", "  help     offcut records show PROGRAM\n"
FAILURE = Trial("x", "1", ()).digest


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("show nothing", f"show: cannot show nothing\n  because  no record has it\n{LIST}{SHOW}"),
        (
            f"compare {ONE} ",
            f"compare: cannot compare \n  because  it is {', '.join(sorted({ONE, TWO, FAILURE}))}\n{LIST}{SHOW}",
        ),
        (
            "plot nothing best.png",
            f"plot: cannot draw trials of nothing\n  because  there is none that is ok\n{LIST}",
        ),
        (
            "prune --keep -1",
            "prune: cannot keep -1 trials\n  because  a number of trials is at least 0\n  help     prune(keep=8)\n",
        ),
    ],
)
def test_what_is_not_there_is_refused(file: Path, words: str, told: str) -> None:
    done = run(file, *words.split(" "))

    assert (done.exit_code, done.stderr) == (2, told)
