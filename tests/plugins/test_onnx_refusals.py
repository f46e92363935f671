"""What `from_onnx` and its models refuse, word by word."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import rejection

pytest.importorskip("onnx", reason="the extra onnx is not installed")

import onnx

import offcut as oc
from tests.facade import DTYPES

HEAD = '<ir_version: 9, opset_import: ["" : 20]> '
RELU = HEAD + "g (float[n, 4] x) => (float[n, 4] y) { y = Relu (x) }"


def parsed(text: str) -> Any:
    return onnx.parser.parse_model(text)


def test_all_nodes_that_cannot_be_taken_are_listed_at_once() -> None:
    proto = parsed(
        '<ir_version: 9, opset_import: ["" : 20, "com.example" : 1]> '
        + """net (float[n, 4] x, string[3] words) => (int64[2, m] a, float[n, 4] y)
        { a = NonZero (x)  b = com.example.Twirl (x)  y = Relu (b) }"""
    )
    with rejection(f"""\
UnsupportedNodesError: from_onnx: cannot take 3 nodes of net
  because  input words: elements of string
           NonZero a: how many elements it gives depends on values of its inputs
           Twirl b: operators of com.example are not ours
  help     element types are {", ".join(DTYPES)}
  help     from_onnx(…, constants={{…}}) of what it reads, where a call never changes it
  help     a model-local function"""):
        oc.from_onnx(proto)


def test_operators_of_a_version_that_onnx_does_not_know_are_refused() -> None:
    newest = onnx.defs.onnx_opset_version()
    with rejection(f"""\
DescribeError: from_onnx: cannot take operators of version 999
  because  the installed onnx knows those up to {newest}
  help     pip install --upgrade onnx
  help     a file of an older version"""):
        oc.from_onnx(parsed(RELU.replace("20", "999")))


def test_what_is_no_model_is_refused(tmp_path: Any) -> None:
    with rejection(
        f"UnreadableFileError: from_onnx: cannot read {tmp_path}/none.onnx\n  because  No such file or directory\n"
        '  help     from_onnx("model.onnx"): a file that onnx.save wrote, or another exporter'
    ):
        oc.from_onnx(tmp_path / "none.onnx")
    with rejection("""\
DescribeError: from_onnx: cannot take int
  because  a model is a path, the bytes of a file, or an onnx.ModelProto
  help     from_onnx("model.onnx")"""):
        oc.from_onnx(3)
    with pytest.raises(
        oc.DescribeError, match="cannot read 3 bytes\n  because  it is not an ONNX model"
    ):
        oc.from_onnx(b"abc")
    with pytest.raises(
        oc.DescribeError, match=r"cannot take the model\n  because  onnx\.checker: "
    ):
        oc.from_onnx(onnx.ModelProto())


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
    data = parsed(
        HEAD
        + "graph (float[n] value) => (float[n] total) { mid = Elu <alpha = 2.0> (value)  total = Neg (mid) }"
    ).SerializeToString()
    with pytest.raises(oc.DescribeError) as refused:
        oc.from_onnx(data.replace(name.encode(), b"\xe9" + name[1:].encode()))
    assert str(refused.value).splitlines()[1] == f"  because  {because}"


def test_a_size_or_a_constant_that_the_model_has_not_is_refused() -> None:
    with rejection(
        "UnknownSizeError: from_onnx: cannot bound the size m\n  because  the sizes are n\n"
        '  help     sizes={"n": (1, 512)}'
    ):
        oc.from_onnx(parsed(RELU), sizes={"m": (1, 4)})
    with rejection("""\
DescribeError: from_onnx: cannot bound n by (4, 1)
  because  bounds are the least and the greatest value, from 0 on
  help     sizes={"n": (1, 512)}
  help     sizes={"n": 8}"""):
        oc.from_onnx(parsed(RELU), sizes={"n": (4, 1)})
    with pytest.raises(oc.DescribeError, match="cannot bound n by -1\n  because  bounds are"):
        oc.from_onnx(parsed(RELU), sizes={"n": -1})
    with pytest.raises(oc.DescribeError, match="cannot take sizes=3\n  because  they are given"):
        oc.from_onnx(parsed(RELU), sizes=3)  # type: ignore[arg-type]
    with rejection(
        "DescribeError: from_onnx: cannot take a constant w\n  because  the inputs are x\n"
        "  help     constants={name: array} of one of them"
    ):
        oc.from_onnx(parsed(RELU), constants={"w": np.zeros(3)})


ADDED = HEAD + "g (float[n, 4] x, float[n, 4] z) => (float[n, 4] y) { y = Add (x, z) }"
ONES = np.ones((3, 4), np.float32)


@pytest.mark.parametrize(
    ("array", "sizes", "because"),
    [
        (
            ONES.astype("float64"),
            {},
            'it is float64, declared as float32\n  help     numpy.asarray(z, "float32")',
        ),
        (ONES[:, :3], {}, "its shape is (3, 3), declared as (n, 4)"),
        (ONES[0], {}, "its shape is (4,), declared as (n, 4)"),
        (ONES, {"n": 5}, "its shape is (3, 4), declared as (n, 4), and n is 5"),
        (ONES, {"n": (4, 9)}, "its shape is (3, 4), declared as (n, 4), and n is in 4…9"),
        (["a"], {}, 'it is <U1, declared as float32\n  help     numpy.asarray(z, "float32")'),
    ],
)
def test_a_constant_is_as_the_file_declares_it(
    array: Any, sizes: dict[str, Any], because: str
) -> None:
    with rejection(f"DescribeError: from_onnx: cannot take a constant z\n  because  {because}"):
        oc.from_onnx(parsed(ADDED), sizes, constants={"z": array})


class Trained:
    """As a parameter of torch."""

    dtype = np.dtype("float32")

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("it requires grad")


def test_lists_that_no_array_is_made_of_are_no_constants() -> None:
    with pytest.raises(oc.DescribeError, match="cannot take a constant z\n  because  numpy makes"):
        oc.from_onnx(parsed(ADDED), constants={"z": [[1.0], [2.0, 3.0]]})
    with pytest.raises(oc.DescribeError, match="numpy makes no array of it: it requires grad"):
        oc.from_onnx(parsed(ADDED), constants={"z": Trained()})


def test_two_constants_have_one_size() -> None:
    with pytest.raises(oc.DescribeError) as refused:
        oc.from_onnx(parsed(ADDED), constants={"x": ONES, "z": ONES[:2]})
    assert refused.value.because == "its shape is (2, 4), declared as (n, 4), and n is 3"


def test_a_size_that_a_constant_has_is_known_to_the_whole_model() -> None:
    model = oc.from_onnx(parsed(ADDED), {"n": (1, 9)}, constants={"z": ONES.tolist()}, threads=1)
    assert not model.sizes
    np.testing.assert_array_equal(model({"x": 2 * ONES})["y"], 3 * ONES)
    with pytest.raises(oc.CallError, match="axis 0 is 3, not 4"):
        model({"x": np.ones((4, 4), np.float32)})


def test_a_call_names_the_inputs_of_the_file() -> None:
    model = oc.from_onnx(parsed(RELU), threads=1)
    assert repr(model) == "<model g(x) -> y for any n>"
    assert repr(model.model) == "<model g(x) for any n>"
    with rejection("CallError: run: cannot run without x\n  because  the inputs are x"):
        model({})
    with rejection("CallError: run: cannot take an input w\n  because  the inputs are x"):
        model({"x": np.zeros((1, 4), np.float32), "w": 1})
    with pytest.raises(oc.CallError, match="cannot take x of float64"):
        model({"x": np.zeros((1, 4))})
    with pytest.raises(oc.CallError) as refused:
        model([np.zeros((1, 4), np.float32)])  # type: ignore[arg-type]
    assert (
        str(refused.value)
        == """\
run: cannot take list for the inputs
  because  they are given by name
  help     model({"x": x})"""
    )
    with pytest.raises(oc.CallError) as refused:
        model(np.zeros((1, 4), np.float32), np.zeros(3))  # type: ignore[arg-type]
    assert (
        str(refused.value)
        == """\
run: cannot take 2 arguments for the inputs
  because  they are given by name
  help     model({"x": x})"""
    )


def test_an_output_that_is_a_sequence_is_refused_as_one() -> None:
    nodes = "{ y = SequenceConstruct (x, x) }"
    with rejection("""\
UnsupportedNodesError: from_onnx: cannot take one node of g
  because  output y: it is not a tensor of numbers, but of texts, or a sequence
  help     tensors"""):
        oc.from_onnx(parsed(f"{HEAD} g (float[n] x) => (seq(float[n]) y) {nodes}"))


def test_a_model_without_the_tensors_beside_it_is_told_to_be_given_by_its_path() -> None:
    proto = parsed(f"{HEAD} g (float[n, 4] x) => (float[n, 4] y) {{ y = Add (x, w) }}")
    made = proto.graph.initializer.add(name="w", data_type=1, dims=[4], data_location=1)
    made.external_data.add(key="location", value="no such file")
    with pytest.raises(oc.DescribeError) as refused:
        oc.from_onnx(proto)
    assert "help     from_onnx(path): the path of the file, beside which its tensors lie" in str(
        refused.value
    )


def test_extents_that_are_not_seen_to_be_equal_are_refused() -> None:
    text = "g (float[n, 4] x, float[m, 4] z) => (float[n, 4] y) { y = Add (x, z) }"
    with pytest.raises(oc.DescribeError, match=r"Add y: .*n.*m"):
        oc.from_onnx(parsed(HEAD + text), sizes={"n": (1, 9), "m": (1, 9)})
    named = text.replace("[m, 4]", "[n, 4]")
    assert oc.from_onnx(parsed(HEAD + named), threads=1).sizes


@pytest.mark.parametrize(
    ("node", "because"),
    [
        ("y = Resize <mode = 'cubic', antialias = 1> (x, , s)", "antialiasing of n elements"),
        ("y = Multinomial (x)", "the operator is not supported"),
    ],
)
def test_a_mode_that_is_not_ours_is_refused(node: str, because: str) -> None:
    text = (
        HEAD
        + "g (float[n, 4] x) => (float[a, b] y) <float[2] s = {1.5, 1.0}> {"
        + node.replace("'", '"')
        + "}"
    )
    with pytest.raises(oc.DescribeError, match=because):
        oc.from_onnx(parsed(text))


@pytest.mark.parametrize(
    ("node", "because"),
    [
        ("Flatten <axis = 2> (s)", "there is no axis 2 of 1"),
        ("Flatten <axis = 4> (x)", "there is no axis 4 of 2"),
        ("ReduceSum (s, three)", "there is no axis 3 of 1"),
        (
            "Gather (s, three)",
            "its inputs are known, and the reference evaluator says: index 3 is out of bounds for axis 0 with size 2",
        ),
        (
            "Reshape (s, three)",
            "its inputs are known, and the reference evaluator says: cannot reshape array of size 2 into shape (3,)",
        ),
        ("Split (s, three)", "parts of 3 elements, of 2"),
    ],
)
def test_a_node_on_a_shape_that_it_does_not_fit_is_refused(node: str, because: str) -> None:
    text = "g (float[n, 4] x) => (int64[a] y) <int64[1] three = {3}> { s = Shape (x)  y = "
    with pytest.raises(oc.DescribeError) as refused:
        oc.from_onnx(parsed(HEAD + text + node + " }"))
    op = node.split(maxsplit=1)[0]
    assert (
        str(refused.value) == f"from_onnx: cannot take one node of g\n  because  {op} y: {because}"
    )


CONV = "g (float[n, 1, h, 9] x, float[1, 1, 5, 5] k) => (float[n, 1, r, 5] y) { y = Conv (x, k) }"


@pytest.mark.parametrize(("high", "accepted"), [(3, 4), (8, 8)])
def test_sizes_that_are_too_small_for_a_window_are_refused_with_the_smallest(
    high: int, accepted: int
) -> None:
    with rejection(f"""\
UnsupportedNodesError: from_onnx: cannot take one node of g
  because  Conv y: it gives the extent h + -4, below 0 at h = 1
  help     sizes={{"h": (4, {accepted})}}"""):
        oc.from_onnx(parsed(HEAD + CONV), sizes={"h": (1, high)})
    assert oc.from_onnx(parsed(HEAD + CONV), sizes={"h": (4, accepted)}, threads=1).sizes


def test_more_of_the_greatest_than_there_are_are_refused() -> None:
    text = "g (float[h, 4] x) => (float[a, 4] y, int64[a, 4] i) <int64[1] k = {5}> { y, i = TopK <axis = 0> (x, k) }"
    with rejection("""\
UnsupportedNodesError: from_onnx: cannot take one node of g
  because  TopK y: beyond the first 5 there is the extent h + -5, below 0 at h = 1
  help     sizes={"h": (5, 8)}"""):
        oc.from_onnx(parsed(HEAD + text), sizes={"h": (1, 8)})


@pytest.mark.parametrize(
    ("node", "because"),
    [
        ("EyeLike (x)", "Input tensor must be 2-dimensional"),
        ("MaxPool <kernel_shape = [2, 2, 2]> (x)", "Attribute kernel_shape has incorrect size"),
        ("Cast <to = 99> (x)", "Attribute to does not specify a valid type"),
    ],
)
def test_a_node_that_contradicts_itself_is_refused_as_onnx_says(node: str, because: str) -> None:
    text = "g (float[n, 4, 8, 8] x) => (float[a] y) <int64[1] one = {1}> { y = "
    with pytest.raises(oc.DescribeError) as refused:
        oc.from_onnx(parsed(HEAD + text + node + " }"))
    head = "from_onnx: cannot take the model\n  because  onnx.shape_inference: "
    assert str(refused.value).startswith(head)
    assert because in str(refused.value)


def test_an_operator_that_is_broken_is_no_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(x: Any, *, name: str = "") -> Any:
        raise TypeError("a bug of ours")

    monkeypatch.setattr(oc.ops, "relu", broken)
    monkeypatch.setenv("OFFCUT_CACHE", "off")  # from where a model is read without it
    with pytest.raises(TypeError, match="a bug of ours"):
        oc.from_onnx(parsed(RELU))


LOOP = """g (float[n] x, float[n] stop) => (float[n] y) <bool on = {{1}}, int64 four = {{4}}, int64 zero = {{0}}> {{
    shape = Shape (x)  n = Gather (shape, zero)
    y = Loop ({limit}, on, x) <body = step (int64 i, bool going, float[n] a) => (bool more, float[n] b)
        {{ whole = ReduceSum <keepdims = 0> (a)  limit = CastLike (four, whole)
           more = {more}  j = Cast <to = 1> (i)  b = Add (a, j) }}> }}"""


@pytest.mark.parametrize(
    ("limit", "more", "because"),
    [
        (
            "n",
            "Identity (going)",
            "the trip count is n, which is not a number\n"
            "  help     from_onnx(…, sizes={…}) where a call never changes n",
        ),
        (
            "four",
            "Less (whole, limit)",
            "how often it runs depends on its values\n"
            "  help     a condition that is known at import",
        ),
        ("", "Identity (going)", "257 steps, each of them nodes\n  help     256 at most"),
    ],
)
def test_a_loop_of_a_number_of_steps_that_is_not_known_is_refused(
    limit: str, more: str, because: str
) -> None:
    with rejection(
        f"UnsupportedNodesError: from_onnx: cannot take one node of g\n  because  Loop y: {because}"
    ):
        oc.from_onnx(parsed(HEAD + LOOP.format(limit=limit or '""', more=more)))


def test_a_scan_over_a_size_is_refused_and_the_size_is_not_guessed() -> None:
    text = """g (float[3] start, float[n, 3] x) => (float[3] last) { last = Scan <num_scan_inputs = 1, body =
        step (float[3] state, float[3] one) => (float[3] next) { next = Add (state, one) }> (start, x) }"""
    with rejection("""\
UnsupportedNodesError: from_onnx: cannot take one node of g
  because  Scan last: the number of steps is n, which is not a number
  help     from_onnx(…, sizes={…}) where a call never changes n"""):
        oc.from_onnx(parsed(HEAD + text))
    assert oc.from_onnx(parsed(HEAD + text), sizes={"n": 2}, threads=1).graph.inputs


@pytest.mark.parametrize(
    ("call", "because"),
    [
        ("y = own.f (x, x, x)", "inputs of the function f: 2, not 3"),
        ("z, w, y = own.f (x)", "outputs of the function f: 2, not 3"),
        ("z, y = own.f (x)", "no node of the function f gives lost"),
    ],
)
def test_a_call_that_does_not_fit_its_function_is_refused(call: str, because: str) -> None:
    text = (
        """<ir_version: 9, opset_import: ["" : 20, "own" : 1]> g (float[n] x) => (float[n] y) {"""
    )
    body = """<domain: "own", opset_import: ["" : 20]> f (a, b) => (c, lost) { c = Neg (a) }"""
    with pytest.raises(oc.DescribeError, match=f"because  f [yz]: {because}$"):
        oc.from_onnx(parsed(f"{text} {call} }} {body}"))


def test_sequences_that_a_map_goes_along_are_of_one_length() -> None:
    text = """g (float[n] x) => (float[n] y) <int64 zero = {0}> {
        two = SequenceConstruct (x, x)  one = SequenceConstruct (x)
        all = SequenceMap <body = b (float[n] p, float[n] q) => (float[n] r) { r = Add (p, q) }> (two, one)
        y = SequenceAt (all, zero) }"""
    with rejection(
        "UnsupportedNodesError: from_onnx: cannot take one node of g\n"
        "  because  SequenceMap all: sequences of 1, 2 elements at once"
    ):
        oc.from_onnx(parsed(HEAD + text))


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
    model = oc.from_onnx(parsed(RELU), sizes)
    with rejection(
        f"CallError: run: cannot take n = {extent}\n"
        f"  at       axis 0, of {extent}, of input x: float32[n, 4]\n"
        f"  because  n is in {bounds}\n"
        f"  help     from_onnx(…, sizes={help})"
    ):
        model(np.zeros((extent, 4), np.float32))
    low, high = (min(extent, 2), max(extent, 64))
    again = oc.from_onnx(parsed(RELU), {"n": (low, high)})
    assert again(np.zeros((extent, 4), np.float32))["y"].shape == (extent, 4)
