"""The steps of a program: regions by our kernels, operators by torch, and torch in place of a region."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import torch
from torch.utils import _pytree as pytree

from offcut.errors import CallError, PartitionError
from offcut.graph import Model
from offcut.graph.models.kernel_step import Observed, observed_by
from offcut.graph.models.kernel_step import Step as KernelStep
from offcut.plugins.torch.dtypes import plain_of, tensor_of
from offcut.plugins.torch.graph_split import Region, is_size
from offcut.plugins.torch.sizes import value_of
from offcut.plugins.torch.strides import expected_strides, with_strides

Values = dict[Any, Any]
"""Tensors and ints by node."""


class _Recorder:
    """Names models and kernels to torch's profiler."""

    def model(self, model: Observed, sizes: Mapping[str, int]) -> Any:
        """Return what names a model, with its sizes."""
        at = ", ".join(f"{name} = {value}" for name, value in sizes.items())
        return torch.profiler.record_function(f"offcut::{model.bound.graph.name}", at)

    def kernel(self, step: KernelStep) -> Any:
        """Return what names a kernel, with its operators."""
        return torch.profiler.record_function(f"offcut::{step.name}", " ".join(step.nodes))


_RECORDER = _Recorder()


class TorchStep:
    """An operator of torch, or an attribute of the module, as a step.

    unbacked  the extents of its result that nobody knows before it ran, each with where in the result it is
    """

    def __init__(self, module: Any, node: Any) -> None:
        self.node, self.operator, self.reads = node, node.target, {node, *node.all_input_nodes}
        # What a view is of may lie otherwise than traced.
        if node.target is torch.ops.aten.view.default:
            self.operator = torch.ops.aten.reshape.default
        self.size = value_of(node.meta["val"]) if is_size(node) else None
        self.attribute = attribute_of(module, node.target) if node.op == "get_attr" else None
        self.places = _tensor_places(node)
        self.whole = _is_whole_slice(node)
        self.unbacked = tuple((node.meta.get("unbacked_bindings") or {}).items())

    def __call__(self, values: Values, sizes: dict[str, int]) -> None:
        """Calculate its result."""
        node = self.node
        if self.whole:
            values[node] = values[node.args[0]]
        elif self.size is not None:
            values[node] = self.size(sizes)
        elif node.op == "get_attr":
            values[node] = self.attribute
        elif self.places is not None:
            args = [*node.args]
            for place, one in self.places:
                args[place] = values[one]
            values[node] = self.operator(*args)
        else:

            def value(one: Any) -> Any:
                if one not in values and is_size(one):
                    return value_of(one.meta["val"])(sizes)
                return values[one]

            args, kwargs = (torch.fx.node.map_arg(own, value) for own in (node.args, node.kwargs))
            values[node] = self.operator(*args, **kwargs)
        for symbol, path in self.unbacked:
            sizes[symbol.name] = int(pytree.key_get(values[node], path))


class FallbackStep:
    """A region by torch: all that its results need and that is not there.

    again  what makes constants that kernels hold
    """

    def __init__(self, module: Any, region: Region, again: Mapping[Any, Callable[[], Any]]) -> None:
        self.outputs, self.again = region.outputs, again
        self.steps = {node: TorchStep(module, node) for node in _nodes_of_results(region)}
        self.reads = {*region.inputs.values()}.union(*(one.reads for one in self.steps.values()))

    def __call__(self, values: Values, sizes: dict[str, int]) -> None:
        """Calculate the results of the region."""
        own = dict(values)
        for node in self.reads & self.again.keys() - own.keys():
            own[node] = self.again[node]()
        for node, step in self.steps.items():
            if node not in own:
                step(own, sizes)
        values.update((node, own[node]) for node, *_ in self.outputs)


class RegionStep:
    """A region as a step.

    instead  what torch does where a call is refused; where the model fails, from then on
    refused  lists that
    """

    def __init__(
        self,
        region: Region,
        model: Model,
        instead: FallbackStep,
        refused: Callable[[Exception], None],
    ) -> None:
        self.region, self.model, self.failed = region, model, False
        self.instead, self.refused = instead, refused
        graph = region.bound.graph
        self.inputs = tuple(region.inputs[value.name] for value in graph.inputs)
        self.reads = {*self.inputs}
        shapes = {extent for value in graph.inputs for extent in value.shape}
        plain = {str(getattr(extent, "name", "")) for extent in shapes}
        self.sizes = tuple(size.name for size in graph.sizes if size.name not in plain)
        self.outputs = tuple(
            (
                node,
                graph.outputs.index(name),
                shared,
                expected_strides(node.meta["val"]),
                node.meta["val"].device,
            )
            for node, name, shared in region.outputs
        )

    def __call__(self, values: Values, sizes: dict[str, int]) -> None:
        """Calculate its outputs from its inputs."""
        if self.failed:
            self.instead(values, sizes)
            return
        arguments = [plain_of(values[node]) for node in self.inputs]
        try:
            own = {name: sizes[name] for name in self.sizes}
            if torch.autograd._profiler_enabled():
                with observed_by(_RECORDER):
                    outputs = self.model.outputs(arguments, own)
            else:
                outputs = self.model.outputs(arguments, own)
        except CallError as refused:  # this call alone: torch calculates it, or says what is wrong
            self.instead(values, sizes)
            self.refused(refused)
            return
        except PartitionError:  # of parts that a rule gave, which is the user's to mend
            raise
        except Exception as failed:
            self.refused(failed)
            self.failed = True
            self.instead(values, sizes)
            return
        for node, place, shared, strides, device in self.outputs:
            output = outputs[place]
            tensor = tensor_of(output) if isinstance(output, np.ndarray) else output
            if tensor.device.type != device.type:  # the first operand was elsewhere
                tensor = tensor.to(device)
            if shared:
                tensor = tensor.clone()
            values[node] = with_strides(tensor, strides, sizes)


Step: TypeAlias = TorchStep | FallbackStep | RegionStep


def _is_whole_slice(node: Any) -> bool:
    """Return whether a node is a slice of all of an axis, and no result."""
    if node.target is not torch.ops.aten.slice.Tensor or node.kwargs or len(node.args) > 4:
        return False
    start, stop = (*node.args[2:], None, None)[:2]
    whole = start in (0, None) and (stop is None or stop == sys.maxsize)
    return whole and all(user.op != "output" for user in node.users)


def _tensor_places(node: Any) -> tuple[tuple[int, Any], ...] | None:
    """Return where the arguments of a node are tensors; None where they are more than that: sizes, lists of tensors, options by name."""
    tensors = tuple((n, one) for n, one in enumerate(node.args) if isinstance(one, torch.fx.Node))
    inside = list[Any]()
    others = [one for one in node.args if not isinstance(one, torch.fx.Node)]
    torch.fx.node.map_arg((others, node.kwargs), inside.append)
    return None if inside or node.kwargs or any(is_size(one) for _, one in tensors) else tensors


def _nodes_of_results(region: Region) -> tuple[Any, ...]:
    """Return the nodes that the results of a region need, in order, but for the arguments of the graph."""
    pending = [node for node, *_ in region.outputs]
    nodes: set[Any] = set()
    while pending:
        node = pending.pop()
        if node not in nodes and node.op != "placeholder":
            nodes.add(node)
            pending += () if is_size(node) else node.all_input_nodes
    (first, *_), *_ = region.outputs
    return tuple(node for node in first.graph.nodes if node in nodes)


def attribute_of(module: Any, target: str) -> Any:
    """Return an attribute of a module by its path, the names between dots."""
    attribute = module
    for name in target.split("."):
        attribute = getattr(attribute, name)
    return attribute


__all__ = ["FallbackStep", "RegionStep", "Step", "TorchStep", "Values", "attribute_of"]
