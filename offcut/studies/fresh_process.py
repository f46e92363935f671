"""What is measured in a fresh process for each round: compiles with their proofs, and first calls; a child calls it by its name."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import Any

from offcut.studies.cell_processes import end_with_parent
from offcut.studies.contenders import Contender, Library, Ours
from offcut.studies.errors import refusal
from offcut.studies.groups import reason
from offcut.studies.measures import FreshJob
from offcut.studies.offcut_operators import CompiledKernel
from offcut.studies.peers.operators import ModelTask, TorchTask
from offcut.studies.tasks import Operator, Task

Measure = Callable[[Operator, Contender, int], list[float]]
"""Measures a contender on an operator, with the seed of its arrays."""


def _as_job(measure: Measure) -> Callable[[FreshJob, Any], list[float] | str]:
    """Return a measure as a job of a child, which returns the reason in place of the seconds where it fails."""

    @wraps(measure)
    def run(job: FreshJob, say: Any) -> list[float] | str:
        end_with_parent()
        definition = job.source.read()
        operator = next(one for one in definition.operators if one.name == job.operator)
        contender = next(one for one in definition.contenders if one.name == job.contender)
        try:
            return measure(operator, contender, definition.seed)
        except (Exception, SystemExit) as error:
            return reason(error)

    return run


@_as_job
def compile_times(operator: Operator, contender: Contender, seed: int) -> list[float]:
    """Return the seconds of a compile, and of its proof, 0 where no pass proves; of a peer, of getting ready and of the first call."""
    task = operator.workload.task(operator.points[0].sizes, seed)
    if not isinstance(contender, Ours):
        start = _processor_time()
        contender.ready(operator, task).run()
        return [_processor_time() - start, 0.0]
    options = contender.make(operator)
    _warm_imports()
    start = _processor_time()
    compiled = operator.workload.compiled(options)
    seconds = _processor_time() - start
    proof = 0.0
    if isinstance(compiled, CompiledKernel):
        steps = [one for one in compiled.kernel.passes if one.name == "prove" and not one.inside]
        proof = sum(one.seconds or 0.0 for one in steps)
    return [seconds, proof]


def _warm_imports() -> None:
    """Import what a compile imports: an import is no part of one."""
    for name in ("offcut.pipeline", "offcut.kernel", "offcut.backends.cpu.target"):
        import_module(name)


def _processor_time() -> float:
    """Return the processor seconds of this process and of those that it has waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


@_as_job
def first_calls(operator: Operator, contender: Contender, seed: int) -> list[float]:
    """Return the seconds of the first call at each point but the first, which is called twice beforehand."""
    tasks = [operator.workload.task(point.sizes, seed) for point in operator.points]
    call = open_stream(operator, contender, tasks[0])
    for _ in range(2):
        call(tasks[0])
    firsts = []
    for task in tasks[1:]:
        start = time.perf_counter()
        call(task)
        firsts.append(time.perf_counter() - start)
    return firsts


def open_stream(operator: Operator, contender: Contender, task: Task) -> Callable[[Task], Any]:
    """Return a function that computes an operator at any sizes: a kernel, a model, a session that is opened once.

    Raises DescribeError for a peer that is given the sizes beforehand.
    """
    if isinstance(contender, Ours):
        compiled = contender.compiled(operator)
        if isinstance(compiled, CompiledKernel):
            kernel, free = compiled.kernel, compiled.free
            return lambda one: kernel(
                *one.operands.values(), **{name: one.sizes[name] for name in free}
            )
        return lambda one: compiled.call(one)[0]()
    if isinstance(contender, Library):
        model = task.for_peers
        if isinstance(model, TorchTask) and contender.peer.startswith("torch"):
            return _torch_stream(contender, model)
        if isinstance(model, ModelTask | TorchTask) and contender.peer == "onnxruntime":
            return lambda one: contender.ways(operator, one)[0].run()
    because = "its first call is measured of models alone: torch and torch.compile of modules, onnxruntime of modules and of ONNX files"
    raise refusal(contender.name, because, what="cannot open a stream")


def _torch_stream(contender: Library, first: TorchTask) -> Callable[[Task], Any]:
    """Return a module, or `torch.compile` of it as it is by default: sizes that change become symbols after the second compile."""
    import torch

    torch.set_num_threads(contender.threads)
    module: Any = first.module.eval()
    if contender.peer == "torch.compile":
        module = torch.compile(module)

    def call(task: Task) -> Any:
        with torch.no_grad():
            return module(*task.for_peers.inputs)

    return call
