"""Products of one operand with several constant arrays are one product with these side by side: queries, keys and values.

Before: ``q = dense(x, u)``, ``k = dense(x, v)``. After, with ``w = [u v]``::

    p = dense(x, w)
    q = slice(p, -1, 0, a)
    k = slice(p, -1, a, a + b)

What may be joined is seen in what a node reads, whatever its operator is: one axis of the result says where all of its constants are
read, each along one axis of its own, and not where the other operand is. Along that axis constants go side by side, and results.

The operand is read once, and one kernel runs for several. A product that something point by point follows keeps a kernel of its
own, into which that is written; so does one whose result is given back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from offcut.graph.builder import Builder, rebuilt
from offcut.graph.fusion.access_analysis import NodeAccess, NodeAccesses
from offcut.graph.graph import Bound, Node, Ref, rename_values
from offcut.graph.operators import Kind
from offcut.graph.views import VIEWS


@dataclass(frozen=True)
class _Joinable:
    """A product that may be one part of another.

    axis   of its result, along which the parts lie
    along  that axis of each constant, by its name
    """

    node: Node
    axis: int
    along: Mapping[str, int]


def merge_products(bound: Bound) -> Bound:
    """The graph in which each operand is multiplied by one array where it was by several."""
    graph, together = bound.graph, dict[object, list[_Joinable]]()
    for one in _joinable(bound):
        together.setdefault(_alike(bound, one), []).append(one)
    groups = {parts[0].node: parts for parts in together.values() if len(parts) > 1}
    if not groups:
        return bound
    builder, places = rebuilt(graph, bound.arrays), dict[Node, tuple[Ref, int, int, int]]()
    for node in graph.nodes:
        if node in groups:
            product = _product(bound, builder, groups[node])
            widths = (_width(bound, part) for part in groups[node])
            ends = pairwise(accumulate(widths, initial=0))
            for part, of in zip(groups[node], ends, strict=True):
                places[part.node] = product, part.axis, *of
        if node in places:
            builder.node("slice", *places[node], results=(node.results[0].name,))
        else:
            builder.nodes.append(node)
            builder.values.update((value.name, value) for value in node.results)
    builder.output(*map(Ref, graph.outputs))
    return builder.bound


def _joinable(bound: Bound) -> Iterator[_Joinable]:
    """Products of one operand with constants, that only views read."""
    graph, readings, users = bound.graph, NodeAccesses(bound.graph), bound.graph.users
    moving = {node: [x for x in node.operands if x not in bound.arrays] for node in graph.nodes}
    readers = Counter(x for operands in moving.values() for x in operands)
    for node in graph.nodes:
        one = len(moving[node]) == 1 and len(node.results) == 1 and node.op not in VIEWS
        if not one or readers[moving[node][0]] < 2 or len(node.operands) < 2:
            continue
        (result,), (x,) = node.results, moving[node]
        read = users[result.name]
        if result.name in graph.outputs or not read or not all(map(readings.is_view, read)):
            continue
        axis_and_partners = _along(readings.of(node), x)
        if axis_and_partners is not None:
            yield _Joinable(node, *axis_and_partners)


def _along(access: NodeAccess, x: str) -> tuple[int, dict[str, int]] | None:
    """The axis of a product's result that its constants have, and `x` has not; the axis of each that is indexed by it."""
    own = access.axes[x]
    if access.kind is not Kind.COMPLEX or own is None:
        return None
    read = {name: axes for name, axes in access.axes.items() if name != x}
    apart = [frozenset().union(*(axes or ())) - frozenset().union(*own) for axes in read.values()]
    if len(set(apart)) != 1 or len(apart[0]) != 1:
        return None
    (axis,) = apart[0]
    along = dict[str, int]()
    for name, axes in read.items():
        places = [place for place, of in enumerate(axes or ()) if axis in of]
        if len(places) != 1 or places[0] not in access.plain[name]:
            return None
        along[name] = places[0]
    return axis, along


def _alike(bound: Bound, one: _Joinable) -> object:
    """Equal for products that differ in their constants alone, and in these along the axis alone."""
    node, names = one.node, dict[str, str]()
    types = list[object]()
    for number, name in enumerate(node.operands):
        names[name] = name
        if name in one.along:
            names[name] = f"constant {number}"
            shape = np.delete(bound.arrays[name].shape, one.along[name])
            types.append((bound.arrays[name].dtype.name, one.along[name], *map(int, shape)))
    renamed_arguments = rename_values(node.arguments, names), rename_values(node.options, names)
    return node.op, renamed_arguments, tuple(types), one.axis, node.results[0].dtype


def _width(bound: Bound, one: _Joinable) -> int:
    """How long a product's result is along the axis."""
    name, axis = next(iter(one.along.items()))
    return int(bound.arrays[name].shape[axis])


def _product(bound: Bound, builder: Builder, parts: Sequence[_Joinable]) -> Ref:
    """One product with the constants of several side by side."""
    first, names = parts[0], dict[str, str]()
    for number, name in enumerate(first.node.operands):
        names[name] = name
        if name in first.along:
            arrays = [bound.arrays[part.node.operands[number]] for part in parts]
            whole = np.concatenate(arrays, first.along[name])
            names[name] = builder.constant(builder.fresh(f"{name}_joined"), whole).name
    arguments = [rename_values(one, names) for one in first.node.arguments]
    options: dict[str, Any] = {n: rename_values(one, names) for n, one in first.node.options}
    result: Ref = builder.node(first.node.op, *arguments, **options)
    return result
