"""Element types: by ONNX's numbers, and by our names."""

from __future__ import annotations

from collections.abc import Mapping

from onnx import TensorProto

from offcut.core.dtypes import DTYPES
from offcut.plugins.onnx.importer.operands import UnsupportedNode

RENAMED: Mapping[str, str] = {"float": "float32", "double": "float64"}
"""The names of ONNX that are not numpy's."""


def name_of(code: int) -> str:
    """The name of an element type, ours or not."""
    name = str(TensorProto.DataType.Name(code)).lower()
    return RENAMED.get(name, name)


def dtype_of(code: int) -> str:
    """Our name of an element type.

    Raises Refused where it is not ours.
    """
    name = name_of(code)
    if name not in DTYPES:
        raise unsupported_dtype(name)
    return name


def unsupported_dtype(name: str) -> UnsupportedNode:
    """The refusal of an element type, or of what numpy has no type of its own for: sequences, and texts."""
    if name == "object":
        return UnsupportedNode(
            "it is not a tensor of numbers, but of texts, or a sequence", "tensors"
        )
    return UnsupportedNode(f"elements of {name}", f"element types are {', '.join(DTYPES)}")


def code_of(dtype: str) -> int:
    """ONNX's number of an element type of ours."""
    theirs = {own: name for name, own in RENAMED.items()}
    return int(TensorProto.DataType.Value(theirs.get(dtype, dtype).upper()))
