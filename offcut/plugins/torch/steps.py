"""The steps of a program: regions by our kernels, operators by torch, and torch in place of a region.

How the results of torch lie in memory: the strides that it expects, as functions of sizes.

Calls of a program that is one region, at sizes that it had before: they skip what was checked then.

How the sizes of a call are read from its arguments.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import sympy
import torch
from torch.autograd import _profiler_enabled
from torch.utils import _pytree as pytree
from torch.utils._sympy.functions import Max

from offcut.errors import CallError, PartitionError
from offcut.graph import Model
from offcut.graph.models.kernel_step import Observed, observed_by
from offcut.graph.models.kernel_step import Step as KernelStep
from offcut.plugins.torch.dtypes import plain_of, tensor_of
from offcut.plugins.torch.graph_split import Region, is_size
from offcut.plugins.torch.rule_table import Unsupported
from offcut.plugins.torch.sizes import symbols_of, sympy_of, value_of, values_of

Strides: TypeAlias = Callable[[Mapping[str, int]], tuple[int, ...]]
"""Of a tensor, as a function of sizes."""


def expected_strides(fake: Any) -> Strides | None:
    """Return the strides that torch expects of a result, as a function of sizes; None where they are those of an array by rows."""
    own = [_without_max(sympy_of(stride)) for stride in fake.stride()]
    if _is_dense(fake, range(fake.dim())) or 0 in own:
        return None
    return values_of(own)


def memory_order(fake: Any) -> tuple[int, ...] | None:
    """Return the axes as they lie in memory, outermost first; None where elements do not lie side by side."""
    symbols = sorted(symbols_of(fake.stride()), key=str)
    apart = {symbol: 97 + number for number, symbol in enumerate(symbols)}
    steps = [int(sympy_of(stride).subs(apart)) for stride in fake.stride()]
    order = tuple(sorted(range(fake.dim()), key=lambda axis: -steps[axis]))
    return order if _is_dense(fake, order) else None


def _is_dense(fake: Any, order: Iterable[int]) -> bool:
    """Return whether elements lie side by side, by the axes in that order, outermost first."""
    step = sympy.Integer(1)
    for axis in reversed([*order]):
        extent = sympy_of(fake.shape[axis])
        if extent != 1 and _without_max(sympy_of(fake.stride(axis))) != step:
            return False
        step = step * extent
    return True


def _without_max(stride: Any) -> Any:
    """Return a stride without ``Max(1, s)``, which torch writes for sizes that may be 0."""

    def bare(*args: Any) -> Any:
        others = [one for one in args if one != 1]
        return others[0] if len(others) == 1 else Max(*args)

    return stride.replace(Max, bare)


def with_strides(tensor: Any, strides: Strides | None, sizes: Mapping[str, int]) -> Any:
    """Return a tensor, or a copy of it, in the strides that torch expects."""
    if strides is None:
        return tensor.contiguous()
    expected = strides(sizes)
    if tensor.stride() == expected:
        return tensor
    copy = torch.empty_strided(tensor.shape, expected, dtype=tensor.dtype, device=tensor.device)
    copy.copy_(tensor)
    return copy


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


class KnownSizes:
    """A program of one region, by its model.

    places   of the arguments that the model takes, in its order
    results  the places, among the model's outputs, of the results
    """

    def __init__(self, model: Model, places: Sequence[int], results: Sequence[int]) -> None:
        self.model, self.places, self.results = model, places, results
        self._takes_all = [*places] == [*range(len(places))]
        self._gives_all = [*results] == [*range(len(model.bound.graph.outputs))]

    @classmethod
    def of(
        cls, steps: Sequence[Any], nodes: Sequence[Any], results: Sequence[Any]
    ) -> KnownSizes | None:
        """Return the calls of a program; None unless it is a single region that runs in this process.

        nodes    the arguments of the program, in order
        results  its results, in order
        """
        if len(steps) != 1 or not isinstance(steps[0], RegionStep) or steps[0].sizes:
            return None
        (step,) = steps
        outputs = {
            node: place
            for node, place, is_shared, strides, device in step.outputs
            if not is_shared and strides is None and device.type == "cpu"
        }
        if not {*step.inputs} <= {*nodes} or not all(one in outputs for one in results):
            return None
        places = [nodes.index(node) for node in step.inputs]
        return cls(step.model, places, [outputs[one] for one in results])

    def among(self, places: Sequence[int]) -> KnownSizes | None:
        """Return the calls that take only the arguments at `places`; None if the model does not take exactly these."""
        if sorted(self.places) != sorted(places):
            return None
        own = [places.index(place) for place in self.places]
        return KnownSizes(self.model, own, self.results)

    def __call__(self, arguments: Sequence[Any]) -> Sequence[Any] | None:
        """Return the results; None if no call had these sizes, if an argument is not a plain tensor, or while the profiler is on."""
        if _profiler_enabled():
            return None
        if not self._takes_all or len(arguments) != len(self.places):
            arguments = [arguments[place] for place in self.places]
        for one in arguments:
            if type(one) is not torch.Tensor:
                return None
        outputs = self.model.at_known_sizes(*arguments)
        if outputs is None or self._gives_all:
            return outputs
        return [outputs[place] for place in self.results]


class SizeSource(NamedTuple):
    """How a size is read from a placeholder.

    called  what a user calls it: ``x_0``, the first extent of x
    """

    node: Any
    read: Callable[[Values], int]
    called: str


def solutions_of(inputs: Sequence[Any]) -> dict[str, SizeSource]:
    """Return how each symbol is read from the arguments.

    Raises Left for one that no argument shows.
    """
    solutions: dict[str, SizeSource] = {}
    symbols: set[str] = set()
    for node in inputs:
        value = node.meta["val"]
        if isinstance(value, torch.SymInt):
            symbols |= {symbol.name for symbol in value.node.expr.free_symbols}
            if value.node.expr.is_Symbol:
                solutions[value.node.expr.name] = SizeSource(node, _item(node), node.name)
        elif isinstance(value, torch.Tensor):
            symbols |= {symbol.name for symbol in symbols_of(value.shape)}
            for axis, extent in enumerate(value.shape):
                if isinstance(extent, torch.SymInt):
                    _add_solution(node, axis, extent.node.expr, solutions)
    missing = symbols - solutions.keys()
    if missing:
        raise Unsupported(f"no argument shows the size {', '.join(sorted(missing))}")
    return solutions


def _add_solution(node: Any, axis: int, expr: Any, solutions: dict[str, SizeSource]) -> None:
    """Add what an extent says of its symbol: ``a * s + b``."""
    if len(expr.free_symbols) != 1:
        return
    (symbol,) = expr.free_symbols
    if symbol.name in solutions and not expr.is_Symbol:
        return
    factor = expr.coeff(symbol)
    rest = (expr - factor * symbol).simplify()
    if factor.is_Integer and factor > 0 and rest.is_Integer:
        by, less = int(factor), int(rest)
        before = solutions.get(symbol.name)
        if before is not None and before.called != symbol.name:
            called = before.called  # by the first argument that shows it
        else:
            called = f"{node.name}_{axis}" if expr.is_Symbol else symbol.name
        solutions[symbol.name] = SizeSource(
            node,
            lambda values: (values[node].shape[axis] - less) // by,
            called,
        )


def _item(node: Any) -> Callable[[Values], int]:
    return lambda values: int(values[node])
