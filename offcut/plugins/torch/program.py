"""An FX graph of aten that runs: regions by our kernels, the rest by torch."""

from __future__ import annotations

import operator
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import sympy
import torch
from torch.utils import _pytree as pytree
from torch.utils._sympy.functions import Max

from offcut.describe.request import lent
from offcut.errors import CallError, DescribeError, OffcutError, PartitionError
from offcut.graph import Model, ModelCost, ModelPlan, compiled
from offcut.graph.models.observing import Observed, observed_by
from offcut.graph.models.step import Step as KernelStep
from offcut.plugins.torch.conditions import Conditions
from offcut.plugins.torch.dtypes import array_of, is_held, plain_of, tensor_of
from offcut.plugins.torch.facts import Facts
from offcut.plugins.torch.how import DEFAULT, How
from offcut.plugins.torch.left import Left, reason_of
from offcut.plugins.torch.parts import in_parts
from offcut.plugins.torch.predicted import Predicted
from offcut.plugins.torch.sizes import symbols_of, sympy_of, value_of, values_of
from offcut.plugins.torch.splitting import Region, is_size, is_view, split

Values = dict[Any, Any]
"""Tensors and ints by node."""


class Solution(NamedTuple):
    """How a size is read from a placeholder.

    called  what a user calls it: ``x_0``, the first extent of x
    """

    node: Any
    read: Callable[[Values], int]
    called: str


Strides: TypeAlias = Callable[[Mapping[str, int]], tuple[int, ...]]
"""Of a tensor, as a function of sizes."""


SETTLED = 256
"""Shapes of calls whose sizes are kept."""


class _Unfit(Exception):
    """A node that no kernel can be made of: others of its region may do without it."""

    def __init__(self, node: Any, reason: str) -> None:
        super().__init__(reason)
        self.node, self.reason = node, reason


class Program:
    """An FX graph for all its sizes.

    known   tensors of placeholders that do not change: constants
    facts   of its symbols
    how     its regions run
    conditions  on the sizes of a call; None: whoever calls has checked them
    left    the operators that torch runs, each with the reason
    read    the placeholders that a call reads, with their places
    again   what makes the tensors of others, of `known`, which kernels hold: torch needs them where a call is refused
    """

    def __init__(
        self,
        module: Any,
        known: Mapping[Any, Any],
        facts: Facts,
        how: How = DEFAULT,
        conditions: Conditions | None = None,
    ) -> None:
        graph, self.conditions = module.graph, conditions
        self._module, self._facts = module, facts
        self.inputs = tuple(node for node in graph.nodes if node.op == "placeholder")
        fakes = (node.meta["val"] for node in self.inputs)
        how = how.on({one.device.type for one in fakes if isinstance(one, torch.Tensor)})
        self.how = how
        (output,) = (node for node in graph.nodes if node.op == "output")
        self.results: Sequence[Any] = output.args[0]
        attributes = {
            node: _attribute(module, node.target) for node in graph.nodes if node.op == "get_attr"
        }
        fixed = {
            node: array_of(one)
            for node, one in {**known, **attributes}.items()
            if isinstance(one, torch.Tensor) and is_held(one, how.devices)
        }
        self.again: dict[Any, Callable[[], Any]] = {}
        solutions, refused = _solutions(self.inputs), dict[Any, str]()
        self.sizes = tuple((name, one.read) for name, one in solutions.items())
        self.called = {name: one.called for name, one in solutions.items()}
        self.called |= {one.name: f"{node.name}_{one.name}" for node, one in _extents_found(graph)}
        self.quotients = tuple(one for one in facts.quotients if one[1] in solutions)
        with lent(fixed.values()):
            while True:
                parts = split(graph, facts, fixed, refused, how.devices, how.views)
                self.left = list(parts.left)
                try:
                    self.steps = [self._step(module, step, known) for step in parts.steps]
                except _Unfit as unfit:
                    refused[unfit.node] = unfit.reason
                    self.again.clear()
                else:
                    break
        if how.parts is not True:
            for ran, model in zip(self._ran, in_parts(self.predicted, how.parts), strict=True):
                ran.model = model
        self.order = tuple(zip(self.steps, _frees(parts.steps, output), strict=True))
        self.finds = any(isinstance(step, _Called) and step.found for step in self.steps)
        read = {one.node for one in solutions.values()} | {*output.all_input_nodes}
        read |= set() if conditions is None else conditions.nodes
        for step in self.steps:
            read |= step.reads
        for step in self.steps:
            read |= (step.instead.reads if isinstance(step, _Ran) else set()) - self.again.keys()
        self.read = tuple((place, node) for place, node in enumerate(self.inputs) if node in read)
        asked = {one.node for one in solutions.values()}
        asked |= set() if conditions is None else conditions.nodes
        self._asked = tuple(node for node in self.inputs if node in asked)
        self._settled: dict[object, dict[str, int]] = {}

    @property
    def regions(self) -> tuple[Region, ...]:
        """What is ours, and has not failed."""
        return tuple(step.region for step in self._ran)

    def __call__(self, arguments: Sequence[Any]) -> list[Any]:
        """The results, for tensors and ints in the order of the placeholders.

        Raises Unlike where the sizes do not hold its conditions.
        """
        values: Values = {node: arguments[place] for place, node in self.read}
        key = tuple([getattr(values[node], "shape", values[node]) for node in self._asked])
        sizes = self._settled.get(key)
        if sizes is None:
            sizes = self._sizes(key, values)
        if self.finds:
            sizes = dict(sizes)
        for step, frees in self.order:
            step(values, sizes)
            for node in frees:
                values.pop(node, None)
        return [values[one] if isinstance(one, torch.fx.Node) else one for one in self.results]

    def _sizes(self, key: object, values: Values) -> dict[str, int]:
        """The sizes of a call, and of others of such shapes, which hold the conditions; nobody writes to them.

        Raises Unlike where they do not.
        """
        sizes = {name: solve(values) for name, solve in self.sizes}
        if self.conditions is not None:
            self.conditions.check(values, sizes)
        for quotient, size, by in self.quotients:
            sizes[quotient] = sizes[size] // by
        if len(self._settled) >= SETTLED:
            self._settled.clear()
        return self._settled.setdefault(key, sizes)

    @property
    def predicted(self) -> Predicted:
        """What its regions run, and cost."""
        models = [one.model for one in self._ran]
        return Predicted(models, self.called, self.quotients, self.report().splitlines()[1:])

    @property
    def _ran(self) -> list[_Ran]:
        return [one for one in self.steps if isinstance(one, _Ran) and not one.failed]

    def plan(self, **sizes: int) -> ModelPlan:
        """What a call runs in kernels, as `Model.plan` says it, and what stays with torch.

        sizes  by argument and axis, ``x_0``: `predicted.sizes` lists them
        """
        return self.predicted.plan(sizes)

    def cost(self, **sizes: int) -> ModelCost:
        """What the kernels of a call are predicted to cost, as `Model.cost` says it: what stays with torch has no price."""
        return self.predicted.cost(sizes)

    @property
    def has_views(self) -> bool:
        """Return whether torch makes views, and nothing else."""
        return not self.left and any(isinstance(one, _Called) for one in self.steps)

    def with_views(self, known: Mapping[Any, Any]) -> Program:
        """Return the same, but for views, which its regions calculate; its kernels come from the cache.

        known  tensors of placeholders that do not change
        """
        how = replace(self.how, views=True)
        return Program(self._module, known, self._facts, how, self.conditions)

    def whole_region(self, op: str) -> tuple[Model, dict[str, str], dict[str, str]]:
        """Return the model that is all of it; its inputs by the names of the arguments, and its outputs by those of the results, each in order.

        op  what is refused, in words of errors

        Raises DescribeError where torch runs a part of it, or sizes are read from numbers.
        """
        because = ""
        if self.left or len(self.steps) != 1 or not self._ran:
            made = ", ".join(str(one.node) for one in self.steps if isinstance(one, _Called))
            because = self.report().replace("\n", ";") + (
                f"; views by torch: {made}" if made else ""
            )
        elif self.conditions is not None and self.conditions.has_guards:
            because = "it was traced for sizes that hold conditions, and a file has one trace"
        elif self._ran[0].sizes:
            because = f"{', '.join(self._ran[0].sizes)} is in no shape of what kernels read"
        if because:
            raise DescribeError(op, f"cannot {op} a model of torch", because=because)
        (step,) = self._ran
        graph = step.region.bound.graph
        given = {node: value.name for node, value in zip(step.inputs, graph.inputs, strict=True)}
        results = {node: graph.outputs[place] for node, place, *_ in step.outputs}
        others = [one for one in self.results if one not in results]
        if others:
            because = f"its result {others[0]} is no array that kernels give"
            raise DescribeError(op, f"cannot {op} a model of torch", because=because)
        inputs = {node.name: given[node] for node in self.inputs if node in given}
        outputs = {f"output_{n}": results[node] for n, node in enumerate(self.results)}
        return step.model, inputs, outputs

    def report(self) -> str:
        """How many operators are ours, and which stay with torch, why."""
        ours = sum(len(region.bound.graph.nodes) for region in self.regions)
        counts = Counter((str(node.target), reason) for node, reason in self.left)
        lines = [
            f"{len(self.regions)} regions of {ours} operators by offcut, "
            f"{sum(counts.values())} operators by torch"
        ]
        lines += [f"  {count} × {op}: {reason}" for (op, reason), count in counts.items()]
        return "\n".join(lines)

    def _step(self, module: Any, step: Region | Any, known: Mapping[Any, Any]) -> Step:
        if not isinstance(step, Region):
            return _Called(module, step)
        instead, refused = _Instead(module, step, self.again), partial(self._refused, step)
        try:
            asked = ((name, _order(node.meta["val"])) for node, name, _ in step.outputs)
            orders = {name: order for name, order in asked if order is not None}
            how = self.how
            model = compiled(
                step.bound,
                how.threads,
                how.target or "cpu",
                distributive=how.distributive,
                orders=orders,
            )
            for node, name in step.known.items():
                if node in self.inputs and known[node].is_contiguous():
                    self.again[node] = partial(_tensor, model, name, known[node].device)
            return _Ran(replace(step, bound=model.asked), model, instead, refused)
        except OffcutError as failed:
            node = step.origin.get(failed.value or "")
            if node is not None and len(step.nodes) > 1:
                raise _Unfit(node, reason_of(failed)) from failed
            refused(failed)
            return instead
        except Exception as failed:  # a model runs, whatever becomes of a region
            refused(failed)
            return instead

    def _refused(self, region: Region, failed: Exception) -> None:
        """List what torch does in place of a region.

        Raises what is no refusal, where ``OFFCUT_VERIFY=1``.
        """
        reason, listed = reason_of(failed), {node for node, _ in self.left}
        self.left += [
            (node, reason)
            for node in region.nodes
            if not (node in listed or is_view(node) or node.target is operator.getitem)
        ]


@dataclass(frozen=True)
class Whole:
    """A graph that stays with torch as it is.

    reason  why
    """

    module: Any
    reason: str
    left: tuple[tuple[Any, str], ...] = ()

    def __call__(self, arguments: Sequence[Any]) -> Any:
        """The results of the graph."""
        return self.module.forward(*arguments)

    def report(self) -> str:
        """That all of it runs in torch, and why."""
        return f"0 regions by offcut, all by torch: {self.reason}"


def _tensor(model: Model, name: str, device: Any) -> Any:
    """A constant of a model, as a tensor of its own memory on a device."""
    return tensor_of(model.asked.arrays[name].copy()).to(device)


class _Ran:
    """A region as a step.

    instead  what torch does where a call is refused; where the model fails, from then on
    refused  lists that
    """

    def __init__(
        self,
        region: Region,
        model: Model,
        instead: _Instead,
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
                _strides(node.meta["val"]),
                node.meta["val"].device,
            )
            for node, name, shared in region.outputs
        )

    def __call__(self, values: Values, sizes: dict[str, int]) -> None:
        """Calculate its outputs from its inputs."""
        if self.failed:
            self.instead(values, sizes)
            return
        given = [plain_of(values[node]) for node in self.inputs]
        try:
            own = {name: sizes[name] for name in self.sizes}
            if torch.autograd._profiler_enabled():
                with observed_by(_RECORDER):
                    outputs = self.model.outputs(given, own)
            else:
                outputs = self.model.outputs(given, own)
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
            made = outputs[place]
            tensor = tensor_of(made) if isinstance(made, np.ndarray) else made
            if tensor.device.type != device.type:  # the first operand was elsewhere
                tensor = tensor.to(device)
            if shared:
                tensor = tensor.clone()
            values[node] = _restrided(tensor, strides, sizes)


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


class _Called:
    """An operator of torch, or an attribute of the module, as a step.

    found  the extents of its result that nobody knows before it ran, each with where in the result it is
    """

    def __init__(self, module: Any, node: Any) -> None:
        self.node, self.operator, self.reads = node, node.target, {node, *node.all_input_nodes}
        # What a view is of may lie otherwise than traced.
        if node.target is torch.ops.aten.view.default:
            self.operator = torch.ops.aten.reshape.default
        self.size = value_of(node.meta["val"]) if is_size(node) else None
        self.held = _attribute(module, node.target) if node.op == "get_attr" else None
        self.places = _places(node)
        self.whole = _is_whole(node)
        self.found = tuple((node.meta.get("unbacked_bindings") or {}).items())

    def __call__(self, values: Values, sizes: dict[str, int]) -> None:
        """Calculate its result."""
        node = self.node
        if self.whole:
            values[node] = values[node.args[0]]
        elif self.size is not None:
            values[node] = self.size(sizes)
        elif node.op == "get_attr":
            values[node] = self.held
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
        for symbol, path in self.found:
            sizes[symbol.name] = int(pytree.key_get(values[node], path))


def _extents_found(graph: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the extents that operators find, as symbols, each with its node."""
    for node in graph.nodes:
        for symbol in node.meta.get("unbacked_bindings") or ():
            yield node, symbol


def _is_whole(node: Any) -> bool:
    """Whether a node is a slice of all of an axis, and no result."""
    if node.target is not torch.ops.aten.slice.Tensor or node.kwargs or len(node.args) > 4:
        return False
    start, stop = (*node.args[2:], None, None)[:2]
    whole = start in (0, None) and (stop is None or stop == sys.maxsize)
    return whole and all(user.op != "output" for user in node.users)


def _places(node: Any) -> tuple[tuple[int, Any], ...] | None:
    """Where the arguments of a node are tensors; None where they are more than that: sizes, lists of tensors, options by name."""
    found = tuple((n, one) for n, one in enumerate(node.args) if isinstance(one, torch.fx.Node))
    inside = list[Any]()
    others = [one for one in node.args if not isinstance(one, torch.fx.Node)]
    torch.fx.node.map_arg((others, node.kwargs), inside.append)
    return None if inside or node.kwargs or any(is_size(one) for _, one in found) else found


class _Instead:
    """A region by torch: all that its results need and that is not there.

    again  what makes constants that kernels hold
    """

    def __init__(self, module: Any, region: Region, again: Mapping[Any, Callable[[], Any]]) -> None:
        self.outputs, self.again = region.outputs, again
        self.steps = {node: _Called(module, node) for node in _needed(region)}
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


Step: TypeAlias = _Called | _Instead | _Ran


def _needed(region: Region) -> tuple[Any, ...]:
    """The nodes that the results of a region need, in order, but for the arguments of the graph."""
    pending = [node for node, *_ in region.outputs]
    found: set[Any] = set()
    while pending:
        node = pending.pop()
        if node not in found and node.op != "placeholder":
            found.add(node)
            pending += () if is_size(node) else node.all_input_nodes
    (first, *_), *_ = region.outputs
    return tuple(node for node in first.graph.nodes if node in found)


def _solutions(inputs: Sequence[Any]) -> dict[str, Solution]:
    """How each symbol is read from the arguments: from which, and how.

    Raises Left for one that no argument shows.
    """
    found: dict[str, Solution] = {}
    wanted: set[str] = set()
    for node in inputs:
        value = node.meta["val"]
        if isinstance(value, torch.SymInt):
            wanted |= {symbol.name for symbol in value.node.expr.free_symbols}
            if value.node.expr.is_Symbol:
                found[value.node.expr.name] = Solution(node, _item(node), node.name)
        elif isinstance(value, torch.Tensor):
            wanted |= {symbol.name for symbol in symbols_of(value.shape)}
            for axis, extent in enumerate(value.shape):
                if isinstance(extent, torch.SymInt):
                    _solved(node, axis, extent.node.expr, found)
    missing = wanted - found.keys()
    if missing:
        raise Left(f"no argument shows the size {', '.join(sorted(missing))}")
    return found


def _solved(node: Any, axis: int, expr: Any, found: dict[str, Solution]) -> None:
    """Note what an extent says of its symbol: ``a * s + b``."""
    if len(expr.free_symbols) != 1:
        return
    (symbol,) = expr.free_symbols
    if symbol.name in found and not expr.is_Symbol:
        return
    factor = expr.coeff(symbol)
    rest = (expr - factor * symbol).simplify()
    if factor.is_Integer and factor > 0 and rest.is_Integer:
        by, less = int(factor), int(rest)
        before = found.get(symbol.name)
        if before is not None and before.called != symbol.name:
            called = before.called  # by the first argument that shows it
        else:
            called = f"{node.name}_{axis}" if expr.is_Symbol else symbol.name
        found[symbol.name] = Solution(
            node,
            lambda values: (values[node].shape[axis] - less) // by,
            called,
        )


def _item(node: Any) -> Callable[[Values], int]:
    return lambda values: int(values[node])


def _strides(fake: Any) -> Strides | None:
    """The strides that torch expects of a result, as a function of sizes; None where they are those of an array by rows."""
    own = [_unmaxed(sympy_of(stride)) for stride in fake.stride()]
    if _lies(fake, range(fake.dim())) or 0 in own:
        return None
    return values_of(own)


def _order(fake: Any) -> tuple[int, ...] | None:
    """The axes as they lie in memory, outermost first; None where elements do not lie side by side."""
    symbols = sorted(symbols_of(fake.stride()), key=str)
    apart = {symbol: 97 + number for number, symbol in enumerate(symbols)}
    steps = [int(sympy_of(stride).subs(apart)) for stride in fake.stride()]
    order = tuple(sorted(range(fake.dim()), key=lambda axis: -steps[axis]))
    return order if _lies(fake, order) else None


def _lies(fake: Any, order: Iterable[int]) -> bool:
    """Whether elements lie side by side, by the axes in that order, outermost first."""
    step = sympy.Integer(1)
    for axis in reversed([*order]):
        extent = sympy_of(fake.shape[axis])
        if extent != 1 and _unmaxed(sympy_of(fake.stride(axis))) != step:
            return False
        step = step * extent
    return True


def _unmaxed(stride: Any) -> Any:
    """A stride without ``Max(1, s)``, which torch writes for sizes that may be 0."""

    def bare(*args: Any) -> Any:
        kept = [one for one in args if one != 1]
        return kept[0] if len(kept) == 1 else Max(*args)

    return stride.replace(Max, bare)


def _restrided(tensor: Any, strides: Strides | None, sizes: Mapping[str, int]) -> Any:
    """A tensor, or a copy of it, in the strides that torch expects."""
    if strides is None:
        return tensor.contiguous()
    wanted = strides(sizes)
    if tensor.stride() == wanted:
        return tensor
    found = torch.empty_strided(tensor.shape, wanted, dtype=tensor.dtype, device=tensor.device)
    found.copy_(tensor)
    return found


def _frees(steps: Sequence[Region | Any], output: Any) -> list[tuple[Any, ...]]:
    """After each step, the values that nothing reads any more; arguments are the caller's."""
    last: dict[Any, int] = {}
    for number, step in enumerate(steps):
        read = step.inputs.values() if isinstance(step, Region) else step.all_input_nodes
        last.update((node, number) for node in read if node.op != "placeholder")
    kept = set(output.all_input_nodes)
    return [
        tuple(node for node, at in last.items() if at == number and node not in kept)
        for number in range(len(steps))
    ]


def _attribute(module: Any, target: str) -> Any:
    found = module
    for name in target.split("."):
        found = getattr(found, name)
    return found
