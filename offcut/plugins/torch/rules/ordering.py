"""What depends on the order of elements: sorting, the first few, medians."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from offcut.core import index as ix
from offcut.core.expr import Binary, Expr
from offcut.graph import Ref
from offcut.graph.composed import accumulated, first_in_order, in_order
from offcut.graph.sizes.extents import normal
from offcut.graph.sizes.numbers import plain
from offcut.plugins.torch.left import Left
from offcut.plugins.torch.table import takes
from offcut.plugins.torch.translation import Translation


@takes("sort", "sort.stable")
def sort(
    t: Translation,
    x: Ref,
    dim: int = -1,
    descending: bool = False,
    *,
    stable: bool | None = None,
) -> Any:
    if not t.rank(x):
        raise Left("it is of a number")
    dtype = t.dtype(x)
    given = t.cast(x, "uint8") if dtype == "bool" else x
    axis = t.axis(x, dim)
    values, places = in_order(t.node, given, t.shape(x)[axis], axis, descending)
    return t.cast(values, dtype), places


@takes("topk")
def topk(
    t: Translation,
    x: Ref,
    k: Expr | int,
    axis: int = -1,
    largest: bool = True,
    ordered: bool = True,
) -> Any:
    if not t.rank(x):
        raise Left("it is of a number")
    place = t.axis(x, axis)
    return first_in_order(t.node, t.slice, x, t.shape(x)[place], k, place, largest)


@takes("kthvalue")
def kth(t: Translation, x: Ref, k: Expr | int, axis: int = -1, keepdims: bool = False) -> Any:
    place, every = _ascending(t, x, axis)
    before = plain(normal(Binary("-", ix.index(k), ix.const(1))))
    found = [t.slice(one, place, before, k) for one in every]
    return tuple(one if keepdims else t.reshape(one, t.extents) for one in found)


def _middle(among: Callable[..., Any]) -> Callable[..., Any]:
    def rule(t: Translation, x: Ref, axis: int | None = None, keepdims: bool = False) -> Any:
        alone = axis is None
        given = t.reshape(x, (-1,)) if axis is None else _line(t, x, axis)
        own, (values, places) = _ascending(t, given, axis or 0)
        shape = list(t.shape(values))
        extent, shape[own] = shape[own], ix.const(1)
        number = t.scalar(plain(extent), "int64")
        some = t.node("equal", values, values)  # NaN comes last
        count = t.node("sum", t.cast(some, "int32"), axis=own, keepdims=True)
        at = among(t, t.cast(count, "int64"), number)
        found = [
            t.node("take_along_axis", one, at, axis=own, from_end=False) for one in (values, places)
        ]
        if alone:
            return t.reshape(found[0], ())
        return tuple(one if keepdims else t.reshape(one, t.extents) for one in found)

    return rule


def _half(t: Translation, count: Ref) -> Ref:
    found: Ref = t.node("floor_divide", t.node("subtract", count, 1), 2)
    return found


@takes("median", "median.dim")
@_middle
def median(t: Translation, count: Ref, number: Ref) -> Any:
    """The first NaN, where there is one."""
    return t.node("where", t.node("less", count, number), count, _half(t, number))


@takes("nanmedian", "nanmedian.dim")
@_middle
def nanmedian(t: Translation, count: Ref, number: Ref) -> Any:
    """Of those that are no NaN, where there are any."""
    return t.node("maximum", _half(t, count), 0)


@takes("mode")
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
    begin = accumulated(t.node, t.node("where", begins, number, 0), shape, place, "max")
    at = t.node("argmax", t.node("subtract", number, begin), axis=place, keepdims=True)
    found = [t.node("take_along_axis", one, at, axis=place, from_end=False) for one in every]
    return tuple(one if keepdims else t.reshape(one, t.extents) for one in found)


def _line(t: Translation, x: Ref, axis: int) -> Ref:
    """`x`: a call in which an axis has no element is refused, as torch has no middle of nothing."""
    return t.not_empty(x, t.axis(x, axis)) if t.rank(x) else x


def _ascending(t: Translation, x: Ref, axis: int) -> tuple[int, tuple[Ref, Ref]]:
    if not t.rank(x):
        raise Left("it is of a number")
    place = t.axis(x, axis)
    values, places = in_order(t.node, x, t.shape(x)[place], place, descending=False)
    return place, (values, places)
