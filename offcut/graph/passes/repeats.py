"""Operators by element read an operand that is repeated along axes as it was before: they repeat it themselves.

Before: ``r: float32[n, 64] = broadcast_to(s, …)``, ``y = divide(x, r)``. After: ``y = divide(x, s)`` of ``s: float32[n, 1]``, which
kernels read once for each row, and in which what makes ``s`` may be written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from offcut import ops
from offcut.core import index as ix
from offcut.core.expr import Expr
from offcut.graph.graph import Bound, Node
from offcut.graph.passes.cse import eliminate_dead_code, with_operands

Shape = tuple[Expr, ...]
_MODULES = tuple(
    f"offcut.ops.elementwise.{name}"
    for name in ("arithmetic", "bits", "conditions", "functions", "powers")
)
"""The modules of operators that repeat extents of 1 as numpy does."""


def read_unrepeated(bound: Bound) -> Bound:
    """Return the graph in which operators by element read what `broadcast_to` repeats, where another operand has the extents."""
    graph = bound.graph
    sources: dict[str, str] = {}
    shapes: dict[str, Shape] = {
        value.name: value.shape for value in (*graph.inputs, *graph.constants)
    }
    nodes: list[Node] = []
    for node in graph.nodes:
        shapes.update((value.name, value.shape) for value in node.results)
        now = node
        if node.op == "broadcast_to":
            (name,) = node.operands
            sources[node.results[0].name] = sources.get(name, name)
        elif len(node.results) == 1 and _is_by_element(node.op):
            now = with_operands(node, _sources_read(node, sources, shapes))
        nodes.append(now)
    if tuple(nodes) == graph.nodes:
        return bound
    return eliminate_dead_code(Bound(replace(graph, nodes=tuple(nodes)), bound.arrays))


def _sources_read(
    node: Node, sources: Mapping[str, str], shapes: Mapping[str, Shape]
) -> dict[str, str]:
    """Return what a node may read in place of operands: its result has its extents by those that are left."""
    accepted: dict[str, str] = {}
    for name in node.operands:
        if name not in sources:
            continue
        trial = {**accepted, name: sources[name]}
        own = [shapes[trial.get(one, one)] for one in node.operands]
        if _has_extents(own, node.results[0].shape):
            accepted = trial
    return accepted


def _has_extents(operands: Sequence[Shape], shape: Shape) -> bool:
    """Return whether each extent of a shape but 1 is one of an operand."""
    return all(
        extent == ix.const(1) or any(len(own) >= n and own[-n] == extent for own in operands)
        for n, extent in enumerate(reversed(shape), 1)
    ) and any(len(own) == len(shape) for own in operands)


def _is_by_element(op: str) -> bool:
    """Return whether an operator of `offcut.ops` repeats extents of 1 itself."""
    return op in ops.__all__ and getattr(ops, op).__module__ in _MODULES
