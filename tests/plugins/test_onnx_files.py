"""Files of ONNX: weights are read where they lie and held once; a file that was compiled before runs from the cache, without onnx and the
compiler, with the bits of the compiled model.
"""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import rejection

pytest.importorskip("onnx", reason="the extra onnx is not installed")

import onnx

import offcut as oc
from offcut.backends.host import cache
from offcut.graph.models.compiling import plan_cache
from offcut.plugins.onnx import compile_file
from offcut.plugins.onnx.model import OnnxModel
from offcut.plugins.onnx.weights import LONG
from tests.plugins.test_onnx import drawn, parsed

LAYERS = (
    "mlp (float[n, 19] x) => (float[n, 5] y) "
    "{ a = MatMul (x, u) b = Relu (a) c = MatMul (b, v) y = Add (c, d) }"
)
CONVOLUTION = (
    "net (float[n, 16, h, w] x) => (float[n, 16, h, w] y) "
    "{ a = Conv <pads = [1, 1, 1, 1]> (x, k) b = Relu (a) y = Conv <pads = [1, 1, 1, 1]> (b, k) }"
)
SHAPES = {"u": (19, 33), "v": (33, 5), "d": (5,), "k": (16, 16, 3, 3)}

# What a run from the cache may not import: the reader of the file, and what compiles.
FORBIDDEN = (
    *("islpy", "sympy", "onnx", "google.protobuf", "typer", "rich"),
    *(f"offcut.{room}" for room in ("proof", "schedule", "partition", "polyhedral", "costmodel")),
    *(f"offcut.{room}" for room in ("search", "describe", "ops", "graph", "pipeline", "kernel")),
    *("offcut.backends.cpu", "offcut.backends.target", "offcut.tuning"),
)
MOST_MODULES = 60
"""Of offcut, in a run from the cache: 597 of them make and run a model."""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("OFFCUT_CACHE", str(folder))
    return folder


def file_of(text: str, path: Path, scale: float = 1.0) -> Path:
    """Write a model with drawn weights."""
    read = [name for name in SHAPES if f"{name})" in text]
    weights = {name: scale * drawn(1, *SHAPES[name]) for name in read}
    path.write_bytes(
        parsed(text, **{n: w.astype(np.float32) for n, w in weights.items()}).SerializeToString()
    )
    return path


@pytest.fixture
def layers(tmp_path: Path) -> Path:
    return file_of(LAYERS, tmp_path / "mlp.onnx")


def rows(n: int) -> Any:
    return drawn(n, n, 19)


def is_of_cache(model: OnnxModel) -> bool:
    """Whether nothing was compiled or read for it."""
    return model._compiled is None


def compiled_anew(*_: Any) -> Any:
    raise AssertionError("it is compiled again")


def test_a_model_of_the_cache_gives_the_bits_of_the_compiled_one(
    layers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = oc.from_onnx(layers)
    assert not is_of_cache(first)
    monkeypatch.setattr(compile_file, "compile_file", compiled_anew)
    for source in (layers, str(layers), layers.read_bytes()):
        again = oc.from_onnx(source)
        for n in (1, 14, 47):
            np.testing.assert_array_equal(again({"x": rows(n)})["y"], first(rows(n))["y"])
            np.testing.assert_array_equal(again(rows(n)[::-1])["y"], first(rows(n)[::-1])["y"])
        assert repr(again) == repr(first)
        assert (again.sizes, again.inputs, again.outputs) == (
            first.sizes,
            first.inputs,
            first.outputs,
        )
        assert is_of_cache(again)


def test_what_a_saved_model_has_not_is_asked_of_the_compiled_one(layers: Path) -> None:
    first, again = oc.from_onnx(layers), oc.from_onnx(layers)
    assert str(again.plan(n=7)) == str(first.plan(n=7))
    assert not is_of_cache(again)
    assert again.graph == first.graph
    copied = pickle.loads(pickle.dumps(oc.from_onnx(layers)))
    np.testing.assert_array_equal(copied(rows(3))["y"], first(rows(3))["y"])


@pytest.mark.parametrize(
    "feed",
    [np.zeros((3, 18), "f"), {"z": np.zeros((3, 19), "f")}, {}, None, np.zeros((3, 19), "i4")],
    ids=["extent", "name", "nothing", "none", "type"],
)
def test_what_is_wrong_with_a_call_is_said_as_the_compiled_model_says_it(
    layers: Path, feed: Any
) -> None:
    texts = list[str]()
    for _ in range(2):
        model = oc.from_onnx(layers)
        assert is_of_cache(model) == bool(texts)
        with pytest.raises(oc.CallError) as refused:
            model(feed)
        texts.append(str(refused.value))
    assert texts[0] == texts[1]


def test_a_file_that_is_gone_is_compiled_and_one_that_has_changed_is_refused(layers: Path) -> None:
    first, data = oc.from_onnx(layers), layers.read_bytes()
    gone = oc.from_onnx(layers)
    layers.unlink()
    assert gone.graph == first.graph
    for changed in (data[:-9], data[:-9] + bytes(9), b""):
        layers.write_bytes(data)
        model = oc.from_onnx(layers)
        with layers.open("r+b") as file:
            file.truncate(0)
            file.write(changed)
        np.testing.assert_array_equal(model(rows(3))["y"], first(rows(3))["y"])
        with rejection(f"""\
DescribeError: from_onnx: cannot compile {layers}
  because  its contents have changed since it was read, and the model of the cache does not run this call
  help     from_onnx(path) of the file as it is now"""):
            _ = model.graph


def test_another_file_and_other_options_are_other_entries(layers: Path, tmp_path: Path) -> None:
    oc.from_onnx(layers)
    other = file_of(LAYERS, tmp_path / "other.onnx", scale=2.0)
    assert not is_of_cache(oc.from_onnx(other))
    assert not is_of_cache(oc.from_onnx(layers, sizes={"n": (1, 64)}))
    assert not is_of_cache(oc.from_onnx(layers, distributive=False))
    assert is_of_cache(oc.from_onnx(layers, sizes={"n": (1, 64)}))
    assert not is_of_cache(oc.from_onnx(layers, threads=2))
    assert not is_of_cache(oc.from_onnx(layers, target="interpret"))
    assert not is_of_cache(oc.from_onnx(layers, parts=False))
    assert is_of_cache(oc.from_onnx(layers))


def test_a_damaged_entry_and_one_of_another_name_are_made_again(layers: Path, home: Path) -> None:
    oc.from_onnx(layers)
    (entry,) = home.glob("*.offcut")
    assert entry.stat().st_mode & 0o777 == 0o600
    data = entry.read_bytes()
    for wrong in (data[:-1], data[:5000] + bytes([data[5000] ^ 1]) + data[5001:], b""):
        entry.write_bytes(wrong)
        assert not is_of_cache(oc.from_onnx(layers))
        assert is_of_cache(oc.from_onnx(layers))
    entry.rename(home / f"{'0' * 64}.offcut")
    assert cache.read_model("0" * 64) is None
    assert not is_of_cache(oc.from_onnx(layers))


def test_nothing_is_read_where_proofs_are_asked_for_again(
    layers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    oc.from_onnx(layers)
    monkeypatch.setenv("OFFCUT_VERIFY", "1")
    assert not is_of_cache(oc.from_onnx(layers))


@pytest.mark.slow
def test_data_too_large_for_fewer_products_and_large_batches_are_of_the_compiled_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = file_of(CONVOLUTION, tmp_path / "net.onnx")
    first = oc.from_onnx(path)
    x = drawn(1, 2, 16, 9, 9)
    again = oc.from_onnx(path)
    np.testing.assert_array_equal(again(x)["y"], first(x)["y"])
    assert is_of_cache(again)
    large = np.full((1, 16, 9, 9), 1e37, np.float32)
    np.testing.assert_array_equal(again(large)["y"], first(large)["y"])
    whole = first.model._shared.batches.whole
    assert whole is not None
    side = int((whole.cache_bytes / 64) ** 0.5) + 9  # 16 channels of float32: one image is more
    for n in (1, 2):
        again = oc.from_onnx(path)
        many = np.zeros((n, 16, side, side), np.float32)
        np.testing.assert_array_equal(again(many)["y"][:1], first(many[:1])["y"])
        assert is_of_cache(again) == (n == 1)


def test_the_models_that_were_not_used_for_the_longest_time_are_removed(
    layers: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    oc.from_onnx(layers)
    (entry,) = home.glob("*.offcut")
    monkeypatch.setattr(cache, "MAX_BYTES", entry.stat().st_size * 5 // 2)
    others = [file_of(LAYERS, tmp_path / f"{k}.onnx", scale=k) for k in (2, 3)]
    oc.from_onnx(others[0])
    for age, path in enumerate(sorted(home.glob("*.offcut"), key=lambda one: one == entry)):
        os.utime(path, ns=(10**9 * age, 10**9 * age))  # the first is the later one
    oc.from_onnx(others[1])
    assert is_of_cache(oc.from_onnx(layers))
    assert is_of_cache(oc.from_onnx(others[1]))
    assert not is_of_cache(oc.from_onnx(others[0]))


def test_a_run_from_the_cache_imports_no_compiler(layers: Path, tmp_path: Path) -> None:
    expected = oc.from_onnx(layers)(rows(3))["y"]
    np.save(tmp_path / "x.npy", rows(3))
    program = (
        "import sys, numpy as np, offcut as oc\n"
        f"y = oc.from_onnx({str(layers)!r})(np.load({str(tmp_path / 'x.npy')!r}))['y']\n"
        f"np.save({str(tmp_path / 'y.npy')!r}, y)\n"
        "print(*sys.modules)"
    )
    root = str(Path(cache.__file__).parents[3])
    given = {**os.environ, "PYTHONPATH": root}
    done = subprocess.run(
        [sys.executable, "-c", program], env=given, capture_output=True, text=True, check=True
    )
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), expected)
    modules = done.stdout.split()
    wrong = [m for m in modules if any(m == no or m.startswith(f"{no}.") for no in FORBIDDEN)]
    assert wrong == []
    assert sum(m.startswith("offcut") for m in modules) <= MOST_MODULES


# Weights.


def weighed() -> Any:
    """A product with a long weight and a short one."""
    text = "g (float[n, 160] x) => (float[n, 120] y) { a = MatMul (x, w) b = Add (a, v) y = Add (b, v) }"
    made = parsed(text, v=drawn(1, 120), w=drawn(2, 160, 120))
    assert len(made.graph.initializer[1].raw_data) > LONG
    return made


def test_a_file_its_bytes_and_its_proto_give_one_model_whatever_becomes_of_them(
    tmp_path: Path,
) -> None:
    proto = weighed()
    data = bytearray(proto.SerializeToString())
    path = tmp_path / "model.onnx"
    path.write_bytes(data)
    models = [oc.from_onnx(source, threads=1) for source in (proto, path, data)]
    data[:] = bytes(len(data))
    path.write_bytes(data)
    expected, *others = [model({"x": drawn(1, 5, 160)})["y"].tobytes() for model in models]
    assert others == [expected, expected]
    arrays = [
        {name: array.tobytes() for name, array in model.imported.bound.arrays.items()}
        for model in models
    ]
    assert arrays[0] == arrays[1] == arrays[2]


@pytest.mark.parametrize(
    "damage",
    [{"dims": [161, 120]}, {"dims": [160, 121]}, {"data_type": onnx.TensorProto.INT4}, {"data_type": 99}],
    ids=str,
)  # fmt: skip
def test_a_damaged_weight_of_a_file_is_refused_as_that_of_its_proto(
    damage: dict[str, Any], tmp_path: Path
) -> None:
    proto = weighed()
    tensor = proto.graph.initializer[1]
    tensor.data_type = damage.get("data_type", tensor.data_type)
    tensor.dims[:] = damage.get("dims", tensor.dims)
    path = tmp_path / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    texts = list[str]()
    for source in (proto, path):
        with pytest.raises(oc.DescribeError) as refused:
            oc.from_onnx(source)
        texts.append(str(refused.value))
    assert texts[0] == texts[1]


@pytest.mark.parametrize("kept", [0, 1, 2, 40, 1000, 70_000])
def test_a_file_that_ends_early_is_refused(kept: int, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(weighed().SerializeToString()[:kept])
    with pytest.raises(oc.DescribeError):
        oc.from_onnx(path)


LAYER_COUNT, WIDTH = 16, 512
BESIDE = 4 << 20
"""Bytes for all but the weights: the kernels are in the cache, and nothing is planned; tables of what is remembered may grow."""


def deep(path: Path, seed: int) -> Path:
    """A file of layers of drawn weights, of one shape, so that one kernel serves all of them."""
    lines = " ".join(f"a{n} = MatMul (a{n - 1}, w{n})" for n in range(1, LAYER_COUNT + 1))
    weights = {f"w{n}": drawn(seed + n, WIDTH, WIDTH) / 16 for n in range(1, LAYER_COUNT + 1)}
    text = f"g (float[n, {WIDTH}] a0) => (float[n, {WIDTH}] a{LAYER_COUNT}) {{ {lines} }}"
    path.write_bytes(parsed(text, **weights).SerializeToString())
    return path


def resident_bytes(path: Path) -> int:
    """Return how many bytes of a mapped file lie in the memory of this process."""
    text = Path("/proc/self/smaps").read_text(encoding="utf-8", errors="replace")
    return 1024 * sum(
        map(int, re.findall(rf"{re.escape(str(path))}\n.*?\nRss: *(\d+)", text, re.S))
    )


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="the system does not say it")
def test_import_and_compile_hold_weights_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packed weights once, and of the mapped file what is read just now."""
    oc.from_onnx(deep(tmp_path / "first.onnx", 0))
    path = deep(tmp_path / "other.onnx", 99)
    size, resident = path.stat().st_size, list[int]()
    read = plan_cache.read

    def noted(*arguments: Any) -> Any:
        resident.append(resident_bytes(path))
        found = read(*arguments)
        resident.append(resident_bytes(path))
        return found

    monkeypatch.setattr(plan_cache, "read", noted)
    tracemalloc.start()
    try:
        model = oc.from_onnx(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size < peak <= 1.1 * size + BESIDE
    before, after = resident  # the packed ones are there when the second is taken
    assert max(before, after) <= size // LAYER_COUNT * 2
    assert model.graph.outputs
