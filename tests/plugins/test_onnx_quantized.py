"""Files that onnxruntime's own quantizer writes: every product is one of bytes, and results are onnxruntime's but for a step of the last quantization."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import offcut as oc

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402  (where it is installed)
from onnxruntime import quantization  # noqa: E402

Array = np.ndarray[Any, Any]
PRODUCTS = ("conv2d", "dense", "matmul")
STEPS = 1.01


def network() -> Any:
    """A convolution of colours, a window with holes, one of each channel, numbers side by side, a matrix."""
    draw, node = np.random.default_rng(0), helper.make_node
    shapes = {"w1": (5, 3, 3, 3), "w2": (5, 1, 3, 3), "w3": (7, 10, 2, 2), "w4": (4, 7)}
    known = {name: draw.standard_normal(shape).astype("f4") / 4 for name, shape in shapes.items()}
    known |= {
        f"b{name[1]}": draw.standard_normal(one.shape[0]).astype("f4")
        for name, one in known.items()
    }
    nodes = [
        node("Conv", ["x", "w1", "b1"], ["c1"], pads=[1, 0, 1, 2], strides=[2, 1]),
        node("Relu", ["c1"], ["r1"]),
        node("Conv", ["r1", "w2", "b2"], ["c2"], pads=[1] * 4, group=5),
        node("MaxPool", ["r1"], ["p1"], kernel_shape=[3, 3], pads=[1] * 4),
        node("Concat", ["c2", "p1"], ["both"], axis=1),
        node("Conv", ["both", "w3", "b3"], ["c3"], dilations=[2, 1]),
        node("GlobalAveragePool", ["c3"], ["mean"]),
        node("Flatten", ["mean"], ["flat"]),
        node("Gemm", ["flat", "w4", "b4"], ["y"], transB=1),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 9, 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])
    arrays = [numpy_helper.from_array(one, name) for name, one in known.items()]
    graph = helper.make_graph(nodes, "quantized", [x], [y], arrays)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


class _Feeds(quantization.CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, feeds: list[dict[str, Array]]) -> None:
        self.left = iter(feeds)

    def get_next(self) -> Any:
        return next(self.left, None)


@pytest.mark.parametrize("form", ["QDQ", "QOperator"])
@pytest.mark.parametrize("types", ["u8s8", "s8s8", "u8u8"])
@pytest.mark.parametrize("by_channel", [False, True])
def test_a_file_of_the_quantizer(tmp_path: Path, form: str, types: str, by_channel: bool) -> None:
    if types == "u8u8" and by_channel:
        pytest.skip("the quantizer writes no such weights")
    logging.disable(logging.WARNING)
    names = {"u8": quantization.QuantType.QUInt8, "s8": quantization.QuantType.QInt8}
    draw = np.random.default_rng(1)
    feeds = [{"x": draw.standard_normal((2, 3, 9, 8)).astype("f4")} for _ in range(3)]
    paths = [str(tmp_path / name) for name in ("float.onnx", "bytes.onnx")]
    onnx.save(network(), paths[0])
    quantization.quantize_static(
        *paths, _Feeds(feeds), quant_format=quantization.QuantFormat[form], per_channel=by_channel,
        activation_type=names[types[:2]], weight_type=names[types[2:]],
    )  # fmt: skip
    logging.disable(logging.NOTSET)
    model, peer = oc.from_onnx(paths[1]), onnxruntime.InferenceSession(paths[1])
    scales = [one for one in onnx.load(paths[1]).graph.initializer if one.name == "y_scale"]
    step = float(numpy_helper.to_array(scales[0]).item())
    for count in (1, 2, 5):
        x = draw.standard_normal((count, 3, 9, 8)).astype("f4")
        (wanted,) = peer.run(None, {"x": x})
        assert np.abs(model({"x": x})["y"] - wanted).max() <= STEPS * step
    graph = model.model.bound.graph
    products = [node for node in graph.nodes if node.op in PRODUCTS]
    assert len(products) >= 4
    for node in products:
        assert {graph.values[name].dtype for name in node.operands[:2]} <= {"int8", "uint8"}
    weights = [array for array in model.model.bound.arrays.values() if array.size > 10]
    assert weights
    assert {array.itemsize for array in weights} == {1}
