"""onnxruntime on the tasks of the benches: io-binding on the task's own memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

from offcut.experiment.contraction import Array
from offcut.experiment.peers.graphs import Graph, graphs
from offcut.experiment.peers.matmul import Way
from offcut.experiment.peers.sessions import onnxruntime_session


@dataclass(frozen=True, slots=True)
class Onnxruntime:
    """Sessions with weights as initializers, one for each model; nothing in bfloat16."""

    onnxruntime: Any
    threads: int = 1
    name: ClassVar[str] = "onnxruntime"
    _sessions: dict[object, tuple[Any, tuple[Array, ...]]] = field(default_factory=dict)

    def ways(self, task: Any, /) -> tuple[Way, ...]:
        """A way for each model of `task` that this build accepts."""
        if task.kind == "bfloat16":
            return ()
        graph_ways = []
        for graph in graphs(task):
            try:
                run = self._bound(graph)
                run()
            except self.onnxruntime.capi.onnxruntime_pybind11_state.OrtException:
                continue  # this build lacks an operator, or it refuses the element types
            graph_ways.append(Way(f"onnxruntime.{graph.name}", run, partial(_read, graph)))
        return tuple(graph_ways)

    def _bound(self, graph: Graph) -> Any:
        session = self._session(graph)
        binding = session.io_binding()
        for name, array in graph.inputs.items():
            place = ("cpu", 0, array.dtype, array.shape, array.ctypes.data)
            binding.bind_input(name, *place)
        out = graph.out
        binding.bind_output("Y", "cpu", 0, out.dtype, out.shape, out.ctypes.data)
        return partial(session.run_with_iobinding, binding)

    def _session(self, graph: Graph) -> Any:
        key = (graph.key, *map(id, graph.keeps))
        if key not in self._sessions:
            session = onnxruntime_session(self.onnxruntime, graph.model(), self.threads)
            self._sessions[key] = session, graph.keeps
        return self._sessions[key][0]


def _read(graph: Graph, _: object) -> Array:
    return graph.read()
