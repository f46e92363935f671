"""Errors of files of ONNX by their cause, so that `offcut.onnxruntime` can raise those of onnxruntime."""

from __future__ import annotations

from offcut.errors import DescribeError


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
