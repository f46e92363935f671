"""OpenVINO on the tasks of the benches: one request, tensors on the task's own memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np

from offcut.core.dtypes import numpy_dtype
from offcut.describe.request import Array
from offcut.studies.peers.graphs import Graph, graphs
from offcut.studies.peers.matmul import Way
from offcut.studies.peers.operators import ModelTask, TorchTask, as_onnx

INTEGER_OPERATORS = ("MatMulInteger", "DequantizeLinear")
"""What OpenVINO computes in another way than asked: in float32, or with operands quantised anew."""


@dataclass(frozen=True, slots=True)
class Openvino:
    """Compiled models with symbolic shapes; bfloat16 tasks have bfloat16 at the borders.

    Tasks share a compiled model if the same of their extents are 1: OpenVINO 2026.4 gives wrong values of attention at lengths
    from 16 on where the first call of a model had length 1.
    """

    openvino: Any
    threads: int = 1
    name: ClassVar[str] = "openvino"
    _compiled: dict[object, tuple[Any, tuple[Array, ...]]] = field(default_factory=dict)

    def ways(self, task: Any, /) -> tuple[Way, ...]:
        """Return a way for each model of `task` that has operators which OpenVINO knows; a whole model is one."""
        if isinstance(task, ModelTask | TorchTask):
            return (self._model_way(as_onnx(task)),)
        graph_ways = []
        for graph in graphs(task):
            if graph.is_contributed or graph.name in INTEGER_OPERATORS:
                continue
            for hint in self._hints(task.kind):
                try:
                    run = self._bind(graph, task.kind, hint)
                    run()
                except RuntimeError:
                    continue  # this version lacks an operator
                name = f"openvino.{graph.name}{'' if hint == 'f32' else f'.{hint}'}"
                graph_ways.append(Way(name, run, graph.read))
        return tuple(graph_ways)

    def _hints(self, kind: str) -> tuple[str, ...]:
        """Return the precisions to compute in; a processor without bfloat16 would only emulate it."""
        if kind != "bfloat16" or not computes_bfloat16(self.openvino):
            return ("f32",)
        return ("bf16", "f32")

    def _bind(self, graph: Graph, kind: str, hint: str) -> Any:
        request = self._model(graph, kind, hint).create_infer_request()
        for name, array in graph.inputs.items():
            request.set_tensor(name, self._tensor(array))
        request.set_output_tensor(self._tensor(graph.out))
        return partial(_call, request)

    def _model(self, graph: Graph, kind: str, hint: str) -> Any:
        key = (graph.key, kind, hint, unit_extents(graph.inputs))
        if key not in self._compiled:
            core = self.openvino.Core()
            model = core.read_model(graph.model())
            if kind == "bfloat16":
                borders = self.openvino.preprocess.PrePostProcessor(model)
                for index in range(len(model.inputs)):
                    borders.input(index).tensor().set_element_type(self.openvino.Type.bf16)
                borders.output(0).tensor().set_element_type(self.openvino.Type.bf16)
                model = borders.build()
            options = openvino_options(self.threads, hint)
            self._compiled[key] = core.compile_model(model, "CPU", options), graph.key_arrays
        return self._compiled[key][0]

    def _model_way(self, task: ModelTask) -> Way:
        """Return a request on the memory of the arrays."""
        key = (task.file, unit_extents(task.feed))
        if key not in self._compiled:
            core, options = self.openvino.Core(), openvino_options(self.threads)
            model = core.compile_model(core.read_model(task.file, b""), "CPU", options)
            self._compiled[key] = model, ()
        model = self._compiled[key][0]
        request = model.create_infer_request()
        for name in {name for one in model.inputs for name in one.names} & task.feed.keys():
            request.set_tensor(name, self._tensor(np.ascontiguousarray(task.feed[name])))

        def read(_: object) -> tuple[Array, ...]:
            outputs = range(len(model.outputs))
            return tuple(np.array(request.get_output_tensor(k).data) for k in outputs)

        return Way("openvino", request.infer, read)

    def _tensor(self, array: Array) -> Any:
        """Return a tensor on the memory of `array`."""
        if array.dtype == numpy_dtype("bfloat16"):
            shape = self.openvino.Shape(array.shape)
            return self.openvino.Tensor(array.view(np.int16), shape, self.openvino.Type.bf16)
        return self.openvino.Tensor(array, shared_memory=True)


def unit_extents(arrays: Mapping[str, Array]) -> tuple[tuple[bool, ...], ...]:
    """Return, for each array, which of its axes have extent 1."""
    return tuple(tuple(extent == 1 for extent in array.shape) for array in arrays.values())


def computes_bfloat16(openvino: Any) -> bool:
    """Return whether this processor has bfloat16 arithmetic, as OpenVINO sees it."""
    return "BF16" in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")


def _call(request: Any) -> None:
    request.start_async()
    request.wait()


def openvino_options(threads: int, precision: str = "f32") -> dict[str, Any]:
    """Return the options of a compiled model: one stream, hinted at latency.

    precision  that it computes in: ``f32`` or ``bf16``
    """
    return {
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": "1",
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": precision,
    }
