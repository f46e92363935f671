"""The benches' command lines, and that of the command `offcut`."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import offcut
from tests.facade import app

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
