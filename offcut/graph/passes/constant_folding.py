"""Nodes whose operands are all known are run now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

import numpy as np

from offcut.core.dtypes import numpy_dtype
from offcut.core.expr import Const, Expr
from offcut.describe.request import Array, take_ownership
from offcut.graph.fusion.access_analysis import NodeAccesses
from offcut.graph.graph import Argument, Bound, Node
from offcut.graph.interpret import run_node
from offcut.graph.operators import Kind

LARGEST = 1 << 26
"""Bytes that a folded constant may take, and pairs of elements that a folded product may look at."""


def fold_constants(bound: Bound) -> Bound:
    """The graph in which what depends on constants alone is a constant.

    What depends on a size is known by calls alone, and stays; so does a view that repeats elements, which costs nothing
    as it is, what would take more than `LARGEST`, and a loop program, whose steps are not counted.
    """
    graph, arrays = bound.graph, dict(bound.arrays)
    readings = NodeAccesses(graph)
    constants, remaining = list(graph.constants), list[Node]()
    for node in graph.nodes:
        if not _foldable(node, arrays, readings):
            remaining.append(node)
            continue
        for value, array in zip(node.results, run_node(node, arrays, {}), strict=True):
            arrays[value.name] = take_ownership(
                np.array(array, numpy_dtype(value.dtype), order="C")
            )
        constants += node.results
    if len(remaining) == len(graph.nodes):
        return bound
    return Bound(replace(graph, constants=tuple(constants), nodes=tuple(remaining)), arrays)


def _foldable(node: Node, arrays: Mapping[str, Array], readings: NodeAccesses) -> bool:
    shapes = [value.shape for value in node.results]
    arguments = (*node.arguments, *(one for _, one in node.options), *shapes)
    if not all(name in arrays for name in node.operands) or any(map(_symbolic, arguments)):
        return False
    input_bytes = sum(arrays[name].nbytes for name in node.operands)
    output_bytes = sum(
        _elements(shape) * numpy_dtype(v.dtype).itemsize
        for shape, v in zip(shapes, node.results, strict=True)
    )
    if readings.is_view(node):
        return output_bytes <= input_bytes
    pairs, kind = 0, readings.of(node).kind
    if kind is Kind.OPAQUE:
        return False
    if kind is Kind.COMPLEX:
        most = max((arrays[name].size for name in node.operands), default=0)
        pairs = most * max(map(_elements, shapes))
    return max(output_bytes, pairs) <= LARGEST


def _elements(shape: tuple[Expr, ...]) -> int:
    return prod(int(extent.value) for extent in shape if isinstance(extent, Const))


def _symbolic(argument: Argument) -> bool:
    """Whether an argument depends on sizes."""
    if isinstance(argument, tuple):
        return any(map(_symbolic, argument))
    return isinstance(argument, Expr) and not isinstance(argument, Const)
