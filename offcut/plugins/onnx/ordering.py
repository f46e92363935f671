"""The nodes of a file in an order in which each follows what it reads: a converter adds some at the end, which onnxruntime takes."""

from __future__ import annotations

from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from typing import Any


def ordered(proto: Any) -> Any:
    """A model whose nodes follow what they read, a copy with its weights; itself where they do, or where they read each other in a circle.

    Nodes of bodies and functions stay in their order.
    """
    nodes = proto.graph.node
    makers = {name: place for place, node in enumerate(nodes) for name in node.output if name}
    reads = [[makers[name] for name in _names_read(node) if name in makers] for node in nodes]
    if all(one < place for place, found in enumerate(reads) for one in found):
        return proto
    try:
        order = tuple(TopologicalSorter(dict(enumerate(reads))).static_order())
    except CycleError:
        return proto
    made = type(proto)()
    made.CopyFrom(proto)
    del made.graph.node[:]
    made.graph.node.extend(nodes[place] for place in order)
    return made


def _names_read(node: Any) -> Iterator[str]:
    """What a node reads, and what graphs inside of it do."""
    yield from node.input
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            yield from (one.name for one in graph.output)
            for inner in graph.node:
                yield from _names_read(inner)
