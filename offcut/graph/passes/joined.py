"""Products of one operand with several constant matrices are one product with these side by side: queries, keys and values.

Before: ``q = dense(x, u)``, ``k = dense(x, v)``. After, with ``w = [u v]``::

    p = dense(x, w)
    q = slice(p, -1, 0, a)
    k = slice(p, -1, a, a + b)

The operand is read once, and one kernel runs for several. A product that something point by point follows keeps a kernel of its
own, into which that is written; so does one whose result is given back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from offcut.graph.build import Builder, rebuilt
from offcut.graph.fusion.reading import Readings
from offcut.graph.graph import Bound, Node, Ref


def join_products(bound: Bound) -> Bound:
    """The graph in which each operand is multiplied by one matrix where it was by several."""
    graph, together = bound.graph, dict[object, list[Node]]()
    for node in _joinable(bound):
        types = [bound.arrays[name].dtype.name for name in node.operands[1:]]
        alike = node.arguments[0], bool(node.option("transpose_w")), *types, node.results[0].dtype
        together.setdefault(alike, []).append(node)
    groups = {nodes[0]: nodes for nodes in together.values() if len(nodes) > 1}
    if not groups:
        return bound
    made, parts = rebuilt(graph, bound.arrays), dict[Node, tuple[Ref, int, int]]()
    for node in graph.nodes:
        if node in groups:
            joined = _product(bound, made, groups[node])
            widths = (_width(bound, one) for one in groups[node])
            ends = pairwise(accumulate(widths, initial=0))
            parts.update((one, (joined, *of)) for one, of in zip(groups[node], ends, strict=True))
        if node in parts:
            joined, start, stop = parts[node]
            last = len(made.shape(joined)) - 1
            made.node("slice", joined, last, start, stop, results=(node.results[0].name,))
        else:
            made.nodes.append(node)
            made.values.update((value.name, value) for value in node.results)
    made.output(*map(Ref, graph.outputs))
    return made.bound


def _joinable(bound: Bound) -> Iterator[Node]:
    """Products with a constant matrix that only views read."""
    graph, readings, users = bound.graph, Readings(bound.graph), bound.graph.users
    for node in graph.nodes:
        if node.op != "dense" or len(node.arguments) != 2:
            continue
        x, *constants = node.operands
        plain = {name for name, _ in node.options} <= {"bias", "transpose_w"}
        known = x not in bound.arrays and all(name in bound.arrays for name in constants)
        read = users[node.results[0].name]
        given = node.results[0].name in graph.outputs
        if plain and known and not given and read and all(map(readings.is_view, read)):
            yield node


def _width(bound: Bound, node: Node) -> int:
    """How many columns a product has."""
    return int(bound.arrays[node.operands[1]].shape[0 if node.option("transpose_w") else 1])


def _product(bound: Bound, made: Builder, nodes: Sequence[Node]) -> Ref:
    """One product with the matrices of several side by side, and their biases."""
    first, options = nodes[0], dict[str, Any](nodes[0].options)
    axis = 0 if options.get("transpose_w") else 1
    matrices = [bound.arrays[node.operands[1]] for node in nodes]
    w = made.constant(made.fresh("w_joined"), np.concatenate(matrices, axis))
    if options.get("bias") is not None:
        biases = [bound.arrays[node.operands[2]] for node in nodes]
        options["bias"] = made.constant(made.fresh("bias_joined"), np.concatenate(biases))
    result: Ref = made.node("dense", Ref(first.operands[0]), w, **options)
    return result
