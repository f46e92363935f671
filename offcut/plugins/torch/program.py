"""An FX graph of aten that runs: regions by our kernels, the rest by torch."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from offcut.describe.request import borrow
from offcut.errors import DescribeError, OffcutError
from offcut.graph import Model, ModelCost, ModelPlan, compile_graph
from offcut.plugins.torch.dtypes import array_of, is_held, tensor_of
from offcut.plugins.torch.graph_split import Region, is_view, split
from offcut.plugins.torch.options import DEFAULT, Options
from offcut.plugins.torch.program_cost import ProgramCost, in_parts
from offcut.plugins.torch.rule_table import unsupported_reason
from offcut.plugins.torch.size_facts import Facts
from offcut.plugins.torch.steps import (
    FallbackStep,
    KnownSizes,
    RegionStep,
    Step,
    TorchStep,
    Values,
    attribute_of,
    memory_order,
    solutions_of,
)
from offcut.plugins.torch.trace_guards import Conditions

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
        how: Options = DEFAULT,
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
            node: attribute_of(module, node.target) for node in graph.nodes if node.op == "get_attr"
        }
        fixed = {
            node: array_of(one)
            for node, one in {**known, **attributes}.items()
            if isinstance(one, torch.Tensor) and is_held(one, how.devices)
        }
        self.again: dict[Any, Callable[[], Any]] = {}
        solutions, refused = solutions_of(self.inputs), dict[Any, str]()
        self.sizes = tuple((name, one.read) for name, one in solutions.items())
        self.called = {name: one.called for name, one in solutions.items()}
        self.called |= {one.name: f"{node.name}_{one.name}" for node, one in _extents_found(graph)}
        self.quotients = tuple(one for one in facts.quotients if one[1] in solutions)
        with borrow(fixed.values()):
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
            for region, model in zip(self._ran, in_parts(self.predicted, how.parts), strict=True):
                region.model = model
        self.order = tuple(zip(self.steps, _frees(parts.steps, output), strict=True))
        self.finds = any(isinstance(step, TorchStep) and step.unbacked for step in self.steps)
        read = {one.node for one in solutions.values()} | {*output.all_input_nodes}
        read |= set() if conditions is None else conditions.nodes
        for step in self.steps:
            read |= step.reads
        for step in self.steps:
            read |= (
                step.instead.reads if isinstance(step, RegionStep) else set()
            ) - self.again.keys()
        self.read = tuple((place, node) for place, node in enumerate(self.inputs) if node in read)
        nodes_of_sizes = {one.node for one in solutions.values()}
        nodes_of_sizes |= set() if conditions is None else conditions.nodes
        self._asked = tuple(node for node in self.inputs if node in nodes_of_sizes)
        self._settled: dict[object, dict[str, int]] = {}
        self.at_known_sizes = (
            None if self.finds else KnownSizes.of(self.steps, self.inputs, self.results)
        )

    @property
    def regions(self) -> tuple[Region, ...]:
        """What is ours, and has not failed."""
        return tuple(step.region for step in self._ran)

    def __call__(self, arguments: Sequence[Any]) -> list[Any]:
        """The results, for tensors and ints in the order of the placeholders.

        Raises Unlike where the sizes do not hold its conditions.
        """
        if (
            self.at_known_sizes is not None
            and (results := self.at_known_sizes(arguments)) is not None
        ):
            return [*results]
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
    def predicted(self) -> ProgramCost:
        """What its regions run, and cost."""
        models = [one.model for one in self._ran]
        return ProgramCost(models, self.called, self.quotients, self.report().splitlines()[1:])

    @property
    def _ran(self) -> list[RegionStep]:
        return [one for one in self.steps if isinstance(one, RegionStep) and not one.failed]

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
        return not self.left and any(isinstance(one, TorchStep) for one in self.steps)

    def with_views(self, constants: Mapping[Any, Any]) -> Program:
        """Return the same, but for views, which its regions calculate; its kernels come from the cache.

        constants  tensors of placeholders that do not change
        """
        how = replace(self.how, views=True)
        return Program(self._module, constants, self._facts, how, self.conditions)

    def whole_region(self, op: str) -> tuple[Model, dict[str, str], dict[str, str]]:
        """Return the model that is all of it; its inputs by the names of the arguments, and its outputs by those of the results, each in order.

        op  what is refused, in words of errors

        Raises DescribeError where torch runs a part of it, or sizes are read from numbers.
        """
        because = ""
        if self.left or len(self.steps) != 1 or not self._ran:
            views = ", ".join(str(one.node) for one in self.steps if isinstance(one, TorchStep))
            because = self.report().replace("\n", ";") + (
                f"; views by torch: {views}" if views else ""
            )
        elif self.conditions is not None and self.conditions.has_guards:
            because = "it was traced for sizes that hold conditions, and a file has one trace"
        elif self._ran[0].sizes:
            because = f"{', '.join(self._ran[0].sizes)} is in no shape of what kernels read"
        if because:
            raise DescribeError(op, f"cannot {op} a model of torch", because=because)
        (step,) = self._ran
        graph = step.region.bound.graph
        names = {node: value.name for node, value in zip(step.inputs, graph.inputs, strict=True)}
        results = {node: graph.outputs[place] for node, place, *_ in step.outputs}
        others = [one for one in self.results if one not in results]
        if others:
            because = f"its result {others[0]} is not an array that kernels give"
            raise DescribeError(op, f"cannot {op} a model of torch", because=because)
        inputs = {node.name: names[node] for node in self.inputs if node in names}
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
            return TorchStep(module, step)
        instead, refused = FallbackStep(module, step, self.again), partial(self._note_refusal, step)
        try:
            memory_orders = (
                (name, memory_order(node.meta["val"])) for node, name, _ in step.outputs
            )
            orders = {name: order for name, order in memory_orders if order is not None}
            how = self.how
            model = compile_graph(
                step.bound,
                how.threads,
                how.target or "cpu",
                distributive=how.distributive,
                orders=orders,
            )
            for node, name in step.known.items():
                if node in self.inputs and known[node].is_contiguous():
                    self.again[node] = partial(_tensor, model, name, known[node].device)
            return RegionStep(replace(step, bound=model.asked), model, instead, refused)
        except OffcutError as failed:
            node = step.origin.get(failed.value or "")
            if node is not None and len(step.nodes) > 1:
                raise _Unfit(node, unsupported_reason(failed)) from failed
            refused(failed)
            return instead
        except Exception as failed:  # a model runs, whatever becomes of a region
            refused(failed)
            return instead

    def _note_refusal(self, region: Region, failed: Exception) -> None:
        """List what torch does in place of a region.

        Raises what is no refusal, where ``OFFCUT_VERIFY=1``.
        """
        reason, nodes = unsupported_reason(failed), {node for node, _ in self.left}
        self.left += [
            (node, reason)
            for node in region.nodes
            if not (node in nodes or is_view(node) or node.target is operator.getitem)
        ]


@dataclass(frozen=True)
class EagerProgram:
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


def _extents_found(graph: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the extents that operators find, as symbols, each with its node."""
    for node in graph.nodes:
        for symbol in node.meta.get("unbacked_bindings") or ():
            yield node, symbol


def _frees(steps: Sequence[Region | Any], output: Any) -> list[tuple[Any, ...]]:
    """After each step, the values that nothing reads any more; arguments are the caller's."""
    last: dict[Any, int] = {}
    for number, step in enumerate(steps):
        read = step.inputs.values() if isinstance(step, Region) else step.all_input_nodes
        last.update((node, number) for node in read if node.op != "placeholder")
    results = set(output.all_input_nodes)
    return [
        tuple(node for node, at in last.items() if at == number and node not in results)
        for number in range(len(steps))
    ]
