"""The same elements backwards, or several times over."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from offcut.core.integers import whole
from offcut.describe.tensor import Tensor, compute
from offcut.describe.value import Value
from offcut.errors import DescribeError
from offcut.ops.given.arguments import several
from offcut.ops.given.naming import named
from offcut.ops.given.operands import axis_letters, axis_numbers, check_tensor, is_one
from offcut.ops.rearranging.padding import Pieces, pieced

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
    name = named("flip", name, [x], ("axis", None if axes is None else numbers, None))

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
    each = several(counts)
    integers = [whole(n) for n in ((counts,) * rank if each is None else each)]
    times = tuple(n for n in integers if n is not None and n >= 0)
    if not len(times) == len(integers) == rank:
        raise DescribeError(
            "repeat",
            f"cannot take counts={counts!r}",
            because=f"counts is an int of at least 0, or one for each of the {rank} axes",
        )
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
    name = named("repeat", name, [x], ("", times, None))
    return compute(shape, lambda *at: pieced(x, at, pieces), name, axis_letters(rank))


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
