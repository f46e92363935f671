"""The same elements elsewhere: transposed, joined, split, merged, padded.

Elements around a tensor: a value, its edge, or its mirror image.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from numbers import Real
from operator import and_
from typing import Any, TypeAlias

from offcut.core.dtypes import FLOATS
from offcut.core.integers import whole
from offcut.core.sizes import size_expr
from offcut.describe.functions import where
from offcut.describe.tensor import Tensor, compute
from offcut.describe.value import Value, cast
from offcut.errors import DescribeError
from offcut.ops.checks import (
    axis_letters,
    axis_number,
    axis_numbers,
    check_dtype,
    check_tensor,
    choice,
    integer,
    integers,
    is_one,
    of_operands,
    result_name,
    same_extent,
    several,
    unequal_error,
)

MODES = ("constant", "edge", "reflect")

Pieces: TypeAlias = list[tuple[Any, Callable[[Value], Any]]]
"""Ranges of an axis, one after the other: where each ends (the last: None), and what it reads there."""


def pad(
    x: Tensor,
    before: Any,
    after: Any,
    value: float | Tensor = 0.0,
    mode: str = "constant",
    *,
    name: str | None = None,
) -> Tensor:
    """`x` with `before` and `after` more elements along each axis.

    x               of any shape and element type
    before, after   one int for each axis, or one for all; below 0, as many are left out. With mode "constant"
                    expressions in sizes, too
    value           of the new elements with mode "constant": a number that the element type holds, or a tensor of
                    that type and of shape ()
    mode            "constant"; "edge", the nearest element of `x`; "reflect", mirrored about it. Sizes
                    at which there is no such element (an axis of 0, or not longer than what is
                    mirrored) are refused when the program is compiled

    Raises DescribeError where an argument is no such thing, or more is left out than there is.
    """
    check_tensor("pad", "x", x)
    rank = len(x.shape)
    choice("pad", "mode", mode, MODES)
    symbolic = mode == "constant"
    starts, ends = (
        _amounts("pad", label, amounts, rank, symbolic)
        for label, amounts in (("before", before), ("after", after))
    )
    if isinstance(value, Tensor):
        check_dtype("pad", "value", value, (x.dtype,))
        other = check_tensor("pad", "value", value, 0)[()]
    else:
        other = _element("pad", value, x.dtype)
    shape = tuple(n + a + b for n, a, b in zip(x.shape, starts, ends, strict=True))
    for axis, extent in enumerate(shape):
        if extent.is_Integer and extent < 0:
            raise DescribeError(
                "pad",
                f"cannot leave out {-min(starts[axis], 0) - min(ends[axis], 0)} elements",
                at=f"axis {axis} of {x!r}",
                because=f"it has {x.shape[axis]}",
            )

    def surrounded(*at: Value) -> Value:
        if mode == "constant":
            return _inside(x, at, starts, ends, other)
        around = zip(x.shape, starts, ends, strict=True)
        return piecewise_element(x, at, [_around(n, start, end, mode) for n, start, end in around])

    options = (("", starts, None), ("", ends, None), ("value", value, 0.0), ("", mode, "constant"))
    result = compute(shape, surrounded, result_name("pad", name, [x], *options), axis_letters(rank))
    return of_operands(result, x, value) if symbolic and isinstance(value, Tensor) else result


def piecewise_element(x: Tensor, at: Sequence[Value], axes: Sequence[Pieces]) -> Value:
    """The element of `x` for the place `at`, where each axis reads by ranges."""

    def read(done: tuple[Any, ...]) -> Value:
        axis = len(done)
        if axis == len(axes):
            return x[done]
        *first, (_, last) = axes[axis]
        element = read((*done, last(at[axis])))
        for end, place in reversed(first):
            element = where(at[axis] < end, read((*done, place(at[axis]))), element)
        return element

    return read(())


def _inside(
    x: Tensor, at: Sequence[Value], starts: Sequence[Any], ends: Sequence[Any], other: Value
) -> Value:
    conditions, places = [], []
    for n, start, end, i in zip(x.shape, starts, ends, at, strict=True):
        conditions += [i >= start] if _may_add(start) else []
        conditions += [i < n + start] if _may_add(end) else []
        places.append(i - start)
    if not conditions:
        return x[tuple(places)]
    return where(reduce(and_, conditions), x[tuple(places)], other)


def _may_add(amount: Any) -> bool:
    """Whether an amount is above 0 at some size."""
    return not isinstance(amount, int) or amount > 0


def _around(extent: Any, start: int, end: int, mode: str) -> Pieces:
    pieces: Pieces = [(extent + start, lambda i: i - start)]
    if start > 0:
        pieces.insert(0, (start, (lambda i: 0) if mode == "edge" else (lambda i: start - i)))
    if end > 0:
        mirrored = 2 * (extent - 1) + start
        edge = extent - 1
        pieces.append((None, (lambda i: edge) if mode == "edge" else (lambda i: mirrored - i)))
    return pieces


def _amounts(op: str, label: str, value: Any, rank: int, symbolic: bool) -> tuple[Any, ...]:
    each = several(value)
    checked = [_amount(op, n, symbolic) for n in ((value,) * rank if each is None else each)]
    amounts = tuple(n for n in checked if n is not None)
    if not len(amounts) == len(checked) == rank:
        raise DescribeError(
            op,
            f"cannot take {label}={value!r}",
            because=f"{label} is an int, or one for each of the {rank} axes",
        )
    return amounts


def _amount(op: str, value: Any, symbolic: bool) -> Any:
    """An int, or an expression in sizes where these are taken; None for anything else."""
    integer = whole(value)
    if integer is None and symbolic and getattr(value, "free_symbols", None):
        return size_expr(value, op)
    return integer


def _element(op: str, value: Any, dtype: str) -> Value:
    """`value` as an element; raises DescribeError where it is no number, or a fraction of integers."""
    good = isinstance(value, Real) and (dtype in FLOATS or float(value).is_integer())
    if not good:
        raise DescribeError(
            op,
            f"cannot take value={value!r}",
            because=f"value is a number that {dtype} holds",
        )
    return cast(float(value) if dtype in FLOATS else int(value), dtype)


def transpose(x: Tensor, axes: Sequence[int] | None = None, *, name: str | None = None) -> Tensor:
    """`x` with its axes in another order: axis n of the result is axis ``axes[n]`` of `x`.

    axes   a permutation, negative numbers count from the last; None: reversed

    Raises DescribeError where `axes` is no permutation.
    """
    check_tensor("transpose", "x", x)
    rank = len(x.shape)
    requested: Any = range(rank)[::-1] if axes is None else axes
    each = several(requested)
    order = [
        axis_number("transpose", x, axis, f"axes={axes!r}")
        for axis in ((requested,) if each is None else each)
    ]
    if sorted(order) != list(range(rank)):
        raise DescribeError(
            "transpose",
            f"cannot take axes={axes!r}",
            at=repr(x),
            because=f"it is not a permutation of the {rank} axes",
        )
    name = result_name("transpose", name, [x], ("", None if axes is None else tuple(order), None))
    shape = tuple(x.shape[n] for n in order)

    def element(*at: Value) -> Value:
        own = dict(zip(order, at, strict=True))
        return x[tuple(own[n] for n in range(rank))]

    return compute(shape, element, name, axis_letters(rank))


def concat(tensors: Sequence[Tensor], axis: int = 0, *, name: str | None = None) -> Tensor:
    """`tensors` one after the other along `axis`.

    tensors   at least one, of one element type, equal in every other extent

    Raises DescribeError where ranks, extents or element types do not fit.
    """
    if not isinstance(tensors, tuple | list) or not tensors:
        raise DescribeError(
            "concat",
            f"cannot join {tensors!r}",
            because="tensors is a tuple or a list of at least one",
            help=("concat([A, B], axis=1)",),
        )
    first = check_tensor("concat", "tensors[0]", tensors[0], least=1)
    rank, position = len(first.shape), axis_number("concat", first, axis)
    for number, tensor in enumerate(tensors):
        check_tensor("concat", f"tensors[{number}]", tensor, rank, dtypes=(first.dtype,))
        for n in range(rank):
            if n != position and not same_extent(first.shape[n], tensor.shape[n]):
                raise unequal_error(
                    "concat",
                    f"cannot join {first.name} and {tensor.name}",
                    (first.shape[n], tensor.shape[n]),
                    at=f"{first!r} and {tensor!r}",
                    because=f"axis {n} is {first.shape[n]} in one and {tensor.shape[n]} in the other",
                )
    ends: list[Any] = []
    for tensor in tensors:
        ends.append((ends[-1] if ends else 0) + tensor.shape[position])
    shape = (*first.shape[:position], ends[-1], *first.shape[position + 1 :])

    def element(*at: Value) -> Value:
        place = at[position]

        def part(number: int) -> Value:
            start = ends[number - 1] if number else 0
            here = (*at[:position], place - start, *at[position + 1 :])
            value: Value = tensors[number][here]
            return value

        value = part(len(tensors) - 1)
        for number in reversed(range(len(tensors) - 1)):
            value = where(place < ends[number], part(number), value)
        return value

    name = result_name("concat", name, tensors, ("axis", position, 0))
    return compute(shape, element, name, axis_letters(rank))


def split_axis(x: Tensor, axis: int, inner: int, *, name: str | None = None) -> Tensor:
    """`x` with `axis` of extent e as two, (e // inner, inner): the heads of attention, for example.

    inner   an int above 0 that divides the extent: an int, or an expression in sizes that is seen to
            be a multiple of it

    Raises DescribeError where there is no such axis or `inner` does not divide it.
    """
    check_tensor("split_axis", "x", x, least=1)
    position = axis_number("split_axis", x, axis)
    extent = x.shape[position]
    count = whole(inner)
    good = count is not None and count > 0
    if count is None or not good or not _divides(count, extent):
        raise DescribeError(
            "split_axis",
            f"cannot split axis {position} by {inner!r}",
            at=repr(x),
            because=f"it is not an int that divides {extent}",
            help=(f'dim("n", multiple_of={inner})',) if good and not extent.is_Integer else (),
        )
    shape = (*x.shape[:position], extent // count, count, *x.shape[position + 1 :])

    def apart(*at: Value) -> Value:
        place = at[position] * count + at[position + 1]
        return x[(*at[:position], place, *at[position + 2 :])]

    name = result_name("split_axis", name, [x], ("", position, None), ("", count, None))
    return compute(shape, apart, name, axis_letters(len(shape)))


def merge_axes(x: Tensor, axis: int, *, name: str | None = None) -> Tensor:
    """`x` with `axis` and the next one, of extents (m, n), as one of ``m * n``; n is an int.

    Raises DescribeError where there are no such axes or n is symbolic.
    """
    check_tensor("merge_axes", "x", x, least=2)
    position = axis_number("merge_axes", x, axis)
    if position == len(x.shape) - 1 or not x.shape[position + 1].is_Integer:
        raise DescribeError(
            "merge_axes",
            f"cannot merge axis {position} with the next",
            at=repr(x),
            because="there is none"
            if position == len(x.shape) - 1
            else f"the next has the extent {x.shape[position + 1]}, which is not an int",
        )
    inner = int(x.shape[position + 1])
    shape = (*x.shape[:position], x.shape[position] * inner, *x.shape[position + 2 :])

    def together(*at: Value) -> Value:
        place = at[position]
        split = (place // inner, place % inner) if inner else (place, place)
        return x[(*at[:position], *split, *at[position + 1 :])]

    name = result_name("merge_axes", name, [x], ("", position, None))
    return compute(shape, together, name, axis_letters(len(shape)))


def sliding_windows(
    x: Tensor, axis: int, size: int, step: int = 1, *, name: str | None = None
) -> Tensor:
    """Return the windows of `size` neighbours along `axis`, each `step` after the one before: their elements along a new last axis.

    For ``axis=0`` of two axes ``result[i, j, k] = x[i * step + k, j]``; an axis of extent e has ``(e - size) // step + 1`` windows.

    size, step   ints, at least 1

    Raises DescribeError where there is no such axis, or a number is none of these.
    """
    op = "sliding_windows"
    check_tensor(op, "x", x, least=1)
    position = axis_number(op, x, axis)
    size, step = integer(op, "size", size, 1), integer(op, "step", step, 1)
    count = (x.shape[position] - size) // step + 1
    shape = (*x.shape[:position], count, *x.shape[position + 1 :], size)

    def element(*at: Value) -> Value:
        place = at[position] * step + at[-1]
        return x[(*at[:position], place, *at[position + 1 : -1])]

    options = (("", position, None), ("", size, None), ("step", step, 1))
    return compute(shape, element, result_name(op, name, [x], *options), axis_letters(len(shape)))


def _divides(inner: int, extent: Any) -> bool:
    """Whether every term of `extent` is a multiple of `inner`."""
    terms = extent.expand().as_ordered_terms()
    for term in terms:
        factor, rest = term.as_coeff_Mul()
        multiple = int(factor) * int(getattr(rest, "multiple_of", 1))
        if multiple % inner:
            return False
    return True


MOST_PIECES = 256  # ranges that the result of `repeat` may be read in
MOST_ALONG = (
    150  # of them along an axis: choices inside of choices, of which an expression holds 200
)


def flip(x: Tensor, axes: int | Sequence[int] | None = None, *, name: str | None = None) -> Tensor:
    """`x` backwards along `axes`: ``result[i] = x[n - 1 - i]``.

    x      of any shape and element type
    axes   one axis, several, or None for all; negative ones count from the last

    Raises DescribeError where there is no such axis, or one is named twice.
    """
    check_tensor("flip", "x", x)
    numbers = axis_numbers("flip", x, axes)
    name = result_name("flip", name, [x], ("axis", None if axes is None else numbers, None))

    def backwards(*at: Value) -> Value:
        return x[tuple(x.shape[n] - 1 - i if n in numbers else i for n, i in enumerate(at))]

    return compute(x.shape, backwards, name, axis_letters(len(x.shape)))


def repeat(x: Tensor, counts: int | Sequence[int], *, name: str | None = None) -> Tensor:
    """All of `x`, `counts` times along each axis: ``result[i] = x[i mod n]``, as numpy's `tile` does for a tuple.

    x        of any shape and element type
    counts   one int of at least 0 for each axis, or one for all

    An axis of a symbolic extent is read in ranges, one for each time; of all axes together there are
    256 at most, and 150 along one.

    Raises DescribeError where `counts` is no such thing.
    """
    check_tensor("repeat", "x", x)
    rank = len(x.shape)
    times = integers("repeat", "counts", counts, rank, 0)
    along = tuple(map(_ranges, x.shape, times))
    ranges = math.prod(along)
    if ranges > MOST_PIECES or max(along, default=0) > MOST_ALONG:
        most = MOST_ALONG if ranges <= MOST_PIECES else MOST_PIECES
        raise DescribeError(
            "repeat",
            f"cannot take counts={counts!r}",
            at=repr(x),
            because=f"{ranges} ranges of symbolic extents are more than {most}",
            help=("a tensor of one more axis: compute((c, n), lambda t, i: X[i])",),
        )
    pieces = [_again(extent, count) for extent, count in zip(x.shape, times, strict=True)]
    shape = tuple(extent * count for extent, count in zip(x.shape, times, strict=True))
    name = result_name("repeat", name, [x], ("", times, None))
    return compute(shape, lambda *at: piecewise_element(x, at, pieces), name, axis_letters(rank))


def _ranges(extent: Any, count: int) -> int:
    """How many ranges of an axis are read, each by an index of its own."""
    return 1 if extent.is_Integer else max(count, 1)


def _again(extent: Any, count: int) -> Pieces:
    if count == 1:
        return [(None, lambda i: i)]
    if is_one(extent):
        return [(None, lambda i: 0)]
    if extent.is_Integer:
        return [(None, (lambda i: i % int(extent)) if extent else (lambda i: i))]

    def part(time: int) -> Callable[[Value], Value]:
        return lambda i: i - time * extent

    return [((time + 1) * extent, part(time)) for time in range(max(count, 1))]
