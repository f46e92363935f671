"""Nodes and constants that no output needs are left out."""

from __future__ import annotations

from dataclasses import replace

from offcut.graph.graph import Bound


def drop_dead(bound: Bound) -> Bound:
    """The graph without what no output needs; inputs stay, since a call gives them."""
    graph = bound.graph
    needed, kept = set(graph.outputs), []
    for node in reversed(graph.nodes):
        if any(value.name in needed for value in node.results):
            kept.append(node)
            needed.update(node.operands)
    constants = tuple(value for value in graph.constants if value.name in needed)
    if len(kept) == len(graph.nodes) and constants == graph.constants:
        return bound
    made = replace(graph, nodes=tuple(reversed(kept)), constants=constants)
    return Bound(made, {value.name: bound.arrays[value.name] for value in constants})
