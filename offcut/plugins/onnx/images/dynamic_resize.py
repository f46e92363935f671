"""Along an axis of symbolic extent an image at another size: each element by its place among those that there are."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import partial, reduce

from offcut.core.integers import MOST_PARTS, simple_fraction
from offcut.graph.sizes.numbers import arithmetic
from offcut.plugins.onnx.images.sampling import (
    CUBIC,
    clip_places,
    cubic_points,
    is_inside,
    linear_points,
)
from offcut.plugins.onnx.importer.context import Context
from offcut.plugins.onnx.importer.operands import (
    Call,
    Element,
    Operand,
    UnsupportedNode,
    format_values,
    known_array,
)
from offcut.plugins.onnx.rules.elementwise import number, scalar


def resample(
    g: Context, call: Call, x: Operand, axis: int, scale: float | None, size: Element | None
) -> Operand:
    """Return the nearest elements, or weighted sums of two or four.

    Raises Refused for antialiasing, and a scale that is no simple fraction.
    """
    if call.get("antialias", 0):
        raise UnsupportedNode(
            f"antialiasing of {format_values(g.shape(x)[axis])} elements", "a known extent"
        )
    whole, old = g.shape(x)[axis], call.version < 11
    count = _scaled_extent(whole, scale) if size is None else size
    at = _places(g, call, whole, count, scale)
    mode = call.get("mode", "nearest")
    if mode == "nearest":
        rounding = "floor" if old else call.get("nearest_mode", "round_prefer_floor")
        return g.op("take", x, _within(g, _round_place(g, at, rounding), whole), axis=axis)
    dtype = g.dtype(x)
    sum_dtype = dtype if dtype == "float64" else "float32"
    along = [-1 if n == axis else 1 for n in range(g.rank(x))]
    total: Operand | None = None
    for place, weight in _places_and_weights(g, call, at, whole):
        read = g.cast(g.op("take", x, _within(g, place, whole), axis=axis), sum_dtype)
        part = g.binary("multiply", read, g.reshape(g.cast(weight, sum_dtype), along))
        total = part if total is None else g.binary("add", total, part)
    assert total is not None
    return g.cast(total, dtype)


def _within(g: Context, place: Operand, whole: Element) -> Operand:
    return g.cast(clip_places(g, place, whole), "int64")


def _places_and_weights(
    g: Context, call: Call, at: Operand, whole: Element
) -> Sequence[tuple[Operand, Operand]]:
    """Return the places around each, and what they weigh; with ``exclude_outside`` those that there are not weigh nothing."""
    is_cubic = call.get("mode") == "cubic"
    points = (
        cubic_points(g, at, call.get("cubic_coeff_a", CUBIC)) if is_cubic else linear_points(g, at)
    )
    if not call.get("exclude_outside", 0):
        return points
    weights = [g.binary("multiply", one, is_inside(g, place, whole)) for place, one in points]
    total = reduce(partial(g.binary, "add"), weights)
    pairs = zip(points, weights, strict=True)
    return [(place, g.binary("divide", one, total)) for (place, _), one in pairs]


def _scaled_extent(whole: Element, scale: float | None) -> Element:
    ratio = None if scale is None else simple_fraction(scale)
    if ratio is None:
        refused = f"{format_values(whole)} elements by a scale of {scale}, which is no fraction above 0 of at most {MOST_PARTS} parts"
        raise UnsupportedNode(refused, "sizes in place of scales")
    return arithmetic("//", arithmetic("*", whole, ratio.numerator), ratio.denominator)


def _places(g: Context, call: Call, whole: Element, count: Element, scale: float | None) -> Operand:
    """Where each of `count` elements lies among `whole`: in float64; of nearest elements in float32, whose rounding onnxruntime's ties have."""
    dtype = "float32" if call.get("mode", "nearest") == "nearest" else "float64"
    mode = call.get("coordinate_transformation_mode", "half_pixel")
    mode = "asymmetric" if call.version < 11 else mode
    own: Operand = g.cast(g.op("iota", count, "int64"), dtype)
    have, want = (g.cast(known_array(one), dtype) for one in (whole, count))
    each = g.binary("divide", want, have) if scale is None else number(g, own, scale)
    if mode == "align_corners":
        last = g.binary("maximum", scalar(g, "subtract", want, 1.0), number(g, own, 1.0))
        return g.binary("divide", g.binary("multiply", own, scalar(g, "subtract", have, 1.0)), last)
    if mode == "asymmetric":
        return g.binary("divide", own, each)
    middle = g.binary("divide", scalar(g, "add", own, 0.5), each)
    place: Operand = scalar(g, "subtract", middle, 0.5)
    if mode == "pytorch_half_pixel":  # one element is the first
        alone = g.binary("less", want, number(g, own, 2.0))
        return g.op("where", g.broadcast(alone, (count,)), 0.0, place)
    if mode == "half_pixel_symmetric":
        if dtype == "float32" and scale is not None and simple_fraction(scale) != Fraction(scale):
            raise UnsupportedNode(
                f"the nearest of {format_values(whole)} elements in the mode {mode} by a scale that is rounded",
                "sizes in place of scales",
            )
        spread = g.binary("divide", want, g.binary("multiply", each, have))
        share = scalar(g, "add", g.op("negative", spread), 1.0)
        shift = g.binary("multiply", scalar(g, "multiply", have, 0.5), share)
        return scalar(g, "subtract", g.binary("add", shift, middle), 0.5)
    if mode != "half_pixel":
        raise UnsupportedNode(f"a symbolic extent {format_values(whole)} in the mode {mode}")
    return place


def _round_place(g: Context, at: Operand, rounding: str) -> Operand:
    match rounding:
        case "round_prefer_floor":
            return g.op("ceil", scalar(g, "subtract", at, 0.5))
        case "round_prefer_ceil":
            return g.op("floor", scalar(g, "add", at, 0.5))
        case _:
            return g.op("ceil" if rounding == "ceil" else "floor", at)
