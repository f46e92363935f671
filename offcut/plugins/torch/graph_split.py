"""An FX graph in order as regions that are ours, and single operators that stay with torch.

A node has a stage: that of the region that may calculate it, after every operator of torch that it needs. An operator of torch runs
after the region of its stage. So there is no cycle, and a region holds all that can be calculated at its stage, in one piece or several.
An extent that an operator of torch finds, as `nonzero` does, is a size of the regions after it.

Views at the border of a region run in torch, of what the region gives: nothing is copied for them.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from offcut.describe.request import Array
from offcut.graph import Bound
from offcut.plugins.torch import rules
from offcut.plugins.torch.rule_table import Unsupported
from offcut.plugins.torch.size_facts import Facts
from offcut.plugins.torch.sizes import is_size_symbol
from offcut.plugins.torch.translation import Translation

assert rules.__all__  # the table is filled

ALIASES = ("_unsafe_view", "alias", "detach", "lift_fresh")
"""What is a view too, beside those that torch marks."""


@dataclass(frozen=True)
class Region:
    """What is ours at one stage.

    bound    a graph of ours
    inputs   the nodes whose tensors it takes, by the names of its inputs
    known    the placeholders whose tensors are its constants, and the names of these
    origin   of the values of the graph, but for inputs and constants: of which node
    outputs  the node that each output gives, and whether its memory may be that of another
    nodes    all that it calculates, in order: what torch would do in its stead
    """

    bound: Bound
    inputs: Mapping[str, Any]
    outputs: tuple[tuple[Any, str, bool], ...]
    nodes: tuple[Any, ...]
    known: Mapping[Any, str]
    origin: Mapping[str, Any]


@dataclass(frozen=True)
class Split:
    """Steps in the order in which they run.

    steps   regions, and nodes that stay with torch
    left    why, for the operators among those; shape arithmetic and views that torch does are not listed
    """

    steps: tuple[Region | Any, ...]
    left: tuple[tuple[Any, str], ...]


def split(
    graph: Any,
    facts: Facts,
    arrays: Mapping[Any, Array],
    refused: Mapping[Any, str],
    devices: frozenset[str] = frozenset(("cpu",)),
    views: bool = False,
) -> Split:
    """The steps of an FX graph.

    arrays   of the placeholders whose values are known
    refused  the nodes that no kernel can be made of, and why
    devices  whose tensors regions take
    views    whether regions calculate views at their borders
    """
    state, effect = _Found({}, {}, set(), {}, [], devices), -1
    for node in graph.nodes:
        if node.op != "call_function" or is_size(node):
            continue
        reason = refused.get(node) or state.refusal_or_stage(node, facts, arrays)
        if reason is None:
            continue
        place = state.last(node)
        if node.is_impure():  # in their order, and what is written after all that reads it
            place = effect = max(place, effect, len(graph.nodes) if _writes(node) else 0)
        state.place[node] = place
        if _has_tensors(node) and node.target is not operator.getitem:
            state.left.append((node, reason))
    return _steps_by_stage(graph, state, views)


@dataclass(frozen=True)
class _Found:
    """Where nodes are calculated, as far as is known.

    ours    what each stage translates
    stages  of nodes that are ours
    free    those of them that need constants alone: any region may calculate them
    place   the stage after which a node of torch runs
    left    why, for the nodes of torch
    devices whose tensors regions take
    """

    ours: dict[int, Translation]
    stages: dict[Any, int]
    free: set[Any]
    place: dict[Any, int]
    left: list[tuple[Any, str]]
    devices: frozenset[str]

    def refusal_or_stage(self, node: Any, facts: Facts, arrays: Mapping[Any, Array]) -> str | None:
        """Why a node is not ours; None where it is, at its stage."""
        if not _has_tensors(node):
            return "it gives no tensor"
        if node.meta.get("unbacked_bindings"):
            return "its shape depends on data"
        needs = [
            one
            for one in node.all_input_nodes
            if not (is_size(one) or one in self.free or one in arrays)
        ]
        stage = max((self._ready(one) for one in needs), default=0)
        if stage not in self.ours:
            self.ours[stage] = Translation(facts, arrays, self.free, self.devices)
        try:
            self.ours[stage].take(node)
        except Unsupported as refused:
            return str(refused)
        self.stages[node] = stage
        if not needs:
            self.free.add(node)
        return None

    def last(self, node: Any) -> int:
        """The stage after which a node can run; -1: before all."""
        needs = (one for one in node.all_input_nodes if not is_size(one))
        return max((self._mark_done(one) for one in needs), default=-1)

    def _ready(self, node: Any) -> int:
        return self.stages[node] if node in self.stages else self.place.get(node, -1) + 1

    def _mark_done(self, node: Any) -> int:
        return self.stages[node] if node in self.stages else self.place.get(node, -1)


def is_view(node: Any) -> bool:
    """Whether a result shares the memory of the first operand; members of a tuple of results count."""
    if node.op != "call_function":
        return False
    if node.target is operator.getitem:
        return is_view(node.args[0])
    packet = getattr(node.target, "_schema", None)
    name = "" if packet is None else packet.name.removeprefix("aten::")
    return bool(getattr(node.target, "is_view", False)) or name in ALIASES


def _steps_by_stage(graph: Any, parts: _Found, views: bool) -> Split:
    """Return the steps that the results need, by stage; views that torch can do are done by torch, but where regions calculate them."""
    stages, ours = parts.stages, parts.ours
    nodes_by_stage: dict[int, dict[Any, None]] = {}
    effects = {node for node in parts.place if node.is_impure()}
    by_torch = set(effects)
    pending: list[Any] = [*effects, *(node for node in graph.nodes if node.op == "output")]
    ready: set[Any] = set()
    while pending:
        node = pending.pop()
        for one in node.all_input_nodes:
            if one in ready:
                continue
            ready.add(one)
            if one in stages and (views or not is_view(one)):
                nodes_by_stage.setdefault(stages[one], {})[one] = None
            elif one.op in ("call_function", "get_attr"):
                by_torch.add(one)
                pending += () if is_size(one) else (one,)
        if not pending:
            pending += _values_to_compute(ours, nodes_by_stage, ready)
    steps: list[tuple[int, int, Any]] = []
    order = {node: number for number, node in enumerate(graph.nodes)}
    for stage, nodes in nodes_by_stage.items():
        region = _region(ours[stage], tuple(sorted(nodes, key=order.__getitem__)), stages, stage)
        steps.append((2 * stage, 0, region))
    for node in by_torch:
        at = stages[node] if node in stages else parts.place.get(node, -1)
        steps.append((2 * at + 1, order[node], node))
    steps.sort(key=lambda step: step[:2])
    left_by_torch = tuple((node, reason) for node, reason in parts.left if node in by_torch)
    return Split(tuple(step for *_, step in steps), left_by_torch)


class _Reader:
    """A node that reads others, for the walk."""

    def __init__(self, nodes: tuple[Any, ...]) -> None:
        self.all_input_nodes = nodes


def _values_to_compute(
    ours: Mapping[int, Translation], nodes_by_stage: Mapping[int, dict[Any, None]], ready: set[Any]
) -> Iterator[Any]:
    """What regions read that nobody has asked for yet."""
    for stage, nodes in nodes_by_stage.items():
        bound, _ = ours[stage].graph(nodes)
        reads = tuple(ours[stage].read[value.name] for value in bound.graph.inputs)
        missing = tuple(node for node in reads if node not in ready)
        if missing:
            yield _Reader(missing)
            return


def _region(
    translation: Translation, results: tuple[Any, ...], stages: Mapping[Any, int], stage: int
) -> Region:
    bound, names = translation.graph(results)
    input_names = {value.name for value in bound.graph.inputs}
    named_values = {value.name for value in (*bound.graph.inputs, *bound.graph.constants)}
    roots: set[str] = set()
    outputs: list[tuple[Any, str, bool]] = []
    for node, name in names.items():
        root = translation.roots(name)
        outputs.append((node, name, root in named_values or root in roots))
        roots.add(root)
    nodes = tuple(node for node in stages if stages[node] == stage)
    inputs = {name: translation.read[name] for name in translation.read if name in input_names}
    fixed = {value.name for value in bound.graph.constants}
    known = {node: ref.name for node, ref in translation.known.items() if ref.name in fixed}
    return Region(bound, inputs, tuple(outputs), nodes, known, translation.origin)


def is_size(node: Any) -> bool:
    """Whether a node is an expression in the sizes of the inputs."""
    value = node.meta.get("val")
    if not isinstance(value, torch.SymInt):
        return False
    return all(map(is_size_symbol, value.node.expr.free_symbols))


def _writes(node: Any) -> bool:
    """Whether an operator writes to an argument, or is none that says so; others that are impure draw random numbers."""
    schema = getattr(node.target, "_schema", None)
    return schema is None or bool(schema.is_mutable)


def _has_tensors(node: Any) -> bool:
    value = node.meta.get("val")
    members = value if isinstance(value, tuple | list) else (value,)
    return any(isinstance(one, torch.Tensor) for one in members)
