"""What is measured in a process of its own: ``python -m offcut.studies.fresh_process JOB`` with the cell as JSON on standard input.

``compile`` prints the processor seconds of a compile, and what its proof takes; ``first_call`` the seconds of the first call at
each vector of sizes, after two calls at the first one.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from offcut.studies.contenders import Contender, Library, Ours
from offcut.studies.definition import read_definition
from offcut.studies.described import CompiledKernel
from offcut.studies.errors import refusal
from offcut.studies.groups import reason
from offcut.studies.isolated import end_with_parent
from offcut.studies.peers.model_tasks import ModelTask, TorchTask
from offcut.studies.tasks import Operator, Task

Sizes = Mapping[str, int]


def main() -> None:
    """Read a cell, do the job that the command line names, print the result as JSON."""
    end_with_parent()
    file, operator_name, contender_name, points, seed = json.load(sys.stdin)
    definition = read_definition(Path(file))
    operator = next(one for one in definition.operators if one.name == operator_name)
    contender = next(one for one in definition.contenders if one.name == contender_name)
    job = {"compile": compile_times, "first_call": first_calls}[sys.argv[1]]
    try:
        result = job(operator, contender, points, seed)
    except (Exception, SystemExit) as error:
        sys.exit(reason(error))
    sys.stdout.write(json.dumps(result) + "\n")


def compile_times(
    operator: Operator, contender: Contender, points: Sequence[Sizes], seed: int
) -> dict[str, float]:
    """Return the seconds of a compile, and of its proof, 0 where no pass proves; of a peer, of getting ready and of the first call."""
    task = operator.workload.task(points[0], seed)
    if not isinstance(contender, Ours):
        start = _processor_time()
        contender.ready(operator, task).run()
        return {"compile": _processor_time() - start, "proof": 0.0}
    options = contender.make(operator)
    _warm_imports()
    start = _processor_time()
    compiled = operator.workload.compiled(options)
    seconds = _processor_time() - start
    proof = 0.0
    if isinstance(compiled, CompiledKernel):
        steps = [one for one in compiled.kernel.passes if one.name == "prove" and not one.inside]
        proof = sum(one.seconds or 0.0 for one in steps)
    return {"compile": seconds, "proof": proof}


def _warm_imports() -> None:
    """Import what a compile imports: an import is no part of one."""
    for name in ("offcut.pipeline", "offcut.kernel", "offcut.backends.cpu.target"):
        import_module(name)


def _processor_time() -> float:
    """Return the processor seconds of this process and of those that it has waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def first_calls(
    operator: Operator, contender: Contender, points: Sequence[Sizes], seed: int
) -> dict[str, list[float]]:
    """Return the seconds of the first call at each point but the first, which is called twice beforehand."""
    tasks = [operator.workload.task(point, seed) for point in points]
    call = open_stream(operator, contender, tasks[0])
    for _ in range(2):
        call(tasks[0])
    firsts = []
    for task in tasks[1:]:
        start = time.perf_counter()
        call(task)
        firsts.append(time.perf_counter() - start)
    return {"firsts": firsts}


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


if __name__ == "__main__":
    main()
