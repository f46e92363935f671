"""Scripts written for onnxruntime, run by offcut: ``import offcut.onnxruntime as ort``.

A session is a model of `offcut.from_onnx`, or of a saved file, behind the names of onnxruntime's Python interface: what a script for
inference on processors calls. What changes how onnxruntime runs a graph, and not what it gives, is accepted and has no effect here; bindings
of memory (``io_binding``) are not there.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Any

import offcut
from offcut.backends.abi import Argument
from offcut.backends.host.saved import SavedModel, load
from offcut.core.expr import Const
from offcut.core.text.printer import format_expr
from offcut.errors import CallError, trim_traceback
from offcut.plugins.onnx import from_onnx
from offcut.plugins.onnx.model import OnnxModel

_PROVIDERS = ("CPUExecutionProvider",)
_TYPES = {"float32": "float", "float64": "double"}
_SUFFIX = ".offcut"

__version__ = offcut.__version__


class GraphOptimizationLevel(IntEnum):
    """How much onnxruntime does to a graph: here, always all."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_ALL = 99


class ExecutionMode(Enum):
    """In which order onnxruntime runs operators: here, one kernel after the other."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


@dataclass
class SessionOptions:
    """What a session is asked for.

    intra_op_num_threads  that a kernel may use; 0: as `offcut.compile` has it where nothing is said

    All others are of onnxruntime, and have no effect here.
    """

    intra_op_num_threads: int = 0
    inter_op_num_threads: int = 0
    graph_optimization_level: GraphOptimizationLevel = GraphOptimizationLevel.ORT_ENABLE_ALL
    execution_mode: ExecutionMode = ExecutionMode.ORT_SEQUENTIAL
    log_severity_level: int = 2
    log_verbosity_level: int = 0
    enable_cpu_mem_arena: bool = True
    enable_mem_pattern: bool = True
    enable_mem_reuse: bool = True
    enable_profiling: bool = False
    optimized_model_filepath: str = ""
    config_entries: dict[str, str] = field(default_factory=dict)

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Note a setting of onnxruntime."""
        self.config_entries[key] = value

    def get_session_config_entry(self, key: str) -> str:
        """Return a setting that was noted; raises KeyError for any other."""
        return self.config_entries[key]


@dataclass
class RunOptions:
    """What a run is asked for: nothing of it has an effect here."""

    log_severity_level: int = 2
    run_tag: str = ""
    terminate: bool = False


@dataclass(frozen=True)
class NodeArg:
    """An input or an output of a model.

    type   such as ``tensor(float)``
    shape  numbers, and the names of sizes
    """

    name: str
    type: str
    shape: list[int | str]


class InferenceSession:
    """A model that runs at every size of its file.

    path_or_bytes  a path, or the bytes of a file of ONNX; the path of a file that `save` wrote, which ends in ``.offcut``
    sess_options   of which `intra_op_num_threads` counts
    providers      of onnxruntime: those that are not there are said to be, and left out

    Raises what `offcut.from_onnx`, or `offcut.load`, does.
    """

    def __init__(
        self,
        path_or_bytes: str | os.PathLike[str] | bytes,
        sess_options: SessionOptions | None = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        **kwargs: Any,
    ) -> None:
        self._options = sess_options or SessionOptions()
        for one in providers or ():
            name = one if isinstance(one, str) else one[0]
            if name not in _PROVIDERS:
                warnings.warn(
                    f"Specified provider '{name}' is not in available provider names. Available providers: '{', '.join(_PROVIDERS)}'",
                    UserWarning,
                    stacklevel=2,
                )
        self.model: OnnxModel | SavedModel
        if not isinstance(path_or_bytes, bytes) and str(path_or_bytes).endswith(_SUFFIX):
            saved = load(path_or_bytes)
            if not isinstance(saved, SavedModel):
                raise CallError(
                    "InferenceSession",
                    f"cannot run {path_or_bytes!s}",
                    because="it holds a kernel, and no model",
                )
            self.model = saved
        else:
            threads = self._options.intra_op_num_threads or None
            self.model = from_onnx(path_or_bytes, threads=threads)
        self._inputs, self._outputs = self.model.inputs, self.model.outputs

    @trim_traceback
    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: RunOptions | None = None,
    ) -> list[Any]:
        """Return outputs, in the order in which they are asked for.

        output_names  None: all, in the order of the file
        input_feed    an array for each input, by name

        Raises CallError for a name that the model has not, and for an array that does not fit.
        """
        names = (
            [*self._outputs] if output_names is None or not len(output_names) else [*output_names]
        )
        for name in names:
            if name not in self._outputs:
                raise CallError(
                    "run",
                    f"cannot give {name}",
                    at=name,
                    because=f"the outputs are {', '.join(self._outputs)}",
                )
        results = self.model(dict(input_feed))
        return [results[name] for name in names]

    def get_inputs(self) -> list[NodeArg]:
        """Return what a call takes."""
        return [_node_arg(name, one) for name, one in self._inputs.items()]

    def get_outputs(self) -> list[NodeArg]:
        """Return what a call gives."""
        return [_node_arg(name, one) for name, one in self._outputs.items()]

    def get_providers(self) -> list[str]:
        """Return what runs it, by onnxruntime's name for processors."""
        return [*_PROVIDERS]

    def set_providers(
        self, providers: Sequence[Any] | None = None, provider_options: Any = None
    ) -> None:
        """Leave what runs it as it is."""

    def get_session_options(self) -> SessionOptions:
        """Return what it was asked for."""
        return self._options


def get_available_providers() -> list[str]:
    """Return what can run a model, by onnxruntime's name for processors."""
    return [*_PROVIDERS]


def get_all_providers() -> list[str]:
    """Return the same: there are no others."""
    return [*_PROVIDERS]


def get_device() -> str:
    """Return the kind of device that models run on, as onnxruntime says it."""
    return "CPU"


def set_default_logger_severity(severity: int) -> None:
    """Do nothing: offcut says what it does where ``OFFCUT_DEBUG`` is set."""


def set_seed(seed: int) -> None:
    """Do nothing: no operator draws numbers."""


def _node_arg(name: str, of: Argument) -> NodeArg:
    extents = [int(e.value) if isinstance(e, Const) else format_expr(e) for e in of.shape]
    return NodeArg(name, f"tensor({_TYPES.get(of.dtype, of.dtype)})", extents)


__all__ = [
    "ExecutionMode",
    "GraphOptimizationLevel",
    "InferenceSession",
    "NodeArg",
    "RunOptions",
    "SessionOptions",
    "get_all_providers",
    "get_available_providers",
    "get_device",
    "set_default_logger_severity",
    "set_seed",
]
