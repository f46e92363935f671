"""The script of a run on a GPU: on the emulated device, by a driver that records, with planted faults, and without offcut's wheels."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import slow
from device_run import prepare, speed
from device_run.folder import read_index
from device_run.reference import drawn, from_stored, to_stored, wrong
from fake_driver import FakeDriver, FakeNvrtc, install, launches
from on_cpu import COMPILER

from tests.agree import nearly

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "bench" / "gpu.py"
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler")


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    """Return the status with which the script ends."""
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(SCRIPT), run_name="__main__")
    assert isinstance(ended.value.code, int)
    return ended.value.code


def results(folder: Path) -> dict[str, Any]:
    held: dict[str, Any] = json.loads((folder / "results.json").read_text())
    return held


def test_the_stages_run_on_the_emulated_device(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = ("--cells", "72×24|scaled", "--device", "emulated", "--quick")
    assert run(monkeypatch, tmp_path, "--prepare", *cells) == 0
    assert run(monkeypatch, tmp_path, *cells) == 0
    held = results(tmp_path)
    assert held["meaning"]["right"] == ["dense 72×24 float16 to float32", "scaled"]
    assert held["bits"]["right"] == ["dense 72×24 float16 to float32"]
    assert held["edges"]["right"] == held["meaning"]["right"]
    assert held["edges"]["left_out"] == 0
    assert "meaning    2 right, 0 wrong" in capsys.readouterr().out


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    fake = FakeDriver()
    install(monkeypatch, fake, FakeNvrtc())
    monkeypatch.setattr(prepare, "nvrtc_module", lambda op: None)
    monkeypatch.setattr(prepare, "compile_cubin", lambda op, text, *_: (text.encode(), ""))
    return fake


FAULTS = {
    "nothing": ("* 2.0f", "* 2.0f", ""),
    "a value": ("* 2.0f", "* 3.0f", r"scaled at n = 64: \d+ of 8512 are wrong, the first at \(0, "),
    "a write behind": ("j < 133", "j < 134", r"scaled at n = 64 wrote \d+ bytes behind Y, or into it"),
    "a row": ("< n)", "< n - 1)", r"133 of 8512 are wrong, .*; rows mod 16: 15, columns mod 8: all"),
    "an input": ("Y[", "X[", "wrote .* into it"),
}  # fmt: skip


@needs_compiler
@pytest.mark.parametrize(
    "what", [*map(slow, ("a row", "an input")), "nothing", "a value", "a write behind"]
)
def test_a_fault_of_a_kernel_is_seen_on_one_tile_and_no_other_stage_runs(
    what: str, gpu: FakeDriver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    right, planted, expected = FAULTS[what]
    monkeypatch.setattr(prepare, "compile_cubin", lambda op, text, *_: (re.sub(re.escape(right), planted, text).encode(), ""))  # fmt: skip
    assert run(monkeypatch, tmp_path, "--prepare", "--cells", "scaled") == 0
    if what == "nothing":
        assert run(monkeypatch, tmp_path, "--cells", "scaled", "--quick") == 0
        assert results(tmp_path)["edges"]["right"] == ["scaled"]
        assert {launch[8] for launch in launches(gpu)} == {0}
        return
    assert run(monkeypatch, tmp_path, "--cells", "scaled") == 1
    held = results(tmp_path)
    assert re.search(expected, held["meaning"]["wrong"][0])
    assert "edges" not in held


def test_an_error_of_the_driver_ends_a_stage_and_is_its_result(
    gpu: FakeDriver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gpu.runs = False
    run(monkeypatch, tmp_path, "--prepare", "--cells", "scaled")
    gpu.statuses["cuLaunchKernel"] = 700
    assert run(monkeypatch, tmp_path, "--cells", "scaled") == 1
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in results(tmp_path)["meaning"]["error"]


def test_times_stand_beside_what_was_predicted(
    gpu: FakeDriver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gpu.runs = False
    gpu.times = dict.fromkeys(("offcut_C_1", "offcut_C_2"), 2.0)  # of two options
    monkeypatch.setattr(speed, "BEYOND_L2", 1)
    monkeypatch.setattr(speed, "COPY_BYTES", 1 << 12)
    monkeypatch.setattr(speed, "_peers", lambda: iter(()))
    run(monkeypatch, tmp_path, "--prepare", "--cells", "dense 768×2048$")
    predicted = {k.name: k.predicted for k in read_index(tmp_path)[0]}
    assert run(monkeypatch, tmp_path, "--stages", "speed", "--cells", "dense") == 0
    held = results(tmp_path)["speed"]
    assert [(c["k"], c["m"], c["ours"]) for c in held["cells"]] == [
        (768, 2112, 5e-4),
        (768, 4224, 5e-4),
    ]
    for cell in held["cells"]:
        assert cell["predicted"] == predicted[f"dense {cell['k']}×2048"][cell["m"]]
    assert not gpu.memory


def test_the_figures_of_a_table_are_those_of_its_cells() -> None:
    cells = [
        {"k": k, "n": 2048, "m": 2112, "predicted": 1.1e-6 * k, "ours": 1e-6 * k + 1e-4}
        for k in (768, 1536, 3072)
    ]
    for m, torch in ((80, 2.0), (384, 0.5)):
        cells.append({"k": 768, "n": 768, "m": m, "predicted": None, "ours": 1.0, "torch": torch})
    for k, ours in ((8192, 1.0), (8191, 1.25)):
        cells.append({"k": k, "n": k, "m": k, "predicted": ours, "ours": ours})
    figures = speed.summary([*cells, {"k": 1, "n": 1, "m": 1, "predicted": 1.0}])
    assert figures["DietCode over torch"] == {"mean": nearly(1.0), "worst": 0.5, "cells": 2}
    assert figures["8191³ over 8192³"] == 0.8
    assert figures["predicted within 15 %"] == 1.0
    fit = figures["at 2112 rows"]
    assert fit["seconds_per_term"] == nearly(1e-6)
    assert fit["rest_seconds"] == nearly(1e-4)


def test_what_cannot_run_is_refused_in_full(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, tmp_path / "none") == 2
    assert capsys.readouterr().err == (
        """\
bench: cannot run what is in none
  because  it has no kernels.json
  help     python bench/gpu.py none --prepare
"""
    )
    assert run(monkeypatch, tmp_path, "--stages", "speed", "--device", "emulated") == 2
    assert "the emulated device runs meaning, bits and edges" in capsys.readouterr().err


BLOCKED = """\
import runpy, sys
for name in ("islpy", "llvmlite", "sympy", "ml_dtypes", "platformdirs", "typer", "rich", "torch", "cuda"):
    sys.modules[name] = None
sys.argv = [sys.argv[1], *sys.argv[2:]]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_the_script_needs_numpy_and_the_bindings_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cells = ("--cells", "scaled", "--device", "emulated")
    run(monkeypatch, tmp_path, "--prepare", *cells)
    command = [sys.executable, "-c", BLOCKED, str(SCRIPT), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False, env={"PYTHONPATH": f"{ROOT}:{SCRIPT.parent}"})  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith("bench: cannot reach a GPU without the wheel cuda-bindings\n")


def test_elements_of_bfloat16_are_rounded_to_the_nearest() -> None:
    import ml_dtypes

    values = np.random.default_rng(1).standard_normal(1000).astype(np.float32)
    stored = values.astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(to_stored(values, "bfloat16"), stored.view(np.uint16))
    np.testing.assert_array_equal(from_stored(stored.view(np.uint16), "bfloat16"), stored.astype("float64"))  # fmt: skip


def test_a_result_within_the_error_of_its_sums_is_right_and_one_beyond_is_wrong() -> None:
    computes = {"op": "dense", "dtype": "bfloat16", "out": "float32"}
    inputs = drawn(computes, {"A": (5, 300), "W": (300, 4)}, 1, whole=False)
    a, w = (from_stored(inputs[name], "bfloat16").astype(np.float32) for name in "AW")
    result = a @ w
    assert wrong(computes, inputs, result, whole=False) == ""
    result[2, 3] += 1e-2
    assert wrong(computes, inputs, result, whole=False).startswith("1 of 20 are wrong, the first at (2, 3): ")  # fmt: skip


def test_sums_of_bytes_are_exact_and_one_off_is_wrong() -> None:
    computes = {"op": "dense", "dtype": "int8", "out": "int32", "turned": True}
    inputs = drawn(computes, {"A": (5, 300), "W": (4, 300)}, 1, whole=False)
    result = inputs["A"].astype(np.int32) @ inputs["W"].T.astype(np.int32)
    assert wrong(computes, inputs, result, whole=True) == ""
    assert wrong(computes, inputs, result, whole=False) == ""
    result[0, 1] += 1
    for whole in (True, False):
        assert wrong(computes, inputs, result, whole).startswith("1 of 20 are wrong, the first at (0, 1)")  # fmt: skip
