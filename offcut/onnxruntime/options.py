"""What sessions and runs of onnxruntime are asked for."""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class _NumberEnum(Enum):
    """An enumeration whose members ``int`` converts to their numbers."""

    def __int__(self) -> int:
        return int(self.value)

    __index__ = __int__


class GraphOptimizationLevel(_NumberEnum):
    """How much onnxruntime does to a graph: here, always all."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(_NumberEnum):
    """In which order onnxruntime runs operators: here, one kernel after the other."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(_NumberEnum):
    """Likewise."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


class _Options:
    """Attributes that take values of their types alone, and no others."""

    __slots__ = ()
    config_entries: dict[str, str]

    def _add_config_entry(self, key: str, value: str) -> None:
        """Add a setting of onnxruntime.

        Raises TypeError for a key or a value that is not a text.
        """
        if not (isinstance(key, str) and isinstance(value, str)):
            raise TypeError(f"a setting is two texts, not {key!r} and {value!r}")
        self.config_entries[key] = value

    def _config_entry(self, key: str) -> str:
        """Return a setting that was added; raises RuntimeError for any other."""
        if key not in self.config_entries:
            raise RuntimeError(f"{type(self).__name__} does not have configuration with key: {key}")
        return self.config_entries[key]

    def __setattr__(self, name: str, value: Any) -> None:
        kind = type(self).__annotations__.get(name, "")
        if kind == "int":
            value = operator.index(value)
        elif kind == "bool":
            value = bool(value)
        elif kind in ("str", "GraphOptimizationLevel", "ExecutionMode", "ExecutionOrder"):
            expected = str if kind == "str" else globals()[kind]
            if not isinstance(value, expected):
                raise TypeError(f"{name} is of type {kind}, not {type(value).__name__}")
        object.__setattr__(self, name, value)


@dataclass(slots=True)
class SessionOptions(_Options):
    """What a session is asked for.

    intra_op_num_threads  that a kernel may use; 0: as `offcut.compile` has it where nothing is said

    Of the others, which are onnxruntime's, the sizes that `add_free_dimension_override_by_name` fixes, ``enable_profiling`` and
    ``profile_file_prefix`` have an effect here.
    """

    intra_op_num_threads: int = 0
    inter_op_num_threads: int = 0
    graph_optimization_level: GraphOptimizationLevel = GraphOptimizationLevel.ORT_ENABLE_ALL
    execution_mode: ExecutionMode = ExecutionMode.ORT_SEQUENTIAL
    execution_order: ExecutionOrder = ExecutionOrder.DEFAULT
    log_severity_level: int = -1
    log_verbosity_level: int = 0
    logid: str = ""
    enable_cpu_mem_arena: bool = True
    enable_mem_pattern: bool = True
    enable_mem_reuse: bool = True
    enable_profiling: bool = False
    profile_file_prefix: str = "onnxruntime_profile_"
    optimized_model_filepath: str = ""
    use_deterministic_compute: bool = False
    use_per_session_threads: bool = True
    config_entries: dict[str, str] = field(default_factory=dict)
    dimensions: dict[str, int] = field(default_factory=dict)

    add_session_config_entry = _Options._add_config_entry
    get_session_config_entry = _Options._config_entry

    def add_free_dimension_override_by_name(self, name: str, value: int) -> None:
        """Fix a size of the file."""
        self.dimensions[name] = operator.index(value)

    def add_free_dimension_override_by_denotation(self, denotation: str, value: int) -> None:
        """Do nothing: sizes are known by their names."""


@dataclass(slots=True)
class RunOptions(_Options):
    """What a run is asked for.

    terminate  a run with it is refused; one that has begun ends as it would have

    The others have no effect here.
    """

    log_severity_level: int = -1
    log_verbosity_level: int = 0
    logid: str = ""
    terminate: bool = False
    only_execute_path_to_fetches: bool = False
    config_entries: dict[str, str] = field(default_factory=dict)

    add_run_config_entry = _Options._add_config_entry
    get_run_config_entry = _Options._config_entry
