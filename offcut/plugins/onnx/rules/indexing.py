"""Elements by their places: gathered, scattered, one of many."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from offcut.core.dtypes import UNSIGNED
from offcut.core.expr import Expr, Var
from offcut.graph.call_conditions import assert_shape
from offcut.graph.sizes.extent_values import arithmetic, extent, product
from offcut.plugins.onnx.importer.context import Context
from offcut.plugins.onnx.importer.nonnegative_extents import require_minimum_sizes
from offcut.plugins.onnx.importer.operands import (
    Call,
    Element,
    KnownArray,
    Operand,
    Results,
    UnsupportedNode,
    format_values,
    known_array,
)
from offcut.plugins.onnx.rules.elementwise import Operator, number, scalar


def _gather(g: Context, call: Call) -> Results:
    x, indices = call[0], call[1]
    axis = g.axis(x, call.get("axis", 0))
    if isinstance(indices, KnownArray) and not indices.array.ndim:
        return _one(g, x, indices.elements[0], axis)
    if isinstance(indices, KnownArray) and not indices.symbolic:
        run = _slice_of_places(indices.elements)
        if run is not None and indices.array.ndim == 1:
            return g.slice(x, axis, *run)
    return g.op("take", x, indices, axis=axis)


def _one(g: Context, x: Operand, place: Element, axis: int) -> Operand:
    """Return the elements at one place of an axis, which goes away."""
    whole = g.shape(x)[axis]
    start = _counted_place(g, place, whole)
    require_minimum_sizes(g, extent(whole, -1))
    element = g.slice(x, axis, start, extent(start, 1))
    shape = g.shape(element)
    return g.reshape(element, (*shape[:axis], *shape[axis + 1 :]))


def _counted_place(g: Context, place: Element, whole: Element) -> Element:
    """Return a place counted from the first.

    Raises Refused where it is seen to be none.
    """
    start = extent(place, whole) if g.bounds(place)[1] < 0 else place
    if g.bounds(start)[0] < 0:
        require_minimum_sizes(g, start)
    if not isinstance(start, Expr) and not isinstance(whole, Expr) and not 0 <= start < whole:
        raise UnsupportedNode(
            f"there is no place {format_values(place)} among {format_values(whole)}"
        )
    if not isinstance(start, Expr):
        require_minimum_sizes(g, extent(whole, -start - 1))
    return start


def _slice_of_places(places: list[int]) -> tuple[int, int] | None:
    """Places one after the other from the first on, as a slice; None for others."""
    if not places or places[0] < 0 or places != list(range(places[0], places[0] + len(places))):
        return None
    return places[0], places[-1] + 1


def _gather_elements(g: Context, call: Call) -> Results:
    return g.op("take_along_axis", call[0], call[1], g.axis(call[0], call.get("axis", 0)))


def _gather_nd(g: Context, call: Call) -> Results:
    """Elements of the first axes of `x`, those of a batch each with its own, by the number of each."""
    x, indices, batch = call[0], call[1], call.get("batch_dims", 0)
    shape, places = g.shape(x), g.shape(indices)
    depth = g.whole(places[-1], "the last extent of indices")
    last = g.rank(indices) - 1
    each = []
    for axis in range(batch):
        along = [-1 if n == axis else 1 for n in range(last)]
        each.append(g.reshape(g.op("iota", shape[axis], "int64"), along))
    for place in range(depth):
        part = g.reshape(g.slice(indices, last, place, place + 1), places[:-1])
        each.append(g.cast(part, "int64"))
    return g.op("take", x, tuple(each), axis=0)


def _scatter_elements(g: Context, call: Call) -> Results:
    """Of as many updates as indices: an extent of theirs that is calculated is checked in a call, as of torch's ``source[:len(index)]``."""
    x, axis, updates = call[0], g.axis(call[0], call.get("axis", 0)), call[2]
    own, extents = g.shape(updates), g.shape(call[1])
    calculated = [isinstance(one, Expr) and not isinstance(one, Var) for one in own]
    if len(own) == len(extents) and any(calculated):
        pairs = zip(own, extents, calculated, strict=True)
        shape = [other if is_calculated else one for one, other, is_calculated in pairs]
        updates = assert_shape(g.op, updates, own, shape)
    return g.op("scatter_elements", x, call[1], updates, axis, drop=False, **_reduction(call))


def _scatter_nd(g: Context, call: Call) -> Results:
    """Indices of any rank are rows of them."""
    x, indices, updates = call[0], call[1], call[2]
    places = g.shape(indices)
    inner = g.shape(x)[g.whole(places[-1], "the last extent of indices") :]
    count, whole = product(places[:-1]), (*places[:-1], *inner)
    if g.rank(updates) == len(whole):
        pairs = zip(whole, g.shape(updates), strict=True)
        g.require_equal("updates are of another shape than the places that indices name", *pairs)
    rows, values = g.reshape(indices, (count, places[-1])), g.reshape(updates, (count, *inner))
    return g.op("scatter_nd", x, rows, values, drop=False, **_reduction(call))


def _reduction(call: Call) -> dict[str, str]:
    """What becomes of several updates of one place."""
    reduction = call.get("reduction", "none")
    if reduction not in ("none", "add", "mul", "max", "min"):
        raise UnsupportedNode(f"reduction={reduction}", "reduction=none, add, mul, max or min")
    return {} if reduction == "none" else {"reduction": reduction}


def _scattered_rows(g: Context, call: Call) -> Results:
    """Return a cache into which rows are written, from a place of each sample on; ``circular``: around its end.

    A call is refused whose rows are more than the cache has, or, but for ``circular``, go beyond it.
    """
    cache, update, starts = call[0], call[1], call.input(2)
    axis = g.axis(cache, call.get("axis", -2))
    whole, count = g.shape(cache)[axis], g.shape(update)[axis]
    rank, shape = g.rank(cache), g.shape(cache)
    room, circular = (
        extent(whole, arithmetic("*", -1, count)),
        call.get("mode", "linear") == "circular",
    )
    starts = g.full(shape[:1], 0, "int64") if starts is None else g.cast(starts, "int64")
    last = known_array(room) if circular else g.binary("subtract", known_array(room), starts)
    rest = scalar(g, "greater_equal", last, 0)
    first = scalar(g, "greater_equal", starts, 0)
    starts = g.require(starts, rest if circular else g.binary("logical_and", first, rest))
    places: Operand = g.op("iota", whole, "int64")
    places = g.reshape(places, [-1 if n == axis else 1 for n in range(rank)])
    each = g.reshape(starts, [-1 if n == 0 else 1 for n in range(rank)])
    places = g.binary("subtract", places, each)
    if circular:
        places = g.binary("remainder", places, known_array(whole))
    inside = g.binary("logical_and", g.binary("greater_equal", places, number(g, places, 0)), g.binary("less", places, known_array(count)))  # fmt: skip
    last = g.binary("minimum", places, known_array(extent(count, -1)))
    rows_before = g.binary("maximum", last, number(g, last, 0))
    rows = g.op("take_along_axis", update, g.broadcast(rows_before, shape), axis)
    return g.op("where", inside, rows, cache)


def _one_hot(g: Context, call: Call) -> Results:
    """``on`` at the place that an index names, ``off`` elsewhere."""
    indices, depth = call[0], int(g.number(call[1], "depth"))
    rank = g.rank(indices) + 1
    axis = call.get("axis", -1) % rank
    values = call[2]
    shape, counts = list(g.shape(indices)), g.dtype(indices) not in UNSIGNED
    indices = g.cast(indices, "int64")
    if counts:  # an index that is still below 0, or not below the depth, names no place
        from_end = scalar(g, "add", indices, depth)
        indices = g.op("where", scalar(g, "less", indices, 0), from_end, indices)
    places = g.reshape(indices, [*shape[:axis], 1, *shape[axis:]])
    counted: Operand = KnownArray(np.arange(depth), "int64")
    counted = g.reshape(counted, [depth if n == axis else 1 for n in range(rank)])
    here = g.binary("equal", places, counted)
    off, on = (g.reshape(g.slice(values, 0, n, n + 1), []) for n in (0, 1))
    return g.op("where", here, on, off)


def _reverse_sequence(g: Context, call: Call) -> Results:
    """Return the first so many elements of each sequence from the last to the first."""
    x, lengths = call[0], call[1]
    batch, time = call.get("batch_axis", 1), call.get("time_axis", 0)
    rank, whole = g.rank(x), known_array(g.shape(x)[time], g.dtype(lengths))
    lengths = g.require(
        lengths,
        g.binary("logical_and", scalar(g, "greater_equal", lengths, 0), g.binary("less_equal", lengths, whole)),
    )  # fmt: skip
    places: Operand = g.op("iota", g.shape(x)[time], g.dtype(lengths))
    places = g.reshape(places, [-1 if n == time else 1 for n in range(rank)])
    count = g.reshape(lengths, [-1 if n == batch else 1 for n in range(rank)])
    last = g.binary("subtract", count, number(g, count, 1))
    back = g.binary("subtract", last, places)
    inside = g.binary("less", places, count)
    sources: Operand = g.op("where", inside, back, places)
    return g.op("take_along_axis", x, g.broadcast(sources, g.shape(x)), time)


INDEXING: Mapping[str, Operator] = {
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "OneHot": _one_hot,
    "ReverseSequence": _reverse_sequence,
    "Scatter": _scatter_elements,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    "TensorScatter": _scattered_rows,
}
