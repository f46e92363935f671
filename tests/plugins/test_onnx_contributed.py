"""Operators that onnxruntime's quantizer and optimizer write into files, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the extra onnx is not installed")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

import onnx
import onnxruntime
from onnx import numpy_helper

import offcut as oc
from offcut.graph.passes import run_passes
from offcut.plugins.onnx.import_model import import_proto
from tests.agree import agree, of_peer
from tests.facade import interpret_graph

HEAD = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]> '
SCALES: dict[str, Any] = {
    "s": np.float32(0.04),
    "z": np.uint8(120),
    "t": np.float32(0.07),
    "u": np.uint8(131),
    "r": np.float32(0.09),
    "v": np.uint8(117),
}


def model(inputs: str, outputs: str, node: str, **weights: Any) -> Any:
    """A model of one operator of onnxruntime."""
    results, _, call = node.partition(" = ")
    text = f"{HEAD} g ({inputs}) => ({outputs}) {{ {results} = com.microsoft.{call} }}"
    made = onnx.parser.parse_model(text)
    wanted = set(made.graph.node[0].input) - {one.name for one in made.graph.input}
    for name, array in {**SCALES, **weights}.items():
        if name in wanted:
            made.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
    return made


def bytes_of(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8)


def floats(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def exact(proto: Any, feed: dict[str, Any]) -> list[Any]:
    """What onnxruntime gives."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), options, ["CPUExecutionProvider"]
    )
    return list(session.run(None, feed))


IMAGES = "uint8[n, 3, h, w] x", "uint8[n, c, a, b] y"
PAIR = "uint8[n, 3, h, w] x, uint8[n, 3, h, w] k", "uint8[n, 3, h, w] y"


@pytest.mark.parametrize(
    ("ends", "node"),
    [
        (PAIR, "y = QLinearAdd (x, s, z, k, t, u, r, v)"),
        (PAIR, "y = QLinearMul (x, s, z, k, t, u, r, v)"),
        (IMAGES, "y = QLinearSigmoid (x, s, z, t, u)"),
        (IMAGES, "y = QLinearLeakyRelu <alpha = 0.25> (x, s, z, t, u)"),
        (IMAGES, "y = QLinearGlobalAveragePool (x, s, z, t, u)"),
        (IMAGES, "y = QLinearAveragePool <kernel_shape = [2, 2]> (x, s, z, t, u)"),
        (IMAGES, "y = QLinearSoftmax <axis = 1, opset = 13> (x, s, z, t, u)"),
        (PAIR, "y = QLinearConcat <axis = 1> (r, v, x, s, z, k, t, u)"),
    ],
)
@pytest.mark.parametrize("sizes", [(1, 2, 2), (3, 5, 4)])
def test_an_operator_between_small_integers_is_that_of_floats_rounded(
    ends: tuple[str, str], node: str, sizes: tuple[int, int, int]
) -> None:
    outputs = ends[1].replace("[n, 3, h, w]", "[n, c, h, w]")
    proto = model(ends[0], outputs, node)
    n, h, w = sizes
    feed = {one.name: bytes_of(seed, n, 3, h, w) for seed, one in enumerate(proto.graph.input)}
    found = import_proto(proto, {}, {})
    made = found.results_by_name(interpret_graph(found.bound, found.arrays_by_name(feed)))["y"]
    (wanted,) = exact(proto, feed)
    assert made.dtype == wanted.dtype
    off = np.abs(made.astype(int) - wanted)
    assert off.max() <= 1  # onnxruntime's tables and sums round once more
    assert np.mean(off > 0) <= 0.1


BYTES = "uint8[n, 24] x"
ROWS = "float[n, 24] x"
OF_BITS = "MatMulNBits <K = 24, N = 5, bits = 4, block_size = 16> (x, w, scales"
WEIGHTS = {
    "w": bytes_of(1, 5, 2, 8),
    "scales": np.abs(floats(2, 10)) + np.float32(0.1),
    "zeros": bytes_of(3, 5, 1),
    "i": bytes_of(4, 24, 5),
    "bias": floats(5, 5),
    "units": bytes_of(6, 5).astype(np.int32),
    "m": floats(7, 5, 24),
    "row": floats(8, 24),
}


@pytest.mark.parametrize(
    ("inputs", "outputs", "node"),
    [
        (BYTES, "uint8[n, 5] y", "y = QGemm (x, s, z, i, t, u, units, r, v)"),
        (BYTES, "float[n, 5] y", "y = QGemm <alpha = 0.5> (x, s, z, i, t, u)"),
        (BYTES, "float[n, 5] y", "y = MatMulIntegerToFloat (x, i, s, t, z, u, bias)"),
        (ROWS, "float[n, 5] y", "y = DynamicQuantizeMatMul (x, i, t, u, bias)"),
        (ROWS, "float[n, 5] y", f"y = {OF_BITS})"),
        (ROWS, "float[n, 5] y", f"y = {OF_BITS}, zeros)"),
        (ROWS, "float[n, 5] y", "y = FusedMatMul <transB = 1, alpha = 0.5> (x, m)"),
        (ROWS, "float[n, 24] y", "y = BiasGelu (x, row)"),
        (ROWS, "float[n, 24] y", "y = FastGelu (x, row)"),
        (ROWS, "float[n, 24] y", "y = QuickGelu (x)"),
        (ROWS, "float[n, 24] y", "y = Gelu (x)"),
    ],
)
def test_an_operator_of_the_optimizer_gives_what_onnxruntime_gives(
    inputs: str, outputs: str, node: str
) -> None:
    proto = model(inputs, outputs, node, **WEIGHTS)
    found = import_proto(proto, {}, {})
    for n in (1, 7):
        feed = {"x": bytes_of(n, n, 24) if inputs == BYTES else floats(n, n, 24)}
        made = found.results_by_name(interpret_graph(found.bound, found.arrays_by_name(feed)))["y"]
        (wanted,) = exact(proto, feed)
        assert made.dtype == wanted.dtype
        agree(made, of_peer(wanted))


@pytest.mark.parametrize("op", ["SkipLayerNormalization", "SkipSimplifiedLayerNormalization"])
def test_the_norm_of_a_sum_gives_the_sum_too(op: str) -> None:
    ends = "float[b, n, 24] x, float[b, n, 24] k", "float[b, n, 24] y, float[b, n, 24] total"
    proto = model(*ends, f"y, , , total = {op} (x, k, row)", **WEIGHTS)
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


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("per_row", [False, True])
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_a_recurrence_of_8_bits_multiplies_bytes_as_onnxruntime_does(
    dtype: Any, per_row: bool, direction: str
) -> None:
    draw, d = np.random.default_rng(0), 2 if direction == "bidirectional" else 1
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
    how = f'<hidden_size = 6, direction = "{direction}">'
    node = f"y, hs, cs = DynamicQuantizeLSTM {how} (x, w, r, b, , h, c, , ws, wz, rs, rz)"
    proto = model(inputs, outputs, node, **held)
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
    held = {
        "w": bytes_of(1, 1, 16, 64),
        "r": bytes_of(2, 1, 16, 64),
        "ws": np.full(1, 0.01, np.float32),
        "wz": np.full(1, 128, np.uint8),
    }
    node = "y = DynamicQuantizeLSTM <hidden_size = 16> (x, w, r, , , , , , ws, wz, ws, wz)"
    proto = model("float[s, n, 16] x", "float[s, 1, n, 16] y", node, **held)
    graph = run_passes(import_proto(proto, {}, {}).bound).graph
    (layer,) = (one for one in graph.nodes if one.op == "lstm")
    (products,) = (one for one in graph.nodes if one.op in ("dense", "matmul"))
    assert graph.values[layer.operands[1]].dtype == "int8"
    assert {graph.values[name].dtype for name in products.operands[:2]} == {"uint8", "int8"}


def test_what_of_it_is_not_ours_is_refused_by_its_name() -> None:
    proto = model(ROWS, "float[n, 24] y", "y = Inverse (x)")
    with pytest.raises(oc.DescribeError, match="of onnxruntime is not supported"):
        oc.from_onnx(proto)
    images = "uint8[n, h, w, 3] x", "uint8[n, a, b, 3] y"
    proto = model(*images, "y = QLinearGlobalAveragePool <channels_last = 1> (x, s, z, t, u)")
    with pytest.raises(oc.DescribeError, match="channels_last=1"):
        oc.from_onnx(proto)
    given = "float[n, 24] x, uint8[5, 2, 8] w, float[10] scales"
    with pytest.raises(oc.DescribeError, match="weights of 4 bits, or that calls give"):
        oc.from_onnx(model(given, "float[n, 5] y", f"y = {OF_BITS})"))


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.uint16])
def test_numbers_of_16_bits_are_quantized_as_those_of_8(dtype: Any) -> None:
    """As `quantize_static(…, activation_type=QuantType.QUInt16)` writes it into files of old operator sets."""
    text = f"""{HEAD} g (float[n, 4] x) => (float[n, 4] y) {{
        q = com.microsoft.QuantizeLinear (x, s, z)  y = com.microsoft.DequantizeLinear (q, s, z) }}"""
    proto = onnx.parser.parse_model(text)
    for name, array in (("s", np.float32(0.01)), ("z", dtype(120))):
        proto.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
    mine = oc.from_onnx(proto, threads=1)
    for n in (1, 3):
        feed = {"x": 300 * floats(n, n, 4)}
        np.testing.assert_array_equal(mine(feed)["y"], exact(proto, feed)[0])


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
    proto = model(inputs, outputs, f"y, keys, values = {call}", **turns)
    ours = oc.from_onnx(proto)
    for b, s, p in ((1, 1, 5), (2, 1, 16), (1, 7, 3), (1, 15, 1)):
        if which != "after a cache":
            p = 0
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
