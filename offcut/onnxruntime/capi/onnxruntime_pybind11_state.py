"""The errors of onnxruntime, by its names. Their first line is onnxruntime's own."""

from __future__ import annotations

from offcut.errors import CallError, OffcutError

_OP = "[ONNXRuntimeError] "


class _Status(CallError):
    """An error of onnxruntime, with its number and its name."""

    number, status = 1, "FAIL"

    @classmethod
    def of(cls, text: str, because: str | OffcutError) -> _Status:
        """Return an error.

        text     as onnxruntime has it
        because  what offcut says
        """
        refused = f"{cls.number} : {cls.status} : {text}"
        return cls(
            _OP, refused, because=because.because if isinstance(because, OffcutError) else because
        )


class Fail(_Status):
    """Something failed."""


class InvalidArgument(_Status):
    """A name, an element type, a rank or an extent that a model does not take."""

    number, status = 2, "INVALID_ARGUMENT"


class NoSuchFile(_Status):
    """A file that is not there."""

    number, status = 3, "NO_SUCHFILE"


class RuntimeException(_Status):
    """A call that did not end."""

    number, status = 6, "RUNTIME_EXCEPTION"


class InvalidProtobuf(_Status):
    """Bytes that are no model."""

    number, status = 7, "INVALID_PROTOBUF"


class NotImplemented(_Status):
    """An operator that does not run."""

    number, status = 9, "NOT_IMPLEMENTED"


class InvalidGraph(_Status):
    """A graph that means nothing."""

    number, status = 10, "INVALID_GRAPH"


class MissingInputs(CallError, ValueError):
    """Inputs that were not given: a `ValueError`, as onnxruntime has it."""

    def __str__(self) -> str:
        return self.refused


class Unbound(CallError, RuntimeError):
    """A name that nothing is bound to: a `RuntimeError`, as onnxruntime has it."""

    def __str__(self) -> str:
        return self.refused


__all__ = [
    "Fail",
    "InvalidArgument",
    "InvalidGraph",
    "InvalidProtobuf",
    "MissingInputs",
    "NoSuchFile",
    "NotImplemented",
    "RuntimeException",
    "Unbound",
]
