"""Graphs without what is known, equal or repeated: constants folded, equal operators computed once, repeats left to operators.

Equal operators on equal operands are computed once; equal constants are held once.

Nodes whose operands are all known are run now.

Operators by element read an operand that is repeated along axes as it was before: they repeat it themselves.

Before: ``r: float32[n, 64] = broadcast_to(s, …)``, ``y = divide(x, r)``. After: ``y = divide(x, s)`` of ``s: float32[n, 1]``, which
kernels read once for each row, and in which what makes ``s`` may be written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

import numpy as np

from offcut import ops
from offcut.core import index as ix
from offcut.core.dtypes import numpy_dtype
from offcut.core.expr import Const, Expr
from offcut.describe.request import Array, take_ownership
from offcut.graph.fusion.access_analysis import NodeAccesses
from offcut.graph.graph import Argument, Bound, Node, rename_values
from offcut.graph.interpret import run_node
from offcut.graph.operators import Kind
from offcut.graph.tensor_semantics import arguments_text

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
