"""Resize: images at another size, along axes of known and of symbolic extent.

Along an axis of a known extent it is a linear map, whatever its modes: the matrix is read off the reference evaluator, which is given
the identity. Nearest neighbours are a choice of places. Along an axis of symbolic extent they are `interpolate`, or sums of what lies there.

Along an axis of symbolic extent an image at another size: each element by its place among those that there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import partial, reduce
from typing import Any

import numpy as np
from onnx import helper

from offcut.core.dtypes import numpy_dtype
from offcut.core.expr import Expr
from offcut.core.integers import MOST_PARTS, simple_fraction
from offcut.describe.request import Array
from offcut.graph.sizes.extent_values import arithmetic, extent, product
from offcut.plugins.onnx.images.sampling import (
    CUBIC,
    clip_places,
    cubic_points,
    is_inside,
    linear_points,
)
from offcut.plugins.onnx.importer.context import Context
from offcut.plugins.onnx.importer.nonnegative_extents import require_minimum_sizes
from offcut.plugins.onnx.importer.operands import (
    Call,
    Element,
    KnownArray,
    Operand,
    Results,
    UnsupportedNode,
    check_count,
    format_values,
    known_array,
)
from offcut.plugins.onnx.rules.elementwise import Operator, number, scalar


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


LONGEST = 4096
SPATIAL = 3
"""Axes that `interpolate` takes at once."""


def _resize(g: Context, call: Call) -> Results:
    x = call[0]
    call.overlook("mode", "nearest_mode", "antialias", "cubic_coeff_a", "exclude_outside")
    call.overlook("extrapolation_value")  # of a crop, too
    first = 1 if call.version < 11 else 2
    by_attribute = call.get("scales")  # of the oldest ones
    numbers = by_attribute if by_attribute is not None else g.numbers(call.input(first), "scales")
    scales = [float(one) for one in numbers]
    sizes = g.elements(call.input(3), "sizes") if call.version >= 11 else []
    axes = [g.axis(x, one) for one in call.get("axes") or range(g.rank(x))]
    crops = call.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    region = call.input(1) if call.version >= 11 else None  # of a crop alone
    roi = g.numbers(region, "roi") if crops else []
    if call.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        wholes = [g.whole(g.shape(x)[axis], "an extent that keeps its aspect") for axis in axes]
        scales, sizes = _kept_aspect(call, wholes, [int(one) for one in sizes])
    if not sizes:
        check_count(scales, len(axes), "scales")
    elif not scales:
        check_count(sizes, len(axes), "sizes")
    if crops:
        check_count(roi, 2 * len(axes), "ends of a crop")
    repeated = dict[int, int]()
    for place, axis in enumerate(axes):
        whole = g.shape(x)[axis]
        size = sizes[place] if sizes else None
        scale = scales[place] if scales else None
        if crops:
            crop = float(roi[place]), float(roi[place + len(axes)])
            x = _resize_cropped(g, call, x, axis, scale, size, crop)
            continue
        if scale == 1 or (size is not None and g.same(size, whole)):
            continue
        times = _times(g, call, whole, scale, size)
        if times:
            repeated[axis] = times
        else:
            x = _along(g, call, x, axis, scale, size)
    return _repeat_elements(g, x, repeated)


def _resize_cropped(
    g: Context,
    call: Call,
    x: Operand,
    axis: int,
    scale: float | None,
    extent: Element | None,
    crop: tuple[float, float],
) -> Operand:
    """Return a part of an axis of known extents at another size; what lies beyond the ends is a number."""
    shape = g.shape(x)
    whole = g.whole(shape[axis], "an extent that is cropped")
    size = None if extent is None else g.whole(extent, "the extent of a crop")
    inside, beyond = (_matrix(call, whole, scale, size, (*crop, one)) for one in (0.0, 1.0))
    resized = _by_matrix(g, call, x, axis, inside)
    outside = (inside != beyond).any(axis=1)
    if not outside.any():
        return resized
    along = [len(outside) if n == axis else 1 for n in range(len(shape))]
    holds = g.broadcast(KnownArray(outside.reshape(along), "bool"), g.shape(resized))
    return g.op("where", holds, float(call.get("extrapolation_value", 0.0)), resized)


def _kept_aspect(
    call: Call, wholes: Sequence[int], sizes: Sequence[int]
) -> tuple[list[float], list[int]]:
    """Return the same factor for all axes, that of the one that is least or most scaled."""
    ratios = [size / whole for size, whole in zip(sizes, wholes, strict=True)]
    policy = call.get("keep_aspect_ratio_policy")
    ratio = min(ratios) if policy == "not_larger" else max(ratios)
    return [ratio] * len(wholes), [int(ratio * whole + 0.5) for whole in wholes]


def _along(
    g: Context, call: Call, x: Operand, axis: int, scale: float | None, extent: Element | None
) -> Operand:
    whole = g.shape(x)[axis]
    if not g.is_float(x) and call.get("mode", "nearest") != "nearest":
        raise UnsupportedNode(f"weights of {g.dtype(x)}", "floats")
    if not isinstance(whole, Expr) and not isinstance(extent, Expr):
        size = g.whole(whole, "an extent")
        matrix = _matrix(call, size, scale, None if extent is None else int(extent))
        return _by_matrix(g, call, x, axis, matrix)
    return _resize_symbolic(g, call, x, axis, scale, extent)


def _resize_symbolic(
    g: Context, call: Call, x: Operand, axis: int, scale: float | None, size: Element | None
) -> Operand:
    """Along an axis of symbolic extent: in the modes that `offcut.ops` has, by its operator."""
    shape, how = g.shape(x), call.get("mode", "nearest")
    nearest = how == "nearest"
    mode = call.get("coordinate_transformation_mode", "half_pixel")
    mode = "asymmetric" if call.version < 11 else mode
    modes = ("asymmetric",) if nearest else ("half_pixel", "pytorch_half_pixel", "align_corners")
    rounding = "floor" if call.version < 11 else call.get("nearest_mode", "round_prefer_floor")
    if (
        mode not in modes
        or (nearest and (rounding != "floor" or not _is_fraction(scale)))
        or (how == "cubic" and call.get("cubic_coeff_a", -0.75) != -0.75)
        or call.get("antialias", 0)
        or call.get("exclude_outside", 0)
    ):
        return resample(g, call, x, axis, scale, size)
    before, after = product(shape[:axis]), product(shape[axis + 1 :])
    flat = g.reshape(x, [before, shape[axis], after])
    result = g.op(
        "interpolate", flat, layout="NWC", mode=how,
        align_corners=mode == "align_corners",
        **({"size": size} if scale is None else {"scale": scale}),
    )  # fmt: skip
    count = g.shape(result)[1]
    if mode == "pytorch_half_pixel":  # one element is the first, not that in the middle
        require_minimum_sizes(g, extent(count, -2))
        if g.bounds(count)[0] < 2:
            raise UnsupportedNode(
                f"pytorch_half_pixel to {format_values(count)} elements", "two at least"
            )
    return g.reshape(result, [*shape[:axis], count, *shape[axis + 1 :]])


def _times(
    g: Context, call: Call, whole: Element, scale: float | None, extent: Element | None
) -> int:
    """Return how often each element is repeated; 0: the result is no such thing."""
    if call.get("mode", "nearest") != "nearest" or not _repeats(call):
        return 0
    for factor in range(1, 17):
        same = extent is not None and g.same(arithmetic("*", factor, whole), extent)
        if scale == factor or (scale is None and same):
            return factor
    return 0


def _repeats(call: Call) -> bool:
    """Return whether the nearest neighbour of place i, by a whole factor s, is that at i // s."""
    mode = call.get(
        "coordinate_transformation_mode", "half_pixel" if call.version >= 11 else "asymmetric"
    )
    rounding = call.get("nearest_mode", "round_prefer_floor" if call.version >= 11 else "floor")
    if mode in ("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric"):
        return bool(rounding.startswith("round"))
    return bool(mode == "asymmetric" and rounding == "floor")


def _is_fraction(scale: float | None) -> bool:
    """Return whether a scale is exactly a simple fraction; a rounded one (1.7) gives ties that only float32 decides as onnxruntime does."""
    return scale is None or simple_fraction(scale) == Fraction(scale)


def _repeat_elements(g: Context, x: Operand, times: Mapping[int, int]) -> Operand:
    """Return `x` with each element along some axes as often as these say: all axes at once, if these are among the last three."""
    if not times:
        return x
    first, rank = min(times), g.rank(x)
    if rank - first <= SPATIAL:
        shape = g.shape(x)
        apart = g.reshape(x, [1, product(shape[:first]), *shape[first:]])
        scale = tuple(times.get(axis, 1) for axis in range(first, rank))
        result: Operand = g.op("interpolate", apart, scale=scale)
        return g.reshape(result, [*shape[:first], *g.shape(result)[2:]])
    x = _repeat_elements(g, x, {axis: count for axis, count in times.items() if axis != first})
    shape = g.shape(x)
    apart = g.reshape(x, [product(shape[:first]), shape[first], product(shape[first + 1 :])])
    result = g.op("interpolate", apart, layout="NWC", scale=times[first])
    return g.reshape(result, [*shape[:first], g.shape(result)[1], *shape[first + 1 :]])


def _by_matrix(g: Context, call: Call, x: Operand, axis: int, matrix: Array) -> Operand:
    """Along an axis of known extents."""
    shape, whole = g.shape(x), matrix.shape[1]
    if call.get("mode", "nearest") == "nearest":
        return g.op("take", x, KnownArray(matrix.argmax(axis=1), "int64"), axis=axis)
    dtype = g.dtype(x)
    weights = KnownArray(matrix.astype(numpy_dtype(dtype)), dtype)
    before, after = shape[:axis], shape[axis + 1 :]
    flat = g.reshape(x, [product(before), whole, product(after)])
    result: Operand = g.op("matmul", weights, flat)
    return g.reshape(result, [*before, matrix.shape[0], *after])


def _matrix(
    call: Call,
    whole: int,
    scale: float | None,
    extent: int | None,
    crop: tuple[float, float, float] | None = None,
) -> Array:
    """What each of `whole` elements adds to each element of the result: (result, whole).

    crop  where a part of the axis begins and ends, and what is beyond the axis

    Raises Refused where there are too many elements.
    """
    from onnx.reference import ReferenceEvaluator  # loads all operators that there are

    if whole > LONGEST:
        raise UnsupportedNode(f"an axis of {whole} elements", f"{LONGEST} at most")
    skipped = ("scales", "axes", "keep_aspect_ratio_policy", "extrapolation_value")
    options = {name: value for name, value in call.attributes.items() if name not in skipped}
    old = call.version < 11
    if old:
        options |= {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    basis = np.eye(whole, dtype=np.float64 if options.get("mode") == "cubic" else np.float32)
    inputs: list[tuple[str, Any]] = [("x", basis)]
    if scale is not None and extent is None:
        inputs.append(("scales", np.array([1.0, scale], np.float32)))
        names = ["x", "", "scales"]
    else:
        inputs.append(("sizes", np.array([whole, extent], np.int64)))
        names = ["x", "", "", "sizes"]
    if crop is not None:
        inputs.append(("roi", np.array([0.0, crop[0], 1.0, crop[1]], np.float32)))
        names[1], options["extrapolation_value"] = "roi", crop[2]
    node = helper.make_node("Resize", names, ["y"], **options)
    version = 13 if old else call.version
    function = helper.make_function(
        "", "resized", [name for name, _ in inputs], ["y"], [node], [helper.make_opsetid("", version)]
    )  # fmt: skip
    result: Array = ReferenceEvaluator(function).run(None, dict(inputs), attributes={})[0]
    return result.T


RESIZING: Mapping[str, Operator] = {"Resize": _resize, "Upsample": _resize}
