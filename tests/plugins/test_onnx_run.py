"""`offcut run`: a model of a file, run once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the extra onnx is not installed")

import onnx
from typer.testing import CliRunner

from offcut.cli import app

MODEL = """<ir_version: 9, opset_import: ["" : 20]>
g (float[batch, 4] x, int64[batch] k) => (float[batch, 4] y, int64[batch] m) { y = Relu (x)  m = Identity (k) }"""
run = CliRunner().invoke


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(MODEL), path)
    return path


def test_run_says_what_the_outputs_are_and_saves_them(model: Path, tmp_path: Path) -> None:
    x = np.array([[-1, 2, -3, 4], [5, -6, 7, -8]], np.float32)
    np.save(tmp_path / "x.npy", x)
    done = run(
        app,
        ["run", str(model), "--input", f"x={tmp_path}/x.npy", "--output", str(tmp_path / "out")],
    )
    assert (done.exit_code, done.stdout) == (0, "y: float32[2, 4]\nm: int64[2]\n")
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "y.npy"), np.maximum(x, 0))


def test_inputs_that_are_not_given_are_drawn_at_the_sizes_that_are_asked_for(model: Path) -> None:
    done = run(app, ["run", str(model), "--size", "batch=3"])
    assert (done.exit_code, done.stdout) == (0, "y: float32[3, 4]\nm: int64[3]\n")
    done = run(app, ["run", str(model), "--graph"])
    assert done.stdout.startswith("graph g\nsize batch in 1:")
    assert done.stdout.endswith("y: float32[1, 4]\nm: int64[1]\n")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--size", "n=3"], "run: cannot take --size n=3\n  because  sizes are batch\n"),
        (
            ["--size", "batch=x"],
            "run: cannot read --size batch=x\n  because  'x' is not a whole number\n",
        ),
        (["--input", "x"], "run: cannot read --input x\n  because  it is no name=value\n"),
        (
            ["--input", "x=none.npy"],
            "run: cannot read none.npy\n  because  No such file or directory\n",
        ),
    ],
)
def test_options_that_mean_nothing_are_refused(model: Path, options: list[str], text: str) -> None:
    done = run(app, ["run", str(model), *options])
    assert done.exit_code == 2
    assert done.stderr.startswith(text)


def test_an_input_that_the_model_has_not_is_refused(model: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "w.npy", np.zeros(3))
    done = run(app, ["run", str(model), "--input", f"w={tmp_path}/w.npy"])
    assert (done.exit_code, done.stderr) == (
        2,
        "run: cannot take an input w\n  because  inputs are x, k\n",
    )
