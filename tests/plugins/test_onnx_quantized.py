"""Products of bytes: by the specification, as onnxruntime's quantizer writes them into files, and by operators of onnxruntime."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import slow

import offcut as oc

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402  (where it is installed)
from onnx.reference import ReferenceEvaluator  # noqa: E402

from offcut.graph.passes import run_passes  # noqa: E402
from offcut.plugins.onnx.import_model import import_proto  # noqa: E402
from tests.agree import agree, computed, of_peer  # noqa: E402
from tests.facade import interpret_graph  # noqa: E402

Array = np.ndarray[Any, Any]
TYPES = {"uint8": TensorProto.UINT8, "int8": TensorProto.INT8, "int32": TensorProto.INT32}
BYTES = {"uint8": (0, 256), "int8": (-128, 128)}


def drawn(dtype: str, *shape: int) -> Array:
    """Bytes, the ends of the type among them."""
    low, high = BYTES[dtype]
    array = np.random.default_rng(len(shape)).integers(low, high, shape)
    array.flat[:2] = low, high - 1
    return array.astype(dtype)


def floats(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def model(node: Any, x: tuple[str, list[Any]], y: tuple[str, list[Any]], **known: Any) -> Any:
    given = helper.make_tensor_value_info("x", TYPES[x[0]], x[1])
    result = helper.make_tensor_value_info("y", TYPES[y[0]], y[1])
    arrays = [numpy_helper.from_array(np.asarray(one), name) for name, one in known.items()]
    graph = helper.make_graph([node], "bytes", [given], [result], arrays)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


def check_products(made: Any, *ops: str, count: int = 1) -> None:
    """Operators of these names read bytes alone."""
    graph = made.model.bound.graph
    products = [node for node in graph.nodes if node.op in ops]
    assert len(products) >= count
    for node in products:
        assert {graph.values[name].dtype for name in node.operands[:2]} <= {"int8", "uint8"}


@pytest.mark.parametrize(
    ("a", "b", "kind"),
    [
        *(("uint8", "int8", "none"), ("int8", "int8", "columns"), ("uint8", "int8", "rows")),
        *(slow("int8", "uint8", "one"), slow("uint8", "uint8", "columns"), slow("int8", "uint8", "rows")),
    ],
)  # fmt: skip
def test_matrices_with_zero_points_are_products_of_bytes(a: str, b: str, kind: str) -> None:
    known: dict[str, Any] = {"w": drawn(b, 19, 9)}
    if kind != "none":
        ends = np.resize(np.array(BYTES[b]) - [0, 1], 9) if kind == "columns" else BYTES[b][0] + 7
        known |= {"s": np.array(BYTES[a][1] - 1, a), "t": np.array(ends, b)}
    rows: list[Any] = ["n", 19]
    if kind == "rows":
        known["s"], rows = np.array([BYTES[a][0], 3, 5, 100, 7], a), [5, 19]
    node = helper.make_node("MatMulInteger", ["x", *known], ["y"])
    made = oc.from_onnx(model(node, (a, rows), ("int32", [rows[0], 9]), **known))
    s, t = (np.asarray(known.get(name, 0), np.int64) for name in "st")
    s = s[:, None] if kind == "rows" else s
    for n in (5,) if kind == "rows" else (1, 7, 33):
        x = drawn(a, n, 19)
        product = (x.astype(np.int64) - s) @ (known["w"].astype(np.int64) - t)
        np.testing.assert_array_equal(made({"x": x})["y"], product.astype(np.int32))
    check_products(made, "dense")


@pytest.mark.parametrize(
    ("dtype", "pads", "groups", "size", "zero"),
    [
        *(("uint8", 1, 1, 3, 7), ("int8", 1, 2, 3, 0)),
        *(slow("int8", 0, 1, 1, 7), slow("int8", 1, 1, 3, 7), slow("uint8", 1, 2, 3, 7)),
    ],
)  # fmt: skip
def test_convolutions_with_zero_points_are_products_of_bytes(
    dtype: str, pads: int, groups: int, size: int, zero: int
) -> None:
    weights = drawn("int8", 6, 8 // groups, size, size)
    known = {"w": weights, "s": np.array(BYTES[dtype][0] + zero, dtype)}
    node = helper.make_node("ConvInteger", ["x", "w", "s"], ["y"], pads=[pads] * 4, group=groups)
    proto = model(node, (dtype, ["n", 8, "h", 5]), ("int32", ["n", 6, "p", "q"]), **known)
    made, reference = oc.from_onnx(proto), ReferenceEvaluator(proto)
    for x in (drawn(dtype, 1, 8, 4, 5), drawn(dtype, 3, 8, 7, 5)):
        np.testing.assert_array_equal(made({"x": x})["y"], reference.run(None, {"x": x})[0])
    check_products(made, "conv2d")


@pytest.mark.parametrize(
    ("dtype", "groups", "other"), [("uint8", 1, 0), slow("int8", 1, 9), slow("int8", 2, 0)]
)
def test_a_convolution_whose_zero_point_calls_give_is_one_of_bytes(
    dtype: str, groups: int, other: int
) -> None:
    """As behind DynamicQuantizeLinear: what surrounds the image is that zero point."""
    known = {"w": drawn("int8", 6, 8 // groups, 3, 3), "t": np.array(other, "int8")}
    node = helper.make_node(
        "ConvInteger", ["x", "w", "s", "t"], ["y"], pads=[1, 0, 2, 1], group=groups
    )
    proto = model(node, (dtype, ["n", 8, "h", 5]), ("int32", ["n", 6, "p", "q"]), **known)
    proto.graph.input.append(helper.make_tensor_value_info("s", TYPES[dtype], []))
    made, reference = oc.from_onnx(proto), ReferenceEvaluator(proto)
    for zero in (*BYTES[dtype], 7):
        point = np.array(min(zero, BYTES[dtype][1] - 1), dtype)
        feed = {"x": drawn(dtype, 3, 8, 7, 5), "s": point}
        np.testing.assert_array_equal(made(feed)["y"], reference.run(None, feed)[0])
    check_products(made, "conv2d")


def test_a_channel_that_is_summed_by_itself_and_a_quantised_convolution() -> None:
    known: dict[str, Any] = {"w": drawn("int8", 8, 1, 3, 3), "xz": np.array(5, "uint8")}
    node = helper.make_node("ConvInteger", ["x", "w", "xz"], ["y"], pads=[1] * 4, group=8)
    proto = model(node, ("uint8", ["n", 8, 6, 6]), ("int32", ["n", 8, 6, 6]), **known)
    x = drawn("uint8", 2, 8, 6, 6)
    (wanted,) = ReferenceEvaluator(proto).run(None, {"x": x})
    np.testing.assert_array_equal(oc.from_onnx(proto)({"x": x})["y"], wanted)
    known = {
        "xs": np.float32(0.02), "xz": np.array(7, "uint8"),
        "w": drawn("int8", 6, 8, 3, 3), "ws": np.linspace(0.01, 0.02, 6, dtype="f4"), "wz": np.zeros(6, "int8"),
        "ys": np.float32(0.9), "yz": np.array(11, "uint8"), "b": np.arange(-300, 300, 100, dtype="int32"),
    }  # fmt: skip
    node = helper.make_node("QLinearConv", ["x", *known], ["y"], pads=[1] * 4)
    proto = model(node, ("uint8", ["n", 8, "h", 5]), ("uint8", ["n", 6, "p", "q"]), **known)
    x = drawn("uint8", 3, 8, 7, 5)
    (wanted,) = ReferenceEvaluator(proto).run(None, {"x": x})
    found = oc.from_onnx(proto)({"x": x})["y"]
    assert np.abs(found.astype(int) - wanted.astype(int)).max() <= 1


@pytest.mark.parametrize(
    ("a", "b", "s"),
    [("uint8", "int8", 255), ("int8", "uint8", -128), slow("uint8", "uint8", 1), slow("int8", "int8", 127)],
)  # fmt: skip
def test_all_pairs_of_bytes_with_ends_of_zero_points(a: str, b: str, s: int) -> None:
    x, w = (np.arange(*BYTES[dtype]).astype(dtype) for dtype in (a, b))
    known = {"w": w[None, :], "s": np.array(s, a), "t": np.array(BYTES[b][0], b)}
    node = helper.make_node("MatMulInteger", ["x", *known], ["y"])
    proto = model(node, (a, [256, 1]), ("int32", [256, 256]), **known)
    wanted = np.multiply.outer(x.astype(int) - s, w.astype(int) - BYTES[b][0])
    np.testing.assert_array_equal(oc.from_onnx(proto)({"x": x[:, None]})["y"], wanted)


@pytest.mark.parametrize("opset", [13, 17, 21])
def test_weights_of_small_integers_become_floats_in_every_operator_set(opset: int) -> None:
    """The scale has one element, and the axis that nobody means is beyond the bias."""
    made = onnx.parser.parse_model(f"""<ir_version: 9, opset_import: ["" : {opset}]> g (float[n, 4] x) => (float[n, 3] y) {{
        b = DequantizeLinear (c, s, z)  k = DequantizeLinear <axis = 0> (w, scales, zeros)
        y = Gemm <transB = 1> (x, k, b) }}""")
    rng = np.random.default_rng(0)
    w, c = rng.integers(-128, 128, (3, 4)), rng.integers(-999, 999, 3)
    scales, zeros = np.array([0.5, 0.25, 2], np.float32), np.array([1, -2, 3], np.int8)
    given = {"w": w.astype(np.int8), "c": c.astype(np.int32), "scales": scales, "zeros": zeros}
    given |= {"s": np.float32([0.125]), "z": np.int32([0])}
    for name, array in given.items():
        made.graph.initializer.append(numpy_helper.from_array(array, name))
    x = floats(0, 5, 4)
    weights = (w - zeros[:, None]) * scales[:, None].astype(float)
    agree(interpreted(made, {"x": x})["y"], computed(lambda x, w, c: x @ w.T + c * 0.125, x, weights, c))  # fmt: skip


def interpreted(proto: Any, feed: dict[str, Any]) -> dict[str, Any]:
    made = import_proto(proto, {}, {})
    return made.results_by_name(interpret_graph(made.bound, made.arrays_by_name(feed)))


# Files that onnxruntime's own quantizer writes: results are onnxruntime's but for a step of the last quantization.


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


@pytest.mark.parametrize(
    ("form", "types", "by_channel"),
    [("QDQ", "u8s8", True), ("QOperator", "s8s8", False), slow("QDQ", "u8u8", False), slow("QOperator", "u8s8", True)],
)  # fmt: skip
def test_a_file_of_the_quantizer(tmp_path: Path, form: str, types: str, by_channel: bool) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    from onnxruntime import quantization

    draw = np.random.default_rng(1)
    feeds = iter([{"x": draw.standard_normal((2, 3, 9, 8)).astype("f4")} for _ in range(3)])

    class Feeds(quantization.CalibrationDataReader):  # type: ignore[misc]
        def get_next(self) -> Any:
            return next(feeds, None)

    logging.disable(logging.WARNING)
    names = {"u8": quantization.QuantType.QUInt8, "s8": quantization.QuantType.QInt8}
    paths = [str(tmp_path / name) for name in ("float.onnx", "bytes.onnx")]
    onnx.save(network(), paths[0])
    quantization.quantize_static(
        *paths, Feeds(), quant_format=quantization.QuantFormat[form], per_channel=by_channel,
        activation_type=names[types[:2]], weight_type=names[types[2:]],
    )  # fmt: skip
    logging.disable(logging.NOTSET)
    made, peer = oc.from_onnx(paths[1]), onnxruntime.InferenceSession(paths[1])
    scales = [one for one in onnx.load(paths[1]).graph.initializer if one.name == "y_scale"]
    step = float(numpy_helper.to_array(scales[0]).item())
    for count in (1, 5):
        x = draw.standard_normal((count, 3, 9, 8)).astype("f4")
        assert np.abs(made({"x": x})["y"] - peer.run(None, {"x": x})[0]).max() <= 1.01 * step
    check_products(made, "conv2d", "dense", "matmul", count=4)
    weights = [array for array in made.model.bound.arrays.values() if array.size > 10]
    assert {array.itemsize for array in weights} == {1}


# Operators that onnxruntime's quantizer and optimizer write into files, against onnxruntime.


KNOWN: dict[str, Any] = {
    "s": np.float32(0.04), "z": np.uint8(120), "t": np.float32(0.07), "u": np.uint8(131),
    "r": np.float32(0.09), "v": np.uint8(117),
    "w": drawn("uint8", 5, 2, 8), "scales": np.abs(floats(2, 10)) + np.float32(0.1), "zeros": drawn("uint8", 5, 1),
    "i": drawn("uint8", 24, 5), "bias": floats(5, 5), "units": np.arange(5, dtype=np.int32) * 50,
    "m": floats(7, 5, 24), "row": floats(8, 24),
}  # fmt: skip


def contributed(inputs: str, outputs: str, node: str, **weights: Any) -> Any:
    """A model of one operator of onnxruntime."""
    results, _, call = node.partition(" = ")
    text = (
        f'<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]> g ({inputs}) => ({outputs})'
    )
    made = onnx.parser.parse_model(f"{text} {{ {results} = com.microsoft.{call} }}")
    wanted = set(made.graph.node[0].input) - {one.name for one in made.graph.input}
    for name, array in {**KNOWN, **weights}.items():
        if name in wanted:
            made.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
    return made


def exact(proto: Any, feed: dict[str, Any]) -> list[Any]:
    """What onnxruntime gives."""
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), options, ["CPUExecutionProvider"]
    )
    return list(session.run(None, feed))


@pytest.mark.parametrize(
    "node",
    [
        "QLinearAdd (x, s, z, k, t, u, r, v)",
        "QLinearMul (x, s, z, k, t, u, r, v)",
        "QLinearSigmoid (x, s, z, t, u)",
        "QLinearLeakyRelu <alpha = 0.25> (x, s, z, t, u)",
        "QLinearGlobalAveragePool (x, s, z, t, u)",
        "QLinearAveragePool <kernel_shape = [2, 2]> (x, s, z, t, u)",
        "QLinearSoftmax <axis = 1, opset = 13> (x, s, z, t, u)",
        "QLinearConcat <axis = 1> (r, v, x, s, z, k, t, u)",
    ],
)
def test_an_operator_between_small_integers_is_that_of_floats_rounded(node: str) -> None:
    inputs = ", ".join(f"uint8[n, 3, h, w] {name}" for name in ("x", "k") if f"{name}," in node)
    proto = contributed(inputs, "uint8[n, c, h, w] y", f"y = {node}")
    for n, h, w in ((1, 2, 2), (3, 5, 4)):
        draw = np.random.default_rng(n)
        feed = {one.name: draw.integers(0, 256, (n, 3, h, w)).astype("uint8") for one in proto.graph.input}  # fmt: skip
        made, (wanted,) = interpreted(proto, feed)["y"], exact(proto, feed)
        assert made.dtype == wanted.dtype
        off = np.abs(made.astype(int) - wanted)
        assert off.max() <= 1  # onnxruntime's tables and sums round once more
        assert np.mean(off > 0) <= 0.1


X8, X32 = "uint8[n, 24] x", "float[n, 24] x"
OF_BITS = "MatMulNBits <K = 24, N = 5, bits = 4, block_size = 16> (x, w, scales"


@pytest.mark.parametrize(
    ("inputs", "outputs", "node"),
    [
        (X8, "uint8[n, 5] y", "QGemm (x, s, z, i, t, u, units, r, v)"),
        (X8, "float[n, 5] y", "QGemm <alpha = 0.5> (x, s, z, i, t, u)"),
        (X8, "float[n, 5] y", "MatMulIntegerToFloat (x, i, s, t, z, u, bias)"),
        (X32, "float[n, 5] y", "DynamicQuantizeMatMul (x, i, t, u, bias)"),
        (X32, "float[n, 5] y", f"{OF_BITS})"),
        (X32, "float[n, 5] y", f"{OF_BITS}, zeros)"),
        (X32, "float[n, 5] y", "FusedMatMul <transB = 1, alpha = 0.5> (x, m)"),
        *((X32, "float[n, 24] y", f"{op} (x, row)") for op in ("BiasGelu", "FastGelu")),
        *((X32, "float[n, 24] y", f"{op} (x)") for op in ("QuickGelu", "Gelu")),
    ],
)
def test_an_operator_of_the_optimizer_gives_what_onnxruntime_gives(
    inputs: str, outputs: str, node: str
) -> None:
    proto = contributed(inputs, outputs, f"y = {node}")
    for n in (1, 7):
        feed = {"x": drawn("uint8", n, 24) if inputs == X8 else floats(n, n, 24)}
        made, (wanted,) = interpreted(proto, feed)["y"], exact(proto, feed)
        assert made.dtype == wanted.dtype
        agree(made, of_peer(wanted))


@pytest.mark.parametrize("op", ["SkipLayerNormalization", "SkipSimplifiedLayerNormalization"])
def test_the_norm_of_a_sum_gives_the_sum_too(op: str) -> None:
    ends = "float[b, n, 24] x, float[b, n, 24] k", "float[b, n, 24] y, float[b, n, 24] total"
    proto = contributed(*ends, f"y, , , total = {op} (x, k, row)")
    feed = {"x": floats(1, 2, 3, 24), "k": floats(2, 2, 3, 24)}
    made = oc.from_onnx(proto, threads=1)(feed)
    for name, wanted in zip(made, exact(proto, feed), strict=True):
        agree(made[name], of_peer(wanted))


def as_bytes(x: Any) -> tuple[Any, Any, Any]:
    """Return floats in uint8 by their least and their greatest element, with scale and zero point, as DynamicQuantizeLinear does."""
    low, high = min(x.min(), np.float32(0)), max(x.max(), np.float32(0))
    scale = (high - low) / np.float32(255) if high > low else np.float32(1)
    zero = np.clip(np.round(-low / scale), 0, 255).astype(np.int32)
    return np.clip(np.round(x / scale).astype(np.int32) + zero, 0, 255), scale, zero


def lstm_of_bytes(x: Any, h: Any, c: Any, w: Any, r: Any, bias: Any) -> tuple[Any, Any, Any]:
    """One direction of DynamicQuantizeLSTM in numpy: the input is quantized as a whole, the state at each step.

    w, r  integers less their zero points, (inner, gates * hidden), and a scale for each column
    """

    def product(floats: Any, weights: Any) -> Any:
        data, scale, zero = as_bytes(floats)
        return ((data - zero) @ weights[0]).astype(np.float32) * (scale * weights[1])

    sums, states = product(x.reshape(-1, x.shape[2]), w).reshape(*x.shape[:2], -1) + bias, []
    for row in sums:
        i, o, f, g = np.split(row + product(h, r), 4, 1)
        i, o, f = (1 / (1 + np.exp(-one.astype("f8"))) for one in (i, o, f))
        c = (f * c + i * np.tanh(g)).astype(np.float32)
        h = (o * np.tanh(c)).astype(np.float32)
        states.append(h)
    return np.stack(states), h, c


@pytest.mark.parametrize(
    ("dtype", "per_row", "directions"), [(np.int8, True, 2), (np.uint8, False, 1), slow(np.int8, False, 1)]
)  # fmt: skip
def test_a_recurrence_of_8_bits_multiplies_bytes_as_onnxruntime_does(
    dtype: Any, per_row: bool, directions: int
) -> None:
    draw, d = np.random.default_rng(0), directions
    rows = (d, 24) if per_row else (d,)
    held: dict[str, Any] = {"b": floats(5, d, 48) / 10}
    less: dict[str, Any] = {}
    for name, inner in (("w", 5), ("r", 6)):
        low = -100 if dtype is np.int8 else 20
        held[name] = draw.integers(low, low + 200, (d, inner, 24)).astype(dtype)
        held[f"{name}s"] = (draw.random(rows) / 400 + 0.001).astype(np.float32)
        zero = held[f"{name}z"] = np.full(
            rows, 0 if per_row and low < 0 else low + draw.integers(96, 105), dtype
        )
        wide = zero.astype(np.int32).reshape(d, 1, -1)
        less[name] = held[name] - wide, np.broadcast_to(held[f"{name}s"].reshape(d, -1), (d, 24))
    inputs = f"float[s, n, 5] x, float[{d}, n, 6] h, float[{d}, n, 6] c"
    outputs = f"float[s, {d}, n, 6] y, float[{d}, n, 6] hs, float[{d}, n, 6] cs"
    how = f'<hidden_size = 6, direction = "{"bidirectional" if d == 2 else "forward"}">'
    node = f"y, hs, cs = DynamicQuantizeLSTM {how} (x, w, r, b, , h, c, , ws, wz, rs, rz)"
    proto = contributed(inputs, outputs, node, **held)
    ours = oc.from_onnx(proto, threads=1)
    for s, n in ((1, 1), (7, 3)):
        feed = {"x": floats(1, s, n, 5), "h": floats(2, d, n, 6), "c": floats(3, d, n, 6)}
        expected = []
        for k in range(d):
            bias = held["b"][k, :24] + held["b"][k, 24:]
            weights = [(less[name][0][k], less[name][1][k]) for name in "wr"]
            x = feed["x"][::-1] if k else feed["x"]
            y, h, c = lstm_of_bytes(x, feed["h"][k], feed["c"][k], *weights, bias)
            expected.append((y[::-1] if k else y, h, c))
        y, h, c = zip(*expected, strict=True)
        both = (np.stack(y, 1), np.stack(h), np.stack(c))
        for (name, made), one, peer in zip(
            ours(feed).items(), both, exact(proto, feed), strict=True
        ):
            agree(made, np.float64(one), terms=4.0, units=16, what=name)
            agree(made, np.float64(peer), terms=4.0, units=64, what=name)


def test_products_of_a_recurrence_of_8_bits_are_of_bytes() -> None:
    held = {"w": drawn("uint8", 1, 16, 64), "r": drawn("uint8", 1, 16, 64)}
    held |= {"ws": np.full(1, 0.01, np.float32), "wz": np.full(1, 128, np.uint8)}
    node = "y = DynamicQuantizeLSTM <hidden_size = 16> (x, w, r, , , , , , ws, wz, ws, wz)"
    proto = contributed("float[s, n, 16] x", "float[s, 1, n, 16] y", node, **held)
    graph = run_passes(import_proto(proto, {}, {}).bound).graph
    (layer,) = (one for one in graph.nodes if one.op == "lstm")
    (products,) = (one for one in graph.nodes if one.op in ("dense", "matmul"))
    assert graph.values[layer.operands[1]].dtype == "int8"
    assert {graph.values[name].dtype for name in products.operands[:2]} == {"uint8", "int8"}


def test_what_of_it_is_not_ours_is_refused_by_its_name() -> None:
    images = "uint8[n, h, w, 3] x", "uint8[n, a, b, 3] y"
    given = "float[n, 24] x, uint8[5, 2, 8] w, float[10] scales"
    for proto, because in (
        (contributed(X32, "float[n, 24] y", "y = Inverse (x)"), "of onnxruntime is not supported"),
        (contributed(*images, "y = QLinearGlobalAveragePool <channels_last = 1> (x, s, z, t, u)"), "channels_last=1"),
        (contributed(given, "float[n, 5] y", f"y = {OF_BITS})"), "weights of 4 bits, or that calls give"),
    ):  # fmt: skip
        with pytest.raises(oc.DescribeError, match=because):
            oc.from_onnx(proto)


@pytest.mark.parametrize("dtype", [np.uint16, slow(np.int16), slow(np.uint8)])
def test_numbers_of_16_bits_are_quantized_as_those_of_8(dtype: Any) -> None:
    """As `quantize_static(…, activation_type=QuantType.QUInt16)` writes it into files of old operator sets."""
    proto = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]> g (float[n, 4] x) => (float[n, 4] y)
        { q = com.microsoft.QuantizeLinear (x, s, z)  y = com.microsoft.DequantizeLinear (q, s, z) }""")
    for name, array in (("s", np.float32(0.01)), ("z", dtype(120))):
        proto.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
    feed = {"x": 300 * floats(3, 3, 4)}
    np.testing.assert_array_equal(oc.from_onnx(proto)(feed)["y"], exact(proto, feed)[0])


GROUPED = {
    "after a cache": (
        "float[b, s, 32] q, float[b, s, 16] k, float[b, s, 16] v, float[b, 1, p, 16] pk, float[b, 1, p, 16] pv, int32[b] last, int32[1] total",
        "GroupQueryAttention <num_heads = 2, kv_num_heads = 1, do_rotary = 1> (q, k, v, pk, pv, last, total, cos, sin)",
    ),
    "all in one, in a window": (
        "float[b, s, 64] q, int32[b] last, int32[1] total",
        "GroupQueryAttention <num_heads = 4, kv_num_heads = 2, local_window_size = 3, scale = 0.3> (q, , , , , last, total)",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("which", GROUPED)
def test_attention_of_grouped_heads_is_that_of_onnxruntime(which: str) -> None:
    inputs, call = GROUPED[which]
    angles = np.outer(np.arange(64), np.geomspace(1.0, 0.01, 8))
    turns = {"cos": np.cos(angles).astype(np.float32), "sin": np.sin(angles).astype(np.float32)}
    outputs = "float[b, s, 32] y, float[b, g, t, e] keys, float[b, g, t, e] values"
    proto = contributed(inputs, outputs, f"y, keys, values = {call}", **turns)
    ours = oc.from_onnx(proto)
    for b, s, past in ((1, 1, 5), (2, 1, 16), (1, 7, 3), (1, 15, 1)):
        p = past if which == "after a cache" else 0
        widths = (32, 16, 16) if p else (64,)
        feed: dict[str, Any] = {n: floats(s, b, s, w) for n, w in zip("qkv", widths, strict=False)}
        if p:
            feed |= {name: floats(p, b, 1, p, 16) for name in ("pk", "pv")}
        feed |= {"last": np.full(b, p + s - 1, np.int32), "total": np.array([p + s], np.int32)}
        for found, wanted in zip(ours(feed).values(), exact(proto, feed), strict=True):
            agree(found, of_peer(wanted))
    feed["last"][-1] += 1
    with pytest.raises(oc.CallError):
        ours(feed)
