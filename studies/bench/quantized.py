"""Quantized ONNX models, for `quantized.toml`: convolutions and products of bytes in each format, and a network that onnxruntime quantizes."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Array = NDArray[Any]
TYPES = {"uint8": TensorProto.UINT8, "float32": TensorProto.FLOAT, "int32": TensorProto.INT32}
POINT, RESULT_POINT = np.uint8(118), np.uint8(120)
SCALE, WEIGHT_SCALE = np.float32(0.02), np.float32(0.01)


def generator(seed: int) -> np.random.Generator:
    """Return a generator of its own."""
    return np.random.default_rng(seed)


def file_of(
    nodes: list[Any], x: tuple[str, list[Any]], dtype: str, initializers: Mapping[str, Any]
) -> Any:
    """Return a file of one input `x` and one output `y`."""
    graph_input = helper.make_tensor_value_info("x", TYPES[x[0]], x[1])
    rank = len(x[1])
    result = helper.make_tensor_value_info("y", TYPES[dtype], [f"y{axis}" for axis in range(rank)])
    arrays = [numpy_helper.from_array(np.asarray(one), name) for name, one in initializers.items()]
    graph = helper.make_graph(nodes, "integers", [graph_input], [result], arrays)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def convolution(inner: int, outer: int, window: int, side: int, groups: int = 1) -> Any:
    """Return QLinearConv on images of any number."""
    draw = generator(side)
    initializers = {
        "xs": SCALE,
        "xz": POINT,
        "w": draw.integers(-127, 128, (outer, inner // groups, window, window)).astype(np.int8),
        "ws": np.full(outer, WEIGHT_SCALE),
        "wz": np.zeros(outer, np.int8),
        "ys": np.float32(0.5),
        "yz": RESULT_POINT,
        "b": draw.integers(-1000, 1000, outer).astype(np.int32),
    }
    pads = [window // 2] * 4
    node = helper.make_node("QLinearConv", ["x", *initializers], ["y"], pads=pads, group=groups)
    return file_of([node], ("uint8", ["n", inner, side, side]), "uint8", initializers)


def product(form: str, width: int = 768) -> Any:
    """Return MatMulInteger, QLinearMatMul or MatMul between quantizations, or behind a dynamic one, of any rows."""
    draw, node = generator(width), helper.make_node
    weights = draw.integers(-127, 128, (width, width)).astype(np.int8)
    ends = {"ys": np.float32(0.5), "yz": RESULT_POINT}
    shape: list[Any] = ["n", width]
    initializers: dict[str, Any] = {
        "xs": SCALE,
        "xz": POINT,
        "w": weights,
        "ws": WEIGHT_SCALE,
        "wz": np.int8(0),
        **ends,
    }
    if form == "MatMulInteger":
        nodes, initializers = [node(form, ["x", "w", "xz"], ["y"])], {"w": weights, "xz": POINT}
        return file_of(nodes, ("uint8", shape), "int32", initializers)
    if form == "QLinearMatMul":
        nodes = [node(form, ["x", *initializers], ["y"])]
        return file_of(nodes, ("uint8", shape), "uint8", initializers)
    if form == "QDQ MatMul":
        nodes = [
            node("DequantizeLinear", ["x", "xs", "xz"], ["xf"]),
            node("DequantizeLinear", ["w", "ws", "wz"], ["wf"]),
            node("MatMul", ["xf", "wf"], ["c"]),
            node("QuantizeLinear", ["c", "ys", "yz"], ["y"]),
        ]
        return file_of(nodes, ("uint8", shape), "uint8", initializers)
    nodes = [
        node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        node("MatMulInteger", ["q", "w", "z"], ["m"]),
        node("Cast", ["m"], ["f"], to=TensorProto.FLOAT),
        node("Mul", ["s", "ws"], ["sw"]),
        node("Mul", ["f", "sw"], ["p"]),
        node("Add", ["p", "b"], ["y"]),
    ]
    initializers = {"w": weights, "ws": WEIGHT_SCALE, "b": draw.standard_normal(width, np.float32)}
    return file_of(nodes, ("float32", shape), "float32", initializers)


def of_bits(bits: int, inner: int, columns: int, block: int, floats: bool = False) -> Any:
    """Return MatMulNBits of any rows; or a product of the floats that its weights stand for."""
    draw, blocks = generator(bits), inner // block
    packed = draw.integers(0, 256, (columns, blocks, block * bits // 8)).astype(np.uint8)
    scales = draw.uniform(0.001, 0.002, (columns, blocks)).astype(np.float32)
    shape: list[Any] = ["n", inner]
    if floats:
        whole = packed if bits == 8 else np.stack((packed & 15, packed >> 4), -1)
        real = (whole.reshape(columns, blocks, block) - 2.0 ** (bits - 1)) * scales[..., None]
        weights = np.ascontiguousarray(real.reshape(columns, inner).T, np.float32)
        nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
        return file_of(nodes, ("float32", shape), "float32", {"w": weights})
    options = {"K": inner, "N": columns, "bits": bits, "block_size": block}
    node = helper.make_node(
        "MatMulNBits", ["x", "w", "s"], ["y"], domain="com.microsoft", **options
    )
    return file_of([node], ("float32", shape), "float32", {"w": packed, "s": scales})


def network(form: str, types: str, by_channel: bool) -> Any:
    """Return a network that onnxruntime quantized; activations and weights by `types`, such as u8s8."""
    from onnxruntime import quantization

    class Images(quantization.CalibrationDataReader):
        """Some images, once."""

        def __init__(self) -> None:
            feeds = (generator(n).standard_normal((1, 3, 32, 32), np.float32) for n in range(4))
            self.feeds = iter([{"x": one} for one in feeds])

        def get_next(self) -> Any:
            """Return the next one; None after the last."""
            return next(self.feeds, None)

    names = {"u8": quantization.QuantType.QUInt8, "s8": quantization.QuantType.QInt8}
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in ("float.onnx", "ready.onnx", "bytes.onnx")]
        onnx.save(_network(), paths[0])
        quantization.quant_pre_process(str(paths[0]), str(paths[1]))
        quantization.quantize_static(
            *map(str, paths[1:]),
            Images(),
            quant_format=quantization.QuantFormat[form],
            per_channel=by_channel,
            activation_type=names[types[:2]],
            weight_type=names[types[2:]],
        )
        return onnx.load(paths[2])


def _network(channels: int = 16, side: int = 32) -> Any:
    """Return convolutions, a depthwise one, and what stands between them in networks that find things in images."""
    draw, node = generator(1), helper.make_node
    wide = 2 * channels

    def weights(*shape: int) -> Array:
        values: Array = draw.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
        return values.astype(np.float32)

    initializers = {
        "w1": weights(channels, 3, 3, 3),
        "b1": weights(channels),
        "w2": weights(wide, channels, 3, 3),
        "b2": weights(wide),
        "w3": weights(wide, 1, 3, 3),
        "b3": weights(wide),
        "w4": weights(channels, wide, 1, 1),
        "b4": weights(channels),
        "w5": weights(wide, 3 * channels, 3, 3),
        "b5": weights(wide),
        "w6": weights(10, wide),
        "b6": weights(10),
        "scales": np.array([1, 1, 2, 2], np.float32),
    }
    nearest = {
        "mode": "nearest",
        "coordinate_transformation_mode": "asymmetric",
        "nearest_mode": "floor",
    }
    nodes = [
        node("Conv", ["x", "w1", "b1"], ["c1"], pads=[1] * 4, strides=[2, 2]),
        node("Relu", ["c1"], ["r1"]),
        node("MaxPool", ["r1"], ["p1"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["p1", "w2", "b2"], ["c2"], pads=[1] * 4),
        node("Relu", ["c2"], ["r2"]),
        node("Conv", ["r2", "w3", "b3"], ["c3"], pads=[1] * 4, group=wide),
        node("Sigmoid", ["c3"], ["gate"]),
        node("Mul", ["c3", "gate"], ["silu"]),
        node("Add", ["silu", "r2"], ["sum"]),
        node("Conv", ["sum", "w4", "b4"], ["c4"]),
        node("Resize", ["c4", "", "scales"], ["u4"], **nearest),
        node("Resize", ["r2", "", "scales"], ["u2"], **nearest),
        node("Concat", ["u4", "u2"], ["both"], axis=1),
        node("Conv", ["both", "w5", "b5"], ["c5"], pads=[1] * 4),
        node("LeakyRelu", ["c5"], ["l5"], alpha=0.1),
        node("AveragePool", ["l5"], ["a5"], kernel_shape=[2, 2], strides=[2, 2]),
        node("GlobalAveragePool", ["a5"], ["mean"]),
        node("Flatten", ["mean"], ["flat"]),
        node("Gemm", ["flat", "w6", "b6"], ["y"], transB=1),
    ]
    model = file_of(nodes, ("float32", ["n", 3, side, side]), "float32", initializers)
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 10]))
    return model
