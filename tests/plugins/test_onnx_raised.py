"""What onnxruntime raises for, a call refuses; what the specification gives over nothing, it gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the extra onnx is not installed")

import onnx
from conftest import slow

import offcut as oc


def model_of(text: str, opset: int = 20, **request: Any) -> Any:
    head = f'<ir_version: 9, opset_import: ["" : {opset}]> g '
    return oc.from_onnx(onnx.parser.parse_model(head + text), threads=1, **request)


def refused(model: Any, **feed: Any) -> None:
    with pytest.raises(oc.CallError, match="cannot run on these arrays"):
        model(feed)


EMPTY = {"n": (0, 9), "m": (0, 9)}


@pytest.mark.parametrize(
    "attributes", ["keepdims = 0", slow("keepdims = 0, select_last_index = 1")]
)
@pytest.mark.parametrize("op", ["ArgMax", slow("ArgMin")])
def test_there_is_no_place_of_an_extreme_of_nothing(op: str, attributes: str) -> None:
    text = f"(float[n, m] x) => (int64[n] y) {{ y = {op} <axis = 1, {attributes}> (x) }}"
    model = model_of(text, sizes=EMPTY)
    refused(model, x=np.zeros((2, 0), np.float32))
    assert model(np.zeros((0, 0), np.float32))["y"].shape == (0,)
    last = 2 if "last" in attributes else 0
    np.testing.assert_array_equal(model(np.ones((2, 3), np.float32))["y"], [last, last])


@pytest.mark.parametrize(
    ("op", "dtype", "wanted"),
    [
        ("ReduceMax", "float", -np.inf),
        slow("ReduceMin", "int8", 127),
        slow("ReduceMax", "uint8", 0),
        slow("ReduceMax", "bool", False),
        slow("ReduceSum", "int32", 0),
        slow("ReduceLogSumExp", "float", -np.inf),
        slow("ReduceMean", "float", np.nan),
    ],
)
def test_reductions_over_nothing_are_what_the_specification_says(
    op: str, dtype: str, wanted: Any
) -> None:
    text = f"({dtype}[n, m] x) => ({dtype}[n] y) <int64[1] a = {{1}}> {{ y = {op} <keepdims = 0> (x, a) }}"
    x = np.zeros((2, 0), "float32" if dtype == "float" else dtype)
    found = model_of(text, sizes=EMPTY)(x)["y"]
    np.testing.assert_array_equal(found, np.full(2, wanted, x.dtype))


@pytest.mark.parametrize("op", ["GlobalMaxPool", slow("GlobalAveragePool"), slow("GlobalLpPool")])
def test_an_image_of_no_pixel_is_not_pooled(op: str) -> None:
    text = f"(float[n, 1, h] x) => (float[n, 1, 1] y) {{ y = {op} (x) }}"
    model = model_of(text, sizes={"h": (0, 9)})
    refused(model, x=np.zeros((1, 1, 0), np.float32))
    np.testing.assert_array_equal(model(np.full((1, 1, 1), 3, np.float32))["y"], [[[3]]])


def test_a_window_that_does_not_fit_is_refused_at_import() -> None:
    text = "(float[n, 1, h] x) => (float[n, 1, k] y) { y = MaxPool <kernel_shape = [2]> (x) }"
    with pytest.raises(oc.DescribeError, match=r"the extent h \+ -1, below 0 at h = 0"):
        model_of(text, sizes={"h": (0, 9)})
    with pytest.raises(oc.CallError, match="h is in 1"):
        model_of(text)(np.zeros((1, 1, 0), np.float32))


@pytest.mark.slow
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
def test_windows_of_padding_alone_are_not_pooled(op: str) -> None:
    text = "(float[n, 1, h] x) => (float[n, 1, k] y) { y = OP <kernel_shape = [2], pads = [1, 1]> (x) }"
    model = model_of(text.replace("OP", op), sizes={"n": (0, 9), "h": (0, 9)})
    refused(model, x=np.zeros((1, 1, 0), np.float32))
    assert model(np.zeros((0, 1, 0), np.float32))["y"].shape == (0, 1, 1)
    assert model(np.ones((1, 1, 1), np.float32))["y"].shape == (1, 1, 2)


@pytest.mark.parametrize("count", [2, slow(0), slow(1)])
def test_a_scale_of_what_is_all_0_is_1_as_in_onnxruntime(count: int) -> None:
    text = "(float[n] x) => (uint8[n] y, float s, uint8 z) { y, s, z = DynamicQuantizeLinear (x) }"
    found = model_of(text, sizes={"n": (0, 9)})(np.zeros(count, np.float32))
    assert (found["y"].tolist(), found["s"], found["z"]) == ([0] * count, 1, 0)


@pytest.mark.parametrize(
    ("node", "because"),
    [
        ("y = Resize (x, , two)", "its scales are 2 numbers, not 3"),
        ("y = Resize (x, , , places)", "its sizes are 2 numbers, not 3"),
        ("y = Pad (x, places)", "its pads are 2 numbers, not 6"),
        ("y = Slice (x, places, zero)", "its ends are 1 numbers, not 2"),
        ("y = Slice (x, places, places, zero)", "its axes are 1 numbers, not 2"),
        ("y = Slice (x, zero, zero, zero, places)", "its steps are 2 numbers, not 1"),
        ("y = Tile (x, places)", "its repeats are 2 numbers, not 3"),
        ("y = Col2Im (x, zero, places)", "its extents of an image are 1 numbers, not 2"),
        ("y = MaxUnpool <kernel_shape = [1]> (x, i, places)", "its extents of the result are 2 numbers, not 3"),
    ],
)  # fmt: skip
def test_numbers_are_as_many_as_a_node_needs(node: str, because: str) -> None:
    text = f"(float[n, 2, 3] x, int64[n, 2, 3] i) => (float[a, b, c] y) <float[2] two = {{2., 2.}}, int64[2] places = {{1, 1}}, int64[1] zero = {{1}}> {{ {node} }}"
    with pytest.raises(oc.DescribeError) as refused:
        model_of(text, 18)
    assert refused.value.because.endswith(f" y: {because}")


def test_lengths_are_those_of_sequences() -> None:
    model = model_of(
        "(float[t, b] x, int64[b] l) => (float[t, b] y)"
        " { y = ReverseSequence <time_axis = 0, batch_axis = 1> (x, l) }"
    )
    x = np.arange(4, dtype=np.float32).reshape(2, 2)
    np.testing.assert_array_equal(model({"x": x, "l": np.array([2, 0])})["y"], [[2, 1], [0, 3]])
    for length in (-1, 3):
        refused(model, x=x, l=np.array([2, length]))


@pytest.mark.slow
@pytest.mark.parametrize("larger", ["", ", s"])
def test_places_of_maxima_are_in_the_image(larger: str) -> None:
    text = (
        "(float[n, 1, 1, 1] x, int64[n, 1, 1, 1] i) => (float[n, 1, h, w] y) <int64[4] s = {1, 1, 3, 3}>"
        f" {{ y = MaxUnpool <kernel_shape = [2, 2], strides = [2, 2]> (x, i{larger}) }}"
    )
    model, x = model_of(text, sizes={"n": 1}), np.ones((1, 1, 1, 1), np.float32)
    found = model({"x": x, "i": np.full((1, 1, 1, 1), 3)})["y"]
    assert np.flatnonzero(found).tolist() == [4 if larger else 3]
    for place in (-1, 4):
        refused(model, x=x, i=np.full((1, 1, 1, 1), place))


@pytest.mark.slow
def test_regions_are_of_images_that_are_there() -> None:
    model = model_of(
        "(float[n, c, h, w] x, float[r, 4] b, int64[r] i) => (float[r, c, 1, 1] y)"
        " { y = RoiAlign <sampling_ratio = 2> (x, b, i) }"
    )
    x, box = np.ones((2, 1, 3, 3), np.float32), np.array([[0, 0, 2, 2]], np.float32)
    assert model({"x": x, "b": box, "i": np.array([1])})["y"] == 1
    for image in (-1, 2):
        refused(model, x=x, b=box, i=np.array([image]))


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["linear", "circular"])
def test_rows_are_written_where_a_cache_has_them(mode: str) -> None:
    model = model_of(
        "(float[b, t, 1] x, float[b, u, 1] v, int64[b] i) => (float[b, t, 1] y)"
        f' {{ y = TensorScatter <mode = "{mode}"> (x, v, i) }}',
        24,
    )
    x, v = np.zeros((1, 4, 1), np.float32), np.ones((1, 2, 1), np.float32)
    for start in range(-1, 4):
        wanted = np.zeros(4)
        wanted[[start % 4, (start + 1) % 4]] = 1
        feed = {"x": x, "v": v, "i": np.array([start])}
        if mode == "linear" and not 0 <= start <= 2:
            refused(model, **feed)
        else:
            np.testing.assert_array_equal(model(feed)["y"].ravel(), wanted)
    refused(model, x=x[:, :1], v=v, i=np.array([0]))
