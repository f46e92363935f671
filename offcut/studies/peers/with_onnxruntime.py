"""onnxruntime on the tasks of the benches: io-binding on the task's own memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

from offcut.describe.request import Array
from offcut.studies.peers.graphs import Graph, graphs
from offcut.studies.peers.matmul import Way
from offcut.studies.peers.operators import ModelTask, TorchTask, as_onnx


@dataclass(frozen=True, slots=True)
class Onnxruntime:
    """Sessions with weights as initializers, one for each model; nothing in bfloat16."""

    onnxruntime: Any
    threads: int = 1
    name: ClassVar[str] = "onnxruntime"
    _sessions: dict[object, tuple[Any, tuple[Array, ...]]] = field(default_factory=dict)

    def ways(self, task: Any, /) -> tuple[Way, ...]:
        """Return a way for each model of `task` that this build accepts; a whole model is one."""
        if isinstance(task, ModelTask | TorchTask):
            return (self._model_way(as_onnx(task)),)
        if task.kind == "bfloat16":
            return ()
        graph_ways = []
        for graph in graphs(task):
            try:
                run = self._bind(graph)
                run()
            except self.onnxruntime.capi.onnxruntime_pybind11_state.OrtException:
                continue  # this build lacks an operator, or it refuses the element types
            graph_ways.append(Way(f"onnxruntime.{graph.name}", run, graph.read))
        return tuple(graph_ways)

    def _bind(self, graph: Graph) -> Any:
        session = self._session(graph.key, graph.model, graph.key_arrays)
        binding = session.io_binding()
        for name, array in graph.inputs.items():
            place = ("cpu", 0, array.dtype, array.shape, array.ctypes.data)
            binding.bind_input(name, *place)
        out = graph.out
        binding.bind_output("Y", "cpu", 0, out.dtype, out.shape, out.ctypes.data)
        return partial(session.run_with_iobinding, binding)

    def _model_way(self, task: ModelTask) -> Way:
        session = self._session(task.file, lambda: task.file)
        feed = {one.name: task.feed[one.name] for one in session.get_inputs()}
        return Way("onnxruntime", partial(session.run, None, feed), lambda outputs: outputs)

    def _session(
        self, key: object, model: Callable[[], bytes], key_arrays: tuple[Array, ...] = ()
    ) -> Any:
        if key not in self._sessions:
            session = onnxruntime_session(self.onnxruntime, model(), self.threads)
            self._sessions[key] = session, key_arrays
        return self._sessions[key][0]


def onnxruntime_session(onnxruntime: Any, model: bytes, threads: int) -> Any:
    """Return a session on the processor with the default optimizations, which logs fatal errors alone.

    onnxruntime  the module
    model        the bytes of a file of ONNX, or its path
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 4
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
