"""A model of ``torch.export`` as one of ours."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree

from offcut.errors import CallError, DescribeError
from offcut.plugins.torch.left import Left
from offcut.plugins.torch.program import Program
from offcut.plugins.torch.sizes import Bounds
from offcut.plugins.torch.table import TABLE


class TorchModel:
    """A module for all its sizes: called with its tensors, it gives what the module gives.

    Weights are constants: those of the module when it was taken.

    report  how many operators are ours, and which stay with torch, why
    """

    def __init__(self, exported: Any) -> None:
        self.exported = exported
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
        self.known = [state[names[node.name]] if node.name in names else None for node in nodes]
        known = {node: one for node, one in zip(nodes, self.known, strict=True) if one is not None}
        try:
            self.program = Program(
                exported.graph_module, known, _bounds(exported.range_constraints)
            )
        except Left as refused:
            raise DescribeError(
                "from_torch", "cannot take the program", because=str(refused)
            ) from None
        self.given = [node for node in nodes if node.name not in names]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the module gives.

        Raises CallError where arguments are not like those that it was exported with.
        """
        flat, spec = pytree.tree_flatten((args, kwargs))
        if len(flat) != len(self.given) or spec != self.exported.call_spec.in_spec:
            raise CallError(
                "call",
                f"cannot take {len(args)} arguments and {', '.join(kwargs) or 'no'} named ones",
                because=f"the program was exported with {self.exported.call_spec.in_spec}",
            )
        for node, one in zip(self.given, flat, strict=True):
            _check(node, one)
        rest = iter(flat)
        results = self.program([next(rest) if one is None else one for one in self.known])
        return pytree.tree_unflatten(results, self.exported.call_spec.out_spec)

    @property
    def report(self) -> str:
        """How many operators are ours, and which stay with torch, why."""
        return self.program.report()


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
        model = _exported(model, args, dynamic_shapes)
    if not isinstance(model, torch.export.ExportedProgram):
        raise DescribeError(
            "from_torch",
            f"cannot take {type(model).__name__}",
            because="it is neither a module nor an exported program",
            help=("from_torch(torch.export.export(model, args))",),
        )
    table = torch.export.default_decompositions()
    kept = {op: rule for op, rule in table.items() if op not in TABLE}
    return TorchModel(model.run_decompositions(kept))


def _exported(model: Any, args: tuple[Any, ...], dynamic_shapes: Any) -> Any:
    if dynamic_shapes is None:
        auto = torch.export.Dim.AUTO
        dynamic_shapes = pytree.tree_map(
            lambda one: [auto] * one.dim() if isinstance(one, torch.Tensor) else None, args
        )
    try:
        with torch.no_grad():
            return torch.export.export(model, args, dynamic_shapes=dynamic_shapes)
    except Exception as failed:
        first = str(failed).strip().splitlines()
        raise DescribeError(
            "from_torch",
            f"cannot export {type(model).__name__}",
            because=f"{type(failed).__name__}: {first[0] if first else ''}",
        ) from failed


def _bounds(constraints: Any) -> Bounds:
    def known(symbol: Any) -> tuple[Any, Any]:
        found = constraints.get(symbol)
        return (0, None) if found is None else (found.lower, found.upper)

    return known


def _check(node: Any, given: Any) -> None:
    fake = node.meta["val"]
    if isinstance(fake, torch.Tensor):
        if not isinstance(given, torch.Tensor):
            raise CallError(
                "call",
                f"cannot take {node.name} = {given!r}",
                because="the program was exported with a tensor there",
            )
        if given.dtype != fake.dtype or given.dim() != fake.dim():
            raise CallError(
                "call",
                f"cannot take {node.name} of {given.dtype} and shape {tuple(given.shape)}",
                because=f"the program was exported with {fake.dtype} and {fake.dim()} axes",
            )
        for axis, (own, said) in enumerate(zip(given.shape, fake.shape, strict=True)):
            if isinstance(said, int) and own != said:
                raise CallError(
                    "call",
                    f"cannot take {node.name} of shape {tuple(given.shape)}",
                    because=f"axis {axis} is {said} in every call",
                )
    elif not isinstance(fake, torch.SymInt) and given != fake:
        raise CallError(
            "call",
            f"cannot take {node.name} = {given!r}",
            because=f"the program was exported with {fake!r}",
        )
