"""The same elements in another shape, order or place; arrays of nothing but numbers.

Arrays of nothing but numbers: counts, constants, triangles.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

import numpy as np

from offcut.core import index as ix
from offcut.core.expr import Binary, Expr
from offcut.errors import DescribeError
from offcut.graph import Ref
from offcut.graph.sizes.extent_values import plain
from offcut.graph.sizes.extents import normal, span
from offcut.plugins.operators.windows import pad, tile, wrap
from offcut.plugins.torch.rule_table import Unsupported, register_rule
from offcut.plugins.torch.rules.functions import operand
from offcut.plugins.torch.translation import Translation


@register_rule(
    *("view", "_unsafe_view", "reshape", "unsqueeze"),
    *("flatten.using_ints", "unflatten.int", "view_as", "_reshape_copy", "reshape_as"),
    *("_reshape_alias", "view_copy", "unsqueeze_copy", "squeeze_copy"),
)
def reshape(t: Translation, x: Ref, *_: Any) -> Any:
    """To the shape that torch says; one extent that is symbolic and no size is what is left."""
    shape = [plain(extent) for extent in t.extents]
    own = [plain(extent) for extent in t.shape(x)]
    if 0 in own or 0 in shape:
        return t.reshape(x, shape)
    hard = [n for n, extent in enumerate(shape) if not isinstance(extent, int)]
    if len(hard) == 1:
        with suppress(DescribeError):
            return t.reshape(x, [-1 if n in hard else extent for n, extent in enumerate(shape)])
    return t.view_as_result(x)


@register_rule("squeeze", "squeeze.dim", "squeeze.dims")
def squeeze(t: Translation, x: Ref, dim: int | Sequence[int] | None = None) -> Any:
    """Without the axes that are 1 in the traced call: a call in which another is 1 is torch's."""
    axes = [dim] if isinstance(dim, int) else range(t.rank(x)) if dim is None else dim
    for axis in axes:
        if t.rank(x) and plain(t.shape(x)[axis]) != 1:
            t.require_at_least(t.shape(x)[axis], 2)
    return reshape(t, x)


@register_rule("expand", "expand_as", "broadcast_to", "expand_copy")
def expand(t: Translation, x: Ref, *_: Any, implicit: bool = False) -> Any:
    shape = t.extents
    return x if shape == t.shape(x) else t.node("broadcast_to", x, shape)


register_rule("permute", "permute_copy")(Translation.transpose)


@register_rule("slice.Tensor", "slice_copy.Tensor")
def part(
    t: Translation, x: Ref, axis: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Any:
    place = t.axis(x, axis)
    extent = t.extents[place]
    if isinstance(start, Expr) and step == 1 and end in (None, sys.maxsize):  # of either sign
        first = plain(normal(Binary("-", t.shape(x)[place], extent)))
    else:
        first = _start(t, x, place, 0 if start is None else start)
    return _strided_part(t, x, place, first, extent, step)


@register_rule("select.int", "select_copy.int")
def select(t: Translation, x: Ref, axis: int, number: Any) -> Any:
    place = t.axis(x, axis)
    if isinstance(number, int):
        t.require_at_least(t.shape(x)[place], number + 1 if number >= 0 else -number)
    one = _strided_part(t, x, place, _start(t, x, place, number), ix.const(1), 1)
    own = t.shape(one)
    return t.reshape(one, (*own[:place], *own[place + 1 :]))


@register_rule(
    "split.Tensor",
    "split_with_sizes",
    "chunk",
    "split",
    "split_copy.Tensor",
    "tensor_split.sections",
)
def split(t: Translation, x: Ref, _: Any, axis: int = 0) -> Any:
    place = t.axis(x, axis)
    extents = [t.extent(fake.shape[place]) for fake in t.fake]
    ends: list[Expr] = [ix.const(0)]
    for extent in extents:
        ends.append(normal(Binary("+", ends[-1], extent)))
    return tuple(t.slice(x, place, plain(start), plain(stop)) for start, stop in pairwise(ends))


@register_rule("cat", "concat", "concatenate")
def concat(t: Translation, operands: Sequence[Ref], axis: int = 0) -> Any:
    some = [
        one for one in operands if t.rank(one) > 1 or t.shape(one) != (ix.const(0),)
    ] or operands
    if len(some) == 1:
        return t.as_result(some[0])
    place, each = t.axis(some[0], axis), [t.as_result(one) for one in some]
    own = [t.shape(one) for one in each]
    beside = [n for n in range(t.rank(each[0])) if n != place]
    if any(shape[n] != own[0][n] for shape in own for n in beside):  # equal, as torch says
        extents = t.extents
        shapes = [(*extents[:place], shape[place], *extents[place + 1 :]) for shape in own]
        each = [t.with_shape(one, shape) for one, shape in zip(each, shapes, strict=True)]
    return t.node("concat", each, axis=place)


@register_rule("diagonal", "diagonal_copy")
def diagonal(t: Translation, x: Ref, offset: int = 0, one: int = 0, other: int = 1) -> Any:
    """The elements whose places along two axes differ by `offset`, along a last axis."""
    ends = t.axis(x, one), t.axis(x, other)
    rest = [axis for axis in range(t.rank(x)) if axis not in ends]
    count = plain(t.extents[-1])
    places = [t.node("iota", count, "int64") for _ in ends]
    if offset:
        side = 1 if offset > 0 else 0
        places[side] = t.node("add", places[side], abs(offset))
    return t.node("take", t.transpose(x, [*rest, *ends]), tuple(places), axis=len(rest))


@register_rule("unfold", "unfold_copy")
def unfold(t: Translation, x: Ref, axis: int, size: int, step: int) -> Any:
    """Windows of an axis, each `step` after the one before, their elements along a last axis."""
    return t.node("sliding_windows", x, t.axis(x, axis), size, step)


@register_rule("flip")
def flip(t: Translation, x: Ref, axes: Sequence[int]) -> Any:
    return t.node("flip", x, tuple(t.axis(x, axis) for axis in axes))


@register_rule("roll")
def roll(t: Translation, x: Ref, shifts: Any, axes: Any = ()) -> Any:
    if not axes:
        raise Unsupported("it rolls all axes as one")
    result = x
    for shift, axis in zip(shifts, axes, strict=True):
        place = t.axis(x, axis)
        extent = plain(t.shape(x)[place])
        if not isinstance(shift, int) or extent == 0:
            raise Unsupported("it rolls by a symbolic number")
        at: Any = -shift % extent if isinstance(extent, int) else -shift
        if (
            not isinstance(extent, int) and shift > 0
        ):  # a call where it is more than there are is refused
            at = plain(normal(Binary("+", extent, ix.const(-shift))))
        if at != 0:
            ends = [t.slice(result, place, at, extent), t.slice(result, place, 0, at)]
            result = t.node("concat", ends, axis=place)
    return result


@register_rule("repeat")
def repeat(t: Translation, x: Ref, counts: Sequence[Any]) -> Any:
    own = t.reshape(x, (*[1] * (len(counts) - t.rank(x)), *t.shape(x)))
    if all(count == 1 for count in counts):
        return own
    if all(isinstance(count, int) for count in counts):
        return t.node("repeat", own, tuple(counts))
    return tile(t, own, counts)


@register_rule("copy")
def copy(t: Translation, x: Ref, source: Ref, *_: Any) -> Any:
    result, shape = t.as_result(source), t.extents
    return result if shape == t.shape(result) else t.node("broadcast_to", result, shape)


@register_rule("slice_scatter")
def slice_scatter(
    t: Translation,
    x: Ref,
    source: Ref,
    axis: int = 0,
    start: Any = None,
    end: Any = None,
    step: int = 1,
) -> Any:
    place = t.axis(x, axis)
    first = _start(t, x, place, 0 if start is None else start)
    if step == 1:
        return _slice_replaced(t, x, source, place, first)
    return _strided_replaced(t, x, t.as_result(source), place, first, step)


def _slice_replaced(t: Translation, x: Ref, source: Ref, axis: int, start: Any) -> Any:
    """`x` with a part of an axis, from `start` on, that is `source` instead."""
    shape = t.shape(x)
    own, extent = t.shape(source)[axis], shape[axis]
    stop = plain(normal(Binary("+", ix.index(start), own)))
    operands = [t.with_shape(t.as_result(source), (*shape[:axis], own, *shape[axis + 1 :]))]
    if start != 0:
        operands.insert(0, t.slice(x, axis, 0, start))
    if stop != plain(extent):
        operands.append(t.slice(x, axis, stop, plain(extent)))
    result = operands[0] if len(operands) == 1 else t.node("concat", operands, axis=axis)
    return t.with_shape(result, shape)


def _strided_replaced(t: Translation, x: Ref, source: Ref, axis: int, start: Any, step: int) -> Any:
    """`x` with elements of an axis, each `step` after the one before, that are those of `source` instead."""
    count = plain(t.shape(source)[axis])
    if count == 0:
        return x
    places = t.node("iota", plain(t.shape(x)[axis]), "int64")
    ahead = t.node("subtract", places, t.scalar(start, "int64"))
    number = t.node("floor_divide", ahead, step)
    last = t.node("subtract", t.scalar(count, "int64"), 1)
    there = t.node(
        "logical_and", t.node("greater_equal", ahead, 0), t.node("less_equal", number, last)
    )
    there = t.node("logical_and", there, t.node("equal", t.node("remainder", ahead, step), 0))
    within = t.node("maximum", t.node("minimum", number, last), 0)
    elements = t.node("take", source, within, axis=axis, from_end=False)
    along = [-1 if n == axis else 1 for n in range(t.rank(x))]
    return t.node("where", t.reshape(there, along), elements, x)


_MODES = {"constant": "constant", "replicate": "edge", "reflect": "reflect"}


@register_rule("constant_pad_nd", "pad")
def pad_by_mode(
    t: Translation, x: Ref, amounts: Sequence[Any], mode: Any = "constant", value: Any = None
) -> Any:
    if not isinstance(mode, str):  # of constant_pad_nd, which has no modes
        mode, value = "constant", mode
    if mode == "circular":
        return _pad_circular(t, x, amounts)
    if mode not in _MODES:
        raise Unsupported(f"it pads by {mode}")
    return _pad_axes(t, x, amounts, _MODES[mode], 0 if value is None else value)


def _pad_circular(t: Translation, x: Ref, amounts: Sequence[Any]) -> Any:
    """The other end of each axis put before and after it."""
    if not all(isinstance(one, int) and one >= 0 for one in amounts):
        raise Unsupported("it is wrapped by a symbolic size, or cut")
    return wrap(t, x, *_by_axis(t, x, amounts))


@register_rule(*(f"reflection_pad{axes}d" for axes in (1, 2, 3)), mode="reflect")
@register_rule(*(f"replication_pad{axes}d" for axes in (1, 2, 3)), mode="edge")
def pad_around(t: Translation, x: Ref, amounts: Sequence[Any], *, mode: str) -> Any:
    return _pad_axes(t, x, amounts, mode, 0)


def _pad_axes(t: Translation, x: Ref, amounts: Sequence[Any], mode: str, value: Any) -> Any:
    value = float(value) if t.result.startswith(("float", "bfloat")) else value
    return pad(t, x, *_by_axis(t, x, amounts), mode, value)


def _by_axis(t: Translation, x: Ref, amounts: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """How many elements come before each axis, and how many after, of pairs for the last axes, the last one first."""
    rest = [0] * (t.rank(x) - len(amounts) // 2)
    return [*rest, *amounts[-2::-2]], [*rest, *amounts[::-2]]


def _start(t: Translation, x: Ref, axis: int, start: Any) -> Any:
    """Where a part starts, from 0 on and within the axis."""
    extent = plain(t.shape(x)[axis])
    if isinstance(start, int):
        if isinstance(extent, int):
            return max(start + extent, 0) if start < 0 else min(start, extent)
        return plain(normal(Binary("+", extent, ix.const(start)))) if start < 0 else start
    if span(start, tuple(t.builder.sizes.values()))[1] < 0:
        return plain(normal(Binary("+", ix.index(extent), start)))
    return start


def _strided_part(t: Translation, x: Ref, axis: int, start: Any, extent: Expr, step: int) -> Any:
    """`extent` elements of an axis, each `step` after the one before."""
    span = normal(Binary("*", Binary("-", extent, ix.const(1)), ix.const(step)))
    stop: Any = Binary("+", Binary("+", ix.index(start), span), ix.const(1))
    if step == 1:
        stop = Binary("+", ix.index(start), extent)
    if plain(extent) == 0:
        stop = start
    return t.slice(x, axis, start, plain(normal(ix.index(stop))), step)


@register_rule("full", "full_like", "new_full", "scalar_tensor")
def full(t: Translation, *arguments: Any, **_: Any) -> Any:
    return fill(t, arguments[-1])


@register_rule("ones", "ones_like", "new_ones", value=1)
@register_rule("zeros", "zeros_like", "new_zeros", value=0)
@register_rule("empty.memory_format", "empty_permuted", "new_empty", value=0)
def constant_array(t: Translation, *_: Any, value: int, **__: Any) -> Any:
    """What is said to be empty may hold anything, so that it may be 0."""
    return fill(t, value)


@register_rule("arange", "arange.start", "arange.start_step")
def arange(t: Translation, *bounds: Any, **_: Any) -> Any:
    start = _as_result_type(t, bounds[0]) if len(bounds) > 1 else 0
    step = _as_result_type(t, bounds[2]) if len(bounds) > 2 else 1
    result = t.node("iota", plain(t.extents[0]), t.result)
    if step != 1:
        result = t.node("multiply", result, operand(t, step, t.result))
    if start == 0 and not isinstance(step, float):
        t.steps[result.name] = normal(ix.index(step))
    return result if start == 0 else t.node("add", result, operand(t, start, t.result))


def _as_result_type(t: Translation, value: Any) -> Any:
    """A start or a step in the type of the result."""
    if "float" in t.result or not isinstance(value, float):
        return value
    if not value.is_integer():
        raise Unsupported(f"it counts integers by {value}")
    return int(value)


@register_rule("tril_indices", places=np.tril_indices)
@register_rule("triu_indices", places=np.triu_indices)
def triangle_places(
    t: Translation,
    rows: Any,
    columns: Any,
    offset: int = 0,
    *,
    places: Callable[..., Any],
    **_: Any,
) -> Any:
    """The rows and the columns of the elements of a triangle."""
    if not (isinstance(rows, int) and isinstance(columns, int)):
        raise Unsupported("how many places it has is not an expression in sizes")
    array = np.stack(places(rows, offset, columns)).astype(t.result)
    return t.builder.constant(t.builder.fresh("places"), array)


def fill(t: Translation, value: Any) -> Any:
    """The shape of the result, of one number."""
    number = t.cast(value, t.result) if isinstance(value, Ref) else t.scalar(value, t.result)
    return t.node("broadcast_to", number, t.extents) if t.extents else number
