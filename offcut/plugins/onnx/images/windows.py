"""Convolutions and pooling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from offcut.core.dtypes import numpy_dtype
from offcut.core.expr import Expr
from offcut.graph.sizes.extent_values import arithmetic, extent, plain, product
from offcut.graph.sizes.extents import places
from offcut.plugins.onnx.importer.context import Context
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
from offcut.plugins.onnx.rules.reductions import emit_reduction
from offcut.plugins.operators.windows import (
    Windows,
    crop_windows,
    fold,
    pool,
    transposed_convolution,
)


def windows_of(g: Context, call: Call, x: Operand, sizes: Sequence[int]) -> Windows:
    """Return the windows of a node, `auto_pad` worked out.

    Raises Refused where padding depends on a size.
    """
    axes = len(sizes)
    strides = tuple(call.get("strides") or [1] * axes)
    dilations = tuple(call.get("dilations") or [1] * axes)
    pads = list(call.get("pads") or [0] * (2 * axes))
    before, after = pads[:axes], pads[axes:]
    call.overlook("kernel_shape")
    auto = call.get("auto_pad", "NOTSET")
    if auto == "VALID":
        before, after = [0] * axes, [0] * axes
    elif auto.startswith("SAME"):
        for n, whole in enumerate(g.shape(x)[2:]):
            reach = (sizes[n] - 1) * dilations[n] + 1
            total = _same_total(whole, reach, strides[n])
            less, more = total // 2, total - total // 2
            before[n], after[n] = (less, more) if auto == "SAME_UPPER" else (more, less)
    if any(one < 0 for one in (*before, *after)):
        raise UnsupportedNode("padding below 0", "a Slice before it")
    return Windows(tuple(sizes), strides, dilations, tuple(before), tuple(after))


def _same_total(whole: Element, reach: int, stride: int) -> int:
    if stride == 1:
        return reach - 1
    if isinstance(whole, Expr):
        raise UnsupportedNode(
            f"padding that depends on the size {format_values(whole)}: auto_pad with a stride of {stride}",
            "pads as numbers",
        )
    return max((-(-whole // stride) - 1) * stride + reach - whole, 0)


def window_sizes(g: Context, w: Operand) -> list[int]:
    """Return the spatial extents of weights."""
    return [g.whole(one, "the extent of a window") for one in g.shape(w)[2:]]


def emit_convolution(
    g: Context, x: Operand, w: Operand, bias: Operand | None, windows: Windows, groups: int
) -> Operand:
    """Return a convolution over one to three spatial axes."""
    axes = len(windows.sizes)
    if axes not in (1, 2, 3):
        raise UnsupportedNode(f"a convolution over {axes} spatial axes", "1 to 3")
    options: dict[str, Any] = {} if bias is None else {"bias": bias}
    result: Operand = g.op(
        f"conv{axes}d", x, w, stride=windows.strides, padding=windows.padding,
        dilation=windows.dilations, groups=groups, **options,
    )  # fmt: skip
    return result


def _conv(g: Context, call: Call) -> Results:
    x, w = call[0], call[1]
    windows = windows_of(g, call, x, window_sizes(g, w))
    return emit_convolution(g, x, w, call.input(2), windows, call.get("group", 1))


def _transposed_convolution(g: Context, call: Call) -> Results:
    x, w = call[0], call[1]
    call.overlook("kernel_shape", "auto_pad")
    sizes = window_sizes(g, w)
    axes = len(sizes)
    strides = tuple(call.get("strides") or [1] * axes)
    dilations = tuple(call.get("dilations") or [1] * axes)
    extra = list(call.get("output_padding") or [0] * axes)
    before, after = _transposed_pads(g, call, x, sizes, extra)
    options: dict[str, Any] = {} if call.input(2) is None else {"bias": call.input(2)}
    if axes > 3:
        raise UnsupportedNode(f"a transposed convolution over {axes} spatial axes", "1 to 3")
    even = before == after and all(
        0 <= one < step for one, step in zip(extra, strides, strict=True)
    )
    none = (0,) * len(extra)
    result: Operand = transposed_convolution(
        g, x, w, stride=strides,
        padding=tuple(before) if even else none, dilation=dilations,
        output_padding=tuple(extra) if even else none,
        groups=call.get("group", 1), **options,
    )  # fmt: skip
    return result if even else _crop_and_pad(g, result, before, after, extra, call.input(2))


def _transposed_pads(
    g: Context, call: Call, x: Operand, sizes: Sequence[int], extra: list[int]
) -> tuple[list[int], list[int]]:
    """What is cut off before and after; `extra` is what is added after."""
    axes = len(sizes)
    strides = call.get("strides") or [1] * axes
    dilations = call.get("dilations") or [1] * axes
    pads = list(call.get("pads") or [0] * (2 * axes))
    auto, extents = call.get("auto_pad", "NOTSET"), call.get("output_shape")
    if extents is None and not auto.startswith("SAME"):
        return pads[:axes], pads[axes:]
    before, after = [0] * axes, [0] * axes
    for n, whole in enumerate(g.shape(x)[2:]):
        reach = (sizes[n] - 1) * dilations[n] + 1
        if extents is None:
            total = max(reach - strides[n], 0) + extra[n]
        else:
            full = strides[n] * (g.whole(whole, "a spatial extent") - 1) + extra[n] + reach
            total = full - extents[-axes:][n]
        if total < 0:
            before[n], extra[n] = 0, extra[n] - total
            continue
        less, more = total // 2, total - total // 2
        before[n], after[n] = (less, more) if auto == "SAME_UPPER" else (more, less)
    return before, after


def _crop_and_pad(
    g: Context,
    x: Operand,
    before: Sequence[int],
    after: Sequence[int],
    extra: Sequence[int],
    bias: Operand | None,
) -> Operand:
    """Spatial axes without what is cut off, with what is added."""
    for axis, (low, high, more) in enumerate(zip(before, after, extra, strict=True), 2):
        end = more - high
        if end > 0:
            if bias is not None:
                raise UnsupportedNode(
                    "rows that are added after all, with a bias", "an Add after it"
                )
            padding = tuple(end if n == axis else 0 for n in range(g.rank(x)))
            x = g.op("pad", x, (0,) * g.rank(x), padding)
            end = 0
        whole = g.shape(x)[axis]
        x = g.slice(x, axis, low, extent(whole, end))
    return x


def _pool(g: Context, call: Call, x: Operand) -> tuple[Windows, list[Element | None]]:
    """Return the windows of pooling, and how many of them are kept along each axis, None: all. What `ceil_mode` adds is padding after."""
    windows = windows_of(g, call, x, call.get("kernel_shape"))
    if not call.get("ceil_mode", 0):
        return windows, [None] * len(windows.sizes)
    after: list[int] = []
    counts: list[Element | None] = []
    for n, whole in enumerate(g.shape(x)[2:]):
        ends = windows.before[n], windows.after[n]
        amount, count = _windows_rounded_up(whole, windows.reach[n], windows.strides[n], *ends)
        after.append(amount)
        counts.append(count)
    return replace(windows, after=tuple(after)), counts


def _windows_rounded_up(
    whole: Element, reach: int, stride: int, before: int, after: int
) -> tuple[int, Element | None]:
    """Padding after, and the number of windows: a last one that is not full counts, if it starts within."""
    # the last start is before the padding after, and no more than one window is not full
    more = min(after - reach + stride, 0) - 1
    count = plain(places(extent(whole, before), -more, stride))
    if isinstance(count, Expr):
        return after + stride - 1, count
    assert isinstance(whole, int)
    return max((count - 1) * stride + reach - whole - before, 0), None


def emit_pooling(
    g: Context, x: Operand, windows: Windows, name: str, **options: Any
) -> tuple[Operand, ...]:
    """Return the results of pooling over one to three spatial axes.

    name  of the operator over two; over three it has one result, and may be taken axis by axis

    Raises Refused for more axes.
    """
    if len(windows.sizes) not in (1, 2, 3):
        raise UnsupportedNode(f"pooling over {len(windows.sizes)} spatial axes", "1 to 3")
    results: tuple[Operand, ...] = pool(g, x, windows, name, **options)
    return results


def _max_pool(g: Context, call: Call) -> Results:
    x, columns = call[0], bool(call.get("storage_order", 0))
    windows, counts = _pool(g, call, x)
    if call.outputs == 1:
        (values,) = emit_pooling(g, x, windows, "max_pool2d")
        return g.of_some(crop_windows(g, values, counts), g.shape(x)[2:])
    if len(windows.sizes) > 2:
        raise UnsupportedNode("the places of what is greatest over three axes", "one output")
    results = emit_pooling(g, x, windows, "max_pool2d_with_places")
    values, places = (crop_windows(g, one, counts) for one in results)
    return g.of_some(values, g.shape(x)[2:]), _in_the_whole(g, x, places, columns)


def _in_the_whole(g: Context, x: Operand, places: Operand, columns: bool) -> Operand:
    """Places in images as places in all of `x`; rows of an image follow each other, or with `columns` its columns."""
    shape, axes = g.shape(x), g.rank(x) - 2
    if columns and axes == 2:
        height, width = (g.cast(known_array(one), "int64") for one in shape[2:])
        row = g.binary("floor_divide", places, width)
        column = g.binary("remainder", places, width)
        places = g.binary("add", g.binary("multiply", column, height), row)
    image = g.op("iota", product(shape[:2]), "int64")
    before = g.binary("multiply", image, g.cast(known_array(product(shape[2:])), "int64"))
    return g.binary("add", places, g.reshape(before, (*shape[:2], *[1] * axes)))


def _unpool(g: Context, call: Call) -> Results:
    """Elements at their places among zeros; more rows and columns follow where a shape asks for them."""
    x, places, extents = call[0], call[1], call.input(2)
    sizes = call.get("kernel_shape")
    axes = len(sizes)
    strides, pads = call.get("strides") or [1] * axes, call.get("pads") or [0] * (2 * axes)
    rows, spatial = g.shape(x)[:2], g.shape(x)[2:]
    image = [
        extent(arithmetic("*", extent(one, -1), strides[n]), sizes[n] - pads[n] - pads[n + axes])
        for n, one in enumerate(spatial)
    ]
    flat = (product(g.shape(x)),)
    if extents is not None:
        check_count(g.elements(extents, "output_shape"), axes + 2, "extents of the result")
        larger = g.elements(extents, "output_shape")[2:]
        places, image = _in_larger(g, places, image, larger), larger
    zeros = g.full((product([*rows, *image]),), 0, g.dtype(x))
    flat_places, updates = g.reshape(places, flat), g.reshape(x, flat)
    result: Operand = g.op(
        "scatter_elements", zeros, flat_places, updates, 0, from_end=False, drop=False
    )
    return g.reshape(result, (*rows, *image))


def _in_larger(
    g: Context, places: Operand, image: Sequence[Element], larger: Sequence[Element]
) -> Operand:
    """Places in images as those of the same elements in images of more rows and columns."""
    place: Operand = known_array(0)
    factor: Operand = known_array(1)
    for own, wide in zip(reversed(image), reversed(larger), strict=True):
        whole = g.cast(known_array(own), "int64")
        digit = g.binary("multiply", g.binary("remainder", places, whole), factor)
        place = g.binary("add", place, digit)
        places = g.binary("floor_divide", places, whole)
        factor = g.binary("multiply", factor, g.cast(known_array(wide), "int64"))
    return g.binary("add", place, g.binary("multiply", places, factor))


def _averages(g: Context, call: Call) -> Operand:
    x = call[0]
    windows, counts_of_axes = _pool(g, call, x)
    inside = bool(call.get("count_include_pad", 0))
    plain = all(one == 1 for one in windows.dilations)
    if plain and not (call.get("ceil_mode", 0) and inside):
        (mean,) = emit_pooling(g, x, windows, "avg_pool2d", count_include_pad=inside)
        averages: Operand = crop_windows(g, mean, counts_of_axes)
        return averages
    counted = windows_of(g, call, x, call.get("kernel_shape")) if inside else None
    sums = emit_window_sums(g, x, windows)
    counts = _counts(g, x, windows, counted)
    return g.binary("divide", sums, KnownArray(counts.astype(numpy_dtype(g.dtype(x))), g.dtype(x)))


def emit_window_sums(g: Context, x: Operand, windows: Windows) -> Operand:
    """Return the sums of windows: a convolution of each channel with ones."""
    shape = g.shape(x)
    dtype = g.dtype(x)
    ones = np.ones((1, 1, *windows.sizes), numpy_dtype(dtype))
    flat = g.reshape(x, (product(shape[:2]), 1, *shape[2:]))
    result = emit_convolution(g, flat, KnownArray(ones, dtype), None, windows, 1)
    return g.reshape(result, (*shape[:2], *g.shape(result)[2:]))


def _counts(g: Context, x: Operand, windows: Windows, counted: Windows | None) -> Any:
    """Return how many elements of each window count.

    counted  the windows without what `ceil_mode` adds, where padding counts
    """
    total: Any = np.ones(())
    for n, whole in enumerate(g.shape(x)[2:]):
        before, after = (0, 0) if counted is None else (counted.before[n], counted.after[n])
        if (before, after) == (windows.before[n], windows.after[n]):  # all of each window
            total = total[..., None] * np.array([windows.sizes[n]])
            continue
        size = g.whole(whole, "a spatial extent, where windows are averaged so,")
        span = size + windows.before[n] + windows.after[n]
        starts = np.arange(0, span - windows.reach[n] + 1, windows.strides[n]) - windows.before[n]
        places = starts[:, None] + np.arange(windows.sizes[n]) * windows.dilations[n]
        here = ((places >= -before) & (places < size + after)).sum(axis=1)
        total = total[..., None] * here
    return total


def _power_pool(g: Context, call: Call) -> Results:
    """``(sum of |x|**p) ** (1/p)`` of windows."""
    x, p = call[0], call.get("p", 2)
    windows, counts = _pool(g, call, x)
    result = crop_windows(g, _root(g, emit_window_sums(g, _power(g, x, p), windows), p), counts)
    return g.of_some(result, g.shape(x)[2:])


def _power(g: Context, x: Operand, p: int) -> Operand:
    size: Operand = g.op("absolute", x)
    if p == 1:
        return size
    return g.op("square", x) if p == 2 else scalar(g, "power", size, float(p))


def _root(g: Context, x: Operand, p: int) -> Operand:
    if p == 1:
        return x
    return g.op("sqrt", x) if p == 2 else scalar(g, "power", x, 1 / p)


def _whole_image(g: Context, call: Call, *, name: str) -> Results:
    x = call[0]
    return g.of_some(emit_reduction(g, name, x, list(range(2, g.rank(x))), True), g.shape(x)[2:])


def _global_power(g: Context, call: Call) -> Results:
    x, p = call[0], call.get("p", 2)
    axes = list(range(2, g.rank(x)))
    total = g.of_some(emit_reduction(g, "sum", _power(g, x, p), axes, True), g.shape(x)[2:])
    return _root(g, total, p)


def _local_response(g: Context, call: Call) -> Results:
    """``x / (bias + alpha/size * sum of x**2 over channels nearby) ** beta``."""
    x, size = call[0], call.get("size")
    alpha, beta, bias = call.get("alpha", 1e-4), call.get("beta", 0.75), call.get("bias", 1.0)
    shape = g.shape(x)
    flat = g.reshape(g.op("square", x), (shape[0], 1, shape[1], product(shape[2:])))
    low = (size - 1) // 2
    near = Windows((size, 1), (1, 1), (1, 1), (low, 0), (size - 1 - low, 0))
    sums = g.reshape(emit_window_sums(g, flat, near), shape)
    base = scalar(g, "add", scalar(g, "multiply", sums, alpha / size), bias)
    return g.binary("divide", x, g.binary("power", base, number(g, base, beta)))


def _laid_over(g: Context, call: Call) -> Results:
    """Rows of windows, added up at their places; their channels are one axis, and so are their places."""
    x = call[0]
    image = g.elements(call[1], "image_shape")
    window = [int(one) for one in g.numbers(call[2], "block_shape")]
    axes = len(window)
    if axes > 3:
        raise UnsupportedNode(f"windows of {axes} axes", "of one to three")
    strides, dilations = (call.get(each) or [1] * axes for each in ("strides", "dilations"))
    pads = call.get("pads") or [0] * (2 * axes)
    for values, what in (
        (image, "extents of an image"),
        (strides, "strides"),
        (dilations, "dilations"),
    ):
        check_count(values, axes, what)
    check_count(pads, 2 * axes, "pads")
    each = window, strides, dilations, pads[:axes], pads[axes:]
    result: Operand = fold(g, x, image, Windows(*map(tuple, each)))
    return result


WINDOWS: Mapping[str, Operator] = {
    "AveragePool": lambda g, call: g.of_some(_averages(g, call), g.shape(call[0])[2:]),
    "Col2Im": _laid_over,
    "Conv": _conv,
    "ConvTranspose": _transposed_convolution,
    "GlobalAveragePool": partial(_whole_image, name="mean"),
    "GlobalLpPool": _global_power,
    "GlobalMaxPool": partial(_whole_image, name="max"),
    "LRN": _local_response,
    "LpPool": _power_pool,
    "MaxPool": _max_pool,
    "MaxUnpool": _unpool,
}
