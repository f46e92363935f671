"""Products of graphs: of patches, of operands in the order in which they are read, and several as one.

Products of one operand with several constant arrays are one product with these side by side: queries, keys and values.

Before: ``q = dense(x, u)``, ``k = dense(x, v)``. After, with ``w = [u v]``::

    p = dense(x, w)
    q = slice(p, -1, 0, a)
    k = slice(p, -1, a, a + b)

What may be joined is seen in what a node reads, whatever its operator is: one axis of the result says where all of its constants are
read, each along one axis of its own, and not where the other operand is. Along that axis constants go side by side, and results.

The operand is read once, and one kernel runs for several. A product that something point by point follows keeps a kernel of its
own, into which that is written; so does one whose result is given back.

A convolution whose windows lie side by side is a product: of patches, each a row, with the windows' weights.

Before: ``y = conv2d(x, w, stride=[p, q])`` with a window of p × q and no padding. After, with c channels::

    a = reshape(x, [n, c, h, p, w, q])
    b = transpose(a, axes=[0, 2, 4, 1, 3, 5])
    d = dense(reshape(b, [n, h, w, c*p*q]), reshape(weights, [o, c*p*q]), transpose_w=true)
    y = transpose(d, axes=[0, 3, 1, 2])

Each element of x is read by one window, so the copy is no larger than x; rows of all windows of all images pass the weights
once, where a convolution passes them for every row of an image. What lies behind the last whole window is cut off before.

What a product reads in another order is stored in that order first.

Before: ``y = conv2d(x, w)``. After: ``t = transpose(x, axes=[0, 2, 3, 1])``, ``u = transpose(t, axes=[0, 3, 1, 2])``,
``y = conv2d(u, w)``: the same values; a transposition that only its inverse reads says how they are to lie in memory.

Not so where few elements are summed along that axis, the three colours of an image: products take them one by one, wherever they
lie, and moving three at a time takes longer than it gains. The copy reads whole lines of caches of each, and writes what is less than a
line for each place; reading it where it lies takes as many lines as there are elements, each for all the places that are in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from math import prod
from typing import Any

import numpy as np

from offcut.core.dtypes import ITEM_BYTES
from offcut.core.expr import Binary, Const, Expr
from offcut.graph.builder import Builder, rebuilt
from offcut.graph.fusion.access_analysis import NodeAccess, NodeAccesses
from offcut.graph.graph import Bound, Node, Ref, Value, rename_values
from offcut.graph.layout.axis_orders import lying_of, orders_of, preferred_orders
from offcut.graph.layout.placement import is_written_by_programs, own_place, reshape_place
from offcut.graph.operators import Kind
from offcut.graph.passes.simplification import with_operands
from offcut.graph.sizes.extents import normal
from offcut.graph.views import VIEWS

RANKS = {"conv1d": 1, "conv2d": 2, "conv3d": 3}
"""Of the windows of the operators that are looked at."""
PLAIN = {"dilation": 1, "padding": 0, "stride": 1, "groups": 1}
KEPT = ("activation", "bias")
"""Options that a product takes as a convolution does."""


def convolution_to_matmul(bound: Bound) -> Bound:
    """The graph in which convolutions with windows side by side are products."""
    graph, values = bound.graph, bound.graph.values
    if not any(_window(node, values) for node in graph.nodes):
        return bound
    builder, orders = rebuilt(graph, bound.arrays), orders_of(graph, NodeAccesses(graph))
    for node in graph.nodes:
        window = _window(node, values)
        if window:
            _product_of_patches(builder, node, window, node.operands[0] in orders)
        else:
            builder.nodes.append(node)
            builder.values.update((value.name, value) for value in node.results)
    builder.output(*map(Ref, graph.outputs))
    return builder.bound


def _window(node: Node, values: Mapping[str, Value]) -> tuple[int, ...]:
    """The window of a convolution that steps from one to the next; empty for any other node."""
    rank = RANKS.get(node.op, 0)
    if not rank or len(node.arguments) != 2:
        return ()
    x, w = node.operands[:2] if len(node.operands) >= 2 else ("", "")
    options = dict(node.options)
    if node.arguments != (Ref(x), Ref(w)) or not set(options) <= {*PLAIN, *KEPT}:
        return ()
    window = tuple(extent.value for extent in values[w].shape[2:] if isinstance(extent, Const))
    stride, padding = (
        _each(options.get(name, PLAIN[name]), rank) for name in ("stride", "padding")
    )
    close = (
        len(window) == rank
        and window == stride
        and padding == (0,) * rank
        and _each(options.get("dilation", 1), rank) == (1,) * rank
        and options.get("groups", 1) == 1
        and values[x].dtype == values[w].dtype == values[node.results[0].name].dtype
    )
    return tuple(map(int, window)) if close and prod(map(int, window)) > 1 else ()


def _each(argument: object, rank: int) -> tuple[object, ...]:
    """An option of a window, for each of its axes."""
    return argument if isinstance(argument, tuple) else (argument,) * rank


def _product_of_patches(builder: Builder, node: Node, window: tuple[int, ...], last: bool) -> None:
    """The nodes that stand for a convolution.

    last  whether the channels of x lie side by side in memory: then they go last in a row, too
    """
    x, w = (Ref(name) for name in node.operands[:2])
    rank, rows = len(window), list[Expr]()
    for axis, step in enumerate(window, 2):
        extent = builder.shape(x)[axis]
        rows.append(normal(Binary("//", extent, Const(step, "index"))))
        whole = normal(Binary("*", rows[-1], Const(step, "index")))
        if whole != extent:
            x = builder.node("slice", x, axis, 0, whole)
    count, channels = builder.shape(x)[:2]
    outer, inner = (tuple(range(first, first + 2 * rank, 2)) for first in (2, 3))
    pairs = (extent for pair in zip(rows, window, strict=True) for extent in pair)
    split = builder.node("reshape", x, (count, channels, *pairs))
    terms = (*inner, 1) if last else (1, *inner)
    transposed = builder.node("transpose", split, axes=(0, *outer, *terms))
    depth = builder.shape(w)[1]
    long = normal(Binary("*", depth, Const(prod(window), "index")))
    lines = builder.node("reshape", transposed, (count, *rows, long))
    if last:
        w = builder.node("transpose", w, axes=(0, *range(2, 2 + rank), 1))
    weights = builder.node("reshape", w, (builder.shape(w)[0], long))
    options: dict[str, Any] = {name: one for name, one in node.options if name in KEPT}
    product = builder.node("dense", lines, weights, transpose_w=True, **options)
    (result,) = node.results
    back = (0, rank + 1, *range(1, rank + 1))
    builder.node("transpose", product, axes=back, results=(result.name,))


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
            product = _merged_product(bound, builder, groups[node])
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


def _merged_product(bound: Bound, builder: Builder, parts: Sequence[_Joinable]) -> Ref:
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
