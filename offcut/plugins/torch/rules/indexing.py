"""Elements by number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from offcut.core.expr import Binary
from offcut.graph import Ref
from offcut.graph.call_conditions import assert_condition
from offcut.graph.sizes.extents import normal
from offcut.graph.sizes.numbers import plain
from offcut.plugins.torch.rule_table import register_rule
from offcut.plugins.torch.rules.arithmetic import binary, promoted_dtype
from offcut.plugins.torch.translation import Translation
from offcut.plugins.torch.unsupported import Unsupported


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
