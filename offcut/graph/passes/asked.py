"""An output that is stored otherwise than it is asked for is a value of its own, which is copied from what is stored.

Before: ``y = conv2d(x, w)``, stored with its channels innermost and asked for by rows. After: ``y_stored = conv2d(x, w)``,
``y = transpose(y_stored, axes=[0, 1, 2, 3])``.

So is the result of a loop program that is asked for with another axis innermost than its last, which no program writes; and what a loop
program reads, or what is reshaped, where it is asked for in an order that these cannot read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from offcut.graph.build import rebuilt
from offcut.graph.fusion.reading import Readings
from offcut.graph.graph import Bound, Node, Ref
from offcut.graph.operators import Kind
from offcut.graph.passes.shared import with_operands
from offcut.graph.placing.layouts import orders_of
from offcut.graph.placing.places import is_written_by_programs, own_place, reshaped
from offcut.graph.views import VIEWS


def insert_output_copies(bound: Bound, asked: Mapping[str, tuple[int, ...]]) -> Bound:
    """The graph in which such outputs are copies.

    asked  orders of the axes of outputs, outermost first
    """
    graph = bound.graph
    readings = Readings(graph)
    orders, users = orders_of(graph, readings), graph.users
    maker = {value.name: node for node in graph.nodes for value in node.results}

    def is_program(node: Node) -> bool:
        return node.op not in VIEWS and readings.of(node).kind is Kind.OPAQUE

    def reads(node: Node, name: str, order: tuple[int, ...]) -> bool:
        """Whether a node reads a value that lies in that order, without a copy of it."""
        if node.op == "reshape":
            place = own_place(name, graph.values[name].shape, order)
            return reshaped(place, node.results[0].shape) is not None
        return is_written_by_programs(order) or not is_program(node)

    def is_copied(name: str, order: tuple[int, ...]) -> bool:
        if name not in maker:
            return False
        if name in orders:
            return orders[name] != order
        written = is_written_by_programs(order) or not is_program(maker[name])
        return not (written and all(reads(node, name, order) for node in users[name]))

    turned = {name for name, order in asked.items() if is_copied(name, order)}
    if not turned:
        return bound
    builder = rebuilt(graph, bound.arrays)
    stored = {name: builder.fresh(f"{name}_stored") for name in turned}
    for node in graph.nodes:
        now = with_operands(node, stored)
        values = tuple(replace(one, name=stored.get(one.name, one.name)) for one in node.results)
        builder.nodes.append(replace(now, results=values))
        builder.values.update((value.name, value) for value in values)
        for value in node.results:
            if value.name in turned:
                axes = tuple(range(len(value.shape)))
                of = Ref(stored[value.name])
                builder.node("transpose", of, axes=axes, results=(value.name,))
    builder.output(*map(Ref, graph.outputs))
    return builder.bound
