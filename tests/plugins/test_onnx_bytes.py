"""Products of bytes behind zero points: what they give is the specification's, and their operands stay bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import slow

import offcut as oc

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402  (where it is installed)
from onnx.reference import ReferenceEvaluator  # noqa: E402

Array = np.ndarray[Any, Any]
TYPES = {"uint8": TensorProto.UINT8, "int8": TensorProto.INT8, "int32": TensorProto.INT32}
BYTES = {"uint8": (0, 256), "int8": (-128, 128)}


def drawn(dtype: str, *shape: int) -> Array:
    """Bytes, the ends of the type among them."""
    low, high = BYTES[dtype]
    array = np.random.default_rng(len(shape)).integers(low, high, shape)
    array.flat[:2] = low, high - 1
    return array.astype(dtype)


def model(node: Any, x: tuple[str, list[Any]], y: tuple[str, list[Any]], **known: Any) -> Any:
    given = helper.make_tensor_value_info("x", TYPES[x[0]], x[1])
    result = helper.make_tensor_value_info("y", TYPES[y[0]], y[1])
    arrays = [numpy_helper.from_array(np.asarray(one), name) for name, one in known.items()]
    graph = helper.make_graph([node], "bytes", [given], [result], arrays)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


def check(proto: Any, op: str, expected: Callable[[Array], Array], *inputs: Array) -> None:
    """The result is what is expected, and the operator `op` reads bytes alone."""
    made = oc.from_onnx(proto)
    for x in inputs:
        np.testing.assert_array_equal(made({"x": x})["y"], expected(x))
    graph = made.model.bound.graph
    products = [node for node in graph.nodes if node.op == op]
    assert products
    for node in products:
        dtypes = {graph.values[name].dtype for name in node.operands[:2]}
        assert dtypes <= {"int8", "uint8"}, dtypes


@pytest.mark.every(3)
@pytest.mark.parametrize("a", BYTES)
@pytest.mark.parametrize("b", BYTES)
@pytest.mark.parametrize("kind", ["none", "one", "columns", "rows"])
def test_matrices_with_zero_points_are_products_of_bytes(a: str, b: str, kind: str) -> None:
    known: dict[str, Any] = {"w": drawn(b, 19, 9)}
    if kind != "none":
        ends = np.resize(np.array(BYTES[b]) - [0, 1], 9) if kind == "columns" else BYTES[b][0] + 7
        known |= {"s": np.array(BYTES[a][1] - 1, a), "t": np.array(ends, b)}
    rows: list[Any] = ["n", 19]
    if kind == "rows":
        known["s"], rows = np.array([BYTES[a][0], 3, 5, 100, 7], a), [5, 19]
    node = helper.make_node("MatMulInteger", ["x", *known], ["y"])
    proto = model(node, (a, rows), ("int32", [rows[0], 9]), **known)
    sizes = (5,) if kind == "rows" else (1, 7, 33)
    s, t = (np.asarray(known.get(name, 0), np.int64) for name in "st")
    s = s[:, None] if kind == "rows" else s

    def expected(x: Array) -> Array:
        product: Array = (x.astype(np.int64) - s) @ (known["w"].astype(np.int64) - t)
        return product.astype(np.int32)

    check(proto, "dense", expected, *(drawn(a, n, 19) for n in sizes))


@pytest.mark.every(3)
@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize(("pads", "groups", "size"), [(1, 1, 3), (0, 1, 1), (1, 2, 3)])
@pytest.mark.parametrize("zero", [0, 7])
def test_convolutions_with_zero_points_are_products_of_bytes(
    dtype: str, pads: int, groups: int, size: int, zero: int
) -> None:
    weights = drawn("int8", 6, 8 // groups, size, size)
    known = {"w": weights, "s": np.array(BYTES[dtype][0] + zero, dtype)}
    node = helper.make_node("ConvInteger", ["x", "w", "s"], ["y"], pads=[pads] * 4, group=groups)
    proto = model(node, (dtype, ["n", 8, "h", 5]), ("int32", ["n", 6, "p", "q"]), **known)
    reference = ReferenceEvaluator(proto)
    inputs = drawn(dtype, 1, 8, 4, 5), drawn(dtype, 3, 8, 7, 5)
    check(proto, "conv2d", lambda x: reference.run(None, {"x": x})[0], *inputs)


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize(("groups", "other"), [(1, 0), slow(1, 9), slow(2, 0)])
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
        for x in (drawn(dtype, 1, 8, 4, 5), drawn(dtype, 3, 8, 7, 5)):
            feed = {"x": x, "s": point}
            np.testing.assert_array_equal(made(feed)["y"], reference.run(None, feed)[0])
    graph = made.model.bound.graph
    products = [node for node in graph.nodes if node.op == "conv2d"]
    assert products
    for node in products:
        assert {graph.values[name].dtype for name in node.operands[:2]} <= {"int8", "uint8"}


def test_a_quantised_convolution_is_within_a_step_of_the_specification() -> None:
    known = {
        "xs": np.float32(0.02),
        "xz": np.array(7, "uint8"),
        "w": drawn("int8", 6, 8, 3, 3),
        "ws": np.linspace(0.01, 0.02, 6, dtype="f4"),
        "wz": np.zeros(6, "int8"),
        "ys": np.float32(0.9),
        "yz": np.array(11, "uint8"),
        "b": np.arange(-300, 300, 100, dtype="int32"),
    }
    node = helper.make_node("QLinearConv", ["x", *known], ["y"], pads=[1] * 4)
    proto = model(node, ("uint8", ["n", 8, "h", 5]), ("uint8", ["n", 6, "p", "q"]), **known)
    x = drawn("uint8", 3, 8, 7, 5)
    (wanted,) = ReferenceEvaluator(proto).run(None, {"x": x})
    found = oc.from_onnx(proto)({"x": x})["y"]
    assert np.abs(found.astype(int) - wanted.astype(int)).max() <= 1


def test_a_channel_that_is_summed_by_itself_is_as_before() -> None:
    known = {"w": drawn("int8", 8, 1, 3, 3), "xz": np.array(5, "uint8")}
    node = helper.make_node("ConvInteger", ["x", "w", "xz"], ["y"], pads=[1] * 4, group=8)
    proto = model(node, ("uint8", ["n", 8, 6, 6]), ("int32", ["n", 8, 6, 6]), **known)
    x = drawn("uint8", 2, 8, 6, 6)
    (wanted,) = ReferenceEvaluator(proto).run(None, {"x": x})
    np.testing.assert_array_equal(oc.from_onnx(proto)({"x": x})["y"], wanted)


def test_all_pairs_of_bytes_with_all_ends_of_zero_points() -> None:
    every = {dtype: np.arange(*BYTES[dtype]).astype(dtype) for dtype in BYTES}
    for a in BYTES:
        for b in BYTES:
            for s in (BYTES[a][0], BYTES[a][1] - 1, 1):
                known = {"w": every[b][None, :], "s": np.array(s, a), "t": np.array(BYTES[b][0], b)}
                node = helper.make_node("MatMulInteger", ["x", *known], ["y"])
                proto = model(node, (a, [256, 1]), ("int32", [256, 256]), **known)
                found = oc.from_onnx(proto)({"x": every[a][:, None]})["y"]
                wanted = np.multiply.outer(
                    every[a].astype(int) - s, every[b].astype(int) - BYTES[b][0]
                )
                np.testing.assert_array_equal(found, wanted)
