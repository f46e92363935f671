"""`offcut run`: a model of a file, run once."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the extra onnx is not installed")

import onnx
from typer.testing import CliRunner

from tests.agree import agree, of_peer
from tests.facade import app

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
    assert done.stderr == ""
    done = run(app, ["run", str(model), "--graph"])
    assert done.stderr == "at batch = 1: --size batch=… says otherwise\n"
    assert done.stdout.startswith("graph g\nsize batch in 1:")
    assert done.stdout.endswith("y: float32[1, 4]\nm: int64[1]\n")


def test_a_size_that_a_model_cannot_be_read_without_is_given_to_it(tmp_path: Path) -> None:
    text = """<ir_version: 9, opset_import: ["" : 20]>
    g (float[n, h, w] x) => (float[n, a, b] y) { q = Constant <value_ints = [0, 2, 3]> ()  y = Reshape (x, q) }"""
    path = tmp_path / "parts.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    refused = run(app, ["run", str(path)])
    assert refused.exit_code == 2
    assert "Reshape y: cannot take x as [n, 2, 3]" in refused.stderr
    assert 'sizes={"h": …, "w": …}) at which h * w is 6' in refused.stderr
    done = run(app, ["run", str(path), "--size", "h=3", "--size", "n=4"])
    assert (done.exit_code, done.stdout) == (0, "y: float32[4, 2, 3]\n")


@pytest.mark.parametrize(
    ("name", "because"), [("x", "there is no such file"), ("", "it is a folder")]
)
def test_a_model_that_is_no_file_is_refused_in_the_words_of_the_command(
    name: str, because: str, tmp_path: Path
) -> None:
    done = run(app, ["run", str(tmp_path / name)])
    assert (done.exit_code, done.stderr) == (
        2,
        f"run: cannot read {tmp_path / name}\n  because  {because}\n"
        "  help     offcut run model.onnx\n",
    )


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            ["--size", "n=3"],
            "run: cannot take --size n=3\n  because  sizes are batch\n  help     --size batch=1\n",
        ),
        (
            ["--size", "batch=x"],
            "run: cannot read --size batch=x\n  because  'x' is not a whole number from 0 on\n  help     --size batch=3\n",
        ),
        (["--input", "x"], "run: cannot read --input x\n  because  it is not a name=value\n"),
        (
            ["--input", "x=none.npy"],
            "run: cannot read none.npy\n  because  No such file or directory\n"
            "  help     numpy.save('none.npy', array)\n",
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
        "run: cannot take an input w\n  because  inputs are x, k\n"
        "  help     --input x=x.npy\n  help     --input k=k.npy\n",
    )


def test_arrays_of_one_file_are_inputs_by_their_names(model: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", x=np.ones((2, 4), "float32"), k=np.arange(2))
    both = run(app, ["run", str(model), "--input", f"{tmp_path}/in.npz"])
    assert (both.exit_code, both.stdout) == (0, "y: float32[2, 4]\nm: int64[2]\n")
    one = run(app, ["run", str(model), "--input", f"x={tmp_path}/in.npz"])
    assert (one.exit_code, one.stdout) == (0, "y: float32[2, 4]\nm: int64[2]\n")


def test_the_kernels_of_a_call_and_their_cost_are_printed(model: Path) -> None:
    done = run(app, ["run", str(model), "--size", "batch=3", "--plan", "--cost"])
    assert "g(batch = 3): 1 kernels, 1 distinct" in done.stdout
    assert "bound by" in done.stdout


def test_the_kernels_of_a_call_are_timed(model: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    done = run(app, ["run", str(model), "--size", "batch=3", "--profile", "--trace", str(trace)])
    assert "measured" in done.stdout
    assert json.loads(trace.read_text())["traceEvents"]
    gone = run(app, ["run", str(model), "--trace", str(tmp_path / "no" / "trace.json")])
    assert "help     --trace FILE, in a folder that is there" in gone.stderr


def test_an_input_that_no_call_changes_is_given_as_a_constant(tmp_path: Path) -> None:
    text = """<ir_version: 9, opset_import: ["" : 20]>
    g (float[n, 6] x, int64[2] to) => (float[a, b] y) { y = Reshape (x, to) }"""
    path = tmp_path / "reshaped.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    np.save(tmp_path / "to.npy", np.array([-1, 3]))
    given = ["run", str(path), "--size", "n=4", "--constant"]
    done = run(app, [*given, f"to={tmp_path}/to.npy", "--threads", "1"])
    assert (done.exit_code, done.stdout) == (0, "y: float32[8, 3]\n")
    refused = run(app, [*given, "to"])
    assert (refused.exit_code, refused.stderr) == (
        2,
        "run: cannot read --constant to\n  because  it is not a name=value\n"
        "  help     --constant x=x.npy\n  help     --constant inputs.npz\n",
    )


def test_sums_run_as_the_file_has_them_where_that_is_asked(tmp_path: Path) -> None:
    text = """<ir_version: 9, opset_import: ["" : 20]>
    g (float[n, 64, h, w] x) => (float[n, 64, p, q] y) { y = Conv <pads = [1, 1, 1, 1]> (x, k) }"""
    proto = onnx.parser.parse_model(text)
    weights = np.ones((64, 64, 3, 3), np.float32)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weights, "k"))
    path = tmp_path / "conv.onnx"
    onnx.save(proto, path)
    sizes = [part for size in ("h=8", "w=8") for part in ("--size", size)]
    fewer, plain = (
        run(app, ["run", str(path), *sizes, "--plan", *asked]).stdout
        for asked in ([], ["--no-distributive", "--no-parts"])
    )
    assert "products distributed over sums, unless distributive=False" in fewer
    assert "distributed" not in plain


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            ["--input", "x={0}/in.npz"],
            "run: cannot read x from {0}/in.npz\n  because  its arrays are w\n"
            "  help     --input {0}/in.npz takes them by their names\n",
        ),
        (
            ["--input", "x={0}/x.csv"],
            "run: cannot read {0}/x.csv\n  because  it is not a file of numbers that numpy saved\n"
            "  help     numpy.save('{0}/x.csv', array)\n",
        ),
        (
            ["--input", "x={0}/x.npy", "--input", "x={0}/x.npy"],
            "run: cannot read --input x={0}/x.npy\n  because  x is given twice\n"
            "  help     --input x=… once\n",
        ),
        (
            ["--input", "x={0}/x.npy", "--size", "batch=5"],
            "run: cannot take --size batch=5\n  because  it is 3 in x, of shape (3, 4)\n"
            "  help     --size batch=3, or none: arrays say it\n",
        ),
        (
            ["--size", "batch=99999999999"],
            "run: cannot take batch = 99999999999\n  because  batch is in 1…2147483647\n",
        ),
        (
            ["--size", "batch=2000000000"],
            "run: cannot draw x of shape (2000000000, 4)\n  because  there is no memory for it\n"
            "  help     --size, which is batch = 2000000000 now\n",
        ),
    ],
)
def test_inputs_that_do_not_fit_are_refused(
    model: Path,
    tmp_path: Path,
    options: list[str],
    text: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Full:
        def standard_normal(self, shape: tuple[int, ...]) -> None:
            raise MemoryError

    monkeypatch.setattr(np.random, "default_rng", lambda seed: Full())
    np.savez(tmp_path / "in.npz", w=np.ones(3))
    np.save(tmp_path / "x.npy", np.ones((3, 4), "float32"))
    (tmp_path / "x.csv").write_text("1,2")
    done = run(app, ["run", str(model), *(option.format(tmp_path) for option in options)])
    assert (done.exit_code, done.stderr) == (2, text.format(tmp_path))


def test_kernels_run_on_the_target_that_is_asked_for(model: Path, tmp_path: Path) -> None:
    found = []
    for target in ("cpu", "interpret", "vta, interpret"):
        folder = tmp_path / target
        done = run(app, ["run", str(model), "--target", target, "--output", str(folder)])
        assert done.exit_code == 0, done.output
        found.append([np.load(file) for file in sorted(folder.iterdir())])
    for others in found[1:]:
        for one, wanted in zip(others, found[0], strict=True):
            agree(one, of_peer(wanted))
    refused = run(app, ["run", str(model), "--target", "tpu"])
    assert refused.exit_code == 2
    assert refused.stderr.startswith(
        "run: cannot take --target tpu\n  because  there is no target 'tpu'\n  help     --target "
    )
