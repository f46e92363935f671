"""Quantized files: convolutions and products of bytes, in each format that onnxruntime's tools write, beside onnxruntime.

    python bench/integers.py            # two minutes
    python bench/integers.py --quick    # a row of each table

One thread, one file for both. What is timed is a call from Python, as a user makes it. The network is quantized by
`onnxruntime.quantization`, in each format. Weights of 8 and 4 bits are those of `MatMulNBits`, one row of an activation.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import quantization

import offcut as oc
from offcut.experiment.bench import Group, Options, read_options, run
from offcut.experiment.contraction import Array
from offcut.experiment.peers import Way
from offcut.experiment.reference import Reference
from offcut.experiment.table import Asked

ASKED = Asked(mean=1.1, worst=1.0)
TYPES = {"uint8": TensorProto.UINT8, "float32": TensorProto.FLOAT, "int32": TensorProto.INT32}
POINT, RESULT_POINT = np.uint8(118), np.uint8(120)
SCALE, WEIGHT_SCALE = np.float32(0.02), np.float32(0.01)

Feed = Mapping[str, Array]


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


@dataclass(frozen=True)
class Case:
    """A file and what it is fed; `plain` is a file of floats that it is compared with, too.

    step  by how much results may differ: one step of the last quantization
    """

    file: Any
    feed: Feed
    step: float = 1.0
    plain: Any = None
    flop: int = 0
    kind: str = "int8"

    @property
    def sizes(self) -> Mapping[str, int]:
        """None has a name."""
        return {}

    @property
    def moved(self) -> int:
        """Bytes of the input, once."""
        return sum(one.nbytes for one in self.feed.values())

    @cached_property
    def exact(self) -> Array:
        """What onnxruntime gives with nothing optimized: each node by itself."""
        level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        result = session(self.file, level).run(None, dict(self.feed))[0]
        array: Array = np.asarray(result, np.float64)
        return array

    def reference(self) -> Reference:
        """The result, with what it may be off."""
        return Reference(self.exact, np.full_like(self.exact, self.step * 1.0001))


def session(file: Any, level: Any = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL) -> Any:
    """Return a session on one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level, options.graph_optimization_level = 4, level
    return onnxruntime.InferenceSession(file.SerializeToString(), options, ["CPUExecutionProvider"])


def convolution(inner: int, outer: int, window: int, side: int, groups: int = 1) -> Case:
    """QLinearConv."""
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
    file = file_of([node], ("uint8", ["n", inner, side, side]), "uint8", initializers)
    image = draw.integers(0, 256, (1, inner, side, side)).astype(np.uint8)
    return Case(file, {"x": image}, flop=2 * outer * inner // groups * (window * side) ** 2)


def product(form: str, rows: int, width: int = 768) -> Case:
    """MatMulInteger, QLinearMatMul or MatMul between quantizations, or behind a dynamic one."""
    draw, node, flop = generator(rows), helper.make_node, 2 * rows * width**2
    weights = draw.integers(-127, 128, (width, width)).astype(np.int8)
    bytes_ = draw.integers(0, 256, (rows, width)).astype(np.uint8)
    ends = {"ys": np.float32(0.5), "yz": RESULT_POINT}
    initializers: dict[str, Any] = {
        "xs": SCALE,
        "xz": POINT,
        "w": weights,
        "ws": WEIGHT_SCALE,
        "wz": np.int8(0),
        **ends,
    }
    shape: list[Any] = ["n", width]
    if form == "MatMulInteger":
        nodes, initializers = [node(form, ["x", "w", "xz"], ["y"])], {"w": weights, "xz": POINT}
        model = file_of(nodes, ("uint8", shape), "int32", initializers)
        return Case(model, {"x": bytes_}, 0.0, flop=flop)
    if form == "QLinearMatMul":
        nodes = [node(form, ["x", *initializers], ["y"])]
        model = file_of(nodes, ("uint8", shape), "uint8", initializers)
        return Case(model, {"x": bytes_}, flop=flop)
    if form == "QDQ MatMul":
        nodes = [
            node("DequantizeLinear", ["x", "xs", "xz"], ["xf"]),
            node("DequantizeLinear", ["w", "ws", "wz"], ["wf"]),
            node("MatMul", ["xf", "wf"], ["c"]),
            node("QuantizeLinear", ["c", "ys", "yz"], ["y"]),
        ]
        model = file_of(nodes, ("uint8", shape), "uint8", initializers)
        return Case(model, {"x": bytes_}, flop=flop)
    nodes = [
        node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        node("MatMulInteger", ["q", "w", "z"], ["m"]),
        node("Cast", ["m"], ["f"], to=TensorProto.FLOAT),
        node("Mul", ["s", "ws"], ["sw"]),
        node("Mul", ["f", "sw"], ["p"]),
        node("Add", ["p", "b"], ["y"]),
    ]
    initializers = {"w": weights, "ws": WEIGHT_SCALE, "b": draw.standard_normal(width, np.float32)}
    x = draw.standard_normal((rows, width), np.float32)
    model = file_of(nodes, ("float32", shape), "float32", initializers)
    return Case(model, {"x": x}, 1e-2, flop=flop)


def network(channels: int = 16, side: int = 32) -> Any:
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


class Images(quantization.CalibrationDataReader):  # type: ignore[misc]
    """Some images, once."""

    def __init__(self, feeds: list[Feed]) -> None:
        self.feeds = iter(feeds)

    def get_next(self) -> Any:
        """Return the next one; None after the last."""
        return next(self.feeds, None)


def quantized(form: str, types: str, by_channel: bool) -> Case:
    """The network, quantized by onnxruntime; activations and weights by `types`, such as u8s8."""
    names = {"u8": quantization.QuantType.QUInt8, "s8": quantization.QuantType.QInt8}
    feeds: list[Feed] = [
        {"x": generator(n).standard_normal((1, 3, 32, 32), np.float32)} for n in range(4)
    ]
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in ("float.onnx", "ready.onnx", "bytes.onnx")]
        onnx.save(network(), paths[0])
        quantization.quant_pre_process(str(paths[0]), str(paths[1]))
        quantization.quantize_static(
            *map(str, paths[1:]), Images(feeds),
            quant_format=quantization.QuantFormat[form], per_channel=by_channel,
            activation_type=names[types[:2]], weight_type=names[types[2:]],
        )  # fmt: skip
        model = onnx.load(paths[2])
    return Case(model, feeds[0], 0.06)


def of_bits(bits: int, inner: int, columns: int, block: int) -> Case:
    """MatMulNBits, beside a product of as many floats."""
    draw, blocks = generator(bits), inner // block
    packed = draw.integers(0, 256, (columns, blocks, block * bits // 8)).astype(np.uint8)
    scales = draw.uniform(0.001, 0.002, (columns, blocks)).astype(np.float32)
    initializers = {"w": packed, "s": scales}
    options = {"K": inner, "N": columns, "bits": bits, "block_size": block}
    node = helper.make_node(
        "MatMulNBits", ["x", "w", "s"], ["y"], domain="com.microsoft", **options
    )
    shape: list[Any] = ["n", inner]
    whole = packed if bits == 8 else np.stack((packed & 15, packed >> 4), -1)
    real = (whole.reshape(columns, blocks, block) - 2.0 ** (bits - 1)) * scales[..., None]
    floats = {"w": np.ascontiguousarray(real.reshape(columns, inner).T, np.float32)}
    plain = file_of(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], ("float32", shape), "float32", floats
    )
    x = draw.standard_normal((1, inner), np.float32)
    model = file_of([node], ("float32", shape), "float32", initializers)
    return Case(model, {"x": x}, 1e-3, plain, 2 * inner * columns)


TABLES: dict[str, dict[str, Callable[[], Case]]] = {
    "QLinearConv": {
        "64→64 3×3 @20²": partial(convolution, 64, 64, 3, 20),
        "32→64 3×3 @56²": partial(convolution, 32, 64, 3, 56),
        "16→16 3×3 @80²": partial(convolution, 16, 16, 3, 80),
        "48→32 1×1 @40²": partial(convolution, 48, 32, 1, 40),
        "64 depthwise 3×3 @40²": partial(convolution, 64, 64, 3, 40, 64),
        "3→16 3×3 @160²": partial(convolution, 3, 16, 3, 160),
    },
    "products 768²": {
        f"{form}, n = {rows}": partial(product, form, rows)
        for form in ("MatMulInteger", "QLinearMatMul", "QDQ MatMul", "dynamic")
        for rows in (7, 64)
    },
    "a network with glue, by quantize_static": {
        f"{form} {types}{' by channel' if by_channel else ''}": partial(
            quantized, form, types, by_channel
        )
        for form in ("QDQ", "QOperator")
        for types, by_channel in (("u8s8", False), ("u8s8", True), ("s8s8", True), ("u8u8", False))
    },
    "MatMulNBits, one row": {
        "4 bits, 2048×8192, blocks of 32": partial(of_bits, 4, 2048, 8192, 32),
        "8 bits, 2048×8192, blocks of 128": partial(of_bits, 8, 2048, 8192, 128),
    },
}
QUICK = 1
"""Rows of each table."""


@dataclass(frozen=True)
class By:
    """A contender, by what makes a call of a case; None: it has none."""

    name: str
    make: Callable[[Case], Callable[[], Any] | None]

    def ways(self, case: Case) -> tuple[Way, ...]:
        """Return the one way, or none."""
        call = self.make(case)
        return () if call is None else (Way(self.name, call, np.asarray),)


def by_offcut(case: Case) -> Callable[[], Any]:
    """The file as it is."""
    model = oc.from_onnx(case.file)
    return lambda: next(iter(model(case.feed).values()))


def by_floats(case: Case) -> Callable[[], Any] | None:
    """The file of floats, by offcut."""
    if case.plain is None:
        return None
    model = oc.from_onnx(case.plain)
    return lambda: next(iter(model(case.feed).values()))


def by_onnxruntime(case: Case) -> Callable[[], Any]:
    """The same file."""
    runtime = session(case.file)
    return lambda: runtime.run(None, dict(case.feed))[0]


def groups(quick: bool) -> Iterator[Group]:
    """Return the tables."""
    for title, cases in TABLES.items():
        yield Group(title, dict([*cases.items()][: QUICK if quick else None]))


def main() -> None:
    """Measure, print, write."""
    options: Options = read_options(__doc__ or "", without=("slow", "threads"))

    def own(_: Group) -> list[Any]:
        contenders = [By("offcut", by_offcut), By("in float32", by_floats)]
        return [*contenders, By("onnxruntime", by_onnxruntime)]

    status, _ = run("integers", groups(options.quick), ASKED, options, own=own, rivals=1, peers=())
    raise SystemExit(status)


if __name__ == "__main__":
    main()
