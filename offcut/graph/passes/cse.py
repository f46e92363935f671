"""Equal operators on equal operands are computed once; equal constants are held once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from offcut.describe.request import Array
from offcut.graph.graph import Bound, Node, rename_values
from offcut.graph.tensor_semantics import arguments_text


def eliminate_common_subexpressions(bound: Bound) -> Bound:
    """Return the graph in which each operator runs once on the same operands, with the same options.

    Before: ``a = relu(x)``, ``b = relu(x)``, ``y = add(a, b)``. After: ``a = relu(x)``, ``y = add(a, a)``.
    Names of outputs stay.
    """
    graph = bound.graph
    names, remaining = _equal_constants(bound), list[Node]()
    known: dict[object, Node] = {}
    for node in graph.nodes:
        now = with_operands(node, names)
        key = (
            now.op,
            now.arguments,
            arguments_text(now),
            tuple(value.dtype for value in now.results),
        )
        twin = known.get(key)
        if twin is None or any(value.name in graph.outputs for value in now.results):
            known.setdefault(key, now)
            remaining.append(now)
        else:
            pairs = zip(now.results, twin.results, strict=True)
            names.update((value.name, other.name) for value, other in pairs)
    if not names:
        return bound
    constants = tuple(v for v in graph.constants if v.name not in names or v.name in graph.outputs)
    shared = replace(graph, nodes=tuple(remaining), constants=constants)
    return Bound(shared, {value.name: bound.arrays[value.name] for value in constants})


def with_operands(node: Node, names: Mapping[str, str]) -> Node:
    """Return a node that reads other values; the same object where it reads none that is named."""
    if not any(name in names for name in node.operands):
        return node
    arguments = tuple(rename_values(one, names) for one in node.arguments)
    options = tuple((name, rename_values(one, names)) for name, one in node.options)
    return replace(node, arguments=arguments, options=options)


def _equal_constants(bound: Bound) -> dict[str, str]:
    """Names of constants by those of earlier ones of the same type, shape and bits."""
    by_sample: dict[object, list[str]] = {}
    names: dict[str, str] = {}
    for value in bound.graph.constants:
        array = bound.arrays[value.name]
        alike = by_sample.setdefault(_sample(array), [])
        twin = next((name for name in alike if _same_bits(array, bound.arrays[name])), None)
        if twin is None:
            alike.append(value.name)
        else:
            names[value.name] = twin
    return names


def _sample(array: Array) -> object:
    """Return the type and the shape of an array, and some of its bytes."""
    flat = np.ascontiguousarray(array).reshape(-1)
    some = flat[:: max(flat.size // 64, 1)].tobytes()
    return array.dtype.name, array.shape, some


def _same_bits(one: Array, other: Array) -> bool:
    """Return whether two arrays of one type and shape hold the same bits: -0.0 is not 0.0, and a NaN is itself."""
    a, b = (np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in (one, other))
    return bool(np.array_equal(a, b))


def eliminate_dead_code(bound: Bound) -> Bound:
    """Return the graph without what no output needs; inputs stay, since a call gives them."""
    graph = bound.graph
    needed, nodes = set(graph.outputs), []
    for node in reversed(graph.nodes):
        if any(value.name in needed for value in node.results):
            nodes.append(node)
            needed.update(node.operands)
    constants = tuple(value for value in graph.constants if value.name in needed)
    if len(nodes) == len(graph.nodes) and constants == graph.constants:
        return bound
    result = replace(graph, nodes=tuple(reversed(nodes)), constants=constants)
    return Bound(result, {value.name: bound.arrays[value.name] for value in constants})
