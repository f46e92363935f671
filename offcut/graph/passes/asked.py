"""An output that is stored otherwise than it is asked for is a value of its own, which is copied from what is stored.

Before: ``y = conv2d(x, w)``, stored with its channels innermost and asked for by rows. After: ``y_stored = conv2d(x, w)``,
``y = transpose(y_stored, axes=[0, 1, 2, 3])``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from offcut.graph.build import rebuilt
from offcut.graph.fusion.reading import Readings
from offcut.graph.graph import Bound, Ref
from offcut.graph.passes.shared import with_operands
from offcut.graph.placing.layouts import orders_of


def copy_as_asked(bound: Bound, asked: Mapping[str, tuple[int, ...]]) -> Bound:
    """The graph in which such outputs are copies.

    asked  orders of the axes of outputs, outermost first
    """
    graph = bound.graph
    orders = orders_of(graph, Readings(graph))
    turned = {name for name in asked if name in orders and orders[name] != asked[name]}
    if not turned:
        return bound
    made = rebuilt(graph, bound.arrays)
    stored = {name: made.fresh(f"{name}_stored") for name in turned}
    for node in graph.nodes:
        now = with_operands(node, stored)
        values = tuple(replace(one, name=stored.get(one.name, one.name)) for one in node.results)
        made.nodes.append(replace(now, results=values))
        made.values.update((value.name, value) for value in values)
        for value in node.results:
            if value.name in turned:
                axes = tuple(range(len(value.shape)))
                of = Ref(stored[value.name])
                made.node("transpose", of, axes=axes, results=(value.name,))
    made.output(*map(Ref, graph.outputs))
    return made.bound
