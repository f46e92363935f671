"""The benches' command lines, and that of the command `offcut`."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import offcut
from tests.facade import app

ROOT = Path(__file__).parents[2]
BENCH = ROOT / "bench"
PARTS = {
    BENCH / f"{name}.py" for name in ("layers", "networks", "pictures", "programs", "shipping")
}
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
    for name in ("restart_single_threaded", "restart_with_threads"):  # what comes first, measuring
        monkeypatch.setattr(f"offcut.experiment.timing.{name}", lambda *_: pytest.fail("it ran"))
    assert status_of(bench, "--help", monkeypatch) == 0
    assert f"usage: {bench.name} [-h]" in capsys.readouterr().out
    assert status_of(bench, "--unknown", monkeypatch) == 2
    assert "unrecognized arguments: --unknown" in capsys.readouterr().err


@pytest.mark.slow
def test_two_saved_runs_are_compared_kernel_by_kernel(tmp_path: Path) -> None:
    folder = tmp_path / ".benchmarks" / "one machine"
    folder.mkdir(parents=True)
    for number, commit, seconds in (("0001", "abc", 3e-6), ("0002", "def", 2e-6)):
        one = {"name": "test_kernel[softmax 2x3]", "stats": {"data": [seconds] * 7}}
        (folder / f"{number}_{commit}_now.json").write_text(json.dumps({"benchmarks": [one]}))

    done = subprocess.run(
        [sys.executable, str(ROOT / "bench" / "track.py"), "--compare", "abc", "0002"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )

    (line,) = (line for line in done.stdout.splitlines() if "softmax 2x3" in line[:20])
    assert "0002 def against 0001 abc, µs" in done.stdout
    assert [part.strip() for part in line.split("│")[1:5]] == [
        *("softmax 2x3", "2", "3", "1.500 (1.500–1.500)")
    ]


def test_the_command_says_its_version() -> None:
    told = CliRunner().invoke(app, ["--version"])
    assert (told.exit_code, told.output) == (0, f"offcut {offcut.__version__}\n")
