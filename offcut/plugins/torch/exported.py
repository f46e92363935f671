"""A model of ``torch.export`` as one of ours."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from threading import RLock
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._sympy import functions as sf

from offcut.errors import CallError, DescribeError
from offcut.plugins.torch.apart import taken_apart
from offcut.plugins.torch.left import Left
from offcut.plugins.torch.program import Program
from offcut.plugins.torch.sizes import Facts, equalities, multiples, sympy_of
from offcut.plugins.torch.tracing import oblivious
from offcut.plugins.torch.whole import whole


class TorchModel:
    """A module for all its sizes: called with its tensors, it gives what the module gives.

    Weights are constants: copies of those that the module had when it was taken.

    report  how many operators are ours, and which stay with torch, why
    """

    def __init__(self, exported: Any) -> None:
        signature = exported.graph_signature
        if signature.buffers_to_mutate or signature.user_inputs_to_mutate:
            raise DescribeError(
                "from_torch",
                "cannot take a module that writes to its buffers or arguments",
                because=f"it writes to {', '.join([*signature.buffers_to_mutate.values(), *signature.user_inputs_to_mutate.values()])}",
                help=("model.eval()",),
            )
        state = {**exported.state_dict, **exported.constants}
        names = {
            **signature.inputs_to_parameters,
            **signature.inputs_to_buffers,
            **signature.inputs_to_lifted_tensor_constants,
        }
        nodes = [node for node in exported.graph.nodes if node.op == "placeholder"]
        facts = _facts(exported)
        weights = [node for node in nodes if node.name in names]
        # All at once: what shares memory does so in the copies.
        copies = copy.deepcopy([state[names[node.name]].detach() for node in weights])
        known = dict(zip(weights, copies, strict=True))
        self.known = [known.get(node) for node in nodes]
        try:
            self.program = Program(exported.graph_module, known, facts, owned=True)
        except Left as refused:
            raise DescribeError(
                "from_torch", "cannot take the program", because=str(refused)
            ) from None
        self._in, self._out = exported.call_spec  # a property that is slow
        self._flat = self._in == pytree.tree_structure(((0,) * self._in.num_leaves, {}))
        self._single = self._out == pytree.tree_structure(0)
        self.given = [_Given.of(node, facts) for node in nodes if node.name not in names]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the module gives.

        Raises CallError where arguments are not like those that it was exported with.
        """
        flat = args if self._flat and not kwargs else self._leaves(args, kwargs)
        if len(flat) != len(self.given):
            raise self._unlike(args, kwargs)
        for wanted, one in zip(self.given, flat, strict=True):
            wanted.check(one)
        rest = iter(flat)
        results = self.program([next(rest) if one is None else one for one in self.known])
        return results[0] if self._single else pytree.tree_unflatten(results, self._out)

    def __reduce__(self) -> tuple[Any, ...]:
        raise DescribeError(
            "from_torch",
            "cannot pickle a model taken from torch",
            because="what stays with torch holds what torch traced",
            help=("torch.export.save(program), and from_torch of what torch.export.load gives",),
        )

    def _leaves(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[Any]:
        flat: list[Any]
        flat, spec = pytree.tree_flatten((args, kwargs))
        if spec != self._in:
            raise self._unlike(args, kwargs)
        return flat

    def _unlike(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallError:
        return CallError(
            "call",
            f"cannot take {len(args)} arguments and {', '.join(kwargs) or 'no'} named ones",
            because=f"the program was exported with {self._in}",
        )

    @property
    def report(self) -> str:
        """How many operators are ours, and which stay with torch, why."""
        return self.program.report()


_TRACING = RLock()
"""torch traces in one thread at a time: what it patches meanwhile is the process's."""


def taken(model: Any, args: tuple[Any, ...] | None, dynamic_shapes: Any) -> TorchModel:
    """What `offcut.from_torch` gives."""
    if isinstance(model, torch.nn.Module):
        if args is None:
            raise DescribeError(
                "from_torch",
                f"cannot export {type(model).__name__}",
                because="it is not known what it is called with",
                help=("from_torch(model, (torch.randn(2, 3, 224, 224),))",),
            )
        with _TRACING:
            model = _exported(model, args, dynamic_shapes)
    if not isinstance(model, torch.export.ExportedProgram):
        raise DescribeError(
            "from_torch",
            f"cannot take {type(model).__name__}",
            because="it is neither a module nor an exported program",
            help=("from_torch(torch.export.export(model, args))",),
        )
    with _TRACING:
        with whole():
            lowered = model.run_decompositions(taken_apart(torch.export.default_decompositions()))
        return TorchModel(lowered)


def _exported(model: Any, args: tuple[Any, ...], dynamic_shapes: Any) -> Any:
    try:
        if dynamic_shapes is None:
            given = inspect.signature(model.forward).bind(*args).arguments
            dynamic_shapes = {name: pytree.tree_map(_free, one) for name, one in given.items()}
        with torch.no_grad(), oblivious(), whole():
            return torch.export.export(model, args, dynamic_shapes=dynamic_shapes)
    except Exception as failed:
        first = str(failed).strip().splitlines()
        raise DescribeError(
            "from_torch",
            f"cannot export {type(model).__name__}",
            because=f"{type(failed).__name__}: {first[0] if first else ''}",
        ) from failed


def _free(given: Any) -> Any:
    """That every size of a tensor may vary, where the module allows it."""
    return [torch.export.Dim.AUTO] * given.dim() if isinstance(given, torch.Tensor) else None


def _facts(exported: Any) -> Facts:
    """What is known of its sizes: the bounds that it states, and what it was traced under; the latter is checked by shapes."""

    def known(symbol: Any) -> tuple[Any, Any]:
        found = exported.range_constraints.get(symbol)
        return (0, None) if found is None else (found.lower, found.upper)

    for node in exported.graph.nodes:
        value = node.meta.get("val")
        for size in value.shape if isinstance(value, torch.Tensor) else ():
            if isinstance(size, torch.SymInt):
                env = size.node.shape_env
                return Facts(known, tuple(filter(_shown, equalities(env))), multiples(env))
    return Facts(known)


def _shown(equality: tuple[Any, Any]) -> bool:
    """Whether bounds or shapes show that an equality does not hold."""
    one, other = equality
    return bool((one.is_Symbol and other.is_Integer) or isinstance(one, sf.Min))


@dataclass(frozen=True)
class _Given:
    """What an argument is like in every call: a tensor, or a number that does not change.

    fixed  extents that do not change, by axis
    """

    name: str
    value: Any
    fixed: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, node: Any, facts: Facts) -> _Given:
        """As a program was exported with."""
        value = node.meta["val"]
        shape = value.shape if isinstance(value, torch.Tensor) else ()
        sizes = ((axis, facts.simplified(sympy_of(one))) for axis, one in enumerate(shape))
        fixed = tuple((axis, int(one)) for axis, one in sizes if one.is_Integer)
        return cls(node.name, value, fixed)

    def check(self, given: Any) -> None:
        """Raises CallError where an argument is not such a one."""
        if isinstance(self.value, torch.Tensor):
            if not isinstance(given, torch.Tensor):
                raise self._refused(f"= {given!r}", "the program was exported with a tensor there")
            if given.dtype != self.value.dtype or given.dim() != self.value.dim():
                raise self._refused(
                    f"of {given.dtype} and shape {tuple(given.shape)}",
                    f"the program was exported with {self.value.dtype} and {self.value.dim()} axes",
                )
            for axis, extent in self.fixed:
                if given.shape[axis] != extent:
                    raise self._refused(
                        f"of shape {tuple(given.shape)}", f"axis {axis} is {extent} in every call"
                    )
        elif not isinstance(self.value, torch.SymInt) and given != self.value:
            raise self._refused(f"= {given!r}", f"the program was exported with {self.value!r}")

    def _refused(self, what: str, because: str) -> CallError:
        return CallError("call", f"cannot take {self.name} {what}", because=because)
