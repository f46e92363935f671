"""`offcut build` and the session of onnxruntime's interface: models of ONNX files, saved, loaded, run."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from conftest import slow
from typer.testing import CliRunner

import offcut as oc
import offcut.onnxruntime as ort
from offcut.cli import app

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
run = CliRunner().invoke

TEXT = """<ir_version: 9, opset_import: ["" : 20]>
    two (float[batch, 16] x, float[16, 9] w) => (float[batch, 9] y, float[batch, 9] y2)
    { z = MatMul(x, w)  y = Relu(z)  y2 = Neg(y) }"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "two.onnx"
    proto = onnx.parser.parse_model(TEXT)
    proto.graph.input[0].name = proto.graph.node[0].input[0] = (
        "x.1"  # no identifier, as exporters write
    )
    onnx.save(proto, path)
    return path


@pytest.fixture(scope="module")
def built(model: Path) -> Path:
    path = model.with_suffix(".offcut")
    done = run(app, ["build", str(model), "-o", str(path), "--size", "batch=1:64"])
    assert done.exit_code == 0, done.output
    assert done.output.startswith(f"{path}: ")
    return path


def feed(rows: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(rows)
    return {
        "x.1": rng.standard_normal((rows, 16), dtype=np.float32),
        "w": rng.standard_normal((16, 9), dtype=np.float32),
    }


@pytest.mark.parametrize("rows", [1, 13, 64])
def test_a_built_model_gives_the_bits_of_the_model(model: Path, built: Path, rows: int) -> None:
    wanted, results = oc.from_onnx(model)(feed(rows)), oc.load(built)(feed(rows))
    assert [*results] == ["y", "y2"]
    for name, array in wanted.items():
        np.testing.assert_array_equal(results[name], array)


@pytest.mark.skipif(shutil.which("ld") is None, reason="the system has no linker")
def test_a_model_is_built_with_a_shared_library(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "two.offcut"
    done = run(app, ["build", str(model), "-o", str(path), "--size", "batch=1:64", "--shared"])
    assert done.exit_code == 0, done.output
    assert [line.split(":")[0] for line in done.output.splitlines()] == [
        str(path),
        str(tmp_path / "two.so"),
    ]
    wanted, results = oc.from_onnx(model)(feed(13)), oc.load(path)(feed(13))
    for name, array in wanted.items():
        np.testing.assert_array_equal(results[name], array)
    for one in path, path.with_suffix(".so"):
        done = run(app, ["run", str(one), "--size", "batch=3"])
        assert done.output == "y: float32[3, 9]\ny2: float32[3, 9]\n"


@pytest.mark.parametrize("machine", ["neoverse-n1", "cascade-lake", slow("sapphire-rapids")])
def test_a_model_is_built_for_another_machine(model: Path, tmp_path: Path, machine: str) -> None:
    path = tmp_path / "two.offcut"
    done = run(app, ["build", str(model), "-o", str(path), "--machine", machine])
    assert done.exit_code == 0, done.output
    there = oc.target("cpu", machine=machine)
    if not there.host().lacking:
        np.testing.assert_array_equal(oc.load(path)(feed(1))["y2"], -oc.load(path)(feed(1))["y"])
    else:
        with pytest.raises(oc.TargetError, match=f"cannot run code for {machine} here"):
            oc.from_onnx(model, target=there)(feed(3))


def test_a_built_model_runs_from_the_shell(built: Path, tmp_path: Path) -> None:
    done = run(app, ["run", str(built), "--size", "batch=3", "--output", str(tmp_path)])
    assert done.output == "y: float32[3, 9]\ny2: float32[3, 9]\n"
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), -np.load(tmp_path / "y2.npy"))
    refused = run(app, ["run", str(built), "--size", "batch=65"])
    assert refused.exit_code == 2
    assert "batch is in 1…64" in refused.output
    refused = run(app, ["run", str(built), "--plan"])
    assert "a saved model is machine code: its graph and its plan are not in it" in refused.output


def test_a_model_is_built_for_c(model: Path, tmp_path: Path) -> None:
    done = run(app, ["build", str(model), "--export", str(tmp_path), "--name", "two"])
    assert done.exit_code == 0, done.output
    assert (
        "int32_t two(const float *x_1, const float *w, float *y, float *y2, int64_t batch"
        in (tmp_path / "two.h").read_text()
    )
    refused = run(app, ["build", str(model), "--export", str(tmp_path), "--name", "for"])
    assert "C or C++ keeps this word for itself" in refused.output


@pytest.mark.parametrize("option", [["--shared"], ["--output", "two.offcut"]])
def test_what_is_of_one_file_is_refused_beside_an_object_for_c(
    model: Path, tmp_path: Path, option: list[str]
) -> None:
    refused = run(app, ["build", str(model), "--export", str(tmp_path), *option])
    assert refused.exit_code == 2
    assert refused.output == (
        f"build: cannot take {option[0]} with --export {tmp_path}\n"
        "  because  --export writes an object file and a header, and no file for offcut.load\n"
        "  help     without --export\n"
        f"  help     without {option[0]}\n"
    )


def test_what_cannot_be_built_is_refused(model: Path, tmp_path: Path) -> None:
    refused = run(app, ["build", str(tmp_path / "no.onnx")])
    assert refused.output.startswith(f"build: cannot read {tmp_path / 'no.onnx'}")
    refused = run(app, ["build", str(model), "--size", "batch=1:many"])
    assert "--size batch=1:many" in refused.output
    refused = run(app, ["build", str(model), "--size", "rows=4"])
    assert refused.exit_code == 2
    assert "rows" in refused.output


@pytest.mark.parametrize("suffix", [".onnx", ".offcut"])
def test_a_session_runs_a_file_as_a_script_for_onnxruntime_asks(
    model: Path, built: Path, suffix: str
) -> None:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = ort.InferenceSession(
        model.with_suffix(suffix), options, providers=["CPUExecutionProvider"]
    )
    given = session.get_inputs()
    assert [(one.name, one.type, one.shape) for one in given] == [
        ("x.1", "tensor(float)", ["batch", 16]),
        ("w", "tensor(float)", [16, 9]),
    ]
    assert [one.name for one in session.get_outputs()] == ["y", "y2"]
    wanted = oc.from_onnx(model)(feed(6))
    y2, y = session.run(["y2", "y"], feed(6))
    np.testing.assert_array_equal(y, wanted["y"])
    np.testing.assert_array_equal(y2, wanted["y2"])
    assert len(session.run(None, feed(6))) == 2
    with pytest.raises(oc.CallError, match="the outputs are y, y2"):
        session.run(["z"], feed(6))
    assert session.get_providers() == ort.get_available_providers() == ["CPUExecutionProvider"]


def test_a_provider_that_is_not_there_is_said_to_be(model: Path) -> None:
    with pytest.warns(UserWarning, match="Specified provider 'CUDAExecutionProvider' is not in"):
        ort.InferenceSession(
            model.read_bytes(), providers=["CUDAExecutionProvider", "CPUExecutionProvider"]
        )


@pytest.mark.parametrize(
    ("place", "because", "help"),
    [
        ("a/b/x.offcut", "the folder FOLDER/a/b is not there", "mkdir -p FOLDER/a/b"),
        ("two.onnx/x.offcut", "FOLDER/two.onnx is a file", "a path in a folder"),
        ("", "it is a folder", "FOLDER/model.offcut"),
    ],
)  # fmt: skip
def test_a_place_that_cannot_be_written_is_refused_before_anything_is_compiled(
    place: str, because: str, help: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("offcut.plugins.onnx.from_onnx", lambda *_, **__: pytest.fail("compiled"))
    (tmp_path / "two.onnx").write_bytes(b"")
    path = tmp_path / place
    refused = run(app, ["build", str(tmp_path / "two.onnx"), "-o", str(path)])
    text = f"build: cannot write {path}\n  because  {because}\n  help     {help}\n"
    assert refused.output == text.replace("FOLDER", str(tmp_path))
    assert sorted(tmp_path.iterdir()) == [tmp_path / "two.onnx"]
