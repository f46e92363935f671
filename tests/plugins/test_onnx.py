"""`from_onnx`: small models against ONNX's reference evaluator, at many sizes, by the interpreter and by kernels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the extra onnx is not installed")

import onnx
from conftest import rejection
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import offcut as oc
from offcut.plugins.onnx import OnnxModel
from tests.agree import agree, computed, of_peer
from tests.facade import interpret_graph

HEAD = '<ir_version: 9, opset_import: ["" : {opset}]> '


def parsed(text: str, opset: int = 20, **weights: Any) -> Any:
    """A model as ONNX's text form has it, with weights."""
    model = onnx.parser.parse_model(HEAD.format(opset=opset) + text)
    for name, array in weights.items():
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
    return model


def drawn(seed: int, *shape: int) -> Any:
    """Normal float32."""
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def calls(proto: Any, **sizes: Iterable[int]) -> list[dict[str, Any]]:
    """Drawn inputs of a model; the values of its sizes are given call by call."""
    made = list[dict[str, Any]]()
    for values in zip(*sizes.values(), strict=True):
        given, feed = dict(zip(sizes, values, strict=True)), dict[str, Any]()
        for number, one in enumerate(proto.graph.input):
            kind = one.type.tensor_type
            shape = [given[dim.dim_param] if dim.dim_param else dim.dim_value for dim in kind.shape.dim]  # fmt: skip
            array = drawn(number, *shape)
            feed[one.name] = array if kind.elem_type == TensorProto.FLOAT else (array > 0).astype("i8")  # fmt: skip
        made.append(feed)
    return made


def agrees(proto: Any, model: OnnxModel, feed: Mapping[str, Any]) -> None:
    """Kernels and interpreter give what the reference evaluator gives."""
    names = [one.name for one in proto.graph.output]
    exact = dict(zip(names, ReferenceEvaluator(proto).run(None, dict(feed)), strict=True))
    imported = model.imported
    slow = imported.results_by_name(interpret_graph(imported.bound, imported.arrays_by_name(feed)))
    fast = model(feed)
    assert list(fast) == list(slow) == names
    for name in names:
        for found in (slow[name], fast[name]):
            assert found.dtype == exact[name].dtype
            agree(found, of_peer(exact[name]))


def each(proto: Any, feeds: Iterable[Mapping[str, Any]], **request: Any) -> OnnxModel:
    """A model compiled once agrees on every feed."""
    model = oc.from_onnx(proto, threads=1, **request)
    for feed in feeds:
        agrees(proto, model, feed)
    return model


MLP = (
    "g (float[batch, 16] x) => (float[batch, 9] y) { z = MatMul(x, w)  a = Add(z, b)  y = Relu(a) }"
)


def mlp() -> Any:
    return parsed(MLP, w=drawn(1, 16, 9), b=drawn(2, 9))


def test_a_symbolic_extent_is_a_size_and_initializers_are_constants() -> None:
    model = each(mlp(), calls(mlp(), batch=(1, 2, 13, 45)))
    assert [(size.name, size.min) for size in model.sizes] == [("batch", 1)]
    assert [value.name for value in model.graph.inputs] == ["x"]


def test_sizes_are_bounded_or_fixed_by_the_names_of_the_file() -> None:
    bounded = oc.from_onnx(mlp(), sizes={"batch": (2, 8)}, threads=1)
    assert [(size.min, size.max) for size in bounded.sizes] == [(2, 8)]
    with pytest.raises(oc.CallError, match="cannot take batch = 9"):
        bounded({"x": drawn(0, 9, 16)})
    fixed = oc.from_onnx(mlp(), sizes={"batch": 4}, threads=1)
    assert fixed.sizes == ()
    agrees(mlp(), fixed, {"x": drawn(0, 4, 16)})
    assert str(bounded.plan(batch=3)) == str(bounded.model.plan(batch=3))


def test_an_axis_without_a_name_is_a_size_of_its_own_and_a_sum_of_names_is_their_sum() -> None:
    text = "g (float[?, 3] x, float[past, 2] p, float[new, 2] q, float[sum, 2] r) => (float[?] s, float[?, 2] y)"
    proto = parsed(
        text
        + "{ s = ReduceSum <keepdims = 0> (x, a)  c = Concat <axis = 0> (p, q)  y = Mul(c, r) }",
        a=[1],
    )
    proto.graph.input[3].type.tensor_type.shape.dim[0].dim_param = "past + new"
    feeds = [
        {"x": drawn(1, n, 3), "p": drawn(2, n, 2), "q": drawn(3, m, 2), "r": drawn(4, n + m, 2)}
        for n, m in ((1, 1), (5, 2))
    ]
    model = each(proto, feeds)
    assert [size.name for size in model.sizes] == ["x_0", "past", "new"]


def test_axes_below_0_without_a_name_or_of_a_text_that_is_none_are_sizes_of_their_own() -> None:
    names = ("?", "*", "-1", "-2", "None", "unk", "unknown", "dynamic", "")
    shape = ", ".join(f"d{n}" for n in range(len(names)))
    proto = parsed(f"g (float[b, {shape}, c] x) => (float[{shape}, e, f] y) {{ y = Relu (x) }}")
    dims = proto.graph.input[0].type.tensor_type.shape.dim
    for dim, name in zip(dims[1:], names, strict=False):
        dim.dim_param = name
    dims[-1].dim_value = -1
    model = oc.from_onnx(proto, threads=1)
    assert [size.name for size in model.sizes] == ["b", *(f"x_{n}" for n in range(1, 11))]
    x = drawn(1, 2, *range(1, 4), *[1] * 6, 5)
    np.testing.assert_array_equal(model(x)["y"], np.maximum(x, 0))


def test_names_that_are_no_identifiers_are_kept_for_the_caller() -> None:
    node = helper.make_node("Relu", ["input.1"], ["/out/0:0"])
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node], "main", [info("input.1", 1, ["True", 3])], [info("/out/0:0", 1, ["True", 3])]
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    proto.ir_version = 9
    each(proto, [{"input.1": drawn(0, 4, 3)}], sizes={"True": (1, 64)})


CNN = """g (float[n, 3, h, w] x) => (float[n, 5] y, float[n, m] f)
{
  c = Conv <pads = [1, 1, 1, 1], strides = [2, 2]> (x, k)
  b = BatchNormalization (c, gain, bias, mean, variance)
  r = Relu (b)
  p = MaxPool <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (r)
  q = GlobalAveragePool (p)
  s = Shape (x)
  first = Gather (s, zero)
  head = Unsqueeze (first, zeros)
  rest = Constant <value_ints = [-1]> ()
  to = Concat <axis = 0> (head, rest)
  v = Reshape (q, to)
  y = Gemm <transB = 1> (v, m1, v1)
  f = Flatten (p)
}"""
CNN_WEIGHTS = {
    "k": drawn(1, 8, 3, 3, 3),
    "gain": drawn(2, 8),
    "bias": drawn(3, 8),
    "mean": drawn(4, 8),
    "variance": np.abs(drawn(5, 8)) + 1,
    "zero": np.int64(0),
    "zeros": np.array([0]),
    "m1": drawn(6, 5, 8),
    "v1": drawn(7, 5),
}


def test_a_convolutional_network_runs_at_every_image_size() -> None:
    proto = parsed(CNN, **CNN_WEIGHTS)
    model = each(proto, calls(proto, n=(1, 2, 3), h=(8, 9, 5), w=(8, 11, 16)))
    assert "reshape(" in str(model.graph)
    assert "(h + 1)//2" in str(model.graph)


ENCODER = """g (float[b, s, 24] x, int64[b, s] kept) => (float[b, s, 24] y)
{
  n = LayerNormalization (x, g1, b1)
  qkv = MatMul (n, w)
  q, k, v = Split <axis = -1, num_outputs = 3> (qkv)
  shape = Shape (x)
  rows = Slice (shape, zero, two)
  apart = Concat <axis = 0> (rows, heads)
  q4 = Reshape (q, apart)  k4 = Reshape (k, apart)  v4 = Reshape (v, apart)
  qt = Transpose <perm = [0, 2, 1, 3]> (q4)
  kt = Transpose <perm = [0, 2, 3, 1]> (k4)
  vt = Transpose <perm = [0, 2, 1, 3]> (v4)
  products = MatMul (qt, kt)
  scores = Div (products, root)
  wide = Unsqueeze (kept, middle)
  mask = Cast <to = 9> (wide)
  chosen = Where (mask, scores, low)
  weights = Softmax <axis = -1> (chosen)
  mixed = MatMul (weights, vt)
  back = Transpose <perm = [0, 2, 1, 3]> (mixed)
  joined = Reshape (back, flat)
  z = Add (joined, x)
  f = MatMul (z, w1)
  a = Gelu (f)
  d = MatMul (a, w2)
  y = Add (d, z)
}"""
ENCODER_WEIGHTS = {
    "g1": drawn(1, 24),
    "b1": drawn(2, 24),
    "w": drawn(3, 24, 72) / 5,
    "zero": [0],
    "two": [2],
    "heads": [4, 6],
    "root": np.float32(6**0.5),
    "middle": [1, 2],
    "low": np.float32(-1e9),
    "flat": [0, 0, 24],
    "w1": drawn(4, 24, 32) / 5,
    "w2": drawn(5, 32, 24) / 5,
}
MODELS: dict[str, tuple[str, dict[str, Any], dict[str, tuple[int, ...]]]] = {
    "an encoder block": (ENCODER, ENCODER_WEIGHTS, {"b": (1, 2, 1), "s": (1, 5, 17)}),
    "sizes in the arithmetic of arrays": (
        """g (float[n, 4] x) => (float[n, 4] y, int64[2] s)
        { s = Shape (x)  c = Gather (s, zero)  f = Cast <to = 1> (c)  y = Div (x, f) }""",
        {"zero": np.int64(0)}, {"n": (1, 2, 7)},
    ),
    "what is calculated from a shape": (
        """g (float[n, 4, 5] x) => (int64[a, b] y0, int64[c, d] y1, int64[e, f] y2, int64[i] y3, int64[j] y4,
            int64[k] y5, int64[l] y6, int64[m] y7, int64[o] y8, int64[p] y9)
        { s = Shape (x)  y0 = Flatten (s)  y1 = Flatten <axis = 0> (s)  y2 = Flatten <axis = -1> (s)
          y3 = ReduceSum (s, zeros)  y4 = ReduceSum <noop_with_empty_axes = 1> (s)
          y5 = ReduceProd <keepdims = 0> (s)  y6 = Mod <fmod = 1> (s, two)
          y7, r7 = Split <axis = -1> (s, parts)  y8, r8 = Split <num_outputs = 2> (s)
          y9 = Slice (s, two, zeros, zeros, below) }""",
        {"zeros": [0], "two": [2], "below": [-1], "parts": [2, 1]}, {"n": (1, 3)},
    ),
    "an ellipsis and diagonals are letters of an equation": (
        """g (float[n, 4, 4] x, float[n, 2, 4, 4] y, float[n, 2, 3] z, float[n, 3, 2, 3, 2] w) =>
            (float[a, b] p, float[a, b, c] q, float[a, b, c] r, float[a] s)
        { p = Einsum <equation = "bii->bi"> (x)  q = Einsum <equation = "...ii->...i"> (y)
          r = Einsum <equation = "b...->...b"> (z)  s = Einsum <equation = "bijij->b"> (w) }""",
        {}, {"n": (1, 2, 7)},
    ),
    "an image that is padded to a multiple of a window": (
        """g (float[n, 2, h, 5] x) => (float[n, 2, r, 5] y)
        { rows = Shape <start = 2, end = 3> (x)  under = Mul (rows, minus)  rest = Mod <fmod = 0> (under, four)
          pads = Concat <axis = 0> (zeros, rest, zero)  y = Pad (x, pads) }""",
        {"minus": [-1], "four": [4], "zeros": np.zeros(6, np.int64), "zero": [0]},
        {"n": (1, 2, 3, 1), "h": (1, 4, 7, 9)},
    ),
    "one array side by side": (
        "g (float[n, 3] x) => (float[n, 3] y) { one = Concat <axis = 1> (x)  y = Relu (one) }", {}, {"n": (1, 4)},
    ),
    "an image that was halved and doubled is cut to what it was": (
        """g (float[n, 2, h, 5] x) => (float[n, 4, h, 5] y)
        { half = AveragePool <kernel_shape = [2, 1], strides = [2, 1], pads = [0, 0, 1, 0]> (x)
          twice = Resize <mode = "nearest"> (half, , scales)  s = Shape (x)  rows = Slice (s, two, three)
          cut = Slice (twice, zero, rows, two)  y = Concat <axis = 1> (cut, x) }""",
        {"scales": np.float32([1, 1, 2, 1]), "zero": [0], "two": [2], "three": [3]}, {"n": (1, 2, 1), "h": (1, 6, 9)},
    ),
    "images that are stretched to the size of another": (
        """g (float[1, 2, h, 3] x, float[1, 1, r, 6] z) => (float[1, 2, r, 3] a, float[1, 2, r, 3] b, float[1, 2, r, 3] c)
        { s = Shape <start = 2, end = 3> (z)  size = Concat <axis = 0> (first, s, last)
          a = Resize <mode = "linear", coordinate_transformation_mode = "pytorch_half_pixel"> (x, , , size)
          b = Resize <mode = "cubic", coordinate_transformation_mode = "align_corners", cubic_coeff_a = -0.5> (x, , , size)
          c = Resize <mode = "nearest", nearest_mode = "ceil", coordinate_transformation_mode = "align_corners"> (x, , , size) }""",
        {"first": [1, 2], "last": [3]}, {"h": (4, 9), "r": (7, 2)},
    ),
    "means of volumes": (
        """g (float[b, 2, 5, h, w] x) => (float[b, 2, p, q, r] y, float[b, 2, s, t, u] z)
        { y = AveragePool <dilations = [2, 1, 1], kernel_shape = [3, 1, 2]> (x)
          z = AveragePool <pads = [1, 0, 1, 1, 0, 1], count_include_pad = 1, kernel_shape = [3, 1, 2]> (x) }""",
        {}, {"b": (1, 3), "h": (2, 4), "w": (2, 5)},
    ),
    "a scan of known length": (
        """g (float[b] start, float[4, b] x) => (float[b] last, float[4, b] all)
        { last, all = Scan <num_scan_inputs = 1, body = step (float[b] state, float[b] one) => (float[b] next, float[b] out)
            { next = Add (state, one)  out = Mul (next, next) }> (start, x) }""",
        {}, {"b": (1, 5)},
    ),
    "a loop without a trip count": (
        """g (float[n] x) => (float[n] y) <bool on = {1}, int64 four = {4}>
        { y = Loop ("", on, x) <body = step (int64 i, bool going, float[n] a) => (bool more, float[n] b)
            { more = Less (i, four)  j = Cast <to = 1> (i)  b = Add (a, j) }> }""",
        {}, {"n": (1, 5)},
    ),
    "spectra: cropped, padded, inverted, of one side": (
        """g (float[n, 8, m, 1] x, float[n, 8, m, 2] z) => (float[?, ?, ?, ?] a, float[?, ?, ?, ?] b, float[?, ?, ?, ?] c, float[?, ?, ?, ?] d)
        { a = DFT (z, five, axis)  b = DFT <onesided = 1> (x, twelve, axis)
          c = DFT <inverse = 1> (z, eight, axis)  d = DFT <inverse = 1, onesided = 1> (z, eight, axis) }""",
        {"five": np.array(5), "eight": np.array(8), "twelve": np.array(12), "axis": np.array(1)},
        {"n": (1, 3, 2), "m": (1, 2, 17)},
    ),
    "a deformed convolution": (
        """g (float[n, 4, h, w] x, float[n, 24, p, q] offset, float[n, 12, p, q] mask) => (float[?, ?, ?, ?] y)
        { y = DeformConv <group = 2, offset_group = 2, pads = [1, 0, 1, 0], strides = [2, 1], dilations = [1, 2]>
            (x, weights, offset, bias, mask) }""",
        {"weights": drawn(7, 6, 2, 2, 3), "bias": drawn(8, 6)},
        {"n": (1, 2), "h": (3, 6), "w": (6, 9), "p": (2, 4), "q": (2, 5)},
    ),
    "places of what is greatest, and back": (
        """g (float[n, 3, h, w] x) => (float[?, ?, ?, ?] y, int64[?, ?, ?, ?] places, float[?, ?, ?, ?] z, int64[?, ?, ?, ?] apart)
        { y, places = MaxPool <kernel_shape = [2, 3], strides = [2, 3]> (x)
          z = MaxUnpool <kernel_shape = [2, 3], strides = [2, 3]> (y, places)
          holed, apart = MaxPool <kernel_shape = [2, 2], dilations = [1, 2]> (x) }""",
        {}, {"n": (1, 2), "h": (2, 6), "w": (3, 9)},
    ),
    "determinants": (
        """g (float[n, 1, 1] a, float[n, 2, 2] b, float[n, 3, 3] c, float[n, 4, 4] d) => (float[n] p, float[n] q, float[n] r, float[n] s)
        { p = Det (a)  q = Det (b)  r = Det (c)  s = Det (d) }""",
        {}, {"n": (1, 2, 33)},
    ),
    "windows of three axes that are laid over each other": (
        """g (float[n, 12, 24] x) => (float[?, ?, ?, ?, ?] y)
        { y = Col2Im <strides = [2, 1, 1], pads = [0, 0, 1, 0, 0, 0]> (x, image, block) }""",
        {"image": [4, 4, 4], "block": [2, 1, 3]}, {"n": (1, 2, 5)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_a_model_gives_what_the_reference_gives_at_every_size(name: str) -> None:
    text, weights, sizes = MODELS[name]
    proto = parsed(text, **weights)
    each(proto, calls(proto, **sizes))


def test_functions_of_the_model_are_expanded() -> None:
    text = """<ir_version: 9, opset_import: ["" : 20, "own" : 1]>
    g (float[n, 4] x) => (float[n, 4] y) { y = own.shifted <by = 2.5> (x) }
    <domain: "own", opset_import: ["" : 20]>
    shifted <by> (a) => (c) { v = Constant <value_float: float = @by> ()  c = Add (a, v) }"""
    each(onnx.parser.parse_model(text), [{"x": drawn(0, 3, 4)}])


def test_integers_of_32_bits_are_shifted_and_combined() -> None:
    proto = parsed("""g (int32[n, 3] x, int32[3] y) => (int32[n, 3] a, int32[n, 3] b)
        { c = BitwiseXor (x, y)  d = BitwiseNot (c)  a = BitShift <direction = "LEFT"> (d, y)  b = BitwiseOr (x, a) }""")
    y = np.array([1, 31, 32], "int32")
    each(
        proto,
        [{"x": np.arange(-3 * n, 0, dtype="int32").reshape(n, 3) * 99991, "y": y} for n in (1, 17)],
    )


def test_both_branches_of_an_if_are_taken_where_only_a_call_decides() -> None:
    text = """g (bool c, float[n] x) => (float[n] y)
    { y = If (c) <then_branch = t () => (float[n] a) { a = Neg (x) },
                  else_branch = e () => (float[n] d) { d = Exp (x) }> }"""
    feeds = [{"c": np.array(value), "x": drawn(0, 5)} for value in (True, False)]
    each(parsed(text), feeds)


RATES = """g (float[b, n] x, int64 rate) => (float[b, m] y) {
    c = Equal (rate, fast)
    y = If (c) <then_branch = high () => (float[b, m] p) { q = Constant <value_ints = [0, 2, 3]> ()  p = Reshape (x, q) },
                else_branch = low () => (float[b, m] p) { q = Constant <value_ints = [0, 2, 2]> ()  p = Reshape (x, q) }> }"""


def test_of_branches_that_want_other_sizes_the_one_that_fits_is_taken() -> None:
    """As onnxruntime runs the branch that is taken, whatever the other wants."""
    proto = parsed(RATES, fast=np.array(16))
    for n, rate, other in ((6, 16, 8), (4, 8, 16)):
        model = oc.from_onnx(proto, sizes={"n": n}, threads=1)
        x = drawn(n, 3, n)
        agrees(proto, model, {"x": x, "rate": np.array(rate)})
        with pytest.raises(oc.CallError, match="leads outside of an array"):
            model({"x": x, "rate": np.array(other)})
    model = oc.from_onnx(proto, sizes={"n": 4}, constants={"rate": np.array(8)}, threads=1)
    assert model({"x": drawn(1, 2, 4)})["y"].shape == (2, 2, 2)
    with rejection("""\
UnsupportedNodesError: from_onnx: cannot take one node of g
  because  If y: its branches want n = 6 and n = 4, and its condition is not known at import
  help     from_onnx(…, constants={"rate": array}) where a call never changes it"""):
        oc.from_onnx(proto)


def test_exponentials_less_one_keep_their_digits_near_zero() -> None:
    text = """g (float[n] x) => (float[n] a, float[n] b, float[n] c, float[n] d)
    { a = Celu (x)  b = Celu <alpha = 0.5> (x)  c = Selu (x)  d = Elu <alpha = 2.0> (x) }"""
    model = oc.from_onnx(parsed(text), threads=1)
    x = np.array([-90, -3, -1e-3, -1e-6, -1e-8, -0.0, 1e-8, 2, np.nan], np.float32)
    wide, imported = x.astype(np.float64), model.imported
    for results in (
        model({"x": x}),
        imported.results_by_name(interpret_graph(imported.bound, {"x": x})),
    ):
        for name, alpha, inner, gamma in (
            *(("a", 1, 1, 1), ("b", 0.5, 0.5, 1), ("d", 2, 1, 1)),
            ("c", 1.6732632423543772, 1, 1.0507009873554805),
        ):
            exact = gamma * np.where(wide > 0, wide, alpha * np.expm1(wide / inner))
            agree(results[name], exact, units=16)


def test_the_oldest_scales_are_an_attribute() -> None:
    proto = parsed("""g (float[n, 2, h, 3] x) => (float[n, 2, p, q] y)
        { y = Upsample <mode = "nearest", scales = [1.0, 1.0, 3.0, 2.0]> (x) }""", 7)  # fmt: skip
    x = drawn(1, 3, 2, 1, 3)
    found = oc.from_onnx(proto, threads=1)({"x": x})["y"]
    np.testing.assert_array_equal(found, x.repeat(3, 2).repeat(2, 3))


def test_old_limits_are_those_of_float32_and_old_masks_are_numbers() -> None:
    proto = parsed("""g (float[n] x) => (float[n] y, float[n] z, float[n] kept)
        { y = Clip (x)  z, kept = Dropout <ratio = 0.5> (y) }""", 7)  # fmt: skip
    most = np.finfo(np.float32).max
    x = np.array([np.inf, -np.inf, 1.5], np.float32)
    found = oc.from_onnx(proto, threads=1)({"x": x})
    np.testing.assert_array_equal(found["y"], np.array([most, -most, 1.5], np.float32))
    np.testing.assert_array_equal(found["z"], found["y"])
    np.testing.assert_array_equal(found["kept"], np.ones(3, np.float32))


def test_lengths_of_float16_are_rounded_once() -> None:
    proto = parsed("""g (float16[n, 64] x) => (float16[n] y, float16[n, 64] z)
        { y = ReduceL2 <keepdims = 0> (x, a)  z = LpNormalization (x) }""", a=[1])  # fmt: skip
    x = (300 * drawn(1, 3, 64)).astype(np.float16)
    found, length = oc.from_onnx(proto, threads=1)({"x": x}), np.linalg.norm(x.astype("f8"), axis=1)
    agree(found["y"], length, units=16)
    agree(found["z"], x / length[:, None], units=16)


def test_a_symbolic_image_is_stretched_by_a_fraction() -> None:
    text = """g (float[1, 2, h, 3] x) => (float[1, 2, r, 3] y)
    { y = Resize <mode = "cubic"> (x, , scales) }"""
    proto = parsed(text, scales=np.float32([1, 1, 1.5, 1]))
    each(proto, calls(proto, h=(1, 2, 9)))
    with pytest.raises(oc.DescribeError, match=r"Resize y: cannot take scale=0\.3141"):
        oc.from_onnx(parsed(text, scales=np.float32([1, 1, 0.31415926, 1])))


def test_nearest_elements_by_a_scale_that_is_rounded_are_those_of_onnxruntime() -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="a peer, for ties of float32")
    ways = [(t, r) for t in ("asymmetric", "half_pixel", "align_corners") for r in ("floor", "round_prefer_ceil")]  # fmt: skip
    nodes = " ".join(
        f'y{n} = Resize <coordinate_transformation_mode = "{transform}", nearest_mode = "{rounding}"> (x, , s)'
        for n, (transform, rounding) in enumerate(ways)
    )
    outputs = ", ".join(f"float[n, 1, p, q] y{n}" for n in range(len(ways)))
    text = f"scaled (float[n, 1, h, w] x) => ({outputs}) {{ {nodes} }}"
    proto = parsed(text, 19, s=np.float32([1, 1, 1.7, 0.6]))
    model, session = oc.from_onnx(proto), onnxruntime.InferenceSession(proto.SerializeToString())
    for extent in (2, 5, 20, 50, 101):
        x = np.arange(extent * (extent + 3), dtype=np.float32).reshape(1, 1, extent, extent + 3)
        for found, expected in zip(model(x).values(), session.run(None, {"x": x}), strict=True):
            np.testing.assert_array_equal(found, expected)


def test_frames_of_signals_of_any_length() -> None:
    proto = parsed(
        """g (float[batch, t, 1] x) => (float[?, ?, ?, ?] plain, float[?, ?, ?, ?] windowed)
        { plain = STFT (x, step, , length)  windowed = STFT (x, step, w, length) }""",
        step=np.array(5), length=np.array(16), w=np.hanning(16).astype("f4"),
    )  # fmt: skip
    model = oc.from_onnx(proto, threads=1)
    for b, t in ((1, 16), (2, 21), (3, 100)):  # the reference evaluator asks for a window
        x = drawn(t, b, t, 1)
        starts = range(0, t - 15, 5)
        frames = np.stack([x[:, at : at + 16, 0].astype("f8") for at in starts], 1)
        found, most = model({"x": x}), np.abs(frames).sum(-1).max()
        for name, window in (("plain", 1.0), ("windowed", np.hanning(16))):
            exact = np.fft.rfft(frames * window)
            agree(found[name][..., 0], of_peer(exact.real, most))
            agree(found[name][..., 1], of_peer(exact.imag, most))


def test_regions_of_images_of_any_size() -> None:
    more = "output_height = 2, output_width = 3, sampling_ratio = 2, spatial_scale = 0.5"
    proto = parsed(f"""g (float[n, 3, h, w] x, float[r, 4] regions, int64[r] batch) => (float[?, ?, ?, ?] y, float[?, ?, ?, ?] z)
        {{ y = RoiAlign <mode = "max", coordinate_transformation_mode = "half_pixel", {more}> (x, regions, batch)
           z = RoiAlign <mode = "avg", coordinate_transformation_mode = "output_half_pixel", {more}> (x, regions, batch) }}""")
    feeds = []
    for n, h, w, r in ((1, 1, 1, 1), (2, 7, 5, 4), (3, 12, 9, 2)):
        rng = np.random.default_rng([n, h, w])
        low, size = rng.uniform(-4, 2 * h, (r, 2)), rng.uniform(0, 2 * w, (r, 2))
        regions = np.concatenate([low, low + size], 1).astype("f4")
        feeds.append(
            {"x": drawn(h, n, 3, h, w), "regions": regions, "batch": rng.integers(0, n, r)}
        )
    each(proto, feeds)


def test_an_axis_that_is_a_vector_of_one_is_a_number() -> None:
    proto = parsed("""g (float[n, 3] x) => (float[n, 3] y) {
        steps = CumSum (times, axis)  y = Add (x, steps) }""",
        times=np.array([1, 2, 4], np.float32), axis=[0])  # fmt: skip
    model, x = oc.from_onnx(proto, threads=1), drawn(1, 2, 3)
    agree(model({"x": x})["y"], x + np.array([1.0, 3.0, 7.0]), terms=8)


def test_a_map_over_sequences_goes_along_them() -> None:
    text = """g (float[n] x, float[n] z) => (float[n] y) <int64 last = {-1}> {
        s = SequenceConstruct (x, z)  t = SequenceConstruct (z, z)
        sums, products = SequenceMap <body = b (float[n] p, float[n] q, float[n] r) => (float[n] c, float[n] d)
            { c = Add (p, q)  d = Mul (c, r) }> (s, t, x)
        u = SequenceAt (sums, last)  v = SequenceAt (products, last)  y = Sub (u, v) }"""
    model = oc.from_onnx(parsed(text), threads=1)
    for n in (1, 5):
        x, z = drawn(1, n), drawn(2, n)
        agree(model({"x": x, "z": z})["y"], computed(lambda x, z: 2 * z - 2 * z * x, x, z))


def test_sequences_that_are_known_leave_nothing() -> None:
    proto = parsed("""g (float[n, 6] x) => (float[n, 5] y, float[2, n, 2] z, int64 count, bool some) {
        parts = SplitToSequence <axis = 1> (x, sizes)  zero = Constant <value_int = 0> ()
        one = SequenceAt (parts, two)  more = SequenceInsert (parts, one, zero)
        less = SequenceErase (more, last)  y = ConcatFromSequence <axis = 1> (less)
        same = SequenceConstruct (one, one)  z = ConcatFromSequence <axis = 0, new_axis = 1> (same)
        count = SequenceLength (more)  maybe = Optional (x)  some = OptionalHasElement (x) }""",
        sizes=[1, 3, 2], two=np.array(2), last=np.array(2))  # fmt: skip
    model, x = oc.from_onnx(proto, threads=1), drawn(1, 4, 6)
    found = model({"x": x})
    np.testing.assert_array_equal(found["y"], np.concatenate([x[:, 4:], x[:, :1], x[:, 4:]], 1))
    np.testing.assert_array_equal(found["z"], np.stack([x[:, 4:]] * 2))
    assert (found["count"], found["some"]) == (4, True)


def test_nodes_that_stand_before_what_they_read_are_put_after_it() -> None:
    proto = parsed("""g (bool c, float[n] x) => (float[n] y) {
        z = If (c) <then_branch = t () => (float[n] p) { p = Neg (b) }, else_branch = e () => (float[n] q) { q = Exp (a) }>
        y = Add (z, b)  b = Relu (a)  a = Mul (x, x) }""")
    before = proto.SerializeToString()
    model, x = oc.from_onnx(proto, threads=1), np.float32([0.5, -1.0])
    agree(model({"c": np.array(True), "x": x})["y"], 0.0 * x.astype("float64"), terms=x * x)
    found = model({"c": np.array(False), "x": x})["y"]
    agree(found, computed(lambda x: np.exp(x * x) + x * x, x))
    assert proto.SerializeToString() == before


def test_kernels_run_for_a_part_of_the_batch_as_is_asked_for() -> None:
    text = "g (float[batch, 6] x) => (float[batch, 6] y) { h = Softmax (x)  y = Relu (h) }"
    x = drawn(0, 9, 6)
    plain = oc.from_onnx(parsed(text), threads=1, parts=False)
    (row,) = plain.plan(batch=9).rows
    line = f"{row[0]} to {row[0]}: 4 of batch at a time"
    model = oc.from_onnx(parsed(text), threads=1, parts=line)
    assert [str(part) for part in model.plan(batch=9).parts] == [line]
    np.testing.assert_array_equal(model({"x": x})["y"], plain({"x": x})["y"])
    with pytest.raises(oc.DescribeError, match="cannot take parts=3"):
        oc.from_onnx(parsed(text), parts=3)  # type: ignore[arg-type]


def test_a_model_runs_on_the_emulated_gpu_at_every_size_by_one_compile() -> None:
    text = """images (float[batch, 2, height, 2] x) => (float[batch, 3] y)
    { c = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x, w, b)  r = Relu (c)
      p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (r)  m = ReduceMean <keepdims = 0> (p, axes)
      d = MatMul (m, u)  y = Softmax <axis = 1> (d) }"""
    proto = parsed(text, w=drawn(1, 4, 2, 3, 3), b=drawn(2, 4), u=drawn(3, 4, 3), axes=[2, 3])
    emulated = oc.target("cuda", machine="h200", device="emulated")
    model = oc.from_onnx(proto, {"height": (2, 64)}, target=emulated)
    assert {row[2] for row in model.plan().rows} == {"cuda"}
    for feed in calls(proto, batch=(1, 2, 7, 1), height=(2, 7, 3, 33)):
        agree(model(feed)["y"], of_peer(ReferenceEvaluator(proto).run(None, feed)[0]))
