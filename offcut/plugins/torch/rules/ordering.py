"""What depends on the order of elements: sorting, the first few, medians."""

from __future__ import annotations

from typing import Any

from offcut.core import index as ix
from offcut.core.expr import Expr, variables
from offcut.graph import Ref
from offcut.graph.sizes.extents import normal
from offcut.graph.sizes.numbers import plain
from offcut.plugins.operators import sorting
from offcut.plugins.torch.rule_table import register_rule
from offcut.plugins.torch.translation import Translation
from offcut.plugins.torch.unsupported import Unsupported


@register_rule("sort", "sort.stable")
def sort(
    t: Translation,
    x: Ref,
    dim: int = -1,
    descending: bool = False,
    *,
    stable: bool | None = None,
) -> Any:
    if not t.rank(x):
        raise Unsupported("it is of a number")
    dtype = t.dtype(x)
    keys = t.cast(x, "uint8") if dtype == "bool" else x
    axis = t.axis(x, dim)
    values, places = sorting.sort(t, keys, axis, descending)
    return t.cast(values, dtype), places


@register_rule("topk")
def topk(
    t: Translation,
    x: Ref,
    k: Expr | int,
    axis: int = -1,
    largest: bool = True,
    ordered: bool = True,
) -> Any:
    if not t.rank(x):
        raise Unsupported("it is of a number")
    return sorting.top_elements(t, x, k, t.axis(x, axis), largest)


@register_rule("kthvalue")
def kth(t: Translation, x: Ref, k: Expr | int, axis: int = -1, keepdims: bool = False) -> Any:
    place = normal(ix.index(k))
    if variables(place) - {name for extent in t.shape(x) for name in variables(extent)}:
        raise Unsupported("its k is a size of another array")
    return _kth_element(t, _line(t, x, axis), plain(place), axis, keepdims)


@register_rule("median", "median.dim", which="median")
@register_rule("nanmedian", "nanmedian.dim", which="nanmedian")
def median(
    t: Translation, x: Ref, axis: int | None = None, keepdims: bool = False, *, which: str
) -> Any:
    if axis is None:
        return t.reshape(_kth_element(t, t.reshape(x, (-1,)), which, 0, keepdims)[0], ())
    return _kth_element(t, _line(t, x, axis), which, axis, keepdims)


@register_rule("mode")
def mode(t: Translation, x: Ref, axis: int = -1, keepdims: bool = False) -> Any:
    """The most common elements, of several the least, and the last place of each; torch names any of its places.

    In ascending order equal elements lie together: the longest of such rows ends where most of its elements lie behind.
    """
    place, every = _ascending(t, _line(t, x, axis), axis)
    shape = t.shape(every[0])
    count = plain(shape[place])
    along = tuple(ix.const(-1 if n == place else 1) for n in range(len(shape)))
    own = t.node("iota", count, "int64")
    before = t.node("maximum", t.node("subtract", own, 1), 0)
    begins = t.node("not_equal", every[0], t.node("take", every[0], before, axis=place))
    number = t.node("broadcast_to", t.reshape(own, along), shape)
    begin = sorting.accumulate(t, t.node("where", begins, number, 0), place, "max")
    at = t.node("argmax", t.node("subtract", number, begin), axis=place, keepdims=True)
    results = [t.node("take_along_axis", one, at, axis=place, from_end=False) for one in every]
    return tuple(one if keepdims else t.reshape(one, t.extents) for one in results)


def _line(t: Translation, x: Ref, axis: int) -> Ref:
    """`x`: a call in which an axis has no element is refused, as torch has no middle of nothing."""
    return t.not_empty(x, t.axis(x, axis)) if t.rank(x) else x


def _kth_element(t: Translation, x: Ref, k: Any, axis: int, keepdims: bool) -> tuple[Ref, ...]:
    """The k-th element along an axis and its place, as `offcut.ops.kth` says it."""
    if not t.rank(x):
        raise Unsupported("it is of a number")
    results = t.node("kth", x, k, axis=t.axis(x, axis))
    return tuple(one if keepdims else t.reshape(one, t.extents) for one in results)


def _ascending(t: Translation, x: Ref, axis: int) -> tuple[int, tuple[Ref, Ref]]:
    if not t.rank(x):
        raise Unsupported("it is of a number")
    place = t.axis(x, axis)
    values, places = sorting.sort(t, x, place, descending=False)
    return place, (values, places)
