"""The benches' command lines, and that of the command `offcut`."""

from __future__ import annotations

import importlib
import io
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

import offcut
from offcut.studies import compare
from tests.agree import agree
from tests.facade import app

ROOT = Path(__file__).parents[2]
BENCH = ROOT / "bench"
PARTS = {BENCH / f"{name}.py" for name in ("harness", "pictures", "programs", "shipping")}
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
    monkeypatch.delitem(sys.modules, "harness", raising=False)  # it has taken them by name
    assert status_of(bench, "--help", monkeypatch) == 0
    assert f"usage: {bench.name} [-h]" in capsys.readouterr().out
    assert status_of(bench, "--unknown", monkeypatch) == 2
    assert "unrecognized arguments: --unknown" in capsys.readouterr().err


def test_the_samples_of_a_script_are_compared_as_those_of_a_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(BENCH)
    harness = importlib.import_module("harness")
    for folder, seconds in (("before", 3e-6), ("after", 2e-6)):
        row = harness.row_of(
            "calls", "small", {"offcut": [seconds] * 7, "library": [1e-6] * 7}, peers=["library"]
        )
        assert harness.publish("test", [row], harness.Options(out=tmp_path / folder)) == 0

    (change,) = compare(tmp_path / "before", tmp_path / "after").changes
    assert (change.label, change.verdict) == ("calls: small offcut", "faster")
    agree(np.array(change.ratio.value), np.array(1.5))


def test_a_ratio_of_a_table_is_that_of_the_fastest_other_over_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(BENCH)
    harness = importlib.import_module("harness")
    times = {"library": [4e-3] * 7, "ours": [2e-3] * 7, "third": [3e-3] * 7}
    row = harness.row_of("calls", "small", times)
    wrong = harness.row_of("calls", "wrong", times, wrong={"ours": "off"})
    text = io.StringIO()
    Console(file=text, width=120).print(
        harness.table([row, wrong], "ms", "over", goals={"small": "≤ 2"})
    )

    assert harness.ratio_to_best(row)[0].value == 0.5
    assert harness.ratio_to_best(row, "third")[1] == "calls small, third"
    assert harness.ratio_to_best(wrong)[1] == "calls wrong, third"
    lines = [
        [part.strip() for part in line.split("│")[1:-1]] for line in text.getvalue().splitlines()
    ]
    assert ["small", "4", "2", "3", "0.500 (0.500–0.500)", "0%", "≤ 2"] in lines
    assert ["wrong", "4", "–", "3", "0.750 (0.750–0.750)", "0%", ""] in lines


def test_what_a_fresh_process_says_is_read_and_a_failure_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(BENCH)
    run_case = importlib.import_module("harness").run_case
    file = tmp_path / "bench.py"
    file.write_text("import os, sys; print([float(sys.argv[2]), os.environ['X']].__len__() + 0.5)")

    assert run_case(str(file), "case", 1, X="y") == 2.5
    file.write_text("raise SystemExit('no such thing')")
    assert run_case(str(file), "case") is None
    assert capsys.readouterr().out == "case: not measured: no such thing\n"


def test_the_command_says_its_version() -> None:
    told = CliRunner().invoke(app, ["--version"])
    assert (told.exit_code, told.output) == (0, f"offcut {offcut.__version__}\n")
