"""Images read at places between their elements, which an array names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

from offcut.plugins.onnx.context import Context, extent
from offcut.plugins.onnx.elementwise import Operator, scalar
from offcut.plugins.onnx.operands import Call, Element, Operand, Refused, Results, known

CUBIC = -0.75
"""The constant of the cubic kernel (Keys, 1981), as ONNX has it."""

Points = list[tuple[Operand, Operand | None]]
"""Places along an axis, whole numbers as floats, and the weight of each; None: 1."""


def _grid_sample(g: Context, call: Call) -> Results:
    """The first number of a place is along the last axis of the image; -1 and 1 are its ends."""
    x, grid = call[0], call[1]
    given = call.get("mode", "linear")
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(given, given)
    around, corners = call.get("padding_mode", "zeros"), bool(call.get("align_corners", 0))
    if mode not in POINTS or around not in ("zeros", "border", "reflection"):
        raise Refused(f"mode={mode}, padding_mode={around}", "linear, nearest or cubic")
    axes, last = g.rank(x) - 2, g.rank(grid) - 1
    spatial, outer = g.shape(x)[2:], g.shape(grid)[:-1]
    points: list[Points] = []
    for axis, whole in enumerate(spatial):
        place = g.reshape(g.slice(grid, last, axes - 1 - axis, axes - axis), outer)
        at = _placed(g, place, whole, corners)
        at = g.op("round", at) if mode == "nearest" else at
        points.append(POINTS[mode](g, _around(g, at, whole, around, corners)))
    return _sampled(g, x, points, around, corners)


def _sampled(
    g: Context, x: Operand, points: Sequence[Points], around: str, corners: bool
) -> Operand:
    """The weighted sum of elements at the points of all axes."""
    axes, spatial = len(points), g.shape(x)[2:]
    images = g.transpose(x, [0, *range(2, 2 + axes), 1])
    batch = g.reshape(g.op("iota", g.shape(x)[0], "int64"), [-1, *[1] * axes])
    total: Operand | None = None
    for chosen in product(*points):
        places, factor = [batch], None
        for (place, weight), whole in zip(chosen, spatial, strict=True):
            near = _around(g, place, whole, around, corners)
            inside = _inside(g, near, whole) if around == "zeros" else None
            for one in (weight, inside):
                if one is not None:
                    factor = one if factor is None else g.binary("multiply", factor, one)
            places.append(g.cast(_clipped(g, near, whole), "int64"))
        read: Operand = g.op("take", images, tuple(places), axis=0)
        if factor is not None:
            read = g.binary("multiply", read, g.reshape(factor, (*g.shape(factor), 1)))
        total = read if total is None else g.binary("add", total, read)
    assert total is not None
    return g.transpose(total, [0, axes + 1, *range(1, axes + 1)])


def _placed(g: Context, place: Operand, whole: Element, corners: bool) -> Operand:
    """A place of -1 … 1 along an axis, in elements."""
    one = scalar(g, "multiply", scalar(g, "add", place, 1.0), 0.5)
    if corners:
        return g.binary("multiply", one, _size(g, extent(whole, -1), place))
    return scalar(g, "add", g.binary("multiply", one, _size(g, whole, place)), -0.5)


def _size(g: Context, whole: Element, beside: Operand) -> Operand:
    return g.cast(known(whole), g.dtype(beside))


def _around(g: Context, at: Operand, whole: Element, around: str, corners: bool) -> Operand:
    """A place that is inside, but for zeros around: the nearest where it is beyond the ends, or mirrored about them."""
    if around == "zeros":
        return at
    low = 0.0 if corners else -0.5
    span = _size(g, extent(whole, -1) if corners else whole, at)
    if around == "border":
        last = g.binary("less_equal", at, scalar(g, "add", span, low))
        inside = g.binary("logical_and", scalar(g, "greater_equal", at, low), last)
        return g.op("where", inside, at, _clipped(g, at, whole))
    from_low = g.op("absolute", scalar(g, "add", at, -low))
    back = g.binary("remainder", from_low, g.binary("add", span, span))
    mirrored = g.binary("minimum", back, g.binary("subtract", g.binary("add", span, span), back))
    return scalar(g, "add", mirrored, low)


def _clipped(g: Context, at: Operand, whole: Element) -> Operand:
    most = g.binary("minimum", at, _size(g, extent(whole, -1), at))
    return scalar(g, "maximum", most, 0.0)


def _inside(g: Context, at: Operand, whole: Element) -> Operand:
    """1 where a place is one of the axis, else 0."""
    first = scalar(g, "greater_equal", at, 0.0)
    last = g.binary("less", at, _size(g, whole, at))
    return g.cast(g.binary("logical_and", first, last), g.dtype(at))


def _nearest(g: Context, at: Operand) -> Points:
    return [(at, None)]


def _linear(g: Context, at: Operand) -> Points:
    first: Operand = g.op("floor", at)
    part = g.binary("subtract", at, first)
    other = scalar(g, "add", g.op("negative", part), 1.0)
    return [(first, other), (scalar(g, "add", first, 1.0), part)]


def _cubic(g: Context, at: Operand) -> Points:
    first: Operand = g.op("floor", at)
    part = g.binary("subtract", at, first)
    found: Points = []
    for step in (-1.0, 0.0, 1.0, 2.0):
        away = g.op("absolute", scalar(g, "add", g.op("negative", part), step))
        rates: tuple[Any, ...]
        if step in (0.0, 1.0):
            rates = (CUBIC + 2, -(CUBIC + 3), 0.0, 1.0)
        else:
            rates = (CUBIC, -5 * CUBIC, 8 * CUBIC, -4 * CUBIC)
        weight: Operand = scalar(g, "add", scalar(g, "multiply", away, rates[0]), rates[1])
        for rate in rates[2:]:
            weight = scalar(g, "add", g.binary("multiply", weight, away), rate)
        found.append((scalar(g, "add", first, step), weight))
    return found


POINTS: Mapping[str, Callable[[Context, Operand], Points]] = {
    "cubic": _cubic,
    "linear": _linear,
    "nearest": _nearest,
}

SAMPLING: Mapping[str, Operator] = {"GridSample": _grid_sample}
