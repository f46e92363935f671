"""A convolution whose windows lie side by side is a product: of patches, each a row, with the windows' weights.

Before: ``y = conv2d(x, w, stride=[p, q])`` with a window of p × q and no padding. After, with c channels::

    a = reshape(x, [n, c, h, p, w, q])
    b = transpose(a, axes=[0, 2, 4, 1, 3, 5])
    d = dense(reshape(b, [n, h, w, c*p*q]), reshape(weights, [o, c*p*q]), transpose_w=true)
    y = transpose(d, axes=[0, 3, 1, 2])

Each element of x is read by one window, so the copy is no larger than x; rows of all windows of all images pass the weights
once, where a convolution passes them for every row of an image. What lies behind the last whole window is cut off before.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from offcut.core.expr import Binary, Const, Expr
from offcut.graph.builder import Builder, rebuilt
from offcut.graph.fusion.access_analysis import NodeAccesses
from offcut.graph.graph import Bound, Node, Ref, Value
from offcut.graph.layout.axis_orders import orders_of
from offcut.graph.sizes.extents import normal

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
            _product(builder, node, window, node.operands[0] in orders)
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


def _product(builder: Builder, node: Node, window: tuple[int, ...], last: bool) -> None:
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
