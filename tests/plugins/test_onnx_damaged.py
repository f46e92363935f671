"""Files that are damaged, and files that onnxruntime's quantizer wrote for old operator sets."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the extra onnx is not installed")

import onnx
from onnx import numpy_helper

import offcut as oc
from offcut.plugins.onnx.import_model import import_proto
from tests.agree import agree, computed
from tests.facade import interpret_graph

HEAD = '<ir_version: 9, opset_import: ["" : 17]> '
BIAS = "g (float[n, 4] x) => (float[n, 4] y) { y = Add (x, w) }"
OTHERS = "g (float[n, 4] x) => (float[n, 4] y) <int64[1] w = {9}, int64[2] twice = {1, 1}> { "


def added() -> Any:
    made = onnx.parser.parse_model(HEAD + BIAS)
    made.graph.initializer.append(numpy_helper.from_array(np.ones(4, np.float32), "w"))
    return made


def refusal(source: Any) -> str:
    with pytest.raises(oc.DescribeError) as refused:
        oc.from_onnx(source)
    return str(refused.value)


def test_tensors_that_are_not_what_they_say_are_refused_by_name() -> None:
    proto = added()
    proto.graph.initializer[0].dims[0] = 3
    assert (
        refusal(proto)
        == """\
from_onnx: cannot take one node of g
  because  initializer w: it is not of float32[3]: cannot reshape array of size 4 into shape (3,)"""
    )
    proto = added()
    proto.graph.initializer[0].data_type = 99
    assert (
        refusal(proto)
        == """\
from_onnx: cannot take one node of g
  because  initializer w: there is no element type 99"""
    )
    proto = added()
    proto.graph.initializer[0].data_type = 6
    assert "Add y: cannot pair float32 with int32" in refusal(proto)


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
    damage(other)
    found = refusal(path)
    head = f"from_onnx: cannot read {path}\n  because  its tensors lie in another file: "
    assert found.startswith(head)
    assert because in found


@pytest.mark.slow
def test_every_part_of_a_file_that_is_cut_off_is_refused_or_a_model() -> None:
    text = added().SerializeToString()
    for end in range(len(text)):
        refusal(text[:end])


def test_nodes_that_stand_before_what_they_read_are_put_after_it() -> None:
    text = """g (bool c, float[n] x) => (float[n] y) {
        z = If (c) <then_branch = t () => (float[n] p) { p = Neg (b) }, else_branch = e () => (float[n] q) { q = Exp (a) }>
        y = Add (z, b)  b = Relu (a)  a = Mul (x, x) }"""
    proto = onnx.parser.parse_model(HEAD + text)
    before = proto.SerializeToString()
    model, x = oc.from_onnx(proto, threads=1), np.float32([0.5, -1.0])
    agree(model({"c": np.array(True), "x": x})["y"], 0.0 * x.astype("float64"), terms=x * x)
    found = model({"c": np.array(False), "x": x})["y"]
    agree(found, computed(lambda x: np.exp(x * x) + x * x, x))
    assert proto.SerializeToString() == before


def test_a_node_that_reads_what_it_gives_is_refused() -> None:
    text = "g (float[n, 4] x) => (float[n, 4] y) { a = Add (x, y)  y = Relu (a) }"
    assert "must be topologically sorted" in refusal(onnx.parser.parse_model(HEAD + text))


@pytest.mark.parametrize(
    ("nodes", "because"),
    [
        ("y = Unsqueeze (x, w)", "Unsqueeze y: axes 9 of 3\n  help     each axis once"),
        ("y = Unsqueeze (x, twice)", "Unsqueeze y: axes 1, 1 of 4\n  help     each axis once"),
        ("s = Shape (x)  a = Squeeze (s)  y = Gather <axis = 1> (a, w)", "evaluator says: axis 1"),
        ("a = Gather (w, zero)  s = Shape (x)  y = Squeeze (s, w)", "evaluator says: axis 9"),
    ],
)
def test_axes_that_there_are_not_are_refused(nodes: str, because: str) -> None:
    made = onnx.parser.parse_model(HEAD + OTHERS + nodes + " }")
    made.graph.initializer.append(numpy_helper.from_array(np.int64(0), "zero"))
    assert because in refusal(made)


@pytest.mark.parametrize("opset", [13, 17, 21])
def test_weights_of_small_integers_become_floats_in_every_operator_set(opset: int) -> None:
    """The scale has one element, and the axis that nobody means is beyond the bias."""
    made = onnx.parser.parse_model(
        HEAD.replace("17", str(opset))
        + """g (float[n, 4] x) => (float[n, 3] y) {
            b = DequantizeLinear (c, s, z)
            k = DequantizeLinear <axis = 0> (w, scales, zeros)
            y = Gemm <transB = 1> (x, k, b)
        }"""
    )
    rng = np.random.default_rng(0)
    w, c = rng.integers(-128, 128, (3, 4)), rng.integers(-999, 999, 3)
    scales, zeros = np.array([0.5, 0.25, 2], np.float32), np.array([1, -2, 3], np.int8)
    given = {
        "w": w.astype(np.int8),
        "c": c.astype(np.int32),
        "scales": scales,
        "zeros": zeros,
        "s": np.array([0.125], np.float32),
        "z": np.array([0], np.int32),
    }
    for name, array in given.items():
        made.graph.initializer.append(numpy_helper.from_array(array, name))
    found = import_proto(made, {}, {})
    x = rng.standard_normal((5, 4)).astype(np.float32)
    y = found.results_by_name(interpret_graph(found.bound, found.arrays_by_name({"x": x})))["y"]
    weights = (w - zeros[:, None]) * scales[:, None].astype(float)
    agree(y, computed(lambda x, w, c: x @ w.T + c * 0.125, x, weights, c))
