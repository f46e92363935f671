"""What a product reads in another order is stored in that order first.

Before: ``y = conv2d(x, w)``. After: ``t = transpose(x, axes=[0, 2, 3, 1])``, ``u = transpose(t, axes=[0, 3, 1, 2])``,
``y = conv2d(u, w)``: the same values; a transposition that only its inverse reads says how they are to lie in memory.

Not so where few elements are summed along that axis, the three colours of an image: products take them one by one, wherever they
lie, and moving three at a time takes longer than it gains. The copy reads whole lines of caches of each, and writes what is less than a
line for each place; reading it where it lies takes as many lines as there are elements, each for all the places that are in it.
"""

from __future__ import annotations

from offcut.core.dtypes import ITEM_BYTES
from offcut.core.expr import Const, Expr
from offcut.graph.build import rebuilt
from offcut.graph.fusion.reading import Readings
from offcut.graph.graph import Bound, Ref
from offcut.graph.passes.shared import with_operands
from offcut.graph.placing.layouts import lying_of, orders_of, preferred_orders
from offcut.graph.views import VIEWS

LINE = 64
"""Bytes of a line of the caches of every CPU that is described: one graph is passed for all of its targets, which are asked later."""
FEW = LINE // ITEM_BYTES["float32"]
"""Elements that are few: they do not fill a line. Narrower types count alike, as their products take several of them at once. Measured where
they lie apart, over a copy of them: convolutions of 3x3 read 3 of them 1.0 to 1.35 times as fast, 4 of them .96 to 1.2 times, 16 as fast.
"""


def insert_layout_copies(bound: Bound) -> Bound:
    """The graph in which convolutions read their operands with the axis that they sum along innermost."""
    graph, readings = bound.graph, Readings(bound.graph)
    known = frozenset(bound.arrays)
    orders, builder = orders_of(graph, readings), rebuilt(graph, bound.arrays)
    stored: dict[tuple[str, tuple[int, ...]], str] = {}
    lying = lying_of(graph, readings)
    for node in graph.nodes:
        now = node
        asked, access = None, None if node.op in VIEWS else readings.of(node)
        if access is not None and len(node.results) == 1:
            asked = preferred_orders(node, access, known, orders, lying)
        for name, order in asked[0].items() if asked is not None else ():
            if orders.get(name) == order or lying.get(name) == order:
                continue
            own = access.axes[name] if access is not None else None
            summed = own is None or not own[order[-1]]
            if summed and _is_few(graph.values[name].shape[order[-1]]):
                continue
            key = name, order
            if key not in stored:
                inverse = tuple(order.index(axis) for axis in range(len(order)))
                moved = builder.node(
                    "transpose", Ref(name), axes=order, results=(f"{name}_stored",)
                )
                back = builder.node("transpose", moved, axes=inverse, results=(f"{name}_seen",))
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
