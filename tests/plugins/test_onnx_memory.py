"""What an import and a compile of a file of ONNX hold at most: packed weights once, and of the mapped file what is read just now."""

from __future__ import annotations

import re
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the extra onnx is not installed")

import onnx
from onnx import numpy_helper

import offcut as oc
from offcut.graph.models.compiling import plan_cache

LAYERS, WIDTH = 16, 512
BESIDE = 4 << 20
"""Bytes for all but the weights: the kernels are in the cache, and nothing is planned; tables of what is remembered may grow."""


def layers(path: Path, seed: int) -> Path:
    """A file of layers of drawn weights, of one shape, so that one kernel serves all of them."""
    text = "; ".join(f"a{n} = MatMul (a{n - 1}, w{n})" for n in range(1, LAYERS + 1))
    head = '<ir_version: 9, opset_import: ["" : 20]> '
    proto = onnx.parser.parse_model(
        f"{head} g (float[n, {WIDTH}] a0) => (float[n, {WIDTH}] a{LAYERS}) {{ {text.replace(';', '')} }}"
    )
    rng = np.random.default_rng(seed)
    for n in range(1, LAYERS + 1):
        array = rng.standard_normal((WIDTH, WIDTH), dtype=np.float32) / 16
        proto.graph.initializer.append(numpy_helper.from_array(array, f"w{n}"))
    path.write_bytes(proto.SerializeToString())
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
    monkeypatch.setenv("OFFCUT_CACHE", str(tmp_path / "cache"))
    oc.from_onnx(layers(tmp_path / "first.onnx", 0))
    path = layers(tmp_path / "other.onnx", 1)
    size, resident = path.stat().st_size, list[int]()
    read: Callable[..., Any] = plan_cache.read

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
    assert max(before, after) <= size // LAYERS * 2
    assert model.graph.outputs
