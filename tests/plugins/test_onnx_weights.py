"""Weights are read where they lie in a file; the model is the one that the whole file gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the extra onnx is not installed")

import onnx
from onnx import numpy_helper

import offcut as oc
from offcut.plugins.onnx.weights import LONG, apart, arrays_in, restore

HEAD = '<ir_version: 9, opset_import: ["" : 20]> '
TEXT = (
    "g (float[n, 160] x) => (float[n, 120] y) { a = MatMul (x, w) b = Add (a, v) y = Add (b, v) }"
)


def weighed() -> Any:
    """A product with a long weight and a short one."""
    made = onnx.parser.parse_model(HEAD + TEXT)
    rng = np.random.default_rng(0)
    for name, shape in (("v", (120,)), ("w", (160, 120))):
        array = rng.standard_normal(shape).astype(np.float32)
        made.graph.initializer.append(numpy_helper.from_array(array, name))
    assert len(made.graph.initializer[1].raw_data) > LONG
    return made


def test_a_model_is_its_rest_and_its_weights() -> None:
    proto = weighed()
    data = proto.SerializeToString()
    rest, weights = apart(memoryview(data))
    assert len(rest) < len(data) - LONG
    assert [*weights] == [1]
    made = onnx.load_model_from_string(rest)
    arrays = arrays_in(made, weights)
    assert arrays[1].tobytes() == proto.graph.initializer[1].raw_data
    restore(made, arrays)
    assert made == proto


@pytest.mark.parametrize("kept", [0, 1, 2, 40, 1000, 70_000])
def test_a_file_that_ends_early_is_taken_whole(kept: int) -> None:
    data = weighed().SerializeToString()[:kept]
    rest, weights = apart(memoryview(data))
    assert (rest, weights) == (data, {})


def test_bytes_that_are_no_array_stay_with_their_tensor() -> None:
    for change in ({"data_type": onnx.TensorProto.INT4}, {"data_type": 99}, {"dims": [160, 121]}):
        proto = weighed()
        tensor = proto.graph.initializer[1]
        if "dims" in change:
            del tensor.dims[:]
            tensor.dims.extend(change["dims"])
        else:
            tensor.data_type = change["data_type"]
        rest, weights = apart(memoryview(proto.SerializeToString()))
        made = onnx.load_model_from_string(rest)
        assert arrays_in(made, weights) == {}
        assert made == proto


def test_a_file_its_bytes_and_its_proto_give_one_model_whatever_becomes_of_them(
    tmp_path: Path,
) -> None:
    proto = weighed()
    data = bytearray(proto.SerializeToString())
    path = tmp_path / "model.onnx"
    path.write_bytes(data)
    x = np.random.default_rng(1).standard_normal((5, 160)).astype(np.float32)
    models = [oc.from_onnx(source, threads=1) for source in (proto, path, data)]
    data[:] = bytes(len(data))
    path.write_bytes(data)
    expected, *others = [model({"x": x})["y"].tobytes() for model in models]
    assert others == [expected, expected]
    arrays = [
        {name: array.tobytes() for name, array in model.imported.bound.arrays.items()}
        for model in models
    ]
    assert arrays[0] == arrays[1] == arrays[2]


def test_a_damaged_weight_is_refused_as_the_checker_says(tmp_path: Path) -> None:
    proto = weighed()
    proto.graph.initializer[1].dims[0] = 161
    path = tmp_path / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    texts = list[str]()
    for source in (proto, path):
        with pytest.raises(oc.DescribeError) as refused:
            oc.from_onnx(source)
        texts.append(str(refused.value))
    assert texts[0] == texts[1]
