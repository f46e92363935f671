"""What of a model depends on the range of a size: an extent that is 1, how many axes there are; axes without a name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the extra onnx is not installed")

import onnx
from conftest import rejection, slow

import offcut as oc


def parsed(text: str) -> Any:
    return onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 20]> {text}')


SQUEEZED = "g (float[n, m] x) => (float[a] y) { y = Squeeze (x) }"
STRIDED = """g (float[N, 1, n] x) => (float[N, 2] y) <float[2, 1, 4] w = {1., 2., 3., 4., 1., 1., 1., 1.}, int64[1] ax = {2}>
    { c = Conv <strides = [4]> (x, w)  y = Squeeze (c, ax) }"""


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


@pytest.mark.parametrize("sizes", [{}, slow({"n": (4, 7)}), slow({"n": 6})])
def test_an_extent_that_must_be_1_is_where_it_is_in_the_range_of_a_size(sizes: Any) -> None:
    """A size that nobody bounded has that range."""
    model = oc.from_onnx(parsed(STRIDED), sizes, threads=1)
    x = np.arange(12, dtype=np.float32).reshape(2, 1, 6)
    np.testing.assert_array_equal(model(x)["y"], [[20, 6], [80, 30]])
    with pytest.raises(oc.CallError, match="cannot take"):
        model(np.zeros((2, 1, 8), np.float32))


@pytest.mark.parametrize(
    ("bounds", "at"), [((4, 9), 8), ((2, 7), 2), ((8, 17), 8)], ids=["above", "below", "never"]
)
def test_the_smallest_size_at_which_an_extent_is_not_1_is_named(
    bounds: tuple[int, int], at: int
) -> None:
    with pytest.raises(oc.DescribeError) as refused:
        oc.from_onnx(parsed(STRIDED), sizes={"n": bounds})
    help = '\n  help     sizes={"n": (4, 7)}' if at < 8 or bounds[0] < 8 else ""
    assert str(refused.value) == (
        "from_onnx: cannot take one node of g\n"
        f"  because  Squeeze y: axis 2 has the extent n//4, which is not 1 at n = {at}{help}"
    )


def test_an_extent_of_two_sizes_must_be_1_in_their_bounds() -> None:
    text = """g (float[n, 4] x, float[m, 4] z) => (float[k] y) <int64[1] a = {0}>
        { c = Concat <axis = 0> (x, z)  y = Squeeze (c, a) }"""
    with pytest.raises(oc.DescribeError) as refused:
        oc.from_onnx(parsed(text), sizes={"n": (0, 1), "m": (0, 1)})
    assert refused.value.because == "Squeeze y: axis 0 has the extent m + n, which is not 1 at m = 0, n = 0"  # fmt: skip
    assert refused.value.help == ("from_onnx(…, sizes={…}): bounds in which it is 1",)


def test_an_extent_that_has_one_value_is_a_number_to_what_follows() -> None:
    text = STRIDED.replace("int64[1] ax = {2}", "int64[2] to = {0, 2}").replace("Squeeze (c, ax)", "Reshape (c, to)")  # fmt: skip
    model = oc.from_onnx(parsed(text), sizes={"n": (4, 7)}, threads=1)
    assert model(np.ones((3, 1, 5), np.float32))["y"].shape == (3, 2)


@pytest.mark.parametrize("name", ["?", slow("-1"), slow("None"), slow("unk")])
def test_axes_that_an_exporter_does_not_know_vary_apart(name: str) -> None:
    proto = parsed("g (float[N, h, w] x) => (float[N, h, w] y) { y = Relu (x) }")
    for value in (*proto.graph.input, *proto.graph.output):
        for dim in value.type.tensor_type.shape.dim[1:]:
            dim.dim_param = name
    model = oc.from_onnx(proto, sizes={"x_2": (1, 64)}, threads=1)
    assert [size.name for size in model.sizes] == ["N", "x_1", "x_2"]
    assert model(np.ones((1, 4, 6), np.float32))["y"].shape == (1, 4, 6)
    constant = oc.from_onnx(proto, constants={"x": np.ones((2, 3, 4), np.float32)}, threads=1)
    assert constant({})["y"].shape == (2, 3, 4)


def test_an_array_is_the_input_of_a_model_that_has_one() -> None:
    model = oc.from_onnx(parsed("g (float[n] x) => (float[n] y) { y = Relu (x) }"), threads=1)
    np.testing.assert_array_equal(model(np.array([-1, 2], np.float32))["y"], [0, 2])
    two = oc.from_onnx(parsed("g (float[n] x, float[n] z) => (float[n] y) { y = Add (x, z) }"), threads=1)  # fmt: skip
    with rejection("""\
CallError: run: cannot take ndarray for the inputs
  because  they are given by name
  help     model({"x": x, "z": z})"""):
        two(np.ones(2, np.float32))


def test_a_known_condition_is_one() -> None:
    text = """g (float[n] x) => (float[n] y) <bool[2] c = {1, 0}>
        { y = If (c) <then_branch = a () => (float[n] p) { p = Relu (x) }, else_branch = b () => (float[n] q) { q = Neg (x) }> }"""
    with pytest.raises(oc.DescribeError) as refused:
        oc.from_onnx(parsed(text))
    assert refused.value.because == "If y: its condition has 2 elements"
