"""`from_onnx`: what nodes say of the sizes of a file: which are one, their bounds, their multiples; and which nodes do without."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the extra onnx is not installed")

import onnx
from conftest import rejection

import offcut as oc
from tests.agree import agree, of_peer
from tests.plugins.test_onnx import calls, drawn, each, parsed

Sizes = dict[str, int]


@dataclass(frozen=True)
class Model:
    """A model, and what is seen of its sizes.

    taken    the values of names of the file, call by call
    sizes    what is left of them; with bounds, where these are not from 1 on
    refused  values of a call that is refused
    because  a part of the refusal
    given    sizes of the import
    """

    text: str
    weights: dict[str, Any]
    taken: dict[str, tuple[int, ...]]
    sizes: str
    refused: Sizes = field(default_factory=dict)
    because: str = ""
    given: dict[str, Any] = field(default_factory=dict)


QUARTERS = (
    "g (float[b, 1, n] x) => (float[b, p, q] z) { c = Conv <strides = [4]> (x, kernel)  z = %s }"
)
KERNEL = drawn(1, 2, 1, 4)
HALVES = """g (float[b, 2, h, w] x) => (float[b, 4, h, w] y) {
    half = MaxPool <kernel_shape = %s, strides = [2, 2], pads = %s> (x)
    again = Resize <mode = "nearest"> (half, , scales)  y = Concat <axis = 1> (x, again) }"""
PLACE = """g (float[b, n] x) => (float[b, p] y) {
    n = Shape <start = 1> (x)  from = %s  end = Add (n, one)  y = Slice (x, from, end, one) }"""
AROUND = """g (float[b, n] x) => (float[b, m] y) {
    n = Shape <start = 1> (x)  place = Mod (by, n)  first = Slice (x, zero, place, one)
    last = Slice (x, place, n, one)  y = Concat <axis = 1> (last, first) }"""
ROWS = "g (float[n, %d] x) => (float[a, 32] y) { y = Reshape (x, to) }"

MODELS = {
    "a window fits into its image": Model(
        "g (float[n, 1, h, 9] x) => (float[n, 1, r, 5] y) { y = Conv (x, k) }", {"k": drawn(1, 1, 1, 5, 5)},
        {"n": (2, 1), "h": (7, 4)}, "n, h in 4…", {"n": 2, "h": 3},
    ),
    "an axis that is split is a multiple of its parts": Model(
        """g (float[b, h, 6] x) => (float[b, h, 6] y) {
            s = Shape (x)  b1, h1, c1 = Split <num_outputs = 3> (s)  n = Div (h1, four)
            apart = Concat <axis = 0> (b1, n, four, c1)  v = Reshape (x, apart)
            z = Softmax <axis = 2> (v)  y = Reshape (z, s) }""",
        {"four": [4]}, {"b": (1, 2), "h": (4, 12)}, "b, h_4", {"b": 1, "h": 6},
        "axis 1 is 6, and no h_4 makes 4*h_4 that",
    ),
    "a length runs up to the table that is added to it": Model(
        """g (float[b, n, 4] x) => (float[b, n, 4] y) {
            shape = Shape (x)  n = Gather <axis = 0> (shape, one)  from = Constant <value_ints = [0]> ()
            to = Unsqueeze (n, from)  part = Slice (table, from, to)  y = Add (x, part) }""",
        {"table": drawn(1, 12, 4), "one": np.array(1)}, {"b": (1, 3, 2), "n": (1, 12, 5)}, "b, n in 1…12",
        {"b": 1, "n": 13}, "cannot take n = 13",
    ),
    "what is divided by its last row has one": Model(
        """g (float[b, h, 4] x) => (float[b, r, 4] y) {
            turned = Transpose <perm = [0, 2, 1]> (x)  eighth = MaxPool <kernel_shape = [8], strides = [8]> (turned)
            rows = Transpose <perm = [0, 2, 1]> (eighth)  last = Slice (rows, from, end, axis)  y = Div (rows, last) }""",
        {"from": [-1], "end": [1000], "axis": [1]}, {"b": (1, 2, 3), "h": (8, 31, 40)}, "b, h in 8…8007",
    ),
    "an extent that only one number fits": Model(
        """g (float[b, c, h, w] x, float[b, n] y) => (float[b, 2, p, q] z, float[b, m] t) {
            z = Conv (x, kernel)  t = Gemm (y, table) }""",
        {"kernel": drawn(1, 2, 3, 3, 3), "table": drawn(2, 5, 5)},
        {"b": (1, 2, 5), "c": (3, 3, 3), "h": (3, 7, 4), "w": (4, 4, 4), "n": (5, 5, 5)}, "b, h in 2…, w in 2…",
        {"b": 1, "c": 4, "h": 5, "w": 5, "n": 5},
    ),
    "a length that an exporter wrote into a shape, as of MultiheadAttention": Model(
        """g (float[s, b, 6] x) => (float[s, k, 3] y) {
            shape = Shape (x)  b = Gather (shape, one)  twice = Mul (b, two)
            to = Concat <axis = 0> (five, twice, three)  y = Reshape (x, to) }""",
        {"one": [1], "two": [2], "five": [5], "three": [3]}, {"s": (5, 5, 5), "b": (1, 2, 7)}, "b", {"s": 4, "b": 2},
        "axis 0 is 5, not 4",
    ),
    **{
        f"an extent that must be one: {node}": Model(
            QUARTERS.replace("float[b, p, q]", "float[?, ?, ?]" if "Squeeze" not in node else "float[?, ?]") % node,
            {"kernel": KERNEL, **weight}, {"b": (1, 3, 2), "n": (4, 6, 7)}, "b, n in 4…7", {"b": 1, "n": 8},
            "cannot take", given,
        )
        for node, weight, given in (
            ("Reshape (c, to)", {"to": [0, 2]}, {}), ("MatMul (c, row)", {"row": drawn(1, 1, 3)}, {}),
            ("Squeeze (c, last)", {"last": [2]}, {}), ("Squeeze (c, last) ", {"last": [2]}, {"n": (4, 7)}),
        )
    },
    "a state of one row": Model(
        """g (float[s, batch, 4] x, float[1, 1, 6] h) => (float[s, d, batch, 6] y) {
            y = GRU <hidden_size = 6> (x, w, r, , , h) }""",
        {"w": drawn(1, 1, 18, 4), "r": drawn(2, 1, 18, 6)}, {"s": (1, 5), "batch": (1, 1)}, "s",
    ),
    "extents that a constant has": Model(
        "g (float[b, n] x) => (float[p, q] y) { y = Add (x, v) }", {"v": drawn(1, 3, 5)}, {"b": (3,), "n": (5,)}, "",
        {"b": 4, "n": 5}, "axis 0 is 3, not 4",
    ),
    "a norm of groups, which is the body of a function": Model(
        "g (float[b, c, h] x) => (float[b, d, e] y) { y = GroupNormalization <num_groups = 2> (x, gain, gain) }",
        {"gain": drawn(1, 4), "opset": 21}, {"b": (1, 2), "c": (4, 4), "h": (3, 5)}, "b, h",
    ),
    "parts of a split": Model(
        "g (float[n, 6] x) => (float[p, 6] y, float[q, 6] z) { y, z = Split <axis = 0> (x, parts) }",
        {"parts": [2, 3]}, {"n": (5,)}, "", {"n": 6},
    ),
    "a reshape that names the batch of another input": Model(
        """g (float[a, s, 6] x, float[b, t] y) => (float[p, q, 2, 3] z) {
            first = Shape <end = 1> (y)  to = Concat <axis = 0> (first, rest, two)  z = Reshape (x, to) }""",
        {"rest": [-1], "two": [2, 3]}, {"a": (1, 3), "s": (1, 2), "b": (1, 3), "t": (3, 3)}, "a, s, t",
    ),
    "a sum, a product and a join": Model(
        """g (float[a, s, 4] x, float[b, 4] y, float[c, t, 4] z) => (float[p, q, 4] o, float[e, f, 4] j) {
            wide = Unsqueeze (y, one)  u = Add (x, wide)  j = Concat <axis = 1> (u, z)  o = Mul (u, x) }""",
        {"one": [1]}, {"a": (1, 3, 2), "s": (1, 2, 7), "b": (1, 3, 2), "c": (1, 3, 2), "t": (1, 5, 3)}, "a, s, t",
        {"a": 2, "s": 3, "b": 3, "c": 2, "t": 2}, "axis 0 is 2 at a = 2, not 3",
    ),
    "a product of three": Model(
        """g (float[a, s, 4] x, float[b, t, 4] y) => (float[p, q, 4] o) {
            turned = Transpose <perm = [0, 2, 1]> (y)  w = MatMul (x, turned)  o = MatMul (w, x) }""",
        {}, {"a": (1, 3), "s": (1, 2), "b": (1, 3), "t": (1, 2)}, "a, s",
    ),
    "a shape of numbers and the batch of another": Model(
        """g (float[a, 4] x, float[b, 3] y) => (float[p, 2, 2] o) {
            first = Shape <end = 1> (y)  to = Concat <axis = 0> (first, two, two)  o = Reshape (x, to) }""",
        {"two": [2]}, {"a": (1, 5), "b": (1, 5)}, "a",
    ),
    "a mask that is cut to a length has it": Model(
        """g (float[b, n, 4] x, float[b, m] mask) => (float[b, n, 4] y) {
            n = Shape <start = 1, end = 2> (x)  cut = Slice (mask, zero, n, one)
            wide = Unsqueeze (cut, two)  y = Mul (x, wide) }""",
        {"zero": [0], "one": [1], "two": [2]}, {"b": (1, 2), "n": (1, 5), "m": (1, 5)}, "b, n",
    ),
    "a total of what is past and new": Model(
        """g (float[b, past, 4] k, float[b, new, 4] x, float[b, total] mask) => (float[b, p, 4] all, float[b, q, r] scores) {
            new = Shape <start = 1, end = 2> (x)  total = Shape <start = 1> (mask)  from = Sub (total, new)
            last = Slice (mask, from, total, one)  all = Concat <axis = 1> (k, x)
            turned = Transpose <perm = [0, 2, 1]> (all)  raw = MatMul (x, turned)
            wide = Unsqueeze (mask, one)  scores = Add (raw, wide) }""",
        {"one": [1]}, {"b": (1, 2, 3), "past": (1, 5, 2), "new": (1, 1, 4), "total": (2, 6, 6)}, "b, past, new",
        {"b": 2, "past": 6, "new": 1, "total": 6}, "axis 1 is 7 at new = 1, past = 6, not 6",
    ),
    "a place before 0": Model(PLACE % "Sub (one, n)", {"one": [1]}, {"b": (2, 2, 2), "n": (2, 3, 9)}, "b, n in 2…"),
    "a place from 0 on": Model(
        PLACE % "Sub (n, three)", {"one": [1], "three": [3]}, {"b": (2, 2, 2), "n": (3, 4, 9)}, "b, n in 3…"
    ),
    "as many places around an axis": Model(
        AROUND, {"by": [-2], "zero": [0], "one": [1]}, {"b": (1, 3), "n": (2, 5)}, "b, n in 2…"
    ),
    "as many places back": Model(
        AROUND, {"by": [2], "zero": [0], "one": [1]}, {"b": (1, 3), "n": (3, 5)}, "b, n in 3…"
    ),
    "an image that is halved, doubled and joined is even": Model(
        HALVES % ("[2, 2]", "[0, 0, 0, 0]"), {"scales": np.float32([1, 1, 2, 2])},
        {"b": (1, 3), "h": (2, 6), "w": (4, 2)}, "b, h_2, w_2", {"b": 1, "h": 3, "w": 4},
    ),
    "of windows beyond its edge too": Model(
        HALVES % ("[3, 3]", "[1, 1, 1, 1]"), {"scales": np.float32([1, 1, 2, 2])},
        {"b": (1, 3), "h": (2, 6), "w": (4, 2)}, "b, h_2, w_2", {"b": 1, "h": 3, "w": 4},
    ),
    "an image that is halved three times is a multiple of eight": Model(
        """g (float[1, 2, h, 8] x) => (float[1, 2, p, 4] y) {
            half = MaxPool <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (x)
            quarter = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (half)
            eighth = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (quarter)
            again = Resize <mode = "nearest"> (eighth, , scales)  y = Add (quarter, again) }""",
        {"scales": np.float32([1, 1, 2, 2])}, {"h": (8, 24)}, "h_8", {"h": 12},
    ),
    **{
        f"rows of {columns} as rows of 32": Model(
            ROWS % columns, {"to": [-1, 32]}, {"n": (factor, 2 * factor)}, "n" if factor == 1 else f"n_{factor}",
            {"n": factor + 1} if factor > 1 else {}, f"no n_{factor} makes {factor}*n_{factor} that",
        )
        for columns, factor in ((5, 32), (8, 4), (64, 1))
    },
    "an extent that is divided by one of several terms": Model(
        """g (float[b, n, 6] x) => (float[b, p, q, 3] y) {
            first = Constant <value_ints = [1]> ()  last = Constant <value_ints = [-1]> ()
            less = Slice (x, first, end, first)  s = Shape <end = 2> (less)  t = Constant <value_ints = [-1, 3]> ()
            to = Concat <axis = 0> (s, t)  y = Reshape (less, to) }""",
        {"end": [1000]}, {"b": (1, 2), "n": (2, 7)}, "b, n",
    ),
    "floats that are counted up to a size": Model(
        """g (float[b, n] x) => (float[b, n] y, float[n] z) {
            shape = Shape (x)  n = Gather <axis = 0> (shape, last)  float = Cast <to = 1> (n)
            up = Range (zero, float, one)  y = Add (x, up)  half = Div (up, two)  z = Mul (half, float) }""",
        {"last": np.array(1), **{name: np.float32(n) for n, name in enumerate(("zero", "one", "two"))}},
        {"b": (1, 2), "n": (1, 7)}, "b, n",
    ),
    "floats that are counted from a half, in steps, and back": Model(
        """g (float[b, n] x) => (float[b, n] y, float[k] z, float[m] w) {
            shape = Shape (x)  n = Gather <axis = 0> (shape, last)  float = Cast <to = 1> (n)
            up = Range (half, float, one)  y = Add (x, up)
            z = Range (half, float, step)  w = Range (float, half, back) }""",
        {"last": np.array(1), "one": np.float32(1), "half": np.float32(0.5), "step": np.float32(0.75), "back": np.float32(-1.5)},
        {"b": (2, 1, 1, 3), "n": (7, 1, 2, 9)}, "b, n",
    ),
    "floats beside sizes that are cut off to integers": Model(
        """g (float[b, n] x) => (int64[two] y, float[b, n, k] z) {
            shape = Shape (x)  n = Gather <axis = 0> (shape, last)  float = Cast <to = 1> (n)
            mixed = Concat <axis = 0> (float, number)  whole = Cast <to = 7> (mixed)  y = Mul (whole, three)
            column = Unsqueeze (x, last2)  one = Slice (whole, last, last2)  rows = Expand (column, one)  z = Identity (rows) }""",
        {"last": [1], "last2": [2], "number": np.float32([2.5]), "three": [3]}, {"b": (1, 2), "n": (1, 7)}, "b, n",
    ),
    "windows whose number is rounded up": Model(
        f"g (float[b, 2, h, 9] x) => ({', '.join(f'float[b, 2, p{n}, q{n}] y{n}' for n in range(4))}) {{"
        + "".join(
            f" y{n} = {op}Pool <kernel_shape = [{size}, {size}], strides = [{by}, {by}], pads = [{pad}, {pad}, {pad}, {pad}], ceil_mode = 1> (x)"
            for n, (op, size, by, pad) in enumerate((("Max", 3, 2, 0), ("Max", 2, 2, 1), ("Average", 3, 2, 1), ("Average", 2, 3, 0)))
        )
        + " }", {}, {"b": (1, 2, 1, 3), "h": (3, 4, 8, 11)}, "b, h",
    ),
    "a mirror and an edge of as many as a size says": Model(
        """g (float[b, h] x) => (float[b, p] y, float[b, p] z) {
            shape = Shape (x)  h = Slice (shape, one, two)  rest = Neg (h)  more = Mod (rest, four)
            pads = Concat <axis = 0> (nothing, more)  y = Pad <mode = "reflect"> (x, pads)  z = Pad <mode = "edge"> (x, pads) }""",
        {"one": [1], "two": [2], "four": [4], "nothing": [0, 1, 0]}, {"b": (1, 3, 2, 1), "h": (4, 6, 11, 3)},
        "b, h",
    ),
    **{
        f"an image that is read between its elements: {how}": Model(
            f"g (float[b, c, h, w] x, float[b, p, q, 2] at) => (float[b, c, p, q] y) {{ y = GridSample <{how}> (x, at) }}",
            {}, {"b": (1, 2, 2), "c": (2, 2, 2), "h": (4, 3, 2), "w": (5, 5, 5), "p": (3, 3, 3), "q": (4, 3, 2)},
            "b, c, h, w, p, q",
        )
        for how in (
            'mode = "nearest", padding_mode = "border", align_corners = 1',
            'mode = "linear", padding_mode = "reflection", align_corners = 1',
            'mode = "cubic", padding_mode = "zeros", align_corners = 0',
        )
    },
}  # fmt: skip


def bounds(model: Any) -> dict[str, tuple[int, int]]:
    return {size.name: (size.min, size.max) for size in model.sizes}


def written(model: Any) -> set[str]:
    """Sizes as `Model` has them."""
    largest = 2**31 - 1
    return {
        f"{name}"
        + ("" if low == 1 else f" in {low}…")
        + ("" if high >= largest // 64 else f"{high}" if low > 1 else f" in 1…{high}")
        for name, (low, high) in bounds(model).items()
    }


@pytest.mark.parametrize("name", MODELS)
def test_what_nodes_say_of_sizes_is_known_of_a_model(name: str) -> None:
    row = MODELS[name]
    proto = parsed(row.text, **{"opset": 20, **row.weights})
    model = each(proto, calls(proto, **row.taken), sizes=row.given)
    assert written(model) == {one for one in row.sizes.split(", ") if one}
    if row.refused:
        (feed,) = calls(proto, **{name: (n,) for name, n in row.refused.items()})
        with pytest.raises(oc.CallError) as refused:
            model(feed)
        assert row.because in str(refused.value)


def test_bounds_without_a_multiple_between_them_are_refused() -> None:
    row = MODELS["an axis that is split is a multiple of its parts"]
    with rejection("""\
DescribeError: from_onnx: cannot bound h by (5, 7)
  because  the model wants a multiple of 4, and none is between them"""):
        oc.from_onnx(parsed(row.text, **row.weights), sizes={"h": (5, 7)})


def test_bounds_choose_between_names_of_one_size() -> None:
    row = MODELS["a sum, a product and a join"]
    proto = parsed(row.text, **row.weights)
    assert bounds(oc.from_onnx(proto, sizes={"b": (2, 9)}))["b"] == (2, 9)
    with pytest.raises(oc.DescribeError, match="axis 0 of x is a, axis 0 of reshape is b"):
        oc.from_onnx(proto, sizes={"a": (1, 9), "b": (1, 9)})


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
    text = "g (float[a, s] x, float[b, t] y, float[c, u] z) => (float[e, f] o) { o = %s }"
    assert {*bounds(oc.from_onnx(parsed(text % node), threads=1))} == sizes


def test_extents_inside_of_loops_and_sequences_are_one_size() -> None:
    for size, text in (
        ("k", """g (float[k] first, float[3, m] x) => (float[k] last) { last = Scan <num_scan_inputs = 1, body =
            step (float[k] state, float[k] one) => (float[k] next) { next = Add (state, one) }> (first, x) }"""),
        ("k", """g (float[k] first, float[m] x) => (float[k] last) <int64 n = {3}, bool go = {1}> {
            last = Loop <body = step (int64 i, bool more, float[k] state) => (bool again, float[k] next) {
                next = Add (state, x)  again = Identity (more) }> (n, go, first) }"""),
        ("n", """g (float[n, 6] x, float[m, 6] z) => (float[n, 6] y) <int64 place = {0}> {
            both = SequenceConstruct (x, z)  first = SequenceAt (both, place)  y = Add (first, z) }"""),
    ):  # fmt: skip
        assert {*bounds(oc.from_onnx(parsed(text), threads=1))} == {size}


def test_an_output_may_have_no_shape_and_no_type() -> None:
    proto = parsed(
        "g (float[b, 4] x) => (float[b, 4] y, float[b, 4] z) { y = Relu (x)  z = Neg (x) }"
    )
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    proto.graph.output[1].ClearField("type")
    x = drawn(1, 3, 4)
    made = oc.from_onnx(proto, threads=1)({"x": x})
    np.testing.assert_array_equal(made["y"], np.maximum(x, 0))
    np.testing.assert_array_equal(made["z"], -x)


def test_sizes_that_are_not_derived_are_asked_for_by_their_axes() -> None:
    proto = parsed("g (float[b, h, w] x) => (float[b, n] y) { y = Reshape (x, to) }", to=[0, 100])
    with rejection("""\
UnsupportedNodesError: from_onnx: cannot take one node of g
  because  Reshape y: cannot take x as [b, 100]: it is not seen to have as many elements
  help     from_onnx(…, sizes={"h": …, "w": …}) at which h * w is 100: h is axis 1 of the input x, w is axis 2 of the input x"""):
        oc.from_onnx(proto)
    each(proto, calls(proto, b=(1, 3), h=(5, 5), w=(20, 20)), sizes={"h": 5})
    joined = parsed("g (float[a, 4] x, float[b, 4] y) => (float[c, 4] z) { z = Add (x, y) }")
    with pytest.raises(oc.DescribeError) as bounded:
        oc.from_onnx(joined, sizes={"a": (1, 9), "b": (1, 9)})
    assert bounded.value.help == (
        'from_onnx(…, sizes={"a": …, "b": …}) at which a is b: a is axis 0 of the input x, b is axis 0 of the input y',
    )


def test_a_batch_that_each_input_of_attention_names_apart_is_one() -> None:
    proto = onnx.parser.parse_model("""<ir_version: 11, opset_import: ["" : 24]>
        g (float[a, s, 12] q, float[b, t, 12] k, float[c, u, 12] v, int64[d] lengths) => (float[e, f, 12] y) {
        y = Attention <q_num_heads = 3, kv_num_heads = 3> (q, k, v, , , , lengths) }""")
    model = oc.from_onnx(proto, threads=1)
    assert {*bounds(model)} == {"a", "s", "t"}
    x = {"q": drawn(1, 2, 5, 12), "k": drawn(2, 2, 7, 12), "v": drawn(3, 2, 7, 12)}
    y = model({**x, "lengths": np.array([7, 3])})["y"]
    short = {name: x[name][1:, :3] if name != "q" else x[name][1:] for name in x}
    agree(y[1:], of_peer(model({**short, "lengths": np.array([3])})["y"]))
    with pytest.raises(oc.CallError, match="axis 0 is 2 at a = 2, not 3"):
        model({**x, "lengths": np.array([7, 3, 1])})


def test_a_padding_by_sizes_brings_an_image_to_another() -> None:
    proto = parsed("""g (float[b, n] x, float[b, m] y) => (float[b, m] z) {
        zero = Constant <value_ints = [0]> ()  s = Shape <start = 1> (x)  t = Shape <start = 1> (y)
        more = Sub (t, s)  pads = Concat <axis = 0> (zero, zero, zero, more)
        wide = Pad (x, pads, value)  z = Add (wide, y) }""", value=np.array(2.5, np.float32))  # fmt: skip
    model = oc.from_onnx(proto, threads=1)
    for b, n, m in ((1, 2, 5), (3, 4, 4), (2, 7, 3)):
        x, y = drawn(1, b, n), drawn(2, b, m)
        wide = np.pad(x, ((0, 0), (0, max(m - n, 0))), constant_values=2.5)[:, :m]
        agree(model({"x": x, "y": y})["z"], of_peer(wide + y))


SQUEEZED = "g (float[n, m] x) => (float[a] y) { y = Squeeze (x) }"


def test_a_rank_that_depends_on_a_size_is_refused() -> None:
    with rejection("""\
UnsupportedNodesError: from_onnx: cannot take one node of g
  because  Squeeze y: how many axes it gives depends on whether the extent n of axis 0 is 1: it is at n = 1
  help     sizes={"n": (2, 2147483647)}, or Squeeze with axes"""):
        oc.from_onnx(parsed(SQUEEZED))
    for sizes, shape, wanted in (
        ({"n": (2, 9), "m": (2, 9)}, (3, 4), (3, 4)),
        ({"n": (2, 9), "m": (1, 1)}, (3, 1), (3,)),
        ({"n": 1, "m": 1}, (1, 1), ()),
    ):
        model = oc.from_onnx(parsed(SQUEEZED), sizes, threads=1)
        assert model(np.ones(shape, np.float32))["y"].shape == wanted
    twice = SQUEEZED.replace("Squeeze (x)", "Squeeze (c)").replace("{ y", "{ c = Concat <axis = 0> (x, x)  y")  # fmt: skip
    model = oc.from_onnx(parsed(twice), {"n": (0, 9), "m": 1}, threads=1)  # 2*n is not 1
    assert [model(np.ones((n, 1), np.float32))["y"].shape for n in (0, 1)] == [(0,), (2,)]


@pytest.mark.parametrize(
    ("given", "at"), [((4, 9), 8), ((2, 7), 2), ((8, 17), 8)], ids=["above", "below", "never"]
)
def test_the_smallest_size_at_which_an_extent_is_not_1_is_named(
    given: tuple[int, int], at: int
) -> None:
    proto = parsed(QUARTERS.replace("float[b, p, q]", "float[?, ?]") % "Squeeze (c, last)", kernel=KERNEL, last=[2])  # fmt: skip
    with pytest.raises(oc.DescribeError) as refused:
        oc.from_onnx(proto, sizes={"n": given})
    help = '\n  help     sizes={"n": (4, 7)}' if at < 8 or given[0] < 8 else ""
    assert str(refused.value) == (
        "from_onnx: cannot take one node of g\n"
        f"  because  Squeeze z: axis 2 has the extent n//4, which is not 1 at n = {at}{help}"
    )


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
