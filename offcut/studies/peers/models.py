"""Other libraries on whole models: torch on modules, onnxruntime and OpenVINO on ONNX files, which torch exports of a module."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np

from offcut.describe.request import Array
from offcut.studies.errors import refusal
from offcut.studies.models import ModelTask, TorchTask, results_of
from offcut.studies.peers.with_onnxruntime import onnxruntime_session
from offcut.studies.peers.with_openvino import openvino_options

Call = tuple[Callable[[], Any], Callable[[Any], tuple[Array, ...]]]
"""A call, and a function from its return value to the result arrays."""


def check_peer(peer: str, package: str) -> None:
    """Raise DescribeError if the package of a peer is not installed."""
    if find_spec(package) is None:
        because, help = f"{package} is not installed", f"pip install {package}"
        raise refusal(peer, because, help, what=f"cannot measure {peer}")


def model_calls(
    peer: str, threads: int, task: ModelTask | TorchTask
) -> Callable[[ModelTask | TorchTask], Call]:
    """Return a function from a task to the library's call of the model at its sizes; the model is prepared once.

    task  of the model, at any sizes

    Raises DescribeError for a library that takes no such model, and whatever it raises itself.
    """
    package = peer.partition(".")[0]
    check_peer(peer, package)
    if isinstance(task, TorchTask) and package == "torch":
        return _torch(peer, threads, task)
    if package == "onnxruntime":
        return _onnxruntime(threads, _exported(task))
    if package == "openvino":
        return _openvino(threads, _exported(task))
    raise refusal(
        peer,
        f"{peer} cannot take this model",
        "onnxruntime, openvino of ONNX files and of modules",
        "torch, torch.compile of modules",
        what="cannot measure a peer",
    )


def _exported(task: ModelTask | TorchTask) -> ModelTask:
    return task.exported() if isinstance(task, TorchTask) else task


def _torch(peer: str, threads: int, first: TorchTask) -> Callable[[ModelTask | TorchTask], Call]:
    """Return torch's calls of a module: eager, or compiled once for all sizes, with its weights frozen."""
    import torch

    torch.set_num_threads(threads)
    module = first.module.eval()
    if peer == "torch.compile":
        torch._inductor.config.freezing = True
        module = torch.compile(module, dynamic=True)

    def call(task: ModelTask | TorchTask) -> Call:
        assert isinstance(task, TorchTask)

        def run() -> Any:
            with torch.no_grad():
                return module(*task.given)

        return run, results_of

    return call


def _onnxruntime(threads: int, first: ModelTask) -> Callable[[ModelTask | TorchTask], Call]:
    import onnxruntime

    session = onnxruntime_session(onnxruntime, first.file, threads)
    names = [one.name for one in session.get_inputs()]

    def call(task: ModelTask | TorchTask) -> Call:
        arrays = _exported(task).feed
        feed = {name: arrays[name] for name in names}
        return (lambda: session.run(None, feed)), results_of

    return call


def _openvino(threads: int, first: ModelTask) -> Callable[[ModelTask | TorchTask], Call]:
    """Return requests on the memory of the arrays."""
    import openvino

    core, how = openvino.Core(), openvino_options(threads)
    model = core.compile_model(core.read_model(first.file, b""), "CPU", how)
    names = {name for one in model.inputs for name in one.names}

    def call(task: ModelTask | TorchTask) -> Call:
        request, feed = model.create_infer_request(), _exported(task).feed
        for name in names & feed.keys():
            array = np.ascontiguousarray(feed[name])
            request.set_tensor(name, openvino.Tensor(array, shared_memory=True))

        def read(_: Any) -> tuple[Array, ...]:
            outputs = range(len(model.outputs))
            return tuple(np.array(request.get_output_tensor(k).data) for k in outputs)

        return request.infer, read

    return call
