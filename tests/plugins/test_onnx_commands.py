"""`offcut run` and `offcut build`: models of ONNX files, run once; saved, loaded, exported for C."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import slow

onnx = pytest.importorskip("onnx", reason="the extra onnx is not installed")

from typer.testing import CliRunner  # noqa: E402

import offcut as oc  # noqa: E402
import offcut.onnxruntime as ort  # noqa: E402
from tests.agree import agree, of_peer  # noqa: E402
from tests.facade import app  # noqa: E402
from tests.plugins.test_onnx import drawn, parsed  # noqa: E402

invoke = CliRunner().invoke


def run(*arguments: Any) -> Any:
    return invoke(app, ["run", *map(str, arguments)])


def build(*arguments: Any) -> Any:
    return invoke(app, ["build", *map(str, arguments)])


def saved(path: Path, text: str, **weights: Any) -> Path:
    onnx.save(parsed(text, **weights), path)
    return path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    text = "g (float[batch, 4] x, int64[batch] k) => (float[batch, 4] y, int64[batch] m) { y = Relu (x)  m = Identity (k) }"
    return saved(tmp_path / "model.onnx", text)


def test_run_says_what_the_outputs_are_and_saves_them(model: Path, tmp_path: Path) -> None:
    x = np.array([[-1, 2, -3, 4], [5, -6, 7, -8]], np.float32)
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "in.npz", x=x, k=np.arange(2))
    said = "y: float32[2, 4]\nm: int64[2]\n"
    done = run(model, "--input", f"x={tmp_path}/x.npy", "--output", tmp_path / "out")
    assert (done.exit_code, done.stdout) == (0, said)
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "y.npy"), np.maximum(x, 0))
    for name in ("", "x="):
        assert run(model, "--input", f"{name}{tmp_path}/in.npz").stdout == said


def test_inputs_that_are_not_given_are_drawn_at_the_sizes_that_are_asked_for(model: Path) -> None:
    done = run(model, "--size", "batch=3")
    assert (done.exit_code, done.stdout) == (0, "y: float32[3, 4]\nm: int64[3]\n")
    assert done.stderr == ""
    done = run(model, "--graph")
    assert done.stderr == "at batch = 1: --size batch=… says otherwise\n"
    assert done.stdout.startswith("graph g\nsize batch in 1:")
    assert done.stdout.endswith("y: float32[1, 4]\nm: int64[1]\n")


def test_a_size_and_a_constant_that_a_model_cannot_be_read_without_are_given_to_it(
    tmp_path: Path,
) -> None:
    text = "g (float[n, h, w] x) => (float[n, a, b] y) { q = Constant <value_ints = [0, 2, 3]> ()  y = Reshape (x, q) }"
    path = saved(tmp_path / "parts.onnx", text)
    refused = run(path)
    assert refused.exit_code == 2
    assert "Reshape y: cannot take x as [n, 2, 3]" in refused.stderr
    assert 'sizes={"h": …, "w": …}) at which h * w is 6' in refused.stderr
    assert run(path, "--size", "h=3", "--size", "n=4").stdout == "y: float32[4, 2, 3]\n"
    text = "g (float[n, 6] x, int64[2] to) => (float[a, b] y) { y = Reshape (x, to) }"
    path = saved(tmp_path / "reshaped.onnx", text)
    np.save(tmp_path / "to.npy", np.array([-1, 3]))
    given = [path, "--size", "n=4", "--threads", "1", "--constant"]
    assert run(*given, f"to={tmp_path}/to.npy").stdout == "y: float32[8, 3]\n"
    refused = run(*given, "to")
    assert (refused.exit_code, refused.stderr) == (
        2,
        "run: cannot read --constant to\n  because  it is not a name=value\n"
        "  help     --constant x=x.npy\n  help     --constant inputs.npz\n",
    )


REFUSED = [
    paragraph.split("\n", 1)
    for paragraph in [
        "FOLDER/x\nrun: cannot read FOLDER/x\n  because  there is no such file\n  help     offcut run model.onnx",
        "FOLDER\nrun: cannot read FOLDER\n  because  it is a folder\n  help     offcut run model.onnx",
        "MODEL --size n=3\nrun: cannot take --size n=3\n  because  sizes are batch\n  help     --size batch=1",
        "MODEL --size batch=x\nrun: cannot read --size batch=x\n  because  'x' is not a whole number from 0 on\n  help     --size batch=3",
        "MODEL --input x\nrun: cannot read --input x\n  because  it is not a name=value",
        "MODEL --input x=none.npy\nrun: cannot read none.npy\n  because  No such file or directory\n  help     numpy.save('none.npy', array)",
        "MODEL --input w=FOLDER/x.npy\nrun: cannot take an input w\n  because  inputs are x, k\n  help     --input x=x.npy\n  help     --input k=k.npy",
        "MODEL --input x=FOLDER/in.npz\nrun: cannot read x from FOLDER/in.npz\n  because  its arrays are w\n  help     --input FOLDER/in.npz takes them by their names",
        "MODEL --input x=FOLDER/x.csv\nrun: cannot read FOLDER/x.csv\n  because  it is not a file of numbers that numpy saved\n  help     numpy.save('FOLDER/x.csv', array)",
        "MODEL --input x=FOLDER/x.npy --input x=FOLDER/x.npy\nrun: cannot read --input x=FOLDER/x.npy\n  because  x is given twice\n  help     --input x=… once",
        "MODEL --input x=FOLDER/x.npy --size batch=5\nrun: cannot take --size batch=5\n  because  it is 3 in x, of shape (3, 4)\n  help     --size batch=3, or none: arrays say it",
        "MODEL --size batch=99999999999\nrun: cannot take batch = 99999999999\n  because  batch is in 1…2147483647",
        "MODEL --size batch=2000000000\nrun: cannot draw x of shape (2000000000, 4)\n  because  there is no memory for it\n  help     --size, which is batch = 2000000000 now",
        "MODEL --target tpu\nrun: cannot take --target tpu\n  because  there is no target 'tpu'\n  help     --target ",
    ]
]


@pytest.mark.parametrize(("options", "text"), REFUSED, ids=[one for one, _ in REFUSED])
def test_what_cannot_be_run_is_refused(
    model: Path, tmp_path: Path, options: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full:
        def standard_normal(self, shape: tuple[int, ...]) -> None:
            raise MemoryError

    monkeypatch.setattr(np.random, "default_rng", lambda seed: Full())
    np.savez(tmp_path / "in.npz", w=np.ones(3))
    np.save(tmp_path / "x.npy", np.ones((3, 4), "float32"))
    (tmp_path / "x.csv").write_text("1,2")
    given = options.replace("MODEL", str(model)).replace("FOLDER", str(tmp_path))
    done = run(*given.split())
    assert done.exit_code == 2
    assert done.stderr.startswith(text.replace("FOLDER", str(tmp_path)))


def test_the_kernels_of_a_call_their_cost_and_their_times_are_printed(
    model: Path, tmp_path: Path
) -> None:
    done = run(model, "--size", "batch=3", "--plan", "--cost")
    assert "g(batch = 3): 1 kernels, 1 distinct" in done.stdout
    assert "bound by" in done.stdout
    trace = tmp_path / "trace.json"
    done = run(model, "--size", "batch=3", "--profile", "--trace", trace)
    assert "measured" in done.stdout
    assert json.loads(trace.read_text())["traceEvents"]
    gone = run(model, "--trace", tmp_path / "no" / "trace.json")
    assert "help     --trace FILE, in a folder that is there" in gone.stderr


def test_sums_run_as_the_file_has_them_where_that_is_asked(tmp_path: Path) -> None:
    text = "g (float[n, 64, h, w] x) => (float[n, 64, p, q] y) { y = Conv <pads = [1, 1, 1, 1]> (x, k) }"
    path = saved(tmp_path / "conv.onnx", text, k=np.ones((64, 64, 3, 3), np.float32))
    fewer, plain = (
        run(path, "--size", "h=8", "--size", "w=8", "--plan", *asked).stdout
        for asked in ([], ["--no-distributive", "--no-parts"])
    )
    assert "products distributed over sums, unless distributive=False" in fewer
    assert "distributed" not in plain


def test_kernels_run_on_the_target_that_is_asked_for(model: Path, tmp_path: Path) -> None:
    found = []
    for target in ("cpu", "interpret", "vta, interpret"):
        done = run(model, "--target", target, "--output", tmp_path / target)
        assert done.exit_code == 0, done.output
        found.append([np.load(file) for file in sorted((tmp_path / target).iterdir())])
    for others in found[1:]:
        for one, wanted in zip(others, found[0], strict=True):
            agree(one, of_peer(wanted))


# Models that are built, and their files.


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    proto = parsed("""two (float[batch, 16] x, float[16, 9] w) => (float[batch, 9] y, float[batch, 9] y2)
        { z = MatMul(x, w)  y = Relu(z)  y2 = Neg(y) }""")
    proto.graph.input[0].name = proto.graph.node[0].input[0] = "x.1"  # no identifier, as exporters write  # fmt: skip
    path = tmp_path_factory.mktemp("models") / "two.onnx"
    onnx.save(proto, path)
    return path


@pytest.fixture(scope="module")
def built(two: Path) -> Path:
    path = two.with_suffix(".offcut")
    done = build(two, "-o", path, "--size", "batch=1:64")
    assert done.exit_code == 0, done.output
    assert done.output.startswith(f"{path}: ")
    return path


def feed(rows: int) -> dict[str, np.ndarray]:
    return {"x.1": drawn(1, rows, 16), "w": drawn(2, 16, 9)}


def test_a_built_model_gives_the_bits_of_the_model(two: Path, built: Path) -> None:
    for rows in (1, 13, 64):
        wanted, results = oc.from_onnx(two)(feed(rows)), oc.load(built)(feed(rows))
        assert [*results] == ["y", "y2"]
        for name, array in wanted.items():
            np.testing.assert_array_equal(results[name], array)


@pytest.mark.skipif(shutil.which("ld") is None, reason="the system has no linker")
def test_a_model_is_built_with_a_shared_library(two: Path, tmp_path: Path) -> None:
    path = tmp_path / "two.offcut"
    done = build(two, "-o", path, "--size", "batch=1:64", "--shared")
    assert done.exit_code == 0, done.output
    written = [line.split(":")[0] for line in done.output.splitlines()]
    assert written == [str(path), str(tmp_path / "two.so")]
    wanted, results = oc.from_onnx(two)(feed(13)), oc.load(path)(feed(13))
    for name, array in wanted.items():
        np.testing.assert_array_equal(results[name], array)
    for one in written:
        assert run(one, "--size", "batch=3").output == "y: float32[3, 9]\ny2: float32[3, 9]\n"


@pytest.mark.parametrize("machine", ["neoverse-n1", "cascade-lake", slow("sapphire-rapids")])
def test_a_model_is_built_for_another_machine(two: Path, tmp_path: Path, machine: str) -> None:
    path = tmp_path / "two.offcut"
    done = build(two, "-o", path, "--machine", machine)
    assert done.exit_code == 0, done.output
    there = oc.target("cpu", machine=machine)
    if not there.host().lacking:
        np.testing.assert_array_equal(oc.load(path)(feed(1))["y2"], -oc.load(path)(feed(1))["y"])
    else:
        with pytest.raises(oc.TargetError, match=f"cannot run code for {machine} here"):
            oc.from_onnx(two, target=there)(feed(3))


def test_a_built_model_runs_from_the_shell(built: Path, tmp_path: Path) -> None:
    done = run(built, "--size", "batch=3", "--output", tmp_path)
    assert done.output == "y: float32[3, 9]\ny2: float32[3, 9]\n"
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), -np.load(tmp_path / "y2.npy"))
    refused = run(built, "--size", "batch=65")
    assert refused.exit_code == 2
    assert "batch is in 1…64" in refused.output
    refused = run(built, "--plan")
    assert "a saved model is machine code: its graph and its plan are not in it" in refused.output


def test_a_model_is_built_for_c(two: Path, tmp_path: Path) -> None:
    done = build(two, "--export", tmp_path, "--name", "two")
    assert done.exit_code == 0, done.output
    call = "int32_t two(const float *x_1, const float *w, float *y, float *y2, int64_t batch"
    assert call in (tmp_path / "two.h").read_text()
    refused = build(two, "--export", tmp_path, "--name", "for")
    assert "C or C++ keeps this word for itself" in refused.output
    for option in (["--shared"], ["--output", "two.offcut"]):
        refused = build(two, "--export", tmp_path, *option)
        assert (refused.exit_code, refused.output) == (
            2,
            f"build: cannot take {option[0]} with --export {tmp_path}\n"
            "  because  --export writes an object file and a header, and no file for offcut.load\n"
            "  help     without --export\n"
            f"  help     without {option[0]}\n",
        )


def test_what_cannot_be_built_is_refused(two: Path, tmp_path: Path) -> None:
    refused = build(tmp_path / "no.onnx")
    assert refused.output.startswith(f"build: cannot read {tmp_path / 'no.onnx'}")
    assert "--size batch=1:many" in build(two, "--size", "batch=1:many").output
    refused = build(two, "--size", "rows=4")
    assert refused.exit_code == 2
    assert "rows" in refused.output


@pytest.mark.parametrize(
    ("place", "because", "help"),
    [
        ("a/b/x.offcut", "the folder FOLDER/a/b is not there", "mkdir -p FOLDER/a/b"),
        ("two.onnx/x.offcut", "FOLDER/two.onnx is a file", "a path in a folder"),
        ("", "it is a folder", "FOLDER/model.offcut"),
    ],
)
def test_a_place_that_cannot_be_written_is_refused_before_anything_is_compiled(
    place: str, because: str, help: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("offcut.plugins.onnx.from_onnx", lambda *_, **__: pytest.fail("compiled"))
    (tmp_path / "two.onnx").write_bytes(b"")
    path = tmp_path / place
    refused = build(tmp_path / "two.onnx", "-o", path)
    text = f"build: cannot write {path}\n  because  {because}\n  help     {help}\n"
    assert refused.output == text.replace("FOLDER", str(tmp_path))
    assert sorted(tmp_path.iterdir()) == [tmp_path / "two.onnx"]


@pytest.mark.parametrize("suffix", [".onnx", ".offcut"])
def test_a_session_of_onnxruntimes_interface_runs_a_file_and_what_is_built_of_it(
    two: Path, built: Path, suffix: str
) -> None:
    session = ort.InferenceSession(two.with_suffix(suffix), providers=["CPUExecutionProvider"])
    assert [(one.name, one.type, one.shape) for one in session.get_inputs()] == [
        ("x.1", "tensor(float)", ["batch", 16]),
        ("w", "tensor(float)", [16, 9]),
    ]
    assert [one.name for one in session.get_outputs()] == ["y", "y2"]
    wanted = oc.from_onnx(two)(feed(6))
    y2, y = session.run(["y2", "y"], feed(6))
    np.testing.assert_array_equal(y, wanted["y"])
    np.testing.assert_array_equal(y2, wanted["y2"])
    with pytest.raises(oc.CallError, match="the outputs are y, y2"):
        session.run(["z"], feed(6))
    assert session.get_providers() == ort.get_available_providers() == ["CPUExecutionProvider"]


def test_a_provider_that_is_not_there_is_said_to_be(two: Path) -> None:
    with pytest.warns(UserWarning, match="Specified provider 'CUDAExecutionProvider' is not in"):
        ort.InferenceSession(
            two.read_bytes(), providers=["CUDAExecutionProvider", "CPUExecutionProvider"]
        )
