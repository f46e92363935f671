"""The command `offcut` as a whole: an output that takes no more, and an interrupt."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

import offcut
import offcut as oc
from offcut.cli import main
from offcut.tuning.campaign import LAST_RUN
from offcut.tuning.measuring.candidate import Bench
from offcut.tuning.progress import bar_on
from tests.facade import app

PROGRAM = "size n in 0:64\noutput A: float32[n]\nfor i in 0:n\n  A[i] = 1.0\n"


@pytest.mark.every(2)
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("arguments", [["--version"], ["cut", "PROGRAM", "--tile", "i=8"]])
def test_an_output_that_is_full_is_named_without_a_traceback(arguments, tmp_path: Path) -> None:
    file = tmp_path / "fill.offcut"
    file.write_text(PROGRAM)
    given = [str(file) if word == "PROGRAM" else word for word in arguments]
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "offcut", *given],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.stderr == "offcut: cannot write to the standard output: No space left on device\n"
    assert done.returncode == 2


def _interrupted(monkeypatch, capsys, function: str, *arguments: str) -> str:
    """What the command prints on an interrupt that arrives inside `function`."""

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(function, interrupt)
    monkeypatch.setattr(sys, "argv", ["offcut", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
    return capsys.readouterr().err


def test_an_interrupted_campaign_says_where_its_trials_are(monkeypatch, capsys, tmp_path) -> None:
    file, records = tmp_path / "fill.offcut", tmp_path / "fill.sqlite"
    file.write_text(PROGRAM)
    told = _interrupted(
        monkeypatch,
        capsys,
        "offcut.tuning.tune.tune",
        *("tune", str(file), "--sizes", "n=1,7", "--records", str(records)),
    )
    assert told == (
        f"tune: interrupted; each measured trial is in {records}, and the same command goes on from there\n"
    )


def test_an_interrupted_sweep_says_that_it_goes_on(monkeypatch, capsys) -> None:
    monkeypatch.setattr("offcut.experiment.timing.restart_single_threaded", lambda: None)
    arguments = ("sweep", "mk,kn->mn", "--sizes", "m=1:9", "--k", "8", "--n", "8")
    told = _interrupted(monkeypatch, capsys, "offcut.studies.sweep.sweep", *arguments)
    assert told == (
        "sweep: interrupted; the cells that were measured are in its folder; the same command goes on\n"
    )


def test_an_interrupted_campaign_without_records_says_so(monkeypatch, capsys, tmp_path) -> None:
    monkeypatch.setenv("OFFCUT_RECORDS", "off")
    file = tmp_path / "fill.offcut"
    file.write_text(PROGRAM)
    arguments = ("tune", str(file), "--sizes", "n=1,7")
    told = _interrupted(monkeypatch, capsys, "offcut.tuning.tune.tune", *arguments)
    assert told == (
        "tune: interrupted; no records are kept, so run it again (--records FILE keeps them)\n"
    )


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        ("offcut.cli.programs.cut_file", ("cut", "FILE")),
        ("offcut.cli.programs.request_of", ("check", "FILE")),
        ("offcut.experiment.probe.measured", ("target", "probe")),
    ],
)
def test_an_interrupt_of_another_command_says_that_nothing_is_kept(
    monkeypatch, capsys, function, arguments
) -> None:
    told = _interrupted(monkeypatch, capsys, function, *arguments)
    assert told == f"{arguments[0]}: interrupted; nothing is kept, so run it again\n"


# `offcut tune`: a program in a file, its schedule printed, its trials recorded.


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


@pytest.mark.slow
def test_a_program_is_tuned_and_its_schedule_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Bench, "_check_noise", lambda bench, times: None)  # others may be at work
    program, records, out = (tmp_path / name for name in ("p.offcut", "r.sqlite", "s.txt"))
    program.write_text(SCALED, encoding="utf-8")
    options = ["--trials", "2", "--explorer", "random", "--price", "closed", "--seed", "3"]
    options += ["--records", str(records)]
    done = run(app, ["tune", str(program), "--sizes", "n=7", *options, "--out", str(out)])
    assert done.exit_code == 0, done.output
    found = oc.Schedule.parse(done.stdout)
    assert found == oc.Schedule.parse(out.read_text(encoding="utf-8"))
    assert oc.compile(oc.parse(SCALED), schedule=found).loops
    assert {record.explorer for record in oc.Records(records)} <= {"random", *LAST_RUN}
    assert {record.seed for record in oc.Records(records)} == {3}


def test_sizes_are_asked_for_in_the_words_of_the_command(tmp_path: Path) -> None:
    program = tmp_path / "p.offcut"
    program.write_text(SCALED, encoding="utf-8")
    done = run(app, ["tune", str(program)])
    assert (done.exit_code, done.stderr) == (
        2,
        """\
tune: cannot tune scaled for no sizes
  because  nothing says which values n take
  help     --sizes n=1,7,33
  help     --sizes n=1:512
""",
    )


def test_what_cannot_be_tuned_ends_with_status_2(tmp_path: Path) -> None:
    program = tmp_path / "p.offcut"
    program.write_text(SCALED, encoding="utf-8")
    done = run(app, ["tune", str(program), "--sizes", "n=99"])
    assert done.exit_code == 2
    assert "because  n is from 1 to 64" in done.output


# The benches' command lines, and that of the command `offcut`.


ROOT = Path(__file__).parents[2]
BENCH = ROOT / "bench"
PARTS = {BENCH / f"{name}.py" for name in ("harness", "programs", "shipping")}
BENCHES = sorted(set(BENCH.glob("*.py")) - PARTS)


def status_of(bench: Path, option: str, monkeypatch: pytest.MonkeyPatch) -> object:
    """With which status a bench ends that gets one argument, before it measures."""
    monkeypatch.setattr(sys, "argv", [str(bench), option])
    monkeypatch.syspath_prepend(bench.parent)
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(bench), run_name="__main__")
    return ended.value.code


@pytest.mark.every(4)
@pytest.mark.parametrize("bench", BENCHES, ids=lambda bench: bench.stem)
def test_a_bench_explains_itself_and_refuses_what_it_does_not_know(
    bench: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for extra in ("torch", "onnxruntime"):
        if f"\nimport {extra}\n" in bench.read_text(encoding="utf-8"):
            pytest.importorskip(extra, reason=f"{extra} is an extra")
    # what comes first, measuring
    monkeypatch.setattr(
        "offcut.experiment.timing.restart_single_threaded", lambda: pytest.fail("it ran")
    )
    monkeypatch.delitem(sys.modules, "harness", raising=False)  # it has taken them by name
    assert status_of(bench, "--help", monkeypatch) == 0
    assert f"usage: {bench.name} [-h]" in capsys.readouterr().out
    assert status_of(bench, "--unknown", monkeypatch) == 2
    assert "unrecognized arguments: --unknown" in capsys.readouterr().err


def test_the_command_says_its_version() -> None:
    told = CliRunner().invoke(app, ["--version"])
    assert (told.exit_code, told.output) == (0, f"offcut {offcut.__version__}\n")


# How far a long command is, on a terminal of any width.


WORDS = "best 123.4 µs, 1.23× the default, regret expected 12%, by the learned model"


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_a_narrow_terminal_cuts_the_bar_and_the_words_and_no_numbers(width: int) -> None:
    out = StringIO()
    console = Console(file=out, force_terminal=True, width=width, color_system=None)
    with bar_on(console) as bar:
        task = bar.add_task("tune a_kernel_with_a_long_name", total=1000, said=WORDS)
        bar.update(task, completed=123)
        bar.refresh()
    lines = [line for line in out.getvalue().split("\r") if "tune" in line]
    assert lines
    for line in lines:
        assert len(line.splitlines()) <= 2  # and the end of the line
        assert "/1000" in line
        assert "0:00:00" in line
    assert "123/1000" in lines[-1]
