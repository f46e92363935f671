"""A model of ``torch.export`` as one of ours."""

from __future__ import annotations

import inspect
import operator
import os
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from threading import RLock
from typing import Any

import torch
from torch.export._remove_effect_tokens_pass import _remove_effect_tokens
from torch.utils import _pytree as pytree

from offcut.backends.abi import Exported
from offcut.core.program import Size
from offcut.errors import CallError, DescribeError, trim_traceback
from offcut.graph import ModelCost, ModelPlan
from offcut.graph.models.compiling.compile_pool import helper_in_advance
from offcut.graph.models.profile import ModelProfile, profile_of
from offcut.plugins.torch.decompositions import taken_apart
from offcut.plugins.torch.graph_split import is_size
from offcut.plugins.torch.module_copy import ModuleCopy
from offcut.plugins.torch.opaque_recurrences import trace_recurrences_whole
from offcut.plugins.torch.options import Options
from offcut.plugins.torch.program import Program
from offcut.plugins.torch.report import count_duplicates
from offcut.plugins.torch.rule_table import TABLE
from offcut.plugins.torch.trace_guards import GuardError
from offcut.plugins.torch.traced_program import FixedSizeError, Traced, export_with_conditions

TRACES = 8
"""So many programs of a module at most, as dynamo's ``recompile_limit``; calls for none of them run in torch."""


class TorchModel:
    """A module for all its sizes: called with its tensors, it gives what the module gives.

    Weights are constants: copies of those that the module had when it was taken.

    again   traces the module once more, for a call of sizes on which it branches otherwise; None for a program, which has one branch
    report  how many operators are ours, and which stay with torch, why
    """

    def __init__(self, first: Traced, again: _Again | None = None) -> None:
        self.traced, self.again = [first], again
        self._in = first.spec
        self._flat = self._in == pytree.tree_structure(((0,) * self._in.num_leaves, {}))

    @trim_traceback
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the module gives.

        Raises CallError where arguments are not like those that it was exported with.
        """
        flat = args if self._flat and not kwargs else self._leaves(args, kwargs)
        first = self.traced[0]
        if len(flat) != len(first.given):
            raise self._unlike(args, kwargs)
        results = first.at_known_sizes(flat)
        if results is not None:
            return results
        try:
            first.check(flat)
            return first(flat)
        except GuardError:
            return self._otherwise(flat)
        except FixedSizeError as refused:
            if self.again is None or self.again.dynamic_shapes is not None:
                raise
            return self._of_other_size(flat, refused)

    def _of_other_size(self, flat: Sequence[Any], refused: FixedSizeError) -> Any:
        """Return the results for a size that the first program takes for another number: torch says whether the module takes it, and it is
        traced for the next call.

        Raises `refused` where the module does not.
        """
        assert self.again is not None
        count = len(self.traced)
        for one in self.traced[1:count]:
            if one.takes(flat):
                with suppress(GuardError):
                    return one(flat)
        args, kwargs = pytree.tree_unflatten(flat, self._in)
        try:
            result = self.again.call_torch(args, kwargs)
        except Exception:
            raise refused from None
        self.again.frozen[refused.size] = None
        if not self.again.left:
            warnings.warn(
                f"offcut: {refused.size} is another number than in the {TRACES} programs that were traced: "
                "such calls run in eager torch",
                RuntimeWarning,
                stacklevel=3,
            )
        with _TRACING:
            if len(self.traced) == count:  # no other thread traced it meanwhile
                more = self.again.trace(args, kwargs)
                self.traced += [] if more is None else [more]
        return result

    def _otherwise(self, flat: Sequence[Any]) -> Any:
        """Return the results for sizes that the first program was not traced for."""
        count = len(self.traced)
        for one in self.traced[1:count]:
            if one.takes(flat):
                with suppress(GuardError):
                    return one(flat)
        assert self.again is not None, "a program without a module has no conditions"
        args, kwargs = pytree.tree_unflatten(flat, self._in)
        with _TRACING:
            if len(self.traced) == count:  # no other thread traced it meanwhile
                trace = self.again.trace(args, kwargs)
                self.traced += [] if trace is None else [trace]
        return (
            self._otherwise(flat)
            if len(self.traced) > count
            else self.again.call_torch(args, kwargs)
        )

    def __repr__(self) -> str:
        sizes = ", ".join(size.name for size in self.sizes)
        return f"<model of torch for any {sizes or 'call'}: {self.report.splitlines()[0]}>"

    def __reduce__(self) -> tuple[Any, ...]:
        raise DescribeError(
            "from_torch",
            "cannot pickle a model taken from torch",
            because="what stays with torch holds what torch traced",
            help=("torch.export.save(program), and from_torch of what torch.export.load gives",),
        )

    def _leaves(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[Any]:
        flat: list[Any]
        _, keywords = pytree.tree_unflatten([None] * self._in.num_leaves, self._in)
        if kwargs.keys() == keywords.keys():  # in any order
            kwargs = {name: kwargs[name] for name in keywords}
        flat, spec = pytree.tree_flatten((args, kwargs))
        if spec != self._in:
            raise self._unlike(args, kwargs)
        return flat

    def _unlike(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallError:
        names = [one.name for one in self.traced[0].given]
        leaves = names if len(names) == self._in.num_leaves else ["…"] * self._in.num_leaves
        own, keywords = pytree.tree_unflatten(leaves, self._in)
        arguments = [*map(str, own), *(f"{name}=…" for name in keywords)]
        signature = ", ".join(arguments).replace("'", "")
        return CallError(
            "call",
            f"cannot take {len(args)} arguments and {', '.join(kwargs) or 'no'} named ones",
            because=f"it was exported to be called by model({signature})",
            help=("from_torch(model, args, kwargs={…}) of those that are given by name",)
            if kwargs.keys() - keywords.keys()
            else (),
        )

    def plan(self, **sizes: int) -> ModelPlan:
        """What a call runs in kernels, as `Model.plan` says it, and what stays with torch; of the first program that was traced.

        sizes  by argument and axis, ``x_0``: `sizes` lists them; none: in formulas
        """
        return self.program.plan(**sizes)

    def cost(self, **sizes: int) -> ModelCost:
        """What the kernels of a call are predicted to cost, as `Model.cost` says it: what stays with torch has no price."""
        return self.program.cost(**sizes)

    def profile(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None, calls: int = 20
    ) -> ModelProfile:
        """Return what each kernel of a call takes, measured, as `Model.profile` says; what stays with torch is timed in the call alone, and named
        by torch's profiler, which names the kernels, too.

        args, kwargs  of a call
        calls         that are timed
        """
        profile = profile_of(type(self).__name__, partial(self, *args, **(kwargs or {})), calls)
        return replace(profile, sizes={})  # their names are torch's

    def save(self, path: str | os.PathLike[str], *, shared: bool = False) -> None:
        """Write the model into a file, which `offcut.load` runs where there is no torch, as `Model.save` says: called with the same arrays in
        order, numpy's or torch's, or with a mapping by the names of the arguments. What torch makes by views is computed in it.

        Raises DescribeError where torch runs a part of it, or it branches on sizes; TargetError for a kernel that is no machine code.
        """
        model, inputs, outputs = self.traced[0].whole_region("save")
        model.save(path, inputs, outputs, shared=shared)

    def export(self, folder: str | os.PathLike[str], name: str) -> Exported:
        """Return an object file and a C header, as `Model.export` says.

        Raises what `save` does.
        """
        model, inputs, outputs = self.traced[0].whole_region("export")
        return model.export(folder, name, inputs, outputs)

    @property
    def sizes(self) -> tuple[Size, ...]:
        """What kernels ask of the arguments, with bounds: ``x_0`` is the first extent of x."""
        return self.program.predicted.sizes

    @property
    def program(self) -> Program:
        """Return the first that was traced."""
        return self.traced[0].program

    @property
    def known(self) -> Sequence[Any]:
        """Return the weights of the first that torch reads, None for its arguments, `HELD` for what kernels hold."""
        return self.traced[0].known

    @property
    def report(self) -> str:
        """Return how many operators are ours, and which stay with torch, why."""
        refused = () if self.again is None else self.again.refused
        reports = (one.program.report() for one in self.traced)
        frozen = () if self.again is None else self.again.frozen
        sizes = (
            f"{size} when it is traced: other sizes are traced by themselves, {TRACES} programs at most"
            for size in frozen
        )
        return "\n".join(count_duplicates([*reports, *refused, *sizes]))


class _Again:
    """A module of our own that can be traced once more.

    refused  what could not be traced, in words
    frozen   the sizes that tracing made numbers, though the module takes others, in words
    """

    def __init__(self, copied: ModuleCopy, dynamic_shapes: Any, how: Options) -> None:
        self.copied, self.dynamic_shapes, self.how = copied, dynamic_shapes, how
        self.left = TRACES - 1
        self.refused: list[str] = []
        self.frozen: dict[str, None] = {}

    def trace(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Traced | None:
        """Return the program for a call; None where it cannot be traced, or enough were."""
        if not self.left:
            return None
        self.left -= 1
        try:
            model = self.copied.with_parameters()
            result = _module(model, args, kwargs, self.dynamic_shapes, self.how, again=True)
        except DescribeError as refused:
            self.refused.append(f"a call by torch: {' '.join(str(refused).split())}")
            return None
        result.settle()
        return result

    def call_torch(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What torch gives, or raises."""
        with _TRACING:
            model = self.copied.with_parameters()
        with torch.no_grad():
            return model(*args, **kwargs)


_TRACING = RLock()
"""torch traces in one thread at a time: what it patches meanwhile is the process's."""


def model_from_export(
    model: Any,
    args: tuple[Any, ...] | None,
    kwargs: dict[str, Any] | None,
    dynamic_shapes: Any,
    how: Options,
) -> TorchModel:
    """What `offcut.from_torch` gives."""
    if kwargs is not None and not (isinstance(kwargs, dict) and all(map(_is_name, kwargs))):
        raise DescribeError(
            "from_torch",
            f"cannot take kwargs={kwargs!r}",
            because="they are a dict of what the module is called with by name",
            help=('from_torch(model, (x,), kwargs={"mask": mask})',),
        )
    if isinstance(model, torch.nn.Module):
        return _of_module(model, args, kwargs or {}, dynamic_shapes, how)
    return _of_program(model, kwargs or {}, how)


def _of_module(
    model: torch.nn.Module,
    args: tuple[Any, ...] | None,
    kwargs: dict[str, Any],
    dynamic_shapes: Any,
    how: Options,
) -> TorchModel:
    """Return a module that is traced again where a call needs it; one that cannot be copied, as the program that it is once."""
    args = () if args is None and kwargs else args
    if args is None:
        raise DescribeError(
            "from_torch",
            f"cannot export {type(model).__name__}",
            because="it is not known what it is called with",
            help=("from_torch(model, (torch.randn(2, 3, 224, 224),))",),
        )
    if not isinstance(args, tuple):
        raise DescribeError(
            "from_torch",
            f"cannot take arguments that are a {type(args).__name__}",
            because="they are a tuple of what the module is called with",
            help=("from_torch(model, (x,))",),
        )
    try:
        mine = ModuleCopy(model)
    except Exception:  # it holds what cannot be copied: its weights are, and it is traced once
        with _TRACING:
            exported, _ = export_with_conditions(model, args, kwargs, dynamic_shapes)
            return TorchModel(_trace_program(exported, None, how))
    with _TRACING, helper_in_advance(_layers(model)):
        first = _module(mine.module, args, kwargs, dynamic_shapes, how)
        mine.settle(first.again)
        first.settle()
    return TorchModel(first, _Again(mine, dynamic_shapes, how))


def _of_program(program: Any, kwargs: dict[str, Any], how: Options) -> TorchModel:
    """Return a program that torch exported, which has one branch."""
    if not isinstance(program, torch.export.ExportedProgram):
        raise DescribeError(
            "from_torch",
            f"cannot take the class {program.__name__}"
            if isinstance(program, type)
            else f"cannot take {type(program).__name__}",
            because="it is neither a module nor an exported program",
            help=_instead(program),
        )
    if kwargs:
        raise DescribeError(
            "from_torch",
            f"cannot take {', '.join(kwargs)} for an exported program",
            because="it is called as it was exported",
            help=("torch.export.export(model, args, kwargs)",),
        )
    with _TRACING:
        return TorchModel(_trace_program(program, None, how))


def _instead(value: Any) -> tuple[str, ...]:
    """What would be taken in place of what is neither a module nor an exported program."""
    if isinstance(value, type) and issubclass(value, torch.nn.Module):
        return (f"from_torch({value.__name__}(…), args): one that is made",)
    if inspect.isroutine(value):
        return (
            "a torch.nn.Module whose forward calls it: from_torch(module, args)",
            'torch.compile(function, backend="offcut", dynamic=True)',
        )
    return ("from_torch(torch.export.export(model, args))",)


def _is_name(name: object) -> bool:
    return isinstance(name, str)


def _module(
    model: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    dynamic_shapes: Any,
    how: Options,
    again: bool = False,
) -> Traced:
    """Return a module, traced; a batch of one example as one of two, where the module takes that: torch takes 1 for a number."""
    twice = None if again or dynamic_shapes is not None else _twice(args, kwargs)
    if twice is not None:
        with suppress(DescribeError):
            exported, conditions = export_with_conditions(model, *twice, dynamic_shapes)
            return _trace_program(exported, conditions, how)
    exported, conditions = export_with_conditions(model, args, kwargs, dynamic_shapes, again)
    return _trace_program(exported, conditions, how)


def _layers(model: torch.nn.Module) -> int:
    """Return how many of the modules in a module have weights of their own: about as many kernels as it is."""
    own = (next(one.parameters(recurse=False), None) for one in model.modules())
    return sum(one is not None for one in own)


def _twice(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Return a batch of one example as a batch of it and itself; None where a tensor has another first axis."""
    call = args, kwargs
    tensors = [one for one in pytree.tree_leaves(call) if isinstance(one, torch.Tensor)]
    if not tensors or any(one.dim() == 0 or one.shape[0] != 1 for one in tensors):
        return None
    result: tuple[tuple[Any, ...], dict[str, Any]] = pytree.tree_map_only(
        torch.Tensor, lambda one: torch.cat([one, one]), call
    )
    return result


def _trace_program(exported: Any, conditions: Sequence[Any] | None, how: Options) -> Traced:
    """Return a program in operators that we take, as far as torch can write it in these: it traces it anew to do so, which takes longer than
    all else. So it is taken as it is first, where it seems to be in these already.
    """
    if all(map(_is_ours, exported.graph.nodes)):
        trace = Traced(exported, conditions, how)
        if not trace.program.left:
            return trace
    with trace_recurrences_whole():
        table = taken_apart(torch.export.default_decompositions())
        plain = _remove_effect_tokens(exported.run_decompositions(table))
        return Traced(plain, conditions, how)


def _is_ours(node: Any) -> bool:
    """Return whether a node is a size, or an operator that we take and that writes to no operand."""
    if node.op != "call_function":
        return node.op in ("placeholder", "output")
    if is_size(node) or node.target is operator.getitem:
        return True
    if node.target not in TABLE or node.target._schema.is_mutable:
        return False
    positional = zip(node.target._schema.arguments, node.args, strict=False)
    arguments = {**{argument.name: value for argument, value in positional}, **node.kwargs}
    return not any(arguments.get(name) for name in _TRAINING)  # it writes to what it is not said to


_TRAINING = ("training", "train", "use_input_stats")
"""Arguments of operators of torch that are other operators in training."""
