"""The exact results of an ONNX model: onnx's reference evaluator, with all floats in float64."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from offcut.core.extras import is_installed
from offcut.describe.request import Array

FLOATS = ("FLOAT", "FLOAT16", "BFLOAT16")
"""Element types that become float64."""


def exact_results(file: bytes, feed: Mapping[str, Array]) -> tuple[tuple[Array, ...], str] | None:
    """Return a model's results, and how they were computed; None where neither evaluator has its operators.

    Those of onnx's reference evaluator in float64; of a model with operators that it lacks, such as onnxruntime's own, those of
    onnxruntime in float32, with nothing optimized.
    """
    import onnx
    from onnx.reference import ReferenceEvaluator

    try:
        wide = ReferenceEvaluator(widen_model(onnx.load_from_string(file)))
        wide_feed = {name: _widen_array(array) for name, array in feed.items()}
        return tuple(
            map(np.asarray, wide.run(None, wide_feed))
        ), "onnx's reference evaluator in float64"
    except Exception:  # an operator that the evaluator lacks, or cannot compute: of any kind
        if not is_installed("onnxruntime"):
            return None
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    return tuple(session.run(None, dict(feed))), "onnxruntime in float32"


def widen_model(model: Any) -> Any:
    """Return an ONNX model with float64 in place of shorter floats: in inputs, results, constants, and casts."""
    from onnx import ModelProto, TensorProto

    shorter = {getattr(TensorProto, name) for name in FLOATS}
    wide = ModelProto()
    wide.CopyFrom(model)
    for graph in _graphs(wide.graph):
        for tensor in graph.initializer:
            _widen(tensor, shorter)
        for info in (*graph.input, *graph.output, *graph.value_info):
            if info.type.tensor_type.elem_type in shorter:
                info.type.tensor_type.elem_type = TensorProto.DOUBLE
    for node in _nodes(wide):
        for attribute in node.attribute:
            if attribute.HasField("t"):
                _widen(attribute.t, shorter)
            elif attribute.name in ("to", "dtype") and attribute.i in shorter:
                attribute.i = TensorProto.DOUBLE
    return wide


def _graphs(graph: Any) -> Iterator[Any]:
    """Yield a graph, and those in its nodes."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _graphs(attribute.g)
            for one in attribute.graphs:
                yield from _graphs(one)


def _nodes(model: Any) -> Iterator[Any]:
    for graph in (model.graph, *model.functions):
        for one in _graphs(graph):
            yield from one.node


def _widen(tensor: Any, shorter: set[int]) -> None:
    if tensor.data_type in shorter:
        from onnx import numpy_helper

        wide = numpy_helper.from_array(
            numpy_helper.to_array(tensor).astype(np.float64), tensor.name
        )
        tensor.CopyFrom(wide)


def _widen_array(array: Array) -> Array:
    return (
        array.astype(np.float64)
        if array.dtype.name in ("float32", "float16", "bfloat16")
        else array
    )
