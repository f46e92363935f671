"""Sums, means, extremes and their places; sorting, the first few, medians.

What depends on the order of elements: sorting, the first few, medians.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from offcut.core import index as ix
from offcut.core.expr import Binary, Expr, variables
from offcut.graph import Ref
from offcut.graph.sizes.extent_values import plain, product
from offcut.graph.sizes.extents import normal
from offcut.plugins.operators import lines
from offcut.plugins.operators.lines import accumulate
from offcut.plugins.torch.rule_table import Unsupported, register_rule
from offcut.plugins.torch.rules.functions import truth
from offcut.plugins.torch.translation import Translation

Axes = int | Sequence[int] | None


@register_rule("sum", "sum.dim_IntList", op="sum")
@register_rule("mean", "mean.dim", op="mean")
def sum_or_mean(
    t: Translation, x: Ref, axes: Axes = None, keepdims: bool = False, *, dtype: Any = None, op: str
) -> Any:
    return _over(t, op, t.as_result(x), axes, keepdims)


@register_rule("amax", "max", op="max")
@register_rule("amin", "min", op="min")
def extreme(t: Translation, x: Ref, axes: Axes = None, keepdims: bool = False, *, op: str) -> Any:
    return _over(t, op, _of_something(t, x, axes), axes, keepdims)


def _of_something(t: Translation, x: Ref, axes: Axes) -> Ref:
    """`x`: a call in which one of some axes has no element is refused, as torch has no extreme of nothing."""
    for axis in _axes(t, x, axes):
        x = t.not_empty(x, axis)
    return x


@register_rule("max.dim", op="max")
@register_rule("min.dim", op="min")
def extreme_and_place(
    t: Translation, x: Ref, axis: int, keepdims: bool = False, *, op: str
) -> tuple[Any, Any]:
    x = _of_something(t, x, axis)
    extreme = _over(t, op, x, axis, keepdims)
    return extreme, t.node(f"arg{op}", x, axis=t.axis(x, axis), keepdims=keepdims)


@register_rule("argmax", op="argmax")
@register_rule("argmin", op="argmin")
def extreme_place(
    t: Translation, x: Ref, axis: int | None = None, keepdims: bool = False, *, op: str
) -> Any:
    x = _of_something(t, x, axis)
    if axis is None:
        return t.reshape(t.node(op, t.reshape(x, (-1,)), axis=0), t.extents)
    return t.node(op, x, axis=t.axis(x, axis), keepdims=keepdims)


@register_rule("any", "any.dim", "any.dims")
def any_of(t: Translation, x: Ref, axes: Axes = None, keepdims: bool = False) -> Any:
    greatest = _over(t, "max", t.cast(truth(t, x), "int32"), axes, keepdims)
    return t.node("greater", greatest, 0)


@register_rule("var.correction", "var.dim")
def variance(
    t: Translation,
    x: Ref,
    axes: Axes = None,
    unbiased: bool = True,
    *,
    correction: Any = None,
    keepdim: bool = False,
) -> Any:
    less = (1 if unbiased else 0) if correction is None else correction
    return moments(t, x, axes, less, keepdim)[0]


@register_rule("std.correction")
def deviation(
    t: Translation, x: Ref, axes: Axes = None, *, correction: Any = None, keepdim: bool = False
) -> Any:
    less = 1 if correction is None else correction
    return t.node("sqrt", moments(t, x, axes, less, keepdim)[0])


@register_rule("var_mean.correction")
def variance_and_mean(
    t: Translation, x: Ref, axes: Axes = None, *, correction: Any = None, keepdim: bool = False
) -> Any:
    return moments(t, x, axes, 1 if correction is None else correction, keepdim)


@register_rule("linalg_vector_norm")
def norm(
    t: Translation,
    x: Ref,
    order: float = 2,
    axes: Axes = None,
    keepdims: bool = False,
    *,
    dtype: Any = None,
) -> Any:
    return _norm(t, t.as_result(x), order, axes, keepdims)


def _norm(t: Translation, x: Ref, order: float, axes: Axes, keepdims: bool = False) -> Any:
    """The sum of the sizes of elements to a power, and its root; where the power is 0 or infinite, how many are not 0, or an extreme."""
    if order == 2:
        return t.node("sqrt", _over(t, "sum", t.node("square", x), axes, keepdims))
    if order == 0:
        some = t.cast(t.node("not_equal", x, 0.0), t.dtype(x))
        return _over(t, "sum", some, axes, keepdims)
    size = t.node("absolute", x)
    if order in (1, math.inf, -math.inf):
        op = "sum" if order == 1 else "max" if order > 0 else "min"
        size = size if order == 1 else _of_something(t, size, axes)
        return _over(t, op, size, axes, keepdims)
    total = _over(t, "sum", t.node("power", size, float(order)), axes, keepdims)
    return t.node("power", total, 1 / order)


@register_rule("_cdist_forward")
def distances(t: Translation, x: Ref, y: Ref, order: float, _: Any = None) -> Any:
    """Between each row of one and each of the other."""
    if plain(t.shape(x)[-1]) == 0:
        return t.node("broadcast_to", t.scalar(0, t.result), t.extents)
    rows = t.reshape(x, (*t.shape(x)[:-1], 1, t.shape(x)[-1]))
    others = t.reshape(y, (*t.shape(y)[:-2], 1, *t.shape(y)[-2:]))
    return _norm(t, t.node("subtract", rows, others), order, -1)


@register_rule("prod", "prod.dim_int")
def total_product(
    t: Translation, x: Ref, axis: int | None = None, keepdims: bool = False, *, dtype: Any = None
) -> Any:
    """The last of the running products, before the first of which is 1."""
    value = t.as_result(x)
    if not t.rank(value):
        return value
    value = t.reshape(value, (-1,)) if axis is None else value
    place = t.axis(value, 0 if axis is None else axis)
    own = t.shape(value)
    first = (*own[:place], ix.const(1), *own[place + 1 :])
    one = t.node("broadcast_to", t.scalar(1, t.result), first)
    running = _accumulate(t, t.node("concat", [one, value], axis=place), place, "mul")
    count = plain(own[place])
    end = plain(normal(Binary("+", own[place], ix.const(1))))
    return t.reshape(t.slice(running, place, count, end), t.extents)


@register_rule("cumsum", reduction="add")
@register_rule("cumprod", reduction="mul")
@register_rule("logcumsumexp", reduction="logaddexp")
def running(t: Translation, x: Ref, axis: int, *, dtype: Any = None, reduction: str) -> Any:
    return _accumulate(t, t.as_result(x), t.axis(x, axis), reduction)


def _accumulate(t: Translation, x: Ref, axis: int, reduction: str) -> Any:
    return accumulate(t, x, axis, reduction) if t.rank(x) else x


@register_rule("cummax", reduction="max")
@register_rule("cummin", reduction="min")
def running_extreme(t: Translation, x: Ref, axis: int, *, reduction: str) -> Any:
    """The extremes, and the place of each: of equal elements the last, of NaN, too."""
    if not t.rank(x):
        raise Unsupported("it is of a number")
    return accumulate(t, x, t.axis(x, axis), reduction, places=True)


@register_rule("histc")
def histogram(t: Translation, x: Ref, bins: int = 100, least: Any = 0, most: Any = 0) -> Any:
    """How many elements lie in each of as wide intervals of a range, of which the last holds its end."""
    if not all(isinstance(one, int | float) for one in (bins, least, most)) or least >= most:
        raise Unsupported("its range depends on data, or is a size")
    flat = t.reshape(x, (-1,))
    ends = t.node("greater_equal", flat, least), t.node("less_equal", flat, most)
    scaled = t.node(
        "divide", t.node("multiply", t.node("subtract", flat, least), bins), most - least
    )
    places = t.node("minimum", t.node("floor", scaled), float(bins - 1))
    inside = t.node("where", t.node("logical_and", *ends), places, -1.0)
    each = t.node("iota", bins, t.dtype(x))
    matches = t.node("equal", t.reshape(inside, (*t.shape(flat), 1)), each)
    return t.node("sum", t.cast(matches, t.result), axis=0)


def moments(t: Translation, x: Ref, axes: Axes, correction: Any, keepdims: bool) -> tuple[Any, Any]:
    """The variance and the mean over some axes; torch divides by ``count - correction``."""
    over = _axes(t, x, axes)
    middle = t.node("mean", x, axis=over, keepdims=True)
    squares = t.node("square", t.node("subtract", x, middle))
    if correction == 0:
        result = t.node("mean", squares, axis=over, keepdims=keepdims)
    else:
        count = plain(product(t.shape(x)[axis] for axis in over))
        result = t.node("sum", squares, axis=over, keepdims=keepdims)
        if isinstance(count, int):
            if count <= correction:
                raise Unsupported("it divides by nothing")
            result = t.node("multiply", result, 1.0 / (count - correction))
        else:
            less = t.node("subtract", t.scalar(count, t.result), float(correction))
            result = t.node("divide", result, t.node("maximum", less, 0.0))
    if not keepdims:
        shape = [extent for axis, extent in enumerate(t.shape(x)) if axis not in over]
        middle = t.reshape(middle, shape)
    return result, middle


def _axes(t: Translation, x: Ref, axes: Axes) -> tuple[int, ...]:
    if axes is None or axes in ([], ()):
        return tuple(range(t.rank(x)))
    each = tuple(axes) if isinstance(axes, tuple | list) else (axes,)
    return tuple(t.axis(x, axis) for axis in each)


def _over(t: Translation, op: str, x: Ref, axes: Axes, keepdims: bool) -> Any:
    over = _axes(t, x, axes)
    return t.node(op, x, axis=over, keepdims=keepdims or None) if over else x


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
    values, places = lines.sort(t, keys, axis, descending)
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
    return lines.top_elements(t, x, k, t.axis(x, axis), largest)


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
    begin = lines.accumulate(t, t.node("where", begins, number, 0), place, "max")
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
    values, places = lines.sort(t, x, place, descending=False)
    return place, (values, places)
