"""The errors of onnxruntime, by its names. Their first line is onnxruntime's own."""

from __future__ import annotations

from offcut.errors import CallError, DescribeError, OffcutError

_OP = "[ONNXRuntimeError] "


class Status(CallError):
    """An error of onnxruntime, with its number and its name."""

    number, status = 1, "FAIL"

    @classmethod
    def of(cls, text: str, because: str | OffcutError) -> Status:
        """Return an error.

        text     as onnxruntime has it
        because  what offcut says
        """
        refused = f"{cls.number} : {cls.status} : {text}"
        if isinstance(because, DescribeError):
            # of a file: what would be accepted is not in onnxruntime's text
            return cls(_OP, refused, at=because.at, because=because.because, help=because.help)
        return cls(
            _OP, refused, because=because.because if isinstance(because, OffcutError) else because
        )

    @property
    def text(self) -> str:
        """Return what onnxruntime says, without its number and name."""
        return self.refused.removeprefix(f"{self.number} : {self.status} : ")


class Fail(Status):
    """Something failed."""


class InvalidArgument(Status):
    """A name, an element type, a rank or an extent that a model does not take."""

    number, status = 2, "INVALID_ARGUMENT"


class NoSuchFile(Status):
    """A file that is not there."""

    number, status = 3, "NO_SUCHFILE"


class RuntimeException(Status):
    """A call that did not end."""

    number, status = 6, "RUNTIME_EXCEPTION"


class InvalidProtobuf(Status):
    """Bytes that are no model."""

    number, status = 7, "INVALID_PROTOBUF"


class NotImplemented(Status):
    """An operator that does not run."""

    number, status = 9, "NOT_IMPLEMENTED"


class InvalidGraph(Status):
    """A graph that means nothing."""

    number, status = 10, "INVALID_GRAPH"


class MissingInputs(CallError, ValueError):
    """Inputs that were not given: a `ValueError`, as onnxruntime has it."""

    def __str__(self) -> str:
        return self.refused


class Unbound(CallError, RuntimeError):
    """A name that nothing is bound to, or an array that nothing can be bound to: a `RuntimeError`, as onnxruntime has it."""

    def __str__(self) -> str:
        return self.refused


class BindingError(CallError, RuntimeError):
    """A run that cannot read or fill what is bound: a `RuntimeError`, as onnxruntime has it."""


__all__ = [
    "BindingError",
    "Fail",
    "InvalidArgument",
    "InvalidGraph",
    "InvalidProtobuf",
    "MissingInputs",
    "NoSuchFile",
    "NotImplemented",
    "RuntimeException",
    "Status",
    "Unbound",
]
