"""The command `offcut` as a whole: an output that takes no more, and an interrupt."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from offcut.cli import main

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
        ("offcut.cli.files.cut_file", ("cut", "FILE")),
        ("offcut.cli.files.request_of", ("check", "FILE")),
        ("offcut.experiment.probe.measured", ("target", "probe")),
    ],
)
def test_an_interrupt_of_another_command_says_that_nothing_is_kept(
    monkeypatch, capsys, function, arguments
) -> None:
    told = _interrupted(monkeypatch, capsys, function, *arguments)
    assert told == f"{arguments[0]}: interrupted; nothing is kept, so run it again\n"
