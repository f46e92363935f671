"""`from_onnx`: small models against ONNX's reference evaluator, at many sizes, by the interpreter and by kernels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the extra onnx is not installed")

import onnx
from conftest import rejection, slow
from onnx import helper, numpy_helper
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
    model = each(mlp(), [{"x": drawn(batch, batch, 16)} for batch in (1, 2, 13, 45)])
    assert [(size.name, size.min) for size in model.sizes] == [("batch", 1)]
    assert [value.name for value in model.graph.inputs] == ["x"]


@pytest.mark.parametrize("form", ["path", "bytes"])
def test_a_file_and_its_bytes_are_the_model(form: str, tmp_path: Path) -> None:
    path = tmp_path / "mlp.onnx"
    onnx.save(mlp(), path)
    model = oc.from_onnx(path if form == "path" else path.read_bytes(), threads=1)
    agrees(mlp(), model, {"x": drawn(0, 3, 16)})


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


@pytest.mark.parametrize("name", ["", "True"])
def test_an_axis_below_0_or_of_a_word_of_python_is_a_size(name: str) -> None:
    proto = parsed("g (float[n, 2] x) => (float[m, 2] y) { y = Relu (x) }")
    dim = proto.graph.input[0].type.tensor_type.shape.dim[0]
    if name:
        dim.dim_param = name
    else:
        dim.dim_value = -1
    model = oc.from_onnx(proto, sizes={name or "x_0": (1, 64)}, threads=1)
    for n in (1, 3):
        x = drawn(n, n, 2)
        np.testing.assert_array_equal(model({"x": x})["y"], np.maximum(x, 0))


def test_names_that_are_no_identifiers_are_kept_for_the_caller() -> None:
    node = helper.make_node("Relu", ["input.1"], ["/out/0:0"])
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node], "main", [info("input.1", 1, ["N", 3])], [info("/out/0:0", 1, ["N", 3])]
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    proto.ir_version = 9
    each(proto, [{"input.1": drawn(0, 4, 3)}])


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


def cnn() -> Any:
    return parsed(
        CNN,
        k=drawn(1, 8, 3, 3, 3),
        gain=drawn(2, 8),
        bias=drawn(3, 8),
        mean=drawn(4, 8),
        variance=np.abs(drawn(5, 8)) + 1,
        zero=np.int64(0),
        zeros=np.array([0]),
        m1=drawn(6, 5, 8),
        v1=drawn(7, 5),
    )


def test_a_convolutional_network_runs_at_every_image_size() -> None:
    shapes = [(1, 3, 8, 8), (2, 3, 9, 11), (3, 3, 5, 16)]
    model = each(cnn(), [{"x": drawn(0, *shape)} for shape in shapes])
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


def test_an_encoder_block_runs_at_every_batch_and_length() -> None:
    proto = parsed(
        ENCODER,
        g1=drawn(1, 24),
        b1=drawn(2, 24),
        w=drawn(3, 24, 72) / 5,
        zero=np.array([0]),
        two=np.array([2]),
        heads=np.array([4, 6]),
        root=np.float32(6**0.5),
        middle=np.array([1, 2]),
        low=np.float32(-1e9),
        flat=np.array([0, 0, 24]),
        w1=drawn(4, 24, 32) / 5,
        w2=drawn(5, 32, 24) / 5,
    )
    feeds = []
    for b, s in ((1, 1), (2, 5), (1, 17)):
        kept = np.ones((b, s), np.int64)
        kept[:, s // 2 + 1 :] = 0
        feeds.append({"x": drawn(0, b, s, 24), "kept": kept})
    each(proto, feeds)


def test_sizes_that_enter_the_arithmetic_of_arrays_are_computed_from_them() -> None:
    text = """g (float[n, 4] x) => (float[n, 4] y, int64[2] s)
    { s = Shape (x)  c = Gather (s, zero)  f = Cast <to = 1> (c)  y = Div (x, f) }"""
    each(parsed(text, zero=np.int64(0)), [{"x": drawn(0, n, 4)} for n in (1, 2, 7)])


@pytest.mark.parametrize(
    "node",
    [
        "y = Flatten (s)",
        "y = Flatten <axis = 0> (s)",
        "y = Flatten <axis = -1> (s)",
        "y = ReduceSum (s, zeros)",
        "y = ReduceSum <noop_with_empty_axes = 1> (s)",
        "y = ReduceProd <keepdims = 0> (s)",
        "y = Mod <fmod = 1> (s, two)",
        "y, rest = Split <axis = -1> (s, parts)",
        "y, rest = Split <num_outputs = 2> (s)",
        "y = Slice (s, two, zeros, zeros, below)",
    ],
)
def test_what_is_calculated_from_a_shape_is_what_its_attributes_say(node: str) -> None:
    text = "g (float[n, 4, 5] x) => (int64[a] y) { s = Shape (x)  " + node + " }"
    weights: dict[str, Any] = {
        "zeros": np.array([0]),
        "two": np.array([2]),
        "below": np.array([-1]),
        "parts": np.array([2, 1]),
    }
    each(parsed(text, **weights), [{"x": drawn(0, n, 4, 5)} for n in (1, 3)])


@pytest.mark.parametrize(
    ("equation", "shape"),
    [
        ("bii->bi", ("n", 4, 4)),
        ("...ii->...i", ("n", 2, 4, 4)),
        ("b...->...b", ("n", 2, 3)),
        ("bijij->b", ("n", 3, 2, 3, 2)),
    ],
)
def test_an_ellipsis_and_diagonals_are_letters_of_an_equation(
    equation: str, shape: tuple[int | str, ...]
) -> None:
    rank = {"bii->bi": 2, "bijij->b": 1}.get(equation, 3)
    result = f"float[{', '.join('abc'[:rank])}]"
    kind = ", ".join(map(str, shape))
    text = f"""g (float[{kind}] x) => ({result} y) {{ y = Einsum <equation = "{equation}"> (x) }}"""
    calls = [[n if one == "n" else int(one) for one in shape] for n in (1, 2, 7)]
    each(parsed(text), [{"x": drawn(0, *call)} for call in calls])


def test_both_branches_of_an_if_are_taken_where_only_a_call_decides() -> None:
    text = """g (bool c, float[n] x) => (float[n] y)
    { y = If (c) <then_branch = t () => (float[n] a) { a = Neg (x) },
                  else_branch = e () => (float[n] d) { d = Exp (x) }> }"""
    feeds = [{"c": np.array(value), "x": drawn(0, 5)} for value in (True, False)]
    each(parsed(text), feeds)


@pytest.mark.parametrize("node", ["Celu", "Celu <alpha = 0.5>", "Selu", "Elu <alpha = 2.0>"])
def test_exponentials_less_one_keep_their_digits_near_zero(node: str) -> None:
    text = "g (float[n] x) => (float[n] y) { y = " + node + " (x) }"
    model = oc.from_onnx(parsed(text), threads=1)
    x = np.array([-90, -3, -1e-3, -1e-6, -1e-8, -0.0, 1e-8, 2, np.nan], np.float32)
    wide = x.astype(np.float64)
    alpha, inner, gamma = {
        "Celu": (1, 1, 1),
        "Celu <alpha = 0.5>": (0.5, 0.5, 1),
        "Selu": (1.6732632423543772, 1, 1.0507009873554805),
        "Elu <alpha = 2.0>": (2, 1, 1),
    }[node]
    exact = gamma * np.where(wide > 0, wide, alpha * np.expm1(wide / inner))
    imported = model.imported
    for found in (
        model({"x": x}),
        imported.results_by_name(interpret_graph(imported.bound, {"x": x})),
    ):
        agree(found["y"], exact, units=16)


def test_functions_of_the_model_are_expanded() -> None:
    text = """<ir_version: 9, opset_import: ["" : 20, "own" : 1]>
    g (float[n, 4] x) => (float[n, 4] y) { y = own.shifted <by = 2.5> (x) }
    <domain: "own", opset_import: ["" : 20]>
    shifted <by> (a) => (c) { v = Constant <value_float: float = @by> ()  c = Add (a, v) }"""
    each(onnx.parser.parse_model(text), [{"x": drawn(0, 3, 4)}])


def test_a_size_grows_to_what_the_model_needs() -> None:
    text = "g (float[n, 1, h, 9] x) => (float[n, 1, r, 5] y) { y = Conv (x, k) }"
    model = each(parsed(text, k=drawn(1, 1, 1, 5, 5)), [{"x": drawn(0, 2, 1, 7, 9)}])
    assert {size.name: size.min for size in model.sizes} == {"n": 1, "h": 4}


WINDOWS = """g (float[b, h, 6] x) => (float[b, h, 6] y)
{
  s = Shape (x)  b1, h1, c1 = Split <num_outputs = 3> (s)
  n = Div (h1, four)
  apart = Concat <axis = 0> (b1, n, four, c1)
  v = Reshape (x, apart)
  z = Softmax <axis = 2> (v)
  y = Reshape (z, s)
}"""


def test_an_axis_that_is_split_is_a_multiple_of_its_parts() -> None:
    proto = parsed(WINDOWS, four=np.array([4]))
    model = each(proto, [{"x": drawn(0, b, h, 6)} for b, h in ((1, 4), (2, 12))])
    assert "x: float32[b, 4*h_4, 6]" in str(model.graph)
    with rejection("""\
CallError: run: cannot take x of shape (1, 6, 6)
  at       input x: float32[b, 4*h_4, 6]
  because  axis 1 is 6, and no h_4 makes 4*h_4 that"""):
        model({"x": drawn(0, 1, 6, 6)})
    with rejection("""\
DescribeError: from_onnx: cannot bound h by (5, 7)
  because  the model wants a multiple of 4, and none is between them"""):
        oc.from_onnx(proto, sizes={"h": (5, 7)})


def test_an_image_is_padded_to_a_multiple_of_a_window() -> None:
    text = """g (float[n, 2, h, 5] x) => (float[n, 2, r, 5] y)
    {
      rows = Shape <start = 2, end = 3> (x)
      under = Mul (rows, minus)
      rest = Mod <fmod = 0> (under, four)
      pads = Concat <axis = 0> (zeros, rest, zero)
      y = Pad (x, pads)
    }"""
    proto = parsed(
        text,
        minus=np.array([-1]),
        four=np.array([4]),
        zeros=np.zeros(6, np.int64),
        zero=np.array([0]),
    )
    each(proto, [{"x": drawn(0, n, 2, h, 5)} for n, h in ((1, 1), (2, 4), (3, 7), (1, 9))])


def test_one_array_side_by_side_is_that_array() -> None:
    text = "g (float[n, 3] x) => (float[n, 3] y) { one = Concat <axis = 1> (x)  y = Relu (one) }"
    each(parsed(text), [{"x": drawn(0, n, 3)} for n in (1, 4)])


def test_an_image_that_was_halved_and_doubled_is_cut_to_what_it_was() -> None:
    text = """g (float[n, 2, h, 5] x) => (float[n, 4, h, 5] y)
    {
      half = AveragePool <kernel_shape = [2, 1], strides = [2, 1], pads = [0, 0, 1, 0]> (x)
      twice = Resize <mode = "nearest"> (half, , scales)
      s = Shape (x)
      rows = Slice (s, two, three)
      cut = Slice (twice, zero, rows, two)
      y = Concat <axis = 1> (cut, x)
    }"""
    proto = parsed(
        text,
        scales=np.array([1, 1, 2, 1], np.float32),
        zero=np.array([0]),
        two=np.array([2]),
        three=np.array([3]),
    )
    each(proto, [{"x": drawn(0, n, 2, h, 5)} for n, h in ((1, 1), (2, 6), (1, 9))])


@pytest.mark.parametrize(
    "mode",
    [
        'mode = "linear", coordinate_transformation_mode = "pytorch_half_pixel"',
        slow('mode = "linear", coordinate_transformation_mode = "align_corners"'),
        slow('mode = "linear", coordinate_transformation_mode = "asymmetric"'),
        slow('mode = "cubic", coordinate_transformation_mode = "half_pixel"'),
        'mode = "cubic", coordinate_transformation_mode = "align_corners", cubic_coeff_a = -0.5',
        'mode = "cubic", coordinate_transformation_mode = "half_pixel_symmetric", exclude_outside = 1',
        slow('mode = "nearest", nearest_mode = "round_prefer_ceil"'),
        'mode = "nearest", nearest_mode = "ceil", coordinate_transformation_mode = "align_corners"',
    ],
)
def test_an_image_is_stretched_to_the_size_of_another(mode: str) -> None:
    text = """g (float[n, 2, h, 3] x, float[n, 1, r, 6] z) => (float[n, 2, r, 3] y)
    {
      s = Shape <start = 2, end = 3> (z)
      size = Concat <axis = 0> (first, s, last)
      y = Resize <MODE> (x, , , size)
    }"""
    text = text.replace("float[n, 2, h, 3]", "float[1, 2, h, 3]").replace("n,", "1,")
    proto = parsed(text.replace("MODE", mode), first=np.array([1, 2]), last=np.array([3]))
    each(
        proto, [{"x": drawn(0, 1, 2, h, 3), "z": drawn(1, 1, 1, r, 6)} for h, r in ((4, 7), (9, 2))]
    )


@pytest.mark.parametrize("opset", [7, 8])
def test_the_oldest_scales_are_an_attribute(opset: int) -> None:
    proto = parsed(
        """g (float[n, 2, h, 3] x) => (float[n, 2, p, q] y)
        { y = Upsample <mode = "nearest", scales = [1.0, 1.0, 3.0, 2.0]> (x) }""",
        opset,
    )
    model = oc.from_onnx(proto, threads=1)
    for n, h in ((1, 2), (3, 1)):
        x = drawn(n, n, 2, h, 3)
        np.testing.assert_array_equal(model({"x": x})["y"], x.repeat(3, 2).repeat(2, 3))


def test_old_limits_are_those_of_float32_and_old_masks_are_numbers() -> None:
    proto = parsed(
        """g (float[n] x) => (float[n] y, float[n] z, float[n] kept)
        { y = Clip (x)  z, kept = Dropout <ratio = 0.5> (y) }""",
        7,
    )
    most = np.finfo(np.float32).max
    x = np.array([np.inf, -np.inf, 1.5], np.float32)
    found = oc.from_onnx(proto, threads=1)({"x": x})
    np.testing.assert_array_equal(found["y"], np.array([most, -most, 1.5], np.float32))
    np.testing.assert_array_equal(found["z"], found["y"])
    np.testing.assert_array_equal(found["kept"], np.ones(3, np.float32))


def test_lengths_of_float16_are_rounded_once() -> None:
    proto = parsed(
        """g (float16[n, 64] x) => (float16[n] y, float16[n, 64] z)
        { y = ReduceL2 <keepdims = 0> (x, a)  z = LpNormalization (x) }""",
        a=np.array([1]),
    )
    x = (300 * drawn(1, 3, 64)).astype(np.float16)
    found, length = oc.from_onnx(proto, threads=1)({"x": x}), np.linalg.norm(x.astype("f8"), axis=1)
    agree(found["y"], length, units=16)
    agree(found["z"], x / length[:, None], units=16)


def test_a_symbolic_image_is_stretched_by_a_fraction() -> None:
    text = """g (float[1, 2, h, 3] x) => (float[1, 2, r, 3] y)
    { y = Resize <mode = "cubic"> (x, , scales) }"""
    proto = parsed(text, scales=np.array([1, 1, 1.5, 1], np.float32))
    each(proto, [{"x": drawn(0, 1, 2, h, 3)} for h in (1, 2, 9)])
    with pytest.raises(oc.DescribeError, match=r"Resize y: cannot take scale=0\.3141"):
        oc.from_onnx(parsed(text, scales=np.array([1, 1, 0.31415926, 1], np.float32)))


@pytest.mark.parametrize(
    "how",
    [
        "",
        "dilations = [2, 1, 1],",
        "pads = [1, 0, 1, 1, 0, 1],",
        "pads = [1, 0, 1, 1, 0, 1], count_include_pad = 1,",
    ],
)
def test_volumes_of_any_size_are_averaged(how: str) -> None:
    proto = parsed(f"""g (float[b, 2, 5, h, w] x) => (float[b, 2, p, q, r] y) {{
        y = AveragePool <{how} kernel_shape = [3, 1, 2]> (x) }}""")
    each(proto, [{"x": drawn(1, b, 2, 5, h, w)} for b, h, w in ((1, 2, 2), (3, 4, 5))])


def test_an_axis_that_is_a_vector_of_one_is_a_number() -> None:
    proto = parsed("""g (float[n, 3] x) => (float[n, 3] y) {
        steps = CumSum (times, axis)  y = Add (x, steps) }""",
        times=np.array([1, 2, 4], np.float32), axis=np.array([0]))  # fmt: skip
    model, x = oc.from_onnx(proto, threads=1), drawn(1, 2, 3)
    agree(model({"x": x})["y"], x + np.array([1.0, 3.0, 7.0]), terms=8)


def test_a_scan_of_known_length_is_its_steps() -> None:
    text = """g (float[b] start, float[4, b] x) => (float[b] last, float[4, b] all)
    { last, all = Scan <num_scan_inputs = 1, body =
        step (float[b] state, float[b] one) => (float[b] next, float[b] out)
        { next = Add (state, one)  out = Mul (next, next) }> (start, x) }"""
    each(parsed(text), [{"start": drawn(1, b), "x": drawn(2, 4, b)} for b in (1, 5)])


def test_a_loop_without_a_trip_count_runs_while_its_condition_holds() -> None:
    text = """g (float[n] x) => (float[n] y) <bool on = {1}, int64 four = {4}>
    { y = Loop ("", on, x) <body = step (int64 i, bool going, float[n] a) => (bool more, float[n] b)
        { more = Less (i, four)  j = Cast <to = 1> (i)  b = Add (a, j) }> }"""
    each(parsed(text), [{"x": drawn(1, n)} for n in (1, 5)])


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


def test_an_input_that_no_call_changes_is_given_at_import() -> None:
    text = "g (float[n, 6] x, int64[2] to) => (float[a, b] y) { y = Reshape (x, to) }"
    feeds = {"x": drawn(0, 4, 6)}
    with pytest.raises(oc.DescribeError, match="its shape is not known at import"):
        oc.from_onnx(parsed(text))
    model = oc.from_onnx(parsed(text), constants={"to": np.array([-1, 3])}, threads=1)
    np.testing.assert_array_equal(model(feeds)["y"], feeds["x"].reshape(-1, 3))


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
