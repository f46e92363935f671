"""The benches' command lines, and that of the command `offcut`."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import offcut
from offcut.cli import app

BENCHES = sorted((Path(__file__).parents[2] / "bench").glob("*.py"))


def status_of(bench: Path, option: str, monkeypatch: pytest.MonkeyPatch) -> object:
    """With which status a bench ends that gets one argument, before it measures."""
    monkeypatch.setattr(sys, "argv", [str(bench), option])
    monkeypatch.syspath_prepend(bench.parent)
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(bench), run_name="__main__")
    return ended.value.code


@pytest.mark.parametrize("bench", BENCHES, ids=lambda bench: bench.stem)
def test_a_bench_explains_itself_and_refuses_what_it_does_not_know(
    bench: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("restart_single_threaded", "restart_with_threads"):  # what comes first, measuring
        monkeypatch.setattr(f"offcut.experiment.timing.{name}", lambda *_: pytest.fail("it ran"))
    assert status_of(bench, "--help", monkeypatch) == 0
    assert f"usage: {bench.name} [-h]" in capsys.readouterr().out
    assert status_of(bench, "--unknown", monkeypatch) == 2
    assert "unrecognized arguments: --unknown" in capsys.readouterr().err


def test_the_command_says_its_version() -> None:
    told = CliRunner().invoke(app, ["--version"])
    assert (told.exit_code, told.output) == (0, f"offcut {offcut.__version__}\n")
