"""Scripts written for onnxruntime, run by offcut: ``import offcut.onnxruntime as ort``.

A session is a model of `offcut.from_onnx`, or of a saved file, behind the names of onnxruntime's Python interface: what a script for
inference on processors calls. What changes how onnxruntime runs a graph, and not what it gives, is accepted and has no effect here. Errors
are of the classes of onnxruntime, in ``capi.onnxruntime_pybind11_state``, with its texts first, and are `offcut.OffcutError` too.
"""

from __future__ import annotations

import offcut
from offcut.onnxruntime import capi
from offcut.onnxruntime.options import (
    ExecutionMode,
    ExecutionOrder,
    GraphOptimizationLevel,
    RunOptions,
    SessionOptions,
)
from offcut.onnxruntime.session import (
    PROVIDERS,
    InferenceSession,
    ModelMetadata,
    NodeArg,
)
from offcut.onnxruntime.values import IOBinding, OrtValue

__version__ = offcut.__version__


def get_available_providers() -> list[str]:
    """Return what can run a model, by onnxruntime's name for processors."""
    return [*PROVIDERS]


def get_all_providers() -> list[str]:
    """Return the same: there are no others."""
    return [*PROVIDERS]


def get_device() -> str:
    """Return the kind of device that models run on, as onnxruntime says it."""
    return "CPU"


def get_version_string() -> str:
    """Return the version of offcut."""
    return __version__


def get_build_info() -> str:
    """Return what runs models, in words."""
    return f"offcut {__version__}"


def set_default_logger_severity(severity: int) -> None:
    """Do nothing: offcut says what it does to loggers of Python."""


def set_default_logger_verbosity(verbosity: int) -> None:
    """Do nothing, likewise."""


def disable_telemetry_events() -> None:
    """Do nothing: there are none."""


def enable_telemetry_events() -> None:
    """Do nothing: there are none."""


def set_seed(seed: int) -> None:
    """Do nothing: no operator draws numbers."""


def preload_dlls(
    cuda: bool = True, cudnn: bool = True, msvc: bool = True, directory: str | None = None
) -> None:
    """Do nothing: there are no libraries of other hardware."""


def has_collective_ops() -> bool:
    """Return False: models run in one process."""
    return False


__all__ = [
    "ExecutionMode",
    "ExecutionOrder",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "ModelMetadata",
    "NodeArg",
    "OrtValue",
    "RunOptions",
    "SessionOptions",
    "capi",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_all_providers",
    "get_available_providers",
    "get_build_info",
    "get_device",
    "get_version_string",
    "has_collective_ops",
    "preload_dlls",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_seed",
]
