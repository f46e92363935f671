"""Operators that rearrange, and those that speak of shapes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from offcut.core.expr import Expr
from offcut.core.integers import MOST_PARTS, binary_fraction
from offcut.graph.sizes.extent_values import arithmetic, extent, plain, product
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
    dtype_of,
    format_values,
    known_array,
)
from offcut.plugins.onnx.importer.unification import is_one, require_one
from offcut.plugins.onnx.rules.elementwise import Operator, number
from offcut.plugins.operators.windows import pad, tile, wrap


def attribute_or_input(g: Context, call: Call, place: int, name: str) -> list[int] | None:
    """Numbers that are an attribute in older operator sets and an input in newer; None where they are left out."""
    if name in call.attributes:
        values = call.get(name)
        return [int(one) for one in values] if isinstance(values, list) else [int(values)]
    operand = call.input(place)
    return None if operand is None else [int(one) for one in g.numbers(operand, name)]


def axes_of(g: Context, x: Operand, axes: Sequence[int]) -> list[int]:
    """Axes counted from the first."""
    return [g.axis(x, axis) for axis in axes]


def _shape(g: Context, call: Call) -> Results:
    shape = g.shape(call[0])
    start, end = call.get("start", 0), call.get("end", len(shape))
    return known_array(list(shape[slice(start, end)]))


def _reshape(g: Context, call: Call) -> Results:
    x = call[0]
    own = g.shape(x)
    extents = call.get("shape") if call.version < 5 else g.elements(call[1], "shape")
    keeps_zeros = not call.get("allowzero", 0)
    if keeps_zeros and any(one == 0 and n >= len(own) for n, one in enumerate(extents)):
        raise UnsupportedNode(f"it keeps an extent of {len(own)} axes that is not there")
    shape = [
        own[n] if keeps_zeros and isinstance(one, int) and one == 0 else one
        for n, one in enumerate(extents)
    ]
    return g.reshape(x, _shape_without_minus_one(g, own, [plain(one) for one in shape]))


def _shape_without_minus_one(
    g: Context, own: Sequence[Element], shape: list[Element]
) -> list[Element]:
    """Return a shape without -1."""
    missing = [n for n, one in enumerate(shape) if isinstance(one, int) and one == -1]
    if len(missing) == 1 and not any(isinstance(one, Expr) for one in (*own, *shape)):
        (place,) = missing
        rows = math.prod(one for n, one in enumerate(shape) if n != place)  # type: ignore[misc]
        if rows:
            count = math.prod(own)  # type: ignore[arg-type]
            if count % rows:
                raise UnsupportedNode(
                    f"it has {count} elements, and [{format_values(*shape)}] is of a multiple of {rows}"
                )
            shape[place] = count // rows
    return shape


def _flatten(g: Context, call: Call) -> Results:
    x, axis = call[0], call.get("axis", 1)
    shape = g.shape(x)
    if not -len(shape) <= axis <= max(len(shape), 1):
        raise UnsupportedNode(f"there is no axis {axis} of {len(shape)}")
    first = shape[:axis]
    return g.reshape(x, (product(first), product(shape[len(first) :])))


def _squeeze(g: Context, call: Call) -> Results:
    x = call[0]
    shape, axes = g.shape(x), attribute_or_input(g, call, 1, "axes")
    if axes is None:
        gone = [axis for axis, one in enumerate(shape) if is_one(g, one, axis)]
    else:
        gone = axes_of(g, x, axes)
    for axis in gone:
        require_one(g, shape[axis], axis)
        x = g.slice(x, axis, 0, 1)
    return g.reshape(x, [one for n, one in enumerate(shape) if n not in gone])


def emit_unsqueeze(g: Context, x: Operand, axes: Sequence[int]) -> Operand:
    """Return an operand with axes of extent 1, counted in the result."""
    rank = g.rank(x) + len(axes)
    new, own = {axis % rank for axis in axes if -rank <= axis < rank}, iter(g.shape(x))
    if len(new) < len(axes):
        raise UnsupportedNode(f"axes {format_values(*axes)} of {rank}", "each axis once")
    return g.reshape(x, [1 if n in new else next(own) for n in range(rank)])


def _transpose(g: Context, call: Call) -> Results:
    return g.transpose(call[0], call.get("perm") or list(range(g.rank(call[0])))[::-1])


def _concat(g: Context, call: Call) -> Results:
    parts = call.present
    axis = g.axis(parts[0], call.get("axis", 1))
    return parts[0] if len(parts) == 1 else g.op("concat", tuple(parts), axis=axis)


def _split_axis(g: Context, call: Call) -> Results:
    x = call[0]
    axis = g.axis(x, call.get("axis", 0))
    whole, sizes = g.shape(x)[axis], attribute_or_input(g, call, 1, "split")
    if sizes is None:
        count = call.get("num_outputs", call.outputs)
        part = arithmetic("//", extent(whole, count - 1), count)
        ends = [arithmetic("min", arithmetic("*", n + 1, part), whole) for n in range(count - 1)]
    else:
        because = f"parts of {format_values(*sizes)} elements, of {format_values(whole)}"
        if min(sizes) < 0:
            raise UnsupportedNode(because)
        if not g.same(whole, sum(sizes)):
            raise UnsupportedNode(because, equations=[(whole, sum(sizes))])
        ends = [sum(sizes[: n + 1]) for n in range(len(sizes) - 1)]
    places = [0, *ends, whole]
    return tuple(g.slice(x, axis, places[n], places[n + 1]) for n in range(len(places) - 1))


def _slice(g: Context, call: Call) -> Results:
    x = call[0]
    if call.version < 10:
        starts, ends, axes = call.get("starts"), call.get("ends"), call.get("axes")
        steps = None
    else:
        starts, ends = g.elements(call[1], "starts"), g.elements(call[2], "ends")
        axes, steps = (
            attribute_or_input(g, call, 3, "axes"),
            attribute_or_input(g, call, 4, "steps"),
        )
    axes = axes if axes is not None else list(range(len(starts)))
    steps = steps if steps is not None else [1] * len(starts)
    for values, what in ((ends, "ends"), (axes, "axes"), (steps, "steps")):
        check_count(values, len(starts), what)
    for start, end, axis, step in zip(starts, ends, axes_of(g, x, axes), steps, strict=True):
        x = _slice_axis(g, x, axis, start, end, step)
    return x


def _slice_axis(
    g: Context, x: Operand, axis: int, start: Element, end: Element, step: int
) -> Operand:
    """``start:end:step`` of an axis; with a step below 0 that of the reversed axis, in which place k is place -1 - k."""
    whole = last = g.shape(x)[axis]
    if step < 0:
        x, step = g.op("flip", x, (axis,)), -step
        start, end = (extent(-1, _minus(one)) for one in (start, end))
        last = _clip_extent(g, extent(whole, -1), 0, "max")
    low, high = _inside(g, start, whole, last), _inside(g, end, whole, whole)
    return g.slice(x, axis, low, _clip_extent(g, high, low, "max"), step)


def _minus(value: Element) -> Element:
    return arithmetic("*", -1, value)


def _inside(g: Context, value: Element, whole: Element, last: Element) -> Element:
    """Return a place, counted from the end where it is below 0, that is not below 0 nor beyond the last.

    Sizes are large enough that it is on one side of 0: of ``n - 4`` that it is not below, of ``1 - n`` that it is.

    Raises Refused where no size does that.
    """
    floor, top = g.bounds(value)
    if top < 0:
        return _clip_extent(g, extent(value, whole), 0, "max")
    if floor < 0:
        require_minimum_sizes(g, value)
        require_minimum_sizes(g, extent(_minus(value), -1))
        raise UnsupportedNode(f"a place of {format_values(value)}, which may be below 0 or not")
    if last is whole:
        return _clip_extent(g, value, last, "min")
    return extent(last, _minus(_clip_extent(g, extent(last, _minus(value)), 0, "max")))


def _clip_extent(g: Context, value: Element, end: Element, op: str) -> Element:
    """Return the less or the greater of two, decided where it can be."""
    least, most = g.bounds(extent(value, arithmetic("*", -1, end)))
    if most <= 0:
        return value if op == "min" else end
    if least >= 0:
        return end if op == "min" else value
    return arithmetic(op, value, end)


def _expand(g: Context, call: Call) -> Results:
    x, extents = call[0], g.elements(call[1], "shape")
    own = [1] * (len(extents) - g.rank(x)) + list(g.shape(x))
    extents = [1] * (len(own) - len(extents)) + list(extents)
    shape = []
    for mine, other in zip(own, extents, strict=True):
        if other != 1 and mine != 1 and not g.same(mine, other):
            raise UnsupportedNode(
                f"extents {format_values(mine)} and {format_values(other)} are neither 1 nor seen to be equal",
                equations=[(mine, other)],
            )
        shape.append(plain(mine if other == 1 else other))
    return g.broadcast(x, shape)


def _tile(g: Context, call: Call) -> Results:
    counts = g.elements(call[1], "repeats")
    check_count(counts, g.rank(call[0]), "repeats")
    if any(isinstance(one, Expr) for one in counts):
        return cast("Operand", tile(g, call[0], counts))
    return g.op("repeat", call[0], tuple(counts))


def _pad(g: Context, call: Call) -> Results:
    x, mode = call[0], call.get("mode", "constant")
    rank = g.rank(x)
    if call.version < 11:
        amounts, value = list(call.get("pads") or call.get("paddings")), call.get("value", 0.0)
    else:
        amounts = g.elements(call[1], "pads")
        value = g.number(call.input(2), "constant_value", 0)
    axes = g.numbers(call.input(3), "axes") if call.input(3) is not None else range(rank)
    check_count(amounts, 2 * len(axes), "pads")
    before: list[Any] = [0] * rank
    after: list[Any] = [0] * rank
    for place, axis in enumerate(axes_of(g, x, list(axes))):
        before[axis], after[axis] = amounts[place], amounts[place + len(axes)]
    symbolic = [one for one in (*before, *after) if isinstance(one, Expr)]
    if symbolic and mode != "wrap":
        return cast("Operand", pad(g, x, before, after, mode, value))
    if symbolic and mode == "wrap":
        raise UnsupportedNode(
            f"it is padded by {format_values(*symbolic)}, with mode={mode}", "mode=constant"
        )
    for axis, (low, high) in enumerate(zip(before, after, strict=True)):
        if low < 0 or high < 0:
            whole = g.shape(x)[axis]
            x = g.slice(x, axis, max(-low, 0), extent(whole, min(high, 0)))
    before, after = [max(one, 0) for one in before], [max(one, 0) for one in after]
    if mode != "wrap":
        return cast("Operand", pad(g, x, before, after, mode, value))
    for whole, most in zip(g.shape(x), map(max, before, after), strict=True):
        if most > g.bounds(whole)[0]:
            raise UnsupportedNode(
                f"it wraps {most} elements around an axis of {format_values(whole)}"
            )
    return cast("Operand", wrap(g, x, before, after))


def _constant_of_shape(g: Context, call: Call) -> Results:
    value = call.get("value")
    one = np.zeros(1, np.float32) if value is None else value
    shape = g.elements(call[0], "shape")
    return g.broadcast(KnownArray(one.reshape(()), str(one.dtype)), [plain(size) for size in shape])


def _range(g: Context, call: Call) -> Results:
    start, limit, delta = (
        g.elements(call[n], name)[0] for n, name in enumerate(("start", "limit", "delta"))
    )
    dtype = g.dtype(call[0])
    start, limit, delta = map(_whole, (start, limit, delta))
    parts = [part for one in (start, limit, delta) if (part := _fraction(one)) is not None]
    if isinstance(delta, Expr) or delta == 0 or len(parts) < 3:
        raise UnsupportedNode(
            f"a range of {dtype} from {format_values(start)} to {format_values(limit)} by {format_values(delta)}",
            f"ends and a step that are multiples of 1/{MOST_PARTS}, the step no size and not 0",
        )
    scale = max(under for _, under in parts)
    begin, end = (arithmetic("*", scale // under, over) for over, under in parts[:2])
    span, step = extent(end, arithmetic("*", -1, begin)), int(scale * delta)
    if step < 0:
        span, step = arithmetic("*", -1, span), -step
    count = arithmetic("//", extent(span, step - 1), step)
    counted: Operand = g.op("iota", _clip_extent(g, count, 0, "max"), dtype)
    if delta != 1:
        counted = g.binary("multiply", counted, number(g, counted, delta))
    if start == 0:
        return counted
    return g.binary("add", counted, known_array(start, dtype))


def _fraction(value: Any) -> tuple[Element, int] | None:
    """Return a number or a size as one over a power of 2; None of other numbers."""
    if isinstance(value, int | Expr):
        return value, 1
    return binary_fraction(value) if isinstance(value, float) else None


def _whole(value: Any) -> Any:
    """Return a float that is a whole number as that."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _eye_like(g: Context, call: Call) -> Results:
    x, code = call[0], call.get("dtype")
    dtype = dtype_of(code) if code else g.dtype(x)
    rows, columns = g.shape(x)
    return g.cast(_diagonal(g, rows, columns, call.get("k", 0), "equal"), dtype)


def _diagonal(g: Context, rows: Element, columns: Element, k: Element, compare: str) -> Operand:
    """Where ``column compare row + k``."""
    down: Operand = g.op("iota", rows, "int64")
    if k != 0:
        down = g.binary("add", down, known_array(k))
    return g.binary(compare, g.op("iota", columns, "int64"), emit_unsqueeze(g, down, [1]))


def _trilu(g: Context, call: Call) -> Results:
    x = call[0]
    k = call.input(1)
    offset = g.elements(k, "k")[0] if k is not None else 0
    rows, columns = g.shape(x)[-2:]
    comparison = "greater_equal" if call.get("upper", 1) else "less_equal"
    return g.op("where", _diagonal(g, rows, columns, offset, comparison), x, number(g, x, 0))


def _blocks(g: Context, call: Call) -> Results:
    """DepthToSpace: parts of the channels become parts of the pixels."""
    x, b = call[0], call.get("blocksize")
    n, c, h, w = g.shape(x)
    depth = arithmetic("//", c, b * b)
    if call.get("mode", "DCR") == "DCR":
        apart, order = (n, b, b, depth, h, w), (0, 3, 4, 1, 5, 2)
    else:
        apart, order = (n, depth, b, b, h, w), (0, 1, 4, 2, 5, 3)
    transposed = g.transpose(g.reshape(x, apart), order)
    return g.reshape(transposed, (n, depth, arithmetic("*", h, b), arithmetic("*", w, b)))


def _pixels(g: Context, call: Call) -> Results:
    """SpaceToDepth: parts of the pixels become parts of the channels."""
    x, b = call[0], call.get("blocksize")
    n, c, h, w = g.shape(x)
    rows, columns = arithmetic("//", h, b), arithmetic("//", w, b)
    order = (0, 3, 5, 1, 2, 4) if call.get("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    apart = g.transpose(g.reshape(x, (n, c, rows, b, columns, b)), order)
    return g.reshape(apart, (n, arithmetic("*", c, b * b), rows, columns))


def _known_only(what: str) -> Any:
    def rule(g: Context, call: Call) -> Results:
        raise UnsupportedNode(
            f"{what} depends on values of its inputs",
            "from_onnx(…, constants={…}) of what it reads, where a call never changes it",
        )

    return rule


SHAPES: Mapping[str, Operator] = {
    "Compress": _known_only("how many elements it gives"),
    "Concat": _concat,
    "ConstantOfShape": _constant_of_shape,
    "DepthToSpace": _blocks,
    "Expand": _expand,
    "EyeLike": _eye_like,
    "Flatten": _flatten,
    "NonZero": _known_only("how many elements it gives"),
    "Pad": _pad,
    "Range": _range,
    "Reshape": _reshape,
    "Shape": _shape,
    "Size": lambda g, call: known_array(product(g.shape(call[0]))),
    "Slice": _slice,
    "SpaceToDepth": _pixels,
    "Split": _split_axis,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "Transpose": _transpose,
    "Trilu": _trilu,
    "Unique": _known_only("how many elements it gives"),
    "Unsqueeze": lambda g, call: emit_unsqueeze(
        g, call[0], attribute_or_input(g, call, 1, "axes") or []
    ),
}
