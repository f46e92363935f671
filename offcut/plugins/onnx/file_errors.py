"""Why a file of ONNX is no model here, as classes: who reads files for others says it in their terms."""

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

    size  its name; None where that is not known
    """

    size: str | None = None
