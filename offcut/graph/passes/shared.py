"""Equal operators on equal operands are computed once; equal constants are held once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from hashlib import blake2b

import numpy as np

from offcut.describe.request import Array
from offcut.graph.graph import Bound, Node, renamed


def share_equal(bound: Bound) -> Bound:
    """The graph in which each operator runs once on the same operands, with the same options.

    Before: ``a = relu(x)``, ``b = relu(x)``, ``y = add(a, b)``. After: ``a = relu(x)``, ``y = add(a, a)``.
    Names of outputs stay.
    """
    graph = bound.graph
    names, kept = _equal_constants(bound), list[Node]()
    known: dict[object, Node] = {}
    for node in graph.nodes:
        now = with_operands(node, names)
        key = now.op, now.arguments, _typed(now), tuple(value.dtype for value in now.results)
        twin = known.get(key)
        if twin is None or any(value.name in graph.outputs for value in now.results):
            known.setdefault(key, now)
            kept.append(now)
        else:
            pairs = zip(now.results, twin.results, strict=True)
            names.update((value.name, other.name) for value, other in pairs)
    if not names:
        return bound
    constants = tuple(v for v in graph.constants if v.name not in names or v.name in graph.outputs)
    made = replace(graph, nodes=tuple(kept), constants=constants)
    return Bound(made, {value.name: bound.arrays[value.name] for value in constants})


def with_operands(node: Node, names: Mapping[str, str]) -> Node:
    """A node that reads other values; the same object where it reads none that is named."""
    if not any(name in names for name in node.operands):
        return node
    arguments = tuple(renamed(one, names) for one in node.arguments)
    options = tuple((name, renamed(one, names)) for name, one in node.options)
    return replace(node, arguments=arguments, options=options)


def _typed(node: Node) -> str:
    """Arguments and options by their text too: 1 and 1.0 and True are three."""
    return repr((node.arguments, node.options))


def _equal_constants(bound: Bound) -> dict[str, str]:
    found: dict[object, str] = {}
    names: dict[str, str] = {}
    for value in bound.graph.constants:
        first = found.setdefault(_content(bound.arrays[value.name]), value.name)
        if first != value.name:
            names[value.name] = first
    return names


def _content(array: Array) -> object:
    data = np.ascontiguousarray(array)
    digest = blake2b(data.tobytes(), digest_size=16).digest()
    return array.dtype.str, array.dtype.name, array.shape, digest
