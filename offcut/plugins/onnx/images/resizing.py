"""Resize: images at another size.

Along an axis of a known extent it is a linear map, whatever its modes: the matrix is read off the reference evaluator, which is given
the identity. Nearest neighbours are a choice of places. Along an axis of symbolic extent they are `interpolate`, or sums of what lies there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from onnx import helper

from offcut.core.dtypes import numpy_dtype
from offcut.core.expr import Expr
from offcut.core.integers import simple_fraction
from offcut.describe.request import Array
from offcut.graph.sizes.numbers import arithmetic, extent, product
from offcut.plugins.onnx.images.dynamic_resize import resample
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
)
from offcut.plugins.onnx.rules.elementwise import Operator

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
