"""In which order the axes of computed values lie in memory, over a whole graph.

A sum of products with a constant runs fastest where the axes that only the constant has are innermost in its result: they
are the lanes of vectors, read from packed panels and stored side by side. So the result of a convolution of NCHW is stored as
NHWC, whatever the graph calls its axes. With it go

- what follows element by element: what is divided by, or taken off, its own statistics;
- what follows axis by axis: element-wise nodes, pooling, depthwise and grouped convolutions store their results as their operands are,
  the latter two as a transposed view of a value lies, too;
- what such a node alone reads beside that: a product that is added to it is stored as it is;
- a product whose operand is stored otherwise: it reads a copy, which is made once;
- a product in groups whose window takes steps along the last axis: its vectors would gather along that.

A product without a window whose last axis lies side by side in the operand that is no constant, ``W[m, k] @ x[n, k, j]``, needs
no such thing: its vectors run along `x`, and `W` is read as any other operand is, which `beside` says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from offcut.graph.fusion.access_analysis import NodeAccess, NodeAccesses
from offcut.graph.graph import Graph, Node
from offcut.graph.layout.placement import (
    Place,
    is_written_by_programs,
    own_place,
    reshape_place,
    strided_place,
)
from offcut.graph.operators import Kind
from offcut.graph.views import VIEWS

Order = tuple[int, ...]


def orders_of(graph: Graph, readings: NodeAccesses) -> dict[str, Order]:
    """The orders of computed values that are not stored as they are."""
    known = frozenset(value.name for value in graph.constants)
    orders, lying = dict[str, Order](), lying_of(graph, readings)
    for node in graph.nodes:
        if len(node.results) != 1 or node.op == "reshape":
            continue
        (result,) = node.results
        if node.op in VIEWS:
            order = orders.get(node.operands[0])
        else:
            order = order_of(node, readings.of(node), known, orders, lying)
        if order is not None and len(order) == len(result.shape):
            orders[result.name] = order
    _carry_back(graph, readings, orders)
    return orders


def lying_of(graph: Graph, readings: NodeAccesses) -> dict[str, Order]:
    """The orders in which views of values that are stored as they are lie in memory: transpositions, also of other shape. Of windows, whose
    elements do not lie side by side, the axis that is innermost goes last.
    """
    places, orders_by_name = dict[str, Place](), dict[str, Order]()
    for node in graph.nodes:
        if len(node.results) != 1:
            continue
        (value,), place = node.results, None
        of = places.get(node.operands[0]) if node.operands else None
        if node.op == "reshape":
            place = None if of is None else reshape_place(of, value.shape)
        elif node.op not in VIEWS and (view := readings.of(node).strided) is not None:
            (name,) = node.operands
            place = strided_place(
                of or own_place(name, graph.values[name].shape), view, value.shape
            )
        if place is not None:
            places[value.name] = place
            order, rank = place.lying, len(value.shape)
            if order is None and place.unit is not None:
                order = last(rank, place.unit)
            if order is not None and order != tuple(range(len(order))):
                orders_by_name[value.name] = order
    return orders_by_name


def _carry_back(graph: Graph, readings: NodeAccesses, orders: dict[str, Order]) -> None:
    """Store what one node alone reads, at its own place, as the result of that is stored: where one operand of a sum is stored
    otherwise, a product that becomes a kernel with the sum is.
    """
    users, maker = graph.users, {v.name: node for node in graph.nodes for v in node.results}
    for node in reversed(graph.nodes):
        order = orders.get(node.results[0].name) if len(node.results) == 1 else None
        if order is None or node.op in VIEWS:
            continue
        access = readings.of(node)
        for name in node.operands if access.pointwise else ():
            producer = maker.get(name)
            alone = len(users[name]) == 1 and name not in graph.outputs and name in access.own
            if producer is None or not alone or name in orders or readings.is_view(producer):
                continue
            if readings.of(producer).kind is not Kind.OPAQUE or is_written_by_programs(order):
                orders[name] = order


def order_of(
    node: Node,
    access: NodeAccess,
    known: frozenset[str],
    orders: Mapping[str, Order],
    lying: Mapping[str, Order],
) -> Order | None:
    """The order in which a node's result is stored; None: as it is."""
    rank = len(node.results[0].shape)
    request = preferred_orders(node, access, known, orders, lying)
    if request is not None:
        (axis,) = request[1]
        return last(rank, axis)
    there = {**lying, **orders} if access.kind is Kind.COMPLEX else orders
    follows = [there[n] for n in node.operands if n in there and len(there[n]) == rank]
    if not follows:
        return None
    for name in node.operands:
        axes = access.axes[name]
        if name in known or (axes is not None and len(axes) < rank):
            continue
        if access.kind is Kind.REDUCTION and name in access.there:
            continue
        if axes is None or any(not own <= {axis} for axis, own in enumerate(axes)):
            return None
    return follows[0] if follows[0] != tuple(range(rank)) else None


def preferred_orders(
    node: Node,
    access: NodeAccess,
    known: frozenset[str],
    orders: Mapping[str, Order],
    lying: Mapping[str, Order],
) -> tuple[dict[str, Order], frozenset[int]] | None:
    """Of a product with a constant that is to be stored in another order: the orders in which it reads other operands, and the
    axis of its result that goes last; None for another node, or where it is fast as it is.

    lying  as `lying_of` finds
    """
    if access.kind is not Kind.COMPLEX:
        return None
    rank = len(node.results[0].shape)
    parts = {name: _of(access, name) for name in access.inside}
    fixed = [name for name in parts if name in known]
    others = [name for name in parts if name not in known]
    if len(fixed) != 1 or len(others) != 1 or rank < 3:
        return None
    (x,) = others
    axes = access.axes[x]
    lanes = parts[fixed[0]] - parts[x]
    if axes is not None and not lanes and rank - 1 in access.leaps[x]:
        return _in_groups(x, axes, parts[fixed[0]] & parts[x])
    if axes is None or len(axes) != rank or len(lanes) != 1 or lanes == {rank - 1}:
        return None
    if len(access.sums[x]) != 1 or len(access.sums[x]) == rank:
        return None
    (summed,) = access.sums[x]
    order = last(rank, summed)
    whole = access.plain[x] | access.sums[x] == frozenset(range(rank))
    as_it_is = x not in orders and lying.get(x) != order and node.results[0].dtype != "int32"
    if as_it_is and whole and axes[rank - 1] == {rank - 1}:
        return None
    return {x: order}, lanes


def _in_groups(
    x: str, axes: Sequence[frozenset[int]], both: frozenset[int]
) -> tuple[dict[str, Order], frozenset[int]] | None:
    """`wanted` of a product in groups whose windows leap along the last axis: channels are read side by side.

    axes  of the result, for each axis of `x`
    both  the axes of the result that say what is read of either operand
    """
    own = [axis for axis, of in enumerate(axes) if of & both]
    if len(both) != 1 or len(own) != 1 or own[0] == len(axes) - 1:
        return None
    return {x: last(len(axes), own[0])}, both


def unpackable_constants(
    node: Node, access: NodeAccess, known: frozenset[str], orders: Mapping[str, Order]
) -> frozenset[str]:
    """The constants of a product that have no axis innermost in its result: nothing is gained by packing them."""
    if access.kind is not Kind.COMPLEX:
        return frozenset()
    rank = len(node.results[0].shape)
    order = orders.get(node.results[0].name, tuple(range(rank)))
    parts = {name: _of(access, name) for name in access.inside}
    moving = frozenset[int]().union(*(axes for name, axes in parts.items() if name not in known))
    fixed = {name for name in parts if name in known}
    return frozenset(
        name for name in fixed if parts[name] - moving and order[-1] not in parts[name]
    )


def depthwise_constants(
    node: Node, access: NodeAccess, known: frozenset[str], orders: Mapping[str, Order]
) -> dict[str, Order]:
    """The constants of a product that are multiplied lane by lane, as in a depthwise convolution: held with that axis last."""
    if access.kind is not Kind.COMPLEX:
        return {}
    rank = len(node.results[0].shape)
    lane = orders.get(node.results[0].name, tuple(range(rank)))[-1]
    parts = {name: _of(access, name) for name in access.inside}
    moving = frozenset[int]().union(*(axes for name, axes in parts.items() if name not in known))
    constant_orders: dict[str, Order] = {}
    for name in access.inside & known if lane in moving else ():
        axes = access.axes[name]
        own = [axis for axis, of in enumerate(axes or ()) if of == {lane}]
        if axes is not None and len(own) == 1 and own[0] != len(axes) - 1:
            constant_orders[name] = last(len(axes), own[0])
    return constant_orders


def last(rank: int, axis: int) -> Order:
    """The order with one axis innermost."""
    return (*(one for one in range(rank) if one != axis), axis)


def _of(access: NodeAccess, name: str) -> frozenset[int]:
    axes = access.axes[name]
    return frozenset() if axes is None else frozenset().union(*axes)
