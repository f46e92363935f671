"""What depends on the order of elements: sorting, the first few, medians."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from offcut.core import index as ix
from offcut.core.expr import Binary, Expr
from offcut.graph import Ref
from offcut.graph.composed import first_in_order, in_order
from offcut.graph.sizes.extents import normal
from offcut.plugins.torch.left import Left
from offcut.plugins.torch.table import takes
from offcut.plugins.torch.translation import Translation, plain


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
        own, (values, places) = _ascending(t, t.reshape(x, (-1,)) if alone else x, axis or 0)
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


def _ascending(t: Translation, x: Ref, axis: int) -> tuple[int, tuple[Ref, Ref]]:
    if not t.rank(x):
        raise Left("it is of a number")
    place = t.axis(x, axis)
    values, places = in_order(t.node, x, t.shape(x)[place], place, descending=False)
    return place, (values, places)
