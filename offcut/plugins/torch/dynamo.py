"""The backend of ``torch.compile(model, backend="offcut", dynamic=True)``.

Dynamo takes sizes of 0 and 1 for numbers, and others for 2 at least, so a model compiled for a batch of 5 would be compiled once
more for a batch of 1. A frame of ours is traced with the settings of `offcut.plugins.torch.trace_settings`; the backend asks for one more trace
of it where they were not there when it began, or a tensor was not seen then whose sizes of 1 are numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import EntryPoint
from typing import Any

import torch
from torch._dynamo.backends import registry
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.exc import TensorifyScalarRestartAnalysis, UnspecializeRestartAnalysis
from torch._functorch.aot_autograd import make_boxed_func
from torch._guards import TracingContext

from offcut.core.process import freeze_gc
from offcut.plugins.torch.decompositions import taken_apart
from offcut.plugins.torch.opaque_recurrences import keep_whole
from offcut.plugins.torch.options import Options, parse_options
from offcut.plugins.torch.program import EagerProgram, Program
from offcut.plugins.torch.report import register_program
from offcut.plugins.torch.rule_table import Unsupported
from offcut.plugins.torch.size_facts import Facts, read_shape_env
from offcut.plugins.torch.trace_settings import DynamicTraceSettings, install_hook

CHANGES = 3
"""So often the constants of a program may be changed; then they become inputs."""

SETS = 64
"""So many sets of constants, of layers that are alike, have programs of their own at once."""


@freeze_gc()
def backend(
    module: Any, examples: Sequence[Any], options: Mapping[str, Any] | None = None, **others: Any
) -> Callable[..., Any]:
    """Return a graph of torch, compiled when it is first called; named ``offcut`` among torch's backends.

    options  ``{"threads": 2, "distributive": False, "target": "cpu"}``, as `Options` says

    Raises TargetError for any other, and for what ``torch.compile`` gives beside them: a mode.
    """
    how = parse_options("torch.compile", options or {}, others)
    install_hook(backend)
    if _specialization(examples) and DynamicTraceSettings.again(_traced_tensors()):
        raise _Again(restart_reason="a batch of 1 is a batch like others")
    keep_whole(module)
    try:
        return _by_aot(module, examples, how)
    except TensorifyScalarRestartAnalysis:
        raise
    except BaseException:
        DynamicTraceSettings.leave()
        raise


def _reset() -> None:
    """Have torch load the backend anew when it is named, where dynamo is reset: from then on it is told of compilations again."""
    if registry._COMPILER_FNS.pop(_ENTRY.name, None) is not None:
        registry._BACKENDS[_ENTRY.name] = _ENTRY


_ENTRY = EntryPoint("offcut", "offcut.plugins.torch:backend", "torch_dynamo_backends")


backend.reset = _reset  # type: ignore[attr-defined]


class _Again(TensorifyScalarRestartAnalysis, UnspecializeRestartAnalysis):  # type: ignore[misc]
    """Trace the frame once more: torch lets the first kind through a backend; for the second it forgets the places where it might
    have broken the graph, which are others where a branch depends on a size of 1.
    """


def _specialization(examples: Sequence[Any]) -> bool:
    """Return whether sizes of a trace start at 2, are one by chance, or are numbers because they were 1 or equal to one."""
    dynamic = not torch._dynamo.config.assume_static_by_default
    return any(
        isinstance(one, torch.SymInt)
        or (dynamic and one.dim() > 0 and not isinstance(one, torch.nn.Parameter))
        for one in examples
        if isinstance(one, torch.SymInt | torch.Tensor)
    )


def _traced_tensors() -> tuple[Any, ...]:
    """Return the tensors that the frame is traced with, but for parameters."""
    context = TracingContext.try_get()
    tensors = () if context is None else context.tensor_to_context
    return tuple(one for one in tensors if not isinstance(one, torch.nn.Parameter))


class Compiled:
    """A graph of aten whose constants are known when it is called.

    fixed    the placeholders that dynamo holds for parameters and buffers

    Constants are packed and folded. One that is changed in place is noticed by its version, one that is replaced by its address.
    """

    def __init__(self, module: Any, fixed: Sequence[int], facts: Facts, how: Options) -> None:
        self.module, self.fixed, self.facts, self.how = module, tuple(fixed), facts, how
        self.programs: dict[tuple[int, ...], tuple[tuple[int, ...], Callable[..., Any]]] = {}
        self.changes = 0

    def __call__(self, arguments: Sequence[Any]) -> Any:
        """Return the results of the graph."""
        constants = [arguments[place] for place in self.fixed]
        key = tuple([one.data_ptr() for one in constants])
        versions = tuple([0 if one.is_inference() else one._version for one in constants])
        entry = self.programs.get(key)
        if entry is None or entry[0] != versions:
            entry = self._compile_entry(key, versions, constants, is_change=entry is not None)
        return entry[1](arguments)

    def _compile_entry(
        self, key: tuple[int, ...], versions: tuple[int, ...], constants: list[Any], is_change: bool
    ) -> tuple[tuple[int, ...], Callable[..., Any]]:
        self.changes += is_change
        if self.changes > CHANGES:
            self.fixed, constants, key, versions = (), [], (), ()
        if len(self.programs) >= SETS and key not in self.programs:
            self.programs.pop(next(iter(self.programs)))
        inputs = [node for node in self.module.graph.nodes if node.op == "placeholder"]
        known = {inputs[place]: one for place, one in zip(self.fixed, constants, strict=True)}
        run: Program | EagerProgram
        try:
            run = Program(self.module, known, self.facts, self.how)
        except Unsupported as refused:
            run = EagerProgram(self.module, str(refused))
        register_program(run)
        self.programs[key] = versions, run
        return self.programs[key]


def _forward(module: Any, examples: Sequence[Any], how: Options) -> Callable[..., Any]:
    """Return a graph of results, without a backward graph."""
    context = TracingContext.try_get()
    if context is None or context.fake_mode is None or context.fake_mode.shape_env is None:
        return make_boxed_func(module.forward)  # type: ignore[no-any-return]
    fixed: list[int] = []
    if context.fw_metadata is not None:
        mutated = {
            place
            for place, one in enumerate(context.fw_metadata.input_info)
            if one.mutates_data or one.mutates_metadata
        }
        fixed = [one for one in context.fw_metadata.static_input_indices if one not in mutated]
    return _as_boxed(Compiled(module, fixed, read_shape_env(context.fake_mode.shape_env), how))


def _training(module: Any, examples: Sequence[Any], how: Options) -> Callable[..., Any]:
    """Return a graph of results and of what the backward graph reads; its weights change with every step, so none is constant."""
    context = TracingContext.try_get()
    if context is None or context.fake_mode is None or context.fake_mode.shape_env is None:
        return make_boxed_func(module.forward)  # type: ignore[no-any-return]
    return _as_boxed(Compiled(module, (), read_shape_env(context.fake_mode.shape_env), how))


def _backward(module: Any, examples: Sequence[Any]) -> Callable[..., Any]:
    """Return a backward graph stays with torch."""
    return make_boxed_func(module.forward)  # type: ignore[no-any-return]


def _as_boxed(run: Callable[[Sequence[Any]], Any]) -> Callable[..., Any]:
    """Return a function of one list that it empties, as torch calls it."""

    def boxed(arguments: list[Any]) -> Any:
        operands = list(arguments)
        arguments.clear()
        return run(operands)

    boxed._boxed_call = True  # type: ignore[attr-defined]
    return boxed


def _by_aot(module: Any, examples: Sequence[Any], how: Options) -> Callable[..., Any]:
    compiler = aot_autograd(
        fw_compiler=partial(_training, how=how),
        bw_compiler=_backward,
        inference_compiler=partial(_forward, how=how),
        decompositions=taken_apart(torch._decomp.core_aten_decompositions()),
    )
    return compiler(module, examples)  # type: ignore[no-any-return]
