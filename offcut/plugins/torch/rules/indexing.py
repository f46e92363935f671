"""Elements by number or where a mask says so, read and written.

Arrays of which some elements are others: by number, or where a mask says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from offcut.core import index as ix
from offcut.core.dtypes import reduction_start
from offcut.core.expr import Binary, Expr
from offcut.graph import Ref
from offcut.graph.call_conditions import assert_condition
from offcut.graph.sizes.extent_values import plain, product
from offcut.graph.sizes.extents import normal, quotient
from offcut.plugins.operators.lines import accumulate
from offcut.plugins.operators.windows import Windows, fold
from offcut.plugins.torch.rule_table import Unsupported, register_rule
from offcut.plugins.torch.rules.arithmetic import binary, promoted_dtype, times
from offcut.plugins.torch.translation import Translation


@register_rule("embedding")
def embedding(t: Translation, table: Ref, ids: Ref, *_: Any) -> Any:
    return t.node("embedding", table, ids)


@register_rule("index_select")
def index_select(t: Translation, x: Ref, axis: int, ids: Ref) -> Any:
    return t.node("take", x, ids, axis=t.axis(x, axis), from_end=False)


@register_rule("index.Tensor", "_unsafe_index.Tensor")
def index(t: Translation, x: Ref, places: Sequence[Any]) -> Any:
    """Of several axes: one element for each place of the indices together; between others, they are the first axes of the result."""
    index_by_axis = {axis: one for axis, one in enumerate(places) if one is not None}
    if any(t.dtype(one) not in ("int32", "int64") for one in index_by_axis.values()):
        raise Unsupported("its shape depends on data")
    first, last = min(index_by_axis), max(index_by_axis)
    if last - first >= len(index_by_axis):
        x = t.transpose(
            x, [*index_by_axis, *(axis for axis in range(t.rank(x)) if axis not in index_by_axis)]
        )
        first = 0
    each = tuple(index_by_axis.values())
    return t.node("take", x, each[0] if len(each) == 1 else each, axis=first)


@register_rule("gather")
def gather(t: Translation, x: Ref, axis: int, ids: Ref, *, sparse_grad: bool = False) -> Any:
    place = t.axis(x, axis)
    for other, extent in enumerate(t.shape(ids)):  # at most that of x
        if other != place and extent != t.shape(x)[other]:
            x = t.slice(x, other, 0, plain(extent))
    return t.node("take_along_axis", x, ids, axis=place, from_end=False)


@register_rule("one_hot")
def one_hot(t: Translation, ids: Ref, depth: int = -1) -> Any:
    if depth < 0:
        raise Unsupported("its shape depends on data")
    inside = t.node("greater_equal", ids, 0), t.node("less", ids, depth)
    own = assert_condition(t.node, ids, t.dtype(ids), t.node("logical_and", *inside))
    return t.node("one_hot", own, depth, t.result)


@register_rule("searchsorted.Tensor")
def searchsorted(
    t: Translation,
    ascending: Ref,
    x: Ref,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Any = None,
) -> Any:
    if sorter is not None:
        raise Unsupported("it is of elements in another order")
    return _places(t, ascending, x, right or side == "right")


@register_rule("bucketize.Tensor")
def bucketize(
    t: Translation, x: Ref, ascending: Ref, *, out_int32: bool = False, right: bool = False
) -> Any:
    return _places(t, ascending, x, right)


def _places(t: Translation, ascending: Ref, x: Ref, right: bool) -> Any:
    """How many of those that ascend are less than each element, or no greater: by comparing with all of them; NaN is the greatest."""
    alone = t.rank(ascending) == 1
    own, line = t.shape(x), t.shape(ascending)
    each = t.reshape(x, (*own, 1))
    among = ascending if alone else t.reshape(ascending, (*line[:-1], 1, line[-1]))
    dtype = promoted_dtype(t, x, ascending)
    beyond = "greater" if right else "greater_equal"
    rest = t.node("logical_not", binary(t, beyond, among, each, dtype))
    return t.node("sum", t.cast(rest, t.result), axis=-1)


@register_rule("_embedding_bag_forward_only", "_embedding_bag")
def embedding_bag(
    t: Translation,
    table: Ref,
    ids: Ref,
    begins: Ref,
    scaled: bool = False,
    mode: int = 0,
    sparse: bool = False,
    weights: Ref | None = None,
    ends: bool = False,
    padding: int = -1,
) -> Any:
    """Rows summed, averaged or the greatest of them, of bags of as many ids each."""
    step = t.steps.get(begins.name)
    bags, many = t.shape(begins)[0], t.shape(ids)[0]
    if ends or padding >= 0 or step is None or normal(Binary("*", bags, step)) != many:
        raise Unsupported("its bags are not seen to hold as many ids each")
    rows = t.node("embedding", table, t.reshape(ids, (bags, step)))
    if weights is not None:
        rows = t.node("multiply", rows, t.reshape(weights, (bags, step, 1)))
    return t.node(("sum", "mean", "max")[mode], rows, axis=1), None, None, None


_OF_SCATTER = {None: None, "add": "add", "multiply": "mul"}


@register_rule("scatter_add", reduce="add")
@register_rule("scatter.src", "scatter.value", "scatter.reduce", "scatter.value_reduce")
def scatter(
    t: Translation, x: Ref, axis: int, ids: Ref, source: Any, *, reduce: str | None = None
) -> Any:
    if not isinstance(source, Ref):
        source = t.node("broadcast_to", t.scalar(source, t.dtype(x)), t.shape(ids))
    return _scatter(t, x, axis, ids, source, _OF_SCATTER[reduce])


def _scatter(
    t: Translation, x: Ref, axis: int, ids: Ref, source: Ref, reduction: str | None = None
) -> Any:
    """`x` with elements of `source` where `ids` say, as many as there are of these."""
    if t.rank(x) == 0 or t.rank(ids) != t.rank(x):
        raise Unsupported("it has no axes")
    for other, extent in enumerate(t.shape(ids)):
        if extent != t.shape(source)[other]:
            source = t.slice(source, other, 0, plain(extent))
    options = {"axis": t.axis(x, axis), "reduction": reduction}
    return t.node("scatter_elements", x, ids, source, **options, from_end=False, drop=False)


_REDUCTIONS = {"sum": "add", "mean": "add", "prod": "mul", "amax": "max", "amin": "min"}


@register_rule("scatter_reduce.two", rounds_each=True)
def scatter_reduce(
    t: Translation,
    x: Ref,
    axis: int,
    ids: Ref,
    source: Ref,
    reduction: str,
    *,
    include_self: bool = True,
) -> Any:
    """Without what is there: from what changes nothing, where something is put."""
    op, mean, dtype = _REDUCTIONS[reduction], reduction == "mean", t.dtype(x)
    if include_self and not mean:
        return _scatter(t, x, axis, ids, source, op)
    if mean and "float" not in dtype:
        raise Unsupported("it rounds a mean of integers")
    if not t.rank(x):
        raise Unsupported("it has no axes")
    none = t.node("broadcast_to", t.scalar(0, "int32"), t.shape(x))
    ones = t.node("broadcast_to", t.scalar(1, "int32"), t.shape(ids))
    count = _scatter(t, none, axis, ids, ones, "add")
    start = x
    if not include_self:
        nothing = {"add": 0, "mul": 1}.get(op)
        neutral_of = reduction_start(op, dtype) if nothing is None else nothing
        number = float(neutral_of) if "float" in dtype else int(neutral_of)
        start = t.node("broadcast_to", t.scalar(number, dtype), t.shape(x))
    result = _scatter(t, start, axis, ids, source, op)
    if mean:
        many = t.node("add", count, 1) if include_self else t.node("maximum", count, 1)
        result = t.node("divide", result, t.cast(many, dtype))
    return result if include_self else t.node("where", t.node("greater", count, 0), result, x)


@register_rule("index_put", "_unsafe_index_put")
def index_put(
    t: Translation, x: Ref, places: Sequence[Any], source: Ref, accumulate: bool = False
) -> Any:
    """By a mask of the first axes, with elements that do not depend on how many it names; or by numbers along axes."""
    index_by_axis = [(axis, one) for axis, one in enumerate(places) if one is not None]
    axes, ids = [axis for axis, _ in index_by_axis], [one for _, one in index_by_axis]
    if any(t.dtype(one) in ("bool", "uint8") for one in ids):
        if len(index_by_axis) > 1:
            raise Unsupported("it writes by a mask and more")
        return _put_by_mask(t, x, axes[0], ids[0], source, accumulate)
    return _put(t, x, axes, ids, source, accumulate=accumulate, from_end=True)


def _put(
    t: Translation,
    x: Ref,
    axes: Sequence[int],
    ids: Sequence[Ref],
    source: Ref,
    *,
    accumulate: bool = False,
    from_end: bool = False,
) -> Any:
    """`x` with elements of `source` where `ids` say along some axes.

    accumulate  whether they are added
    from_end    whether indices below 0 count from the end
    """
    each = _together(t, ids)
    order = [*axes, *(n for n in range(t.rank(x)) if n not in axes)]
    rest = [t.shape(x)[n] for n in order[len(axes) :]]
    beside = axes == list(range(axes[0], axes[-1] + 1))
    first = axes[0] if beside else 0  # where torch puts the axes of the indices
    own = t.shape(each[0])
    shape = (*rest[:first], *own, *rest[first:])
    order_of_source = [
        *range(first, first + len(own)),
        *range(first),
        *range(first + len(own), len(shape)),
    ]
    rows = t.transpose(_broadcast(t, t.as_result(source), shape), order_of_source)
    number = product(own)
    columns = [t.reshape(one, (number, 1)) for one in each]
    result = t.node(
        "scatter_nd",
        t.transpose(x, order),
        t.node("concat", columns, axis=1) if len(columns) > 1 else columns[0],
        t.reshape(rows, (number, *rest)),
        reduction="add" if accumulate else None,
        from_end=from_end,
        drop=False,
    )
    return t.transpose(result, [order.index(n) for n in range(len(order))])


@register_rule("index_add")
def index_add(t: Translation, x: Ref, axis: int, ids: Ref, source: Ref, *, alpha: Any = 1) -> Any:
    return _put_rows(t, x, axis, ids, times(t, source, alpha), accumulate=True)


@register_rule("index_copy")
def index_copy(t: Translation, x: Ref, axis: int, ids: Ref, source: Ref) -> Any:
    return _put_rows(t, x, axis, ids, source)


@register_rule("index_fill.int_Scalar", "index_fill.int_Tensor")
def index_fill(t: Translation, x: Ref, axis: int, ids: Ref, value: Any) -> Any:
    value = value if isinstance(value, Ref) else t.scalar(value, t.dtype(x))
    return _put_rows(t, x, axis, ids, value, from_end=True)


def _put_rows(t: Translation, x: Ref, axis: int, ids: Ref, source: Ref, **options: bool) -> Any:
    if not t.rank(x):
        raise Unsupported("it has no axes")
    return _put(t, x, [t.axis(x, axis)], [t.reshape(ids, (-1,))], source, **options)


@register_rule("max_unpool2d", "max_unpool3d")
def max_unpool(t: Translation, x: Ref, ids: Ref, size: Sequence[Any], *_: Any) -> Any:
    """Each element at its place in its own image, which is 0 elsewhere."""
    count = len(size)
    lead, image = product(t.extents[:-count]), product(t.extents[-count:])
    zeros = t.node("broadcast_to", t.scalar(0, t.result), (plain(lead), plain(image)))
    rows = [t.reshape(one, (lead, product(t.shape(one)[-count:]))) for one in (x, ids)]
    return t.reshape(_scatter(t, zeros, 1, rows[1], rows[0]), t.extents)


def _together(t: Translation, ids: Sequence[Ref]) -> list[Ref]:
    """Indices of one shape and type."""
    if len(ids) == 1:
        return [*ids]
    wide = [t.cast(one, "int64") for one in ids]
    # Their sum has the shape that they are broadcast to; nothing reads it, so nothing computes it.
    total = wide[0]
    for place, one in enumerate(wide[1:], 1):
        if t.rank(one) == t.rank(total):
            wide[place] = t.with_shape(one, _either(t.shape(one), t.shape(total)))
        total = t.node("add", total, wide[place])
    return [_broadcast(t, one, t.shape(total)) for one in wide]


def _put_by_mask(
    t: Translation, x: Ref, axis: int, mask: Ref, source: Ref, accumulate: bool
) -> Any:
    after = t.rank(x) - axis - t.rank(mask)
    if t.dtype(mask) != "bool":
        raise Unsupported("its mask is of uint8")
    own = t.shape(source)
    if len(own) > after and not (len(own) == after + 1 and plain(own[0]) == 1 and axis == 0):
        raise Unsupported("so many elements as its mask names are written")
    values = t.reshape(source, own[len(own) - after :]) if len(own) > after else source
    values = t.as_result(values)
    if accumulate:
        values = t.node("add", x, values)
    wide = t.reshape(mask, (*t.shape(mask), *(1 for _ in range(after))))
    result = t.node("where", wide, values, x)
    return result if t.shape(result) == t.shape(x) else t.node("broadcast_to", result, t.shape(x))


@register_rule("masked_scatter")
def masked_scatter(t: Translation, x: Ref, mask: Ref, source: Ref) -> Any:
    """Elements of `source`, one after the other, where a mask says so."""
    shape = t.extents
    every = t.reshape(_broadcast(t, mask, shape), (-1,))
    counted = accumulate(t, t.cast(every, "int32"), 0, "add")
    places = t.node("subtract", counted, 1)
    sources = t.node("where", every, places, 0)
    elements = t.node("take", t.reshape(source, (-1,)), sources, axis=0)
    return t.node("where", mask, t.reshape(elements, shape), _broadcast(t, x, shape))


def _broadcast(t: Translation, x: Ref, shape: Sequence[Expr]) -> Ref:
    own = t.shape(x)
    x = t.with_shape(x, _either(own, shape[len(shape) - len(own) :]))
    if t.shape(x) == tuple(shape):
        return x
    result: Ref = t.node("broadcast_to", x, tuple(shape))
    return result


def _either(own: Sequence[Expr], other: Sequence[Expr]) -> list[Expr]:
    """The extents that torch says `own` are, where they are joined with others: these, or 1."""
    one = ix.const(1)
    return [a if one in (a, b) else b for a, b in zip(own, other, strict=True)]


@register_rule("im2col")
def unfold(
    t: Translation,
    x: Ref,
    window: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Any:
    """Windows, whose channels are made one axis, and so are their places."""
    *lead, channels, height, width = t.shape(x)
    for extent, size, by, edge in zip((height, width), window, dilation, padding, strict=True):
        t.require_at_least(extent, by * (size - 1) + 1 - 2 * edge)
    options = {"stride": tuple(stride), "padding": tuple(padding), "dilation": tuple(dilation)}
    images = t.reshape(x, (product(lead), channels, height, width))
    return t.view_as_result(t.node("unfold", images, tuple(window), **options))


@register_rule("col2im")
def col2im(
    t: Translation,
    x: Ref,
    size: Sequence[Any],
    window: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Any:
    """Rows of windows: their channels are one axis, and so are their places."""
    *lead, merged, count = t.shape(x)
    if quotient(merged, ix.index(product(window))) is None:
        raise Unsupported("its channels are not whole windows")
    windows = Windows(*map(tuple, (window, stride, dilation, padding, padding)))
    rows, image = t.reshape(x, (product(lead), merged, count)), [plain(ix.index(n)) for n in size]
    return t.reshape(fold(t, rows, image, windows), t.extents)
