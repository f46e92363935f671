"""`from_onnx`: sizes that make a node fit, and what is calculated with sizes whose sign is not seen; sequences, and places between elements."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the extra onnx is not installed")

import onnx
from conftest import rejection, slow

import offcut as oc
from tests.agree import agree, of_peer
from tests.plugins.test_onnx import drawn, each, parsed


def bounds(model: Any) -> dict[str, tuple[int, int]]:
    return {size.name: (size.min, size.max) for size in model.sizes}


PLACES = """g (float[b, n, 4] x) => (float[b, n, 4] y) {
    shape = Shape (x)  n = Gather <axis = 0> (shape, one)  from = Constant <value_ints = [0]> ()
    to = Unsqueeze (n, from)  part = Slice (table, from, to)  y = Add (x, part) }"""


def test_a_length_runs_up_to_the_table_that_is_added_to_it() -> None:
    proto = parsed(PLACES, table=drawn(1, 12, 4), one=np.array(1))
    feeds = [{"x": drawn(2, b, n, 4)} for b, n in ((1, 1), (3, 12), (2, 5))]
    model = each(proto, feeds)
    assert bounds(model)["n"] == (1, 12)
    with pytest.raises(oc.CallError, match=r"cannot take n = 13"):
        model({"x": drawn(2, 1, 13, 4)})


def test_what_is_divided_by_its_last_row_has_one() -> None:
    proto = parsed("""g (float[b, h, 4] x) => (float[b, r, 4] y) {
        turned = Transpose <perm = [0, 2, 1]> (x)  eighth = MaxPool <kernel_shape = [8], strides = [8]> (turned)
        rows = Transpose <perm = [0, 2, 1]> (eighth)  last = Slice (rows, from, end, axis)
        y = Div (rows, last) }""", **{"from": np.array([-1]), "end": np.array([1000])}, axis=np.array([1]))  # fmt: skip
    model = each(proto, [{"x": drawn(1, b, h, 4)} for b, h in ((1, 8), (2, 31), (3, 40))])
    assert bounds(model)["h"][0] == 8


def test_a_length_that_is_bounded_beyond_the_table_is_refused() -> None:
    proto = parsed(PLACES, table=drawn(1, 12, 4), one=np.array(1))
    with rejection("""\
UnsupportedNodesError: from_onnx: cannot take one node of g
  because  Add y: cannot join the shapes of x and slice: axis 1 of x is n, axis 0 of slice is extent2
  help     from_onnx(…, sizes={"n": …}) at which n is min(12, n): n is axis 1 of the input x"""):
        oc.from_onnx(proto, sizes={"n": (1, 40)})


def test_an_extent_that_only_one_number_fits_is_that() -> None:
    proto = parsed("""g (float[b, c, h, w] x, float[b, n] y) => (float[b, 2, p, q] z, float[b, m] t) {
        z = Conv (x, kernel)  t = Gemm (y, table) }""",
        kernel=drawn(1, 2, 3, 3, 3), table=drawn(2, 5, 5))  # fmt: skip
    feeds = [{"x": drawn(3, b, 3, h, 4), "y": drawn(4, b, 5)} for b, h in ((1, 3), (2, 7), (5, 4))]
    model = each(proto, feeds)
    assert {*bounds(model)} == {"b", "h", "w"}
    with pytest.raises(oc.CallError):
        model({"x": drawn(3, 1, 4, 5, 5), "y": drawn(4, 1, 5)})


def test_a_length_that_the_exporter_wrote_into_a_shape_is_that() -> None:
    """As of `torch.nn.MultiheadAttention`, which is exported for one length: the batch still varies."""
    proto = parsed("""g (float[s, b, 6] x) => (float[s, k, 3] y) {
        shape = Shape (x)  b = Gather (shape, one)  twice = Mul (b, two)
        to = Concat <axis = 0> (five, twice, three)  y = Reshape (x, to) }""",
        one=np.array([1]), two=np.array([2]), five=np.array([5]), three=np.array([3]))  # fmt: skip
    model = each(proto, [{"x": drawn(1, 5, b, 6)} for b in (1, 2, 7)])
    assert {*bounds(model)} == {"b"}
    with pytest.raises(oc.CallError, match=r"axis 0 is 5, not 4"):
        model({"x": drawn(1, 4, 2, 6)})


QUARTERS = (
    "g (float[b, 1, n] x) => (float[b, p, q] z) { c = Conv <strides = [4]> (x, kernel)  z = %s }"
)


@pytest.mark.parametrize("node", ["Reshape (c, to)", "MatMul (c, row)", "Squeeze (c, last)"])
@pytest.mark.parametrize("given", [{}, {"n": (4, 7)}])
def test_an_extent_that_must_be_one_is_it_where_the_model_runs(
    node: str, given: dict[str, tuple[int, int]]
) -> None:
    held = {"to": np.array([0, 2]), "row": drawn(1, 1, 3), "last": np.array([2])}
    (name,) = {"to", "row", "last"} & {*node.replace(")", " ").split()}
    proto = parsed(QUARTERS % node, kernel=drawn(1, 2, 1, 4), **{name: held[name]})
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    model = each(
        proto, [{"x": drawn(2, b, 1, n)} for b, n in ((1, 4), (3, 6), (2, 7))], sizes=given
    )
    assert bounds(model)["n"] == (4, 7)
    with pytest.raises(oc.CallError):
        model({"x": drawn(2, 1, 1, 8)})


def test_a_state_of_one_row_says_that_the_batch_is_one() -> None:
    proto = parsed("""g (float[s, batch, 4] x, float[1, 1, 6] h) => (float[s, d, batch, 6] y) {
        y = GRU <hidden_size = 6> (x, w, r, , , h) }""", w=drawn(1, 1, 18, 4), r=drawn(2, 1, 18, 6))  # fmt: skip
    model = each(proto, [{"x": drawn(s, s, 1, 4), "h": drawn(s, 1, 1, 6)} for s in (1, 5)])
    assert {*bounds(model)} == {"s"}


@pytest.mark.parametrize("name", ["?", "*", "-1", "-2", "None", "unk", "unknown", "dynamic", ""])
def test_a_text_for_what_an_exporter_does_not_know_is_no_name(name: str) -> None:
    proto = parsed("g (float[b, h, w] x) => (float[b, p, q] y) { y = Relu (x) }")
    for dim in proto.graph.input[0].type.tensor_type.shape.dim[1:]:
        dim.dim_param = name
    model = each(proto, [{"x": drawn(1, 2, h, w)} for h, w in ((3, 5), (4, 1))])
    assert {*bounds(model)} == {"b", "x_1", "x_2"}


def test_an_output_may_have_no_shape_and_no_type() -> None:
    proto = parsed(
        "g (float[b, 4] x) => (float[b, 4] y, float[b, 4] z) { y = Relu (x)  z = Neg (x) }"
    )
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    proto.graph.output[1].ClearField("type")
    model = oc.from_onnx(proto, threads=1)
    x = drawn(1, 3, 4)
    made = model({"x": x})
    agree(made["y"], of_peer(np.maximum(x, 0)))
    agree(made["z"], of_peer(-x))


def test_extents_that_a_constant_has_are_its_numbers() -> None:
    proto = parsed("g (float[b, n] x) => (float[p, q] y) { y = Add (x, v) }", v=drawn(1, 3, 5))
    model = each(proto, [{"x": drawn(2, 3, 5)}])
    assert not model.sizes
    with pytest.raises(oc.CallError, match="axis 0 is 3, not 4"):
        model({"x": drawn(2, 4, 5)})


def test_sizes_that_are_not_derived_are_asked_for_by_their_axes() -> None:
    proto = parsed("g (float[b, h, w] x) => (float[b, n] y) { y = Reshape (x, to) }", to=np.array([0, 100]))  # fmt: skip
    with rejection("""\
UnsupportedNodesError: from_onnx: cannot take one node of g
  because  Reshape y: cannot take x as [b, 100]: it is not seen to have as many elements
  help     from_onnx(…, sizes={"h": …, "w": …}) at which h * w is 100: h is axis 1 of the input x, w is axis 2 of the input x"""):
        oc.from_onnx(proto)
    each(proto, [{"x": drawn(1, b, 5, 20)} for b in (1, 3)], sizes={"h": 5})
    with pytest.raises(oc.DescribeError) as bounded:
        oc.from_onnx(JOINED_TWICE, sizes={"a": (1, 9), "b": (1, 9)})
    assert bounded.value.help == (
        'from_onnx(…, sizes={"a": …, "b": …}) at which a is b: a is axis 0 of the input x, b is axis 0 of the input y',
    )


JOINED_TWICE = parsed("g (float[a, 4] x, float[b, 4] y) => (float[c, 4] z) { z = Add (x, y) }")


ATTENTION = """g (float[a, s, 12] q, float[b, t, 12] k, float[c, u, 12] v, int64[d] lengths) => (float[e, f, 12] y) {{
    y = Attention <q_num_heads = 3, kv_num_heads = 3{more}> (q, k, v, , , , lengths) }}"""


@pytest.mark.parametrize("more", ["", ", is_causal = 1"])
def test_a_batch_that_each_input_of_attention_names_apart_is_one(more: str) -> None:
    head = '<ir_version: 11, opset_import: ["" : 24]> '
    proto = onnx.parser.parse_model(head + ATTENTION.format(more=more))
    model = oc.from_onnx(proto, threads=1)
    assert {*bounds(model)} == {"a", "s", "t"}
    x = {"q": drawn(1, 2, 5, 12), "k": drawn(2, 2, 7, 12), "v": drawn(3, 2, 7, 12)}
    y = model({**x, "lengths": np.array([7, 3])})["y"]
    short = {name: x[name][1:, :3] if name != "q" else x[name][1:] for name in x}
    if not more:
        agree(y[1:], of_peer(model({**short, "lengths": np.array([3])})["y"]))
    with pytest.raises(oc.CallError, match="axis 0 is 2 at a = 2, not 3"):
        model({**x, "lengths": np.array([7, 3, 1])})


def test_a_norm_of_groups_whose_channels_are_open_is_walked_once() -> None:
    """The body of a function, each node of which is refused: nothing is tried again inside of it."""
    proto = parsed("""g (float[b, c, h] x) => (float[b, d, e] y) {
        y = GroupNormalization <num_groups = 2> (x, gain, gain) }""",
        21, gain=drawn(1, 4))  # fmt: skip
    model = each(proto, [{"x": drawn(2, b, 4, h)} for b, h in ((1, 3), (2, 5))])
    assert {*bounds(model)} == {"b", "h"}


ROWS = "g (float[a, s] x, float[b, t] y, float[c, u] z) => (float[e, f] o) {{ o = {} }}"


@pytest.mark.parametrize(
    ("node", "sizes"),
    [
        ("Max (x, y, z)", {"a", "s"}),
        ("Gemm <transB = 1> (x, y)", {"a", "s", "b", "c", "u"}),
        ('Einsum <equation = "ij,jk->ik"> (x, y)', {"a", "s", "t", "c", "u"}),
        ("Concat <axis = 1> (x, y, z)", {"a", "s", "t", "u"}),
    ],
)
def test_axes_that_a_node_joins_are_one_size(node: str, sizes: set[str]) -> None:
    assert {*bounds(oc.from_onnx(parsed(ROWS.format(node)), threads=1))} == sizes


def test_extents_inside_of_loops_and_sequences_are_one_size() -> None:
    scan = """g (float[k] first, float[3, m] x) => (float[k] last) { last = Scan <num_scan_inputs = 1, body =
        step (float[k] state, float[k] one) => (float[k] next) { next = Add (state, one) }> (first, x) }"""
    assert {*bounds(oc.from_onnx(parsed(scan), threads=1))} == {"k"}
    loop = """g (float[k] first, float[m] x) => (float[k] last) <int64 n = {3}, bool go = {1}> {
        last = Loop <body = step (int64 i, bool more, float[k] state) => (bool again, float[k] next) {
            next = Add (state, x)  again = Identity (more) }> (n, go, first) }"""
    assert {*bounds(oc.from_onnx(parsed(loop), threads=1))} == {"k"}
    sequence = """g (float[n, 6] x, float[m, 6] z) => (float[n, 6] y) <int64 place = {0}> {
        both = SequenceConstruct (x, z)  first = SequenceAt (both, place)  y = Add (first, z) }"""
    assert {*bounds(oc.from_onnx(parsed(sequence), threads=1))} == {"n"}


def test_an_axis_that_is_split_has_the_elements_of_its_parts() -> None:
    proto = parsed("g (float[n, 6] x) => (float[p, 6] y, float[q, 6] z) { y, z = Split <axis = 0> (x, parts) }",
        parts=np.array([2, 3]))  # fmt: skip
    assert not each(proto, [{"x": drawn(1, 5, 6)}]).sizes
    with rejection("""\
UnsupportedNodesError: from_onnx: cannot take one node of g
  because  Split y: parts of 2, 3 elements, of n
  help     from_onnx(…, sizes={"n": …}) at which n is 5: n is axis 0 of the input x"""):
        oc.from_onnx(proto, sizes={"n": (5, 9)})


def test_a_reshape_that_names_the_batch_of_another_input_has_it() -> None:
    proto = parsed("""g (float[a, s, 6] x, float[b, t] y) => (float[p, q, 2, 3] z) {
        first = Shape <end = 1> (y)  to = Concat <axis = 0> (first, rest, two)  z = Reshape (x, to) }""",
        rest=np.array([-1]), two=np.array([2, 3]))  # fmt: skip
    model = each(proto, [{"x": drawn(1, b, s, 6), "y": drawn(2, b, 3)} for b, s in ((1, 1), (3, 2))])  # fmt: skip
    assert {*bounds(model)} == {"a", "s", "t"}


JOINED = """g (float[a, s, 4] x, float[b, 4] y, float[c, t, 4] z) => (float[p, q, 4] o, float[e, f, 4] j) {
    wide = Unsqueeze (y, one)  u = Add (x, wide)  j = Concat <axis = 1> (u, z)  o = Mul (u, x) }"""


def test_sizes_that_nodes_take_as_equal_alone_are_one() -> None:
    proto = parsed(JOINED, one=np.array([1]))
    sizes = ((1, 1, 1), (3, 2, 5), (2, 7, 3))
    feeds = [{"x": drawn(1, b, s, 4), "y": drawn(2, b, 4), "z": drawn(3, b, t, 4)} for b, s, t in sizes]  # fmt: skip
    model = each(proto, feeds)
    assert {*bounds(model)} == {"a", "s", "t"}
    with rejection("""CallError: run: cannot take y of shape (3, 4)
  at       input y: float32[a, 4]
  because  axis 0 is 2 at a = 2, not 3"""):
        model({"x": drawn(1, 2, 3, 4), "y": drawn(2, 3, 4), "z": drawn(3, 2, 2, 4)})
    assert bounds(oc.from_onnx(proto, sizes={"b": (2, 9)}))["b"] == (2, 9)
    with pytest.raises(oc.DescribeError, match="axis 0 of x is a, axis 0 of reshape is b"):
        oc.from_onnx(proto, sizes={"a": (1, 9), "b": (1, 9)})


def test_sizes_at_several_places_are_one() -> None:
    products = parsed("""g (float[a, s, 4] x, float[b, t, 4] y) => (float[p, q, 4] o) {
        turned = Transpose <perm = [0, 2, 1]> (y)  w = MatMul (x, turned)  o = MatMul (w, x) }""")
    feeds = [{"x": drawn(1, b, s, 4), "y": drawn(2, b, s, 4)} for b, s in ((1, 1), (3, 2))]
    assert {*bounds(each(products, feeds))} == {"a", "s"}
    shaped = parsed("""g (float[a, 4] x, float[b, 3] y) => (float[p, 2, 2] o) {
        first = Shape <end = 1> (y)  to = Concat <axis = 0> (first, two, two)  o = Reshape (x, to) }""",
        two=np.array([2]))  # fmt: skip
    feeds = [{"x": drawn(1, b, 4), "y": drawn(2, b, 3)} for b in (1, 5)]
    assert {*bounds(each(shaped, feeds))} == {"a"}


def cut_mask() -> Any:
    """A mask of some length, cut to that of what it is multiplied with."""
    return parsed("""g (float[b, n, 4] x, float[b, m] mask) => (float[b, n, 4] y) {
        n = Shape <start = 1, end = 2> (x)  cut = Slice (mask, zero, n, one)
        wide = Unsqueeze (cut, two)  y = Mul (x, wide) }""",
        zero=np.array([0]), one=np.array([1]), two=np.array([2]))  # fmt: skip


def test_a_mask_that_is_cut_to_a_length_has_it() -> None:
    proto = cut_mask()
    model = each(proto, [{"x": drawn(1, b, n, 4), "mask": drawn(2, b, n)} for b, n in ((1, 1), (2, 5))])  # fmt: skip
    assert {*bounds(model)} == {"b", "n"}


@pytest.mark.parametrize("first", [slow(""), "last = Slice (mask, from, total, one)"])
def test_a_size_that_is_the_sum_of_others_is_that(first: str) -> None:
    proto = parsed(f"""g (float[b, past, 4] k, float[b, new, 4] x, float[b, total] mask)
        => (float[b, p, 4] all, float[b, q, r] scores) {{
        new = Shape <start = 1, end = 2> (x)  total = Shape <start = 1> (mask)  from = Sub (total, new)  {first}
        all = Concat <axis = 1> (k, x)  turned = Transpose <perm = [0, 2, 1]> (all)
        raw = MatMul (x, turned)  wide = Unsqueeze (mask, one)  scores = Add (raw, wide) }}""",
        one=np.array([1]))  # fmt: skip
    feeds = [
        {"k": drawn(1, b, past, 4), "x": drawn(2, b, new, 4), "mask": drawn(3, b, past + new)}
        for b, past, new in ((1, 1, 1), (2, 5, 1), (3, 2, 4))
    ]
    model = each(proto, feeds)
    assert {*bounds(model)} == {"b", "past", "new"}
    with pytest.raises(oc.CallError, match="axis 1 is 7 at new = 1, past = 6, not 6"):
        model({**feeds[1], "k": drawn(1, 2, 6, 4)})


@pytest.mark.parametrize(("start", "least"), [("Sub (one, n)", 2), ("Sub (n, three)", 3)])
def test_a_size_is_large_enough_for_a_place_on_one_side_of_0(start: str, least: int) -> None:
    proto = parsed(f"""g (float[b, n] x) => (float[b, p] y) {{
        n = Shape <start = 1> (x)  from = {start}  end = Add (n, one)
        y = Slice (x, from, end, one) }}""", one=np.array([1]), three=np.array([3]))  # fmt: skip
    model = each(proto, [{"x": drawn(1, 2, n)} for n in (least, least + 1, 9)])
    assert bounds(model)["n"][0] == least


@pytest.mark.parametrize("by", [-2, 2])
def test_a_number_of_places_around_an_axis_is_less_than_its_extent(by: int) -> None:
    proto = parsed("""g (float[b, n] x) => (float[b, m] y) {
        n = Shape <start = 1> (x)  place = Mod (by, n)  first = Slice (x, zero, place, one)
        last = Slice (x, place, n, one)  y = Concat <axis = 1> (last, first) }""",
        by=np.array([by]), zero=np.array([0]), one=np.array([1]))  # fmt: skip
    feeds = [{"x": drawn(1, b, n)} for b, n in ((1, abs(by) + (by > 0)), (3, 5))]
    model = each(proto, feeds)
    np.testing.assert_array_equal(model(feeds[1])["y"], np.roll(feeds[1]["x"], -by, 1))


def test_an_axis_that_is_taken_apart_is_of_a_number() -> None:
    proto = parsed("""g (float[b, n] x) => (float[p] y) {
        parts = SplitToSequence <axis = 1, keepdims = 0> (x)  y = SequenceAt (parts, place) }""",
        place=np.array(1))  # fmt: skip
    with rejection("""\
UnsupportedNodesError: from_onnx: cannot take one node of g
  because  SplitToSequence parts: an extent that is split in parts of one size is n, which is not a number
  help     from_onnx(…, sizes={…}) where a call never changes n"""):
        oc.from_onnx(proto)
    x = drawn(1, 4, 2)
    (found,) = oc.from_onnx(proto, sizes={"n": 2})({"x": x}).values()
    assert np.array_equal(found, x[:, 1])


@pytest.mark.parametrize("up", ["2*((h+1)/2)", "2*(h/2)"])
def test_an_image_that_is_halved_doubled_and_joined_is_even(up: str) -> None:
    pads = "[1, 1, 1, 1]" if "+" in up else "[0, 0, 0, 0]"
    size = "[3, 3]" if "+" in up else "[2, 2]"
    proto = parsed(f"""g (float[b, 2, h, w] x) => (float[b, 4, h, w] y) {{
        half = MaxPool <kernel_shape = {size}, strides = [2, 2], pads = {pads}> (x)
        again = Resize <mode = "nearest"> (half, , scales)  y = Concat <axis = 1> (x, again) }}""",
        scales=np.array([1, 1, 2, 2], np.float32))  # fmt: skip
    model = each(proto, [{"x": drawn(1, b, 2, h, w)} for b, h, w in ((1, 2, 4), (3, 6, 2))])
    with pytest.raises(oc.CallError):
        model({"x": drawn(1, 1, 2, 3, 4)})


def test_an_image_that_is_halved_three_times_is_a_multiple_of_eight() -> None:
    proto = parsed("""g (float[1, 2, h, 8] x) => (float[1, 2, p, 4] y) {
        half = MaxPool <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (x)
        quarter = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (half)
        eighth = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (quarter)
        again = Resize <mode = "nearest"> (eighth, , scales)  y = Add (quarter, again) }""",
        scales=np.array([1, 1, 2, 2], np.float32))  # fmt: skip
    model = each(proto, [{"x": drawn(1, 1, 2, h, 8)} for h in (8, 24)])
    with pytest.raises(oc.CallError):
        model({"x": drawn(1, 1, 2, 12, 8)})


def test_floats_are_counted_up_to_a_size() -> None:
    proto = parsed("""g (float[b, n] x) => (float[b, n] y, float[n] z) {
        shape = Shape (x)  n = Gather <axis = 0> (shape, last)  float = Cast <to = 1> (n)
        up = Range (zero, float, one)  y = Add (x, up)
        half = Div (up, two)  z = Mul (half, float) }""",
        last=np.array(1), zero=np.float32(0), one=np.float32(1), two=np.float32(2))  # fmt: skip
    each(proto, [{"x": drawn(1, b, n)} for b, n in ((1, 1), (2, 7))])
    centres = parsed("""g (float[b, n] x) => (float[b, n] y, float[k] z, float[m] w) {
        shape = Shape (x)  n = Gather <axis = 0> (shape, last)  float = Cast <to = 1> (n)
        up = Range (half, float, one)  y = Add (x, up)
        z = Range (half, float, step)  w = Range (float, half, back) }""",
        last=np.array(1), one=np.float32(1), half=np.float32(0.5), step=np.float32(0.75),
        back=np.float32(-1.5))  # fmt: skip
    each(centres, [{"x": drawn(1, b, n)} for b, n in ((2, 7), (1, 1), (1, 2), (3, 9))])


@pytest.mark.parametrize("step", [0.1, 0.0])
def test_floats_that_are_counted_by_what_is_no_binary_fraction_are_refused(step: float) -> None:
    down = parsed("""g (double[b, n] x) => (double[b, n] y) {
        shape = Shape (x)  n = Gather <axis = 0> (shape, last)  float = Cast <to = 11> (n)
        up = Range (zero, float, step)  y = Add (x, up) }""",
        last=np.array(1), zero=np.float64(0), step=np.float64(step))  # fmt: skip
    with rejection(f"""\
UnsupportedNodesError: from_onnx: cannot take one node of g
  because  Range up: a range of float64 from 0 to n by {step or 0}
  help     ends and a step that are multiples of 1/4096, the step no size and not 0"""):
        oc.from_onnx(down)


def test_floats_beside_sizes_are_cut_off_to_integers() -> None:
    proto = parsed("""g (float[b, n] x) => (int64[two] y, float[b, n, k] z) {
        shape = Shape (x)  n = Gather <axis = 0> (shape, last)  float = Cast <to = 1> (n)
        mixed = Concat <axis = 0> (float, number)  whole = Cast <to = 7> (mixed)  y = Mul (whole, three)
        column = Unsqueeze (x, last2)  one = Slice (whole, last, last2)  rows = Expand (column, one)
        z = Identity (rows) }""",
        last=np.array([1]), last2=np.array([2]), number=np.float32([2.5]), three=np.array([3]))  # fmt: skip
    each(proto, [{"x": drawn(1, b, n)} for b, n in ((1, 1), (2, 7))])


@pytest.mark.every(8)
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize(("size", "stride", "pad"), [(3, 2, 0), (3, 2, 1), (2, 3, 0), (2, 2, 1)])
def test_windows_are_rounded_up_at_every_size(op: str, size: int, stride: int, pad: int) -> None:
    proto = parsed(f"""g (float[b, 2, h, 9] x) => (float[b, 2, p, q] y) {{
        y = {op} <kernel_shape = [{size}, {size}], strides = [{stride}, {stride}],
                  pads = [{pad}, {pad}, {pad}, {pad}], ceil_mode = 1> (x) }}""")  # fmt: skip
    each(proto, [{"x": drawn(1, b, 2, h, 9)} for b, h in ((1, 3), (2, 4), (1, 8), (3, 11))])


def test_a_padding_by_sizes_brings_an_image_to_another() -> None:
    proto = parsed("""g (float[b, n] x, float[b, m] y) => (float[b, m] z) {
        zero = Constant <value_ints = [0]> ()  s = Shape <start = 1> (x)  t = Shape <start = 1> (y)
        more = Sub (t, s)  pads = Concat <axis = 0> (zero, zero, zero, more)
        wide = Pad (x, pads, value)  z = Add (wide, y) }""", value=np.array(2.5, np.float32))  # fmt: skip
    sizes = ((1, 2, 5), (3, 4, 4), (2, 7, 3))
    model = oc.from_onnx(proto, threads=1)
    for b, n, m in sizes:
        x, y = drawn(1, b, n), drawn(2, b, m)
        wide = np.pad(x, ((0, 0), (0, max(m - n, 0))), constant_values=2.5)[:, :m]
        agree(model({"x": x, "y": y})["z"], of_peer(wide + y))


def test_an_extent_is_divided_by_an_extent_of_several_terms() -> None:
    proto = parsed("""g (float[b, n, 6] x) => (float[b, p, q, 3] y) {
        first = Constant <value_ints = [1]> ()  last = Constant <value_ints = [-1]> ()
        less = Slice (x, first, end, first)  s = Shape <end = 2> (less)  t = Constant <value_ints = [-1, 3]> ()
        to = Concat <axis = 0> (s, t)  y = Reshape (less, to) }""", end=np.array([1000]))  # fmt: skip
    each(proto, [{"x": drawn(1, b, n, 6)} for b, n in ((1, 2), (2, 7))])


def test_sequences_that_are_known_leave_nothing() -> None:
    proto = parsed("""g (float[n, 6] x) => (float[n, 5] y, float[2, n, 2] z, int64 count, bool some) {
        parts = SplitToSequence <axis = 1> (x, sizes)  zero = Constant <value_int = 0> ()
        one = SequenceAt (parts, two)  more = SequenceInsert (parts, one, zero)
        less = SequenceErase (more, last)  y = ConcatFromSequence <axis = 1> (less)
        same = SequenceConstruct (one, one)  z = ConcatFromSequence <axis = 0, new_axis = 1> (same)
        count = SequenceLength (more)  maybe = Optional (x)  some = OptionalHasElement (x) }""",
        sizes=np.array([1, 3, 2]), two=np.array(2), last=np.array(2))  # fmt: skip
    model = oc.from_onnx(proto, threads=1)
    for n in (1, 4):
        x = drawn(1, n, 6)
        found = model({"x": x})
        np.testing.assert_array_equal(found["y"], np.concatenate([x[:, 4:], x[:, :1], x[:, 4:]], 1))
        np.testing.assert_array_equal(found["z"], np.stack([x[:, 4:]] * 2))
        assert (found["count"], found["some"]) == (4, True)


# Each of these beside each of the others is slow, and cubic ones are most of all; here is each pair of what is around and corners.
IN_SHORT = {("nearest", "zeros", 0), ("nearest", "border", 1), ("linear", "reflection", 1)}


@pytest.mark.parametrize(
    ("mode", "around", "corners"),
    [
        one if one in IN_SHORT else slow(*one)
        for one in product(
            ("linear", "nearest", "cubic"), ("zeros", "border", "reflection"), (0, 1)
        )
    ],
)
def test_images_are_read_between_their_elements(mode: str, around: str, corners: int) -> None:
    proto = parsed(f"""g (float[b, c, h, w] x, float[b, p, q, 2] at) => (float[b, c, p, q] y) {{
        y = GridSample <mode = "{mode}", padding_mode = "{around}", align_corners = {corners}> (x, at) }}""")  # fmt: skip
    mirrored = around == "reflection" and corners  # about one element: the reference divides by 0
    sizes = (1, 4), (2, 3), (2, 2 if mirrored else 1)
    feeds = [{"x": drawn(1, b, 2, h, 5), "at": drawn(2, b, 3, h, 2)} for b, h in sizes]
    each(proto, feeds)


@pytest.mark.parametrize("mode", ["reflect", "edge"])
def test_what_is_put_around_an_axis_may_be_as_many_as_a_size_says(mode: str) -> None:
    proto = parsed(f"""g (float[b, h] x) => (float[b, p] y) {{
        shape = Shape (x)  h = Slice (shape, one, two)  rest = Neg (h)  more = Mod (rest, four)
        pads = Concat <axis = 0> (nothing, more)  y = Pad <mode = "{mode}"> (x, pads) }}""",
        one=np.array([1]), two=np.array([2]), four=np.array([4]), nothing=np.array([0, 1, 0]))  # fmt: skip
    each(proto, [{"x": drawn(1, b, h)} for b, h in ((1, 4), (3, 6), (2, 11), (1, 3))])


@pytest.mark.parametrize(("columns", "factor"), [(5, 32), (8, 4), (64, 1)])
def test_rows_of_a_literal_length_leave_no_rest(columns: int, factor: int) -> None:
    text = f"g (float[n, {columns}] x) => (float[a, 32] y) {{ y = Reshape (x, to) }}"
    proto = parsed(text, to=np.array([-1, 32]))
    model = each(proto, [{"x": drawn(n, n * factor, columns)} for n in (1, 2, 3)])
    if factor > 1:
        with pytest.raises(oc.CallError, match=rf"no n_{factor} makes {factor}\*n_{factor} that"):
            model({"x": drawn(1, factor + 1, columns)})


def test_rows_of_a_literal_length_that_leave_a_rest_are_refused() -> None:
    text = "g (float[5, 7] x) => (float[a, 32] y) { y = Reshape (x, to) }"
    with pytest.raises(oc.DescribeError) as refused:
        oc.from_onnx(parsed(text, to=np.array([-1, 32])))
    assert refused.value.because == (
        "Reshape y: it has 35 elements, and [-1, 32] is of a multiple of 32"
    )
