"""Every contender computes every task as float64 does, and a wrong result is seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import slow

from offcut.backends.cpu.machine.isa import host
from offcut.studies.contraction import parse_contraction
from offcut.studies.operators import read_operators
from offcut.studies.peers import load_peers
from offcut.studies.peers.operators import (
    Attention,
    Convolution,
    Dequantized,
    LayerNorm,
    Problem,
    Softmax,
    results_of,
)
from tests.facade import numpy_dtype
from tests.problems import draw, make_problem

DENSE = parse_contraction("mk,kn->mn")
SIZES = {"m": 5, "k": 70, "n": 48}
Task = Any


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


def dense(kind: str) -> Task:
    rng = np.random.default_rng(1)
    weight = draw("kn", SIZES, rng, DENSE.elements(kind)[1])
    return make_problem(DENSE, SIZES, {"B": weight}, kind=kind)


def batched(text: str) -> Task:
    return make_problem(parse_contraction(text), {"b": 3, "i": 7, "j": 7, "d": 16}, {})


def attention(kind: str) -> Task:
    return Attention(*normal(3, 2, 4, 7, 64).astype(numpy_dtype(kind)), kind=kind)


def dequantized() -> Task:
    rng = np.random.default_rng(2)
    w, x = draw("kn", SIZES, rng, "int8"), draw("mk", SIZES, rng, "uint8")
    scales = (0.01 + rng.random(48)).astype(np.float32)
    return Dequantized(x, w, 113, 0.02, scales)


TASKS = {
    **{kind: dense(kind) for kind in ("float32", "bfloat16", "int8", "uint8")},
    "q kᵀ": batched("bid,bjd->bij"),
    "weights v": batched("bij,bjd->bid"),
    "attention": attention("float32"),
    "attention bfloat16": attention("bfloat16"),
    "3×3": Convolution(normal(2, 16, 9, 11), normal(32, 16, 3, 3), stride=1, padding=1),
    "3×3 stride 2": Convolution(normal(1, 16, 9, 10), normal(32, 16, 3, 3), stride=2, padding=1),
    "1×1 stride 2": Convolution(normal(2, 16, 9, 11), normal(32, 16, 1, 1), stride=2, padding=0),
    "softmax": Softmax(normal(20, 33)),
    "layer norm": LayerNorm(normal(20, 48), normal(48), normal(48)),
    "dequantized": dequantized(),
}


VNNI = {"avx512vnni", "avxvnni"}
SATURATES = {"uint8": ("onnxruntime",), "dequantized": ("torch", "onnxruntime")}


DENSE_SIZES = {"m": [5], "k": 70, "n": 48}
QUANTIZED = {
    "x": {"shape": "m, 70", "type": "uint8"},
    "w": {"shape": "70, 48", "type": "int8"},
    "scales": "48",
}
NORMALIZED = {"x": "m, 48", "gain": "48", "bias": "48"}


def described(kind: type, op: str, inputs: Any, sizes: Any, **more: Any) -> tuple[type, Any]:
    return kind, {"op": op, "inputs": inputs, "sizes": sizes, **more}


DESCRIBED: dict[str, tuple[type, dict[str, Any]]] = {
    **{
        kind: (Problem, {"einsum": "mk,kn->mn", "type": kind, "sizes": DENSE_SIZES})
        for kind in ("float32", "bfloat16", "int8", "uint8")
    },
    "q kᵀ": (Problem, {"einsum": "bid,bjd->bij", "sizes": {"b": [3], "i, j": [7], "d": 16}}),
    **{
        f"attention {kind}": described(
            *(Attention, "attention", dict.fromkeys("qkv", "b, h, s, 64")),
            *({"b": [2], "h": [4], "s": [7]},),
            type=kind,
        )
        for kind in ("float32", "bfloat16")
    },
    "3×3 stride 2": described(
        Convolution,
        *("conv2d", {"image": "b, 16, y, x", "weights": "32, 16, 3, 3"}, {"b": [2], "y": [9], "x": [11]}),
        arguments={"stride": 2, "padding": 1},
    ),
    "softmax": described(Softmax, "softmax", {"x": "m, n"}, {"m, n": [20]}),
    "layer norm": described(LayerNorm, "layernorm", NORMALIZED, {"m": [20]}),
    "layer norm, its default said": described(
        LayerNorm, "layernorm", NORMALIZED, {"m": [20]}, arguments={"epsilon": 1e-5}
    ),
    "dequantized": described(
        Dequantized, "dense_quantized", QUANTIZED, {"m": [5]},
        arguments={"x_scale": 0.02, "x_zero": 113}, values={"scales": "positive"},
    ),
}  # fmt: skip


@pytest.mark.every(10)
@pytest.mark.parametrize(
    "name", [slow(name) if number % 2 else name for number, name in enumerate(DESCRIBED)]
)
def test_offcut_computes_what_peers_are_given(name: str) -> None:
    kind, table = DESCRIBED[name]
    (operator,), _ = read_operators([table], Path("study.toml"))
    task = operator.workload.task(operator.points[0].sizes, 0)

    run, read = operator.workload.compiled({}).call(task)

    assert type(task.for_peers) is kind
    assert task.exact().mismatch(read(run())) == ""


@pytest.mark.parametrize("name", TASKS)
def test_a_result_that_is_not_written_or_wrong_in_one_element_is_a_mismatch(name: str) -> None:
    reference = TASKS[name].reference()
    assert reference.mismatch(TASKS[name].result())
    wrong = reference.value.copy()
    index = np.unravel_index(np.argmax(np.abs(wrong)), wrong.shape)
    wrong[index] += 0.3 * abs(wrong[index]) + 1
    assert reference.mismatch(wrong).startswith("1 of ")


@pytest.mark.every(4)
@pytest.mark.parametrize("peer", ["numpy", "torch", "onnxruntime", "openvino"])
@pytest.mark.parametrize("name", TASKS)
def test_every_way_of_a_peer_computes_the_task(name: str, peer: str) -> None:
    loaded, task = load_peers([peer]), TASKS[name]
    if loaded.missing:
        pytest.skip(f"{peer} is not installed")
    if peer in SATURATES.get(name, ()) and not host().features & VNNI:
        pytest.skip(
            f"{peer} adds pairs of bytes in 16 bits, which saturate, on a host without VNNI"
        )
    with loaded.session():
        for way in loaded.available[0].ways(task):
            assert task.reference().mismatch(way.read(way.run())) == "", way.name


EPILOGUES = {
    "bias": ("mk,kn->mn", ["bias"], ["B", "bias"]),
    "bias of a call": ("mk,kn->mn", ["bias", "relu"], []),
    "bias, gelu": ("mk,nk->mn", ["bias", "gelu"], ["B", "bias"]),
    "residual": ("mk,kn->mn", ["bias", "residual", "silu"], ["B", "bias"]),
    "relu, bias": ("mk,kn->mn", ["relu", "bias", "tanh"], ["B", "bias"]),
    "batched": ("bmk,bkn->bmn", ["bias", "sigmoid"], ["bias"]),
    "rows last": ("mk,kn->nm", ["bias", "relu"], ["B", "bias"]),
    "two columns": ("mk,kcn->mcn", ["bias", "relu"], ["B"]),
    "no product": ("mij,jn->mn", ["bias", "relu"], []),
}


@pytest.mark.every(3)
@pytest.mark.parametrize("peer", ["numpy", "torch", "torch.compile", "onnxruntime", "openvino"])
@pytest.mark.parametrize("name", EPILOGUES)
def test_every_way_of_a_peer_computes_an_epilogue(name: str, peer: str, tmp_path: Path) -> None:
    text, epilogue, constants = EPILOGUES[name]
    loaded = load_peers([peer])
    if loaded.missing:
        pytest.skip(f"{peer} is not installed")
    extents = {"m": 5, "k": 7, "n": 9, "b": 3, "c": 2, "i": 2, "j": 4}
    sizes = {letter: extents[letter] for letter in text if letter in extents}
    table = {"einsum": text, "sizes": sizes, "epilogue": epilogue, "constants": constants}
    (operator,), _ = read_operators([{"name": name, **table}], tmp_path / "study.toml")
    task = operator.workload.task(sizes, 0)
    lacks = {
        "numpy": "gelu" in epilogue,
        "torch.compile": "B" not in constants or name in ("rows last", "two columns"),
        "onnxruntime": name in ("rows last", "two columns", "no product"),
        "openvino": name in ("rows last", "two columns", "no product"),
    }
    with loaded.session():
        ways = loaded.available[0].ways(task.for_peers)
        assert bool(ways) != lacks.get(peer, False)
        for way in ways:
            assert task.exact().mismatch((way.read(way.run()),)) == "", way.name


def test_openvino_computes_attention_of_every_length_behind_one_of_length_one() -> None:
    """Its model of a symbolic length is wrong from length 16 on where length 1 came first (2026.4): a model for each."""
    loaded = load_peers(["openvino"])
    if loaded.missing:
        pytest.skip("openvino is not installed")
    (peer,), rng = loaded.available, np.random.default_rng(0)
    for length in (1, 5, 16, 1, 62):
        shape = (2, 3, length, 64)
        q, k, v = (rng.standard_normal(shape, np.float32) for _ in range(3))
        task = Attention(q, k, v)
        for way in peer.ways(task):
            assert task.reference().mismatch(way.read(way.run())) == "", (way.name, length)


def test_the_old_name_of_the_peers_that_are_available_warns() -> None:
    loaded = load_peers(["numpy"])
    with pytest.warns(DeprecationWarning, match=r"^Peers\.found is now Peers\.available; "):
        assert loaded.found == loaded.available


@pytest.mark.slow
@pytest.mark.parametrize("peer", ["torch", "torch.compile", "onnxruntime", "openvino"])
def test_every_peer_takes_a_whole_model(peer: str, tmp_path: Path) -> None:
    """A module as it is, or the file of ONNX that torch exports of it, prepared once for all sizes."""
    pytest.importorskip("torch")
    loaded = load_peers([peer])
    if loaded.missing:
        pytest.skip(f"{peer} is not installed")
    (tmp_path / "mine.py").write_text(
        "import torch\n"
        "def model():\n    return torch.nn.Linear(8, 4), lambda n: (torch.randn(n, 8),)\n"
    )
    table = {"model": "mine:model", "sizes": {"n": [2, 5]}}
    (operator,), _ = read_operators([table], tmp_path / "study.toml")
    for point in operator.points:
        task = operator.workload.task(point.sizes, 0)
        with loaded.session():
            (way,) = loaded.available[0].ways(task.for_peers)
            assert task.exact().mismatch(results_of(way.read(way.run()))) == ""
        assert way.name == peer
