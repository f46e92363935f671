"""Facts that a file of ONNX states of itself, in a form that needs no onnx: a saved model has them in its manifest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

Extent = int | str | None
"""A number, the text of a size, or None for an axis with neither."""


@dataclass(frozen=True)
class FileFacts:
    """What a file says of itself, by the names of ``onnx.ModelProto``.

    shapes  of inputs and outputs, as declared; one that is not there is not declared
    initialized  numbers of element types, as in ``onnx.TensorProto``, of inputs whose values the file has: a call may give others
    """

    graph_name: str = ""
    graph_description: str = ""
    producer_name: str = ""
    domain: str = ""
    description: str = ""
    version: int = 0
    custom_metadata: Mapping[str, str] = field(default_factory=dict)
    shapes: Mapping[str, tuple[Extent, ...]] = field(default_factory=dict)
    initialized: Mapping[str, int] = field(default_factory=dict)

    @staticmethod
    def of(proto: Any) -> FileFacts:
        """Return the facts of an ``onnx.ModelProto``."""
        graph = proto.graph
        # before version 4 of the format every initializer is listed among the inputs, and is a constant
        values = {one.name for one in graph.initializer if proto.ir_version >= 4}
        return FileFacts(
            graph.name,
            graph.doc_string,
            proto.producer_name,
            proto.domain,
            proto.doc_string,
            proto.model_version,
            {one.key: one.value for one in proto.metadata_props},
            {
                one.name: tuple(
                    axis.dim_param or (axis.dim_value if axis.HasField("dim_value") else None)
                    for axis in one.type.tensor_type.shape.dim
                )
                for one in (*graph.input, *graph.output)
                if one.type.tensor_type.HasField("shape")
            },
            {one.name: one.type.tensor_type.elem_type for one in graph.input if one.name in values},
        )

    @staticmethod
    def from_json(members: Mapping[str, Any]) -> FileFacts:
        """Return the facts that `to_json` gave; a member that is missing has its default."""
        names = {one.name for one in fields(FileFacts)}
        return FileFacts(**{name: value for name, value in members.items() if name in names})

    def to_json(self) -> Mapping[str, Any]:
        """Return the facts as JSON can hold them."""
        return asdict(self)
