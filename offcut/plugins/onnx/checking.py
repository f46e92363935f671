"""Checks of a model proto by onnx, the order of its nodes, and errors of files by their cause.

Errors of files of ONNX by their cause, so that `offcut.onnxruntime` can raise those of onnxruntime.
"""

from __future__ import annotations

from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from typing import Any

import onnx

from offcut.errors import DescribeError
from offcut.plugins.onnx.importer.size_facts import OP


class UnreadableFileError(DescribeError):
    """A file, or bytes, that cannot be read as a model."""


class InvalidModelError(DescribeError):
    """A model that the specification does not allow."""


class UnsupportedNodesError(DescribeError):
    """Nodes that cannot be taken."""


class UnknownSizeError(DescribeError):
    """A bound of a size that a file does not have.

    size  its name
    """

    size: str = ""


def check_proto(proto: Any) -> None:
    """Check a model but for the types of its outputs, which nodes give: exporters leave out their shapes.

    Raises InvalidModelError for what onnx.checker finds, and for a name of the graph, an input or an output that is no text.
    """
    for one in (proto.graph, *proto.graph.input, *proto.graph.output):
        if isinstance(one.name, bytes):  # protobuf gives those where a text is no UTF-8
            because = f"the name {one.name!r} is not text in UTF-8"
            raise InvalidModelError(OP, "cannot take the model", because=because)
    try:
        onnx.checker.check_model(_with_types(proto))
    except onnx.checker.ValidationError as error:
        text = " ".join(str(error).split())
        apart = any(
            one.data_location == onnx.TensorProto.EXTERNAL for one in proto.graph.initializer
        )
        beside = (
            ("from_onnx(path): the path of the file, beside which its tensors lie",)
            if apart
            else ()
        )
        raise InvalidModelError(
            OP, "cannot take the model", because=f"onnx.checker: {text}", help=beside
        ) from None
    except ValueError:  # larger than a protobuf message may be: it is taken as it is
        return


def _with_types(proto: Any) -> Any:
    """Return a model whose outputs have a type with a shape, a copy of its own where one has none."""
    open_ = [one for one in proto.graph.output if not _has_shape(one)]
    if not open_:
        return proto
    copy = type(proto)()
    copy.CopyFrom(proto)
    for one in copy.graph.output:
        if not one.type.WhichOneof("value"):
            one.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
        if not _has_shape(one):
            one.type.tensor_type.shape.SetInParent()
    return copy


def _has_shape(value: Any) -> bool:
    """Return whether a value has a type that says its shape; sequences and others say none."""
    kind = value.type.WhichOneof("value")
    return kind is not None and (kind != "tensor_type" or value.type.tensor_type.HasField("shape"))


def check_consistent(proto: Any) -> None:
    """Where an import ended as only a bug does, or a node whose attributes and inputs do not go together: which of them.

    Raises InvalidModelError for such a node.
    """
    try:
        onnx.shape_inference.infer_shapes(proto, check_type=True, strict_mode=True, data_prop=True)
    except onnx.shape_inference.InferenceError as error:
        text = " ".join(str(error).split())
        raise InvalidModelError(
            OP, "cannot take the model", because=f"onnx.shape_inference: {text}"
        ) from None
    except ValueError:  # larger than a protobuf message may be: nothing is known of it
        return


def in_order(proto: Any) -> Any:
    """Return a model whose nodes follow what they read, a copy with its weights; itself where they do, or where they read each other in a circle.

    Nodes of bodies and functions stay in their order.
    """
    nodes = proto.graph.node
    makers = {name: place for place, node in enumerate(nodes) for name in node.output if name}
    reads = [[makers[name] for name in _names_read(node) if name in makers] for node in nodes]
    if all(one < place for place, makers_read in enumerate(reads) for one in makers_read):
        return proto
    try:
        order = tuple(TopologicalSorter(dict(enumerate(reads))).static_order())
    except CycleError:
        return proto
    copy = type(proto)()
    copy.CopyFrom(proto)
    del copy.graph.node[:]
    copy.graph.node.extend(nodes[place] for place in order)
    return copy


def _names_read(node: Any) -> Iterator[str]:
    """What a node reads, and what graphs inside of it do."""
    yield from node.input
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            yield from (one.name for one in graph.output)
            for inner in graph.node:
                yield from _names_read(inner)
