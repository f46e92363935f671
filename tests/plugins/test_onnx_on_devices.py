"""A model of an ONNX file on the emulated GPU: one compile for every size."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the extra onnx is not installed")

import onnx
from onnx import numpy_helper

import offcut as oc
from tests.agree import agree, computed

EMULATED = oc.target("cuda", machine="h200", device="emulated")
MODEL = """<ir_version: 9, opset_import: ["" : 20]>
images (float[batch, 2, height, 2] x) => (float[batch, 3] y) {
  c = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x, w, b)
  r = Relu (c)
  p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (r)
  m = ReduceMean <keepdims = 0> (p, axes)
  d = MatMul (m, u)
  y = Softmax <axis = 1> (d)
}"""
rng = np.random.default_rng(0)
WEIGHTS = {
    "w": rng.standard_normal((4, 2, 3, 3), dtype=np.float32),
    "b": rng.standard_normal(4, dtype=np.float32),
    "u": rng.standard_normal((4, 3), dtype=np.float32),
    "axes": np.array([2, 3]),
}


def test_a_file_runs_on_the_emulated_gpu_at_every_size() -> None:
    proto = onnx.parser.parse_model(MODEL)
    proto.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in WEIGHTS.items())
    model = oc.from_onnx(proto, {"height": (2, 64)}, target=EMULATED)
    assert {row[2] for row in model.plan().rows} == {"cuda"}
    for batch, height in ((1, 2), (2, 7), (7, 3), (1, 33)):
        x = rng.standard_normal((batch, 2, height, 2), dtype=np.float32)
        exact = computed(lambda x: of_images(x, **WEIGHTS), x)
        agree(model(x)["y"], exact)


def of_images(
    x: np.ndarray, w: np.ndarray, b: np.ndarray, u: np.ndarray, axes: object
) -> np.ndarray:
    """Return what the file says, by numpy."""
    n, _, height, width = x.shape
    wide = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    sums = np.zeros((n, 4, height, width)) + b[:, None, None].astype(float)
    for i in range(3):
        for j in range(3):
            part = wide[:, :, i : i + height, j : j + width]
            sums += np.einsum("nchw,oc->nohw", part, w[:, :, i, j].astype(float))
    h = height // 2
    pooled = np.maximum(sums, 0)[:, :, : 2 * h].reshape(n, 4, h, 2, width // 2, 2).max((3, 5))
    scores = np.exp(pooled.mean((2, 3)) @ u)
    return scores / scores.sum(1, keepdims=True)
