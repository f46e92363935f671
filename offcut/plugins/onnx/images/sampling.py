"""Images read at places between their elements, which an array names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product

import numpy as np

from offcut.core.dtypes import numpy_dtype
from offcut.graph.sizes.extent_values import arithmetic, extent
from offcut.plugins.onnx.importer.context import Context
from offcut.plugins.onnx.importer.nonnegative_extents import require_minimum_sizes
from offcut.plugins.onnx.importer.operands import (
    Call,
    Element,
    KnownArray,
    Operand,
    Results,
    UnsupportedNode,
    known_array,
)
from offcut.plugins.onnx.rules.elementwise import Operator, scalar

CUBIC = -0.75
"""The constant of the cubic kernel (Keys, 1981), as ONNX has it."""

Points = Sequence[tuple[Operand, Operand | None]]
"""Places along an axis, whole numbers as floats, and the weight of each; None: 1."""


def _grid_sample(g: Context, call: Call) -> Results:
    """Return the first number of a place is along the last axis of the image; -1 and 1 are its ends."""
    x, grid = call[0], call[1]
    attribute = call.get("mode", "linear")
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(attribute, attribute)
    around, corners = call.get("padding_mode", "zeros"), bool(call.get("align_corners", 0))
    if mode not in POINTS or around not in ("zeros", "border", "reflection"):
        raise UnsupportedNode(f"mode={mode}, padding_mode={around}", "linear, nearest or cubic")
    axes, last = g.rank(x) - 2, g.rank(grid) - 1
    spatial, outer = g.shape(x)[2:], g.shape(grid)[:-1]
    # of nearest elements ONNX rounds a place before it is mirrored
    is_operator = axes == 2 and mode != "cubic" and (mode, around) != ("nearest", "reflection")
    if is_operator and {g.dtype(x), g.dtype(grid)} in ({"float32"}, {"float64"}):
        g.require_equal("batches differ", (g.shape(x)[0], g.shape(grid)[0]))
        for whole in spatial:
            require_minimum_sizes(g, extent(whole, -1))
        return g.op("grid_sample", x, grid, mode, around, corners)
    points: list[Points] = []
    for axis, whole in enumerate(spatial):
        place = g.reshape(g.slice(grid, last, axes - 1 - axis, axes - axis), outer)
        at = _place_in_elements(g, place, whole, corners)
        at = g.op("round", at) if mode == "nearest" else at
        points.append(POINTS[mode](g, _around(g, at, whole, around, corners)))
    return _weighted_sum(g, x, points, around, corners)


def _weighted_sum(
    g: Context, x: Operand, points: Sequence[Points], around: str, corners: bool
) -> Operand:
    """Return the weighted sum of elements at the points of all axes."""
    axes = len(points)
    images = g.transpose(x, [0, *range(2, 2 + axes), 1])
    batch = g.reshape(g.op("iota", g.shape(x)[0], "int64"), [-1, *[1] * axes])
    total = _joined_elements(g, images, [batch], points, around, corners, "add")
    return g.transpose(total, [0, axes + 1, *range(1, axes + 1)])


def _joined_elements(
    g: Context,
    images: Operand,
    first: Sequence[Operand],
    points: Sequence[Points],
    around: str,
    corners: bool,
    join: str,
) -> Operand:
    """Return the elements at the points of all axes, each times its weight, joined.

    images  the axes that `first` has places of, the spatial ones, channels
    """
    spatial = g.shape(images)[len(first) : -1]
    total: Operand | None = None
    for corner in product(*points):
        places, factor = [*first], None
        for (place, weight), whole in zip(corner, spatial, strict=True):
            near = _around(g, place, whole, around, corners)
            inside = is_inside(g, near, whole) if around == "zeros" else None
            for one in (weight, inside):
                if one is not None:
                    factor = one if factor is None else g.binary("multiply", factor, one)
            places.append(g.cast(clip_places(g, near, whole), "int64"))
        read: Operand = g.op("take", images, tuple(places), axis=0, from_end=False)
        if factor is not None:
            read = g.binary("multiply", read, g.reshape(factor, (*g.shape(factor), 1)))
        total = read if total is None else g.binary(join, total, read)
    assert total is not None
    return total


def _roi_align(g: Context, call: Call) -> Results:
    """Return the mean, or the greatest, of each part of a region, of elements at points that lie evenly in it."""
    x, regions, batch = call[0], call[1], call[2]
    ratio = call.get("sampling_ratio", 0)
    scale, mode = call.get("spatial_scale", 1.0), call.get("mode", "avg")
    half = call.get("coordinate_transformation_mode", "half_pixel") == "half_pixel"
    half = half and call.version >= 16
    if ratio < 1:
        raise UnsupportedNode("as many points as a region is large", "sampling_ratio=2")
    count = g.shape(regions)[0]
    sizes = [call.get(name, 1) for name in ("output_height", "output_width")]
    points: list[Points] = []
    for n, (parts, whole) in enumerate(zip(sizes, g.shape(x)[2:], strict=True)):
        ends = [
            g.reshape(g.slice(regions, 1, place, place + 1), [count, 1]) for place in (1 - n, 3 - n)
        ]
        low, high = (
            scalar(g, "add", scalar(g, "multiply", end, scale), -0.5 if half else 0.0)
            for end in ends
        )
        extent_of: Operand = g.binary("subtract", high, low)
        if not half:
            extent_of = scalar(g, "maximum", extent_of, 1.0)
        steps = (np.arange(parts * ratio) + 0.5) / (parts * ratio)
        dtype = g.dtype(regions)
        shares = KnownArray(steps.astype(numpy_dtype(dtype))[None], dtype)
        at: Operand = g.binary("add", low, g.binary("multiply", extent_of, shares))
        at = g.reshape(at, [count, parts * ratio, 1] if n == 0 else [count, 1, parts * ratio])
        points.append(_within_one(g, at, whole))
    images = g.transpose(x, [0, 2, 3, 1])
    first = g.reshape(g.cast(batch, "int64"), [count, 1, 1])
    join = "add" if mode == "avg" else "maximum"
    samples = _joined_elements(g, images, [first], points, "border", True, join)
    channels = g.shape(x)[1]
    apart = g.reshape(samples, [count, sizes[0], ratio, sizes[1], ratio, channels])
    pooled = g.op("mean" if mode == "avg" else "max", apart, axis=(2, 4))
    return g.transpose(pooled, [0, 3, 1, 2])


def _within_one(g: Context, at: Operand, whole: Element) -> Points:
    """Return the two elements around a place, of which those near the ends are the ends; beyond one from there nothing weighs."""
    size = _size(g, whole, at)
    inside = g.binary(
        "logical_and", scalar(g, "greater_equal", at, -1.0), g.binary("less_equal", at, size)
    )
    factor = g.cast(inside, g.dtype(at))
    return [
        (place, factor if weight is None else g.binary("multiply", weight, factor))
        for place, weight in linear_points(g, clip_places(g, at, whole))
    ]


def _deformable_convolution(g: Context, call: Call) -> Results:
    """Return a convolution whose window reads between elements, at places of its own for each result."""
    x, w, offset, mask = call[0], call[1], call[2], call.input(4)
    groups, apart = call.get("group", 1), call.get("offset_group", 1)
    call.overlook("kernel_shape")
    batch, inner = g.shape(x)[0], arithmetic("*", groups, g.shape(w)[1])
    g.require_equal("channels differ from those of its weights", (g.shape(x)[1], inner))
    g.require_equal("batches differ", (batch, g.shape(offset)[0]))
    channels = g.whole(inner, "the channels")
    window = [g.whole(one, "the extent of a window") for one in g.shape(w)[2:]]
    if len(window) != 2:
        raise UnsupportedNode(f"windows of {len(window)} axes", "of two")
    strides, dilations = (call.get(name) or [1, 1] for name in ("strides", "dilations"))
    before = (call.get("pads") or [0] * 4)[:2]
    taps, inner, places = window[0] * window[1], channels // apart, g.shape(offset)[2:]
    moves = g.reshape(offset, [batch, apart, taps, 2, *places])
    dtype, points = g.dtype(offset), list[Points]()
    for n in range(2):
        own = np.indices(window)[n].ravel() * dilations[n] - float(before[n])
        tap = KnownArray(own.astype(numpy_dtype(dtype)).reshape(1, 1, taps, 1, 1), dtype)
        start = scalar(
            g, "multiply", g.cast(g.op("iota", places[n], "int64"), dtype), float(strides[n])
        )
        start = g.reshape(start, [1, 1, 1, *(places[n] if n == k else 1 for k in range(2))])
        shift = g.reshape(g.slice(moves, 3, n, n + 1), [batch, apart, taps, *places])
        points.append(linear_points(g, g.binary("add", shift, g.binary("add", start, tap))))
    images = g.transpose(g.reshape(x, [batch, apart, inner, *g.shape(x)[2:]]), [0, 1, 3, 4, 2])
    first = [
        g.reshape(g.op("iota", count, "int64"), [-1 if n == k else 1 for k in range(5)])
        for n, count in enumerate((batch, apart))
    ]
    read = _joined_elements(g, images, first, points, "zeros", True, "add")
    if mask is not None:
        read = g.binary("multiply", read, g.reshape(mask, [batch, apart, taps, *places, 1]))
    columns = g.reshape(
        g.transpose(read, [0, 1, 5, 2, 3, 4]),
        [batch, groups, channels // groups * taps, arithmetic("*", *places)],
    )
    filters = g.whole(g.shape(w)[0], "the filters")
    weights = g.reshape(w, [1, groups, filters // groups, channels // groups * taps])
    weights = g.broadcast(weights, [batch, *g.shape(weights)[1:]])
    result = g.reshape(g.op("matmul", weights, columns), [batch, filters, *places])
    bias = call.input(3)
    return result if bias is None else g.binary("add", result, g.reshape(bias, [filters, 1, 1]))


def _place_in_elements(g: Context, place: Operand, whole: Element, corners: bool) -> Operand:
    """Return a place of -1 … 1 along an axis, in elements."""
    one = scalar(g, "multiply", scalar(g, "add", place, 1.0), 0.5)
    if corners:
        return g.binary("multiply", one, _size(g, extent(whole, -1), place))
    return scalar(g, "add", g.binary("multiply", one, _size(g, whole, place)), -0.5)


def _size(g: Context, whole: Element, beside: Operand) -> Operand:
    return g.cast(known_array(whole), g.dtype(beside))


def _around(g: Context, at: Operand, whole: Element, around: str, corners: bool) -> Operand:
    """Return a place that is inside, but for zeros around: the nearest where it is beyond the ends, or mirrored about them."""
    if around == "zeros":
        return at
    low = 0.0 if corners else -0.5
    span = _size(g, extent(whole, -1) if corners else whole, at)
    if around == "border":
        last = g.binary("less_equal", at, scalar(g, "add", span, low))
        inside = g.binary("logical_and", scalar(g, "greater_equal", at, low), last)
        return g.op("where", inside, at, clip_places(g, at, whole))
    from_low = g.op("absolute", scalar(g, "add", at, -low))
    turn = scalar(g, "maximum", g.binary("add", span, span), 1.0)  # of one element there is no span
    back = g.binary("remainder", from_low, turn)
    mirrored = g.binary("minimum", back, g.binary("subtract", turn, back))
    return scalar(g, "add", mirrored, low)


def clip_places(g: Context, at: Operand, whole: Element) -> Operand:
    """Return the nearest places that an axis has."""
    most = g.binary("minimum", at, _size(g, extent(whole, -1), at))
    return scalar(g, "maximum", most, 0.0)


def is_inside(g: Context, at: Operand, whole: Element) -> Operand:
    """1 where a place is one of the axis, else 0."""
    first = scalar(g, "greater_equal", at, 0.0)
    last = g.binary("less", at, _size(g, whole, at))
    return g.cast(g.binary("logical_and", first, last), g.dtype(at))


def _nearest_point(g: Context, at: Operand) -> Points:
    return [(at, None)]


def linear_points(g: Context, at: Operand) -> Sequence[tuple[Operand, Operand]]:
    """Return the two places around each, and what they weigh."""
    first: Operand = g.op("floor", at)
    part = g.binary("subtract", at, first)
    other = scalar(g, "add", g.op("negative", part), 1.0)
    return [(first, other), (scalar(g, "add", first, 1.0), part)]


def cubic_points(g: Context, at: Operand, a: float = CUBIC) -> Sequence[tuple[Operand, Operand]]:
    """Return the four places around each, and what they weigh, by the kernel of Keys with the constant `a`."""
    first: Operand = g.op("floor", at)
    part = g.binary("subtract", at, first)
    points = list[tuple[Operand, Operand]]()
    for step in (-1.0, 0.0, 1.0, 2.0):
        away = g.op("absolute", scalar(g, "add", g.op("negative", part), step))
        near, far = (a + 2, -(a + 3), 0.0, 1.0), (a, -5 * a, 8 * a, -4 * a)
        rates = near if step in (0.0, 1.0) else far
        weight: Operand = scalar(g, "add", scalar(g, "multiply", away, rates[0]), rates[1])
        for rate in rates[2:]:
            weight = scalar(g, "add", g.binary("multiply", weight, away), rate)
        points.append((scalar(g, "add", first, step), weight))
    return points


POINTS: Mapping[str, Callable[[Context, Operand], Points]] = {
    "cubic": cubic_points,
    "linear": linear_points,
    "nearest": _nearest_point,
}

SAMPLING: Mapping[str, Operator] = {
    "DeformConv": _deformable_convolution,
    "GridSample": _grid_sample,
    "RoiAlign": _roi_align,
}
