"""What a product reads in another order is stored in that order first.

Before: ``y = conv2d(x, w)``. After: ``t = transpose(x, axes=[0, 2, 3, 1])``, ``u = transpose(t, axes=[0, 3, 1, 2])``,
``y = conv2d(u, w)``: the same values; a transposition that only its inverse reads says how they are to lie in memory.

Not so where few elements are summed along that axis, the three colours of an image: products take them one by one, wherever they
lie, and moving three at a time takes longer than it gains. The copy reads whole lines of caches of each, and writes what is less than a
line for each place; reading it where it lies takes as many lines as there are elements, each for all the places that are in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from offcut.core.dtypes import ITEM_BYTES
from offcut.core.expr import Const, Expr
from offcut.graph.builder import rebuilt
from offcut.graph.fusion.access_analysis import NodeAccesses
from offcut.graph.graph import Bound, Node, Ref
from offcut.graph.layout.axis_orders import lying_of, orders_of, preferred_orders
from offcut.graph.layout.placement import is_written_by_programs, own_place, reshape_place
from offcut.graph.operators import Kind
from offcut.graph.passes.cse import with_operands
from offcut.graph.views import VIEWS

LINE = 64
"""Bytes of a line of the caches of every CPU that is described: one graph is passed for all of its targets, which are asked later."""
FEW = LINE // ITEM_BYTES["float32"]
"""Elements that are few: they do not fill a line. Narrower types count alike, as their products take several of them at once. Measured where
they lie apart, over a copy of them: convolutions of 3x3 read 3 of them 1.0 to 1.35 times as fast, 4 of them .96 to 1.2 times, 16 as fast.
"""


def insert_layout_copies(bound: Bound) -> Bound:
    """The graph in which convolutions read their operands with the axis that they sum along innermost."""
    graph, readings = bound.graph, NodeAccesses(bound.graph)
    known = frozenset(bound.arrays)
    orders, builder = orders_of(graph, readings), rebuilt(graph, bound.arrays)
    stored: dict[tuple[str, tuple[int, ...]], str] = {}
    lying = lying_of(graph, readings)
    for node in graph.nodes:
        now = node
        request, access = None, None if node.op in VIEWS else readings.of(node)
        if access is not None and len(node.results) == 1:
            request = preferred_orders(node, access, known, orders, lying)
        for name, order in request[0].items() if request is not None else ():
            if orders.get(name) == order or lying.get(name) == order:
                continue
            own = access.axes[name] if access is not None else None
            summed = own is None or not own[order[-1]]
            if summed and _is_few(graph.values[name].shape[order[-1]]):
                continue
            key = name, order
            if key not in stored:
                inverse = tuple(order.index(axis) for axis in range(len(order)))
                transposed = builder.node(
                    "transpose", Ref(name), axes=order, results=(f"{name}_stored",)
                )
                back = builder.node(
                    "transpose", transposed, axes=inverse, results=(f"{name}_seen",)
                )
                stored[key] = back.name
            now = with_operands(now, {name: stored[key]})
        builder.nodes.append(now)
        builder.values.update((value.name, value) for value in now.results)
    if not stored:
        return bound
    builder.output(*map(Ref, graph.outputs))
    return builder.bound


def _is_few(extent: Expr) -> bool:
    return isinstance(extent, Const) and int(extent.value) < FEW


# An output that is stored otherwise than it is asked for is a value of its own, which is copied from what is stored.
#
# Before: ``y = conv2d(x, w)``, stored with its channels innermost and asked for by rows. After: ``y_stored = conv2d(x, w)``,
# ``y = transpose(y_stored, axes=[0, 1, 2, 3])``.
#
# So is the result of a loop program that is asked for with another axis innermost than its last, which no program writes; and what a loop
# program reads, or what is reshaped, where it is asked for in an order that these cannot read.


def insert_output_copies(bound: Bound, requested_orders: Mapping[str, tuple[int, ...]]) -> Bound:
    """The graph in which such outputs are copies.

    requested_orders  orders of the axes of outputs, outermost first
    """
    graph = bound.graph
    readings = NodeAccesses(graph)
    orders, users = orders_of(graph, readings), graph.users
    maker = {value.name: node for node in graph.nodes for value in node.results}

    def is_program(node: Node) -> bool:
        return node.op not in VIEWS and readings.of(node).kind is Kind.OPAQUE

    def reads(node: Node, name: str, order: tuple[int, ...]) -> bool:
        """Whether a node reads a value that lies in that order, without a copy of it."""
        if node.op == "reshape":
            place = own_place(name, graph.values[name].shape, order)
            return reshape_place(place, node.results[0].shape) is not None
        return is_written_by_programs(order) or not is_program(node)

    def is_copied(name: str, order: tuple[int, ...]) -> bool:
        if name not in maker:
            return False
        if name in orders:
            return orders[name] != order
        written = is_written_by_programs(order) or not is_program(maker[name])
        return not (written and all(reads(node, name, order) for node in users[name]))

    copied_names = {name for name, order in requested_orders.items() if is_copied(name, order)}
    if not copied_names:
        return bound
    builder = rebuilt(graph, bound.arrays)
    stored = {name: builder.fresh(f"{name}_stored") for name in copied_names}
    for node in graph.nodes:
        now = with_operands(node, stored)
        values = tuple(replace(one, name=stored.get(one.name, one.name)) for one in node.results)
        builder.nodes.append(replace(now, results=values))
        builder.values.update((value.name, value) for value in values)
        for value in node.results:
            if value.name in copied_names:
                axes = tuple(range(len(value.shape)))
                of = Ref(stored[value.name])
                builder.node("transpose", of, axes=axes, results=(value.name,))
    builder.output(*map(Ref, graph.outputs))
    return builder.bound
