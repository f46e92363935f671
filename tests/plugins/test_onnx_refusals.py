"""What `from_onnx` and its models refuse: word by word; at import by the node, at a call as onnxruntime raises."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import refusals, rejection, slow

pytest.importorskip("onnx", reason="the extra onnx is not installed")

import onnx

import offcut as oc
from tests.facade import DTYPES
from tests.plugins.test_onnx import parsed

RELU = "g (float[n, 4] x) => (float[n, 4] y) { y = Relu (x) }"
ADDED = "g (float[n, 4] x, float[n, 4] z) => (float[n, 4] y) { y = Add (x, z) }"
ONES = np.ones((3, 4), np.float32)


class Trained:
    """As a parameter of torch."""

    dtype = np.dtype("float32")

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("it requires grad")


def take(text: str, sizes: Any = None, opset: int = 20, **constants: Any) -> Any:
    return oc.from_onnx(parsed(text, opset), sizes, constants=constants or None, threads=1)


def call(*arguments: Any) -> Any:
    return take(RELU)(*arguments)


PAGE = """
operators that onnx does not know
>>> take(RELU, opset=999)
DescribeError: from_onnx: cannot take operators of version 999
  because  the installed onnx knows those up to NEWEST
  help     pip install --upgrade onnx
  help     a file of an older version

what is no model
>>> oc.from_onnx(3)
DescribeError: from_onnx: cannot take int
  because  a model is a path, the bytes of a file, or an onnx.ModelProto
  help     from_onnx("model.onnx")

a file that is not there
>>> oc.from_onnx("none.onnx")
UnreadableFileError: from_onnx: cannot read none.onnx
  because  No such file or directory
  help     from_onnx("model.onnx"): a file that onnx.save wrote, or another exporter

a size that the model has not
>>> take(RELU, {"m": (1, 4)})
UnknownSizeError: from_onnx: cannot bound the size m
  because  the sizes are n
  help     sizes={"n": (1, 512)}

a constant that the model has not
>>> take(RELU, w=np.zeros(3))
DescribeError: from_onnx: cannot take a constant w
  because  the inputs are x
  help     constants={name: array} of one of them

a constant of another type
>>> take(ADDED, z=ONES.astype("float64"))
DescribeError: from_onnx: cannot take a constant z
  because  it is float64, declared as float32
  help     numpy.asarray(z, "float32")

a constant of another extent
>>> take(ADDED, z=ONES[:, :3])
DescribeError: from_onnx: cannot take a constant z
  because  its shape is (3, 3), declared as (n, 4)

a constant of another rank
>>> take(ADDED, z=ONES[0])
DescribeError: from_onnx: cannot take a constant z
  because  its shape is (4,), declared as (n, 4)

a constant of another size than is said
>>> take(ADDED, {"n": 5}, z=ONES)
DescribeError: from_onnx: cannot take a constant z
  because  its shape is (3, 4), declared as (n, 4), and n is 5

a constant of a size that is not in its bounds
>>> take(ADDED, {"n": (4, 9)}, z=ONES)
DescribeError: from_onnx: cannot take a constant z
  because  its shape is (3, 4), declared as (n, 4), and n is in 4…9

a constant of texts
>>> take(ADDED, z=["a"])
DescribeError: from_onnx: cannot take a constant z
  because  it is <U1, declared as float32
  help     numpy.asarray(z, "float32")

no inputs
>>> call({})
CallError: run: cannot run without x
  because  the inputs are x

an input that the model has not
>>> call({"x": ONES, "w": 1})
CallError: run: cannot take an input w
  because  the inputs are x

inputs that are a list
>>> call([ONES])
CallError: run: cannot take list for the inputs
  because  they are given by name
  help     model({"x": x})

inputs that are two arrays
>>> call(ONES, np.zeros(3))
CallError: run: cannot take 2 arguments for the inputs
  because  they are given by name
  help     model({"x": x})

one array for two inputs
>>> take(ADDED)(ONES)
CallError: run: cannot take ndarray for the inputs
  because  they are given by name
  help     model({"x": x, "z": z})
""".replace("NEWEST", str(onnx.defs.onnx_opset_version()))
PARAGRAPHS = refusals(PAGE, globals())


@pytest.mark.parametrize("title", PARAGRAPHS)
def test_what_is_no_model_no_size_no_constant_and_no_input_is_refused(title: str) -> None:
    run, text = PARAGRAPHS[title]
    with rejection(text):
        run()


@pytest.mark.parametrize("bounds", [(3, 1), (-1, 2), -1, 2.5, "n", (1, 2, 3), (0, 2**31)])
def test_what_are_no_bounds_is_refused(bounds: Any) -> None:
    with rejection(f"""\
DescribeError: from_onnx: cannot bound n by {bounds!r}
  because  bounds are the least and the greatest value, from 0 on
  help     sizes={{"n": (1, 512)}}
  help     sizes={{"n": 8}}"""):
        take(RELU, {"n": bounds})


PARTS: dict[str, Callable[[], Any]] = {
    "cannot read 3 bytes\n  because  it is not an ONNX model": lambda: oc.from_onnx(b"abc"),
    "cannot take the model\n  because  onnx.checker: ": lambda: oc.from_onnx(onnx.ModelProto()),
    "cannot take sizes=3\n  because  they are given": lambda: take(RELU, 3),
    "cannot take a constant z\n  because  numpy makes": lambda: take(ADDED, z=[[1.0], [2.0, 3.0]]),
    "numpy makes no array of it: it requires grad": lambda: take(ADDED, z=Trained()),
    "its shape is (2, 4), declared as (n, 4), and n is 3": lambda: take(ADDED, x=ONES, z=ONES[:2]),
    "axis 0 is 3, not 4": lambda: take(ADDED, z=ONES)({"x": np.ones((4, 4), np.float32)}),
    "cannot take x of float64": lambda: call({"x": np.zeros((1, 4))}),
}


@pytest.mark.parametrize("part", PARTS)
def test_and_others_with_these_words(part: str) -> None:
    with pytest.raises((oc.DescribeError, oc.CallError)) as refused:
        PARTS[part]()
    assert part in str(refused.value)


def test_a_size_that_a_constant_has_is_known_to_the_whole_model() -> None:
    model = take(ADDED, {"n": (1, 9)}, z=ONES.tolist())
    assert not model.sizes
    np.testing.assert_array_equal(model({"x": 2 * ONES})["y"], 3 * ONES)
    plain = take(RELU)
    assert (repr(plain), repr(plain.model)) == ("<model g(x) -> y for any n>", "<model g(x) for any n>")  # fmt: skip


def test_all_nodes_that_cannot_be_taken_are_listed_at_once() -> None:
    proto = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["" : 20, "com.example" : 1]>
        net (float[n, 4] x, string[3] words) => (int64[2, m] a, float[n, 4] y)
        { a = NonZero (x)  b = com.example.Twirl (x)  y = Relu (b) }""")
    with rejection(f"""\
UnsupportedNodesError: from_onnx: cannot take 3 nodes of net
  because  input words: elements of string
           NonZero a: how many elements it gives depends on values of its inputs
           Twirl b: operators of com.example are not ours
  help     element types are {", ".join(DTYPES)}
  help     from_onnx(…, constants={{…}}) of what it reads, where a call never changes it
  help     a model-local function"""):
        oc.from_onnx(proto)


NODES = """
g (float[n] x) => (seq(float[n]) y) { y = SequenceConstruct (x, x) }
output y: it is not a tensor of numbers, but of texts, or a sequence
  help     tensors

g (float[n, 6] x, int64[2] to) => (float[a, b] y) { y = Reshape (x, to) }
Reshape y: its shape is not known at import

g (float[n, 4] x) => (float[a, b] y) <float[2] s = {1.5, 1.0}> { y = Resize <mode = "cubic", antialias = 1> (x, , s) }
antialiasing of n elements

g (float[n, 4] x) => (float[a, b] y) { y = Multinomial (x) }
the operator is not supported

g (float[n, 4] x) => (int64[a] y) { s = Shape (x)  y = Flatten <axis = 2> (s) }
Flatten y: there is no axis 2 of 1

g (float[n, 4] x) => (int64[a] y) { y = Flatten <axis = 4> (x) }
Flatten y: there is no axis 4 of 2

g (float[n, 4] x) => (int64[a] y) <int64[1] three = {3}> { s = Shape (x)  y = ReduceSum (s, three) }
ReduceSum y: there is no axis 3 of 1

g (float[n, 4] x) => (int64[a] y) <int64[1] three = {3}> { s = Shape (x)  y = Gather (s, three) }
Gather y: its inputs are known, and the reference evaluator says: index 3 is out of bounds for axis 0 with size 2

g (float[n, 4] x) => (int64[a] y) <int64[1] three = {3}> { s = Shape (x)  y = Split (s, three) }
Split y: parts of 3 elements, of 2

g (float[n, 1, h, 9] x, float[1, 1, 5, 5] k) => (float[n, 1, r, 5] y) { y = Conv (x, k) } @ {"h": (1, 3)}
Conv y: it gives the extent h + -4, below 0 at h = 1
  help     sizes={"h": (4, 4)}

g (float[n, 1, h] x) => (float[n, 1, k] y) { y = MaxPool <kernel_shape = [2]> (x) } @ {"h": (0, 9)}
MaxPool y: it gives the extent h + -1, below 0 at h = 0
  help     sizes={"h": (1, 9)}

g (float[h, 4] x) => (float[a, 4] y, int64[a, 4] i) <int64[1] k = {5}> { y, i = TopK <axis = 0> (x, k) } @ {"h": (1, 8)}
TopK y: beyond the first 5 there is the extent h + -5, below 0 at h = 1
  help     sizes={"h": (5, 8)}

g (float[5, 7] x) => (float[a, 32] y) <int64[2] to = {-1, 32}> { y = Reshape (x, to) }
Reshape y: it has 35 elements, and [-1, 32] is of a multiple of 32

g (float[n, 4] x, float[m, 4] z) => (float[k] y) <int64[1] a = {0}> { c = Concat <axis = 0> (x, z)  y = Squeeze (c, a) } @ {"n": (0, 1), "m": (0, 1)}
Squeeze y: axis 0 has the extent m + n, which is not 1 at m = 0, n = 0
  help     from_onnx(…, sizes={…}): bounds in which it is 1

g (float[n, 6] x) => (float[p, 6] y, float[q, 6] z) <int64[2] parts = {2, 3}> { y, z = Split <axis = 0> (x, parts) } @ {"n": (5, 9)}
Split y: parts of 2, 3 elements, of n
  help     from_onnx(…, sizes={"n": …}) at which n is 5: n is axis 0 of the input x

g (float[b, n, 4] x) => (float[b, n, 4] y) <float[12, 4] table, int64 one = {1}> { s = Shape (x)  n = Gather (s, one)  from = Constant <value_ints = [0]> ()  to = Unsqueeze (n, from)  part = Slice (table, from, to)  y = Add (x, part) } @ {"n": (1, 40)}
Add y: cannot join the shapes of x and slice: axis 1 of x is n, axis 0 of slice is extent2
  help     from_onnx(…, sizes={"n": …}) at which n is min(12, n): n is axis 1 of the input x

g (double[b, n] x) => (double[b, n] y) <double zero = {0}, double step = {0.1}, int64 last = {1}> { s = Shape (x)  n = Gather (s, last)  up = Cast <to = 11> (n)  r = Range (zero, up, step)  y = Add (x, r) }
Range r: a range of float64 from 0 to n by 0.1
  help     ends and a step that are multiples of 1/4096, the step no size and not 0

g (double[b, n] x) => (double[b, n] y) <double zero = {0}, int64 last = {1}> { s = Shape (x)  n = Gather (s, last)  up = Cast <to = 11> (n)  r = Range (zero, up, zero)  y = Add (x, r) }
Range r: a range of float64 from 0 to n by 0
  help     ends and a step that are multiples of 1/4096, the step no size and not 0

g (float[n, 4, 8, 8] x) => (float[a] y) { y = EyeLike (x) }
onnx.shape_inference: … Input tensor must be 2-dimensional

g (float[n, 4, 8, 8] x) => (float[a] y) { y = MaxPool <kernel_shape = [2, 2, 2]> (x) }
onnx.shape_inference: … Attribute kernel_shape has incorrect size

g (float[n, 4, 8, 8] x) => (float[a] y) { y = Cast <to = 99> (x) }
onnx.shape_inference: … Attribute to does not specify a valid type …

g (float[n, 4] x) => (float[n, 4] y) { a = Add (x, y)  y = Relu (a) }
… must be topologically sorted …

g (float[n, 4] x) => (float[n, 4] y) <int64[1] w = {9}> { y = Unsqueeze (x, w) }
Unsqueeze y: axes 9 of 3
  help     each axis once

g (float[n, 4] x) => (float[n, 4] y) <int64[2] twice = {1, 1}> { y = Unsqueeze (x, twice) }
Unsqueeze y: axes 1, 1 of 4
  help     each axis once

g (float[n, 4] x) => (float[n, 4] y) <int64[1] w = {9}> { s = Shape (x)  a = Squeeze (s)  y = Gather <axis = 1> (a, w) }
evaluator says: axis 1 …

g (float[n, 2, 3] x) => (float[a, b, c] y) <float[2] two = {2., 2.}> { y = Resize (x, , two) }
Resize y: its scales are 2 numbers, not 3

g (float[n, 2, 3] x) => (float[a, b, c] y) <int64[2] places = {1, 1}> { y = Resize (x, , , places) }
Resize y: its sizes are 2 numbers, not 3

g (float[n, 2, 3] x) => (float[a, b, c] y) <int64[2] places = {1, 1}> { y = Pad (x, places) }
Pad y: its pads are 2 numbers, not 6

g (float[n, 2, 3] x) => (float[a, b, c] y) <int64[2] places = {1, 1}, int64[1] zero = {1}> { y = Slice (x, places, zero) }
Slice y: its ends are 1 numbers, not 2

g (float[n, 2, 3] x) => (float[a, b, c] y) <int64[2] places = {1, 1}, int64[1] zero = {1}> { y = Slice (x, places, places, zero) }
Slice y: its axes are 1 numbers, not 2

g (float[n, 2, 3] x) => (float[a, b, c] y) <int64[2] places = {1, 1}, int64[1] zero = {1}> { y = Slice (x, zero, zero, zero, places) }
Slice y: its steps are 2 numbers, not 1

g (float[n, 2, 3] x) => (float[a, b, c] y) <int64[2] places = {1, 1}> { y = Tile (x, places) }
Tile y: its repeats are 2 numbers, not 3

g (float[n, 2, 3] x) => (float[a, b, c] y) <int64[2] places = {1, 1}, int64[1] zero = {1}> { y = Col2Im (x, zero, places) }
Col2Im y: its extents of an image are 1 numbers, not 2

g (float[n, 2, 3] x, int64[n, 2, 3] i) => (float[a, b, c] y) <int64[2] places = {1, 1}> { y = MaxUnpool <kernel_shape = [1]> (x, i, places) }
MaxUnpool y: its extents of the result are 2 numbers, not 3

g (float[3, m, 2] x) => (float[?, ?, ?] y) { y = DFT (x) }
an extent of a transform is m, which is not a number …

g (float[n, 4, 2] x) => (float[?, ?, ?] y) <int64 l = {99999999}> { y = DFT (x, l) }
a transform of 4 elements by a length of 99999999

g (float[n, 4, 2] x) => (float[?, ?, ?] y) <int64 l = {4}, int64 a = {2}> { y = DFT (x, l, a) }
a transform along real and imaginary parts

g (float[n, t, 1] x, float[8] w) => (float[?, ?, ?, ?] y) <int64 s = {2}, int64 l = {4}> { y = STFT (x, s, w, l) }
a window of 8 elements for frames of 4

g (float[n, 9, 9] x) => (float[n] y) { y = Det (x) }
the determinant of 9 rows

g (float[n, 1, 8, 8, 8] x) => (float[?, ?, ?, ?, ?] y, int64[?, ?, ?, ?, ?] p) { y, p = MaxPool <kernel_shape = [2, 2, 2]> (x) }
the places of what is greatest over three axes

g (float[n, 2, h] x, float[4, 2, 3] w, float[n, 3, p] o) => (float[?, ?, ?] y) { y = DeformConv (x, w, o) }
windows of 1 axes

g (float[n, 3, h, w] x, float[r, 4] regions, int64[r] batch) => (float[?, ?, ?, ?] y) { y = RoiAlign (x, regions, batch) }
as many points as a region is large …

26 g (float[n] x) => (int32[n] y) { y = BitCast <to = 6> (x) }
BitCast y: bits of float32 as int32
  help     integers of as many bits

g (float[n] x) => (float[n] y) <bool[2] c = {1, 0}> { y = If (c) <then_branch = a () => (float[n] p) { p = Relu (x) }, else_branch = b () => (float[n] q) { q = Neg (x) }> }
If y: its condition has 2 elements

g (int8[n] x) => (int8[n] y) <int8[2] z = {3, 0}> { y = Mod (x, z) }
Mod y: an integer is divided by 0

g (float[n] x) => (float[n] y) <bool on = {1}, int64 zero = {0}> { s = Shape (x)  n = Gather (s, zero)  y = Loop (n, on, x) <body = step (int64 i, bool going, float[n] a) => (bool more, float[n] b) { more = Identity (going)  b = Add (a, a) }> }
Loop y: the trip count is n, which is not a number
  help     from_onnx(…, sizes={…}) where a call never changes n

g (float[n] x) => (float[n] y) <bool on = {1}, int64 four = {4}> { y = Loop (four, on, x) <body = step (int64 i, bool going, float[n] a) => (bool more, float[n] b) { whole = ReduceSum <keepdims = 0> (a)  limit = CastLike (four, whole)  more = Less (whole, limit)  b = Add (a, a) }> }
Loop y: how often it runs depends on its values
  help     a condition that is known at import

g (float[n] x) => (float[n] y) <bool on = {1}> { y = Loop ("", on, x) <body = step (int64 i, bool going, float[n] a) => (bool more, float[n] b) { more = Identity (going)  b = Add (a, a) }> }
Loop y: 257 steps, each of them nodes
  help     256 at most

g (float[3] start, float[n, 3] x) => (float[3] last) { last = Scan <num_scan_inputs = 1, body = step (float[3] state, float[3] one) => (float[3] next) { next = Add (state, one) }> (start, x) }
Scan last: the number of steps is n, which is not a number
  help     from_onnx(…, sizes={…}) where a call never changes n

g (float[n] x) => (float[n] y) <int64 zero = {0}> { two = SequenceConstruct (x, x)  one = SequenceConstruct (x)  all = SequenceMap <body = b (float[n] p, float[n] q) => (float[n] r) { r = Add (p, q) }> (two, one)  y = SequenceAt (all, zero) }
SequenceMap all: sequences of 1, 2 elements at once

g (float[t, n, 4] x, float[1, 24, 4] w, float[1, 24, 6] r) => (float[s, 1, n, 6] y) { y = LSTM <hidden_size = 6, input_forget = 1> (x, w, r) }
… input_forget=1

g (float[t, n, 4] x, float[1, 24, 4] w, float[1, 24, 6] r) => (float[s, 1, n, 6] y) { y = LSTM <hidden_size = 6, activations = ["Elu", "Tanh", "Tanh"]> (x, w, r) }
… the activation Elu

g (float[t, n, 4] x, float[1, 24, 4] w, float[1, 24, 6] r) => (float[s, 1, n, 6] y) { y = LSTM <hidden_size = 6, activations = ["Tanh", "Tanh", "Tanh"], activation_alpha = [0.5]> (x, w, r) }
… activations with parameters
""".strip().split("\n\n")
"""A model, of a newer set of operators after its number, with sizes behind an ``@``; and the end of a line of its refusal, with what is
below it; an ellipsis stands for any words."""


@pytest.mark.parametrize(
    "paragraph", NODES, ids=lambda one: one.partition("\n")[2].partition("\n")[0][:60]
)
def test_a_node_that_is_not_taken_is_refused_with_its_reason(paragraph: str) -> None:
    head, _, words = paragraph.partition("\n")
    text, _, sizes = head.partition(" @ ")
    opset, _, rest = text.partition(" ")
    number, text = (int(opset), rest) if opset.isdigit() else (20, text)
    table = {"table": np.ones((12, 4), np.float32)} if " table," in text else {}
    proto = parsed(text.replace("float[12, 4] table, ", ""), number, **table)
    with pytest.raises(oc.DescribeError) as refused:
        oc.from_onnx(proto, sizes=eval(sizes or "None"))
    told, at = f"{refused.value}\n", 0
    for part in f"{words}\n".replace(" …\n", "…").split("…"):
        at = told.find(part.lstrip() if part != "\n" else part, at)
        assert at >= 0, (told, part)


@pytest.mark.parametrize(
    ("called", "because"),
    [
        ("y = own.f (x, x, x)", "inputs of the function f: 2, not 3"),
        ("z, w, y = own.f (x)", "outputs of the function f: 2, not 3"),
        ("z, y = own.f (x)", "no node of the function f gives lost"),
    ],
)
def test_a_call_that_does_not_fit_its_function_is_refused(called: str, because: str) -> None:
    proto = onnx.parser.parse_model(f"""<ir_version: 9, opset_import: ["" : 20, "own" : 1]>
        g (float[n] x) => (float[n] y) {{ {called} }}
        <domain: "own", opset_import: ["" : 20]> f (a, b) => (c, lost) {{ c = Neg (a) }}""")
    with pytest.raises(oc.DescribeError, match=f"because  f [yz]: {because}$"):
        oc.from_onnx(proto)


@pytest.mark.parametrize(
    ("name", "because"),
    [
        ("value", "the name b'\\xe9alue' is not text in UTF-8"),
        ("total", "the name b'\\xe9otal' is not text in UTF-8"),
        ("graph", "the name b'\\xe9raph' is not text in UTF-8"),
        ("Elu", "b'\\xe9lu' mid: the name b'\\xe9lu' is not text in UTF-8"),
        ("alpha", "Elu mid: the name b'\\xe9lpha' is not text in UTF-8"),
    ],
)
def test_a_name_that_is_no_text_is_refused(name: str, because: str) -> None:
    text = "graph (float[n] value) => (float[n] total) { mid = Elu <alpha = 2.0> (value)  total = Neg (mid) }"
    data = parsed(text).SerializeToString()
    with pytest.raises(oc.DescribeError) as refused:
        oc.from_onnx(data.replace(name.encode(), b"\xe9" + name[1:].encode()))
    assert str(refused.value).splitlines()[1] == f"  because  {because}"


def test_an_operator_that_is_broken_is_no_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(x: Any, *, name: str = "") -> Any:
        raise TypeError("a bug of ours")

    monkeypatch.setattr(oc.ops, "relu", broken)
    monkeypatch.setenv("OFFCUT_CACHE", "off")  # from where a model is read without it
    with pytest.raises(TypeError, match="a bug of ours"):
        take(RELU)


@pytest.mark.parametrize(
    ("sizes", "extent", "bounds", "help"),
    [
        ({}, 0, "1…2147483647", '{"n": (0, …)}'),
        ({"n": (2, 64)}, 65, "2…64", '{"n": (2, 65)}'),
        ({"n": (2, 64)}, 1, "2…64", '{"n": (1, 64)}'),
    ],
)
def test_a_size_that_is_not_in_its_bounds_is_refused_with_those_that_hold_it(
    sizes: dict[str, tuple[int, int]], extent: int, bounds: str, help: str
) -> None:
    with rejection(
        f"CallError: run: cannot take n = {extent}\n"
        f"  at       axis 0, of {extent}, of input x: float32[n, 4]\n"
        f"  because  n is in {bounds}\n"
        f"  help     from_onnx(…, sizes={help})"
    ):
        take(RELU, sizes)(np.zeros((extent, 4), np.float32))
    again = take(RELU, {"n": (min(extent, 2), max(extent, 64))})
    assert again(np.zeros((extent, 4), np.float32))["y"].shape == (extent, 4)


# Files that are damaged.


def added() -> Any:
    return parsed("g (float[n, 4] x) => (float[n, 4] y) { y = Add (x, w) }", w=np.ones(4, "f4"))


def refusal(source: Any) -> str:
    with pytest.raises(oc.DescribeError) as refused:
        oc.from_onnx(source)
    return str(refused.value)


def test_tensors_that_are_not_what_they_say_are_refused_by_name() -> None:
    for extent, kind, because in (
        (3, 1, "initializer w: it is not of float32[3]: cannot reshape array of size 4 into shape (3,)"),
        (4, 99, "initializer w: there is no element type 99"),
        (4, 6, "Add y: cannot pair float32 with int32"),
    ):  # fmt: skip
        proto = added()
        proto.graph.initializer[0].dims[0] = extent
        proto.graph.initializer[0].data_type = kind
        head = "from_onnx: cannot take one node of g\n  because  "
        assert refusal(proto).startswith(head + because)


@pytest.mark.parametrize(
    ("damage", "because"),
    [
        (lambda path: os.truncate(path, 7), "External data"),
        (os.remove, "should be stored in"),
    ],
)
def test_tensors_in_another_file_are_read_and_missed(
    damage: Callable[[Path], None], because: str, tmp_path: Path
) -> None:
    path, other = tmp_path / "model.onnx", tmp_path / "model.data"
    external = {"save_as_external_data": True, "location": other.name, "size_threshold": 0}
    onnx.save(added(), path, **external)
    assert oc.from_onnx(path, threads=1).graph.inputs
    beside = "help     from_onnx(path): the path of the file, beside which its tensors lie"
    assert beside in refusal(onnx.load(path, load_external_data=False))
    damage(other)
    head = f"from_onnx: cannot read {path}\n  because  its tensors lie in another file: "
    assert refusal(path).startswith(head)
    assert because in refusal(path)


@pytest.mark.slow
def test_every_part_of_a_file_that_is_cut_off_is_refused() -> None:
    text = added().SerializeToString()
    for end in range(len(text)):
        refusal(text[:end])


# What onnxruntime raises for, a call refuses; what the specification gives over nothing, it gives.


EMPTY = {"n": (0, 9), "m": (0, 9), "h": (0, 9)}


def f4(*shape: int, value: float = 0) -> Any:
    return np.full(shape, value, np.float32)


def i8(*values: Any) -> Any:
    return np.array(values, np.int64)


ROI = {"x": f4(2, 1, 3, 3, value=1), "b": np.float32([[0, 0, 2, 2]])}
ROWS = {"x": np.arange(4, dtype="f4").reshape(2, 2)}
UNPOOL = """(float[n, 1, 1, 1] x, int64[n, 1, 1, 1] i) => (float[n, 1, h, w] y) <int64[4] s = {1, 1, 3, 3}>
    { y = MaxUnpool <kernel_shape = [2, 2], strides = [2, 2]> (x, i%s) }"""
SCATTER = """(float[b, t, 1] x, float[b, u, 1] v, int64[b] i) => (float[b, t, 1] y)
    { y = TensorScatter <mode = "%s"> (x, v, i) }"""
CACHE = {"x": f4(1, 4, 1), "v": f4(1, 2, 1, value=1)}
RAISED: dict[str, tuple[str, list[tuple[dict[str, Any], Any]]]] = {
    "the last least of a row": (
        "(float[n, m] x) => (int64[n] y) { y = ArgMin <axis = 1, keepdims = 0, select_last_index = 1> (x) }",
        [({"x": f4(2, 0)}, None), ({"x": f4(0, 0)}, i8()), ({"x": f4(2, 3)}, [2, 2])],
    ),
    "the first greatest of a row": (
        "(float[n, m] x) => (int64[n] y) { y = ArgMax <axis = 1, keepdims = 0> (x) }",
        [({"x": f4(2, 0)}, None), ({"x": f4(0, 0)}, i8()), ({"x": f4(2, 3)}, [0, 0])],
    ),
    **{
        f"{op} of an image of no pixel": (
            f"(float[n, 1, h] x) => (float[n, 1, 1] y) {{ y = {op} (x) }}",
            [({"x": f4(1, 1, 0)}, None), ({"x": f4(1, 1, 1, value=3)}, [[[3]]])],
        )
        for op in ("GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool")
    },
    **{
        f"{op} of padding alone": (
            f"(float[n, 1, h] x) => (float[n, 1, k] y) {{ y = {op} <kernel_shape = [2], pads = [1, 1]> (x) }}",
            [({"x": f4(1, 1, 0)}, None), ({"x": f4(0, 1, 0)}, f4(0, 1, 1))],
        )
        for op in ("MaxPool", "AveragePool", "LpPool")
    },
    "lengths of sequences": (
        "(float[t, b] x, int64[b] l) => (float[t, b] y) { y = ReverseSequence <time_axis = 0, batch_axis = 1> (x, l) }",
        [({**ROWS, "l": i8(2, 0)}, [[2, 1], [0, 3]]), *(({**ROWS, "l": i8(2, n)}, None) for n in (-1, 3))],
    ),
    "places of maxima": (
        UNPOOL % "",
        [
            ({"x": f4(1, 1, 1, 1, value=1), "i": i8(3).reshape(1, 1, 1, 1)}, [[[[0, 0], [0, 1]]]]),
            *(({"x": f4(1, 1, 1, 1, value=1), "i": i8(n).reshape(1, 1, 1, 1)}, None) for n in (-1, 4)),
        ],
    ),
    "places of maxima in a larger image": (
        UNPOOL % ", s",
        [
            ({"x": f4(1, 1, 1, 1, value=1), "i": i8(3).reshape(1, 1, 1, 1)}, [[[[0, 0, 0], [0, 1, 0], [0, 0, 0]]]]),
            *(({"x": f4(1, 1, 1, 1, value=1), "i": i8(n).reshape(1, 1, 1, 1)}, None) for n in (-1, 4)),
        ],
    ),
    "images of regions": (
        "(float[n, c, h, w] x, float[r, 4] b, int64[r] i) => (float[r, c, 1, 1] y) { y = RoiAlign <sampling_ratio = 2> (x, b, i) }",
        [({**ROI, "i": i8(1)}, [[[[1]]]]), *(({**ROI, "i": i8(n)}, None) for n in (-1, 2))],
    ),
    "rows of a cache": (
        SCATTER % "linear",
        [
            ({**CACHE, "i": i8(2)}, [[[0], [0], [1], [1]]]), *(({**CACHE, "i": i8(n)}, None) for n in (-1, 3)),
            ({"x": f4(1, 1, 1), "v": f4(1, 2, 1), "i": i8(0)}, None),
        ],
    ),
    "rows of a cache that goes around": (
        SCATTER % "circular",
        [({**CACHE, "i": i8(3)}, [[[1], [0], [0], [1]]]), ({**CACHE, "i": i8(-1)}, [[[1], [0], [0], [1]]])],
    ),
    **{
        f"{op} of nothing: {dtype}": (
            f"({dtype}[n, m] x) => ({dtype}[n] y) <int64[1] a = {{1}}> {{ y = {op} <keepdims = 0> (x, a) }}",
            [({"x": np.zeros((2, 0), "float32" if dtype == "float" else dtype)}, [wanted] * 2)],
        )
        for op, dtype, wanted in (
            *(("ReduceMax", "float", -np.inf), ("ReduceMin", "int8", 127), ("ReduceMax", "uint8", 0)),
            *(("ReduceMax", "bool", False), ("ReduceSum", "int32", 0)),
            *(("ReduceLogSumExp", "float", -np.inf), ("ReduceMean", "float", np.nan)),
        )
    },
    "a scale of what is all 0": (
        "(float[n] x) => (uint8[n] q, float y, uint8 z) { q, y, z = DynamicQuantizeLinear (x) }",
        [({"x": f4(n)}, 1) for n in (0, 1, 2)],
    ),
    "a remainder by 0": (
        "(int64[n] x, int64[n] z) => (int64[n] y) { y = Mod (x, z) }",
        [({"x": i8(7, 5, 9), "z": i8(2, 1, 3)}, [1, 0, 0]), ({"x": i8(7, 5), "z": i8(2, 0)}, None)],
    ),
    "a quotient by 0": (
        "(int8[n] x, int8[n] z) => (int8[n] y) { y = Div (x, z) }",
        [({"x": np.int8([7]), "z": np.int8([2])}, [3]), ({"x": np.int8([7]), "z": np.int8([0])}, None)],
    ),
}  # fmt: skip
FAST = ("the first", "GlobalMaxPool", "lengths", "ReduceMax of nothing: float", "a scale", "a remainder")  # fmt: skip


@pytest.mark.parametrize("name", [n if n.startswith(FAST) else slow(n) for n in RAISED])
def test_what_onnxruntime_raises_for_is_refused_and_what_it_gives_is_given(name: str) -> None:
    text, feeds = RAISED[name]
    sizes = {size: ends for size, ends in EMPTY.items() if f"[{size}" in text or f", {size}]" in text.partition("=>")[0]}  # fmt: skip
    model = take(f"g {text}", sizes, 24 if "TensorScatter" in text else 20)
    for feed, wanted in feeds:
        if wanted is None:
            with pytest.raises(oc.CallError, match="cannot run on these arrays"):
                model(feed)
        else:
            np.testing.assert_array_equal(model(feed)["y"], wanted)
